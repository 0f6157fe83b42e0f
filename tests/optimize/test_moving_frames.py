"""Derivatives of linearized steps where tangents are seen from a state that moves along: spherical and free joints."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.transformed import rate_and_difference

import jaxsoa as soa
from jaxsoa import optimize
from jaxsoa.optimize.linear_quadratic import quadratic_problem


@pytest.mark.slow
def test_models_of_a_step_change_with_the_state_they_are_made_at():
    """Where the step arrives moves with the state: seen from there, the turning frame is part of the derivative."""
    robot = soa.models.random_tree(1, 2, ["spherical"], floating_base=True)
    rng = np.random.default_rng(0)
    q, along = robot.random(0), jnp.asarray(rng.normal(size=robot.nv))
    v, u = jnp.asarray(rng.normal(size=(2, robot.nv)))
    torques = jnp.stack([u, -u])
    problem = optimize.robot_problem(
        robot,
        horizon=2,
        dt=0.05,
        running_cost=lambda x, u: jnp.sum(u**2) / 2,
        final_cost=lambda x: jnp.sum(x.v**2) + jnp.sum(x.q[1:4] ** 2),
        analytical=False,
    )

    def weighed(tree):
        weights = np.random.default_rng(1)
        return sum(jnp.sum(x * weights.normal(size=x.shape)) for x in jax.tree.leaves(tree))

    def at(t):
        return soa.State(robot.integrate(q, t * along), v)

    def curved(t):
        return weighed(quadratic_problem(problem, optimize.simulate_controls(problem, at(t), torques), torques, True))

    for f in (lambda t: weighed(problem.dynamics.linearize(at(t), u)), curved):
        rate, difference = rate_and_difference(f)
        assert abs(rate - difference) < 1e-9 * abs(difference)  # 14 % where the frame is taken to stand still
