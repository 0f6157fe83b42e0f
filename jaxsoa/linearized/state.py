"""A motion: what both linearized models start from."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxsoa.dynamics.inverse import composite_bodies
from jaxsoa.dynamics.joints import joint_motion
from jaxsoa.dynamics.kinematics import link_inertias, sweep_motion, world_axes
from jaxsoa.dynamics.newton_euler import gravity_upward, link_sums, net_forces, spread, sum_outboard
from jaxsoa.linearized.composite import Composite, force_ring, gyroscopic_ring
from jaxsoa.linearized.rates import AxisRates, axis_rates, dof_links
from jaxsoa.model.multibody import Multibody
from jaxsoa.spatial import ops, pairs
from jaxsoa.spatial.inertia import RigidInertia
from jaxsoa.spatial.pairs import Spatial, Vector


class Moving(NamedTuple):
    """Geometry and velocities. Per link, but for the axes, which are per degree of freedom."""

    position: Vector
    offset: Vector
    axis: Spatial
    velocity: Spatial
    bias: Spatial
    body: RigidInertia


class MotionState(NamedTuple):
    """A motion with its accelerations: all that the matrices of the linearized inverse model are made of."""

    moving: Moving
    acceleration: Spatial  # per link; w', v' of the origin, gravity in it
    force: Spatial  # per link: f(k), the force between the link and its parent
    composite: Composite  # per link
    rates: AxisRates


def moving_state(robot: Multibody, q: Array, v: Array) -> Moving:
    """One outward sweep."""
    motion = joint_motion(robot, q, v)
    link = sweep_motion(robot, motion)
    axis = world_axes(robot, link.rotation, motion)
    velocity, bias = (link.angular, link.linear), (link.bias_angular, link.bias_linear)
    return Moving(link.position, link.offset, axis, velocity, bias, link_inertias(robot, link.rotation))


def zeros_of_one(tree: Any) -> Any:
    """Zeros with the shape of one link's entry."""
    return jax.tree.map(lambda x: jnp.zeros(x.shape[1:], x.dtype), tree)


def own_composite(body: RigidInertia, velocity: Spatial, f_ext: Array | None) -> Composite:
    """What each link adds to the composite quantities."""
    ext = None if f_ext is None else force_ring(pairs.halves(f_ext))
    return Composite(body, gyroscopic_ring(body, velocity), ext)


def composites(robot: Multibody, moving: Moving, f_ext: Array | None) -> Composite:
    """R, R-ring of every link by one inward sweep."""
    own = own_composite(moving.body, moving.velocity, f_ext)
    return composite_bodies(robot.topology, own, moving.offset)


def fixed_point_acceleration(velocity: Spatial, acceleration: Spatial) -> Spatial:
    """At a point fixed in space the velocity field changes by v' - w x v."""
    return acceleration[0], acceleration[1] + ops.cross(velocity[1], velocity[0])


def motion_state(robot: Multibody, q: Array, v: Array, a: Array, f_ext: Array | None) -> MotionState:
    """Sweeps: outward for the motion, outward for the accelerations, inward for forces and composites."""
    return with_accelerations(robot, moving_state(robot, q, v), v, a, f_ext)


def with_accelerations(robot: Multibody, moving: Moving, v: Array, a: Array, f_ext: Array | None) -> MotionState:
    """The same of a motion whose outward sweep is done."""
    source = pairs.add(link_sums(robot, pairs.scale(a, moving.axis)), moving.bias)
    acceleration = spread(robot, moving.offset, source, gravity_upward(robot, source))
    force = sum_outboard(robot, moving.offset, net_forces(moving.body, moving.velocity[0], acceleration, f_ext))
    fixed = fixed_point_acceleration(moving.velocity, acceleration)
    rates = axis_rates(robot, moving.axis, moving.velocity, fixed, v, a)
    return MotionState(moving, acceleration, force, composites(robot, moving, f_ext), rates)


def dof_positions(robot: Multibody, moving: Moving) -> Vector:
    """Where the degrees of freedom act, from the first link's origin."""
    return pairs.take(moving.position - moving.position[:1], dof_links(robot.topology))
