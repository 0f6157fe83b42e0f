"""iLQR: exact on linear-quadratic problems, optimal at limits, and what it promises about batches and warm starts.

Most tests drive a closed-form pendulum or a linear system: what is tested is the solver, and they compile quickly.
"""

from __future__ import annotations

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
import scipy.optimize
from helpers.compare import assert_close

import jaxsoa as soa
from jaxsoa.optimize.box_qp import box_qp
from jaxsoa.optimize.tasks import pendulum_swing_up

rng = np.random.default_rng(0)
NX, NU, T = 4, 2, 25
A = np.eye(NX) + 0.1 * rng.normal(size=(NX, NX))
B = rng.normal(size=(NX, NU))
Q, R = np.diag([1.0, 2.0, 0.5, 1.0]), np.diag([0.3, 0.8])
P = scipy.linalg.solve_discrete_are(A, B, Q, R)
START = np.array([1.0, -2.0, 0.5, 3.0])


def linear_problem(limits=None):
    """Its final weight is the solution of the Riccati equation, so the optimal feedback is the same at all times."""
    return soa.optimize.step_problem(
        lambda x, u: A @ x + B @ u,
        controls=NU,
        horizon=T,
        running_cost=(lambda x, u: x @ Q @ x / 2, soa.optimize.LeastSquares(lambda x, u: jnp.sqrt(np.diag(R)) * u)),
        final_cost=lambda x: x @ P @ x / 2,
        limits=limits,
    )


@pytest.fixture(scope="module")
def limited():
    """A linear problem with limits that matter, solved; its dense form |G u + h|^2 / 2 + constant."""
    problem = linear_problem(limits=(np.array([-1.0, -0.4]), np.array([0.6, np.inf])))
    solution = jax.jit(lambda x: soa.optimize.ilqr(problem, x))(START)
    powers = [np.linalg.matrix_power(A, k) for k in range(T + 1)]
    response = np.zeros((T + 1, NX, T, NU))
    for k in range(1, T + 1):
        for j in range(k):
            response[k, :, j] = powers[k - 1 - j] @ B
    roots = [np.linalg.cholesky(Q).T] * T + [np.linalg.cholesky(P).T]
    rows = [root @ response[k].reshape(NX, -1) for k, root in enumerate(roots)]
    G = np.concatenate([*rows, np.kron(np.eye(T), np.sqrt(R))])
    h = np.concatenate([*(root @ powers[k] @ START for k, root in enumerate(roots)), np.zeros(T * NU)])
    return problem, solution, G, h


def pendulum_problem(limit=None, goal=np.pi, **changes):
    """A pendulum in closed form: x = (angle, rate), swinging up."""

    def step(x, u):
        rate = x[1] + 0.05 * (u[0] - 9.81 * jnp.sin(x[0]) - 0.1 * x[1])
        return jnp.stack([x[0] + 0.05 * rate, rate])

    given = {
        "controls": 1,
        "horizon": 50,
        "dt": 0.05,
        "running_cost": lambda x, u: 0.05 * u[0] ** 2,
        "final_cost": soa.optimize.LeastSquares(lambda x: jnp.array([40.0, 15.0]) * (x - jnp.array([goal, 0.0]))),
        "limits": limit,
    }
    return soa.optimize.step_problem(step, **{**given, **changes})


@pytest.fixture(scope="module")
def swing():
    """A solver of the pendulum with 5 N m, compiled once, and its solution from rest."""
    problem = pendulum_problem(5.0)
    solve = jax.jit(lambda x, u: soa.optimize.ilqr(problem, x, u, max_iterations=200))
    return problem, solve, solve(jnp.zeros(2), jnp.zeros((50, 1)))


def test_linear_quadratic_problem_takes_one_iteration():
    solution = jax.jit(lambda x: soa.optimize.ilqr(linear_problem(), x))(START)
    gain = -np.linalg.solve(R + B.T @ P @ B, B.T @ P @ A)
    assert solution.converged and solution.iterations == 1
    # The regularization, 1e-9, is what keeps this from 1e-12.
    assert_close(solution.cost, START @ P @ START / 2, 1e-9, "cost")
    assert_close(solution.feedback, np.broadcast_to(gain, (T, NU, NX)), 1e-8, "feedback")
    x = START
    for k in range(T):
        assert_close(solution.states[k], x, 1e-8, f"state {k}")
        x = A @ x + B @ (gain @ x)


def test_limits_against_a_dense_quadratic_program(limited):
    problem, solution, G, h = limited
    lower, upper = (np.tile(limit, T) for limit in problem.limits)
    dense = scipy.optimize.lsq_linear(G, -h, (lower, upper), method="bvls", tol=1e-14)
    u = np.asarray(solution.controls).ravel()
    assert solution.converged
    assert (u >= lower).all() and (u <= upper).all()
    assert ((u == lower) | (u == upper)).sum() >= 3, "the limits must matter"
    assert_close(solution.cost, dense.cost, 1e-9, "cost")
    # The stopping rule bounds the cost to 1e-9, so controls to its square root.
    assert_close(u, dense.x, 1e-4, "controls")


def test_optimality_conditions_at_the_limits(limited):
    """Gradient by dense algebra: zero between the limits, pointing outward at them."""
    problem, solution, G, h = limited
    lower, upper = (np.tile(limit, T) for limit in problem.limits)
    u = np.asarray(solution.controls).ravel()
    gradient = G.T @ (G @ u + h)
    scale = np.abs(G.T @ h).max()
    between = (u > lower) & (u < upper)
    assert np.abs(gradient[between]).max() < 1e-5 * scale
    assert (gradient[u == lower] > 0).all() and (gradient[u == upper] < 0).all()
    held = ~between.reshape(T, NU)
    assert (np.asarray(solution.feedback)[held] == 0).all(), "no feedback to controls at a limit"


def test_box_programs_against_least_squares_with_bounds():
    local = np.random.default_rng(1)
    count, n = 60, 4
    J = local.normal(size=(count, 6, n))
    r, middle = 3 * local.normal(size=(count, 6)), local.normal(size=(count, n))
    lower, upper = middle - local.uniform(0.1, 2, (count, n)), middle + local.uniform(0.1, 2, (count, n))
    H, g = np.einsum("cki,ckj->cij", J, J), np.einsum("cki,ck->ci", J, r)
    found = jax.jit(jax.vmap(box_qp))(H, g, lower, upper, np.zeros((count, n)))
    for k in range(count):
        exact = scipy.optimize.lsq_linear(J[k], -r[k], (lower[k], upper[k]), method="bvls", tol=1e-14).x
        assert_close(found.x[k], exact, 1e-9, f"program {k}")
    assert int(found.iterations.max()) < 15
    assert 0 < int(found.free.sum()) < count * n


def test_pendulum_swings_up_within_its_torque(swing):
    _, _, solution = swing
    assert solution.converged
    assert float(jnp.abs(solution.controls).max()) == 5.0  # 9.81 would lift it straight
    assert np.abs(np.asarray(solution.states[-1]) - [np.pi, 0]).max() < 0.05
    costs = np.asarray(solution.history.cost)[: int(solution.iterations) + 1]
    assert (np.diff(costs) <= 1e-12).all() and costs[-1] == solution.cost
    assert np.isnan(solution.history.cost[int(solution.iterations) + 1 :]).all()


def test_solution_is_stationary(swing):
    """Its gradient by reverse mode through the rollout: zero between the limits, outward at them."""
    problem, _, solution = swing

    def cost(u):
        return soa.optimize.total_cost(problem, soa.optimize.simulate_controls(problem, jnp.zeros(2), u), u)

    gradient = np.asarray(jax.jit(jax.grad(cost))(solution.controls))
    start = np.abs(jax.jit(jax.grad(cost))(jnp.zeros((50, 1)))).max()
    u = np.asarray(solution.controls)
    assert np.abs(gradient[np.abs(u) < 5]).max() < 1e-5 * start
    assert (gradient[u == 5] < 0).all() and (gradient[u == -5] > 0).all()


def test_warm_start_takes_fewer_iterations(swing):
    _, solve, solution = swing
    moved = jnp.array([0.05, -0.1])
    cold, warm = solve(moved, jnp.zeros((50, 1))), solve(moved, solution.controls)
    assert warm.converged and warm.iterations < 0.75 * cold.iterations
    again = solve(jnp.zeros(2), solution.controls)
    assert again.iterations <= 1 and abs(again.cost - solution.cost) < 1e-8


def test_an_earlier_solution_steers_the_first_trajectory(swing):
    problem, _, solution = swing
    moved = jnp.array([0.05, -0.1])
    states, controls = jax.jit(lambda x, s: soa.optimize.follow(problem, x, s))(moved, solution)
    warm = jax.jit(lambda x, s: soa.optimize.ilqr(problem, x, s))(moved, solution)
    followed = soa.optimize.total_cost(problem, states, controls)
    open_loop = soa.optimize.simulate_controls(problem, moved, solution.controls)
    assert_close(warm.history.cost[0], followed, 1e-12)
    assert followed < soa.optimize.total_cost(problem, open_loop, solution.controls)
    assert warm.converged and warm.cost <= followed


def test_curvature_of_the_dynamics_saves_iterations(swing):
    problem, _, first_order = swing
    solve = jax.jit(lambda x: soa.optimize.ilqr(problem, x, max_iterations=200, second_order=True))
    solution = solve(jnp.zeros(2))
    assert solution.converged
    assert_close(solution.cost, first_order.cost, 1e-6)
    assert solution.iterations < first_order.iterations


def test_batch_equals_one_by_one(swing):
    _, solve, _ = swing
    starts = jnp.stack([jnp.linspace(-0.6, 0.6, 5), jnp.linspace(0.3, -0.5, 5)], axis=1)
    guess = jnp.zeros((50, 1))
    together = jax.jit(jax.vmap(solve, in_axes=(0, None)))(starts, guess)
    for k, start in enumerate(starts):
        alone = solve(start, guess)
        assert together.iterations[k] == alone.iterations
        # Batched products round differently, and dozens of iterations carry that along.
        assert_close(together.cost[k], alone.cost, 1e-9, f"cost {k}")
        assert_close(together.controls[k], alone.controls, 1e-5, f"controls {k}")


BATCH_UNDER_FAST_CPU = """
import jax, jax.numpy as jnp
import jaxsoa as soa
from jaxsoa.optimize.tasks import pendulum_swing_up

soa.fast_cpu()
task = pendulum_swing_up(horizon=20)
starts = jax.tree.map(lambda x: x + jnp.arange(3.0)[:, None] / 10, task.start)
solve = jax.vmap(lambda start: soa.optimize.ilqr(task.problem, start, max_iterations=4))
print(*jax.jit(solve)(starts).cost)
"""


@pytest.mark.slow
def test_a_batch_compiles_under_fast_cpu():
    """XLA's CPU compiler stops the process at some programs of several results at once."""
    ran = subprocess.run(
        [sys.executable, "-c", BATCH_UNDER_FAST_CPU],
        capture_output=True,
        text=True,
        env={**os.environ, "JAX_ENABLE_X64": "1"},
    )
    assert ran.returncode == 0, ran.stderr
    task = pendulum_swing_up(horizon=20)
    costs = [
        soa.optimize.ilqr(task.problem, jax.tree.map(lambda x, k=k: x + k / 10, task.start), max_iterations=4).cost
        for k in range(3)
    ]
    np.testing.assert_allclose([float(x) for x in ran.stdout.split()], costs, rtol=1e-9)


def test_nan_stays_in_its_own_problem(swing):
    _, solve, solution = swing
    starts = jnp.array([[0.0, 0.0], [jnp.nan, 0.0]])
    together = jax.jit(jax.vmap(solve, in_axes=(0, None)))(starts, jnp.zeros((50, 1)))
    assert_close(together.cost[0], solution.cost, 1e-9)
    assert np.isnan(together.cost[1]) and not together.converged[1]


def test_single_precision():
    problem = pendulum_problem(5.0)
    start = jnp.zeros(2, jnp.float32)
    solution = jax.jit(lambda x: soa.optimize.ilqr(problem, x))(start)
    assert solution.states.dtype == solution.cost.dtype == solution.feedback.dtype == jnp.float32
    assert solution.converged and abs(float(solution.states[-1, 0]) - np.pi) < 0.05


def test_references_along_the_way_and_callback():
    """Tracking: a cost that knows the time, against the normal equations."""
    path = np.sin(np.arange(T) / 3)
    seen = []
    problem = soa.optimize.step_problem(
        lambda x, u: x + u,
        controls=1,
        horizon=T,
        running_cost=lambda x, u, r: ((x - r) ** 2).sum() + 0.5 * (u**2).sum(),
        per_step=path,
    )
    solve = jax.jit(lambda x: soa.optimize.ilqr(problem, x, callback=lambda k, c: seen.append((int(k), float(c)))))
    solution = jax.block_until_ready(solve(np.array([0.4])))
    jax.effects_barrier()
    sums = np.tril(np.ones((T, T)), -1)  # x_k = x_0 + the controls before
    expected = np.linalg.solve(sums.T @ sums + 0.5 * np.eye(T), sums.T @ (path - 0.4))
    assert_close(solution.controls[:, 0], expected, 1e-7)
    assert sorted(seen)[0][0] == 0 and sorted(seen)[-1] == (1, float(solution.cost))


def test_refusals_say_what_is_wrong():
    with pytest.raises(ValueError, match=r"\(horizon, nu\) = \(50, 1\)"):
        soa.optimize.ilqr(pendulum_problem(), jnp.zeros(2), jnp.zeros((50, 2)))
    with pytest.raises(ValueError, match="horizon"):
        pendulum_problem(horizon=0)
    with pytest.raises(ValueError, match="dt must be positive"):
        pendulum_problem(dt=0.0)
    with pytest.raises(ValueError, match="lower limits exceed"):
        pendulum_problem(limit=(1.0, -1.0))
    with pytest.raises(ValueError, match="one entry per control"):
        pendulum_problem(limit=np.ones(3))
    with pytest.raises(ValueError, match="integrate and difference"):
        pendulum_problem(integrate=lambda x, dx: x + dx)
    with pytest.raises(ValueError, match="LeastSquares"):
        soa.optimize.ilqr(pendulum_problem(final_cost=lambda x: x), jnp.zeros(2))
    with pytest.raises(ValueError, match="needs a running_cost or a final_cost"):
        pendulum_problem(running_cost=None, final_cost=None)
    with pytest.raises(ValueError, match="per_step"):
        pendulum_problem(per_step=np.zeros(3))
    robot = soa.models.cart_pole()
    given = {"horizon": 5, "dt": 0.1, "final_cost": lambda x: x.q @ x.q}
    with pytest.raises(KeyError, match="joint3"):
        soa.optimize.robot_problem(robot, actuated=["joint3"], **given)
    with pytest.raises(ValueError, match="twice"):
        soa.optimize.robot_problem(robot, actuated=["joint1", "joint1"], **given)
    with pytest.raises(ValueError, match="model"):
        soa.optimize.robot_problem(robot, torque_limits="urdf", **given)


def test_a_guess_that_diverges_is_kept_and_said_to_have_failed():
    def step(x, u):
        return x + 0.1 * (x**3 + u)

    problem = soa.optimize.step_problem(step, controls=1, horizon=30, running_cost=lambda x, u: (x @ x) + u @ u)
    guess = jnp.full((30, 1), 1e3)
    for solve in (
        lambda x: soa.optimize.ilqr(problem, x, guess),
        lambda x: soa.optimize.constrained(problem, x, guess, final=soa.optimize.Equality(lambda x: x, "end")),
    ):
        solution = jax.jit(solve)(jnp.array([2.0]))
        assert bool(solution.failed) and "FAILED" in repr(solution) and not bool(solution.converged)
        np.testing.assert_array_equal(solution.controls, guess)
    near = jax.jit(lambda x: soa.optimize.ilqr(problem, x, 0 * guess))(jnp.array([0.2]))
    assert bool(near.converged) and not bool(near.failed)
