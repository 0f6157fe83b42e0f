"""Tracking a given motion: feedforward makes it, feedback returns to it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import jaxsoa as soa


def test_tracking_makes_the_motion_and_returns_to_it():
    robot, dt, steps = soa.models.planar_arm(2), 0.01, 150
    t = jnp.arange(steps + 1) * dt
    v = jnp.stack([jnp.sin(3 * t), -jnp.cos(2 * t)], axis=1)
    start = jnp.array([0.2, 0.4])
    q = start + dt * jnp.concatenate([jnp.zeros((1, 2)), jnp.cumsum(v[1:], axis=0)])  # what the Euler step makes of it

    @jax.jit
    def run(pushed):
        controller = soa.optimize.track(robot, q, v, dt, state_weight=jnp.array([100.0, 100.0, 1.0, 1.0]))
        return soa.rollout(robot, q[0] + pushed, v[0], controller, dt, steps=steps)

    exact = run(jnp.zeros(2))
    assert_allclose(exact.q, q[1:], atol=1e-10)  # nothing to feed back
    disturbed = run(jnp.array([0.1, -0.1]))
    off = np.abs(disturbed.q - q[1:])
    assert off[0].max() > 0.05 and off[-1].max() < 1e-3
    with pytest.raises(ValueError, match="one row per sample"):
        soa.optimize.track(robot, q[:-1], v, dt)
