"""Newton-Euler in two passes, on spatial vectors as pairs (angular, linear) of (n, 3) arrays.

tau = H phi [M phi* (H* a + bias) + b - f_ext]   (JPL 88-11, 3.17-3.20), plus what acts in the joints themselves.
Gravity enters as an upward acceleration of the base.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from jaxsoa.dynamics.joints import joint_motion
from jaxsoa.dynamics.kinematics import (
    carried,
    gravity_upward,
    link_inertias,
    link_sums,
    spread,
    sweep_motion,
    world_axes,
)
from jaxsoa.model.multibody import Multibody
from jaxsoa.spatial import pairs
from jaxsoa.spatial.inertia import RigidInertia
from jaxsoa.spatial.pairs import Spatial
from jaxsoa.sweeps import gather


class Bodies(NamedTuple):
    """What the outward sweep finds: per link, but for the axes, which are per degree of freedom. None is zero."""

    offset: Any
    axes: tuple  # H*: angular and linear halves
    angular: Any
    bias: tuple  # a(k), angular and linear
    inertias: RigidInertia


def moving_bodies(robot: Multibody, q: Array, v: Array) -> Bodies:
    """Poses, velocities and inertias in world axes, at each link's own origin, by one outward sweep."""
    motion = joint_motion(robot, q, v)
    link = sweep_motion(robot, motion)
    inertias = link_inertias(robot, link.rotation)
    axes = world_axes(robot, link.rotation, motion)
    return Bodies(link.offset, axes, link.angular, (link.bias_angular, link.bias_linear), inertias)


def dissipation(robot: Multibody, v: Array) -> Array:
    """Torque that damping and (smooth) Coulomb friction take away."""
    return robot.damping * v + robot.friction * jnp.tanh(v / robot.friction_velocity)


def link_biases(inertias: RigidInertia, angular: Any, f_ext: Array | None) -> Spatial:
    """b(k) - f_ext(k): gyroscopic forces less what pushes on the links from outside."""
    gyroscopic = inertias.gyroscopic(angular)
    return gyroscopic if f_ext is None else pairs.subtract(gyroscopic, pairs.halves(f_ext))


def net_forces(inertias: RigidInertia, angular: Any, alpha: Spatial, f_ext: Array | None) -> Spatial:
    """M alpha + b - f_ext: the force each link needs, about its own origin."""
    return pairs.add(inertias.times(*alpha), link_biases(inertias, angular, f_ext))


def link_rates(robot: Multibody, axes: Spatial, x: Array) -> Spatial:
    """H* x link by link."""
    return link_sums(robot, pairs.scale(x, axes))


def moved_net_forces(robot: Multibody, bodies: Bodies, a: Array, f_ext: Array | None) -> Spatial:
    """`net_forces` in the motion with joint accelerations a; one outward sweep for alpha."""
    source = pairs.add(bodies.bias, link_rates(robot, bodies.axes, a))
    alpha = spread(robot, bodies.offset, source, gravity_upward(robot, (bodies.offset, source)))
    return net_forces(bodies.inertias, bodies.angular, alpha, f_ext)


def sum_outboard(robot: Multibody, offset: Any, forces: Spatial) -> Spatial:
    """phi times forces: each link's force plus all that hang outboard of it, carried to its own origin."""

    def step(children, x):
        offset, own = x
        force = pairs.add(children, own)
        return pairs.carry_force(offset, force), force

    zero = carried(jnp.zeros_like(robot.gravity), (offset, forces))
    return gather(robot.topology.link_plan, step, (zero, zero), (offset, forces))[1]


def project(robot: Multibody, axes: Spatial, forces: Spatial) -> Array:
    """H times link forces."""
    if not robot.topology.single_dof:
        forces = pairs.take(forces, robot.topology.dof_link)
    return pairs.dot(axes, forces)


def inter_body_forces(robot: Multibody, bodies: Bodies, a: Array, f_ext: Array | None) -> tuple:
    """f(k), what each link's parent exerts on it, about the link's origin; an outward and an inward sweep."""
    return sum_outboard(robot, bodies.offset, moved_net_forces(robot, bodies, a, f_ext))


def torque_of(robot: Multibody, bodies: Bodies, v: Array, a: Array, f_ext: Array | None) -> Array:
    """Joint torques of a motion whose outward sweep is done."""
    forces = inter_body_forces(robot, bodies, a, f_ext)
    return project(robot, bodies.axes, forces) + robot.armature * a + dissipation(robot, v)


def power_of(robot: Multibody, bodies: Bodies, v: Array, a: Array, f_ext: Array | None, rates: Array) -> Array:
    """The power of the torques in a virtual motion with joint velocities `rates`, by virtual work: no inward sweep.

    sum over links of V*(M alpha + b - f_ext) with V = phi* H* rates. Its gradient is the transposed derivative of
    inverse dynamics applied to `rates`.
    """
    net = moved_net_forces(robot, bodies, a, f_ext)
    source = link_rates(robot, bodies.axes, rates)
    zero = carried(jnp.zeros_like(robot.gravity), (bodies.offset, source, net))
    by_links = pairs.dot(spread(robot, bodies.offset, source, (zero, zero)), net)
    in_joints = rates * (robot.armature * a + dissipation(robot, v))
    return jnp.sum(by_links) + jnp.sum(in_joints)
