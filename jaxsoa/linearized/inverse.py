"""The linearized inverse model: derivatives of the joint torques (linearization paper, sections 2 and 3).

    dtau = M da + A_D dv + B_D dq                                                      (eq. 1.2, lemma 3.1)

by Algorithm 2, for trees with any joints: one outward sweep for the motion, one inward sweep for composite
quantities, and then O(N^2) products that are independent of each other (lemma 3.2). With R, R-ring and f the
composites outboard of a link, and the axis rates of `rates`, the column j of degree j makes the forces

    x(j) = R H*        x_v(j) = R (rate + spin) + R-ring H*        x_q(j) = R second + R-ring rate + H* x* f

of which each degree i inboard sees H(i) x(j); and a degree i outboard of j sees H*(j), its rates, through its own
composites: H(i) R(i) second(j) + H(i) R-ring(i) rate(j), and so on (eq. 3.8).
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from jaxsoa.dynamics.inverse import base_acceleration, bias_forces, newton_euler
from jaxsoa.dynamics.kinematics import (
    Kinematics,
    Velocities,
    accelerations,
    joint_rates,
    link_inertias,
    moving_kinematics,
)
from jaxsoa.linearized import spatial_components as sc
from jaxsoa.linearized.composite import Composite, Rigid, composite, take_links
from jaxsoa.linearized.rates import AxisRates, axis_rates, axis_support, dof_links
from jaxsoa.model.multibody import Multibody
from jaxsoa.spatial import ops
from jaxsoa.spatial.inertia import RigidInertia


class LinearizedInverseDynamics(NamedTuple):
    """Derivatives of the torques: `wrt_q` (along tangent vectors of q), `wrt_v`, and `wrt_a`, the mass matrix."""

    wrt_q: Float[Array, "nv nv"]
    wrt_v: Float[Array, "nv nv"]
    wrt_a: Float[Array, "nv nv"]


class MotionState(NamedTuple):
    """All that both linearized models start from: a motion, and the composite quantities that belong to it."""

    kin: Kinematics
    rates: AxisRates
    composite: Composite
    body: Rigid  # single links
    velocity: sc.Spatial
    v: Array


def rigid_components(inertias: RigidInertia) -> Rigid:
    J = inertias.rotation
    packed = (J[:, 0, 0], J[:, 1, 1], J[:, 2, 2], J[:, 0, 1], J[:, 0, 2], J[:, 1, 2])
    return Rigid(inertias.mass, sc.vector(inertias.first_moment), packed)


def motion_state(robot: Multibody, q: Array, v: Array, a: Array, f_ext: Array | None) -> MotionState:
    kin, vel = moving_kinematics(robot, q, v)
    return motion_state_of(robot, kin, vel, link_inertias(robot, kin.rotation), v, a, f_ext)


def motion_state_of(
    robot: Multibody,
    kin: Kinematics,
    vel: Velocities,
    inertias: RigidInertia,
    v: Array,
    a: Array,
    f_ext: Array | None,
) -> MotionState:
    """The same from kinematics already at hand."""
    source = joint_rates(robot, kin.axes, a) + vel.bias
    alpha = accelerations(robot, kin.offset, source, base_acceleration(robot, source))
    net = newton_euler(inertias, alpha, bias_forces(inertias, vel.angular, f_ext))
    velocity, (alpha_w, alpha_v) = sc.split(vel.spatial), sc.split(alpha)
    # At a point fixed in space the velocity field changes by v' - w x v.
    acceleration = alpha_w, ops.add(alpha_v, ops.cross(velocity[1], velocity[0]))
    body = rigid_components(inertias)
    rates = axis_rates(robot, sc.split(kin.axes), velocity, acceleration, v, a)
    outboard = composite(robot, kin.offset, body, velocity, sc.split(net), f_ext)
    return MotionState(kin, rates, outboard, body, velocity, v)


def dissipation_rate(robot: Multibody, v: Array) -> Array:
    """Derivative of damping and (smooth) Coulomb friction by v, per degree of freedom."""
    t = jnp.tanh(v / robot.friction_velocity)
    return robot.damping + robot.friction * (1 - t * t) / robot.friction_velocity


def inverse_model(robot: Multibody, state: MotionState) -> LinearizedInverseDynamics:
    """The three matrices from a motion and its composites (lemma 3.2)."""
    topology = robot.topology
    links = dof_links(topology)
    axis, rate, spin, second = state.rates
    outboard = take_links(state.composite, links)
    body, ring = outboard.body, outboard.ring
    drift = sc.add(rate, spin)
    x = body.times(axis)
    x_v = sc.add(body.times(drift), ring.times(axis[0]))
    x_q = sc.add(body.times(second), ring.times(rate[0]), sc.cross_force(axis, outboard.force))
    z = ring.transpose_times(axis)
    if outboard.ring_ext is not None:
        x_q = sc.add(x_q, outboard.ring_ext.times(axis[0]))

    # All to one point, the first link's origin: then a product of degrees i and j is a product of matrices.
    position = state.kin.position - state.kin.position[0]
    arm = sc.take(sc.vector(position), links)
    back = ops.negative(arm)
    H, H2, H1 = (sc.join(*sc.carry_motion(back, m)) for m in (axis, second, drift))
    X, X_v, X_q = (sc.join(*sc.carry_force(arm, f)) for f in (x, x_v, x_q))
    Z = sc.join(z)
    left, right_v, right_q = jnp.concatenate([X, Z], -1), jnp.concatenate([H1, sc.join(axis[0])], -1), jnp.concatenate([H2, sc.join(rate[0])], -1)  # noqa: E501
    outer_q = left @ right_q.T
    if outboard.ring_ext is not None:
        outer_q = outer_q + sc.join(outboard.ring_ext.transpose_times(axis)) @ sc.join(axis[0]).T
    outer_v, outer_a = left @ right_v.T, X @ H.T
    inner_q, inner_v = H @ X_q.T, H @ X_v.T

    outer = axis_support(topology)  # degree i moves with degree j
    inner = topology.dof_support.T & ~outer

    def choose(outer_values, inner_values):
        if (outer | inner).all():
            return jnp.where(outer, outer_values, inner_values)
        return jnp.where(outer, outer_values, jnp.where(inner, inner_values, 0))

    wrt_a = choose(outer_a, outer_a.T)
    diagonal = np.eye(topology.nv, dtype=bool)
    wrt_a = jnp.where(diagonal, wrt_a + robot.armature[:, None], wrt_a)
    wrt_v = choose(outer_v, inner_v)
    wrt_v = jnp.where(diagonal, wrt_v + dissipation_rate(robot, state.v)[:, None], wrt_v)
    return LinearizedInverseDynamics(choose(outer_q, inner_q), wrt_v, wrt_a)


def linearize_inverse_dynamics(
    robot: Multibody,
    q: Shaped[Array, " nq"],
    v: Shaped[Array, " nv"],
    a: Shaped[Array, " nv"],
    f_ext: Shaped[Array, "n 6"] | None = None,
) -> LinearizedInverseDynamics:
    """Derivatives of `inverse_dynamics` by q, v and a: three (nv, nv) matrices in O(N^2) (Algorithm 2).

    `wrt_q` is the derivative along `robot.integrate(q, dq)`, so it has nv columns for every kind of joint. `f_ext`
    keeps its direction in the world and its point of attack, the link's origin.
    """
    q, v, a, f_ext = robot.check_q(q), robot.check_v(v), robot.check_v(a, "a"), robot.check_f_ext(f_ext)
    return inverse_model(robot, motion_state(robot, q, v, a, f_ext))
