"""What every joint contributes, before any sweep: one kind at a time, vectorized over the joints of a kind."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxsoa.indexing import take_rows
from jaxsoa.model.joints import JointGeometry
from jaxsoa.model.multibody import Multibody
from jaxsoa.spatial import ops


class JointMotion(NamedTuple):
    """What the joints contribute, before any sweep: everything that depends on q (and v) link by link.

    None stands for zero everywhere.
    """

    rotation: Any  # child frame in the parent link's frame
    position: Any
    axis_angular: Any  # H* in child axes, per degree of freedom
    axis_linear: Any
    velocity_angular: Any  # H* v in child axes
    velocity_linear: Any
    bias_angular: Any  # derivative of H* along the motion, seen from the joint frame, child axes
    bias_linear: Any


def joint_motion(robot: Multibody, q: Array, v: Array | None = None) -> JointMotion:
    """Evaluate every joint, one kind at a time, vectorized over the joints of a kind."""
    topology = robot.topology
    parts: list[JointMotion] = []
    for group in topology.groups:
        joint, (axis, axis2, pitch) = group.joint, robot.geometry(group)
        geometry = JointGeometry(axis, axis2, pitch)
        coordinates = take_rows(q, group.q_index)
        rates = None if v is None else take_rows(v, group.v_index)
        tree_R = take_rows(robot.joint_rotation, group.links)
        tree_p = take_rows(robot.joint_position, group.links)
        R, p = jax.vmap(joint.pose)(geometry, coordinates)
        R = tree_R if R is None else ops.matmul(tree_R, R)
        p = tree_p if p is None else tree_p + ops.matvec(tree_R, p)
        axes = jax.vmap(joint.axes)(geometry, coordinates)
        halves = tuple(zip(*axes, strict=True))  # angular parts, linear parts
        angular, linear = (None if topology.angular_only and half else _stack_dofs(x) for half, x in enumerate(halves))
        s_w = s_v = c_w = c_v = None
        if rates is not None:
            s_w, s_v = (_combine(half, rates) for half in halves)
            c_w, c_v = jax.vmap(joint.drift)(geometry, coordinates, rates)
        parts.append(JointMotion(R, p, angular, linear, s_w, s_v, c_w, c_v))
    return _joined(robot, parts)


def _combine(axes, rates):
    """Sum of axes times rates; None where all axes are."""
    terms = [ops.scale(rates[:, i], axis) for i, axis in enumerate(axes) if axis is not None]
    return ops.sum_of(terms) if terms else None


def _stack_dofs(axes):
    """Per-dof vectors of a group (each (n, 3)) to (n, nv, 3); zeros where an axis is None, None where all are."""
    present = [axis for axis in axes if axis is not None]
    if not present:
        return None
    zero = jnp.zeros_like(present[0])
    return jnp.stack([zero if axis is None else axis for axis in axes], axis=1)


def _joined(robot: Multibody, parts: list[JointMotion]) -> JointMotion:
    """Groups joined in the order of links and of degrees of freedom."""

    def join(field: str, joiner):
        values = [getattr(part, field) for part in parts]
        like = next((value for value in values if value is not None), None)
        if like is None:
            return None

        def zeros(group):
            lead = group.v_index.shape if field.startswith("axis") else group.links.shape
            return jnp.zeros(lead + like.shape[len(lead) :], like.dtype)

        return joiner([zeros(g) if x is None else x for x, g in zip(values, robot.topology.groups, strict=True)])

    names = JointMotion._fields
    return JointMotion(*(join(f, robot.join_dofs if f.startswith("axis") else robot.join_links) for f in names))
