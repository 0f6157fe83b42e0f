"""A first-order step that is symplectic although the mass matrix changes with the configuration.

Semi-implicit Euler in (q, v) is symplectic only where the mass matrix is constant. In positions and momenta p = M(q) v
there is a symplectic Euler for every robot: the variational integrator (Marsden & West, Discrete mechanics and
variational integrators, 2001) of the discrete Lagrangian L_d = dt L(q1, w) with q1 = integrate(q0, dt w).
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from jaxsoa.dynamics.mass import mass_times, solve_mass_matrix
from jaxsoa.model.multibody import Multibody
from jaxsoa.simulate.brackets import cobracket

ITERATIONS = 4
"""Fixed-point iterations for the velocity of a step; each divides its error by 1 / (rate of change of M, times dt)."""


def variational_step(
    robot: Multibody,
    acceleration: Callable,
    q: Array,
    v: Array,
    dt,
    times: Callable[[Multibody, Array, Array], Array] = mass_times,
    solve: Callable[[Multibody, Array, Array], Array] = solve_mass_matrix,
) -> tuple[Array, Array]:
    """(q, v) a time dt later. With mu = M(q1) w, T(x) the tangent of `integrate` (`brackets.tangent_rate`):

        T(-dt w)* mu = p0,    q1 = integrate(q0, dt w),    p1 = T(dt w)* mu + dt (dL/dq(q1, w) + tau)

    the first of which is solved for w by fixed-point iterations, `ITERATIONS` mass-matrix solves. dL/dq comes from the
    given acceleration: by the equations of motion dL/dq + tau = M a + M' w - ad*_w mu, with M' w the derivative of
    M(q) w along w. Forces that do work (torques, friction, limits) are taken at q1 with the velocity w.

    For joints whose coordinates add, T = 1 and ad* = 0. For spherical and free joints T is cut off after the second
    bracket, (|w| dt)^4 / 720 of the momentum.

    `times` and `solve` are momentum of velocity and back, for a robot whose joints are coupled (`simulate.mimics`).
    """
    before = times(robot, q, v)

    def iterate(found, _):
        w, mu = found
        mu = before + _half_turn(robot, dt, w, mu) - _double_turn(robot, dt, w, mu)
        return (solve(robot, robot.integrate(q, dt * w), mu), mu), None

    (w, _), _ = lax.scan(iterate, (v, before), length=ITERATIONS)
    after = robot.integrate(q, dt * w)
    mu, change = _with_rate(robot, after, w, times)
    rest = dt * change - _half_turn(robot, dt, w, mu) + _double_turn(robot, dt, w, mu)
    return after, w + dt * acceleration(after, w) + solve(robot, after, rest)


def _with_rate(robot: Multibody, q: Array, w: Array, times: Callable) -> tuple[Array, Array]:
    """M(q) w and its derivative as q moves with w."""

    def momentum(x):
        return times(robot, robot.integrate(q, x), w)

    return jax.jvp(momentum, (jnp.zeros_like(w),), (w,))


def _half_turn(robot: Multibody, dt, w: Array, mu: Array) -> Array:
    return dt / 2 * cobracket(robot, w, mu)


def _double_turn(robot: Multibody, dt, w: Array, mu: Array) -> Array:
    return dt**2 / 12 * cobracket(robot, w, cobracket(robot, w, mu))
