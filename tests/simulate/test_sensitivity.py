"""Sensitivity of a motion to parameters, against differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.transformed import by_numpy
from numpy.testing import assert_allclose

import jaxsoa as soa


@pytest.mark.slow
def test_sensitivity_to_masses_and_to_the_start():
    robot = soa.models.planar_arm(2)
    q, v = jnp.array([0.3, -0.5]), jnp.array([1.0, 0.2])

    def model(p):
        return robot.replace(mass=robot.mass * jnp.exp(p[:2])), q + p[2], v

    @jax.jit
    def everything(p):
        options = {"steps": 20, "integrator": "rk4"}
        found = soa.simulate.trajectory_sensitivity(model, p, q, v, None, 0.02, **options)
        h = 1e-5

        def end(p):
            path = soa.rollout(*model(p), None, 0.02, **options)
            return path.q[-1], path.v[-1]

        ends = jax.lax.map(lambda e: (end(p + h * e), end(p - h * e)), jnp.eye(3))
        return found, jax.tree.map(lambda a, b: ((a - b) / (2 * h)).T, *ends)

    found, (dq, dv) = everything(jnp.zeros(3))
    assert found.dq.shape == (20, 2, 3)
    assert_allclose(found.dq[-1], dq, atol=1e-8)
    assert_allclose(found.dv[-1], dv, atol=1e-8)
    with pytest.raises(ValueError, match="one vector"):
        soa.simulate.trajectory_sensitivity(model, jnp.zeros((2, 2)), q, v, None, 0.02, steps=1)


@pytest.mark.slow
def test_what_is_found_is_a_function_of_the_parameters_too():
    """The derivative of the motion returned by the parameters is the sensitivity returned beside it."""
    robot = soa.models.pendulum(1)
    state = jnp.ones(1), jnp.zeros(1)

    def found(gravity):
        model = lambda g: robot.replace(gravity=robot.gravity * g[0])  # noqa: E731
        return soa.simulate.trajectory_sensitivity(model, gravity, *state, None, 0.1, steps=2)

    path, rate = by_numpy(lambda g: jax.jvp(found, (g,), (jnp.ones(1),)), jnp.ones(1))
    assert np.abs(path.dq).max() > 1e-2
    assert_allclose(rate.q, path.dq[..., 0], rtol=1e-12)
    assert_allclose(rate.v, path.dv[..., 0], rtol=1e-12)
