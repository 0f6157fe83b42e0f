"""Actuators as MuJoCo has them: motors, position and velocity servos, PID, with gears, limits and a first-order lag.

An actuator has a length l = g . q and a rate l' = g . v along joints (or the wrench of a site), and a force

    f = gain(l, l') x + bias(l, l') + ki * (integral of x - l),    tau = g f

where x is the command, or the activation that follows it: time_constant x' = command - x ("filter"), x' = command
("integrator"). Commands, activations and forces are clipped to their ranges. A set of them is one pytree of arrays that
goes into `rollout(actuators=...)`: its command is (nu,), one number per actuator.
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from jaxsoa.dynamics.kinematics import frame_axes, frame_placement, kinematics
from jaxsoa.model.multibody import Multibody
from jaxsoa.simulate.joint_limits import as_known
from jaxsoa.simulate.tendons import TendonDescription, Tendons, least_inertia_pulled, stacked_tendons

DYNAMICS = ("none", "filter", "filterexact", "integrator")
_ALL = (-np.inf, np.inf)


class ActuatorDescription(NamedTuple):
    """One actuator: `joints` maps joint names to gears (several: a fixed tendon); `site` is (frame, wrench (6,)).

    `path` is that of a tendon from frame to frame (`TendonDescription`), with `path_gear`.
    """

    name: str
    joints: Mapping[str, float]
    gain: tuple[float, float, float] = (1.0, 0.0, 0.0)  # constant, times length, times rate
    bias: tuple[float, float, float] = (0.0, 0.0, 0.0)
    integral: float = 0.0
    dynamics: str = "none"
    time_constant: float = 1.0
    control_range: tuple[float, float] = _ALL
    force_range: tuple[float, float] = _ALL
    activation_range: tuple[float, float] = _ALL
    early: bool = False  # the force uses the activation after the step
    site: tuple[str, tuple[float, ...]] | None = None  # wrench (moment, force) per unit, in the frame's axes
    path: tuple[str | float, ...] = ()
    path_gear: float = 1.0


def motor(joint: str, *, gear: float = 1.0, name: str | None = None, **options: Any) -> ActuatorDescription:
    """The command is a force, times the gear a joint torque.

    >>> drive = soa.simulate.actuator_set(robot, [soa.simulate.motor("joint1", gear=5.0)])
    >>> print(drive.names)
    ('joint1',)
    """
    return ActuatorDescription(name or joint, {joint: gear}, **options)


def position_servo(
    joint: str, *, kp: float, kv: float = 0.0, gear: float = 1.0, name: str | None = None, **options: Any
) -> ActuatorDescription:
    """The command is a position: f = kp (command - l) - kv l'.

    The force is held through a step: with I the inertia that the joint feels, gains beyond kv = 2 I / dt or
    kp = 4 I / dt^2 (times the gear squared) make it tremble: outside of jit `rollout` warns.

    >>> servo = soa.simulate.position_servo("joint2", kp=100.0, kv=5.0, name="elbow")  # N m/rad, N m s/rad
    >>> print(soa.simulate.actuator_set(robot, [servo]).names)
    ('elbow',)
    """
    return ActuatorDescription(name or joint, {joint: gear}, (kp, 0.0, 0.0), (0.0, -kp, -kv), **options)


def velocity_servo(
    joint: str, *, kv: float, gear: float = 1.0, name: str | None = None, **options: Any
) -> ActuatorDescription:
    """The command is a velocity: f = kv (command - l').

    The force is held through a step, so gains beyond kv = 2 I / dt make it tremble: outside of jit `rollout` warns.

    >>> servo = soa.simulate.velocity_servo("joint2", kv=5.0, name="elbow")  # N m s/rad
    >>> print(soa.simulate.actuator_set(robot, [servo]).names)
    ('elbow',)
    """
    return ActuatorDescription(name or joint, {joint: gear}, (kv, 0.0, 0.0), (0.0, 0.0, -kv), **options)


def pid_servo(joint: str, *, kp: float, ki: float, kd: float, **options: Any) -> ActuatorDescription:
    """The command is a position: f = kp (command - l) + ki (integral of command - l) - kd l'.

    >>> servo = soa.simulate.pid_servo("joint2", kp=100.0, ki=10.0, kd=5.0, name="elbow")
    >>> print(soa.simulate.actuator_set(robot, [servo]).names)
    ('elbow',)
    """
    return position_servo(joint, kp=kp, kv=kd, integral=ki, **options)


class Activation(NamedTuple):
    """Memory of a set of actuators, (nu,) each."""

    value: Float[Array, " nu"]
    integral: Float[Array, " nu"]


class Actuators(eqx.Module):
    """Actuators of a robot, one row each. Made by `actuator_set(robot, descriptions)` or `load_mjcf_actuators`."""

    names: tuple[str, ...] = eqx.field(static=True)
    dynamics: tuple[str, ...] = eqx.field(static=True)
    early: tuple[bool, ...] = eqx.field(static=True)
    site_frames: tuple[str | None, ...] = eqx.field(static=True)
    robot: Multibody
    tendons: Tendons  # what they pull at, gears included: along joints, or from frame to frame
    site_wrenches: Float[Array, "nu 6"]
    gain: Float[Array, "nu 3"]
    bias: Float[Array, "nu 3"]
    integral: Float[Array, " nu"]
    time_constant: Float[Array, " nu"]
    control_range: Float[Array, "nu 2"]
    force_range: Float[Array, "nu 2"]
    activation_range: Float[Array, "nu 2"]
    joint_range: Float[Array, "nv 2"]  # of the torque on a joint, from all actuators together

    @property
    def nu(self) -> int:
        """Number of commands."""
        return len(self.names)

    def command(self, values: Mapping[str, Any]) -> Float[Array, " nu"]:
        """A command from numbers by actuator name; the others are zero."""
        command = jnp.zeros(self.nu, self.gain.dtype)
        for name, value in values.items():
            command = command.at[self.index(name)].set(value)
        return command

    def index(self, name: str) -> int:
        """Where an actuator stands in a command."""
        if name not in self.names:
            near = difflib.get_close_matches(name, self.names, n=3, cutoff=0.4) or self.names[:20]
            raise KeyError(f"There is no actuator named {name!r}. Is it {' or '.join(map(repr, near))}?")
        return self.names.index(name)

    def initial(self, q: Array, v: Array) -> Activation:
        """No activation, nothing integrated."""
        return Activation(*jnp.zeros((2, self.nu), self.gain.dtype))

    def transmission(self, q: Array) -> tuple[Float[Array, " nu"], Float[Array, "nu nv"]]:
        """Lengths and moment arms g at q. The length along a site's wrench is zero, as in MuJoCo."""
        length, moment = self.tendons(self.robot, q)
        rows = [k for k, frame in enumerate(self.site_frames) if frame is not None]
        if rows:
            kin = kinematics(self.robot, self.robot.check_q(q))
            for k in rows:
                frame = self.site_frames[k]
                assert frame is not None
                R, _, _ = frame_placement(self.robot, kin, frame)
                wrench = jnp.concatenate([R @ self.site_wrenches[k, :3], R @ self.site_wrenches[k, 3:]])
                moment = moment.at[k].add(frame_axes(self.robot, kin, frame).T @ wrench)
        return length, moment

    def rate(self, command: Array, activation: Array) -> Float[Array, " nu"]:
        """Derivative of the activations; zero where there are none."""
        command = self._limited(command)
        lag = (command - activation) / jnp.maximum(self.time_constant, 1e-15)
        return jnp.select(
            [self._is("filter") | self._is("filterexact"), self._is("integrator")], [lag, command], jnp.zeros_like(lag)
        )

    def forces(self, command: Array, q: Array, v: Array, memory: Activation, dt: Any = 0.0) -> Float[Array, " nu"]:
        """Scalar forces f (nu,), clipped to their ranges; before the gear."""
        length, moment = self.transmission(q)
        return self._forces(self._limited(command), length, moment @ v, memory, self._advanced(command, memory, dt))

    def __call__(self, command: Array, q: Array, v: Array, memory: Activation, dt) -> tuple[Array, Activation]:
        """(torque (nv,), memory): forces from the activation before the step, as in MuJoCo."""
        command = jnp.asarray(command)
        if command.shape != (self.nu,):
            raise ValueError(f"A command has shape ({self.nu},), one number per actuator; got {command.shape}.")
        length, moment = self.transmission(q)
        after = self._advanced(command, memory, dt)
        limited = self._limited(command)
        force = self._forces(limited, length, moment @ v, memory, after)
        torque = jnp.clip(moment.T @ force, self.joint_range[:, 0], self.joint_range[:, 1])
        return torque, Activation(after, memory.integral + dt * (self._input(limited, memory.value) - length))

    def warn_if_stiff(self, dt: Any) -> None:
        """Where all numbers are known: is the step short enough for the servos, whose force is held through it?"""
        if any(isinstance(x, Tracer) for x in jax.tree.leaves((self, dt))):
            return
        kp, kv = np.maximum(-np.asarray(self.bias, float)[:, 1:].T, 0)
        if not (kp.any() or kv.any()):
            return
        inertia, h = as_known(least_inertia_pulled(self.robot, self.tendons)), float(dt)  # inside jit not known
        fast = (inertia > 0) & (np.maximum(h * kv / 2, h**2 * kp / 4) > inertia)
        if fast.any():
            k = int(np.argmax(fast))
            warnings.warn(
                f"Actuator {self.names[k]!r} of {self.robot.name!r} trembles at a step of {h:g} s: it can feel as "
                f"little inertia as {inertia[k]:.3g}, so kv ({kv[k]:g}) must stay below {2 * inertia[k] / h:.3g} and "
                f"kp ({kp[k]:g}) below {4 * inertia[k] / h**2:.3g}. Take a smaller step, or lower gains.",
                UserWarning,
                stacklevel=3,
            )

    def _is(self, kind: str) -> np.ndarray:
        return np.array([dynamics == kind for dynamics in self.dynamics], bool)

    def _limited(self, command: Array) -> Array:
        return jnp.clip(command, self.control_range[:, 0], self.control_range[:, 1])

    def _input(self, command: Array, activation: Array) -> Array:
        return jnp.where(self._is("none"), command, activation)

    def _advanced(self, command: Array, memory: Activation, dt: Any) -> Array:
        tau = jnp.maximum(self.time_constant, 1e-15)
        time = jnp.where(self._is("filterexact"), tau * -jnp.expm1(-dt / tau), dt)
        after = memory.value + time * self.rate(command, memory.value)
        return jnp.clip(after, self.activation_range[:, 0], self.activation_range[:, 1])

    def _forces(self, command: Array, length: Array, rate: Array, memory: Activation, after: Array) -> Array:
        x = self._input(command, jnp.where(np.array(self.early, bool), after, memory.value))
        gain, bias = (p[:, 0] + p[:, 1] * length + p[:, 2] * rate for p in (self.gain, self.bias))
        force = gain * x + bias + self.integral * memory.integral
        return jnp.clip(force, self.force_range[:, 0], self.force_range[:, 1])


def actuator_set(
    robot: Multibody, descriptions: Sequence[ActuatorDescription], *, joint_range: Any = None
) -> Actuators:
    """A set of actuators: joints are looked up, numbers stacked. `joint_range` (nv, 2) limits joint torques.

    >>> servo = soa.simulate.position_servo("joint2", kp=100.0, kv=5.0)  # N m/rad, N m s/rad
    >>> print(soa.simulate.actuator_set(robot, [servo]).names)
    ('joint2',)
    """
    nu = len(descriptions)
    wrenches = np.zeros((nu, 6))
    names = [description.name for description in descriptions]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"Two actuators are called {twice[0]!r}.")
    for row, one in enumerate(descriptions):
        if one.site is not None:
            robot.topology.frame_number(one.site[0])
            wrenches[row] = one.site[1]
        if one.dynamics not in DYNAMICS:
            raise ValueError(f"Actuator {one.name!r}: dynamics is one of {', '.join(DYNAMICS)}, got {one.dynamics!r}.")

    pulled = [TendonDescription(one.name, one.joints, one.path, one.path_gear) for one in descriptions]

    def stacked(field: str) -> Array:
        rows = np.array([np.atleast_1d(getattr(one, field)) for one in descriptions], float)
        width = np.size(ActuatorDescription._field_defaults[field])  # an empty set has no rows to tell
        return jnp.asarray(rows.reshape(nu, width), robot.dtype)

    if joint_range is None:
        joint_range = np.broadcast_to(np.array(_ALL), (robot.nv, 2))
    return Actuators(
        names=tuple(names),
        dynamics=tuple(one.dynamics for one in descriptions),
        early=tuple(one.early for one in descriptions),
        site_frames=tuple(None if one.site is None else one.site[0] for one in descriptions),
        robot=robot,
        tendons=stacked_tendons(robot, pulled, "Actuator"),
        site_wrenches=jnp.asarray(wrenches, robot.dtype),
        gain=stacked("gain"),
        bias=stacked("bias"),
        integral=stacked("integral")[:, 0],
        time_constant=stacked("time_constant")[:, 0],
        control_range=stacked("control_range"),
        force_range=stacked("force_range"),
        activation_range=stacked("activation_range"),
        joint_range=jnp.asarray(joint_range, robot.dtype),
    )


class Delay(eqx.Module):
    """Commands arrive `time` seconds late, interpolated between the last `history` steps; zero before the first.

    Put it before the actuators: `rollout(actuators=(Delay(0.02, history=10, size=motors.nu), motors))`. The time is a
    leaf: it may be fitted. More than the history holds cannot be remembered: an error, or NaN where it is traced.
    """

    time: Float[Array, ""]
    history: int = eqx.field(static=True)
    size: int = eqx.field(static=True)

    def __init__(self, time, *, history: int, size: int):
        if history < 1:
            raise ValueError(f"A delay needs a history of at least one step, got {history}.")
        self.time, self.history, self.size = jnp.asarray(time, float), history, size

    def initial(self, q: Array, v: Array) -> Float[Array, "h size"]:
        """Nothing commanded yet; newest first."""
        return jnp.zeros((self.history, self.size), v.dtype)

    def __call__(self, command: Array, q: Array, v: Array, memory: Array, dt) -> tuple[Array, Array]:
        """(the command of `time` ago, the history with this one)."""
        if not isinstance(self.time, Tracer) and not isinstance(dt, Tracer):
            seconds = float(np.asarray(self.time))  # on the host: inside a scan JAX would trace the division
            if not 0 <= seconds / float(dt) <= self.history * (1 + 1e-6):
                raise ValueError(f"A delay of {seconds} s is not within the history of {self.history} steps.")
        steps = self.time / dt
        known = jnp.concatenate([command[None], memory])
        inside = (steps >= 0) & (steps <= self.history * (1 + 1e-6))
        x = jnp.clip(steps, 0, self.history)
        late = jax.vmap(lambda row: jnp.interp(x, jnp.arange(self.history + 1.0), row))(known.T)
        return jnp.where(inside, late, jnp.nan).astype(command.dtype), known[:-1]
