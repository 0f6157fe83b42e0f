"""Many steps: a scan over time."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Shaped

from jaxsoa.model.multibody import Multibody
from jaxsoa.simulate.integrators import State, step

Controller = Callable[[Array, Array, Array], Array]  # (time, q, v) -> tau


def rollout(
    robot: Multibody,
    q: Shaped[Array, " nq"],
    v: Shaped[Array, " nv"],
    control: Float[Array, "steps nv"] | Controller | None,
    dt: float | Array,
    *,
    steps: int | None = None,
    integrator: str = "semi_implicit_euler",
    checkpoint: bool = False,
) -> State:
    """Simulate from (q, v). Returns the states after each step, stacked: q (steps, nq), v (steps, nv).

    `control` is an array of torques (one row per step), a function `(time, q, v) -> tau`, or None for no torque; the
    last two need `steps`. With `checkpoint`, reverse mode keeps only the states and recomputes each step.
    """
    q, v = robot.check_q(q), robot.check_v(v)
    torques = None
    if control is not None and not callable(control):
        torques = jnp.asarray(control)
        if torques.ndim != 2 or torques.shape[1] != robot.nv or steps not in (None, torques.shape[0]):
            raise ValueError(f"control must have shape (steps, nv) = ({steps}, {robot.nv}), got {torques.shape}.")
        steps = torques.shape[0]
    if steps is None:
        raise ValueError("rollout needs `steps` when control is a function or None.")

    def advance(state: State, x):
        number, tau = x
        if callable(control):
            tau = control(number * dt, state.q, state.v)
        elif tau is None:
            tau = jnp.zeros_like(state.v)
        state = State(*step(robot, state.q, state.v, tau, dt, integrator=integrator))
        return state, state

    advance = jax.checkpoint(advance) if checkpoint else advance
    dtype = jnp.result_type(q, v, robot.mass)
    start = State(q.astype(dtype), v.astype(dtype))
    return lax.scan(advance, start, (jnp.arange(steps), torques))[1]
