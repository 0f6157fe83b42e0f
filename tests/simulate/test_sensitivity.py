"""Sensitivity of a motion to parameters, against differences."""

import jax
import jax.numpy as jnp
import pytest
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
