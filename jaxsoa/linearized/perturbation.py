"""Perturbations of torques and accelerations in O(N): Algorithms 1 and 5 of the linearization paper.

Both push one perturbation (dq, dv, and da or dtau) through the linearized model, never forming a matrix. With the
axis rates of `rates`, degree j adds to the links outboard of it (eq. 3.4)

    to beta    H* da + (rate + spin) dv + second dq        to theta    H* dv + rate dq

and the forces of eq. 3.5 are M beta + B theta on each link, plus H*(j) dq x* f(j), what the turning of degree j makes
of the force that it carries; the degrees inboard of j feel it.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from jaxsoa.dynamics.articulated import on_first, on_last
from jaxsoa.dynamics.inverse import dissipation
from jaxsoa.dynamics.motion import Drive, Filtered, filter_step, filtered_inward, on, smoothed_outward
from jaxsoa.dynamics.newton_euler import Bodies, gravity_upward, link_sums, net_forces, spread
from jaxsoa.dynamics.springs import unsprung_along
from jaxsoa.eager import compiled
from jaxsoa.linearized.composite import force_ring, gyroscopic_ring
from jaxsoa.linearized.inverse import dissipation_rate
from jaxsoa.linearized.rates import AxisRates, axis_rates
from jaxsoa.linearized.state import Moving, fixed_point_acceleration, moving_state, zeros_of_one
from jaxsoa.model.multibody import Multibody
from jaxsoa.spatial import ops, pairs
from jaxsoa.spatial.pairs import Spatial, Vector
from jaxsoa.sweeps import gather, scatter


class _Sources(NamedTuple):
    """What a perturbation adds, per degree of freedom."""

    increment: Spatial  # to beta
    turning: Vector  # to theta, of which only the angular part matters
    swing: Vector  # H* dq, angular part: how far the link turns
    displacement: Spatial  # H* dq, to cross with the force that the degree carries inboard


def _displacements(robot: Multibody, moves: Spatial) -> Spatial:
    """H* dq where the degrees inboard feel it: where a joint's degrees have no order, all on the first of them."""
    topology = robot.topology
    if not any(joint.rates_in_child_axes for joint in topology.joints):
        return moves
    whole = np.repeat([j.rates_in_child_axes for j in topology.joints], [j.nv for j in topology.joints])
    totals = on(on_first, robot, link_sums(robot, moves))
    return jax.tree.map(lambda x, total: jnp.where(jnp.asarray(whole)[:, None], total, x), moves, totals)


def _sources(robot: Multibody, rates: AxisRates, dq: Array, dv: Array, da: Array | None) -> _Sources:
    axis, rate, spin, second = rates
    increment = pairs.add(pairs.scale(dv, pairs.add(rate, spin)), pairs.scale(dq, second))
    if da is not None:
        increment = pairs.add(increment, pairs.scale(da, axis))
    moves = pairs.scale(dq, axis)
    turning = ops.scale(dv, axis[0]) + ops.scale(dq, rate[0])
    return _Sources(increment, turning, moves[0], _displacements(robot, moves))


def _ring_forces(moving: Moving, theta: Vector, swing: Vector, f_ext: Array | None) -> Spatial:
    """B theta on each link, and what external forces do that keep their direction while the link turns."""
    force = gyroscopic_ring(moving.body, moving.velocity).times(theta)
    return force if f_ext is None else pairs.add(force, force_ring(pairs.halves(f_ext)).times(swing))


def _vectors(robot: Multibody, **vectors: Array) -> list[Array]:
    """Velocity-like arguments, checked under their names."""
    return [robot.check_v(x, name) for name, x in vectors.items()]


@compiled(kernel=True)
def inverse_dynamics_perturbation(
    robot: Multibody,
    q: Shaped[Array, " nq"],
    v: Shaped[Array, " nv"],
    a: Shaped[Array, " nv"],
    dq: Shaped[Array, " nv"],
    dv: Shaped[Array, " nv"],
    da: Shaped[Array, " nv"],
    f_ext: Shaped[Array, "n 6"] | None = None,
) -> Float[Array, " nv"]:
    """How the torques of `inverse_dynamics` change along (dq, dv, da), in O(N) (Algorithm 1).

    dq is a tangent vector: q moves along `robot.integrate(q, dq)`.

    Units: those of q, v and a; N m.

    >>> dq, dv, da = jnp.array([0.1, 0.0]), jnp.zeros(2), jnp.zeros(2)
    >>> print(soa.inverse_dynamics_perturbation(robot, q, v, jnp.zeros(2), dq, dv, da).round(4))
    [1.8865 0.4807]
    """
    q, f_ext = robot.check_q(q), robot.check_f_ext(f_ext)
    v, a, dq, dv, da = _vectors(robot, v=v, a=a, dq=dq, dv=dv, da=da)
    if robot.springs is not None:
        bare, _, d_pull = unsprung_along(robot, q, dq)
        return inverse_dynamics_perturbation(bare, q, v, a, dq, dv, da, f_ext) - d_pull
    moving = moving_state(robot, q, v)
    source = pairs.add(link_sums(robot, pairs.scale(a, moving.axis)), moving.bias)
    alpha = spread(robot, moving.offset, source, gravity_upward(robot, source))
    fixed = fixed_point_acceleration(moving.velocity, alpha)
    rates = axis_rates(robot, moving.axis, moving.velocity, fixed, v, a)
    new = _sources(robot, rates, dq, dv, da)

    def outward(parent, x):  # step 2, eq. 3.4
        (beta, theta, swing), (offset, increment, turning, turn) = parent, x
        beta = pairs.add(pairs.carry_motion(offset, beta), increment)
        motion = (beta, theta + turning, swing + turn)
        return motion, motion

    increments = link_sums(robot, new.increment)
    turnings, swings = (link_sums(robot, x) for x in (new.turning, new.swing))
    xs = (moving.offset, increments, turnings, swings)
    beta, theta, swing = scatter(robot.topology.link_plan, outward, zeros_of_one(xs[1:]), xs)
    force = pairs.add(moving.body.times(*beta), _ring_forces(moving, theta, swing, f_ext))

    def inward(children, x):  # step 3, eq. 3.5
        f, eta = children
        net, force, displacement, axis, offset = x
        f, eta = pairs.add(f, net), pairs.add(eta, force)
        passed = pairs.add(eta, pairs.cross_force(displacement, f))
        return (pairs.carry_force(offset, f), pairs.carry_force(offset, passed)), pairs.dot(axis, eta)

    forces = on(on_last, robot, (net_forces(moving.body, moving.velocity[0], alpha, f_ext), force))
    xs = (*forces, new.displacement, moving.axis, on(on_first, robot, moving.offset))
    _, torque = gather(robot.topology.dof_plan, inward, zeros_of_one(forces), xs)
    return torque + robot.armature * da + dissipation_rate(robot, v) * dv


@compiled(kernel=True)
def forward_dynamics_perturbation(
    robot: Multibody,
    q: Shaped[Array, " nq"],
    v: Shaped[Array, " nv"],
    tau: Shaped[Array, " nv"],
    dq: Shaped[Array, " nv"],
    dv: Shaped[Array, " nv"],
    dtau: Shaped[Array, " nv"],
    f_ext: Shaped[Array, "n 6"] | None = None,
) -> Float[Array, " nv"]:
    """How the accelerations of `forward_dynamics` change along (dq, dv, dtau), in O(N) (Algorithm 5).

    The articulated-body algorithm twice with the same P, D and G: once for the motion, once for its perturbation,
    whose "bias acceleration" is the increment of beta and whose "bias force" is that of eq. 3.5 (lemma 4.7).

    Units: those of q, v and tau; rad/s^2.

    >>> dq, dv, dtau = jnp.array([0.1, 0.0]), jnp.zeros(2), jnp.zeros(2)
    >>> print(soa.forward_dynamics_perturbation(robot, q, v, tau, dq, dv, dtau).round(4))
    [-1.0227  0.9268]
    """
    q, f_ext = robot.check_q(q), robot.check_f_ext(f_ext)
    v, tau, dq, dv, dtau = _vectors(robot, v=v, tau=tau, dq=dq, dv=dv, dtau=dtau)
    if robot.springs is not None:
        bare, pull, d_pull = unsprung_along(robot, q, dq)
        return forward_dynamics_perturbation(bare, q, v, tau + pull, dq, dv, dtau + d_pull, f_ext)
    moving = moving_state(robot, q, v)
    bodies = Bodies(moving.offset, moving.axis, moving.velocity[0], moving.bias, moving.body)
    filtered = filtered_inward(robot, bodies, f_ext, Drive(tau - dissipation(robot, v), None, None))  # eq. 4.3
    a, _ = smoothed_outward(robot, filtered)
    source = pairs.add(link_sums(robot, pairs.scale(a, moving.axis)), moving.bias)
    alpha = spread(robot, moving.offset, source, gravity_upward(robot, source))
    fixed = fixed_point_acceleration(moving.velocity, alpha)
    new = _sources(robot, axis_rates(robot, moving.axis, moving.velocity, fixed, v, a), dq, dv, None)

    def outward(parent, x):
        motion = jax.tree.map(jnp.add, parent, x)
        return motion, motion

    xs = (link_sums(robot, new.turning), link_sums(robot, new.swing))
    theta, swing = scatter(robot.topology.link_plan, outward, zeros_of_one(xs), xs)
    forces = (net_forces(moving.body, moving.velocity[0], alpha, f_ext), _ring_forces(moving, theta, swing, f_ext))

    return _perturbed(robot, filtered, new, forces, dtau - dissipation_rate(robot, v) * dv)


def _perturbed(robot: Multibody, filtered: Filtered, new: _Sources, forces: tuple, effort: Array) -> Array:
    """The filter and the smoother again, with the same P, D and G (eq. 4.16-4.18)."""

    def filtering(children, x):
        f, z = children
        net, force, new, axis, offset, effort, P, u, inverse = x
        f = pairs.add(f, net)
        nu, up, _ = filter_step(z, P, u, inverse, axis, new.increment, force, effort)
        up = pairs.add(up, pairs.cross_force(new.displacement, f))
        return (pairs.carry_force(offset, f), pairs.carry_force(offset, up)), nu

    P, u, _, _, inverse, _, axis, offset, _ = filtered
    forces = on(on_last, robot, forces)
    xs = (*forces, new, axis, offset, effort, P, u, inverse)
    base = zeros_of_one(forces)
    _, nu = gather(robot.topology.dof_plan, filtering, base, xs)
    return smoothed_outward(robot, filtered._replace(nu=nu, bias=new.increment), base[0])[0]
