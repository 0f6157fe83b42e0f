"""Parameters that are optimized along with the trajectory: a final time, a length, a mass.

They are part of the state, constant in time, and chosen by extra controls that act in the first step only:

    x_0 = (state, p0),     p = p0 + u_0[extra],     x_{k+1} = step(x_k, u_k, p).

So iLQR, limits and constraints need to know nothing about them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from jaxsoa.optimize.costs import Cost, LeastSquares, terms
from jaxsoa.optimize.problem import Problem, step_problem


class Parametrized(NamedTuple):
    """A state with the parameters in force; `chosen` is 0 before the first step, 1 after it."""

    state: Any
    parameters: Float[Array, " p"]
    chosen: Float[Array, ""]


def parametrized_start(state: Any, parameters: Any) -> Parametrized:
    """The state to start from, with a first guess (p,) of the parameters.

    >>> start = soa.optimize.parametrized_start(jnp.zeros(1), jnp.ones(1))
    >>> print(start.state, start.parameters)
    [0.] [1.]
    """
    parameters = jnp.asarray(parameters)
    return Parametrized(state, parameters, jnp.zeros((), parameters.dtype))


def parametrized_problem(
    step: Callable[[Any, Array, Array], Any],
    *,
    parameters: int,
    controls: int,
    horizon: int,
    dt: float | Array = 1.0,
    running_cost: Cost | Sequence[Cost] | None = None,
    final_cost: Cost | Sequence[Cost] | None = None,
    limits: tuple[Any, Any] | None = None,
    integrate: Callable[[Any, Array], Any] | None = None,
    difference: Callable[[Any, Any], Array] | None = None,
) -> Problem:
    """A problem about `step(state, control, parameters)`.

    Running costs are `(state, control, parameters) -> scalar`, final ones `(state, parameters) -> scalar`.
    Controls are (controls + parameters,), of which the last ones choose the parameters in the first step; constraints
    get states of type `Parametrized`, so that they may bound parameters (at the end, say). `limits` are (lower, upper)
    of the controls proper. A free final time T is a parameter: with `dt` = 1 / horizon, steps of T / horizon, and
    running costs multiplied by T.

    >>> arrive = lambda x, T: x @ x + T[0] ** 2  # at zero, and soon: T[0] is the time, s
    >>> problem = soa.optimize.parametrized_problem(
    ...     lambda x, u, T: x + T / 10 * u, parameters=1, controls=1, horizon=10, final_cost=arrive
    ... )
    >>> print(problem.dynamics.nu)
    2
    """
    if parameters < 1:
        raise ValueError(f"A parametrized problem needs at least one parameter, got {parameters}.")
    if (integrate is None) != (difference is None):
        raise ValueError("Give both integrate and difference, or neither (states that add like vectors).")

    def chosen(x: Parametrized, u: Array) -> Array:
        return x.parameters + (1 - x.chosen) * u[controls:]

    def advance(x: Parametrized, u: Array) -> Parametrized:
        p = chosen(x, u)
        return Parametrized(step(x.state, u[:controls], p), p, jnp.ones_like(x.chosen))

    def move(x: Parametrized, dx: Array) -> Parametrized:
        own, dp = dx[:-parameters], dx[-parameters:]
        if integrate is not None:
            state = integrate(x.state, own)
        else:
            flat, restore = ravel_pytree(x.state)
            state = restore(flat + own)
        return Parametrized(state, x.parameters + dp, x.chosen)

    def compare(a: Parametrized, b: Parametrized) -> Array:
        if difference is not None:
            own = difference(a.state, b.state)
        else:
            own = ravel_pytree(b.state)[0] - ravel_pytree(a.state)[0]
        return jnp.concatenate([own, b.parameters - a.parameters])

    def running(cost: Cost) -> Cost:
        function = cost.residual if isinstance(cost, LeastSquares) else cost

        def of(x: Parametrized, u: Array) -> Array:
            return function(x.state, u[:controls], chosen(x, u))

        return LeastSquares(of) if isinstance(cost, LeastSquares) else of

    def final(cost: Cost) -> Cost:
        function = cost.residual if isinstance(cost, LeastSquares) else cost

        def of(x: Parametrized) -> Array:
            return function(x.state, x.parameters)

        return LeastSquares(of) if isinstance(cost, LeastSquares) else of

    if limits is not None:
        free = jnp.full(parameters, jnp.inf)
        ends = (jnp.broadcast_to(jnp.asarray(x, float), (controls,)) for x in limits)
        lower, upper = ends
        limits = (jnp.concatenate([lower, -free]), jnp.concatenate([upper, free]))
    return step_problem(
        advance,
        controls=controls + parameters,
        horizon=horizon,
        dt=dt,
        running_cost=tuple(running(cost) for cost in terms(running_cost)) or None,  # type: ignore[arg-type]
        final_cost=tuple(final(cost) for cost in terms(final_cost)) or None,  # type: ignore[arg-type]
        limits=limits,
        integrate=move,
        difference=compare,
    )
