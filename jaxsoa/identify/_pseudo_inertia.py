"""The pseudo-inertia of a link, and coordinates in which every one is physical.

P = [[S, m c], [m c*, m]] (4, 4), with S = integral of r r* dm about the link's origin. A mass distribution exists
exactly where P is positive (semi)definite (Wensing, Kim & Slotine, "Linear matrix inequalities for physically
consistent inertial parameter identification", IEEE RA-L 3(1), 2018): positive mass, and principal moments that obey the
triangle inequality. P = L L* with L lower triangular and its diagonal positive reaches all of the definite ones and
nothing else (log-Cholesky coordinates: Rucker & Wensing, "Smooth parameterization of rigid-body inertia", IEEE RA-L
7(2), 2022).
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxsoa.eager import compiled
from jaxsoa.model.multibody import Multibody


def density_moment(inertia: Float[Array, "... 3 3"]) -> Float[Array, "... 3 3"]:
    """S = tr(I)/2 - I: the integral of r r* dm about the point that I is about."""
    I = (inertia + jnp.swapaxes(inertia, -1, -2)) / 2
    return jnp.trace(I, axis1=-2, axis2=-1)[..., None, None] / 2 * jnp.eye(3, dtype=I.dtype) - I


def inertia_of_moment(S: Float[Array, "... 3 3"]) -> Float[Array, "... 3 3"]:
    """I = tr(S) - S, the inverse of `density_moment`."""
    return jnp.trace(S, axis1=-2, axis2=-1)[..., None, None] * jnp.eye(3, dtype=S.dtype) - S


@compiled(through_door=False)
def pseudo_inertia(
    mass: Float[Array, "..."], com: Float[Array, "... 3"], inertia: Float[Array, "... 3 3"]
) -> Float[Array, "... 4 4"]:
    """P of a link with its mass, centre of mass, and inertia about the centre of mass.

    Units: kg, m, kg m^2.

    >>> P = soa.identify.pseudo_inertia(robot.mass, robot.com, robot.inertia)
    >>> print(P.shape)
    (2, 4, 4)
    """
    first = mass[..., None] * com
    S = density_moment(inertia) + first[..., :, None] * com[..., None, :]
    top = jnp.concatenate([S, first[..., :, None]], axis=-1)
    bottom = jnp.concatenate([first, mass[..., None]], axis=-1)
    return jnp.concatenate([top, bottom[..., None, :]], axis=-2)


@compiled(through_door=False)
def from_pseudo_inertia(P: Float[Array, "... 4 4"]) -> tuple[Array, Array, Array]:
    """Mass, centre of mass and inertia about it: the inverse of `pseudo_inertia`.

    Units: kg, m, kg m^2.

    >>> P = soa.identify.pseudo_inertia(robot.mass, robot.com, robot.inertia)
    >>> mass, com, inertia = soa.identify.from_pseudo_inertia(P)
    >>> print(mass, jnp.allclose(inertia, robot.inertia))
    [1. 1.] True
    """
    mass = P[..., 3, 3]
    com = P[..., :3, 3] / mass[..., None]
    S = P[..., :3, :3] - mass[..., None, None] * com[..., :, None] * com[..., None, :]
    return mass, com, inertia_of_moment(S)


@compiled(through_door=False)
def link_pseudo_inertias(robot: Multibody) -> Float[Array, "n 4 4"]:
    """P of every link, about its origin, in link axes.

    Units: kg, kg m, kg m^2.

    >>> print(soa.identify.link_pseudo_inertias(robot).shape)
    (2, 4, 4)
    """
    return pseudo_inertia(robot.mass, robot.com, robot.inertia)


@compiled(through_door=False)
def consistency(robot: Multibody) -> Float[Array, " n"]:
    """How physical each link is: positive exactly if its pseudo-inertia is positive definite.

    The smaller of the mass and of the smallest principal second moment of mass about the centre of mass (the smallest
    eigenvalue of S). Zero for point masses and thin rods.

    >>> print(soa.identify.consistency(robot) > 0)
    [ True  True]
    """
    return jnp.minimum(robot.mass, jnp.linalg.eigvalsh(density_moment(robot.inertia))[..., 0])


def make_physical(robot: Multibody, *, floor: float = 1e-2) -> Multibody:
    """The nearest model whose links all have a positive definite pseudo-inertia.

    Principal second moments of mass about the centre of mass are raised to at least `floor` times the link's largest
    one (and to at least (1 cm)² times its mass times `floor`); masses and centres of mass stay. A massless link is an
    error: no density can give it inertia.

    >>> broken = robot.replace(inertia=robot.inertia.at[0, 1, 1].set(10.0))  # kg m^2
    >>> print((soa.identify.consistency(soa.identify.make_physical(broken)) > 0).all())
    True
    """
    bad = np.flatnonzero(np.asarray(robot.mass) <= 0)
    if len(bad):
        names = ", ".join(repr(robot.link_names[k]) for k in bad)
        raise ValueError(f"Links {names} of {robot.name!r} have no mass, so no inertia can be physical; give them one.")
    values, vectors = jnp.linalg.eigh(density_moment(robot.inertia))
    least = floor * jnp.maximum(values[:, -1], 1e-4 * robot.mass)
    raised = jnp.maximum(values, least[:, None])
    S = jnp.einsum("nij,nj,nkj->nik", vectors, raised, vectors)
    touched = jnp.any(values < least[:, None], axis=1)
    return robot.replace(inertia=jnp.where(touched[:, None, None], inertia_of_moment(S), robot.inertia))


# --- log-Cholesky coordinates about a given matrix --------------------------------------------------------------------


def factor_coordinates(U: Float[Array, "k k"]) -> Float[Array, " c"]:
    """x of a lower triangular factor U with a positive diagonal; see `log_cholesky`."""
    below = np.tril_indices(U.shape[-1], -1)
    return jnp.concatenate([2 * jnp.log(jnp.diagonal(U)), math.sqrt(2) * U[below]])


def coordinate_factor(x: Float[Array, " c"], size: int) -> Float[Array, "k k"]:
    """U of coordinates x: the inverse of `factor_coordinates`."""
    return jnp.diag(jnp.exp(x[:size] / 2)).at[np.tril_indices(size, -1)].set(x[size:] / math.sqrt(2))


@compiled(through_door=False)
def log_cholesky(P: Float[Array, "k k"], origin: Float[Array, "k k"] | None = None) -> Float[Array, " c"]:
    """Coordinates x (k (k + 1) / 2) of a positive definite matrix, zero at `origin` (the identity if None).

    P = L0 U U* L0*, L0 the Cholesky factor of the origin, U lower triangular; x = (2 log diag U, sqrt 2 the rest). So
    scaled, |x| is to second order the affine-invariant distance between P and the origin: a relative deviation that
    does not depend on units, link frame or size of the link. The divergence of Lee, Wensing & Park ("Geometric robot
    dynamic identification: a convex programming approach", IEEE T-RO 36(2), 2020), tr(P0^-1 P) - log det(P0^-1 P) - k,
    is the sum of exp(x) - 1 - x over the first k coordinates and of x² / 2 over the others.

    >>> P = soa.identify.link_pseudo_inertias(robot)[0]
    >>> print(soa.identify.log_cholesky(1.1 * P, P).round(3))
    [0.095 0.095 0.095 0.095 0.    0.    0.    0.    0.    0.   ]
    """
    factor = jnp.linalg.cholesky(P)
    if origin is not None:
        factor = jax.scipy.linalg.solve_triangular(jnp.linalg.cholesky(origin), factor, lower=True)
    return factor_coordinates(factor)


@compiled(through_door=False)
def from_log_cholesky(x: Float[Array, " c"], origin: Float[Array, "k k"]) -> Float[Array, "k k"]:
    """The matrix with coordinates x: the inverse of `log_cholesky`, positive definite for every x.

    >>> P = soa.identify.link_pseudo_inertias(robot)[0]
    >>> print(jnp.allclose(soa.identify.from_log_cholesky(jnp.zeros(10), P), P))
    True
    """
    factor = jnp.linalg.cholesky(origin) @ coordinate_factor(x, origin.shape[-1])
    return factor @ factor.T
