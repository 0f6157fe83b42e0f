"""The integrators: each takes (robot, acceleration, q, v, dt) to (q, v), on the manifold of configurations.

`acceleration(q, v)` is all there is to know of torques, loops and forces. Quaternions are turned, not added to.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxsoa.mesh_axes import scan
from jaxsoa.model.multibody import Multibody
from jaxsoa.protocols import check_takes
from jaxsoa.simulate.brackets import tangent_rate
from jaxsoa.simulate.variational import variational_step


class State(NamedTuple):
    """Configuration q (nq,) and velocity v (nv,)."""

    q: Float[Array, " nq"]
    v: Float[Array, " nv"]


Acceleration = Callable[[Array, Array], Array]
Integrator = Callable[..., tuple[Array, Array]]
"""`(robot, acceleration, q, v, dt) -> (q, v)`, where `acceleration(q, v)` is all there is to know of torques, loops and
forces. The one protocol of `step`, `rollout` and `optimize.robot_problem`; explicit Euler is

    def euler(robot, acceleration, q, v, dt):
        return robot.integrate(q, dt * v), v + dt * acceleration(q, v)
"""


def semi_implicit_euler(robot: Multibody, acceleration: Acceleration, q, v, dt) -> State:
    """v first, then q with the new v: first order, one evaluation of the dynamics, the cheapest there is.

    Symplectic only where the mass matrix does not depend on q (a single pendulum, a gantry). Elsewhere velocity forces
    are taken half a step late and energy drifts, in proportion to dt: a frictionless double pendulum at 1 ms loses or
    gains percents to tens of percents of it in a minute (`tests/simulate/test_integrators.py`). With friction, contact
    or feedback, which forget, that seldom matters; where energy is to last take "leapfrog", "variational_euler", "rk4".
    """
    v = v + dt * acceleration(q, v)
    return State(robot.integrate(q, dt * v), v)


def runge_kutta_4(robot: Multibody, acceleration: Acceleration, q, v, dt) -> State:
    """The classical method in the tangent space at the start of the step.

    The tangent coordinate x with q = integrate(q0, x) obeys x' = v up to the curvature of the group, which the
    bracket below restores to the order of the method (Runge-Kutta-Munthe-Kaas) for joints whose velocity is a body
    velocity; for the other joints it vanishes.
    """

    def stage(carry, coefficients):  # a loop over the stages, so that the dynamics is compiled once
        dx, dv, x_sum, v_sum = carry
        node, weight = coefficients
        x, velocity = dt * node * dx, v + dt * node * dv
        dx, dv = tangent_rate(robot, x, velocity), acceleration(robot.integrate(q, x), velocity)
        return (dx, dv, x_sum + weight * dx, v_sum + weight * dv), None

    zero = jnp.zeros_like(v)
    coefficients = jnp.asarray([(0, 1 / 6), (1 / 2, 1 / 3), (1 / 2, 1 / 3), (1, 1 / 6)], v.dtype)
    (_, _, dx, dv), _ = scan(stage, (zero, zero, zero, zero), (coefficients[:, 0], coefficients[:, 1]))
    return State(robot.integrate(q, dt * dx), v + dt * dv)


def _leapfrog(robot: Multibody, acceleration: Acceleration, q, v, dt) -> State:
    """Half a step of q, a whole one of v, half a step of q: second order, at two evaluations of the dynamics.

    The velocity's change is found with its own mean, v' = v + dt a(q_mid, (v + v') / 2), by two fixed-point iterations:
    converged it would be time-reversible, so energy has an error of order dt^2 and a drift of order dt^3.
    """
    middle = robot.integrate(q, dt / 2 * v)

    def iterate(dv, _):
        return dt * acceleration(middle, v + dv / 2), None

    dv, _ = scan(iterate, jnp.zeros_like(v), None, length=2)
    return State(robot.integrate(middle, dt / 2 * (v + dv)), v + dv)


def _variational_euler(robot: Multibody, acceleration: Acceleration, q, v, dt) -> State:
    """Symplectic Euler in momenta: first order like semi-implicit Euler, but its energy oscillates and does not drift.

    For all joint kinds; costs about as much as rk4 (see `variational`), so it pays where structure matters more than
    accuracy: long times, coarse steps, statistics.
    """
    return State(*variational_step(robot, acceleration, q, v, dt))


IMPLICIT_ITERATIONS = 10


def _implicit_midpoint(robot: Multibody, acceleration: Acceleration, q, v, dt) -> State:
    """Second order, symmetric; the midpoint is found by a fixed number of fixed-point iterations (differentiable)."""

    def iterate(dv, _):
        middle_v = v + dv / 2
        return dt * acceleration(robot.integrate(q, dt / 2 * middle_v), middle_v), None

    dv, _ = scan(iterate, jnp.zeros_like(v), length=IMPLICIT_ITERATIONS)
    return State(robot.integrate(q, dt * (v + dv / 2)), v + dv)


INTEGRATORS: dict[str, Integrator] = {
    "semi_implicit_euler": semi_implicit_euler,
    "rk4": runge_kutta_4,
    "implicit_midpoint": _implicit_midpoint,
    "leapfrog": _leapfrog,
    "variational_euler": _variational_euler,
}


def find_integrator(integrator: str | Integrator) -> Integrator:
    """The integrator of that name; a function `(robot, acceleration, q, v, dt) -> (q, v)` is taken as it is."""
    if callable(integrator):
        return _checked(integrator)
    if integrator not in INTEGRATORS:
        raise ValueError(f"Unknown integrator {integrator!r}; choose one of {', '.join(INTEGRATORS)}, or a function.")
    return INTEGRATORS[integrator]


def _checked(integrator: Integrator) -> Integrator:
    protocol, hint = "(robot, acceleration, q, v, dt) -> (q, v)", " acceleration(q, v) gives the joint accelerations."
    check_takes(integrator, "An integrator", protocol, hint)
    try:
        names = list(inspect.signature(integrator).parameters)
    except (TypeError, ValueError):
        return integrator
    if names[1:4] == ["q", "v", "tau"]:  # the protocol of `linearize_step`
        raise TypeError(f"An integrator must be a function {protocol}, but this one takes {tuple(names)}.{hint}")
    return integrator
