"""The linearized step with actuators, against differences of the same step."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import jaxsoa as soa


def test_a_lag_and_a_gear_are_in_the_linear_model():
    robot, dt = soa.models.planar_arm(2), 0.01
    actuators = (soa.simulate.Lag(0.05), soa.simulate.Gear(3.0))
    q, v, command, torque = (jnp.array(x) for x in ([0.3, -0.4], [1.0, 2.0], [0.5, -0.2], [0.1, 0.3]))

    @jax.jit
    def both():
        found = soa.simulate.linearize_actuated_step(robot, q, v, command, dt, actuators, memory=(torque, None))

        def after(x):
            dq, dv, dm, du = jnp.split(x, 4)
            kept, _ = actuators[0](command + du, q, v, torque + dm, dt)
            s = soa.step(robot, q + dq, v + dv, actuators[1](kept, q + dq, v + dv), dt)
            return jnp.concatenate([s.q, s.v, kept])

        h = 1e-6
        ends = jax.lax.map(after, h * jnp.concatenate([jnp.eye(8), -jnp.eye(8)]))
        return found, (ends[:8] - ends[8:]).T / (2 * h)

    found, differences = both()
    assert found.A.shape == (6, 6) and found.B.shape == (6, 2)
    assert_allclose(np.concatenate(found, axis=1), differences, atol=1e-7)
    with pytest.raises(ValueError, match="command must have shape"):
        soa.simulate.linearize_actuated_step(robot, q, v, jnp.zeros(3), dt, actuators)
