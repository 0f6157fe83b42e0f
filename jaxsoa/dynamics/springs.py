"""Springs in joints of every kind, on the manifold of configurations.

With x = difference(rest, q) the displacement from the rest configuration (a rotation vector where the joint turns
freely) and k a stiffness per degree of freedom, a spring stores sum k x^2 / 2. Its torque is minus the gradient of that
along tangents of q: -k x for coordinates that add, and for rotations -J* k x with J the derivative of the logarithm,
which where the stiffness is the same about all axes is -k x again (as MuJoCo has it for ball joints).

A model's own springs (`robot.stiffness`, `robot.rest`) are torques of the configuration alone, so every algorithm takes
them off where it begins (`unsprung`) and runs on the model without: one without springs pays nothing.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxsoa.indexing import take_rows
from jaxsoa.model.joints import Joint
from jaxsoa.model.multibody import Multibody


def spring_energy(robot: Multibody, stiffness: Array, rest: Array, q: Array) -> Float[Array, ""]:
    """What the springs have stored; stiffness (nv,), rest and q (nq,)."""
    x = robot.difference(rest, q)
    return jnp.sum(stiffness * x * x) / 2


def _torque_of(joint: Joint, k: Array, rest: Array, q: Array) -> Array:
    """Of one joint."""
    if joint.nq == joint.nv:
        return -k * joint.difference(rest, q)

    def energy(dq):
        x = joint.difference(rest, joint.integrate(q, dq))
        return jnp.sum(k * x * x) / 2

    return -jax.grad(energy)(jnp.zeros_like(k))


def _stiffness_of(joint: Joint, k: Array, rest: Array, q: Array) -> Array:
    """Minus the derivative of `_torque_of` along tangents of q (nv, nv)."""
    if joint.nq == joint.nv:
        return jnp.diag(k)
    return -jax.jacfwd(lambda dq: _torque_of(joint, k, rest, joint.integrate(q, dq)))(jnp.zeros_like(k))


def _by_joint(function, robot: Multibody, stiffness: Array, rest: Array, q: Array) -> list[Array]:
    """`function` of every joint, kind by kind."""
    parts = []
    for g in robot.topology.groups:
        rows = (take_rows(stiffness, g.v_index), take_rows(rest, g.q_index), take_rows(q, g.q_index))
        parts.append(jax.vmap(lambda *x, joint=g.joint: function(joint, *x))(*rows))
    return parts


def spring_torque(robot: Multibody, stiffness: Array, rest: Array, q: Array) -> Float[Array, " nv"]:
    """Torque (nv,) of the springs on the joints: minus the gradient of `spring_energy` along tangents of q."""
    stiffness = jnp.broadcast_to(stiffness, (robot.nv,))
    return robot.join_dofs(_by_joint(_torque_of, robot, stiffness, robot.check_q(rest, "rest"), robot.check_q(q)))


def taken_off(robot: Multibody, q: Array) -> tuple[Multibody, Float[Array, " nv"]]:
    """The model without its springs, and their torque."""
    return robot.with_springs(None), spring_torque(robot, robot.stiffness, robot.rest, q)


def unsprung(robot: Multibody, q: Array) -> tuple[Multibody, Array | None]:
    """The same; None where there are no springs."""
    return (robot, None) if robot.springs is None else taken_off(robot, q)


def unsprung_along(robot: Multibody, q: Array, dq: Array) -> tuple[Multibody, Array, Array]:
    """The model without its springs, their torque, and its change along dq."""

    def torque(dq):
        return spring_torque(robot, robot.stiffness, robot.rest, robot.integrate(q, dq))

    return robot.with_springs(None), *jax.jvp(torque, (jnp.zeros_like(dq),), (dq,))


def tangent_stiffness(robot: Multibody, q: Array) -> Float[Array, "nv nv"]:
    """Minus the derivative of the model's spring torques along tangents of q: one block per joint."""
    stiffness, rest = robot.stiffness, robot.rest
    total = jnp.zeros((robot.nv, robot.nv), jnp.result_type(q, robot.dtype))
    blocks = _by_joint(_stiffness_of, robot, stiffness, robot.check_q(rest, "rest"), q)
    for g, block in zip(robot.topology.groups, blocks, strict=True):
        where = np.asarray(g.v_index)
        total = total.at[where[:, :, None], where[:, None, :]].set(block)
    return total


def stored_energy(robot: Multibody, q: Array) -> Float[Array, ""]:
    """What the model's springs have stored at q."""
    return spring_energy(robot, robot.stiffness, robot.rest, q)


class JointSprings(eqx.Module):
    """Springs (and dampers) as a passive force: `rollout(passive=springs)`, `springs(robot, q, v)` in a torque (nv,).

    `stiffness` and `damping` are per degree of freedom (nv,) or one number, `rest` a configuration (nq,); all leaves.
    Springs that belong to a robot are better its own: `robot.replace(stiffness=..., rest=...)`.
    """

    stiffness: Float[Array, "*nv"]
    rest: Float[Array, " nq"]
    damping: Float[Array, "*nv"] | float = 0.0

    def __call__(self, robot: Multibody, q: Array, v: Array) -> Float[Array, " nv"]:
        return spring_torque(robot, self.stiffness, self.rest, q) - self.damping * v

    def energy(self, robot: Multibody, q: Array) -> Float[Array, ""]:
        """What the springs have stored at q."""
        return spring_energy(robot, self.stiffness, self.rest, q)
