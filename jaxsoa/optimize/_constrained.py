"""Constrained trajectories: an augmented Lagrangian around iLQR.

    minimize   sum_k dt l(x_k, u_k) + l_f(x_N)    subject to   c = 0,   d <= 0   on the path and at the end.

With multipliers y and a penalty r each constraint adds a square to the costs, which iLQR models by Gauss-Newton:

    r/2 |c + y/r|^2                and            r/2 |max(0, d + y/r)|^2.

After each inner solution the multipliers follow, y <- r (c + y/r), if the violation has fallen enough; otherwise the
penalty grows (the bound-constrained Lagrangian method of Conn, Gould and Toint, SIAM J. Numer. Anal. 28, 1991, as in
ProxDDP: Jallet, Bambade, Mansard and Carpentier, IROS 2022). The proximal term in the controls is iLQR's own
regularization. Multipliers of the path are per second, as the running cost is: times dt they are those of the sum.

A penalty that grows fast can leave a trajectory where no small change helps, half on one side of an obstacle and half
on the other. So where the largest penalty does not help, a second attempt starts from the first guess with a tenth of
the first penalty, which lets the costs and the easier constraints decide about the way first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int

from jaxsoa.optimize._ilqr import ilqr
from jaxsoa.optimize.constraints import Condition, Equality, conditions
from jaxsoa.optimize.costs import Cost, LeastSquares
from jaxsoa.optimize.problem import Problem
from jaxsoa.optimize.solution import Solution, floating_start, simulate_controls, summary, total_cost

GROWTH = 10.0
"""By which the penalty grows when the violation does not fall."""


class Multipliers(NamedTuple):
    """One array per constraint: on the path (horizon, entries), at the end (entries,)."""

    path: tuple[Array, ...]
    final: tuple[Array, ...]


class ConstrainedSolution(NamedTuple):
    """A trajectory, its multipliers and how well it satisfies the constraints."""

    states: Any
    controls: Float[Array, "horizon nu"]
    cost: Float[Array, ""]  # without penalties
    violation: Float[Array, ""]  # the largest of all entries
    violations: Float[Array, " constraints"]  # the largest of each constraint, those of the path first
    multipliers: Multipliers
    penalty: Float[Array, ""]
    iterations: Int[Array, ""]  # of iLQR, all together
    rounds: Int[Array, ""]  # of multipliers
    converged: Bool[Array, ""]  # feasible, and the inner problem solved
    plan: Solution  # of the last inner problem, with its feedback

    def __repr__(self) -> str:
        """A summary: the arrays themselves are hundreds of lines."""
        line = summary(self)
        if isinstance(self.violation, Tracer) or self.violation.ndim:
            return line
        return f"{line} in {int(self.rounds)} rounds; largest violation {float(self.violation):.3g}"


class _Row(NamedTuple):
    """What running costs of the augmented problem get for a step."""

    own: Any
    multipliers: tuple[Array, ...]
    penalty: Array


class _Shifted(eqx.Module):
    """sqrt(r) (c + y/r), or its positive part."""

    condition: Condition
    number: int = eqx.field(static=True)
    given: bool = eqx.field(static=True)  # whether the problem has a `per_step` of its own

    def __call__(self, state, control, row: _Row) -> Array:
        own = (row.own,) if self.given else ()
        c = self.condition.function(state, control, *own)
        return _shifted(self.condition, c, row.multipliers[self.number], row.penalty)


def _shifted(condition: Condition, c: Array, y: Array, penalty: Array) -> Array:
    moved = c + y / penalty
    return jnp.sqrt(penalty) * (moved if isinstance(condition, Equality) else jnp.maximum(moved, 0))


def _relabelled(cost: Cost, given: bool) -> Cost:
    """A running cost of the problem, called with the rows of the augmented one."""
    if isinstance(cost, LeastSquares):
        return LeastSquares(lambda x, u, row: cost.residual(x, u, *((row.own,) if given else ())))
    return lambda x, u, row: cost(x, u, *((row.own,) if given else ()))


def constraint_values(
    problem: Problem, path: Sequence[Condition], final: Sequence[Condition], states: Any, controls: Array
) -> Multipliers:
    """Values of all constraints along a trajectory, in the shapes of their multipliers."""
    before, last = jax.tree.map(lambda x: x[:-1], states), jax.tree.map(lambda x: x[-1], states)
    extra = () if problem.per_step is None else (problem.per_step,)
    return Multipliers(
        tuple(jax.vmap(one.function)(before, controls, *extra) for one in path),
        tuple(one.function(last) for one in final),
    )


def _violation(condition: Condition, c: Array) -> Array:
    """The largest entry that is not satisfied; NaN stays NaN."""
    beyond = jnp.abs(c) if isinstance(condition, Equality) else jnp.maximum(c, 0)
    return jnp.max(beyond, initial=0)


class _Found(NamedTuple):
    plan: Solution
    multipliers: Multipliers
    penalty: Array
    violations: Array


class _Round(NamedTuple):
    now: _Found
    kept: _Found  # the end of the first attempt, where there is a second
    wanted: Array  # violation that lets the multipliers move
    iterations: Array
    count: Array
    done: Array
    stuck: Array  # how often the largest penalty has not helped


def constrained(
    problem: Problem,
    start: Any,
    controls: Array | ConstrainedSolution | None = None,
    *,
    path: Condition | Sequence[Condition] = (),
    final: Condition | Sequence[Condition] = (),
    tolerance: float = 1e-6,
    penalty: float = 10.0,
    max_penalty: float = 1e8,
    max_rounds: int = 30,
    max_iterations: int = 100,
    inner_tolerance: float | None = None,
    second_order: bool = False,
) -> ConstrainedSolution:
    """Solve a trajectory problem under constraints. Jit it; vmap it for many problems at once.

    `path` and `final` are `Equality` and `Inequality` constraints. `controls` is a guess (steps, m), or an earlier
    solution, whose controls, multipliers and penalty are taken over (a warm start; `shifted` moves it on by steps).
    Each of at most `max_rounds` rounds solves an unconstrained problem with at most `max_iterations` iterations of
    `ilqr`; `second_order` is its option. Where no trajectory satisfies the constraints, `converged` is False and
    `violations` tells which ones are left; nothing is NaN that was not before.
    """
    path, final = conditions(path), conditions(final)
    if not path and not final:
        raise ValueError("A constrained problem needs constraints; without any, use ilqr.")
    start, dtype = floating_start(problem, start)
    given = problem.per_step is not None
    guess = controls.controls if isinstance(controls, ConstrainedSolution) else controls
    guess = problem.check_controls(guess, dtype)
    inner_tolerance = (1e-9 if dtype == jnp.float64 else 1e-5) if inner_tolerance is None else inner_tolerance
    running = tuple(_relabelled(cost, given) for cost in problem.running_cost)
    running += tuple(LeastSquares(_Shifted(one, k, given)) for k, one in enumerate(path))

    def augmented(multipliers: Multipliers, penalty: Array) -> Problem:
        rows = _Row(problem.per_step, multipliers.path, jnp.broadcast_to(penalty, (problem.horizon,)))
        ends = tuple(
            LeastSquares(lambda x, one=one, y=y: _shifted(one, one.function(x), y, penalty))
            for one, y in zip(final, multipliers.final, strict=True)
        )
        costs = (running, (*problem.final_cost, *ends))
        return Problem(problem.dynamics, *costs, problem.dt, problem.horizon, problem.limits, rows)

    def all_violations(values: Multipliers) -> Array:
        pairs = zip((*path, *final), (*values.path, *values.final), strict=True)
        return jnp.stack([_violation(one, c) for one, c in pairs]).astype(dtype)

    def once(at: _Round) -> _Round:
        now = at.now
        plan = ilqr(
            augmented(now.multipliers, now.penalty),
            start,
            now.plan.controls,
            max_iterations=max_iterations,
            tolerance=inner_tolerance,
            second_order=second_order,
        )
        values = constraint_values(problem, path, final, plan.states, plan.controls)
        violations = all_violations(values)
        worst = jnp.max(violations)
        improved = worst <= jnp.maximum(at.wanted, tolerance)

        def moved(condition, y, c):
            new = y + now.penalty * c
            return jnp.where(improved, new if isinstance(condition, Equality) else jnp.maximum(new, 0), y)

        after = Multipliers(
            tuple(map(moved, path, now.multipliers.path, values.path)),
            tuple(map(moved, final, now.multipliers.final, values.final)),
        )
        r = jnp.where(improved, now.penalty, jnp.minimum(now.penalty * GROWTH, max_penalty))
        wanted = jnp.where(improved, worst / 4, at.wanted)
        # Feasible, and the multipliers are those of this trajectory: what they would still move by is a violation too.
        done = (worst <= tolerance) & plan.converged & (at.count > 0)
        stuck = ~improved & (now.penalty >= max_penalty)
        again = stuck & (at.stuck == 0)
        here = _Found(_without_history(plan), after, r, violations)
        following, wanted = _choose(again, (second, jnp.full_like(wanted, jnp.inf)), (here, wanted))
        kept = _choose(again, here, at.kept)
        return _Round(following, kept, wanted, at.iterations + plan.iterations, at.count + 1, done, at.stuck + stuck)

    def unfinished(at: _Round):
        return ~at.done & (at.count < max_rounds) & (at.stuck < 2)

    if isinstance(controls, ConstrainedSolution):
        multipliers, first = controls.multipliers, controls.penalty
    else:
        states = simulate_controls(problem, start, guess)
        shapes = jax.eval_shape(lambda: constraint_values(problem, path, final, states, guess))
        multipliers = jax.tree.map(lambda x: jnp.zeros(x.shape, dtype), shapes)
        first = jnp.asarray(penalty, dtype)
    for y in jax.tree.leaves(multipliers):
        if y.ndim == 0:
            raise ValueError("A constraint must return a vector of values, not one number: wrap it in atleast_1d.")
    unsolved, far = _unsolved(problem, start, guess, dtype), jnp.asarray(jnp.inf, dtype)
    initial = _Found(unsolved, multipliers, first, jnp.full(len(path) + len(final), far))
    nothing = jax.tree.map(jnp.zeros_like, multipliers)
    second = initial._replace(multipliers=nothing, penalty=jnp.asarray(penalty / GROWTH, dtype))
    end = lax.while_loop(
        unfinished, once, _Round(initial, initial, far, jnp.array(0), jnp.array(0), jnp.array(False), jnp.array(0))
    )
    found = _choose(jnp.max(end.kept.violations) < jnp.max(end.now.violations), end.kept, end.now)
    return ConstrainedSolution(
        found.plan.states,
        found.plan.controls,
        total_cost(problem, found.plan.states, found.plan.controls),
        jnp.max(found.violations),
        found.violations,
        found.multipliers,
        found.penalty,
        end.iterations,
        end.count,
        end.done,
        found.plan,
    )


def _choose(condition: Array, x: Any, y: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), x, y)


def _without_history(plan: Solution) -> Solution:
    """Loops carry plans of one shape."""
    return plan._replace(history=jax.tree.map(lambda x: x[:1], plan.history))


def _unsolved(problem: Problem, start: Any, controls: Array, dtype) -> Solution:
    """What `ilqr` gives, by shape alone, with the controls to start from."""
    like = jax.eval_shape(lambda: _without_history(ilqr(problem, start, controls, max_iterations=1)))
    empty: Solution = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), like)
    return empty._replace(controls=controls.astype(dtype))


def shifted(solution: ConstrainedSolution, steps: int = 1) -> ConstrainedSolution:
    """The solution moved on by some steps, its last row repeated: where the next receding horizon starts from."""

    def on(x: Array) -> Array:
        return jnp.concatenate([x[steps:], jnp.repeat(x[-1:], steps, axis=0)])

    path = tuple(on(y) for y in solution.multipliers.path)
    multipliers = Multipliers(path, solution.multipliers.final)
    return solution._replace(controls=on(solution.controls), multipliers=multipliers)
