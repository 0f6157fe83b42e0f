"""Frames of a moving robot: where they are, how they move, and how they would accelerate with the joints at rest."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxsoa.closed_chain.algebra import motion_shift
from jaxsoa.dynamics.kinematics import (
    Kinematics,
    Velocities,
    accelerations,
    frame_axes,
    frame_placement,
    joint_rates,
    moving_kinematics,
    shift_acceleration,
)
from jaxsoa.model.multibody import Multibody
from jaxsoa.spatial import ops


class MovingFrame(NamedTuple):
    """Pose, Jacobian, velocity J v and bias acceleration J' v of a frame's origin, world axes."""

    rotation: Float[Array, "3 3"]
    position: Float[Array, "3"]
    jacobian: Any  # (6, nv), or None where only the motion is asked for
    velocity: Float[Array, "6"]
    bias: Float[Array, "6"]  # or the whole acceleration, where joint accelerations were given

    def at_point(self, point: Float[Array, "3"]) -> MovingFrame:
        """The frame with its origin moved to a point of it (its own axes)."""
        arm = ops.matvec(self.rotation, point)
        shift = motion_shift(arm)
        bias = shift_acceleration(self.bias, self.velocity[:3], arm)
        jacobian = None if self.jacobian is None else shift @ self.jacobian
        return MovingFrame(self.rotation, self.position + arm, jacobian, shift @ self.velocity, bias)


def moving_frames(robot: Multibody, q: Array, v: Array, names: Iterable[str]) -> dict[str, MovingFrame]:
    """The named frames at a checked state: one kinematic sweep for positions, one each for velocities and biases."""
    kin, vel = moving_kinematics(robot, q, v)
    zero = jnp.zeros(3, vel.bias.dtype)
    alpha = accelerations(robot, kin.offset, vel.bias, (zero, zero))
    return _placed(robot, kin, vel, alpha, names, frame_axes)


def accelerated_frames(
    robot: Multibody, q: Array, v: Array, a: Array, names: Iterable[str]
) -> tuple[dict[str, MovingFrame], Kinematics]:
    """The named frames with their accelerations J a + J' v as `bias` and no Jacobian; and where the links are."""
    kin, vel = moving_kinematics(robot, q, v)
    source = joint_rates(robot, kin.axes, a) + vel.bias
    zero = jnp.zeros(3, source.dtype)
    alpha = accelerations(robot, kin.offset, source, (zero, zero))
    return _placed(robot, kin, vel, alpha, names, lambda *_: None), kin


def _placed(robot: Multibody, kin: Kinematics, vel: Velocities, alpha: Array, names, jacobian) -> dict:
    frames = {}
    for name in sorted(set(names)):
        R, point, link = frame_placement(robot, kin, name)
        J = jacobian(robot, kin, name)
        velocity = bias = jnp.zeros(6, alpha.dtype)  # of a frame on the base
        if link >= 0:
            arm = point - kin.position[link]
            velocity = motion_shift(arm) @ vel.spatial[link]
            bias = shift_acceleration(alpha[link], vel.angular[link], arm)
        frames[name] = MovingFrame(R, point + robot.base_position, J, velocity, bias)
    return frames


def moving_frame(robot: Multibody, frame: str, q: Array, v: Array) -> MovingFrame:
    return moving_frames(robot, q, v, (frame,))[frame]
