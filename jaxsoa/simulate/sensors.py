"""Sensors: what encoders, inertial units and force sensors of a robot read, by name.

    sensors = soa.simulate.sensor_set([Gyro("imu", mount(robot, "imu_site")), JointPosition("elbow", "elbow")])
    readings = sensors(robot, q, v, a)                   # a dict: name -> array

Accelerometers need the accelerations a (`forward_dynamics`); they read the acceleration minus gravity. Force sensors
read what the parent exerts on the body, from the inter-body forces.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from jaxsoa.dynamics.inverse import link_forces
from jaxsoa.dynamics.kinematics import forward_kinematics, link_accelerations, link_velocities
from jaxsoa.model.multibody import Multibody
from jaxsoa.simulate.tendons import Tendons
from jaxsoa.spatial import rotation


class Motion(NamedTuple):
    """What sensors look at. Row -1 of the link arrays is the base, at rest."""

    robot: Multibody
    q: Array
    v: Array
    rotation: Float[Array, "n+1 3 3"]
    position: Float[Array, "n+1 3"]
    velocity: Float[Array, "n+1 6"]
    acceleration: Float[Array, "n+1 6"]  # minus gravity
    force: Float[Array, "n 6"]
    external: Float[Array, "n 6"]


def motion_of(robot: Multibody, q: Shaped[Array, " nq"], v: Shaped[Array, " nv"], a: Any, f_ext: Any = None) -> Motion:
    """Poses, velocities, accelerations and forces of all links."""
    q, v = robot.check_q(q), robot.check_v(v)
    a = jnp.zeros_like(v) if a is None else robot.check_v(a, "a")
    f_ext = robot.check_f_ext(f_ext)
    poses = forward_kinematics(robot, q)
    still = jnp.zeros((1, 6), v.dtype)
    proper = jnp.concatenate([link_accelerations(robot, q, v, a), still])
    proper = proper - jnp.concatenate([jnp.zeros_like(robot.gravity), robot.gravity])
    return Motion(
        robot,
        q,
        v,
        jnp.concatenate([poses.rotation, robot.base_rotation[None]]),
        jnp.concatenate([poses.position, robot.base_position[None]]),
        jnp.concatenate([link_velocities(robot, q, v), still]),
        proper,
        link_forces(robot, q, v, a, f_ext),
        jnp.zeros((robot.n_links, 6), v.dtype) if f_ext is None else f_ext,
    )


class Mount(eqx.Module):
    """A frame fixed to a link (number, -1: the base), by rotation and position in link axes."""

    link: int = eqx.field(static=True)
    rotation: Float[Array, "3 3"]
    position: Float[Array, "3"]

    def pose(self, motion: Motion) -> tuple[Array, Array]:
        """World rotation and position."""
        R, p = motion.rotation[self.link], motion.position[self.link]
        return R @ self.rotation, p + R @ self.position

    def velocity(self, motion: Motion) -> Float[Array, "6"]:
        """(angular, linear), world axes."""
        w, u = motion.velocity[self.link, :3], motion.velocity[self.link, 3:]
        arm = motion.rotation[self.link] @ self.position
        return jnp.concatenate([w, u + jnp.cross(w, arm)])

    def acceleration(self, motion: Motion) -> Float[Array, "6"]:
        """(angular, linear minus gravity), world axes."""
        w, alpha = motion.velocity[self.link, :3], motion.acceleration[self.link]
        arm = motion.rotation[self.link] @ self.position
        linear = alpha[3:] + jnp.cross(alpha[:3], arm) + jnp.cross(w, jnp.cross(w, arm))
        return jnp.concatenate([alpha[:3], linear])


def mount(robot: Multibody, frame: str) -> Mount:
    """Where a frame of the robot is fixed.

    >>> print(soa.simulate.mount(robot, "tip").position)  # in the axes of its link, m
    [ 0.  0. -1.]
    """
    row = robot.topology.frame_number(frame)
    return Mount(robot.topology.frame_links[row], robot.frame_rotation[row], robot.frame_position[row])


class JointPosition(eqx.Module):
    """The coordinates of a joint: a number, or its quaternion and so on."""

    name: str = eqx.field(static=True)
    joint: str = eqx.field(static=True)

    def __call__(self, motion: Motion) -> Array:
        """(nq of the joint,)."""
        return motion.q[motion.robot.q_index(self.joint)]


class JointVelocity(eqx.Module):
    """The rates of a joint."""

    name: str = eqx.field(static=True)
    joint: str = eqx.field(static=True)

    def __call__(self, motion: Motion) -> Array:
        """(nv of the joint,)."""
        return motion.v[motion.robot.v_index(self.joint)]


FRAME_QUANTITIES = (
    *("position", "quaternion", "x_axis", "y_axis", "z_axis", "linear_velocity", "angular_velocity"),
    *("linear_acceleration", "angular_acceleration", "gyro", "velocimeter", "accelerometer"),
)


class FrameSensor(eqx.Module):
    """Pose, velocity or acceleration of a frame, in world axes or seen from another frame; or what an IMU reads.

    `gyro`, `velocimeter` and `accelerometer` are in the frame's own axes. Accelerations have gravity subtracted.
    """

    name: str = eqx.field(static=True)
    quantity: str = eqx.field(static=True)
    at: Mount
    reference: Mount | None = None

    def __check_init__(self):
        if self.quantity not in FRAME_QUANTITIES:
            known = ", ".join(FRAME_QUANTITIES)
            raise ValueError(f"Sensor {self.name!r}: a frame has {known}; got {self.quantity!r}.")

    def __call__(self, motion: Motion) -> Array:
        """(3,), or (4,) for a quaternion."""
        R, p = self.at.pose(motion)
        what = self.quantity
        if what in ("gyro", "velocimeter"):
            V = self.at.velocity(motion)
            return R.T @ (V[:3] if what == "gyro" else V[3:])
        if what == "accelerometer":
            return R.T @ self.at.acceleration(motion)[3:]
        if what.endswith("acceleration"):
            alpha = self.at.acceleration(motion)
            return alpha[3:] if what.startswith("linear") else alpha[:3]
        if self.reference is None:
            R0, p0, V0 = jnp.eye(3, dtype=p.dtype), jnp.zeros_like(p), jnp.zeros(6, p.dtype)
        else:
            (R0, p0), V0 = self.reference.pose(motion), self.reference.velocity(motion)
        if what == "position":
            return R0.T @ (p - p0)
        if what == "quaternion":
            return rotation.to_quaternion(R0.T @ R)
        if what.endswith("axis"):
            return R0.T @ R[:, "xyz".index(what[0])]
        V = self.at.velocity(motion)
        if what == "angular_velocity":
            return R0.T @ (V[:3] - V0[:3])
        return R0.T @ (V[3:] - V0[3:] - jnp.cross(V0[:3], p - p0))


def Gyro(name: str, at: Mount) -> FrameSensor:
    """Angular velocity in the frame's axes.

    >>> sensor = soa.simulate.Gyro("gyro", soa.simulate.mount(robot, "tip"))
    >>> print(soa.simulate.sensor_set([sensor])(robot, q, v, jnp.zeros(2))["gyro"].round(2))  # rad/s
    [0.  0.6 0. ]
    """
    return FrameSensor(name, "gyro", at)


def Accelerometer(name: str, at: Mount) -> FrameSensor:
    """Acceleration minus gravity in the frame's axes.

    >>> sensor = soa.simulate.Accelerometer("imu", soa.simulate.mount(robot, "tip"))
    >>> print(soa.simulate.sensor_set([sensor])(robot, q, v, jnp.zeros(2))["imu"].round(2))  # m/s^2
    [ 2.03  0.   10.11]
    """
    return FrameSensor(name, "accelerometer", at)


class RigidPart(eqx.Module):
    """Part of a link (or of the base), in link axes, and the links that hang on it: a body with its subtree."""

    link: int = eqx.field(static=True)
    below: tuple[int, ...] = eqx.field(static=True)  # all links further out
    children: tuple[int, ...] = eqx.field(static=True)  # those that hang on the part itself
    mass: Float[Array, ""]
    com: Float[Array, "3"]
    inertia: Float[Array, "3 3"]  # about com


class JointWrench(eqx.Module):
    """What the parent exerts on a link by its joint: (moment, force) (6,) at a frame's origin, in its axes.

    Where no frame is given it is the link's own: the joint's. External forces count; the armature's inertia does not.

    >>> wrist = soa.simulate.JointWrench("wrist", "joint2")
    >>> print(soa.simulate.sensor_set([wrist])(robot, q, jnp.zeros(2))["wrist"].round(2))  # at rest: N m, N
    [ 0.   -0.97  0.    1.95  0.    9.61]
    """

    name: str = eqx.field(static=True)
    joint: str = eqx.field(static=True)
    at: Mount | None = None

    def __call__(self, motion: Motion) -> Array:
        """(6,)."""
        link = motion.robot.topology.joint_number(self.joint)
        wrench, R, arm = motion.force[link], motion.rotation[link], jnp.zeros_like(motion.position[link])
        if self.at is not None:
            R, origin = self.at.pose(motion)
            arm = motion.position[link] - origin
        return jnp.concatenate([R.T @ (wrench[:3] + jnp.cross(arm, wrench[3:])), R.T @ wrench[3:]])


class ForceSensor(eqx.Module):
    """Force, or torque about the frame's origin, that a body's parent exerts on it; frame's axes.

    The body may be part of a link, as in MuJoCo's files; external forces on that link count as beyond the sensor.
    """

    name: str = eqx.field(static=True)
    quantity: str = eqx.field(static=True)  # "force" or "torque"
    at: Mount
    body: RigidPart

    def __call__(self, motion: Motion) -> Array:
        """(3,)."""
        body, R_link = self.body, motion.rotation[self.body.link]
        R, origin = self.at.pose(motion)
        center = Mount(body.link, jnp.eye(3, dtype=R.dtype), body.com)
        alpha, w = center.acceleration(motion), motion.velocity[body.link, :3]
        inertia = R_link @ body.inertia @ R_link.T
        force = body.mass * alpha[3:]
        moment = inertia @ alpha[:3] + jnp.cross(w, inertia @ w) + jnp.cross(center.pose(motion)[1] - origin, force)
        arriving = [(link, motion.force[link]) for link in body.children]
        if body.link >= 0:
            arriving.append((body.link, -motion.external[body.link]))
        for link, f in arriving:
            force = force + f[3:]
            moment = moment + f[:3] + jnp.cross(motion.position[link] - origin, f[3:])
        return R.T @ (force if self.quantity == "force" else moment)


class SubtreeSensor(eqx.Module):
    """Centre of mass of a body with all that hangs on it, its velocity, or the angular momentum about it."""

    name: str = eqx.field(static=True)
    quantity: str = eqx.field(static=True)  # "center_of_mass", "linear_velocity" or "angular_momentum"
    body: RigidPart

    def __call__(self, motion: Motion) -> Array:
        """(3,), world axes."""
        body, robot = self.body, motion.robot
        links = np.array([body.link, *body.below])
        mass = jnp.concatenate([body.mass[None], robot.mass[links[1:]]])
        com = jnp.concatenate([body.com[None], robot.com[links[1:]]])
        inertia = jnp.concatenate([body.inertia[None], robot.inertia[links[1:]]])
        R, w = motion.rotation[links], motion.velocity[links, :3]
        arm = jnp.einsum("kij,kj->ki", R, com)
        centers, rates = motion.position[links] + arm, motion.velocity[links, 3:] + jnp.cross(w, arm)
        total = jnp.sum(mass)
        center, rate = mass @ centers / total, mass @ rates / total
        if self.quantity == "center_of_mass":
            return center
        if self.quantity == "linear_velocity":
            return rate
        spin = jnp.einsum("kij,kjl,kml,km->ki", R, inertia, R, w)
        return jnp.sum(spin + jnp.cross(centers - center, mass[:, None] * (rates - rate)), axis=0)


class TendonSensor(eqx.Module):
    """Length or rate of a tendon, or of what an actuator moves: one row of a set of tendons."""

    name: str = eqx.field(static=True)
    of_rate: bool = eqx.field(static=True)
    tendons: Tendons
    row: int = eqx.field(static=True, default=0)

    def __call__(self, motion: Motion) -> Array:
        """(1,)."""
        length, moment = self.tendons(motion.robot, motion.q)
        return (moment[self.row] @ motion.v if self.of_rate else length[self.row])[None]


class Limited(eqx.Module):
    """A sensor that reads no more than +-cutoff."""

    sensor: Any
    cutoff: Float[Array, ""]

    @property
    def name(self) -> str:
        """That of the sensor inside."""
        return self.sensor.name

    def __call__(self, motion: Motion) -> Array:
        """As the sensor inside, clipped."""
        return jnp.clip(self.sensor(motion), -self.cutoff, self.cutoff)


class Sensors(eqx.Module):
    """Several sensors: called with a state they give a dict, name -> reading."""

    sensors: tuple[Any, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """In the order of the readings."""
        return tuple(sensor.name for sensor in self.sensors)

    def __call__(
        self, robot: Multibody, q: Shaped[Array, " nq"], v: Shaped[Array, " nv"], a: Any = None, f_ext: Any = None
    ) -> dict[str, Array]:
        """Readings in the state (q, v) with accelerations a (default: none) and external forces."""
        motion = motion_of(robot, q, v, a, f_ext)
        return {sensor.name: sensor(motion) for sensor in self.sensors}


def sensor_set(several: Sequence[Any]) -> Sensors:
    """A set of sensors with different names.

    >>> sensors = soa.simulate.sensor_set([soa.simulate.Gyro("gyro", soa.simulate.mount(robot, "tip"))])
    >>> print(sensors(robot, q, v, jnp.zeros(2))["gyro"].shape)  # rad/s
    (3,)
    """
    names = [sensor.name for sensor in several]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"Two sensors are called {twice[0]!r}.")
    return Sensors(tuple(several))


class InertialNoise(eqx.Module):
    """White noise and a wandering bias, as the data sheets of inertial units give them.

    `density` is white noise in units per sqrt(Hz); the bias is a Gauss-Markov process of standard deviation `bias` and
    correlation time `bias_time` (infinite: it stays as it was drawn).
    """

    density: Float[Array, ""] | float
    bias: Float[Array, ""] | float = 0.0
    bias_time: Float[Array, ""] | float = jnp.inf

    def initial(self, key: Array, like: Array) -> Array:
        """A bias drawn for a reading of this shape."""
        return self.bias * jax.random.normal(key, like.shape, like.dtype)

    def __call__(self, key: Array, reading: Array, bias: Array, dt) -> tuple[Array, Array]:
        """(disturbed reading, bias after dt); one key per reading."""
        white, walk = jax.random.split(key)
        keep = jnp.exp(-dt / jnp.asarray(self.bias_time, reading.dtype))
        drive = self.bias * jnp.sqrt(jnp.maximum(1 - keep * keep, 0))
        after = keep * bias + drive * jax.random.normal(walk, reading.shape, reading.dtype)
        noise = self.density / jnp.sqrt(dt) * jax.random.normal(white, reading.shape, reading.dtype)
        return reading + bias + noise, after
