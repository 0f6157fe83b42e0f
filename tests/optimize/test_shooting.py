"""Shooting: its gradient, and its optimum beside the Riccati equation and beside iLQR."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers.compare import assert_close

import jaxsoa as soa


def double_integrator(limits=None):
    def step(x, u):
        rate = x[1] + 0.1 * u[0]
        return jnp.stack([x[0] + 0.1 * rate, rate])

    return soa.optimize.step_problem(
        step,
        controls=1,
        horizon=20,
        dt=0.1,
        running_cost=lambda x, u: x[0] ** 2 + 0.1 * u[0] ** 2,
        final_cost=lambda x: 5 * (x @ x),
        limits=limits,
    )


START = np.array([1.0, 0.0])


def test_gradient_against_central_differences():
    """Through a robot's rollout, on a manifold: a spherical joint."""
    robot = soa.models.random_tree(4, 1, kinds=["spherical"])
    problem = soa.optimize.robot_problem(
        robot,
        horizon=6,
        dt=0.05,
        running_cost=lambda x, u: x.v @ x.v + 0.1 * (u @ u),
        final_cost=lambda x: jnp.sum(robot.difference(robot.neutral(), x.q) ** 2),
    )
    start = soa.State(robot.random(jax.random.key(1)), jnp.array([0.3, -0.5, 0.2]))

    def cost(u):
        return soa.optimize.total_cost(problem, soa.optimize.simulate_controls(problem, start, u, checkpoint=True), u)

    u = jax.random.normal(jax.random.key(2), (6, 3))
    gradient = np.asarray(jax.jit(jax.grad(cost))(u)).ravel()
    h = 1e-5
    moves = h * np.concatenate([np.eye(18), -np.eye(18)]).reshape(36, 6, 3)
    values = np.asarray(jax.jit(jax.vmap(cost))(u + moves))
    assert_close(gradient, (values[:18] - values[18:]) / (2 * h), 1e-8)


@pytest.mark.parametrize(("optimizer", "iterations"), [(None, 60), (optax.adam(0.05), 1500)], ids=["lbfgs", "adam"])
def test_linear_quadratic_optimum(optimizer, iterations):
    problem = double_integrator()
    exact = jax.jit(lambda x: soa.optimize.ilqr(problem, x))(START)
    solve = jax.jit(
        lambda x: soa.optimize.shooting(problem, x, optimizer=optimizer, max_iterations=iterations, tolerance=1e-7)
    )
    found = solve(START)
    assert found.converged and found.iterations < iterations
    assert_close(found.cost, exact.cost, 1e-10)
    assert_close(found.controls, exact.controls, 1e-5)
    assert found.history.cost[int(found.iterations)] == found.cost


def test_limits_are_approached_from_inside():
    problem = double_integrator(limits=0.8)
    exact = jax.jit(lambda x: soa.optimize.ilqr(problem, x))(START)
    found = jax.jit(lambda x: soa.optimize.shooting(problem, x, max_iterations=200))(START)
    assert float(jnp.abs(found.controls).max()) <= 0.8
    assert float(jnp.abs(exact.controls).max()) == 0.8
    assert_close(found.cost, exact.cost, 1e-4)
    assert found.cost >= exact.cost - 1e-12


def test_what_has_not_converged_says_so_and_names_the_other_solver():
    problem = double_integrator()
    found = jax.jit(lambda x: soa.optimize.shooting(problem, x, max_iterations=2))(START)
    assert not found.converged and "NOT converged in 2 iterations of shooting: ilqr" in repr(found)
    assert "ilqr" not in repr(jax.jit(lambda x: soa.optimize.ilqr(problem, x, max_iterations=1))(START))
