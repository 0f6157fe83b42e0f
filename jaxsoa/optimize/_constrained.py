"""Constrained trajectories: an augmented Lagrangian around iLQR.

    minimize   sum_k dt l(x_k, u_k) + l_f(x_N)    subject to   c = 0,   d <= 0   on the path and at the end.

With multipliers y and a penalty r each constraint adds a square to the costs, which iLQR models by Gauss-Newton:

    r/2 |c + y/r|^2                and            r/2 |max(0, d + y/r)|^2.

Rounds of iterations end when little is promised, the first ones early and each one later than the one before. Then the
multipliers follow, y <- r (c + y/r), if the violation has fallen enough; otherwise the penalty grows (the
bound-constrained Lagrangian method of Conn, Gould and Toint, SIAM J. Numer. Anal. 28, 1991, as in ProxDDP: Jallet,
Bambade, Mansard and Carpentier, IROS 2022). The proximal term in the controls is iLQR's own regularization. Multipliers
of the path are per second, as the running cost is: times dt they are those of the sum.

It is one loop, whose body is an iteration of iLQR: multipliers move between a step and the derivatives that prepare the
next, so a new round costs nothing, and problems of a batch do not wait for each other's rounds.

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
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int

from jaxsoa.mesh_axes import refuse_varying
from jaxsoa.optimize._ilqr import LEAST, Progress, Rules, beginning, iterate
from jaxsoa.optimize.constraints import Condition, Equality, conditions
from jaxsoa.optimize.costs import Cost, LeastSquares
from jaxsoa.optimize.lanes import while_by_lanes
from jaxsoa.optimize.problem import Problem
from jaxsoa.optimize.solution import Solution, floating_start, simulate_controls, summary, total_cost
from jaxsoa.optimize.stepwise import stepwise

GROWTH = 10.0
"""By which the penalty grows when the violation does not fall."""
AIM, SHARPER = 1e-2, 0.01
"""What the model may promise, relative to the cost, at the end of the first round, and the factor for the next."""


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

    @property
    def failed(self) -> Any:
        """Whether the first guess leads to what is not finite: nothing was tried."""
        return self.plan.failed

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
    on_path = stepwise(lambda *x: tuple(one.function(*x) for one in path))
    at_end = stepwise(lambda x: tuple(one.function(x) for one in final))
    return Multipliers(jax.vmap(on_path)(before, controls, *extra) if path else (), at_end(last) if final else ())


def _violation(condition: Condition, c: Array) -> Array:
    """The largest entry that is not satisfied; NaN stays NaN."""
    beyond = jnp.abs(c) if isinstance(condition, Equality) else jnp.maximum(c, 0)
    return jnp.max(beyond, initial=0)


class _Found(NamedTuple):
    now: Progress
    multipliers: Multipliers
    penalty: Array
    violations: Array


class _State(NamedTuple):
    found: _Found
    kept: _Found  # the end of the first attempt, where there is a second
    wanted: Array  # violation that lets the multipliers move
    aim: Array  # promise of the model, relative to the cost, that ends a round
    since: Array  # iterations of this round
    iterations: Array
    rounds: Array
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
    Each of at most `max_rounds` rounds takes at most `max_iterations` iterations of `ilqr`; `second_order` is its
    option. Where no trajectory satisfies the constraints, `converged` is False and
    `violations` tells which ones are left; nothing is NaN that was not before.

    >>> problem = soa.optimize.step_problem(
    ...     lambda x, u: x + 0.1 * u, controls=1, horizon=10, running_cost=lambda x, u: u @ u
    ... )
    >>> found = soa.optimize.constrained(problem, jnp.zeros(1), final=soa.optimize.Equality(lambda x: x - 1.0))
    >>> print(found.converged, found.controls[0].round(3))
    True [1.]
    """
    path, final = conditions(path), conditions(final)
    if not path and not final:
        raise ValueError("A constrained problem needs constraints; without any, use ilqr.")
    start, dtype = floating_start(problem, start)
    refuse_varying("constrained", (problem, start, controls), "derivatives inside would be summed over devices")
    given = problem.per_step is not None
    warm = isinstance(controls, ConstrainedSolution)
    guess = problem.check_controls(controls.controls if isinstance(controls, ConstrainedSolution) else controls, dtype)
    inner_tolerance = (1e-9 if dtype == jnp.float64 else 1e-5) if inner_tolerance is None else inner_tolerance
    rules = Rules(second_order, LEAST, 10, 0.1)
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

    def moved(condition, y, c, penalty):
        new = y + penalty * c
        return new if isinstance(condition, Equality) else jnp.maximum(new, 0)

    def all_moved(found: _Found, values: Multipliers) -> Multipliers:
        old, r = found.multipliers, found.penalty
        return Multipliers(
            tuple(moved(*x, r) for x in zip(path, old.path, values.path, strict=True)),
            tuple(moved(*x, r) for x in zip(final, old.final, values.final, strict=True)),
        )

    def once(at: _State) -> _State:
        found = at.found
        now, r = found.now, found.penalty
        first = now.best.iterations < 0
        over = ~first & (now.settled(at.aim, rules) | (at.since >= max_iterations) | now.given_up)

        def revise(states, controls, cost, mu):
            """The multipliers of the next round, where the step that has just been taken was the last of this one."""
            values = constraint_values(problem, path, final, states, controls)
            violations = all_violations(values)
            worst = jnp.max(violations)
            improved = over & (worst <= jnp.maximum(at.wanted, tolerance))
            y = _choose(improved, all_moved(found, values), found.multipliers)
            penalty = jnp.where(over & ~improved, jnp.minimum(r * GROWTH, max_penalty), r)
            after = augmented(y, penalty)
            cost = jnp.where(over, total_cost(after, states, controls), cost)
            return after, cost, jnp.where(over & now.given_up, LEAST, mu), (y, penalty, violations, improved)

        now, (y, penalty, violations, improved) = iterate(augmented(found.multipliers, r), rules, start, now, revise)
        worst, failed = jnp.max(violations), now.best.failed
        done = (worst <= tolerance) & now.settled(inner_tolerance, rules)
        stuck = over & ~improved & (r >= max_penalty)
        again = stuck & (at.stuck == 0) & ~done
        here = _Found(now._replace(given_up=now.given_up & ~over), y, penalty, violations)
        return _State(
            _choose(again, second, here),
            _choose(again, here, at.kept),
            jnp.where(again, jnp.inf, jnp.where(improved, worst / 4, at.wanted)),
            jnp.where(again, AIM, jnp.where(improved, jnp.maximum(at.aim * SHARPER, inner_tolerance), at.aim)),
            jnp.where(over | again | first, 0, at.since + 1),
            at.iterations + ~first,
            at.rounds + (over | done),
            done | failed,
            at.stuck + stuck,
        )

    def unfinished(at: _State):
        return ~at.done & (at.rounds < max_rounds) & (at.stuck < 2)

    states = simulate_controls(problem, start, guess)
    shapes = jax.eval_shape(lambda: constraint_values(problem, path, final, states, guess))
    for y in jax.tree.leaves(shapes):
        if y.ndim == 0:
            raise ValueError("A constraint must return a vector of values, not one number: wrap it in atleast_1d.")
    nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, dtype), shapes)
    before, far = beginning(problem, rules, start, guess, 1), jnp.asarray(jnp.inf, dtype)
    cold = _Found(before, nothing, jnp.asarray(penalty, dtype), jnp.full(len(path) + len(final), far))
    second = cold._replace(penalty=jnp.asarray(penalty / GROWTH, dtype))
    initial, zero, no = cold, jnp.array(0), jnp.array(False)
    if isinstance(controls, ConstrainedSolution):
        initial = cold._replace(multipliers=controls.multipliers, penalty=controls.penalty)
    aim = jnp.asarray(AIM / 10 if warm else AIM, dtype)
    end = while_by_lanes(unfinished, once, _State(initial, initial, far, aim, zero, zero, zero, no, zero))
    found = _choose(jnp.max(end.kept.violations) < jnp.max(end.found.violations), end.kept, end.found)
    plan = found.now.best
    converged = end.done & ~plan.failed
    # The derivative of the costs with penalties is that of the Lagrangian with the multipliers moved on.
    values = constraint_values(problem, path, final, plan.states, plan.controls)
    return ConstrainedSolution(
        plan.states,
        plan.controls,
        total_cost(problem, plan.states, plan.controls),
        jnp.max(found.violations),
        found.violations,
        _choose(converged, all_moved(found, values), found.multipliers),
        found.penalty,
        end.iterations,
        end.rounds,
        converged,
        plan._replace(converged=converged, history=jax.tree.map(lambda x: x[:1], plan.history)),
    )


def _choose(condition: Array, x: Any, y: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), x, y)


def shifted(solution: ConstrainedSolution, steps: int = 1) -> ConstrainedSolution:
    """The solution moved on by some steps, its last row repeated: where the next receding horizon starts from.

    >>> miss = lambda x: x @ x
    >>> problem = soa.optimize.step_problem(lambda x, u: x + 0.1 * u, controls=1, horizon=10, final_cost=miss)
    >>> low = soa.optimize.Inequality(lambda x, u: -1.0 - u)
    >>> found = soa.optimize.constrained(problem, jnp.ones(1), path=low)
    >>> print(soa.optimize.shifted(found).controls.shape)
    (10, 1)
    """

    def on(x: Array) -> Array:
        return jnp.concatenate([x[steps:], jnp.repeat(x[-1:], steps, axis=0)])

    path = tuple(on(y) for y in solution.multipliers.path)
    multipliers = Multipliers(path, solution.multipliers.final)
    return solution._replace(controls=on(solution.controls), multipliers=multipliers)
