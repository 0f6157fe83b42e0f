"""Mechanisms identified from their motion: damping of a five-bar, whose record comes from minimal coordinates."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.five_bar import COLUMNS, CRANKS, configuration, equations, runge_kutta, velocity
from numpy.testing import assert_allclose

import jaxsoa as soa
from jaxsoa import closed_chain as cc

DT, STEPS, FINE = 0.01, 40, 4
DAMPING = jnp.array([0.3, 0.1, 0.2, 0.4])


def record(robot, given):
    """q, v and torques of a motion from rest: the left crank is accelerated as given, the right one by its torque."""
    y = jnp.array([-2.2, -0.9])
    tau = jnp.zeros((STEPS, 4)).at[:, 0].set(-6.0).at[:, 2].set(-5.0 + 3.0 * jnp.sin(jnp.arange(STEPS) / 5))

    def accelerations(tau):
        def of(y, rates):
            M, force = equations(robot, y, rates, tau)
            return jnp.stack([given, (force[1] - M[1, 0] * given) / M[1, 1]])

        return of

    def advance(x, tau):
        for _ in range(FINE):
            x = runge_kutta(accelerations(tau), x, DT / FINE)
        return x, x

    start = jnp.concatenate([y, jnp.zeros(2)])
    path = jnp.concatenate([start[None], jax.lax.scan(advance, start, tau)[1]])
    return jax.vmap(configuration)(path[:, :2]), jax.vmap(velocity)(path[:, :2], path[:, 2:]), tau


@pytest.mark.slow
def test_damping_of_a_five_bar_with_a_prescribed_crank_is_found():
    robot, loops, _ = cc.mechanisms.five_bar()
    truth, given = robot.replace(damping=DAMPING), 1.5
    q, v, tau = jax.jit(lambda: record(truth, given))()
    assert np.abs(np.ptp(q[:, COLUMNS], axis=0)).min() > 0.1
    data = soa.identify.segments(q, v, tau, DT, steps=10)
    mask = soa.prescribed_mask(robot, CRANKS[:1])
    options = {"loops": loops, "prescribed": (mask, jnp.where(mask, given, 0.0)), "integrator": "rk4"}
    found = soa.identify.fit(robot.replace(damping=jnp.full(4, 0.25)), data, "damping", progress=False, **options)
    # The crank's own damping is not seen where its motion is given. Runge-Kutta with 10 ms against 2.5 ms.
    assert_allclose(found.robot.damping[1:], DAMPING[1:], rtol=1e-4)
    assert found.rms_after.max() < 1e-6
