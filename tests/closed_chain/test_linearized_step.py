"""The linearized step of mechanisms and of prescribed joints, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import jaxsoa as soa
from jaxsoa import closed_chain as cc
from jaxsoa.simulate.linearized_step import runge_kutta_4


@pytest.mark.slow
def test_the_step_of_a_five_bar_against_differences():
    robot, loops, guess = cc.mechanisms.five_bar()
    v, tau = jnp.array([0.5, -0.3, 0.2, 0.1]), jnp.array([1.0, 0.0, -1.0, 0.5])

    @jax.jit
    def both(q):
        q = cc.close_loops(robot, loops, q)
        moving = cc.project_velocity(robot, loops, q, v)
        found = soa.linearize_step(robot, q, moving, tau, 0.01, step=runge_kutta_4, loops=loops)

        def after(x):
            dq, dv, dtau = jnp.split(x, 3)
            return soa.step(robot, robot.integrate(q, dq), moving + dv, tau + dtau, 0.01, integrator="rk4", loops=loops)

        h = 1e-5
        s = jax.lax.map(after, h * jnp.concatenate([jnp.eye(12), -jnp.eye(12)]))  # traced once
        from_one = jax.vmap(lambda q: robot.difference(s.q[0], q))(s.q)
        moved = jnp.concatenate([from_one, s.v], axis=1)
        return jnp.concatenate(found, axis=1), (moved[:12] - moved[12:]).T / (2 * h)

    found, differences = both(guess)
    assert_allclose(found, differences, atol=1e-6)
    assert np.linalg.matrix_rank(found[:, :8], tol=1e-6) == 4  # two degrees of freedom and their rates
    with pytest.raises(ValueError, match="need an integrator, not a step of its own"):
        soa.linearize_step(robot, guess, v, tau, 0.01, step=lambda *x: x, loops=loops)


def test_a_prescribed_joint_is_not_moved_by_torques():
    robot = soa.models.planar_arm(2)
    q, v, tau = jnp.array([0.3, -0.4]), jnp.array([1.0, 2.0]), jnp.zeros(2)
    mask = jnp.array([True, False])
    A, B = jax.jit(lambda q: soa.linearize_step(robot, q, v, tau, 0.01, prescribed=mask))(q)
    assert_allclose(A[0], [1, 0, 0.01, 0], atol=1e-12)
    assert_allclose(A[2], [0, 0, 1, 0], atol=1e-12)
    assert_allclose(B[:, 0], 0, atol=1e-12)
    assert np.abs(B[:, 1]).max() > 1e-3
