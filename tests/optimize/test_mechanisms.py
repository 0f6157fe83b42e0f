"""Optimal control of mechanisms: a five-bar with its loop, beside the same problem in minimal coordinates."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.compare import assert_close
from helpers.five_bar import CRANKS, configuration, equations, runge_kutta

import jaxsoa as soa
from jaxsoa import closed_chain as cc
from jaxsoa.optimize import LeastSquares

HORIZON, DT = 20, 0.02
TARGET = np.array([0.45, 0.0, 0.95])  # of the point where the arms meet, 0.16 m from where they start


@pytest.mark.slow
def test_a_five_bar_reaches_a_pose_as_in_minimal_coordinates():
    """The same costs, both by Runge-Kutta: one optimum, up to what the steps' errors of fourth order make of it."""
    robot, loops, guess = cc.mechanisms.five_bar()
    columns = jnp.array([robot.v_index(name).start for name in CRANKS])
    start = configuration(guess[columns])

    def effort(u):
        return 0.05 * u

    def arrival(q, rates):
        place = soa.frame_pose(robot, q, "left_tip")[1] - TARGET
        return jnp.concatenate([30.0 * place[jnp.array([0, 2])], 3.0 * rates])

    closed = soa.optimize.robot_problem(
        robot,
        horizon=HORIZON,
        dt=DT,
        integrator="rk4",
        loops=loops,
        actuated=CRANKS,
        running_cost=LeastSquares(lambda x, u: effort(u)),
        final_cost=LeastSquares(lambda x: arrival(x.q, x.v[columns])),
    )

    def step(x, u):
        tau = jnp.zeros(robot.nv).at[columns].set(u)
        return runge_kutta(lambda y, rates: jnp.linalg.solve(*equations(robot, y, rates, tau)), x, DT)

    reduced = soa.optimize.step_problem(
        step,
        controls=2,
        horizon=HORIZON,
        dt=DT,
        running_cost=LeastSquares(lambda x, u: effort(u)),
        final_cost=LeastSquares(lambda x: arrival(configuration(x[:2]), x[2:])),
    )

    @jax.jit
    def solve(q):
        still, mask = jnp.zeros(robot.nv), soa.prescribed_mask(robot, CRANKS)
        rest = cc.loop_forward_dynamics(robot, loops, q, still, still, prescribed=mask).tau[columns]
        hold = jnp.broadcast_to(rest, (HORIZON, 2))  # the first guess: torques that keep it where it is
        in_full = soa.optimize.ilqr(closed, soa.State(q, still), hold)
        in_y = soa.optimize.ilqr(reduced, jnp.concatenate([q[columns], jnp.zeros(2)]), hold)
        gaps = jax.vmap(lambda x: cc.loop_errors(robot, loops, x.q))(in_full.states)
        tips = jax.vmap(lambda q: soa.frame_pose(robot, q, "left_tip")[1])(in_full.states.q)
        return in_full, in_y, gaps, tips

    in_full, in_y, gaps, tips = solve(start)
    assert in_full.converged and in_y.converged
    assert np.linalg.norm(tips[0] - TARGET) > 0.1 and np.linalg.norm(tips[-1] - TARGET) < 5e-3
    assert np.abs(gaps).max() < 1e-9
    # Both discretize alike to fourth order; what differs is the projection, and what the stopping rule leaves.
    assert_close(in_full.cost, in_y.cost, 1e-5, "cost")
    assert_close(in_full.states.q[:, columns], in_y.states[:, :2], 1e-5, "angles of the cranks")
    assert_close(in_full.controls, in_y.controls, 1e-3, "torques")
