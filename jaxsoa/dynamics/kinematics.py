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

from jaxsoa.eager import compiled
from jaxsoa.indexing import take_rows
from jaxsoa.model.joints import JointGeometry
from jaxsoa.model.multibody import Multibody
from jaxsoa.spatial import ops
from jaxsoa.spatial.inertia import RigidInertia, rigid_inertia
from jaxsoa.sweeps import scatter


class LinkPoses(NamedTuple):
    """World poses of the moving links: rotation (n_links, 3, 3), position (n_links, 3)."""

    rotation: Float[Array, "n 3 3"]
    position: Float[Array, "n 3"]


class JointMotion(NamedTuple):
    """What the joints contribute, before any sweep: everything that depends on q (and v) link by link.

    Vectors are packed, (n, 3), or in components, three arrays (n,); None stands for zero everywhere.
    """

    rotation: Any  # child frame in the parent link's frame
    position: Any
    axis_angular: Any  # H* in child axes, per degree of freedom
    axis_linear: Any
    velocity_angular: Any  # H* v in child axes
    velocity_linear: Any
    bias_angular: Any  # derivative of H* along the motion, seen from the joint frame, child axes
    bias_linear: Any


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


def joint_motion(robot: Multibody, q: Array, v: Array | None = None, split: bool = False) -> JointMotion:
    """Evaluate every joint, one kind at a time, vectorized over the joints of a kind; `split`: in components."""
    topology = robot.topology
    each = (lambda f: f) if split else jax.vmap
    vector = ops.split_vector if split else lambda x: x
    matrix = ops.split_matrix if split else lambda m: m
    parts: list[JointMotion] = []
    for group in topology.groups:
        joint, (axis, axis2, pitch) = group.joint, robot.geometry(group)
        geometry = JointGeometry(vector(axis), vector(axis2), pitch)
        coordinates = _columns(q, group.q_index, split)
        rates = None if v is None else _columns(v, group.v_index, split)
        tree_R = matrix(take_rows(robot.joint_rotation, group.links))
        tree_p = vector(take_rows(robot.joint_position, group.links))
        R, p = each(joint.pose)(geometry, coordinates)
        R = tree_R if R is None else each(ops.matmul)(tree_R, R)
        p = tree_p if p is None else ops.add(tree_p, each(ops.matvec)(tree_R, p))
        axes = each(joint.axes)(geometry, coordinates)
        halves = tuple(zip(*axes, strict=True))  # angular parts, linear parts
        angular, linear = (None if topology.angular_only and half else _stack_dofs(x) for half, x in enumerate(halves))
        s_w = s_v = c_w = c_v = None
        if rates is not None:
            s_w, s_v = (each(_combine)(half, rates) for half in halves)
            c_w, c_v = each(joint.drift)(geometry, coordinates, rates)
        parts.append(JointMotion(R, p, angular, linear, s_w, s_v, c_w, c_v))
    return _joined(robot, parts)


def _columns(x: Array, index: np.ndarray, split: bool):
    """Coordinates of a group's joints: (n, k), or a tuple of k arrays (n,)."""
    if split:
        return tuple(take_rows(x, column) for column in index.T)
    return take_rows(x, index)


def _combine(axes, rates):
    """Sum of axes times rates; None where all axes are."""
    terms = [ops.scale(rates[i], axis) for i, axis in enumerate(axes) if axis is not None]
    return ops.add(*terms) if terms else None


def _stack_dofs(axes):
    """Per-dof vectors of a group (each (n, ...)) to (n, nv, ...); zeros where an axis is None, None where all are."""
    present = [axis for axis in axes if axis is not None]
    if not present:
        return None
    zero = jax.tree.map(jnp.zeros_like, present[0])
    filled = (zero if axis is None else axis for axis in axes)
    return jax.tree.map(lambda *x: jnp.stack(jnp.broadcast_arrays(*x), axis=1), *filled)


def _joined(robot: Multibody, parts: list[JointMotion]) -> JointMotion:
    """Groups joined in the order of links and of degrees of freedom."""

    def join(field: str, joiner):
        values = [getattr(part, field) for part in parts]
        if all(value is None for value in values):
            return None
        like = next(value for value in values if value is not None)

        def zeros(group):
            lead = group.v_index.shape if field.startswith("axis") else group.links.shape
            return jax.tree.map(lambda x: jnp.zeros(lead + x.shape[len(lead) :], x.dtype), like)

        def joined(*leaves):
            lead = 2 if field.startswith("axis") else 1
            tail = jnp.broadcast_shapes(*(x.shape[lead:] for x in leaves))
            return joiner([jnp.broadcast_to(x, x.shape[:lead] + tail) for x in leaves])

        filled = [zeros(g) if x is None else x for x, g in zip(values, robot.topology.groups, strict=True)]
        return jax.tree.map(joined, *filled)

    names = JointMotion._fields
    return JointMotion(*(join(f, robot.join_dofs if f.startswith("axis") else robot.join_links) for f in names))


def pose_step(R, p, motion_R, motion_p):
    """One link's pose from its parent's: (rotation, position, offset)."""
    offset = ops.matvec(R, motion_p)
    return ops.matmul(R, motion_R), ops.add(p, offset), offset


def velocity_step(w, v, offset, s_w=None, s_v=None, c_w=None, c_v=None):
    """One link's velocity and bias acceleration from its parent's velocity (JPL 88-11, 2.25, 2.32).

    (s_w, s_v) is the joint's relative velocity H* v and (c_w, c_v) its own bias, in world axes; None is zero. With
    accelerations differentiated in the inertial frame, d/dt (v + w x l + s_v) gives w x (w x l) + 2 w x s_v: the
    factor 2 that the report's (2.32) lacks for sliding joints.
    """

    def plus(*terms):
        return ops.add(*(term for term in terms if term is not None))

    swing = ops.cross(w, offset)
    a_w = plus(ops.cross(w, w if s_w is None else s_w), c_w)  # w x w is zero, in the right form
    a_v = plus(ops.cross(w, plus(swing, s_v, s_v)), c_v)
    return plus(w, s_w), plus(v, swing, s_v), a_w, a_v


class LinkMotion(NamedTuple):
    """The result of the moving outward sweep, packed or in components (see `spatial.ops`)."""

    rotation: Any
    position: Any
    offset: Any
    angular: Any
    linear: Any
    bias_angular: Any
    bias_linear: Any


def sweep_motion(
    robot: Multibody, motion: JointMotion, split: bool = False, base: LinkMotion | None = None
) -> LinkMotion:
    """Poses, velocities and bias accelerations by one outward sweep, in the form `motion` has.

    `base` is the motion of the link that carries the robot; None is a base at rest.
    """

    def step(parent, x):
        R, p, w, v = parent
        motion_R, motion_p, *joint = x
        R, p, offset = pose_step(R, p, motion_R, motion_p)
        s_w, s_v, c_w, c_v = (None if y is None else ops.matvec(R, y) for y in joint)
        w, v, a_w, a_v = velocity_step(w, v, offset, s_w, s_v, c_w, c_v)
        return (R, p, w, v), LinkMotion(R, p, offset, w, v, a_w, a_v)

    velocity = (motion.velocity_angular, motion.velocity_linear, motion.bias_angular, motion.bias_linear)
    xs = (motion.rotation, motion.position, *velocity)
    if base is None:
        base_R, zero = base_pose(robot, xs, split)
        start = (base_R, zero, zero, zero)
    else:
        start = (base.rotation, base.position, base.angular, base.linear)
    return scatter(robot.topology.link_plan, step, start, xs)


def base_pose(robot: Multibody, xs, split: bool) -> tuple[Any, Any]:
    """Rotation of the base and its position from itself, zero, in the form that a sweep over `xs` carries."""
    zero, R = base_vector(jnp.zeros_like(robot.base_position), xs, split), robot.base_rotation
    return tuple(base_vector(row, xs, split) for row in R) if split else R.astype(zero.dtype), zero


def base_vector(x: Array, xs, split: bool) -> Any:
    """A three-vector (3, ...) of the base in the form, type and batch shape that a sweep over `xs` carries."""
    leaves = jax.tree.leaves(xs)
    x = x.astype(jnp.result_type(x, *(leaf for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.floating))))
    if not split:
        return x
    batch = jnp.broadcast_shapes(*(leaf.shape[1:] for leaf in leaves))
    return tuple(jnp.broadcast_to(x[i], batch) for i in range(3))


def world_axes(robot: Multibody, R, motion: JointMotion) -> tuple[Any, Any]:
    """H* in world axes per degree of freedom, angular and linear halves, in the form of R; None is zero."""
    topology = robot.topology
    R = R if topology.single_dof else jax.tree.map(lambda x: take_rows(x, topology.dof_link), R)
    halves = (motion.axis_angular, motion.axis_linear)
    w, v = (None if half is None else jax.vmap(ops.matvec)(R, half) for half in halves)
    if w is None:  # a robot that only slides
        w = jax.tree.map(jnp.zeros_like, v)
    return w, v


def spatial_rows(w, v) -> Array:
    """(n, 6, ...) rows from angular and linear halves in either form; None is zero."""
    w = ops.join_vector(w)
    return jnp.concatenate([w, jnp.zeros_like(w) if v is None else ops.join_vector(v)], axis=1)


def sweep_poses(robot: Multibody, motion: JointMotion, split: bool = False) -> tuple[Any, Any, Any]:
    """(rotation, position from the base's origin, offset) of every link by one outward sweep, as `motion` has it."""

    def step(parent, x):
        R, p, offset = pose_step(*parent, *x)
        return (R, p), (R, p, offset)

    xs = (motion.rotation, motion.position)
    return scatter(robot.topology.link_plan, step, base_pose(robot, xs, split), xs)


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


def link_inertias(robot: Multibody, R: Any, split: bool = False) -> RigidInertia:
    """Every link's inertia about its own origin in world axes."""
    inertia, com = (robot.inertia + jnp.swapaxes(robot.inertia, 1, 2)) / 2, robot.com
    if split:
        inertia, com = ops.split_matrix(inertia), ops.split_vector(com)
    return jax.vmap(rigid_inertia)(R, robot.mass, com, inertia)


def joint_rates(robot: Multibody, axes: Array, x: Array) -> Float[Array, "n 6"]:
    """H* x link by link."""
    parts = axes * x[:, None]
    if robot.topology.single_dof:
        return parts
    return robot.join_links([jnp.sum(take_rows(parts, g.v_index), axis=1) for g in robot.topology.groups])


# --- public -------------------------------------------------------------------------------------------------------


@compiled
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


@compiled
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


@compiled
def jacobian(robot: Multibody, q: Shaped[Array, " nq"], frame: str) -> Float[Array, "6 nv"]:
    """J with J v = (angular, linear) velocity of the frame's origin in world axes: B* phi* H*.

    Units: rad; rows of rad/rad, then m/rad.

    >>> J = soa.jacobian(robot, q, "tip")
    >>> print((J @ v)[3:].round(3))  # linear velocity of the tip, m/s
    [-0.97   0.    -0.001]
    """
    return frame_axes(robot, kinematics(robot, robot.check_q(q)), frame)


@compiled
def jacobian_bias(
    robot: Multibody, q: Shaped[Array, " nq"], v: Shaped[Array, " nv"], frame: str
) -> Float[Array, "6"]:
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


def accelerations(robot: Multibody, offset: Array, source: Array, base) -> Float[Array, "n 6"]:
    """alpha = phi* source: the outward sweep that turns per-link increments into link accelerations (or velocities)."""

    def step(parent, x):
        w, v = parent
        offset, s = x
        w, v = w + s[:3], v + ops.cross(w, offset) + s[3:]
        return (w, v), (w, v)

    w, v = scatter(robot.topology.link_plan, step, base, (offset, source))
    return jnp.concatenate([w, v], axis=-1)


@compiled
def link_velocities(robot: Multibody, q: Shaped[Array, " nq"], v: Shaped[Array, " nv"]) -> Float[Array, "n 6"]:
    """Spatial velocities of the links at their origins, world axes: V = phi* H* v.

    Units: rad, rad/s; rad/s and m/s.

    >>> print(soa.link_velocities(robot, q, v)[1].round(3))
    [ 0.     0.6    0.    -0.382  0.     0.118]
    """
    return moving_kinematics(robot, robot.check_q(q), robot.check_v(v))[1].spatial


@compiled
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
