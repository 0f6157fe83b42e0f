"""What a solver hands back, and how a trajectory follows from controls or from a solution's feedback."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int

from jaxsoa.mesh_axes import scan
from jaxsoa.optimize.costs import evaluate
from jaxsoa.optimize.problem import Problem
from jaxsoa.optimize.stepwise import stepwise


class History(NamedTuple):
    """The course of the iterations; NaN after the last one."""

    cost: Float[Array, " iterations_plus_1"]  # the first entry belongs to the initial guess
    step: Float[Array, " iterations"]  # length of the step taken along the search direction, 0 where none was accepted
    regularization: Float[Array, " iterations"]


class Solution(NamedTuple):
    """A trajectory with its convergence report. Time is the leading axis of `states` (horizon + 1) and `controls`."""

    states: Any
    controls: Float[Array, "horizon nu"]
    cost: Float[Array, ""]
    iterations: Int[Array, ""]
    converged: Bool[Array, ""]
    history: History
    feedback: Float[Array, "horizon nu nx"] | None = None  # u = controls + feedback @ difference(states, x)
    failed: Bool[Array, ""] | bool = False  # the first guess leads to what is not finite: nothing was tried

    def __repr__(self) -> str:
        """A summary: the arrays themselves are hundreds of lines."""
        return summary(self)


def summary(solution: Any) -> str:
    """One line about a solution, or about a batch of them."""
    horizon, nu = solution.controls.shape[-2:]
    head, size = f"{type(solution).__name__}: horizon {horizon}, {nu} controls", f"cost of shape {solution.cost.shape}"
    if isinstance(solution.cost, Tracer):
        return f"{head}, being traced"
    converged = np.asarray(solution.converged)
    if converged.ndim:
        return f"{head}, {size}; {int(converged.sum())} of {converged.size} converged"
    if np.asarray(getattr(solution, "failed", False)):
        return f"{head}; FAILED: the first guess leads to what is not finite"
    history = getattr(solution, "history", None)
    first = "" if history is None else f" (at first {float(history.cost[0]):.6g})"
    how = "converged after" if converged else "NOT converged in"
    line = f"{head}; cost {float(solution.cost):.6g}{first}; {how} {int(solution.iterations)} iterations"
    by_shooting = isinstance(solution, Solution) and solution.feedback is None
    return line if converged or not by_shooting else f"{line} of shooting: ilqr may need far fewer"


def floating_start(problem: Problem, start: Any) -> tuple[Any, Any]:
    """The initial state in one floating type, and that type: the robot's, or if there is none that of `start`."""
    start = problem.dynamics.check_start(start)
    dtype = _floating_type(problem, start)
    return jax.tree.map(lambda x: jnp.asarray(x, dtype), start), dtype


def _floating_type(problem: Problem, given: Any) -> Any:
    """The robot's floating type, or if there is no robot that of what is given."""
    dtype = problem.dynamics.dtype
    if dtype is None:
        dtype = jnp.result_type(*map(jnp.asarray, jax.tree.leaves(given)))
        dtype = dtype if jnp.issubdtype(dtype, jnp.floating) else jnp.result_type(float)
    return dtype


def simulate_controls(
    problem: Problem, start: Any, controls: Float[Array, "horizon nu"], *, checkpoint: bool = False
) -> Any:
    """The states that open-loop controls lead through, `start` first: horizon + 1 of them, stacked.

    With `checkpoint`, reverse mode keeps only these and recomputes each step.

    >>> miss = lambda x: x @ x
    >>> problem = soa.optimize.step_problem(lambda x, u: x + 0.1 * u, controls=1, horizon=10, final_cost=miss)
    >>> print(soa.optimize.simulate_controls(problem, jnp.zeros(1), jnp.ones((10, 1)))[-1])
    [1.]
    """
    start, dtype = floating_start(problem, start)
    controls = jnp.asarray(controls, dtype)

    def advance(state, control):
        return problem.dynamics.step(state, control), state

    last, states = scan(jax.checkpoint(advance) if checkpoint else advance, start, controls)
    return with_last(states, last)


def follow(problem: Problem, start: Any, plan: Solution, feedforward: Array | None = None) -> tuple[Any, Array]:
    """States (horizon + 1, ...) and controls (horizon, nu) when the plan's feedback steers from `start`.

    `feedforward` (horizon, nu) corrects the plan's controls.

    >>> aim = soa.optimize.LeastSquares(lambda state, u: jnp.concatenate([state.q, 0.1 * state.v, 0.01 * u]))
    >>> problem = soa.optimize.robot_problem(robot, horizon=20, dt=0.05, running_cost=aim)
    >>> plan = soa.optimize.ilqr(problem, soa.State(q, v))
    >>> states, controls = soa.optimize.follow(problem, soa.State(q + 0.1, v), plan)  # rad; N m
    >>> print(controls.shape)
    (20, 2)
    """
    start, dtype = floating_start(problem, start)
    feedforward = None if feedforward is None else jnp.asarray(feedforward, dtype)
    plan = jax.tree.map(lambda x: jnp.asarray(x, dtype), plan._replace(history=None))
    return steer(problem, start, plan.states, plan.controls, plan.feedback, feedforward)


def steer(
    problem: Problem, start: Any, states: Any, controls: Array, feedback: Array | None, feedforward: Array | None
):
    """`follow` for a plan given by its parts."""
    dynamics = problem.dynamics

    def advance(state, x):
        reference, control, gain, extra = x
        if extra is not None:
            control = control + extra
        if gain is not None:
            # Not a matrix product, which would not fit into a kernel.
            control = control + jnp.sum(gain * dynamics.difference(reference, state), axis=1)
        control = problem.clip(control)
        return dynamics.step(state, control), (state, control)

    references = jax.tree.map(lambda x: x[:-1], states)
    last, (states, controls) = scan(advance, start, (references, controls, feedback, feedforward))
    return with_last(states, last), controls


def with_last(states: Any, last: Any) -> Any:
    return jax.tree.map(lambda x, y: jnp.concatenate([x, y[None]]), states, last)


def total_cost(problem: Problem, states: Any, controls: Float[Array, "horizon nu"]) -> Float[Array, ""]:
    """sum_k dt l(x_k, u_k) + l_f(x_N), all times at once.

    >>> miss = lambda x: x @ x
    >>> problem = soa.optimize.step_problem(lambda x, u: x + 0.1 * u, controls=1, horizon=10, final_cost=miss)
    >>> controls = jnp.ones((10, 1))
    >>> states = soa.optimize.simulate_controls(problem, jnp.zeros(1), controls)
    >>> print(soa.optimize.total_cost(problem, states, controls).round(6))
    1.0
    """
    controls = jnp.asarray(controls)
    dtype = _floating_type(problem, (states, controls))
    states, controls = jax.tree.map(lambda x: jnp.asarray(x, dtype), (states, controls))
    before, last = jax.tree.map(lambda x: x[:-1], states), jax.tree.map(lambda x: x[-1], states)
    extra = () if problem.per_step is None else (problem.per_step,)
    running = jax.vmap(stepwise(partial(evaluate, problem.running_cost, dtype)))(before, controls, *extra)
    return problem.dt * jnp.sum(running) + stepwise(partial(evaluate, problem.final_cost, dtype))(last)
