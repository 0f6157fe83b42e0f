"""Rotations: axis-angle, unit quaternions (w, x, y, z), and their logarithms, smooth at the identity.

Functions of one rotation; batch with `jax.vmap`. Where a formula divides by an angle that may vanish, the argument is
replaced *before* the division (not only the result after it), so that derivatives of any order stay finite.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxsoa.spatial import ops


def _sin_over(x2):
    """sin(x)/x of x^2, smooth at zero to every order that matters."""
    small = x2 < 1e-3
    x = jnp.sqrt(jnp.where(small, 1.0, x2))
    series = 1 - x2 / 6 * (1 - x2 / 20 * (1 - x2 / 42 * (1 - x2 / 72)))
    return jnp.where(small, series, jnp.sin(x) / x)


def _cos_of(x2):
    """cos(x) of x^2."""
    small = x2 < 1e-3
    x = jnp.sqrt(jnp.where(small, 1.0, x2))
    series = 1 - x2 / 2 * (1 - x2 / 12 * (1 - x2 / 30 * (1 - x2 / 56)))
    return jnp.where(small, series, jnp.cos(x))


def from_axis_angle(axis: ops.Vector, angle) -> ops.Matrix:
    """Rotation by `angle` about the unit vector `axis` (Rodrigues)."""
    xp = ops.library(angle)
    c, s = xp.cos(angle), xp.sin(angle)
    x, y, z = axis[0], axis[1], axis[2]
    a, b, d = (1 - c) * x, (1 - c) * y, (1 - c) * z
    rows = (
        (c + a * x, a * y - s * z, a * z + s * y),
        (a * y + s * z, c + b * y, b * z - s * x),
        (a * z - s * y, b * z + s * x, c + d * z),
    )
    return ops.from_rows(rows)


def from_quaternion(q) -> ops.Matrix:
    """Rotation matrix of a unit quaternion (w, x, y, z)."""
    w, x, y, z = q[0], q[1], q[2], q[3]
    rows = (
        (1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)),
        (2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)),
        (2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)),
    )
    return ops.from_rows(rows)


def normalize(q: Float[Array, "4"]) -> Float[Array, "4"]:
    """Unit quaternion along q. A zero quaternion has no direction and gives NaN."""
    return q / jnp.sqrt(jnp.sum(q * q))


def multiply(p: Float[Array, "4"], q: Float[Array, "4"]) -> Float[Array, "4"]:
    """Quaternion product p q: rotate by q, then by p."""
    pw, pv, qw, qv = p[0], p[1:], q[0], q[1:]
    return jnp.concatenate([(pw * qw - ops.dot(pv, qv))[None], pw * qv + qw * pv + ops.cross(pv, qv)])


def conjugate(q: Float[Array, "4"]) -> Float[Array, "4"]:
    return jnp.concatenate([q[:1], -q[1:]])


def exponential(w: Float[Array, "3"]) -> Float[Array, "4"]:
    """Quaternion of the rotation vector w."""
    quarter = jnp.sum(w * w) / 4
    return jnp.concatenate([_cos_of(quarter)[None], w * (_sin_over(quarter) / 2)])


def logarithm(q: Float[Array, "4"]) -> Float[Array, "3"]:
    """Rotation vector, of length at most pi, of a unit quaternion."""
    q = jnp.where(q[0] < 0, -q, q)
    w, v = q[0], q[1:]
    s2 = jnp.sum(v * v)
    small = s2 < 1e-6
    s = jnp.sqrt(jnp.where(small, 1.0, s2))
    # 2 atan2(s, w) / s, and its series in s / w near the identity.
    t2 = s2 / jnp.where(small, w * w, 1.0)
    series = 2 / jnp.where(small, w, 1.0) * (1 - t2 / 3 + t2 * t2 / 5)
    return v * jnp.where(small, series, 2 * jnp.arctan2(s, w) / s)


def _screw_coefficients(x2):
    """((1 - cos x)/x^2, (x - sin x)/x^3) of x^2."""
    small = x2 < 1e-2
    safe = jnp.where(small, 1.0, x2)
    x = jnp.sqrt(safe)
    a = 1 / 2 - x2 / 24 * (1 - x2 / 30 * (1 - x2 / 56 * (1 - x2 / 90)))
    b = 1 / 6 - x2 / 120 * (1 - x2 / 42 * (1 - x2 / 72 * (1 - x2 / 110)))
    return jnp.where(small, a, (1 - jnp.cos(x)) / safe), jnp.where(small, b, (x - jnp.sin(x)) / (safe * x))


def screw_translation(w: Float[Array, "3"], v: Float[Array, "3"]) -> Float[Array, "3"]:
    """Where a body moving for unit time with constant body velocity (w, v) gets to (the SE(3) exponential)."""
    a, b = _screw_coefficients(jnp.sum(w * w))
    wv = ops.cross(w, v)
    return v + a * wv + b * ops.cross(w, wv)


def screw_velocity(w: Float[Array, "3"], p: Float[Array, "3"]) -> Float[Array, "3"]:
    """The v for which `screw_translation(w, v)` is p, for |w| < 2 pi."""
    x2 = jnp.sum(w * w)
    small = x2 < 1e-2
    half = jnp.sqrt(jnp.where(small, 1.0, x2)) / 2
    series = 1 / 12 + x2 / 720 * (1 + x2 / 42 * (1 + x2 / 40 * (1 + x2 * 5 / 198)))
    c = jnp.where(small, series, (1 - half * jnp.cos(half) / jnp.sin(half)) / jnp.where(small, 1.0, x2))
    wp = ops.cross(w, p)
    return p - wp / 2 + c * ops.cross(w, wp)


def to_quaternion(R: Float[Array, "3 3"]) -> Float[Array, "4"]:
    """Unit quaternion (w >= 0) of a rotation matrix, by the largest of the four candidate components."""
    t = jnp.trace(R)
    squares = (1 + t, 1 + 2 * R[0, 0] - t, 1 + 2 * R[1, 1] - t, 1 + 2 * R[2, 2] - t)
    a, b, c = R[2, 1] - R[1, 2], R[0, 2] - R[2, 0], R[1, 0] - R[0, 1]
    d, e, f = R[0, 1] + R[1, 0], R[0, 2] + R[2, 0], R[1, 2] + R[2, 1]
    candidates = ((squares[0], a, b, c), (a, squares[1], d, e), (b, d, squares[2], f), (c, e, f, squares[3]))
    best, size = jnp.stack(candidates[0]), squares[0]
    for square, candidate in zip(squares[1:], candidates[1:], strict=True):  # no index: a kernel has none
        best = jnp.where(square > size, jnp.stack(candidate), best)
        size = jnp.maximum(square, size)
    q = normalize(best)
    return jnp.where(q[0] < 0, -q, q)
