"""iLQR and differential dynamic programming, as one program: a while loop of backward and forward passes.

The backward pass (`linear_quadratic`) finds corrections du = k + K dx of a trajectory (x_k, u_k); the next trajectory
steers by u + alpha k + K dx (D. H. Jacobson and D. Q. Mayne, "Differential Dynamic Programming", 1970; W. Li and E.
Todorov, "Iterative linear quadratic regulator design", ICINCO 2004). The regularization mu of the controls' Hessians
grows when no alpha lowers the cost and shrinks when full steps do.

Limits are met by solving the minimization in its box (`box_qp`) rather than by squashing the controls: the answer is
then exactly on its limits and satisfies the optimality conditions there, the gains of controls at a limit vanish, and
the model stays quadratic, so that steps near the solution remain Newton's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxsoa.mesh_axes import while_loop
from jaxsoa.optimize.alone import alone
from jaxsoa.optimize.lanes import while_by_lanes
from jaxsoa.optimize.linear_quadratic import Policy, backward, quadratic_problem, tangent_size
from jaxsoa.optimize.problem import Problem
from jaxsoa.optimize.solution import History, Solution, floating_start, steer, total_cost

FACTOR = 10.0
"""By which the regularization grows and shrinks."""
LEAST, MOST = 1e-9, 1e9
"""Bounds of the regularization; at the upper one the solver gives up."""
SETTLED = 1e-5
"""Largest regularization at which a small expected decrease counts as convergence and not as timidity."""
TIMID, BOLD = 0.01, 0.5
"""Steps of at most TIMID raise the regularization, steps above BOLD lower it."""

NEAR = 0.1
"""Relative fall of the cost below which `second_order` takes the dynamics' curvature in."""


class Rules(NamedTuple):
    """How `iterate` searches; `ilqr` explains them."""

    second_order: bool
    regularization: float
    step_sizes: int
    acceptance: float


class Progress(NamedTuple):
    """Where the iterations are."""

    best: Solution
    policy: Policy  # found at `best`, to be tried next
    promised: Array  # by the model of the policy: how far the cost falls; NaN where no policy is usable
    regularization: Array
    curved: Array  # whether the policy knows the curvature of the dynamics
    given_up: Array

    def settled(self, tolerance: Array | float, rules: Rules) -> Array:
        """Whether next to nothing is promised, and not out of timidity."""
        small = self.promised <= tolerance * (1 + jnp.abs(self.best.cost))
        return small & (self.regularization <= max(SETTLED, rules.regularization))


class _Search(NamedTuple):
    tries: Array
    accepted: Array
    states: Any
    controls: Array
    cost: Array


def ilqr(
    problem: Problem,
    start: Any,
    controls: Array | Solution | None = None,
    *,
    max_iterations: int = 100,
    tolerance: float | None = None,
    second_order: bool = False,
    regularization: float = LEAST,
    step_sizes: int = 10,
    acceptance: float = 0.1,
    callback: Callable[[Array, Array], None] | None = None,
) -> Solution:
    """Solve a trajectory problem from the state `start`. Jit it; vmap it for many problems at once.

    `controls` is the first guess, (horizon, nu), zeros for None, or an earlier `Solution`, whose feedback then also
    steers the first trajectory (a warm start from another initial state). `second_order` adds the curvature of the
    dynamics (DDP) once full steps lower the cost by less than a tenth: far away it makes the model indefinite, near the
    solution it makes convergence quadratic. A step of length alpha = 1, 1/2, ... (`step_sizes` of them) is accepted
    when the cost falls by `acceptance` times what the model promised. It has converged when the model promises less
    than `tolerance` (1 + |cost|); None means 1e-9, in single precision 1e-5. `iterations` counts the steps tried. Where
    the first guess leads to what is not finite (a start of NaN, say), it stops there and the solution has `failed`.
    `callback(iteration, cost)` is called on the host after each (and once per problem in a batch).

    >>> aim = soa.optimize.LeastSquares(lambda state, u: jnp.concatenate([state.q, 0.1 * state.v, 0.01 * u]))
    >>> problem = soa.optimize.robot_problem(robot, horizon=20, dt=0.05, running_cost=aim)
    >>> print(soa.optimize.ilqr(problem, soa.State(q, v)).converged)
    True
    """
    if max_iterations < 1 or step_sizes < 1:
        raise ValueError("max_iterations and step_sizes must be at least 1.")
    start, dtype = floating_start(problem, start)
    tolerance = (1e-9 if dtype == jnp.float64 else 1e-5) if tolerance is None else tolerance

    rules = Rules(second_order, regularization, step_sizes, acceptance)

    def unfinished(now: Progress):
        return ~(now.best.converged | now.given_up) & (now.best.iterations < max_iterations)

    def once(now: Progress):
        now = iterate(problem, rules, start, now)[0]
        if callback is not None:
            jax.debug.callback(callback, now.best.iterations, now.best.cost)
        return now._replace(best=now.best._replace(converged=now.settled(tolerance, rules)))

    return while_by_lanes(unfinished, once, beginning(problem, rules, start, controls, max_iterations)).best


def _search(problem: Problem, rules: Rules, start: Any, now: Progress) -> _Search:
    """Try the policy with shorter and shorter steps."""
    best, policy = now.best, now.policy
    dtype = best.controls.dtype
    rounding, usable = 10 * jnp.finfo(dtype).eps, jnp.isfinite(now.promised)
    steered = alone(partial(steer, problem))

    def searching(search: _Search):
        return usable & ~search.accepted & (search.tries < rules.step_sizes)

    def attempt(search: _Search):
        alpha = 0.5 ** search.tries.astype(dtype)
        states, controls = steered(start, best.states, best.controls, best.feedback, alpha * policy.k)
        cost = total_cost(problem, states, controls)
        fall = -alpha * (policy.slope + alpha * policy.bend / 2)
        # Rounding decides about the last digits of the cost; NaN is never accepted, but for the first guess.
        accepted = best.cost - cost >= rules.acceptance * fall - rounding * jnp.abs(best.cost)
        return _Search(search.tries + 1, accepted | (best.iterations < 0), states, controls, cost)

    nothing = _Search(jnp.array(0), jnp.array(False), best.states, best.controls, best.cost)
    return while_loop(searching, attempt, nothing)


def iterate(
    problem: Problem, rules: Rules, start: Any, now: Progress, revise: Callable | None = None
) -> tuple[Progress, Any]:
    """Take the step that is prepared, and prepare the next.

    In between, `revise(states, controls, cost, mu) -> (problem, cost, mu, anything)` may change the costs. It is told
    where the step has led; what else it gives is handed back.
    """
    best, mu = now.best, now.regularization
    dtype = best.controls.dtype
    found = _search(problem, rules, start, now)
    accepted, first = found.accepted, best.iterations < 0
    alpha = jnp.where(accepted, 0.5 ** (found.tries - 1).astype(dtype), 0)
    mu = jnp.where(alpha > BOLD, mu / FACTOR, jnp.where(alpha <= TIMID, mu * FACTOR, mu))
    mu = jnp.where(first | (now.curved & ~accepted), now.regularization, jnp.clip(mu, LEAST, MOST))
    near = best.cost - found.cost <= NEAR * jnp.abs(best.cost)
    curved = accepted & ~first & (now.curved | ((alpha == 1) & near)) if rules.second_order else now.curved
    states, controls, cost = jax.tree.map(
        lambda new, old: jnp.where(accepted, new, old),
        (found.states, found.controls, found.cost),
        (best.states, best.controls, best.cost),
    )
    failed = best.failed | (first & ~_all_finite((states, controls, cost)))
    controls = jnp.where(failed, best.controls, controls)  # the guess, and not what feedback made of it
    extra = None
    if revise is not None:
        problem, cost, mu, extra = revise(states, controls, cost, mu)
    count = best.iterations + 1
    history = History(
        _with_entry(best.history.cost, count, cost),
        _with_entry(best.history.step, count - 1, alpha),  # the first guess has none
        _with_entry(best.history.regularization, count - 1, now.regularization),
    )
    model = quadratic_problem(problem, states, controls, rules.second_order and curved)
    limits = problem.limits_as(dtype)
    box = None if limits is None else (limits[0] - controls, limits[1] - controls)
    policy = backward(model, mu, box)
    promised = -(policy.slope + policy.bend / 2)
    usable = jnp.isfinite(promised) & jnp.all(jnp.isfinite(policy.K))
    assert best.feedback is not None  # the loop starts with one
    feedback = jnp.where(usable, policy.K, best.feedback)
    best = Solution(states, controls, cost, count, jnp.array(False), history, feedback, failed)
    given_up = failed | (~accepted & (now.regularization >= MOST))
    return Progress(best, policy, jnp.where(usable, promised, jnp.nan), mu, curved, given_up), extra


def _all_finite(tree: Any) -> Array:
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(tree)]))


def _with_entry(x: Array, place: Array, value: Array) -> Array:
    """x with x[place] = value, nothing if there is no such place. Not by `at`: at two scatters of a batch, which XLA
    makes one under `fast_cpu`, its CPU compiler (jaxlib 0.10) stops the process."""
    return jnp.where(jnp.arange(len(x)) == place, value, x)


def beginning(problem: Problem, rules: Rules, start: Any, controls: Any, max_iterations: int) -> Progress:
    """Iteration -1: a policy that steers along the first guess, or as the earlier solution would."""
    start, dtype = floating_start(problem, start)
    nx = tangent_size(problem, start)
    shape = (problem.horizon, problem.dynamics.nu)
    if isinstance(controls, Solution):
        states, guess = controls.states, controls.controls
        feedback = jnp.zeros((*shape, nx), dtype) if controls.feedback is None else controls.feedback
    else:
        states = jax.tree.map(lambda x: jnp.broadcast_to(x, (problem.horizon + 1, *x.shape)), start)
        guess, feedback = controls, jnp.zeros((*shape, nx), dtype)
    nothing = jnp.full(max_iterations, jnp.nan, dtype)
    history = History(jnp.full(max_iterations + 1, jnp.nan, dtype), nothing, nothing)
    no, zero = jnp.array(False), jnp.zeros((), dtype)
    guess = problem.check_controls(guess, dtype)
    best = Solution(states, guess, zero + jnp.inf, jnp.array(-1), no, history, feedback, no)
    policy = Policy(jnp.zeros(shape, dtype), feedback, zero, zero)
    return Progress(best, policy, zero, zero + max(rules.regularization, LEAST), no, no)
