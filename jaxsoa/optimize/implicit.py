"""Derivatives of an optimal trajectory by what the problem was made of, by the implicit function theorem.

With the controls u, multipliers y of the active constraints c and L = cost + y . c, the conditions of optimality
dL/du = 0, c = 0 hold for every parameter p; differentiated,

    [ L_uu  c_u* ] [du]       [ L_up ]
    [ c_u   0    ] [dy]  =  - [ c_p  ] dp,

with controls at their limits moving with these. The matrices are dense, (horizon nu + constraints) squared: for
problems of up to a thousand unknowns. Nothing of the path that the solver took is differentiated or kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from jaxsoa.optimize._constrained import constrained, constraint_values
from jaxsoa.optimize.constraints import Condition, Equality, conditions
from jaxsoa.optimize.problem import Problem
from jaxsoa.optimize.solution import floating_start, simulate_controls, total_cost

ACTIVE = 1e-7
"""Multipliers above this belong to constraints that bind."""


class Setup(NamedTuple):
    """A problem under constraints, as a function of parameters makes it."""

    problem: Problem
    start: Any
    path: Condition | tuple[Condition, ...] = ()
    final: Condition | tuple[Condition, ...] = ()


class OptimalTrajectory(NamedTuple):
    """States, controls and cost, differentiable by the parameters; violation and convergence, which are not."""

    states: Any
    controls: Float[Array, "horizon nu"]
    cost: Float[Array, ""]
    violation: Array
    converged: Array


def optimal_trajectory(
    make: Callable[[Any], Setup], parameters: Any, controls: Array | None = None, **options: Any
) -> OptimalTrajectory:
    """The solution of `make(parameters)` under its constraints, by `constrained`, from `controls` (steps, m).

    Derivatives by `parameters` (a pytree of floating arrays), forward and reverse, are those of the solution: exact for
    a strict minimum whose active constraints are independent. Ask for a small `tolerance`: they are those of the
    trajectory found.

    >>> problem = soa.optimize.step_problem(
    ...     lambda x, u: x + 0.1 * u, controls=1, horizon=10, running_cost=lambda x, u: u @ u
    ... )
    >>> aim = lambda x: soa.optimize.Setup(problem, jnp.zeros(1), (), soa.optimize.Equality(lambda end: end - x))
    >>> print(jax.grad(lambda x: soa.optimize.optimal_trajectory(aim, x).cost)(1.0).round(3))
    20.0
    """

    def parts(parameters):
        setup = make(parameters)
        start, _ = floating_start(setup.problem, setup.start)
        return setup.problem, start, conditions(setup.path), conditions(setup.final)

    @jax.custom_jvp
    def solve(parameters):
        problem, start, path, final = parts(parameters)
        found = constrained(problem, start, controls, path=path, final=final, **options)
        return found.controls, found.multipliers, found.violation, found.converged

    @solve.defjvp
    def solve_jvp(primals, tangents):
        found = solve(*primals)
        u, y = found[0], found[1]

        def values(u, parameters):
            problem, start, path, final = parts(parameters)
            states = simulate_controls(problem, start, u)
            c = constraint_values(problem, path, final, states, u)
            rows = [problem.dt * x.ravel() for x in c.path] + [x.ravel() for x in c.final]
            return total_cost(problem, states, u), jnp.concatenate(rows)

        weights = jnp.concatenate([x.ravel() for x in (*y.path, *y.final)])
        problem, _, path, final = parts(primals[0])
        kinds = [
            jnp.full(x.size, isinstance(one, Equality))
            for one, x in zip((*path, *final), (*y.path, *y.final), strict=True)
        ]
        active = jnp.concatenate(kinds) | (weights > ACTIVE)

        def gradient(u, parameters):
            return jax.grad(lambda u: values(u, parameters)[0] + weights @ values(u, parameters)[1])(u).ravel()

        def rows(u, parameters):
            return values(u, parameters)[1]

        shape = u.shape
        flat = u.ravel()
        H = jax.jacfwd(lambda x: gradient(x.reshape(shape), primals[0]))(flat)
        J = jax.jacfwd(lambda x: rows(x.reshape(shape), primals[0]))(flat)
        dg = jax.jvp(lambda p: gradient(u, p), primals, tangents)[1]
        dc = jax.jvp(lambda p: rows(u, p), primals, tangents)[1]
        n, m = H.shape[0], J.shape[0]
        held, moves = jnp.zeros(n, bool), jnp.zeros(n, u.dtype)
        if problem.limits is not None:

            def ends(parameters):
                limits = parts(parameters)[0].limits_as(u.dtype)
                assert limits is not None
                return tuple(jnp.broadcast_to(x, shape).ravel() for x in limits)

            (lower, upper), (dlower, dupper) = jax.jvp(ends, primals, tangents)
            low, high = flat <= lower, flat >= upper
            held, moves = low | high, jnp.where(low, dlower, jnp.where(high, dupper, 0))
        eye = jnp.eye(n, dtype=u.dtype)
        top = jnp.where(held[:, None], jnp.concatenate([eye, jnp.zeros((n, m))], 1), jnp.concatenate([H, J.T], 1))
        still = jnp.diag(jnp.where(active, -1e-13, 1.0))
        bottom = jnp.concatenate([jnp.where(active[:, None], J, 0), still], axis=1)
        push = jnp.concatenate([jnp.where(held, moves, -dg), jnp.where(active, -dc, 0)])
        solved = jnp.linalg.solve(jnp.concatenate([top, bottom]), push)
        nothing = jax.tree.map(lambda x: _zero_tangent(x), found[1:])
        return found, (solved[:n].reshape(shape), *nothing)

    found = solve(parameters)
    problem, start, _, _ = parts(parameters)
    states = simulate_controls(problem, start, found[0])
    return OptimalTrajectory(states, found[0], total_cost(problem, states, found[0]), *lax.stop_gradient(found[2:]))


def _zero_tangent(x: Array) -> Any:
    if jnp.issubdtype(x.dtype, jnp.floating):
        return jnp.zeros_like(x)
    return jnp.zeros(x.shape, jax.dtypes.float0)
