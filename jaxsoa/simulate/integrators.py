"""One step in time, on the manifold of configurations: quaternions are moved by rotations, never added to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

from jaxsoa.dynamics.forward import forward_dynamics
from jaxsoa.mesh_axes import scan
from jaxsoa.model.multibody import Multibody


class State(NamedTuple):
    """Configuration q (nq,) and velocity v (nv,)."""

    q: Float[Array, " nq"]
    v: Float[Array, " nv"]


Acceleration = Callable[[Array, Array], Array]
Integrator = Callable[..., State]  # (robot, acceleration, q, v, dt) -> State
Passive = Callable[[Multibody, Array, Array], Array]  # (robot, q, v) -> generalized force (nv,)


def _semi_implicit_euler(robot: Multibody, acceleration: Acceleration, q, v, dt) -> State:
    """v first, then q with the new v: first order, and no energy drift to speak of for small steps."""
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
        dx, dv = _tangent_rate(robot, x, velocity), acceleration(robot.integrate(q, x), velocity)
        return (dx, dv, x_sum + weight * dx, v_sum + weight * dv), None

    zero = jnp.zeros_like(v)
    coefficients = jnp.asarray([(0, 1 / 6), (1 / 2, 1 / 3), (1 / 2, 1 / 3), (1, 1 / 6)], v.dtype)
    (_, _, dx, dv), _ = scan(stage, (zero, zero, zero, zero), (coefficients[:, 0], coefficients[:, 1]))
    return State(robot.integrate(q, dt * dx), v + dt * dv)


def _tangent_rate(robot: Multibody, x: Array, v: Array) -> Array:
    """x' for q = integrate(q0, x) moving with v: the inverse right-trivialized tangent, v + [x, v]/2 + [x, [x, v]]/12.

    The bracket is that of body velocities: (w, u) and (w', u') have (w x w', w x u' - w' x u).
    """
    once = _bracket(robot, x, v)
    return v + once / 2 + _bracket(robot, x, once) / 12


def _bracket(robot: Multibody, x: Array, y: Array) -> Array:
    parts = []
    for group in robot.topology.groups:
        xs, ys = x[group.v_index], y[group.v_index]
        if group.joint.nq == group.joint.nv:  # coordinates that add commute
            parts.append(jnp.zeros_like(xs * ys))
            continue
        angular = jnp.cross(xs[:, :3], ys[:, :3])
        if group.joint.nv == 3:
            parts.append(angular)
        else:
            linear = jnp.cross(xs[:, :3], ys[:, 3:]) - jnp.cross(ys[:, :3], xs[:, 3:])
            parts.append(jnp.concatenate([angular, linear], axis=1))
    return robot.join_dofs(parts)


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
}


def find_integrator(integrator: str | Integrator) -> Integrator:
    """The integrator of that name; a function `(robot, acceleration, q, v, dt) -> State` is taken as it is."""
    if callable(integrator):
        return integrator
    if integrator not in INTEGRATORS:
        raise ValueError(f"Unknown integrator {integrator!r}; choose one of {', '.join(INTEGRATORS)}, or a function.")
    return INTEGRATORS[integrator]


def check_contact(contact: Any, integrator: str | Integrator = "semi_implicit_euler") -> None:
    """A scene of `jaxsoa.contact`, with the one integrator that knows contacts."""
    if not hasattr(contact, "advance"):
        raise TypeError(f"contact must be a contact.Scene, got {type(contact).__name__}.")
    if integrator != "semi_implicit_euler":
        raise ValueError(f"With contacts the integrator is 'semi_implicit_euler', got {integrator!r}.")


def as_tuple(one_or_several) -> tuple:
    """Callables given one by one or in a sequence, as a tuple."""
    return (one_or_several,) if callable(one_or_several) else tuple(one_or_several)


def step(
    robot: Multibody,
    q: Shaped[Array, " nq"],
    v: Shaped[Array, " nv"],
    tau: Shaped[Array, " nv"],
    dt: float | Array,
    *,
    integrator: str | Integrator = "semi_implicit_euler",
    f_ext: Shaped[Array, "n 6"] | None = None,
    passive: Passive | Sequence[Passive] = (),
    contact: Any = None,
) -> State:
    """The state a time dt later under constant torques.

    `contact`: a `contact.Scene` whose contacts are enforced (by semi-implicit Euler: other integrators are refused).

    `passive` forces, functions `(robot, q, v) -> (nv,)` such as `JointLimits`, follow the state inside the step: a
    method of order four stays one.
    """
    q, v, tau, dt = robot.check_q(q), robot.check_v(v), robot.check_v(tau, "tau"), robot.check_number(dt)
    method, forces = find_integrator(integrator), as_tuple(passive)
    if contact is not None:
        check_contact(contact, integrator)
        tau = sum((force(robot, q, v) for force in forces), tau)
        return State(*contact.advance(robot, q, v, tau, dt, f_ext))

    def acceleration(q, v):
        return forward_dynamics(robot, q, v, sum((force(robot, q, v) for force in forces), tau), f_ext)

    after = State(*method(robot, acceleration, q, v, dt))
    return State(robot.convert(after.q, "q"), robot.convert(after.v, "v"))
