"""Single shooting: the cost as a function of the controls alone, handed to any optax optimizer in one compiled loop.

Its gradient is reverse mode through the rollout, one sweep of the dynamics' own derivative rules per step. Limits are
met by squashing, u = middle + half tanh(y), so that every optimizer (L-BFGS with its line search too) sees a problem
without constraints; `ilqr` treats limits exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxsoa.mesh_axes import inside_shard_map, refuse_varying, varying_like, while_loop
from jaxsoa.optimize.problem import Problem
from jaxsoa.optimize.solution import History, Solution, floating_start, simulate_controls, total_cost

INSIDE = 0.999
"""A first guess on its limits is moved to this fraction of the way to them: at a limit tanh has no slope."""


def shooting(
    problem: Problem,
    start: Any,
    controls: Array | Solution | None = None,
    *,
    optimizer: Any = None,
    max_iterations: int = 200,
    tolerance: float = 1e-6,
    checkpoint: bool = False,
    callback: Callable[[Array, Array], None] | None = None,
) -> Solution:
    """Minimize over the controls with an optax optimizer (None: `optax.lbfgs()`). Jit it; vmap it for many problems.

    It has converged when no entry of the gradient (by the unsquashed numbers, where there are limits) exceeds
    `tolerance`. The best trajectory met is returned; it has no feedback. With `checkpoint`, reverse mode keeps only the
    states. Inside `jax.shard_map`, optimizers with a line search need `check_vma=False` (`sharded_map` does that).

    First-order optimizers see only the gradient, of a cost whose curvatures by the torques of base and wrist, early and
    late, differ by many orders: an arm's reach is not solved in thousands of iterations where `ilqr` takes tens. This
    is for costs and dynamics that `ilqr` cannot treat, and for optimizers of one's own.

    >>> miss = lambda x: x @ x
    >>> problem = soa.optimize.step_problem(lambda x, u: x + 0.1 * u, controls=1, horizon=10, final_cost=miss)
    >>> print(soa.optimize.shooting(problem, jnp.ones(1)).converged)
    True
    """
    import optax  # heavy, and needed by nothing else here

    if max_iterations < 1:
        raise ValueError("max_iterations must be at least 1.")
    start, dtype = floating_start(problem, start)
    guess = problem.check_controls(controls.controls if isinstance(controls, Solution) else controls, dtype)
    method = optax.with_extra_args_support(optax.lbfgs() if optimizer is None else optimizer)
    squash, unsquash = _squashing(problem.limits_as(dtype))

    def cost(y):
        u = squash(y)
        return total_cost(problem, simulate_controls(problem, start, u, checkpoint=checkpoint), u)

    value_and_grad = jax.value_and_grad(cost)

    def unfinished(carry):
        _, _, _, gradient, _, _, count, _ = carry
        return (count < max_iterations) & (jnp.max(jnp.abs(gradient)) > tolerance)

    def iterate(carry):
        y, memory, value, gradient, best_y, best, count, costs = carry
        update, memory = method.update(gradient, memory, y, value=value, grad=gradient, value_fn=cost)
        y = jnp.asarray(optax.apply_updates(y, update))
        value, gradient = _known(memory) or value_and_grad(y)
        better = value < best
        best_y, best = jnp.where(better, y, best_y), jnp.where(better, value, best)
        if callback is not None:
            jax.debug.callback(callback, count + 1, value)
        return y, memory, value, gradient, best_y, best, count + 1, costs.at[count + 1].set(value)

    y = unsquash(guess)
    if inside_shard_map():
        found = jax.eval_shape(cost, y)
        if _known(jax.eval_shape(method.init, y)) is not None:
            refuse_varying("shooting with a line search", found, "the loops of optax do not keep these types")
        y = varying_like(y, found)  # or its gradient would be summed over devices
    value, gradient = value_and_grad(y)
    costs = jnp.full(max_iterations + 1, jnp.nan, dtype).at[0].set(value)
    carry = (y, method.init(y), value, gradient, y, value, jnp.array(0), costs)
    _, _, _, gradient, y, best, count, costs = while_loop(unfinished, iterate, carry)
    u = squash(y)
    nothing = jnp.full(max_iterations, jnp.nan, dtype)
    converged = jnp.max(jnp.abs(gradient)) <= tolerance
    states, history = simulate_controls(problem, start, u), History(costs, nothing, nothing)
    return Solution(states, u, best, count, converged, history, failed=~jnp.isfinite(costs[0]))


def _known(memory: Any) -> tuple[Array, Array] | None:
    """Value and gradient at the point just reached, where the optimizer's line search has left them."""
    import optax

    if not optax.tree_utils.tree_get_all_with_path(memory, "value") or not optax.tree_utils.tree_get_all_with_path(
        memory, "grad"
    ):
        return None
    return optax.tree_utils.tree_get(memory, "value"), optax.tree_utils.tree_get(memory, "grad")


def _squashing(limits: tuple[Array, Array] | None) -> tuple[Callable[[Array], Array], Callable[[Array], Array]]:
    """Unlimited numbers to controls, and back."""
    if limits is None:
        return lambda y: y, lambda u: u
    lower, upper = limits
    bounded = jnp.isfinite(lower) & jnp.isfinite(upper)
    middle = jnp.where(bounded, (jnp.where(bounded, lower, 0) + jnp.where(bounded, upper, 0)) / 2, 0)
    half = jnp.where(bounded, (jnp.where(bounded, upper, 1) - jnp.where(bounded, lower, -1)) / 2, 1)
    turning = bounded & (half > 0)

    def squash(y):
        return jnp.where(turning, middle + half * jnp.tanh(y), jnp.where(bounded, middle, jnp.clip(y, lower, upper)))

    def unsquash(u):
        inside = jnp.clip((u - middle) / jnp.where(turning, half, 1), -INSIDE, INSIDE)
        return jnp.where(turning, jnp.arctanh(inside), u)

    return squash, unsquash
