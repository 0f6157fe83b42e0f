"""Arms and object moved back onto their contacts together, where joints are prescribed and an arm alone cannot.

    Omega = G M^-1 G*,   dx = -M^-1 G* Omega^+ error,   V <- V - M^-1 G* Omega^+ (G V),       G = N [J  -phi*(C, O)]

over arms (the free block of each mass matrix) and the object: the shortest way in the metric of kinetic energy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from jaxsoa.closed_chain.algebra import motion_shift, pseudo_inverse
from jaxsoa.closed_chain.close import hold
from jaxsoa.closed_chain.grasp import GraspSystem, Pose
from jaxsoa.closed_chain.grasp_methods import block_diagonal
from jaxsoa.closed_chain.grasp_problem import object_inertia
from jaxsoa.closed_chain.loops import cut_at_rest
from jaxsoa.spatial import rotation


def projected_together(
    system: GraspSystem,
    q: Sequence[Array],
    v: Sequence[Array],
    pose: Pose,
    velocity: Array,
    rotations: Sequence[Array],
    prescribed: Sequence[Array | None],
) -> tuple[tuple[Array, ...], tuple[Array, ...], Pose, Array]:
    """(q, v, pose, object velocity) on the contacts: one Newton step for the positions, then the velocities."""
    change, turn, move = _way_back(system, q, v, pose, rotations, prescribed, None)
    q = tuple(arm.robot.integrate(x, dx) for arm, x, dx in zip(system.arms, q, change, strict=True))
    pose = (rotation.from_quaternion(rotation.exponential(turn)) @ pose[0], pose[1] + move)
    change, turn, move = _way_back(system, q, v, pose, rotations, prescribed, velocity)
    velocity = velocity + jnp.concatenate([turn, move])
    return q, tuple(x + dx for x, dx in zip(v, change, strict=True)), pose, velocity


def _way_back(system: GraspSystem, q, v, pose: Pose, rotations, prescribed, velocity) -> tuple[Any, ...]:
    """How joints and object move to remove the errors of position, or with `velocity` those of velocity."""
    R, p = pose
    compliance = object_inertia(system.body, R)[1]
    parts = zip(system.arms, q, v, rotations, prescribed, strict=True)
    holds = [(arm, x, rate, hold(arm, x, rate, pose, target), mask) for arm, x, rate, target, mask in parts]
    rows = jnp.concatenate([at.held @ motion_shift(at.frame.position - p) for *_, at, _ in holds])  # of the object
    cuts = [cut_at_rest(arm.robot, x, at.jacobian, None, mask) for arm, x, _, at, mask in holds]
    omega = block_diagonal([cut.compliance.matrix for cut in cuts]) + rows @ compliance @ rows.T
    errors = jnp.concatenate([at.error if velocity is None else at.jacobian @ rate for _, _, rate, at, _ in holds])
    if velocity is not None:
        errors = errors - rows @ velocity
    f = -pseudo_inverse(omega).solve(errors)
    change = [cut.columns @ fi for cut, fi in zip(cuts, f.reshape(len(cuts), 6), strict=True)]
    object_change = -compliance @ rows.T @ f
    return change, object_change[:3], object_change[3:]
