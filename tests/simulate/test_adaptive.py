"""The vector field for adaptive solvers: against differences along `integrate`, and against Runge-Kutta 4."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsoa as soa
from jaxsoa import simulate


@pytest.fixture(scope="module")
def robot():
    return soa.models.random_tree(5, 3, kinds=["spherical", "revolute"], shape="chain", floating_base=True)


def control(time, q, v):
    return 0.3 * jnp.sin(3 * time) - 0.1 * v


def test_the_field_is_the_derivative_along_the_motion(robot):
    q, v = 1.7 * robot.random(0), jnp.linspace(-1.0, 1.0, robot.nv)  # quaternions not normalized: the field does it
    rate = jax.jit(simulate.vector_field(robot, control))(0.4, simulate.State(q, v), None)
    unit, h = robot.normalize(q), 1e-5
    integrate = jax.jit(lambda q, dv: robot.integrate(q, dv))
    along = (integrate(unit, h * v) - integrate(unit, -h * v)) / (2 * h)
    np.testing.assert_allclose(rate.q, along, atol=1e-8)
    np.testing.assert_allclose(rate.v, jax.jit(soa.forward_dynamics)(robot, q, v, control(0.4, q, v)), rtol=1e-9)


@pytest.mark.slow
def test_diffrax_meets_runge_kutta_with_small_steps(robot):
    pytest.importorskip("diffrax")
    q, v = robot.random(0), jnp.linspace(-1.0, 1.0, robot.nv)
    times = jnp.array([0.0, 0.1, 0.2])
    solved = jax.jit(lambda q, v: simulate.solve_adaptively(robot, q, v, None, times, rtol=1e-11, atol=1e-11))(q, v)
    fixed = jax.jit(lambda q, v: soa.rollout(robot, q, v, None, 1e-3, steps=200, integrator="rk4", every=100))(q, v)
    np.testing.assert_allclose(solved.v[1:], fixed.v, rtol=1e-8, atol=1e-8)
    apart = jax.vmap(robot.difference)(solved.q[1:], fixed.q)
    np.testing.assert_allclose(apart, 0, atol=1e-9)
    np.testing.assert_allclose(solved.q, jax.vmap(robot.normalize)(solved.q), atol=1e-15)


def test_refusals(robot):
    q, v = robot.neutral(), jnp.zeros(robot.nv)
    with pytest.raises(ValueError, match="adaptive"):
        simulate.vector_field(robot, simulate.Sampled(control, every=2))
    pytest.importorskip("diffrax")
    with pytest.raises(ValueError, match="times"):
        simulate.solve_adaptively(robot, q, v, None, jnp.array([1.0]))
