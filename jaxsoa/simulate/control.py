"""What turns intentions into joint torques: controllers, with or without memory, and actuators behind them.

A controller is any function `(time, q, v) -> command`. One with memory has two methods instead:

    initial(q, v) -> memory                                     any pytree
    __call__(time, q, v, memory, dt) -> command, memory         called once a step, the command is held through it

An actuator turns the command into a torque: a function `(command, q, v) -> torque`, or with memory
`initial(q, v) -> memory` and `__call__(command, q, v, memory, dt) -> torque, memory`. `rollout(actuators=(a, b))` feeds
the controller's command through a, then b. All classes here are small pytrees: their numbers can be differentiated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from jaxsoa.model.multibody import Multibody

Controller = Callable[..., Any]
Actuator = Callable[..., Any]
PerJoint = Float[Array, "*nv"] | float


def has_memory(part: Any) -> bool:
    return hasattr(part, "initial")


def initial_memory(part: Any, q: Array, v: Array) -> PyTree:
    """The memory a controller or actuator starts with; None if it keeps none."""
    return part.initial(q, v) if has_memory(part) else None


def call_controller(controller: Controller, time, q: Array, v: Array, memory: PyTree, dt) -> tuple[Array, PyTree]:
    if has_memory(controller):
        return controller(time, q, v, memory, dt)
    return controller(time, q, v), None


def command_size(robot: Multibody, actuators: tuple) -> int:
    """Length of a command: as the first actuator that tells takes it, otherwise one number per degree of freedom."""
    return next((actuator.nu for actuator in actuators if hasattr(actuator, "nu")), robot.nv)


def call_actuators(actuators: tuple, command: Array, q: Array, v: Array, memories: tuple, dt) -> tuple[Array, tuple]:
    after = []
    for actuator, memory in zip(actuators, memories, strict=True):
        if has_memory(actuator):
            command, memory = actuator(command, q, v, memory, dt)
        else:
            command = actuator(command, q, v)
        after.append(memory)
    return command, tuple(after)


# --- controllers ----------------------------------------------------------------------------------------------------


class PDServo(eqx.Module):
    """command = stiffness (target - q) + damping (target_velocity - v), the difference taken on the manifold.

    `target` is a configuration, or a function of time that gives (q, v).
    """

    robot: Multibody
    target: Float[Array, " nq"] | Callable[[Array], tuple[Array, Array]]
    stiffness: PerJoint
    damping: PerJoint

    def __call__(self, time, q: Array, v: Array) -> Array:
        target, velocity = self.target(time) if callable(self.target) else (self.target, jnp.zeros_like(v))
        return self.stiffness * self.robot.difference(q, target) + self.damping * (velocity - v)


class Sampled(eqx.Module):
    """A memoryless controller that runs at every `every`-th step only and holds its command in between."""

    controller: Controller
    every: int = eqx.field(static=True)

    def initial(self, q: Array, v: Array) -> tuple[Array, Array]:
        """No step taken, no torque (nv,) held."""
        return jnp.zeros((), jnp.int32), jnp.zeros_like(v)

    def __call__(self, time, q, v, memory, dt):
        count, held = memory
        command = jax.lax.cond(count % self.every == 0, lambda: self.controller(time, q, v), lambda: held)
        return command, (count + 1, command)


# --- actuators ------------------------------------------------------------------------------------------------------


class Saturation(eqx.Module):
    """Torques inside +-limit: clipped, or with `smooth` limit tanh(command / limit), whose gradient never vanishes.

    `Saturation(robot.limits.effort)` takes the limits of the model file; infinite ones limit nothing.
    """

    limit: PerJoint
    smooth: bool = eqx.field(static=True, default=False)

    def __call__(self, command: Array, q: Array, v: Array) -> Array:
        limit = jnp.asarray(self.limit, command.dtype)
        if not self.smooth:
            return jnp.clip(command, -limit, limit)
        finite = jnp.isfinite(limit)
        bound = jnp.where(finite, limit, 1)
        return jnp.where(finite, bound * jnp.tanh(command / bound), command)


class TorqueSpeed(eqx.Module):
    """A motor whose torque falls linearly with speed: +-stall torque at rest, none beyond the no-load speed.

    Only the torque that would speed the motor up is reduced; braking keeps the whole stall torque.
    """

    stall: PerJoint
    no_load_speed: PerJoint

    def __call__(self, command: Array, q: Array, v: Array) -> Array:
        forward = self.stall * jnp.clip(1 - v / self.no_load_speed, 0, 1)
        backward = self.stall * jnp.clip(1 + v / self.no_load_speed, 0, 1)
        return jnp.clip(command, -backward, forward)


class Lag(eqx.Module):
    """First-order response, time_constant * torque' = command - torque, exact for a command held through the step.

    The torque is the one at the end of the step; it starts at zero.
    """

    time_constant: PerJoint

    def initial(self, q: Array, v: Array) -> Array:
        """No torque (nv,)."""
        return jnp.zeros_like(v)

    def __call__(self, command: Array, q: Array, v: Array, memory: Array, dt) -> tuple[Array, Array]:
        torque = command + (memory - command) * jnp.exp(-dt / jnp.asarray(self.time_constant, command.dtype))
        return torque, torque


class Gear(eqx.Module):
    """Joint torque of a motor torque through a gear of the given ratio and efficiency.

    ratio * command * efficiency where the motor drives the joint, / efficiency where the joint drives the motor,
    blended smoothly over the power `blend` (watts) so that the torque has no jump where the joint stops.
    """

    ratio: PerJoint
    efficiency: PerJoint = 1.0
    blend: PerJoint = 1e-2

    def __call__(self, command: Array, q: Array, v: Array) -> Array:
        torque = self.ratio * command
        return torque * jnp.asarray(self.efficiency, command.dtype) ** jnp.tanh(torque * v / self.blend)
