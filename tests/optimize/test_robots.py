"""Robots as trajectory problems: analytical derivatives, quaternions, passive joints, a closed chain."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.compare import assert_close

import jaxsoa as soa
from jaxsoa import closed_chain as cc
from jaxsoa.optimize import tasks
from jaxsoa.simulate.linearized_step import semi_implicit_euler


def last(states):
    return jax.tree.map(lambda x: x[-1], states)


def test_pendulum_swing_up():
    task = tasks.pendulum_swing_up()
    solution = jax.jit(lambda x, u: soa.optimize.ilqr(task.problem, x, u))(task.start, task.controls)
    assert solution.converged
    assert float(task.error(last(solution.states))) < 1e-2
    assert float(jnp.abs(solution.controls).max()) <= 2.0  # 4.9 N m would lift it straight


@pytest.mark.slow
def test_analytical_derivatives_of_actuated_joints_are_those_of_forward_mode():
    """A free body whose base has no motor: A and B in tangent coordinates, either way."""
    task = tasks.space_reaching(joints=2, step=semi_implicit_euler)
    ours = task.problem.dynamics
    plain = dataclasses.replace(ours, analytical=False)
    key = jax.random.key(3)
    q = task.robot.random(key)
    state = soa.State(q, jax.random.normal(key, (8,)))
    control = jnp.array([0.7, -1.1])
    A, B = jax.jit(lambda x, u: ours.linearize(x, u))(state, control)
    A_plain, B_plain = jax.jit(lambda x, u: plain.linearize(x, u))(state, control)
    assert A.shape == (16, 16) and B.shape == (16, 2)
    assert_close(A, A_plain, 1e-10, "A")
    assert_close(B, B_plain, 1e-10, "B")


@pytest.mark.slow
def test_free_flying_arm_keeps_its_momentum():
    task = tasks.space_reaching(joints=3, horizon=60, dt=0.02)
    solution = jax.jit(lambda x, u: soa.optimize.ilqr(task.problem, x, u))(task.start, task.controls)
    momenta = jax.jit(jax.vmap(lambda x: soa.momentum(task.robot, x.q, x.v)))(solution.states)
    moving = jax.jit(jax.vmap(lambda x: soa.momentum(task.robot, x.q, x.v.at[6:].set(0))))(solution.states)
    assert solution.converged and solution.iterations < 40
    assert float(task.error(task.start)) > 0.2 and float(task.error(last(solution.states))) < 2e-3
    assert float(jnp.abs(solution.controls).max()) == 2.0, "the limits must matter"
    assert_close(jnp.linalg.norm(solution.states.q[:, :4], axis=1), np.ones(61), 1e-12, "unit quaternions")
    assert float(jnp.abs(moving).max()) > 0.1, "the satellite must move"
    # It starts at rest: what the arm gives, the satellite takes.
    assert float(jnp.abs(momenta).max()) < 1e-12 * float(jnp.abs(moving).max())


@pytest.mark.slow
def test_two_arms_carry_a_bar():
    task = tasks.carrying(horizon=40)
    robot, loop = tasks.two_arms()
    solution = jax.jit(lambda x, u: soa.optimize.ilqr(task.problem, x, u, tolerance=1e-6))(task.start, task.controls)
    gaps = jax.jit(jax.vmap(lambda x: cc.loop_errors(robot, (loop,), x.q)))(solution.states)
    assert solution.converged
    # A step of first order opens a gap with every 0.02 s, which the stabilization closes within 0.1 s.
    assert float(jnp.abs(gaps).max()) < 3e-3, "the hand stays on the bar, to millimetres"
    assert float(task.error(last(solution.states))) < 0.05


@pytest.mark.slow
def test_batch_of_robots_equals_one_by_one():
    task = tasks.cart_pole_swing_up(horizon=40)
    solve = jax.jit(lambda x: soa.optimize.ilqr(task.problem, x, max_iterations=15))
    angles = jnp.array([0.3, -0.5, 0.8])
    starts = soa.State(jnp.stack([jnp.zeros(3), angles], axis=1), jnp.zeros((3, 2)))
    together = jax.jit(jax.vmap(solve))(starts)
    for k in range(3):
        alone = solve(jax.tree.map(lambda x, k=k: x[k], starts))
        assert_close(together.cost[k], alone.cost, 1e-8, f"cost {k}")
        assert_close(together.controls[k], alone.controls, 1e-5, f"controls {k}")


@pytest.mark.slow
def test_a_prescribed_joint_moves_as_given_while_others_are_optimized():
    """Held at its place it is the robot with the joint locked; driven, its motion is known and A and B are right."""
    robot = soa.models.planar_arm(2)
    locked = robot.lock(["joint2"], jnp.array([0.0, 0.4]))
    mask = soa.prescribed_mask(robot, ["joint2"])
    dt, horizon = 0.02, 20

    def problem(robot, prescribed=None, **options):
        cost = soa.optimize.LeastSquares(lambda x, u: 0.1 * u)
        end = soa.optimize.LeastSquares(lambda x: 10.0 * jnp.stack([x.q[0] - 0.5, x.v[0]]))
        return soa.optimize.robot_problem(
            robot, horizon=horizon, dt=dt, integrator="rk4", running_cost=cost, final_cost=end, actuated=["joint1"],
            prescribed=prescribed, **options,
        )  # fmt: skip

    start = soa.State(jnp.array([-0.3, 0.4]), jnp.zeros(2))
    driven = problem(robot, (mask, jnp.array([0.0, 3.0])))
    plain = problem(robot, (mask, jnp.array([0.0, 3.0])), analytical=False)

    @jax.jit
    def solve(start):
        held = soa.optimize.ilqr(problem(robot, mask), start)
        alone = soa.optimize.ilqr(problem(locked), soa.State(start.q[:1], start.v[:1]))
        moved = soa.optimize.ilqr(driven, start)
        control = moved.controls[0]
        return held, alone, moved, [p.dynamics.linearize(start, control) for p in (driven, plain)]

    held, alone, moved, (ours, forward) = solve(start)
    assert held.converged and alone.converged and moved.converged
    assert_close(held.controls, alone.controls, 1e-8, "controls")
    assert_close(held.states.q[:, 0], alone.states.q[:, 0], 1e-9, "path")
    t = dt * np.arange(horizon + 1)
    assert_close(moved.states.q[:, 1], 0.4 + 1.5 * t**2, 1e-12, "as given")
    assert abs(float(moved.states.q[-1, 0]) - 0.5) < 0.05
    for one, other in zip(ours, forward, strict=True):
        assert_close(one, other, 1e-9)
