"""Positions of a floating base moved along a velocity held through a step, for libraries without such a function."""

from __future__ import annotations

import jax.numpy as jnp


def integrator(floating: bool, *, spin_in_body: bool):
    """(q, v, dt) -> q, with the base's q = (position, quaternion w x y z) and its linear velocity in world axes."""

    def integrate(q, v, dt):
        if not floating:
            return q + dt * v
        turn = _exponential(dt * v[3:6])
        quaternion = _product(q[3:7], turn) if spin_in_body else _product(turn, q[3:7])
        return jnp.concatenate([q[:3] + dt * v[:3], quaternion, q[7:] + dt * v[6:]])

    return integrate


def _exponential(x):
    half = 0.5 * jnp.sqrt(jnp.sum(x * x) + 1e-30)
    return jnp.concatenate([jnp.cos(half)[None], 0.5 * jnp.sinc(half / jnp.pi) * x])


def _product(a, b):
    vector = a[0] * b[1:] + b[0] * a[1:] + jnp.cross(a[1:], b[1:])
    return jnp.concatenate([(a[0] * b[0] - jnp.dot(a[1:], b[1:]))[None], vector])


def homogeneous(q):
    """(4, 4) of q = (position, quaternion w x y z, ...)."""
    w, x, y, z = q[3:7]
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y), q[0]],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x), q[1]],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y), q[2]],
        [0.0, 0.0, 0.0, 1.0],
    ]
    return jnp.array(rows)
