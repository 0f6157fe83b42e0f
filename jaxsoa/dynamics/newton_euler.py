"""Newton-Euler in the two forms of `spatial.ops`: packed for one evaluation, in components for a batch.

tau = H phi [M phi* (H* a + bias) + b - f_ext]   (JPL 88-11, 3.17-3.20), plus what acts in the joints themselves.
Gravity enters as an upward acceleration of the base. In components a batch may trail every argument: q (nq, batch),
leaves of the robot (..., batch) or (..., 1).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxsoa.dynamics.kinematics import (
    LinkMotion,
    base_vector,
    joint_motion,
    link_inertias,
    sweep_motion,
    world_axes,
)
from jaxsoa.indexing import take_rows
from jaxsoa.model.multibody import Multibody
from jaxsoa.spatial import ops
from jaxsoa.spatial.inertia import RigidInertia
from jaxsoa.sweeps import gather, scatter


class Bodies(NamedTuple):
    """What the outward sweep finds: per link, but for the axes, which are per degree of freedom. None is zero."""

    offset: Any
    axes: tuple  # H*: angular and linear halves
    angular: Any
    bias: tuple  # a(k), angular and linear
    inertias: RigidInertia


def moving_bodies(robot: Multibody, q: Array, v: Array, split: bool) -> Bodies:
    """Poses, velocities and inertias in world axes, at each link's own origin, by one outward sweep."""
    return bodies_on(robot, q, v, split)[0]


def bodies_on(robot: Multibody, q: Array, v: Array, split: bool, base: LinkMotion | None = None) -> tuple:
    """The same on a base that moves (None: that stands where the model has it), and the motion of the links."""
    motion = joint_motion(robot, q, v, split)
    link = sweep_motion(robot, motion, split, base)
    inertias = link_inertias(robot, link.rotation, split)
    axes = world_axes(robot, link.rotation, motion)
    return Bodies(link.offset, axes, link.angular, (link.bias_angular, link.bias_linear), inertias), link


def dissipation(robot: Multibody, v: Array) -> Array:
    """Torque that damping and (smooth) Coulomb friction take away."""
    return robot.damping * v + robot.friction * jnp.tanh(v / robot.friction_velocity)


def bias_force(bodies: Bodies, f_ext: Array | None, split: bool) -> tuple:
    """b(k) - f_ext(k): gyroscopic forces less what pushes on the links from outside."""
    moment, force = jax.vmap(RigidInertia.gyroscopic)(bodies.inertias, bodies.angular)
    if f_ext is None:
        return moment, force
    halves = f_ext[:, :3], f_ext[:, 3:]
    if split:
        halves = tuple(ops.split_vector(half) for half in halves)
    return ops.add(moment, ops.negative(halves[0])), ops.add(force, ops.negative(halves[1]))


def link_sums(robot: Multibody, x: Any) -> Any:
    """Per link, the sum over its joint's degrees of freedom."""
    if robot.topology.single_dof:
        return x

    def sums(component: Array) -> Array:
        return robot.join_links([jnp.sum(take_rows(component, g.v_index), axis=1) for g in robot.topology.groups])

    return jax.tree.map(sums, x)


def link_rates(robot: Multibody, axes: tuple, x: Array) -> tuple:
    """H* x link by link, in two halves."""
    return tuple(None if h is None else link_sums(robot, jax.vmap(ops.scale)(x, h)) for h in axes)


def _plus(*terms):
    return ops.add(*(term for term in terms if term is not None))


def spread(robot: Multibody, offset: Any, source: tuple, base: tuple) -> tuple:
    """phi* source, per link: one outward sweep from the motion `base`."""

    def step(parent, x):
        w, v = parent
        offset, s_w, s_v = x
        motion = _plus(w, s_w), _plus(v, ops.cross(w, offset), s_v)
        return motion, motion

    return scatter(robot.topology.link_plan, step, base, (offset, *source))


def net_force(robot: Multibody, bodies: Bodies, a: Array, f_ext: Array | None, split: bool) -> tuple:
    """M alpha + b - f_ext: the force each link needs, about its own origin; one outward sweep for alpha."""
    rates = link_rates(robot, bodies.axes, a)
    source = tuple(_plus(bias, rate) for bias, rate in zip(bodies.bias, rates, strict=True))
    like = (bodies.offset, source)
    base = base_vector(jnp.zeros_like(robot.gravity), like, split), base_vector(-robot.gravity, like, split)
    alpha = spread(robot, bodies.offset, source, base)
    moment, force = jax.vmap(RigidInertia.times)(bodies.inertias, *alpha)
    b_moment, b_force = bias_force(bodies, f_ext, split)
    return ops.add(moment, b_moment), ops.add(force, b_force)


def sum_outboard(robot: Multibody, offset: Any, forces: tuple, split: bool) -> tuple:
    """phi times forces: each link's force plus all that hang outboard of it, carried to its own origin."""

    def step(children, x):
        moment, force = children
        offset, own_moment, own_force = x
        moment, force = ops.add(moment, own_moment), ops.add(force, own_force)
        return (ops.add(moment, ops.cross(offset, force)), force), (moment, force)

    zero = base_vector(jnp.zeros_like(robot.gravity), (offset, forces), split)
    return gather(robot.topology.link_plan, step, (zero, zero), (offset, *forces))[1]


def project(robot: Multibody, axes: tuple, forces: tuple) -> Array:
    """H times link forces."""
    if not robot.topology.single_dof:
        forces = jax.tree.map(lambda x: take_rows(x, robot.topology.dof_link), forces)
    h_w, h_v = axes
    moment = jax.vmap(ops.dot)(h_w, forces[0])
    return moment if h_v is None else moment + jax.vmap(ops.dot)(h_v, forces[1])


def inter_body_forces(robot: Multibody, bodies: Bodies, a: Array, f_ext: Array | None, split: bool) -> tuple:
    """f(k), what each link's parent exerts on it, about the link's origin; an outward and an inward sweep."""
    return sum_outboard(robot, bodies.offset, net_force(robot, bodies, a, f_ext, split), split)


def torque_of(robot: Multibody, bodies: Bodies, v: Array, a: Array, f_ext: Array | None, split: bool) -> Array:
    """Joint torques of a motion whose outward sweep is done."""
    forces = inter_body_forces(robot, bodies, a, f_ext, split)
    return project(robot, bodies.axes, forces) + robot.armature * a + dissipation(robot, v)


def power_of(
    robot: Multibody, bodies: Bodies, v: Array, a: Array, f_ext: Array | None, rates: Array, split: bool
) -> Array:
    """The power of the torques in a virtual motion with joint velocities `rates`, by virtual work: no inward sweep.

    sum over links of V*(M alpha + b - f_ext) with V = phi* H* rates. Its gradient is the transposed derivative of
    inverse dynamics applied to `rates`.
    """
    net = net_force(robot, bodies, a, f_ext, split)
    source = link_rates(robot, bodies.axes, rates)
    zero = base_vector(jnp.zeros_like(robot.gravity), (bodies.offset, source, net), split)
    w, v_link = spread(robot, bodies.offset, source, (zero, zero))
    by_links = jax.vmap(ops.dot)(w, net[0]) + jax.vmap(ops.dot)(v_link, net[1])
    in_joints = rates * (robot.armature * a + dissipation(robot, v))
    return jnp.sum(by_links) + jnp.sum(in_joints)
