"""Inverse dynamics with loops and of grasps: torques for a motion, with internal forces as a free choice.

A motion fixes what the joints need, ID(q, v, a) = S* tau + J* f, but not how the actuated joints and the loops share
it. The joints that are not actuated ask J_u* f = ID_u of the loop forces; the rest of f is internal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from jaxsoa.closed_chain.algebra import pseudo_inverse, safe_norm
from jaxsoa.closed_chain.constraints import Constraint
from jaxsoa.closed_chain.grasp import GraspSystem, Pose, over_arms
from jaxsoa.closed_chain.grasp_problem import grasp_problem
from jaxsoa.closed_chain.loops import check_loops, loop_rows, split_forces
from jaxsoa.dynamics.inverse import inverse_dynamics_raw
from jaxsoa.eager import compiled
from jaxsoa.model.multibody import Multibody


class LoopTorques(NamedTuple):
    """Torques for a motion of a tree with loops."""

    tau: Float[Array, " nv"]  # zero on joints that are not actuated
    forces: Float[Array, "loops 6"]  # on frames b, world axes, at b's origin
    torques: Float[Array, " couplings"]
    residual: Float[Array, ""]  # torque that unactuated joints would still need; zero where the motion is possible


def actuated_mask(robot: Multibody, actuated) -> Array:
    """bool (nv,) from a mask or from joint names."""
    if isinstance(actuated, str):
        actuated = [actuated]
    if isinstance(actuated, Sequence) and all(isinstance(name, str) for name in actuated):
        mask = np.zeros(robot.nv, bool)
        for name in actuated:
            mask[robot.v_index(name)] = True
        return jnp.asarray(mask)
    mask = jnp.asarray(actuated)
    if mask.shape != (robot.nv,) or mask.dtype != jnp.bool_:
        raise ValueError(
            f"actuated must be bool of shape (nv,) = ({robot.nv},) or a list of joint names, "
            f"got {mask.dtype} {mask.shape}."
        )
    return mask


@compiled(through_door=False)
def loop_inverse_dynamics(
    robot: Multibody,
    loops: Sequence[Constraint],
    q: Shaped[Array, " nq"],
    v: Shaped[Array, " nv"],
    a: Shaped[Array, " nv"],
    actuated,
    f_ext: Shaped[Array, "n 6"] | None = None,
    *,
    preferred: Shaped[Array, "loops 6"] | None = None,
    least: str = "forces",
    rtol: float | None = None,
) -> LoopTorques:
    """Torques of the `actuated` joints (bool (nv,) or names) that give the motion (q, v, a), consistent with the loops.

    Where actuators are more than enough, internal loop forces are free: `least` = "forces" takes the loop forces of
    least norm (nearest to `preferred`, wrenches on b in world axes, if given), "torques" the least actuator torques.
    `residual` tells how much the motion asks beyond what the actuators can give.

    >>> robot, loops, q = soa.closed_chain.mechanisms.four_bar()
    >>> q, still = soa.closed_chain.close_loops(robot, loops, q), jnp.zeros(3)
    >>> found = soa.closed_chain.loop_inverse_dynamics(robot, loops, q, still, still, ["left1_joint"])
    >>> print(found.tau.round(3))  # the crank holds the linkage, N m
    [-3.787  0.     0.   ]
    """
    if least not in ("forces", "torques"):
        raise ValueError(f'least must be "forces" or "torques", got {least!r}.')
    loops = check_loops(robot, loops)
    q, v, a, f_ext = robot.check_q(q), robot.check_v(v), robot.check_v(a, "a"), robot.check_f_ext(f_ext)
    mask = actuated_mask(robot, actuated)
    rows = loop_rows(robot, loops, q, v)
    needed = inverse_dynamics_raw(robot, q, v, a, f_ext)
    n = rows.to_world.shape[0]
    f = jnp.zeros(len(rows.error), needed.dtype)
    if preferred is not None:
        preferred = robot.convert(preferred, "preferred")
        if preferred.shape != (n, 6):
            raise ValueError(f"preferred must have shape ({n}, 6), one wrench per loop; got {preferred.shape}.")
        f = f.at[: 6 * n].set(jnp.einsum("lji,lj->li", rows.to_world, preferred).reshape(-1))
    passive = jnp.where(mask, 0, rows.jacobian)  # J_u
    inverse = pseudo_inverse(passive @ passive.T, rtol)

    def meet(f):  # the least change of f after which the passive joints need nothing
        return f + inverse.solve(passive @ (jnp.where(mask, 0, needed) - passive.T @ f))

    f = meet(f)
    if least == "torques":
        # Move f within the null space of J_u* so as to make tau = ID_a - J_a* f least.
        active = jnp.where(mask, rows.jacobian, 0)
        within = active - jax.vmap(inverse.solve, in_axes=1, out_axes=1)(passive @ (passive.T @ active))
        f = f + within @ pseudo_inverse(within.T @ within, rtol).solve(jnp.where(mask, needed, 0) - active.T @ f)
    rest = needed - rows.jacobian.T @ f
    forces, torques = split_forces(rows, f)
    return LoopTorques(jnp.where(mask, rest, 0), forces, torques, safe_norm(jnp.where(mask, 0, rest)))


class GraspTorques(NamedTuple):
    """Torques for a motion of a grasp."""

    tau: tuple[Array, ...]
    contact_forces: Float[Array, "l 6"]  # on the object, at the contacts, world axes
    residual: Float[Array, ""]  # what the contacts cannot give of the force the object needs


@compiled(through_door=False)
def grasp_inverse_dynamics(
    system: GraspSystem,
    q: Sequence[Array],
    v: Sequence[Array],
    a: Sequence[Array],
    object_pose: Pose,
    *,
    object_acceleration: Shaped[Array, "6"] | None = None,
    squeeze: float | Shaped[Array, "l 6"] | None = None,
    contact_rates: Sequence[Array] | None = None,
    object_velocity: Shaped[Array, "6"] | None = None,
    f_ext: Sequence[Array | None] | None = None,
) -> GraspTorques:
    """Torques that move arms and object with joint accelerations `a` (one per arm, consistent with the grasp).

    The object's acceleration follows from `a` by (2.8b) unless given. It needs A* f = M(C) alpha + b(C); the least such
    contact forces are taken. What is left is internal: `squeeze` adds it, as a number (newtons with which each contact
    presses towards the contacts' common centre) or as forces (l, 6), of which the part that does not move the object
    counts.

    >>> system, q, pose = soa.closed_chain.mechanisms.two_arm_grasp()
    >>> still = [jnp.zeros(7)] * 2
    >>> found = soa.closed_chain.grasp_inverse_dynamics(system, q, still, still, pose, squeeze=10.0)  # N
    >>> print(found.contact_forces[:, 3:].round(3))  # on the box, which weighs 2 kg
    [[ 10.     0.     9.81]
     [-10.     0.     9.81]]
    """
    a = system.check("a", a, "check_v")
    zero = tuple(jnp.zeros_like(x) for x in a)
    p = grasp_problem(
        system, q, v, zero, object_pose, contact_rates=contact_rates, object_velocity=object_velocity, f_ext=f_ext
    )
    N = p.state.held
    NA = N @ p.A
    gram = pseudo_inverse(jnp.einsum("lij,lik->jk", NA, NA))
    if object_acceleration is None:
        tips = jnp.stack([J @ x for J, x in zip(p.jacobians, a, strict=True)]) + p.state.tips.bias
        object_acceleration = gram.solve(jnp.einsum("lij,li->j", NA, tips + p.slip_bias - p.centripetal))
    needed = p.inertia @ object_acceleration + p.bias
    f = jnp.einsum("lij,lj->li", N, _squeeze(p.state.offsets, squeeze))
    rest = needed - jnp.einsum("lij,li->j", NA, f)
    # Takes away what the wish would move the object with, and adds the least forces for the motion.
    f = f + jnp.einsum("lij,j->li", NA, gram.solve(rest))
    tau = over_arms(
        system,
        lambda robot, frame, q, v, a, f_ext, J, f: inverse_dynamics_raw(robot, q, v, a, f_ext) + J.T @ f,
        p.q,
        p.v,
        a,
        p.f_ext,
        p.jacobians,
        f,
    )
    return GraspTorques(tuple(tau), f, safe_norm(needed - jnp.einsum("lij,li->j", NA, f)))


def _squeeze(offsets: Array, squeeze) -> Array:
    """The wished internal forces (l, 6)."""
    if squeeze is None:
        return jnp.zeros((offsets.shape[0], 6), offsets.dtype)
    squeeze = jnp.asarray(squeeze, offsets.dtype)
    if squeeze.shape == ():
        inward = jnp.mean(offsets, axis=0) - offsets
        lengths = jax.vmap(safe_norm)(inward)[:, None]
        inward = jnp.where(lengths > 0, inward / jnp.where(lengths > 0, lengths, 1), 0)
        return jnp.concatenate([jnp.zeros_like(inward), squeeze * inward], axis=1)
    if squeeze.shape != (offsets.shape[0], 6):
        raise ValueError(f"squeeze must be a number or ({offsets.shape[0]}, 6) forces, got {squeeze.shape}.")
    return squeeze
