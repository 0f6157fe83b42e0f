"""One step in time, on the manifold of configurations: quaternions are moved by rotations, never added to."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

from jaxsoa.closed_chain.constraints import Constraint
from jaxsoa.eager import compiled
from jaxsoa.mesh_axes import scan
from jaxsoa.model.multibody import Multibody
from jaxsoa.protocols import check_takes
from jaxsoa.simulate.brackets import tangent_rate
from jaxsoa.simulate.equations import ExternalForce, accelerations_of, as_prescribed, onto_loops
from jaxsoa.simulate.joint_limits import prepared
from jaxsoa.simulate.linearized_step import Step, runge_kutta_4, semi_implicit_euler
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
Passive = Callable[[Multibody, Array, Array], Array]  # (robot, q, v) -> generalized force (nv,)


def _semi_implicit_euler(robot: Multibody, acceleration: Acceleration, q, v, dt) -> State:
    """v first, then q with the new v: first order, one evaluation of the dynamics, the cheapest there is.

    Symplectic only where the mass matrix does not depend on q (a single pendulum, a gantry). Elsewhere velocity forces
    are taken half a step late and energy drifts, in proportion to dt: a frictionless double pendulum at 1 ms loses or
    gains percents to tens of percents of it in a minute (`experiments/integrator_accuracy.py`). With friction, contact
    or feedback, which forget, that seldom matters; where energy is to last take "leapfrog", "variational_euler", "rk4".
    """
    v = v + dt * acceleration(q, v)
    return State(robot.integrate(q, dt * v), v)


def _runge_kutta_4(robot: Multibody, acceleration: Acceleration, q, v, dt) -> State:
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
    "semi_implicit_euler": _semi_implicit_euler,
    "rk4": _runge_kutta_4,
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


def _state(robot: Multibody, found: Any) -> State:
    """What an integrator returns, if it is a state."""
    shapes = [jnp.shape(x) for x in found] if isinstance(found, tuple | list) else jnp.shape(found)
    if shapes != [(robot.nq,), (robot.nv,)]:
        raise ValueError(
            f"An integrator returns the next q ({robot.nq},) and v ({robot.nv},) of {robot.name!r}; this one returned "
            f"{'shapes ' + str(shapes) if isinstance(shapes, list) else 'one array of shape ' + str(shapes)}."
        )
    return State(*found)


def as_step(integrator: str | Integrator) -> Step:
    """A whole step `(robot, q, v, tau, dt) -> (q, v)` by an integrator, for `linearize_step`; equal for equal ones."""
    named = {"semi_implicit_euler": semi_implicit_euler, "rk4": runge_kutta_4}  # of closed or cheaper linearization
    if isinstance(integrator, str) and integrator in named:
        return named[integrator]
    find_integrator(integrator)
    return _Stepper(integrator)


@dataclasses.dataclass(frozen=True)
class _Stepper:
    integrator: str | Integrator

    def __call__(self, robot: Multibody, q, v, tau, dt) -> State:
        return step(robot, q, v, tau, dt, integrator=self.integrator)


def check_contact(contact: Any, integrator: str | Integrator = "semi_implicit_euler") -> None:
    """A scene of `jaxsoa.contact`, with the one integrator that knows contacts."""
    if not hasattr(contact, "advance"):
        raise TypeError(f"contact must be a contact.Scene, got {type(contact).__name__}.")
    if integrator != "semi_implicit_euler":
        raise ValueError(f"With contacts the integrator is 'semi_implicit_euler', got {integrator!r}.")


def as_tuple(one_or_several) -> tuple:
    """Callables given one by one or in a sequence, as a tuple."""
    return (one_or_several,) if callable(one_or_several) else tuple(one_or_several)


@compiled(not_with=("passive", "contact", "loops", "prescribed"))
def step(
    robot: Multibody,
    q: Shaped[Array, " nq"],
    v: Shaped[Array, " nv"],
    tau: Shaped[Array, " nv"],
    dt: float | Array,
    *,
    integrator: str | Integrator = "semi_implicit_euler",
    f_ext: ExternalForce | None = None,
    passive: Passive | Sequence[Passive] = (),
    loops: Sequence[Constraint] = (),
    prescribed: Any = None,
    contact: Any = None,
) -> State:
    """The state a time dt later under constant torques, by one of `INTEGRATORS` (or a function, see `Integrator`):

    - "semi_implicit_euler": first order, one evaluation of the dynamics; energy drifts (see there)
    - "leapfrog": second order, two evaluations; drift of third order
    - "variational_euler": first order, symplectic; an evaluation, five mass solves and two mass products; no drift
    - "implicit_midpoint": second order, symmetric, ten evaluations
    - "rk4": fourth order, four evaluations

    - `passive` forces, functions `(robot, q, v) -> (nv,)` such as `JointLimits`, follow the state inside the step: a
      method of order four stays one.
    - `f_ext`: external forces (n_links, 6), or a function `(robot, q, v)` that gives them.
    - `loops`: what closes the tree's loops; the step ends with a projection onto them (see `equations.py`).
    - `prescribed`: a pair (bool (nv,), accelerations (nv,)): where True the acceleration is given and the torque not
      read; the mask alone means zero accelerations. Both are held through the step and may change from step to step.
    - `contact`: a `contact.Scene` whose contacts are enforced (by semi-implicit Euler: other integrators are refused).
      Loops are closed in the same solve then, their drift removed by the scene's `recovery` and not by projection.

    Units: rad, rad/s, N m, s.

    >>> state = soa.step(robot, q, v, tau, 0.01)
    >>> print(state.q.round(4), state.v.round(4))
    [ 0.3032 -0.4957] [0.3216 0.4269]
    """
    q, v, tau, dt = robot.check_q(q), robot.check_v(v), robot.check_v(tau, "tau"), robot.check_number(dt)
    given, forces = as_prescribed(robot, prescribed, v), prepared(as_tuple(passive), robot, dt)
    if integrator == "variational_euler" and (loops or given is not None):
        raise ValueError("variational_euler is for the free motion of a tree, not for loops or prescribed joints.")
    if contact is not None:
        check_contact(contact, integrator)
        torque = sum((force(robot, q, v) for force in forces), tau)
        external = f_ext(robot, q, v) if callable(f_ext) else f_ext
        return State(*contact.advance(robot, q, v, torque, dt, external, loops, given))
    acceleration = accelerations_of(robot, tau, forces, f_ext, loops, given)
    after = _state(robot, find_integrator(integrator)(robot, acceleration, q, v, dt))
    if loops:
        after = State(*onto_loops(robot, loops, *after, given))
    return State(robot.convert(after.q, "q"), robot.convert(after.v, "v"))
