"""iLQR and differential dynamic programming, as one program: a while loop of backward and forward passes.

About a trajectory (x_k, u_k) let z = (dx, du), F = [A B] the linearized step and (l_z, l_zz) the cost's model. Backward
in time, with the value's model (p, P) of the step after,

    g = dt l_z + F* p,      Q = dt l_zz + F* P F  (+ the curvature of the dynamics),
    minimize over du:   g . z + z . (Q + mu I_u) z / 2      ->      du = k + K dx,

and the next trajectory steers by u + alpha k + K dx (D. H. Jacobson and D. Q. Mayne, "Differential Dynamic
Programming", 1970; W. Li and E. Todorov, "Iterative linear quadratic regulator design", ICINCO 2004). mu grows when no
alpha lowers the cost and shrinks when full steps do.

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
from jax import lax
from jaxtyping import Array

from jaxsoa.mesh_axes import scan, while_loop
from jaxsoa.optimize.alone import alone
from jaxsoa.optimize.box_qp import box_qp, solve_free
from jaxsoa.optimize.costs import Quadratic, quadratic_model
from jaxsoa.optimize.problem import Problem
from jaxsoa.optimize.small_dense import solve_positive, transposed_product
from jaxsoa.optimize.solution import (
    History,
    Solution,
    floating_start,
    steer,
    total_cost,
)

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


class Model(NamedTuple):
    """Everything known about the problem near a trajectory; time is the leading axis."""

    F: Array  # (horizon, nx, nx + nu), the step
    cost: Quadratic  # of z = (dx, du), dt included
    final: Quadratic  # of dx


class Policy(NamedTuple):
    """du = k + K dx, and how far the quadratic model falls along alpha k: alpha slope + alpha^2 bend / 2."""

    k: Array  # (horizon, nu)
    K: Array  # (horizon, nu, nx)
    slope: Array
    bend: Array


def quadratic_problem(problem: Problem, states: Any, controls: Array, curved: Array | bool = False) -> Model:
    """The linear-quadratic problem near a trajectory, all times at once. `curved`: with the dynamics' curvature."""
    dynamics = problem.dynamics
    before, last = jax.tree.map(lambda x: x[:-1], states), jax.tree.map(lambda x: x[-1], states)
    nx, nu, dtype = _tangent_size(problem, last), dynamics.nu, controls.dtype

    def running(state, control, *extra):
        def moved(z):
            return dynamics.integrate(state, z[:nx]), control + z[nx:], *extra

        return quadratic_model(problem.running_cost, moved, nx + nu, dtype)

    extra = () if problem.per_step is None else (problem.per_step,)
    cost = jax.tree.map(lambda x: problem.dt * x, jax.vmap(running)(before, controls, *extra))
    final = alone(partial(_final_model, problem, nx, dtype))(last)
    F = jax.vmap(lambda x, u: jnp.concatenate(dynamics.linearize(x, u), axis=1))(before, controls)
    model = Model(F, cost, final)
    if curved is False:
        return model

    def with_curvature():
        return cost.hessian + _curvature(problem, before, controls, _costates(model))

    return model._replace(cost=cost._replace(hessian=lax.cond(curved, with_curvature, lambda: cost.hessian)))


def _final_model(problem: Problem, nx: int, dtype, last: Any) -> Quadratic:
    return quadratic_model(problem.final_cost, lambda z: (problem.dynamics.integrate(last, z),), nx, dtype)


def _tangent_size(problem: Problem, state: Any) -> int:
    return jax.eval_shape(problem.dynamics.difference, state, state).shape[0]


def _costates(model: Model) -> Array:
    """(horizon, nx): the derivative of the cost still to come by the state *after* each step."""
    nx = model.F.shape[1]

    def back(p, x):
        F, l = x
        return l[:nx] + F[:, :nx].T @ p, p

    return scan(back, model.final.gradient, (model.F, model.cost.gradient), reverse=True)[1]


def _curvature(problem: Problem, states: Any, controls: Array, costates: Array) -> Array:
    """sum_i p_i d2 step_i / dz dz for every step, by forward over reverse mode through the dynamics' own rules.

    The multipliers are the costates of the trajectory, not the gradients of the value function that plain DDP takes:
    the step is then Newton's for the whole problem (J. F. A. De O. Pantoja, Int. J. Control 47(5), 1988), as fast near
    the solution, and all Hessians are evaluated at once instead of one after the other in the backward pass.
    """
    dynamics = problem.dynamics

    def of_one(state, control, p):
        arrived = lax.stop_gradient(dynamics.step(state, control))
        nx = p.shape[0]

        def along(z):
            return p @ dynamics.moved(state, control + z[nx:], z[:nx], arrived)

        return jax.jacfwd(jax.grad(along))(jnp.zeros(nx + control.shape[0], control.dtype))

    return jax.vmap(of_one)(states, controls, costates)


@alone
def backward(model: Model, regularization: Array, box: tuple[Array, Array] | None) -> Policy:
    """The Riccati recursion. `box`: what limits leave for du, lower and upper, each (horizon, nu)."""
    nx = model.F.shape[1]

    def back(carry, x):
        p, P, k, slope, bend = carry
        F, l, ll, room = x
        g = l + jnp.sum(F * p[:, None], axis=0)
        Q = transposed_product(F, transposed_product(P, F, jnp.zeros_like(F)), ll)  # P is symmetric
        gx, gu, Qxx, Qux, Quu = g[:nx], g[nx:], Q[:nx, :nx], Q[nx:, :nx], Q[nx:, nx:]
        H = Quu + regularization * jnp.eye(len(gu), dtype=Quu.dtype)
        if room is None:
            both = -solve_positive(H, jnp.concatenate([Qux, gu[:, None]], axis=1))
            K, k = both[:, :nx], both[:, nx]
        else:
            found = box_qp(H, gu, *room, start=k)  # the step after is a good first guess
            K, k = -solve_free(H, Qux, found.free), found.x
        # H differs from Quu, so nothing cancels: the value of this policy, not of the regularized problem.
        bent = jnp.sum(Quu * k[:, None], axis=0)
        p = gx + jnp.sum(K * (bent + gu)[:, None] + Qux * k[:, None], axis=0)
        half = transposed_product(K, transposed_product(Quu / 2, K, Qux), Qxx / 2)
        return (p, half + half.T, k, slope + jnp.sum(gu * k), bend + jnp.sum(k * bent)), (k, K)

    zero = jnp.zeros((), model.F.dtype)
    start = (model.final.gradient, model.final.hessian, jnp.zeros(model.F.shape[2] - nx, zero.dtype), zero, zero)
    xs = (model.F, model.cost.gradient, model.cost.hessian, box)
    (_, _, _, slope, bend), (k, K) = scan(back, start, xs, reverse=True)
    return Policy(k, K, slope, bend)


class _Progress(NamedTuple):
    best: Solution
    policy: Policy  # found at `best`, to be tried next
    usable: Array  # whether the policy is finite: its Hessians were positive definite
    regularization: Array
    curved: Array  # whether the policy knows the curvature of the dynamics
    given_up: Array


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
    rounding = 10 * jnp.finfo(dtype).eps

    steered, priced = alone(partial(steer, problem)), alone(partial(total_cost, problem))

    def unfinished(now: _Progress):
        return ~(now.best.converged | now.given_up) & (now.best.iterations < max_iterations)

    def forward(now: _Progress) -> _Search:
        """Try the policy with shorter and shorter steps."""
        best, policy = now.best, now.policy

        def searching(search: _Search):
            return now.usable & ~search.accepted & (search.tries < step_sizes)

        def attempt(search: _Search):
            alpha = 0.5 ** search.tries.astype(dtype)
            states, controls = steered(start, best.states, best.controls, best.feedback, alpha * policy.k)
            cost = priced(states, controls)
            fall = -alpha * (policy.slope + alpha * policy.bend / 2)
            # Rounding decides about the last digits of the cost; NaN is never accepted, but for the first guess.
            accepted = best.cost - cost >= acceptance * fall - rounding * jnp.abs(best.cost)
            return _Search(search.tries + 1, accepted | (best.iterations < 0), states, controls, cost)

        nothing = _Search(jnp.array(0), jnp.array(False), best.states, best.controls, best.cost)
        return while_loop(searching, attempt, nothing)

    def iterate(now: _Progress):
        best, mu = now.best, now.regularization
        found = forward(now)
        accepted, first = found.accepted, best.iterations < 0
        alpha = jnp.where(accepted, 0.5 ** (found.tries - 1).astype(dtype), 0)
        mu = jnp.where(alpha > BOLD, mu / FACTOR, jnp.where(alpha <= TIMID, mu * FACTOR, mu))
        mu = jnp.where(first | (now.curved & ~accepted), now.regularization, jnp.clip(mu, LEAST, MOST))
        near = best.cost - found.cost <= NEAR * jnp.abs(best.cost)
        curved = accepted & ~first & (now.curved | ((alpha == 1) & near)) if second_order else now.curved
        states, controls, cost = jax.tree.map(
            lambda new, old: jnp.where(accepted, new, old),
            (found.states, found.controls, found.cost),
            (best.states, best.controls, best.cost),
        )
        count = best.iterations + 1
        history = History(
            _with_entry(best.history.cost, count, cost),
            _with_entry(best.history.step, count - 1, alpha),  # the first guess has none
            _with_entry(best.history.regularization, count - 1, now.regularization),
        )
        model = quadratic_problem(problem, states, controls, second_order and curved)
        limits = problem.limits_as(dtype)
        box = None if limits is None else (limits[0] - controls, limits[1] - controls)
        policy = backward(model, mu, box)
        promised = -(policy.slope + policy.bend / 2)
        usable = jnp.isfinite(promised) & jnp.all(jnp.isfinite(policy.K))
        converged = usable & (promised <= tolerance * (1 + jnp.abs(cost))) & (mu <= max(SETTLED, regularization))
        if callback is not None:
            jax.debug.callback(callback, count, cost)
        assert best.feedback is not None  # the loop starts with one
        feedback = jnp.where(usable, policy.K, best.feedback)
        failed = best.failed | (first & ~_all_finite((states, controls, cost)))
        best = Solution(states, controls, cost, count, converged, history, feedback, failed)
        return _Progress(best, policy, usable, mu, curved, failed | (~accepted & (now.regularization >= MOST)))

    before = _before(problem, start, controls, max_iterations, regularization, dtype)
    return while_loop(unfinished, iterate, before).best


def _all_finite(tree: Any) -> Array:
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(tree)]))


def _with_entry(x: Array, place: Array, value: Array) -> Array:
    """x with x[place] = value, nothing if there is no such place. Not by `at`: at two scatters of a batch, which XLA
    makes one under `fast_cpu`, its CPU compiler (jaxlib 0.10) stops the process."""
    return jnp.where(jnp.arange(len(x)) == place, value, x)


def _before(problem: Problem, start: Any, controls, max_iterations: int, regularization: float, dtype) -> _Progress:
    """Iteration -1: a policy that steers along the first guess, or as the earlier solution would."""
    nx = _tangent_size(problem, start)
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
    return _Progress(best, policy, ~no, zero + max(regularization, LEAST), no, no)
