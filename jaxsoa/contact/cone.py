"""Friction cones in world axes: projection, its smoothed form, and the contact law as one equation.

K = {x : |x_T| <= mu x_N} about a unit normal n. In the half plane of (a, b) = (|x_T|, x_N), along the cone's edge e1 and
across it e2,

    P(x) = p(s) e1 - p(-c) e2,   s = (mu a + b) / w,   c = (a - mu b) / w,   w = sqrt(1 + mu^2),   p(t) = max(t, 0),

which is the Euclidean projection. With p(t) = (t + sqrt(t^2 + 4 kappa^2)) / 2 (and mu kappa across) it is smooth, and
tends to the projection as kappa vanishes. No tangent basis is needed, and mu = 0 is allowed.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxsoa.spatial import ops


class _Plane(NamedTuple):
    """The projection in the half plane: tangential and normal part, and their derivatives by (a, b)."""

    tangential: Array
    normal: Array
    t_a: Array
    t_b: Array
    n_a: Array
    n_b: Array


def _positive_part(t: Array, kappa: Array) -> tuple[Array, Array]:
    """p(t) and p'(t), smoothed over kappa; exactly max(t, 0) where kappa is zero."""
    smooth = kappa > 0
    root = jnp.sqrt(jnp.where(smooth, t * t + 4 * kappa * kappa, 1))
    # p(t) p(-t) = kappa^2: for negative t the quotient has no cancellation.
    value = jnp.where(t > 0, (t + root) / 2, 2 * kappa * kappa / jnp.where(t > 0, 1, root - t))
    hard = jnp.maximum(t, 0), (t > 0).astype(t.dtype)
    return jnp.where(smooth, value, hard[0]), jnp.where(smooth, (1 + t / root) / 2, hard[1])


def _in_plane(a: Array, b: Array, mu: Array, kappa: Array) -> _Plane:
    square = 1 + mu * mu
    w = jnp.sqrt(square)
    along, d_along = _positive_part((mu * a + b) / w, kappa)
    across, d_across = _positive_part((mu * b - a) / w, mu * kappa)
    mixed = mu * (d_along - d_across) / square
    return _Plane(
        (mu * along - across) / w,
        (along + mu * across) / w,
        (mu * mu * d_along + d_across) / square,
        mixed,
        mixed,
        (d_along + mu * mu * d_across) / square,
    )


def norm(x: Float[Array, "3"]) -> Float[Array, ""]:
    """Length of a three-vector, with derivative zero (not NaN) where it vanishes."""
    square = ops.dot(x, x)
    positive = square > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, square, 1)), 0)


def split(x: Float[Array, "3"], n: Float[Array, "3"]) -> tuple[Array, Array]:
    """(normal component, tangential vector)."""
    b = ops.dot(x, n)
    return b, x - b * n


class _Parts(NamedTuple):
    plane: _Plane
    direction: Array  # unit tangential vector, zero where there is none
    ratio: Array  # tangential part after / before
    tangent: Array  # tangential vector before


def _parts(x: Array, n: Array, mu: Array, kappa: Array) -> _Parts:
    b, tangent = split(x, n)
    a = norm(tangent)
    plane = _in_plane(a, b, mu, kappa)
    # Close to the axis the quotient is a difference of nearly equal numbers; its limit is the derivative.
    near = a <= 1e-6 * jnp.abs(b)
    some = jnp.where(near, 1, jnp.where(a > 0, a, 1))
    ratio = jnp.where(near | (a == 0), plane.t_a, plane.tangential / some)
    return _Parts(plane, tangent / jnp.where(a > 0, a, 1), ratio, tangent)


@jax.custom_jvp
def project(x: Float[Array, "3"], n: Float[Array, "3"], mu: Float[Array, ""], kappa: Float[Array, ""]) -> Array:
    """The point of the cone nearest to x, or its smoothed form; normal n of length one."""
    parts = _parts(x, n, mu, kappa)
    return parts.ratio * parts.tangent + parts.plane.normal * n


def projection_jacobian(x: Array, n: Array, mu: Array, kappa: Array) -> Float[Array, "3 3"]:
    """Derivative of `project` by x: symmetric, eigenvalues between zero and one."""
    plane, t, ratio, _ = _parts(x, n, mu, kappa)
    nn, tt, nt = jnp.outer(n, n), jnp.outer(t, t), jnp.outer(n, t)
    plain = jnp.eye(3, dtype=x.dtype) - nn
    return ratio * (plain - tt) + plane.t_a * tt + plane.t_b * (nt + nt.T) + plane.n_b * nn


@project.defjvp
def _project_jvp(primals, tangents):
    """By x with the Jacobian; by n since a turned cone projects turned points; by mu in the half plane."""
    x, n, mu, kappa = primals
    dx, dn, dmu, dkappa = tangents
    y = project(x, n, mu, kappa)
    turn = ops.cross(n, dn)
    dy = projection_jacobian(x, n, mu, kappa) @ (dx - ops.cross(turn, x)) + ops.cross(turn, y)
    b, tangent = split(x, n)
    a = norm(tangent)

    def half_plane(mu, kappa):
        plane = _in_plane(a, b, mu, kappa)
        return plane.tangential, plane.normal

    _, (d_t, d_n) = jax.jvp(half_plane, (mu, kappa), (dmu, dkappa))
    return y, dy + d_t * tangent / jnp.where(a > 0, a, 1) + d_n * n


def lifted(sigma: Float[Array, "3"], n: Float[Array, "3"], mu: Float[Array, ""]) -> Float[Array, "3"]:
    """sigma + mu |sigma_T| n: De Saxce's term, which makes Coulomb's law a complementarity of cones."""
    return sigma + mu * norm(split(sigma, n)[1]) * n


def lifted_jacobian(sigma: Array, n: Array, mu: Array) -> Float[Array, "3 3"]:
    """Derivative of `lifted` by sigma."""
    tangent = split(sigma, n)[1]
    a = norm(tangent)
    return jnp.eye(3, dtype=sigma.dtype) + mu * jnp.outer(n, tangent / jnp.where(a > 0, a, 1))
