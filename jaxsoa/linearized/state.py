"""A motion in components: what both linearized models start from."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxsoa.dynamics.kinematics import base_vector, joint_motion, link_inertias, sweep_motion, world_axes
from jaxsoa.dynamics.newton_euler import link_sums
from jaxsoa.linearized import spatial_components as sc
from jaxsoa.linearized.composite import Composite, Rigid, force_ring, gyroscopic_ring
from jaxsoa.linearized.rates import AxisRates, axis_rates, dof_links
from jaxsoa.linearized.spatial_components import Spatial, Vector
from jaxsoa.model.multibody import Multibody
from jaxsoa.spatial import ops
from jaxsoa.sweeps import gather, scatter


class Moving(NamedTuple):
    """Geometry and velocities. Per link, but for the axes, which are per degree of freedom."""

    position: Vector
    offset: Vector
    axis: Spatial
    velocity: Spatial
    bias: Spatial
    body: Rigid


class MotionState(NamedTuple):
    """A motion with its accelerations: all that the matrices of the linearized inverse model are made of."""

    moving: Moving
    acceleration: Spatial  # per link; w', v' of the origin, gravity in it
    force: Spatial  # per link: f(k), the force between the link and its parent
    composite: Composite  # per link
    rates: AxisRates


def moving_state(robot: Multibody, q: Array, v: Array) -> Moving:
    """One outward sweep."""
    motion = joint_motion(robot, q, v, split=True)
    link = sweep_motion(robot, motion, split=True)
    bodies = link_inertias(robot, link.rotation, split=True)
    axis = world_axes(robot, link.rotation, motion)
    velocity, bias = (link.angular, link.linear), (link.bias_angular, link.bias_linear)
    return Moving(link.position, link.offset, axis, velocity, bias, Rigid.of(bodies))


def spread(robot: Multibody, offset: Vector, source: Spatial, base: Spatial) -> Spatial:
    """phi* source, per link: one outward sweep."""

    def step(parent, x):
        offset, s = x
        motion = sc.add(sc.carry_motion(offset, parent), s)
        return motion, motion

    return scatter(robot.topology.link_plan, step, base, (offset, source))


def collect(robot: Multibody, offset: Vector, source: Spatial) -> Spatial:
    """phi source, per link: one inward sweep."""

    def step(children, x):
        offset, f = x
        total = sc.add(children, f)
        return sc.carry_force(offset, total), total

    return gather(robot.topology.link_plan, step, zeros_of_one(source), (offset, source))[1]


def zeros_of_one(tree: Any) -> Any:
    """Zeros with the shape of one link's entry."""
    return jax.tree.map(lambda x: jnp.zeros(x.shape[1:], x.dtype), tree)


def own_composite(body: Rigid, velocity: Spatial, f_ext: Array | None) -> Composite:
    """What each link adds to the composite quantities."""
    ext = None if f_ext is None else force_ring(ops.split_spatial(f_ext))
    ring = gyroscopic_ring(body, velocity)
    # A model shared by a batch has one mass for all; the sweep carries one per state.
    body = jax.tree.map(lambda x: jnp.broadcast_to(x, jnp.broadcast_shapes(x.shape, ring.force[0].shape)), body)
    if ext is not None:
        ext = jax.tree.map(lambda x: jnp.broadcast_to(x, jnp.broadcast_shapes(x.shape, ring.force[0].shape)), ext)
    return Composite(body, ring, ext)


def composites(robot: Multibody, moving: Moving, f_ext: Array | None) -> Composite:
    """R, R-ring of every link by one inward sweep."""
    own = own_composite(moving.body, moving.velocity, f_ext)

    def step(children, x):
        own, offset = x
        total = jax.tree.map(jnp.add, children, own)
        return total.shifted(offset), total

    return gather(robot.topology.link_plan, step, zeros_of_one(own), (own, moving.offset))[1]


def base_motion(robot: Multibody, like: Any) -> Spatial:
    """Gravity as an upward acceleration of the base."""
    zero = base_vector(jnp.zeros_like(robot.gravity), like, True)
    return zero, base_vector(-robot.gravity, like, True)


def net_forces(moving: Moving, acceleration: Spatial, f_ext: Array | None) -> Spatial:
    """M alpha + b - f_ext per link."""
    net = sc.add(moving.body.times(acceleration), moving.body.gyroscopic(moving.velocity[0]))
    return net if f_ext is None else sc.subtract(net, ops.split_spatial(f_ext))


def fixed_point_acceleration(velocity: Spatial, acceleration: Spatial) -> Spatial:
    """At a point fixed in space the velocity field changes by v' - w x v."""
    return acceleration[0], ops.add(acceleration[1], ops.cross(velocity[1], velocity[0]))


def motion_state(robot: Multibody, q: Array, v: Array, a: Array, f_ext: Array | None) -> MotionState:
    """Sweeps: outward for the motion, outward for the accelerations, inward for forces and composites."""
    moving = moving_state(robot, q, v)
    source = sc.add(link_sums(robot, sc.scale(a, moving.axis)), moving.bias)
    acceleration = spread(robot, moving.offset, source, base_motion(robot, source))
    force = collect(robot, moving.offset, net_forces(moving, acceleration, f_ext))
    fixed = fixed_point_acceleration(moving.velocity, acceleration)
    rates = axis_rates(robot, moving.axis, moving.velocity, fixed, v, a)
    return MotionState(moving, acceleration, force, composites(robot, moving, f_ext), rates)


def dof_positions(robot: Multibody, moving: Moving) -> Vector:
    """Where the degrees of freedom act, from the first link's origin."""
    return tuple(sc.take(x - x[:1], dof_links(robot.topology)) for x in moving.position)
