"""Discrete A and B of integrator steps against central differences on the manifold."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.compare import assert_close, random_states

import jaxsoa as soa
from jaxsoa.simulate.linearized_step import runge_kutta_4, semi_implicit_euler

DT = 0.01


def explicit_euler(robot, q, v, tau, dt):
    """A step that takes no `dynamics`."""
    return robot.integrate(q, dt * v), v + dt * soa.forward_dynamics(robot, q, v, tau)


@pytest.mark.parametrize(
    "step",
    [semi_implicit_euler, *(pytest.param(s, marks=pytest.mark.slow) for s in (runge_kutta_4, explicit_euler))],
)
def test_matrices(step):
    robot = soa.models.random_tree(4, 2, kinds=["spherical", "revolute"], shape="chain", damping=True)
    q, v, tau, _ = (x[0] for x in random_states(robot, 41, 1))
    n = robot.nv
    A, B = jax.jit(lambda robot, q, v, tau: soa.linearize_step(robot, q, v, tau, DT, step=step))(robot, q, v, tau)

    def moved(d):
        arrived, _ = step(robot, q, v, tau, DT)
        q1, v1 = step(robot, robot.integrate(q, d[:n]), v + d[n : 2 * n], tau + d[2 * n :], DT)
        return jnp.concatenate([robot.difference(arrived, q1), v1])

    h = 1e-5  # errors of order 1e-10
    steps = h * np.concatenate([np.eye(3 * n), -np.eye(3 * n)])
    values = np.asarray(jax.jit(jax.vmap(moved))(steps))
    expected = (values[: 3 * n] - values[3 * n :]).T / (2 * h)
    assert_close(A, expected[:, : 2 * n], 1e-8, "A")
    assert_close(B, expected[:, 2 * n :], 1e-8, "B")


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.slow
def test_matrices_of_euler_steps_equal_automatic_ones(seed):
    """Every kind of joint in one tree: those whose coordinates add, and those whose do not."""
    robot = soa.models.random_tree(seed, 9, damping=True)
    q, v, tau, _ = (x[0] for x in random_states(robot, 44 + seed, 1))

    def same_step(*arguments):  # by another name it is differentiated
        return semi_implicit_euler(*arguments)

    def both(robot, q, v, tau):
        return [soa.linearize_step(robot, q, v, tau, DT, step=step) for step in (semi_implicit_euler, same_step)]

    written, automatic = jax.jit(both)(robot, q, v, tau)
    assert_close(written.A, automatic.A, 1e-10, "A")
    assert_close(written.B, automatic.B, 1e-10, "B")


def test_an_integrator_is_named_as_everywhere_else():
    """linearize_step(integrator="rk4") is about the step that `soa.step` makes, quaternions included."""
    robot = soa.models.random_tree(4, 1, kinds=["spherical"])
    q, v, tau, _ = (x[0] for x in random_states(robot, 45, 1))
    assert_close(runge_kutta_4(robot, q, v, tau, DT)[0], soa.step(robot, q, v, tau, DT, integrator="rk4").q, 1e-14)
    options = [{"integrator": "rk4"}, {"step": runge_kutta_4}]
    named, given = jax.jit(lambda *x: [soa.linearize_step(robot, *x, DT, **o) for o in options])(q, v, tau)
    assert_close(named.A, given.A, 1e-14)
    with pytest.raises(ValueError, match="not both"):
        soa.linearize_step(robot, q, v, tau, DT, **options[0], **options[1])
    with pytest.raises(ValueError, match="choose one of"):
        soa.linearize_step(robot, q, v, tau, DT, integrator="euler")


def test_runge_kutta_is_of_fourth_order_on_quaternions():
    robot = soa.models.random_tree(4, 1, kinds=["spherical"])
    q, v, tau, _ = (x[0] for x in random_states(robot, 42, 1))

    @jax.jit
    def end(steps):
        def body(_, state):
            return runge_kutta_4(robot, *state, tau, 0.2 / steps)

        return jax.lax.fori_loop(0, steps, body, (q, v))[0]

    fine = end(64)
    errors = [float(jnp.abs(robot.difference(fine, end(steps))).max()) for steps in (2, 4)]
    assert 12 < errors[0] / errors[1] < 22


@pytest.mark.slow
def test_derivative_of_the_linearization_by_a_leaf():
    """grad of a function of A by the masses: the rule of the matrices is complete."""
    robot = soa.models.pendulum(2)
    q, v, tau, _ = (x[0] for x in random_states(robot, 43, 1))

    def size(mass):
        A, B = soa.linearize_step(robot.replace(mass=mass), q, v, tau, DT)
        return jnp.sum(A**2) + jnp.sum(B**2)

    gradient = jax.jit(jax.grad(size))(robot.mass)
    h = 1e-6
    value = jax.jit(size)
    expected = [(value(robot.mass + h * e) - value(robot.mass - h * e)) / (2 * h) for e in np.eye(2)]
    assert_close(gradient, expected, 1e-6)
