"""Friction cones in world axes: projection, its smoothed form, and the contact law as one equation.

K = {x : |x_T| <= mu x_N} about a unit normal n. In the half plane of (a, b) = (|x_T|, x_N), along the cone's edge e1
and across it e2,

    P(x) = p(s) e1 - p(-c) e2,   s = (mu a + b) / w,   c = (a - mu b) / w,   w = sqrt(1 + mu^2),   p(t) = max(t, 0),

which is the Euclidean projection. With p(t) = (t + sqrt(t^2 + 4 kappa^2)) / 2 (and mu kappa across) it is smooth, and
tends to the projection as kappa vanishes. No tangent basis is needed, and mu = 0 is allowed. Functions take any leading
shape: vectors (..., 3), coefficients (...).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Float


class _Plane(NamedTuple):
    """The projection in the half plane: tangential and normal part, and their derivatives by (a, b)."""

    tangential: Array
    normal: Array
    t_a: Array
    mixed: Array
    n_b: Array


def _positive_part(t: Array, kappa: Array | None) -> tuple[Array, Array]:
    """p(t) and p'(t), smoothed over kappa; exactly max(t, 0) where kappa is zero or None."""
    hard = jnp.maximum(t, 0), (t > 0).astype(t.dtype)
    if kappa is None:
        return hard
    smooth = kappa > 0
    root = jnp.sqrt(jnp.where(smooth, t * t + 4 * kappa * kappa, 1))
    # p(t) p(-t) = kappa^2: for negative t the quotient has no cancellation.
    value = jnp.where(t > 0, (t + root) / 2, 2 * kappa * kappa / jnp.where(t > 0, 1, root - t))
    return jnp.where(smooth, value, hard[0]), jnp.where(smooth, (1 + t / root) / 2, hard[1])


def _in_plane(a: Array, b: Array, mu: Array, kappa: Array | None) -> _Plane:
    # Products with inverses: a division takes as long as ten of them.
    per_square = 1 / (1 + mu * mu)
    per_w = jnp.sqrt(per_square)
    along, d_along = _positive_part((mu * a + b) * per_w, kappa)
    across, d_across = _positive_part((mu * b - a) * per_w, None if kappa is None else mu * kappa)
    return _Plane(
        (mu * along - across) * per_w,
        (along + mu * across) * per_w,
        (mu * mu * d_along + d_across) * per_square,
        mu * (d_along - d_across) * per_square,
        (d_along + mu * mu * d_across) * per_square,
    )


def dot(x: Float[Array, "*b 3"], y: Float[Array, "*b 3"]) -> Float[Array, "*b"]:
    """Inner product along the last axis."""
    return jnp.sum(x * y, axis=-1)


def norm(x: Float[Array, "*b 3"]) -> Float[Array, "*b"]:
    """Length of a three-vector, with derivative zero (not NaN) where it vanishes."""
    square = dot(x, x)
    positive = square > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, square, 1)), 0)


def tangential(x: Float[Array, "*b 3"], n: Float[Array, "*b 3"]) -> Float[Array, "*b 3"]:
    """x without its component along the unit vector n."""
    return x - dot(x, n)[..., None] * n


def _unit(x: Array, length: Array) -> Array:
    return x * (1 / jnp.where(length > 0, length, 1))[..., None]


def _parts(x: Array, n: Array, mu: Array, kappa: Array | None) -> tuple[_Plane, Array, Array, Array]:
    """(half plane, tangential vector, its length, tangential part after / before)."""
    b, tangent = dot(x, n), tangential(x, n)
    a = norm(tangent)
    plane = _in_plane(a, b, mu, kappa)
    # Close to the axis the quotient is a difference of nearly equal numbers; its limit is the derivative. Where the
    # projection is the identity, or zero, they are the same.
    near = (a <= 1e-6 * jnp.abs(b)) | (plane.mixed == 0)
    ratio = jnp.where(near, plane.t_a, plane.tangential / jnp.where(near, 1, a))
    return plane, tangent, a, ratio


@jax.custom_jvp
def project(
    x: Float[Array, "*b 3"], n: Float[Array, "*b 3"], mu: Float[Array, "*b"], kappa: Float[Array, "*b"] | None
) -> Float[Array, "*b 3"]:
    """The point of the cone nearest to x, or its smoothed form; normal n of length one."""
    plane, tangent, _, ratio = _parts(x, n, mu, kappa)
    return ratio[..., None] * tangent + plane.normal[..., None] * n


def _outer(x: Array, y: Array) -> Array:
    return x[..., :, None] * y[..., None, :]


def projection_jacobian(x: Array, n: Array, mu: Array, kappa: Array | None) -> Float[Array, "*b 3 3"]:
    """Derivative of `project` by x: symmetric, eigenvalues between zero and one."""
    plane, tangent, a, ratio = _parts(x, n, mu, kappa)
    t = _unit(tangent, a)
    nt = _outer(n, t)
    # Close to the axis t answers to everything: there its factor is zero, not the difference of two terms.
    terms = (
        (ratio, jnp.eye(3, dtype=x.dtype) - _outer(n, n)),
        (plane.t_a - ratio, _outer(t, t)),
        (plane.mixed, nt + jnp.swapaxes(nt, -1, -2)),
        (plane.n_b, _outer(n, n)),
    )
    return sum(weight[..., None, None] * matrix for weight, matrix in terms)  # pyright: ignore[reportReturnType]


def _project_jvp(primals, tangents):
    """By x with the Jacobian; by n since a turned cone projects turned points; by mu and kappa in the half plane."""
    x, n, mu, kappa = primals
    dx, dn, dmu, dkappa = (None if _is_zero(t) else t for t in tangents)
    y = project(x, n, mu, kappa)
    dy = jnp.zeros_like(y)
    turn = None if dn is None else jnp.cross(n, dn)
    if turn is not None:
        dx = -jnp.cross(turn, x) + (0 if dx is None else dx)
        dy = dy + jnp.cross(turn, y)
    if dx is not None:
        dy = dy + jnp.einsum("...ij,...j->...i", projection_jacobian(x, n, mu, kappa), dx)
    if dmu is not None or dkappa is not None:
        b, tangent = dot(x, n), tangential(x, n)
        a = norm(tangent)

        def half_plane(mu, kappa):
            plane = _in_plane(a, b, mu, kappa)
            return plane.tangential, plane.normal

        moved = [jnp.zeros_like(p) if d is None else d for p, d in ((mu, dmu), (kappa, dkappa)) if p is not None]
        if kappa is None:
            _, (d_t, d_n) = jax.jvp(lambda mu: half_plane(mu, None), (mu,), tuple(moved))
        else:
            _, (d_t, d_n) = jax.jvp(half_plane, (mu, kappa), tuple(moved))
        # The identity (or zero) knows no friction; what rounding leaves of it must not meet a direction's derivative.
        d_t, d_n = (jnp.where(_in_plane(a, b, mu, kappa).mixed == 0, 0, d) for d in (d_t, d_n))
        dy = dy + d_t[..., None] * _unit(tangent, a) + d_n[..., None] * n
    return y, dy


def _is_zero(tangent) -> bool:
    return tangent is None or isinstance(tangent, SymbolicZero)


project.defjvp(_project_jvp, symbolic_zeros=True)


def lifted(sigma: Float[Array, "*b 3"], n: Float[Array, "*b 3"], mu: Float[Array, "*b"]) -> Float[Array, "*b 3"]:
    """sigma + mu |sigma_T| n: De Saxce's term, which makes Coulomb's law a complementarity of cones."""
    return sigma + (mu * norm(tangential(sigma, n)))[..., None] * n


def lifted_jacobian(sigma: Array, n: Array, mu: Array) -> Float[Array, "*b 3 3"]:
    """Derivative of `lifted` by sigma."""
    tangent = tangential(sigma, n)
    t = _unit(tangent, norm(tangent))
    return jnp.eye(3, dtype=sigma.dtype) + mu[..., None, None] * _outer(n, t)
