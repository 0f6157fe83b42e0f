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

from jaxsoa.model.multibody import Multibody
from jaxsoa.spatial import ops
from jaxsoa.spatial.inertia import RigidInertia, rigid_inertia
from jaxsoa.sweeps import scatter


class LinkPoses(NamedTuple):
    """World poses of the moving links: rotation (n_links, 3, 3), position (n_links, 3)."""

    rotation: Float[Array, "n 3 3"]
    position: Float[Array, "n 3"]


class JointMotion(NamedTuple):
    """What the joints contribute, before any sweep: everything that depends on q (and v) link by link."""

    rotation: Any  # (n, 3, 3) child frame in the parent link's frame
    position: Any  # (n, 3)
    subspace: Any  # (nv, 6) rows of H in child axes
    velocity: Any  # (n, 6) H* v in child axes, or None
    bias: Any  # (n, 6) derivative of H* at fixed v, seen from the joint frame, child axes; or None where all vanish


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


def joint_motion(robot: Multibody, q: Array, v: Array | None = None) -> JointMotion:
    """Evaluate every joint, one kind at a time, vectorized over the joints of a kind."""
    rotations, positions, subspaces, velocities, biases = [], [], [], [], []
    has_bias = v is not None and any(group.joint.has_bias for group in robot.topology.groups)
    for group in robot.topology.groups:
        joint, geometry = group.joint, robot.geometry(group)
        qs = q[group.q_index]
        R, p = jax.vmap(joint.transform)(geometry, qs)
        subspace = jax.vmap(joint.subspace)(geometry, qs)
        tree_R, tree_p = _rows(robot.joint_rotation, group.links), _rows(robot.joint_position, group.links)
        rotations.append(jax.vmap(ops.matmul)(tree_R, R) if joint.rotates else tree_R)
        shift = jax.vmap(ops.matvec)(tree_R, p) if joint.translates else 0
        positions.append(tree_p + shift)
        subspaces.append(subspace)
        if v is not None:
            vs = v[group.v_index]
            velocities.append(jnp.sum(subspace * vs[:, :, None], axis=1))
            if has_bias:
                biases.append(jax.vmap(joint.bias)(geometry, qs, vs))
    return JointMotion(
        robot.join_links(rotations),
        robot.join_links(positions),
        robot.join_dofs(subspaces),
        None if v is None else robot.join_links(velocities),
        robot.join_links(biases) if has_bias else None,
    )


def _rows(x: Array, index: np.ndarray) -> Array:
    return x if len(index) == x.shape[0] else x[index]


def pose_step(R, p, motion_R, motion_p):
    """One link's pose from its parent's: (rotation, position, offset)."""
    offset = ops.matvec(R, motion_p)
    return ops.matmul(R, motion_R), ops.add(p, offset), offset


def velocity_step(w, v, offset, s_w, s_v, c_w=None, c_v=None):
    """One link's velocity and bias acceleration from its parent's velocity (JPL 88-11, 2.25, 2.32).

    (s_w, s_v) is the joint's relative velocity H* v and (c_w, c_v) its own bias, in world axes. With accelerations
    differentiated in the inertial frame, d/dt (v + w x l + s_v) gives w x (w x l) + 2 w x s_v: the factor 2 that
    the report's (2.32) lacks for sliding joints.
    """
    swing = ops.cross(w, offset)
    a_w = ops.cross(w, s_w)
    a_v = ops.cross(w, ops.add(swing, s_v, s_v))
    if c_w is not None:
        a_w, a_v = ops.add(a_w, c_w), ops.add(a_v, c_v)
    return ops.add(w, s_w), ops.add(v, swing, s_v), a_w, a_v


def world_axes(robot: Multibody, R: Array, subspace: Array) -> Array:
    """Rows of H turned into world axes: (nv, 6)."""
    links = robot.topology.dof_link
    R = R if robot.topology.single_dof else R[links]
    turn = jax.vmap(lambda R, s: jnp.concatenate([ops.matvec(R, s[:3]), ops.matvec(R, s[3:])]))
    return turn(R, subspace)


def kinematics(robot: Multibody, q: Array) -> Kinematics:
    """Poses by one outward sweep."""
    motion = joint_motion(robot, q)

    def step(parent, x):
        R, p, offset = pose_step(*parent, *x)
        return (R, p), (R, p, offset)

    base = (_as(robot.base_rotation, motion.rotation), jnp.zeros(3, motion.rotation.dtype))
    R, p, offset = scatter(robot.topology.link_plan, step, base, (motion.rotation, motion.position))
    return Kinematics(R, p, offset, world_axes(robot, R, motion.subspace))


def moving_kinematics(robot: Multibody, q: Array, v: Array) -> tuple[Kinematics, Velocities]:
    """Poses, velocities and bias accelerations by one outward sweep."""
    motion = joint_motion(robot, q, v)

    def step(parent, x):
        R, p, w, vel = parent
        motion_R, motion_p, s, c = x
        R, p, offset = pose_step(R, p, motion_R, motion_p)
        s_w, s_v = ops.matvec(R, s[:3]), ops.matvec(R, s[3:])
        turned = () if c is None else (ops.matvec(R, c[:3]), ops.matvec(R, c[3:]))
        w, vel, a_w, a_v = velocity_step(w, vel, offset, s_w, s_v, *turned)
        return (R, p, w, vel), (R, p, offset, w, vel, a_w, a_v)

    zero = jnp.zeros(3, jnp.result_type(motion.rotation, motion.velocity))
    base = (_as(robot.base_rotation, zero), zero, zero, zero)
    xs = (motion.rotation, motion.position, motion.velocity, motion.bias)
    R, p, offset, w, vel, a_w, a_v = scatter(robot.topology.link_plan, step, base, xs)
    return Kinematics(R, p, offset, world_axes(robot, R, motion.subspace)), Velocities(w, vel, a_w, a_v)


def _as(x: Array, like: Array) -> Array:
    return x.astype(jnp.result_type(x, like))


def link_inertias(robot: Multibody, R: Array) -> RigidInertia:
    """Every link's inertia about its own origin in world axes."""
    inertia = (robot.inertia + jnp.swapaxes(robot.inertia, -1, -2)) / 2
    return jax.vmap(rigid_inertia)(R, robot.mass, robot.com, inertia)


def joint_rates(robot: Multibody, axes: Array, x: Array) -> Float[Array, "n 6"]:
    """H* x link by link."""
    parts = axes * x[:, None]
    if robot.topology.single_dof:
        return parts
    return robot.join_links([jnp.sum(parts[g.v_index], axis=1) for g in robot.topology.groups])


# --- public -------------------------------------------------------------------------------------------------------


def forward_kinematics(robot: Multibody, q: Shaped[Array, " nq"]) -> LinkPoses:
    """World poses of all moving links: `.rotation` (n_links, 3, 3), `.position` (n_links, 3)."""
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


def frame_pose(robot: Multibody, q: Shaped[Array, " nq"], frame: str) -> tuple[Float[Array, "3 3"], Float[Array, "3"]]:
    """World rotation and position of any frame of `robot.frame_names`."""
    R, p, _ = frame_placement(robot, kinematics(robot, robot.check_q(q)), frame)
    return R, p + robot.base_position


def frame_axes(robot: Multibody, kin: Kinematics, frame: str) -> Float[Array, "6 nv"]:
    """Jacobian of a frame from kinematics already at hand."""
    _, point, link = frame_placement(robot, kin, frame)
    topology = robot.topology
    support = topology.link_support[link][topology.dof_link] if link >= 0 else np.zeros(topology.nv, bool)
    # phi*: the velocity at the frame's origin of a motion (w, v) at the link's origin.
    arm = point - kin.position[topology.dof_link]
    w, v = kin.axes[:, :3], kin.axes[:, 3:]
    columns = jnp.concatenate([w, v + jax.vmap(ops.cross)(w, arm)], axis=1)
    return jnp.where(support[:, None], columns, 0).T


def jacobian(robot: Multibody, q: Shaped[Array, " nq"], frame: str) -> Float[Array, "6 nv"]:
    """J with J v = (angular, linear) velocity of the frame's origin in world axes: B* phi* H*."""
    return frame_axes(robot, kinematics(robot, robot.check_q(q)), frame)


def jacobian_bias(
    robot: Multibody, q: Shaped[Array, " nq"], v: Shaped[Array, " nv"], frame: str
) -> Float[Array, "6"]:
    """J' v: acceleration of the frame's origin (true, inertial) when the joint accelerations are zero."""
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


def accelerations(robot: Multibody, offset: Array, source: Array, base) -> Float[Array, "n 6"]:
    """alpha = phi* source: the outward sweep that turns per-link increments into link accelerations (or velocities)."""

    def step(parent, x):
        w, v = parent
        offset, s = x
        w, v = w + s[:3], v + ops.cross(w, offset) + s[3:]
        return (w, v), (w, v)

    w, v = scatter(robot.topology.link_plan, step, base, (offset, source))
    return jnp.concatenate([w, v], axis=-1)


def link_velocities(robot: Multibody, q: Shaped[Array, " nq"], v: Shaped[Array, " nv"]) -> Float[Array, "n 6"]:
    """Spatial velocities of the links at their origins, world axes: V = phi* H* v."""
    return moving_kinematics(robot, robot.check_q(q), robot.check_v(v))[1].spatial


def link_accelerations(
    robot: Multibody, q: Shaped[Array, " nq"], v: Shaped[Array, " nv"], a: Shaped[Array, " nv"]
) -> Float[Array, "n 6"]:
    """Spatial accelerations (w', v') of the links at their origins, world axes, without gravity: phi* (H* a + bias).

    v' is the true acceleration of the origin (the derivative of its velocity in the inertial frame).
    """
    q, v, a = robot.check_q(q), robot.check_v(v), robot.check_v(a, "a")
    kin, vel = moving_kinematics(robot, q, v)
    source = joint_rates(robot, kin.axes, a) + vel.bias
    zero = jnp.zeros(3, source.dtype)
    return accelerations(robot, kin.offset, source, (zero, zero))
