"""What inverse kinematics asks for, as residuals with their Jacobians.

Every residual r(q) has rows J with dr = J dv for a tangent step dv (`robot.integrate(q, dv)`). For a pose the angular
rows are the rotation vector of R R_target^T and J its value at zero; its gradient J* r is exact everywhere, since the
right Jacobian of the logarithm leaves its own argument alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from jaxsoa.closed_chain.constraints import Constraint
from jaxsoa.closed_chain.loops import loop_rows_at_rest
from jaxsoa.dynamics.kinematics import Kinematics, frame_axes, frame_placement, kinematics
from jaxsoa.model.multibody import Multibody
from jaxsoa.spatial import ops, rotation


class Pose(eqx.Module):
    """A frame's rotation (3, 3) and position (3,), world axes."""

    rotation: Float[Array, "3 3"]
    position: Float[Array, "3"]

    def rows(self, R: Array, p: Array, J: Array) -> tuple[Array, Array]:
        """(6,) rotation vector and metres; (6, nv)."""
        turn = rotation.logarithm(rotation.to_quaternion(ops.matmul(R, self.rotation.T)))
        return jnp.concatenate([turn, p - self.position]), J


class Position(eqx.Module):
    """Where a frame's origin (or the point at `offset` in the frame's axes) shall be, world axes."""

    position: Float[Array, "3"]
    offset: Float[Array, "3"]

    def __init__(self, position, offset=(0.0, 0.0, 0.0)):
        self.position, self.offset = jnp.asarray(position), jnp.asarray(offset)

    def rows(self, R: Array, p: Array, J: Array) -> tuple[Array, Array]:
        """(3,) metres; (3, nv)."""
        arm = ops.matvec(R, self.offset)
        return p + arm - self.position, J[3:] - jnp.cross(arm, J[:3], axisb=0, axisc=0)


class Direction(eqx.Module):
    """An axis fixed in the frame shall point along `direction` in the world; both are made unit vectors."""

    axis: Float[Array, "3"]
    direction: Float[Array, "3"]

    def __init__(self, axis, direction):
        self.axis, self.direction = jnp.asarray(axis), jnp.asarray(direction)

    def rows(self, R: Array, p: Array, J: Array) -> tuple[Array, Array]:
        """(3,) difference of the unit vectors; (3, nv)."""
        now = ops.matvec(R, self.axis / jnp.sqrt(ops.dot(self.axis, self.axis)))
        wanted = self.direction / jnp.sqrt(ops.dot(self.direction, self.direction))
        return now - wanted, -jnp.cross(now, J[:3], axisb=0, axisc=0)


Target = Pose | Position | Direction


class Tasks(eqx.Module):
    """One inverse-kinematics problem: everything that the solution may be differentiated by, but for the robot."""

    frames: tuple[str, ...] = eqx.field(static=True)
    targets: tuple[Target, ...]
    weights: tuple[Array, ...]  # per target, one number per row
    center_of_mass: Array | None
    center_of_mass_weight: Array
    loops: tuple[Constraint, ...]
    rest: Array | None
    rest_weight: Array


def check_targets(
    robot: Multibody, frames: Sequence[str] | str, targets: Any, weights: Any
) -> tuple[tuple[str, ...], tuple[Target, ...], tuple[Array, ...]]:
    """Frames, targets and weights as tuples of one length; names and shapes are checked."""
    single = isinstance(frames, str)
    names = (frames,) if isinstance(frames, str) else tuple(frames)
    given = (targets,) if single else tuple(targets)
    if len(names) != len(given):
        raise ValueError(f"{len(names)} frames need {len(names)} targets, got {len(given)}.")
    for name in names:
        robot.topology.frame_number(name)  # a KeyError with suggestions
    checked = tuple(_as_target(target, name) for name, target in zip(names, given, strict=True))
    if weights is None:
        weights = (1.0,) * len(names)
    elif single:
        weights = (weights,)
    if len(weights) != len(names):
        raise ValueError(f"{len(names)} targets need {len(names)} weights, got {len(weights)}.")
    return names, checked, tuple(_as_weight(w, t) for w, t in zip(weights, checked, strict=True))


def _as_target(target: Any, frame: str) -> Target:
    if not isinstance(target, Pose | Position | Direction):
        pair = isinstance(target, tuple | list) and len(target) == 2
        target = Pose(jnp.asarray(target[0]), jnp.asarray(target[1])) if pair else Position(target)
    fields = {"rotation": (3, 3)}
    for name in ("rotation", "position", "offset", "axis", "direction"):
        value = getattr(target, name, None)
        if value is not None and jnp.shape(value) != fields.get(name, (3,)):
            raise ValueError(
                f"The target of frame {frame!r} must be (rotation (3, 3), position (3,)), a position (3,), or a "
                f"Position or Direction; its {name} has shape {jnp.shape(value)}. Batch with jax.vmap."
            )
        if value is not None and not isinstance(value, Tracer):
            _check_numbers(np.asarray(value), name, frame)
    return target


def _check_numbers(value: np.ndarray, name: str, frame: str) -> None:
    """What is known before tracing: finite numbers, rotations, directions."""
    if not np.isfinite(value).all():
        raise ValueError(f"The {name} of the target of frame {frame!r} must be finite, got {value.tolist()}.")
    if name in ("axis", "direction") and not value.any():
        raise ValueError(f"The {name} of the target of frame {frame!r} must not be zero.")
    turned = name == "rotation" and np.abs(value @ value.T - np.eye(3)).max() < 1e-4 and np.linalg.det(value) > 0
    if name == "rotation" and not turned:
        raise ValueError(f"The target of frame {frame!r} has no rotation matrix: {value.tolist()}.")


def _as_weight(weight: Any, target: Target) -> Array:
    """One number for all rows, or a pair (angular, linear) for a pose."""
    weight = jnp.asarray(weight, float)
    rows = 6 if isinstance(target, Pose) else 3
    if weight.shape == (2,) and rows == 6:
        return jnp.repeat(weight, 3)
    if weight.shape not in ((), (rows,)):
        raise ValueError(f"A weight is one number, {rows}, or (angular, linear) for a pose; got shape {weight.shape}.")
    return jnp.broadcast_to(weight, (rows,))


def task_rows(robot: Multibody, tasks: Tasks, q: Array) -> tuple[Array, Array, Array]:
    """Residuals (m,), Jacobian (m, nv) and weights (m,) of all that is asked for, but for the rest posture."""
    kin = kinematics(robot, q)
    parts, weights = [], []
    for frame, target, weight in zip(tasks.frames, tasks.targets, tasks.weights, strict=True):
        R, p, _ = frame_placement(robot, kin, frame)
        parts.append(target.rows(R, p + robot.base_position, frame_axes(robot, kin, frame)))
        weights.append(weight)
    if tasks.center_of_mass is not None:
        center, J = _center_of_mass(robot, kin)
        parts.append((center - tasks.center_of_mass, J))
        weights.append(jnp.broadcast_to(tasks.center_of_mass_weight, (3,)))
    if tasks.loops:
        closed = loop_rows_at_rest(robot, tasks.loops, q)
        parts.append((closed.error, closed.jacobian))
        weights.append(jnp.ones_like(closed.error))
    r, J = (jnp.concatenate([part[i] for part in parts]) for i in range(2))
    return r, J, jnp.concatenate([w.astype(r.dtype) for w in weights])


def _center_of_mass(robot: Multibody, kin: Kinematics) -> tuple[Array, Array]:
    """World centre of mass and its Jacobian (3, nv): what each joint carries, seen from the joint."""
    topology = robot.topology
    centers = kin.position + jax.vmap(ops.matvec)(kin.rotation, robot.com)
    carried = jnp.asarray(topology.link_support, centers.dtype).T  # [j, k]: link k hangs on link j
    mass = carried @ robot.mass
    moment = carried @ (robot.mass[:, None] * centers)
    links = topology.dof_link
    w, v = kin.axes[:, :3], kin.axes[:, 3:]
    arm = moment[links] - mass[links, None] * kin.position[links]
    total = jnp.sum(robot.mass)
    J = (mass[links, None] * v + jnp.cross(w, arm)) / total
    return robot.base_position + robot.mass @ centers / total, J.T
