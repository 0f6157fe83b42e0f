"""Where the links are and how they move: the first outward sweep, and what follows from it without another.

All spatial quantities are in world axes at each link's own origin. There phi*(k+1, k) is a pure translation by the
offset between the two origins (JPL 88-11, section 2), so nothing is rotated inside a sweep but the poses themselves.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from jaxsoa.dynamics.joints import JointMotion, joint_motion
from jaxsoa.eager import compiled
from jaxsoa.indexing import take_rows
from jaxsoa.model.multibody import Multibody
from jaxsoa.spatial import ops, pairs
from jaxsoa.spatial.inertia import RigidInertia, rigid_inertia
from jaxsoa.spatial.pairs import Spatial
from jaxsoa.sweeps import scatter


class LinkPoses(NamedTuple):
    """World poses of the moving links: rotation (n_links, 3, 3), position (n_links, 3)."""

    rotation: Float[Array, "n 3 3"]
    position: Float[Array, "n 3"]


class Kinematics(NamedTuple):
    """Poses, and each joint's axes and offset in world axes. `position` is relative to the base's origin."""

    rotation: Float[Array, "n 3 3"]
    position: Float[Array, "n 3"]
    offset: Float[Array, "n 3"]  # from the parent link's origin to the link's
    axes: Float[Array, "nv 6"]  # H*: columns of the joint map, one row per degree of freedom, at the link's origin


class Velocities(NamedTuple):
    angular: Float[Array, "n 3"]
    linear: Float[Array, "n 3"]  # of the link's origin
    bias_angular: Float[Array, "n 3"]  # a(k): what the acceleration is beyond phi* alpha(k+1) + H* a
    bias_linear: Float[Array, "n 3"]

    @property
    def spatial(self) -> Float[Array, "n 6"]:
        return jnp.concatenate([self.angular, self.linear], axis=-1)

    @property
    def bias(self) -> Float[Array, "n 6"]:
        return jnp.concatenate([self.bias_angular, self.bias_linear], axis=-1)


def pose_step(R, p, motion_R, motion_p):
    """One link's pose from its parent's: (rotation, position, offset)."""
    offset = ops.matvec(R, motion_p)
    return ops.matmul(R, motion_R), p + offset, offset


def velocity_step(w, v, offset, s_w=None, s_v=None, c_w=None, c_v=None):
    """One link's velocity and bias acceleration from its parent's velocity (JPL 88-11, 2.25, 2.32).

    (s_w, s_v) is the joint's relative velocity H* v and (c_w, c_v) its own bias, in world axes; None is zero. With
    accelerations differentiated in the inertial frame, d/dt (v + w x l + s_v) gives w x (w x l) + 2 w x s_v: the
    factor 2 that the report's (2.32) lacks for sliding joints.
    """

    def plus(*terms):
        return ops.sum_of(term for term in terms if term is not None)

    swing = ops.cross(w, offset)
    a_w = plus(ops.cross(w, w if s_w is None else s_w), c_w)  # w x w is zero, in the right form
    a_v = plus(ops.cross(w, plus(swing, s_v, s_v)), c_v)
    return plus(w, s_w), plus(v, swing, s_v), a_w, a_v


class LinkMotion(NamedTuple):
    """The result of the moving outward sweep."""

    rotation: Any
    position: Any
    offset: Any
    angular: Any
    linear: Any
    bias_angular: Any
    bias_linear: Any


def sweep_motion(robot: Multibody, motion: JointMotion) -> LinkMotion:
    """Poses, velocities and bias accelerations by one outward sweep."""

    def step(parent, x):
        R, p, w, v = parent
        motion_R, motion_p, *joint = x
        R, p, offset = pose_step(R, p, motion_R, motion_p)
        s_w, s_v, c_w, c_v = (None if y is None else ops.matvec(R, y) for y in joint)
        w, v, a_w, a_v = velocity_step(w, v, offset, s_w, s_v, c_w, c_v)
        return (R, p, w, v), LinkMotion(R, p, offset, w, v, a_w, a_v)

    velocity = (motion.velocity_angular, motion.velocity_linear, motion.bias_angular, motion.bias_linear)
    xs = (motion.rotation, motion.position, *velocity)
    base_R, zero = base_pose(robot, xs)
    return scatter(robot.topology.link_plan, step, (base_R, zero, zero, zero), xs)


def base_pose(robot: Multibody, xs) -> tuple[Array, Array]:
    """Rotation of the base and its position from itself, zero, in the type that a sweep over `xs` carries."""
    return carried(robot.base_rotation, xs), carried(jnp.zeros_like(robot.base_position), xs)


def carried(x: Array, xs: Any) -> Array:
    """What a sweep over `xs` begins with, in the type that it carries."""
    leaves = (leaf.dtype for leaf in jax.tree.leaves(xs))
    return x.astype(jnp.result_type(x, *(dtype for dtype in leaves if jnp.issubdtype(dtype, jnp.floating))))


def world_axes(robot: Multibody, R: Array, motion: JointMotion) -> tuple[Array, Array | None]:
    """H* in world axes per degree of freedom, angular and linear halves; None is zero."""
    R = R if robot.topology.single_dof else take_rows(R, robot.topology.dof_link)
    w, v = (None if half is None else ops.matvec(R, half) for half in (motion.axis_angular, motion.axis_linear))
    if w is None:  # a robot that only slides
        assert v is not None
        w = jnp.zeros_like(v)
    return w, v


def spatial_rows(w: Array, v: Array | None) -> Array:
    """(n, 6) rows from angular and linear halves; None is zero."""
    return jnp.concatenate([w, jnp.zeros_like(w) if v is None else v], axis=1)


def sweep_poses(robot: Multibody, motion: JointMotion) -> tuple[Array, Array, Array]:
    """(rotation, position from the base's origin, offset) of every link by one outward sweep."""

    def step(parent, x):
        R, p, offset = pose_step(*parent, *x)
        return (R, p), (R, p, offset)

    xs = (motion.rotation, motion.position)
    return scatter(robot.topology.link_plan, step, base_pose(robot, xs), xs)


def kinematics(robot: Multibody, q: Array) -> Kinematics:
    """Poses by one outward sweep."""
    motion = joint_motion(robot, q)
    R, p, offset = sweep_poses(robot, motion)
    return Kinematics(R, p, offset, spatial_rows(*world_axes(robot, R, motion)))


def moving_kinematics(robot: Multibody, q: Array, v: Array) -> tuple[Kinematics, Velocities]:
    """Poses, velocities and bias accelerations by one outward sweep."""
    motion = joint_motion(robot, q, v)
    link = sweep_motion(robot, motion)
    axes = spatial_rows(*world_axes(robot, link.rotation, motion))
    kin = Kinematics(link.rotation, link.position, link.offset, axes)
    return kin, Velocities(link.angular, link.linear, link.bias_angular, link.bias_linear)


def link_inertias(robot: Multibody, R: Array) -> RigidInertia:
    """Every link's inertia about its own origin in world axes."""
    return rigid_inertia(R, robot.mass, robot.com, ops.symmetric(robot.inertia))


def joint_rates(robot: Multibody, axes: Array, x: Array) -> Float[Array, "n 6"]:
    """H* x link by link."""
    return link_sums(robot, axes * x[:, None])


def link_sums(robot: Multibody, x: Any) -> Any:
    """Per link, the sum over its joint's degrees of freedom."""
    if robot.topology.single_dof:
        return x

    def sums(component: Array) -> Array:
        return robot.join_links([jnp.sum(take_rows(component, g.v_index), axis=1) for g in robot.topology.groups])

    return jax.tree.map(sums, x)


# --- public -------------------------------------------------------------------------------------------------------


@compiled(kernel=True)
def forward_kinematics(robot: Multibody, q: Shaped[Array, " nq"]) -> LinkPoses:
    """World poses of all moving links: `.rotation` (n_links, 3, 3), `.position` (n_links, 3).

    Units: rad; m.

    >>> poses = soa.forward_kinematics(robot, q)
    >>> print(poses.position[1].round(3))  # of the second link's origin
    [-0.296  0.    -0.955]
    """
    kin = kinematics(robot, robot.check_q(q))
    return LinkPoses(kin.rotation, kin.position + robot.base_position)


def frame_placement(robot: Multibody, kin: Kinematics, frame: str) -> tuple[Array, Array, int]:
    """Rotation, position relative to the base's origin, and carrying link (-1: base) of a frame."""
    number = robot.topology.frame_number(frame)
    link = robot.topology.frame_links[number]
    R, p = robot.frame_rotation[number], robot.frame_position[number]
    carrier_R = robot.base_rotation if link < 0 else kin.rotation[link]
    carrier_p = jnp.zeros_like(p) if link < 0 else kin.position[link]
    return ops.matmul(carrier_R, R), carrier_p + ops.matvec(carrier_R, p), link


@compiled(kernel=True)
def frame_pose(robot: Multibody, q: Shaped[Array, " nq"], frame: str) -> tuple[Float[Array, "3 3"], Float[Array, "3"]]:
    """World rotation and position of any frame of `robot.frame_names`.

    Units: rad; m.

    >>> R, p = soa.frame_pose(robot, q, "tip")
    >>> print(p.round(3))
    [-0.097  0.    -1.935]
    """
    R, p, _ = frame_placement(robot, kinematics(robot, robot.check_q(q)), frame)
    return R, p + robot.base_position


def frame_axes(robot: Multibody, kin: Kinematics, frame: str) -> Float[Array, "6 nv"]:
    """Jacobian of a frame from kinematics already at hand."""
    _, point, link = frame_placement(robot, kin, frame)
    topology = robot.topology
    support = topology.link_support[link][topology.dof_link] if link >= 0 else np.zeros(topology.nv, bool)
    # phi*: the velocity at the frame's origin of a motion (w, v) at the link's origin.
    arm = point - take_rows(kin.position, topology.dof_link)
    w, v = kin.axes[:, :3], kin.axes[:, 3:]
    columns = jnp.concatenate([w, v + jax.vmap(ops.cross)(w, arm)], axis=1)
    return jnp.where(support[:, None], columns, 0).T


@compiled(kernel=True)
def jacobian(robot: Multibody, q: Shaped[Array, " nq"], frame: str) -> Float[Array, "6 nv"]:
    """J with J v = (angular, linear) velocity of the frame's origin in world axes: B* phi* H*.

    Units: rad; rows of rad/rad, then m/rad.

    >>> J = soa.jacobian(robot, q, "tip")
    >>> print((J @ v)[3:].round(3))  # linear velocity of the tip, m/s
    [-0.97   0.    -0.001]
    """
    return frame_axes(robot, kinematics(robot, robot.check_q(q)), frame)


@compiled(kernel=True)
def jacobian_bias(robot: Multibody, q: Shaped[Array, " nq"], v: Shaped[Array, " nv"], frame: str) -> Float[Array, "6"]:
    """J' v: acceleration of the frame's origin (true, inertial) when the joint accelerations are zero.

    Units: rad, rad/s; rad/s^2 and m/s^2.

    >>> print(soa.jacobian_bias(robot, q, v, "tip")[3:].round(3))
    [-0.024  0.     0.506]
    """
    q, v = robot.check_q(q), robot.check_v(v)
    kin, vel = moving_kinematics(robot, q, v)
    _, point, link = frame_placement(robot, kin, frame)
    if link < 0:
        return jnp.zeros(6, kin.axes.dtype)
    zero = jnp.zeros(3, kin.axes.dtype)
    alpha = accelerations(robot, kin.offset, vel.bias, (zero, zero))
    return shift_acceleration(alpha[link], vel.angular[link], point - kin.position[link])


def shift_acceleration(alpha: Array, w: Array, arm: Array) -> Float[Array, "6"]:
    """Acceleration at a point of a rigid link a vector `arm` from its origin: phi* alpha + centripetal."""
    linear = alpha[3:] + ops.cross(alpha[:3], arm) + ops.cross(w, ops.cross(w, arm))
    return jnp.concatenate([alpha[:3], linear])


def spread(robot: Multibody, offset: Array, source: Spatial, base: Spatial) -> Spatial:
    """phi* source: the outward sweep that turns per-link increments into link accelerations (or velocities)."""

    def step(parent, x):
        offset, source = x
        motion = pairs.add(pairs.carry_motion(offset, parent), source)
        return motion, motion

    return scatter(robot.topology.link_plan, step, base, (offset, source))


def accelerations(robot: Multibody, offset: Array, source: Array, base: Spatial) -> Float[Array, "n 6"]:
    """`spread` in arrays (n, 6)."""
    return jnp.concatenate(spread(robot, offset, pairs.halves(source), base), axis=-1)


def gravity_upward(robot: Multibody, xs: Any) -> Spatial:
    """The base's pseudo-acceleration, gravity upside down, in the type that a sweep over `xs` carries."""
    return carried(jnp.zeros_like(robot.gravity), xs), carried(-robot.gravity, xs)


@compiled(kernel=True)
def link_velocities(robot: Multibody, q: Shaped[Array, " nq"], v: Shaped[Array, " nv"]) -> Float[Array, "n 6"]:
    """Spatial velocities of the links at their origins, world axes: V = phi* H* v.

    Units: rad, rad/s; rad/s and m/s.

    >>> print(soa.link_velocities(robot, q, v)[1].round(3))
    [ 0.     0.6    0.    -0.382  0.     0.118]
    """
    return moving_kinematics(robot, robot.check_q(q), robot.check_v(v))[1].spatial


@compiled(kernel=True)
def link_accelerations(
    robot: Multibody, q: Shaped[Array, " nq"], v: Shaped[Array, " nv"], a: Shaped[Array, " nv"]
) -> Float[Array, "n 6"]:
    """Spatial accelerations (w', v') of the links at their origins, world axes, without gravity: phi* (H* a + bias).

    v' is the true acceleration of the origin (the derivative of its velocity in the inertial frame).

    Units: rad, rad/s, rad/s^2; rad/s^2 and m/s^2.

    >>> print(soa.link_accelerations(robot, q, v, jnp.zeros(2))[1].round(3))
    [0.    0.    0.    0.047 0.    0.153]
    """
    q, v, a = robot.check_q(q), robot.check_v(v), robot.check_v(a, "a")
    kin, vel = moving_kinematics(robot, q, v)
    source = joint_rates(robot, kin.axes, a) + vel.bias
    zero = jnp.zeros(3, source.dtype)
    return accelerations(robot, kin.offset, source, (zero, zero))
