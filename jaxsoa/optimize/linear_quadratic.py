"""The linear-quadratic problem near a trajectory, and its solution by the Riccati recursion.

About a trajectory (x_k, u_k) let z = (dx, du), F = [A B] the linearized step and (l_z, l_zz) the cost's model. Backward
in time, with the value's model (p, P) of the step after,

    g = dt l_z + F* p,      Q = dt l_zz + F* P F  (+ the curvature of the dynamics),
    minimize over du:   g . z + z . (Q + mu I_u) z / 2      ->      du = k + K dx.

The models of all steps are computed at once, by kernels. The recursion of one problem is one kernel of loops (`alone`);
that of a batch is a kernel per step, which computes several problems side by side.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap
from jaxtyping import Array

from jaxsoa.mesh_axes import scan
from jaxsoa.optimize.alone import alone
from jaxsoa.optimize.box_qp import box_qp, solve_free
from jaxsoa.optimize.costs import Quadratic, quadratic_model
from jaxsoa.optimize.problem import Problem
from jaxsoa.optimize.small_dense import by_cholesky, solve_positive, transposed_product
from jaxsoa.optimize.stepwise import stepwise


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
    nx, nu, dtype = tangent_size(problem, last), dynamics.nu, controls.dtype

    def running(state, control, *extra):
        def moved(z):
            return dynamics.integrate(state, z[:nx]), control + z[nx:], *extra

        return quadratic_model(problem.running_cost, moved, nx + nu, dtype)

    extra = () if problem.per_step is None else (problem.per_step,)
    cost = jax.tree.map(lambda x: problem.dt * x, jax.vmap(stepwise(running))(before, controls, *extra))
    final = stepwise(partial(_final_model, problem, nx, dtype))(last)
    F = jax.vmap(stepwise(lambda x, u: jnp.concatenate(dynamics.linearize(x, u), axis=1)))(before, controls)
    model = Model(F, cost, final)
    if curved is False:
        return model

    def with_curvature():
        return cost.hessian + _curvature(problem, before, controls, _costates(model))

    return model._replace(cost=cost._replace(hessian=lax.cond(curved, with_curvature, lambda: cost.hessian)))


def _final_model(problem: Problem, nx: int, dtype, last: Any) -> Quadratic:
    return quadratic_model(problem.final_cost, lambda z: (problem.dynamics.integrate(last, z),), nx, dtype)


def tangent_size(problem: Problem, state: Any) -> int:
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
        arrived = dynamics.step(state, control)
        nx = p.shape[0]

        def along(z):
            return p @ dynamics.moved(state, control + z[nx:], z[:nx], arrived)

        return jax.jacfwd(jax.grad(along))(jnp.zeros(nx + control.shape[0], control.dtype))

    return jax.vmap(of_one)(states, controls, costates)


def backward(model: Model, regularization: Array | float, box: tuple[Array, Array] | None) -> Policy:
    """The Riccati recursion. `box`: what limits leave for du, lower and upper, each (horizon, nu)."""
    return _backward(*jax.tree.map(jnp.asarray, (model, regularization, box)))


@custom_vmap
def _backward(model: Model, regularization: Array, box: tuple[Array, Array] | None) -> Policy:
    return _one(model, regularization, box)


@_backward.def_vmap
def _(size, in_batched, *arguments):
    axes = jax.tree.map(lambda batched: 0 if batched else None, tuple(in_batched))
    found = jax.vmap(_of_many, in_axes=axes)(*arguments)
    return found, jax.tree.map(lambda _: True, found)


class _Expanded(NamedTuple):
    """The cost to go from a step on, as a quadratic form of (dx, du)."""

    gx: Array
    gu: Array
    Qxx: Array
    Qux: Array
    Quu: Array
    H: Array  # Quu + mu I


class _Value(NamedTuple):
    """What the recursion carries: the value's model, the last correction, the fall so far."""

    p: Array
    P: Array
    k: Array
    slope: Array
    bend: Array


@alone
def _one(model: Model, regularization: Array, box: tuple[Array, Array] | None) -> Policy:
    """With products as loops over rows, which fit into one kernel."""

    def back(after: _Value, x):
        F, l, ll, room = x
        g = l + jnp.sum(F * after.p[:, None], axis=0)
        Q = transposed_product(F, transposed_product(after.P, F, jnp.zeros_like(F)), ll)  # P is symmetric
        at = _parts(g, Q, F.shape[0], regularization)
        if room is None:
            both = -solve_positive(at.H, jnp.concatenate([at.Qux, at.gu[:, None]], axis=1))
            K, k = both[:, :-1], both[:, -1]
        else:
            found = box_qp(at.H, at.gu, *room, start=after.k)  # the step after is a good first guess
            K, k = -solve_free(at.H, at.Qux, found.free), found.x
        # H differs from Quu, so nothing cancels: the value of this policy, not of the regularized problem.
        bent = jnp.sum(at.Quu * k[:, None], axis=0)
        p = at.gx + jnp.sum(K * (bent + at.gu)[:, None] + at.Qux * k[:, None], axis=0)
        half = transposed_product(K, transposed_product(at.Quu / 2, K, at.Qux), at.Qxx / 2)
        value = _Value(p, half + half.T, k, after.slope + jnp.sum(at.gu * k), after.bend + jnp.sum(k * bent))
        return value, (k, K)

    return _recursion(back, model, box)


def _of_many(model: Model, regularization: Array, box: tuple[Array, Array] | None) -> Policy:
    """The same with dense products, which a kernel writes out."""

    def expanded(after: _Value, F, l, ll, regularization):
        return _parts(l + after.p @ F, ll + F.T @ (after.P @ F), F.shape[0], regularization)

    def value(after: _Value, at: _Expanded, k, K):
        bent = at.Quu @ k
        p = at.gx + (bent + at.gu) @ K + k @ at.Qux
        half = K.T @ (at.Quu / 2 @ K + at.Qux) + at.Qxx / 2
        return _Value(p, half + half.T, k, after.slope + at.gu @ k, after.bend + k @ bent)

    def free(after: _Value, F, l, ll, regularization):
        at = expanded(after, F, l, ll, regularization)
        both = -by_cholesky(at.H, jnp.concatenate([at.Qux, at.gu[:, None]], axis=1))
        K, k = both[:, :-1], both[:, -1]
        return value(after, at, k, K), (k, K)

    def held(after: _Value, at: _Expanded, k, free):
        K = -solve_free(at.H, at.Qux, free, by_cholesky)
        return value(after, at, k, K), K

    freely, beginning, ending = stepwise(free), stepwise(expanded), stepwise(held)

    def back(after: _Value, x):
        F, l, ll, room = x
        if room is None:
            return freely(after, F, l, ll, regularization)
        at = beginning(after, F, l, ll, regularization)
        found = box_qp(at.H, at.gu, *room, start=after.k, solve=by_cholesky, part=stepwise)
        before, K = ending(after, at, found.x, found.free)
        return before, (found.x, K)

    return _recursion(back, model, box)


def _parts(g: Array, Q: Array, nx: int, regularization: Array) -> _Expanded:
    Quu = Q[nx:, nx:]
    return _Expanded(
        g[:nx], g[nx:], Q[:nx, :nx], Q[nx:, :nx], Quu, Quu + regularization * jnp.eye(len(Quu), dtype=Quu.dtype)
    )


def _recursion(back, model: Model, box) -> Policy:
    nx, zero = model.F.shape[1], jnp.zeros((), model.F.dtype)
    k = jnp.zeros(model.F.shape[2] - nx, zero.dtype)
    last = _Value(model.final.gradient, model.final.hessian, k, zero, zero)
    value, (k, K) = scan(back, last, (model.F, model.cost.gradient, model.cost.hessian, box), reverse=True)
    return Policy(k, K, value.slope, value.bend)
