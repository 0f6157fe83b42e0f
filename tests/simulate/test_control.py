"""Joint limits and actuators: the formulas by hand, derivatives, energy in a simulated impact."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsoa as soa
from jaxsoa import simulate

STOPS = simulate.JointLimits(stiffness=300.0, width=0.02)


@pytest.fixture(scope="module")
def limited():
    """A pendulum that may swing by 0.5 rad to either side."""
    robot = soa.models.pendulum()
    bound = jnp.full(1, 0.5)
    return robot.replace(limits=soa.Limits(-bound, bound, robot.limits.velocity, robot.limits.effort))


def test_joint_limits_are_springs_outside_and_nothing_inside(limited):
    q = np.array([-0.7, -0.51, -0.5, 0.0, 0.4, 0.5, 0.505, 0.9])
    force = jax.jit(jax.vmap(lambda q: STOPS(limited, q[None], jnp.zeros(1))[0]))(q)
    w = 0.02
    expected = 300 * np.array([0.2 - w / 2, 0.01**2 / (2 * w), 0, 0, 0, 0, -(0.005**2) / (2 * w), -(0.4 - w / 2)])
    np.testing.assert_allclose(force, expected, atol=1e-11)
    slope = jax.jit(jax.vmap(jax.grad(lambda q: STOPS.energy(limited, q[None]))))(q)
    np.testing.assert_allclose(force, -slope, atol=1e-11)


def test_damping_sets_in_with_the_spring_and_only_brakes(limited):
    damped = simulate.JointLimits(0.0, damping=5.0, width=0.1)

    def force(q, v):
        return float(damped(limited, jnp.array([q]), jnp.array([v]))[0])

    assert force(0.45, 2.0) == 0.0
    np.testing.assert_allclose([force(0.55, 2.0), force(0.7, 2.0), force(0.7, -2.0)], [-5.0, -10.0, 10.0], rtol=1e-12)
    np.testing.assert_allclose([force(-0.55, 2.0), force(-0.7, -2.0)], [-5.0, 10.0], rtol=1e-12)


def test_no_limits_no_force_no_nan():
    """Infinite limits, spherical and free joints: zero, with finite derivatives by state and limits."""
    robot = soa.models.random_tree(1, 4, kinds=["spherical", "revolute", "planar"], floating_base=True)
    q = robot.random(3)

    def total(robot, q):
        return jnp.sum(STOPS(robot, q, jnp.ones(robot.nv))) + STOPS.energy(robot, q)

    value, gradients = jax.jit(jax.value_and_grad(total, argnums=(0, 1), allow_int=True))(robot, q)
    finite = [np.isfinite(g).all() for g in jax.tree.leaves(gradients)]
    assert value == 0 and all(finite)


@pytest.mark.slow
def test_a_bounce_keeps_energy_without_damping_and_its_gradient_is_exact(limited):
    def end(limits, stops):
        robot = limited.replace(limits=limits)
        options = {"steps": 300, "integrator": "rk4", "passive": stops}
        states = soa.rollout(robot, jnp.array([0.3]), jnp.array([4.0]), None, 1e-3, **options)
        energy = jax.vmap(
            lambda q, v: soa.kinetic_energy(robot, q, v) + soa.potential_energy(robot, q) + stops.energy(robot, q)
        )
        return states.q[-1, 0], (states.q, energy(*states))

    run = jax.jit(end)
    _, (q, energy) = run(limited.limits, STOPS)
    assert q.max() > 0.55 and q[-1] < q.max() - 0.1  # it went in and came out
    # Fourth order between the kinks of the spring; the step over a kink is what is left.
    np.testing.assert_allclose(energy, energy[0], rtol=0, atol=2e-6 * float(energy.max() - energy.min() + 8.0))
    damped = simulate.JointLimits(300.0, 10.0, 0.02)
    _, (_, falling) = run(limited.limits, damped)
    assert falling[-1] < energy[-1] - 1.0
    # By the stiffness and by the limit itself (a leaf of the model), forward mode against differences.
    upper = limited.limits.upper

    def moved(x, k):
        bent = soa.Limits(limited.limits.lower, upper + x, limited.limits.velocity, limited.limits.effort)
        return end(bent, simulate.JointLimits(300.0 + k, 0.0, 0.02))[0]

    exact = jax.jit(jax.jacfwd(moved, argnums=(0, 1)))(0.0, 0.0)
    value = jax.jit(moved)
    differences = (value(1e-6, 0.0) - value(-1e-6, 0.0)) / 2e-6, (value(0.0, 1e-3) - value(0.0, -1e-3)) / 2e-3
    np.testing.assert_allclose(exact, differences, rtol=1e-5)


def test_saturation():
    command, zero = jnp.array([-3.0, 0.5, 3.0]), jnp.zeros(3)
    limit = jnp.array([1.0, 1.0, np.inf])
    np.testing.assert_allclose(simulate.Saturation(limit)(command, zero, zero), [-1.0, 0.5, 3.0])
    smooth = simulate.Saturation(limit, smooth=True)
    np.testing.assert_allclose(smooth(command, zero, zero), [np.tanh(-3.0), np.tanh(0.5), 3.0], rtol=1e-12)
    slope = jax.grad(lambda u: smooth(u, zero, zero).sum())(command)
    np.testing.assert_allclose(slope, [1 / np.cosh(3.0) ** 2, 1 / np.cosh(0.5) ** 2, 1.0], rtol=1e-12)


def test_torque_speed_curve():
    motor = simulate.TorqueSpeed(stall=10.0, no_load_speed=4.0)
    v = jnp.array([0.0, 2.0, 6.0, 2.0, -2.0])
    command = jnp.array([20.0, 20.0, 20.0, -20.0, -20.0])
    np.testing.assert_allclose(motor(command, v, v), [10.0, 5.0, 0.0, -10.0, -5.0])


def test_lag_is_exact_whatever_the_step():
    lag = simulate.Lag(0.05)
    for dt in (0.001, 0.02):
        torque, memory = jnp.zeros(1), lag.initial(jnp.zeros(1), jnp.zeros(1))
        for _ in range(round(0.1 / dt)):
            torque, memory = lag(jnp.ones(1), None, None, memory, dt)
        np.testing.assert_allclose(torque, 1 - np.exp(-2.0), rtol=1e-12)


def test_gear_loses_power_both_ways():
    gear = simulate.Gear(ratio=50.0, efficiency=0.8)
    torque = jnp.array([1.0, 1.0, 1.0])
    v = jnp.array([2.0, -2.0, 0.0])
    np.testing.assert_allclose(gear(torque, v, v), [40.0, 62.5, 50.0], rtol=1e-12)
    assert np.isfinite(jax.grad(lambda v: gear(torque, v, v).sum())(v)).all()


def test_servo_takes_the_short_way_on_the_manifold():
    robot = soa.models.random_tree(0, 2, kinds=["spherical", "revolute"], shape="chain")
    q, target = robot.random(1), robot.random(2)
    v = jnp.linspace(0.1, 0.4, robot.nv)
    servo = simulate.PDServo(robot, target, 7.0, 3.0)
    np.testing.assert_allclose(servo(0.0, q, v), 7.0 * robot.difference(q, target) - 3.0 * v, rtol=1e-12)
    # Beside a multiple of the whole turn the error is the same: q and -q are one rotation.
    flipped = q.at[robot.q_index(robot.joint_names[0])].multiply(-1) if robot.topology.kinds[0] == "spherical" else q
    np.testing.assert_allclose(servo(0.0, flipped, v), servo(0.0, q, v), rtol=1e-9)
    moving = simulate.PDServo(robot, lambda time: (target, time * jnp.ones_like(v)), 7.0, 3.0)
    np.testing.assert_allclose(moving(2.0, q, v) - servo(0.0, q, v), 6.0 * np.ones(robot.nv), rtol=1e-12)
