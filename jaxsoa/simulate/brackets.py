"""The curvature of configuration space: Lie brackets of joint velocities, and what they do to tangents and momenta.

Joints whose coordinates add (q' = v) commute, and everything here vanishes for them. For the others, spherical and
free, v is a body velocity, and two of them, (w, u) and (w', u'), have the bracket (w x w', w x u' - w' x u).
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxsoa.model.multibody import Multibody


def bracket(robot: Multibody, x: Array, y: Array) -> Float[Array, " nv"]:
    """[x, y], joint by joint."""

    def of_joint(a, b):
        angular = jnp.cross(a[:, :3], b[:, :3])
        if a.shape[1] == 3:
            return angular
        linear = jnp.cross(a[:, :3], b[:, 3:]) - jnp.cross(b[:, :3], a[:, 3:])
        return jnp.concatenate([angular, linear], axis=1)

    return _by_joint(robot, of_joint, x, y)


def cobracket(robot: Multibody, x: Array, momentum: Array) -> Float[Array, " nv"]:
    """ad*_x p, the transpose of [x, .] applied to a momentum: (p, [x, y]) = (ad*_x p, y) for every y."""

    def of_joint(a, p):
        angular = jnp.cross(p[:, :3], a[:, :3])
        if a.shape[1] == 3:
            return angular
        return jnp.concatenate([angular + jnp.cross(p[:, 3:], a[:, 3:]), jnp.cross(p[:, 3:], a[:, :3])], axis=1)

    return _by_joint(robot, of_joint, x, momentum)


def tangent_rate(robot: Multibody, x: Array, v: Array) -> Float[Array, " nv"]:
    """x' for q = integrate(q0, x) moving with v: v + [x, v]/2 + [x, [x, v]]/12.

    That is the inverse right-trivialized tangent up to four brackets, which come with a factor of 1/720.
    """
    once = bracket(robot, x, v)
    return v + once / 2 + bracket(robot, x, once) / 12


def _by_joint(robot: Multibody, of_joint, x: Array, y: Array) -> Array:
    parts = []
    for group in robot.topology.groups:
        a, b = x[group.v_index], y[group.v_index]
        commutes = group.joint.nq == group.joint.nv
        parts.append(jnp.zeros_like(a * b) if commutes else of_joint(a, b))
    return robot.join_dofs(parts)
