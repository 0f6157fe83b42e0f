"""The linearized inverse model: derivatives of the joint torques (linearization paper, sections 2 and 3).

    dtau = M da + A_D dv + B_D dq                                                      (eq. 1.2, lemma 3.1)

by Algorithm 2, for trees with any joints: outward sweeps for the motion, inward sweeps for composite quantities, and
then O(N^2) products that are independent of each other (lemma 3.2). With R, R-ring and f the composites outboard of
a link, and the axis rates of `rates`, degree j makes the forces

    x(j) = R H*        x_v(j) = R (rate + spin) + R-ring H*        x_q(j) = R second + R-ring rate + H* x* f

of which each degree i inboard sees H(i) x(j); a degree i outboard of j sees H*(j) and its rates through its own
composites: H(i) R(i) second(j) + H(i) R-ring(i) rate(j), and so on (eq. 3.8).
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from jaxsoa.dynamics.springs import tangent_stiffness
from jaxsoa.eager import compiled
from jaxsoa.kernels import by_jax, door, ruled
from jaxsoa.linearized.rates import axis_support, dof_links
from jaxsoa.linearized.state import MotionState, dof_positions, motion_state
from jaxsoa.model.multibody import Multibody
from jaxsoa.spatial import pairs


class LinearizedInverseDynamics(NamedTuple):
    """Derivatives of the torques: `wrt_q` (along tangent vectors of q), `wrt_v`, and `wrt_a`, the mass matrix."""

    wrt_q: Float[Array, "nv nv"]
    wrt_v: Float[Array, "nv nv"]
    wrt_a: Float[Array, "nv nv"]


def dissipation_rate(robot: Multibody, v: Array) -> Array:
    """Derivative of damping and (smooth) Coulomb friction by v, per degree of freedom."""
    t = jnp.tanh(v / robot.friction_velocity)
    return robot.damping + robot.friction * (1 - t * t) / robot.friction_velocity


class Rows(NamedTuple):
    """Per degree of freedom, (nv, k): what each entry of the matrices is a product of.

    Motions and forces are moved to one point, the first link's origin.
    """

    axis: Array  # H*
    drift: Array  # rate + spin
    second: Array
    angular: Array  # of H*, at its own origin
    force: Array  # x
    force_by_v: Array  # x_v
    force_by_q: Array  # x_q
    ring: Array  # R-ring* H*
    ring_by_q: Array  # the same, with external forces in it,
    rate_by_q: Array  # and what it meets


def model_rows(robot: Multibody, state: MotionState) -> Rows:
    """The rows of a motion and its composites."""
    links = dof_links(robot.topology)
    axis, rate, spin, second = state.rates
    body, ring, ring_ext = pairs.take(state.composite, links)
    drift = pairs.add(rate, spin)
    x = body.times(*axis)
    x_v = pairs.add(body.times(*drift), ring.times(axis[0]))
    x_q = pairs.add(body.times(*second), ring.times(rate[0]), pairs.cross_force(axis, pairs.take(state.force, links)))
    z = ring.transpose_times(axis)
    z_q, rate_q = z, rate[0]
    if ring_ext is not None:
        x_q = pairs.add(x_q, ring_ext.times(axis[0]))
        z_q, rate_q = pairs.flat(z, ring_ext.transpose_times(axis)), pairs.flat(rate[0], axis[0])
    arm = dof_positions(robot, state.moving)
    H, H1, H2 = (pairs.flat(*pairs.carry_motion(-arm, m)) for m in (axis, drift, second))
    X, X_v, X_q = (pairs.flat(*pairs.carry_force(arm, f)) for f in (x, x_v, x_q))
    return Rows(H, H1, H2, axis[0], X, X_v, X_q, z, z_q, rate_q)


def inverse_model(robot: Multibody, rows: Rows, v: Array) -> LinearizedInverseDynamics:
    """The three matrices from their rows (lemma 3.2)."""
    topology = robot.topology
    H, H1, H2, axis, X, X_v, X_q, z, z_q, rate_q = rows
    outer = axis_support(topology)  # degree i moves with degree j
    inner = topology.dof_support.T & ~outer
    diagonal = np.eye(topology.nv, dtype=bool)

    def choose(outer_values: Array, inner_values: Array) -> Array:
        if (outer | inner).all():
            return jnp.where(outer, outer_values, inner_values)
        return jnp.where(outer, outer_values, jnp.where(inner, inner_values, 0))

    wrt_a = choose(X @ H.T, H @ X.T)
    wrt_v = choose(pairs.flat(X, z) @ pairs.flat(H1, axis).T, H @ X_v.T)
    wrt_q = choose(pairs.flat(X, z_q) @ pairs.flat(H2, rate_q).T, H @ X_q.T)
    wrt_a = wrt_a + jnp.where(diagonal, robot.armature[:, None], 0)
    wrt_v = wrt_v + jnp.where(diagonal, dissipation_rate(robot, v)[:, None], 0)
    return LinearizedInverseDynamics(wrt_q, wrt_v, wrt_a)


def inverse_model_raw(robot: Multibody, q: Array, v: Array, a: Array, f_ext: Array | None):
    """`linearize_inverse_dynamics` of checked arguments, differentiable by plain JAX."""
    return inverse_model(robot, model_rows(robot, motion_state(robot, q, v, a, f_ext)), v)


_by_kernel = door(inverse_model_raw)


@ruled(by_jax(inverse_model_raw))
def _linearize(robot, q, v, a, f_ext):
    """`linearize_inverse_dynamics` of checked arguments; higher derivatives differentiate the same formulas."""
    return _by_kernel(robot, q, v, a, f_ext)


@compiled
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

    Units: N m per rad, per rad/s and per rad/s^2.

    >>> model = soa.linearize_inverse_dynamics(robot, q, v, jnp.zeros(2))
    >>> print(model.wrt_q.round(3))
    [[18.865  4.719]
     [ 4.807  4.877]]
    """
    q, v, a, f_ext = robot.check_q(q), robot.check_v(v), robot.check_v(a, "a"), robot.check_f_ext(f_ext)
    if robot.springs is None:
        return _linearize(robot, q, v, a, f_ext)
    wrt_q, wrt_v, wrt_a = _linearize(robot.with_springs(None), q, v, a, f_ext)
    return LinearizedInverseDynamics(wrt_q + tangent_stiffness(robot, q), wrt_v, wrt_a)
