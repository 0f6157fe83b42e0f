"""Optimal control of mechanisms with loops, beside the same problem in reduced coordinates."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import jaxsoa as soa
from jaxsoa import closed_chain as cc


@pytest.mark.slow
def test_a_five_bar_reaches_a_pose_and_so_it_does_in_reduced_coordinates():
    """iLQR on the tree with its loop (projected steps), and on the embedded mechanism: the same cost."""
    robot, loops, guess = cc.mechanisms.five_bar()
    cranks = ["left1_joint", "right1_joint"]
    q = jax.jit(lambda q: cc.close_loops(robot, loops, q))(guess)
    goal_rates = jnp.array([0.25, -0.2])
    embedding = cc.embed(robot, loops, cranks, q)
    columns = np.array([robot.v_index(name).start for name in cranks])
    goal = q[columns] + goal_rates
    horizon, dt = 40, 0.02

    def running(state, u):
        return 1e-3 * jnp.sum(u * u) + 0.05 * jnp.sum(state.v[columns] ** 2)

    def final(state):
        return 200 * jnp.sum((state.q[columns] - goal) ** 2) + 20 * jnp.sum(state.v[columns] ** 2)

    start = soa.State(q, jnp.zeros(robot.nv))
    hold = jax.jit(
        lambda q: cc.loop_inverse_dynamics(
            robot, loops, q, start.v, start.v, np.isin(np.arange(robot.nv), columns)
        ).tau
    )(q)[columns]
    controls = jnp.broadcast_to(hold, (horizon, 2))
    problem = soa.optimize.robot_problem(
        robot, horizon=horizon, dt=dt, running_cost=running, final_cost=final, actuated=cranks, loops=loops
    )
    plan = jax.jit(lambda u: soa.optimize.ilqr(problem, start, u, iterations=60))(controls)
    assert bool(plan.converged)
    assert_allclose(plan.states.q[-1][columns], goal, atol=2e-2)
    errors = jax.jit(jax.vmap(lambda q: cc.loop_errors(robot, loops, q)))(plan.states.q)
    assert np.abs(errors).max() < 1e-9

    # The same in two coordinates: state (y, y', q of the branch it is on).
    def step(x, u):
        y, rates, near = x
        at = embedding.expand(y, near)
        tau = jnp.zeros(robot.nv).at[columns].set(u)
        rates = rates + dt * cc.embedded_forward_dynamics(embedding, at, rates, tau, method="dense").rates
        return y + dt * rates, rates, jax.lax.stop_gradient(at)

    def difference(a, b):
        return jnp.concatenate([b[0] - a[0], b[1] - a[1]])

    def moved(x, dx):
        return x[0] + dx[:2], x[1] + dx[2:], x[2]

    def as_state(x):
        return soa.State(jnp.zeros(robot.nq).at[columns].set(x[0]), jnp.zeros(robot.nv).at[columns].set(x[1]))

    reduced = soa.optimize.step_problem(
        step, controls=2, horizon=horizon, dt=dt, integrate=moved, difference=difference,
        running_cost=lambda x, u: running(as_state(x), u), final_cost=lambda x: final(as_state(x)),
    )  # fmt: skip
    other = jax.jit(lambda u: soa.optimize.ilqr(reduced, (q[columns], jnp.zeros(2), q), u, iterations=60))(controls)
    assert_allclose(other.cost, plan.cost, rtol=1e-2)  # two discretizations of one mechanism
