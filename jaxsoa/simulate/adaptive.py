"""Adaptive solvers: the equations of motion as a vector field for diffrax (or any solver of y' = f(t, y))."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Shaped

from jaxsoa.dynamics.forward import forward_dynamics
from jaxsoa.model.multibody import Multibody
from jaxsoa.simulate.control import Controller, has_memory
from jaxsoa.simulate.integrators import Passive, State, as_tuple


def vector_field(
    robot: Multibody, control: Controller | None = None, *, passive: Passive | Sequence[Passive] = ()
) -> Callable[[Any, State, Any], State]:
    """f(t, State(q, v), args) -> State(q', a), for `diffrax.ODETerm`. `control` is a function `(time, q, v) -> tau`.

    q' is the derivative of the coordinates: for quaternions q (0, w) / 2, taken at the normalized quaternion, so it is
    always at right angles to it and the exact flow keeps the norm; a solver's error in the norm does no harm.
    """
    if has_memory(control):
        raise ValueError("An adaptive solver chooses its own times: the controller must be a function (time, q, v).")
    forces = as_tuple(passive)

    def field(time, state: State, args=None) -> State:
        q, v = robot.check_q(state[0]), robot.check_v(state[1])
        tau = jnp.zeros_like(v) if control is None else control(time, q, v)
        tau = sum((force(robot, q, v) for force in forces), tau)
        zero = jnp.zeros((), v.dtype)
        _, rate = jax.jvp(lambda t: robot.integrate(q, t * v), (zero,), (jnp.ones_like(zero),))
        return State(rate, forward_dynamics(robot, q, v, tau))

    return field


def solve_adaptively(
    robot: Multibody,
    q: Shaped[Array, " nq"],
    v: Shaped[Array, " nv"],
    control: Controller | None,
    times: Shaped[Array, " times"],
    *,
    rtol: float = 1e-8,
    atol: float = 1e-8,
    solver: Any = None,
    passive: Passive | Sequence[Passive] = (),
    max_steps: int = 100_000,
    **options: Any,
) -> State:
    """The states at the given times, from (q, v) at times[0], by a diffrax solver (Dopri8 unless given) to a tolerance.

    Needs diffrax (`pip install jaxsoa[ode]`). Further `options` go to `diffrax.diffeqsolve` (adjoint, dt0, ...).
    """
    try:
        import diffrax
    except ImportError as error:
        raise ImportError("solve_adaptively needs diffrax: pip install 'jaxsoa[ode]'.") from error
    q, v = robot.check_q(q), robot.check_v(v)
    dtype = jnp.result_type(q, v, robot.mass)
    times = jnp.asarray(times, dtype)
    if times.ndim != 1 or times.shape[0] < 2:
        raise ValueError(f"times must be at least two increasing times, the first that of (q, v); got {times.shape}.")
    settings = {"dt0": None, "stepsize_controller": diffrax.PIDController(rtol=rtol, atol=atol), **options}
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(vector_field(robot, control, passive=passive)),
        diffrax.Dopri8() if solver is None else solver,
        times[0],
        times[-1],
        y0=State(q.astype(dtype), v.astype(dtype)),
        saveat=diffrax.SaveAt(ts=times),
        max_steps=max_steps,
        **settings,
    )
    states: Any = solution.ys
    return State(jax.vmap(robot.normalize)(states.q), states.v)
