"""Tendons built in code: against MuJoCo in tests/io/test_mjcf_devices.py; here forces, energies and what is refused."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsoa as soa
from jaxsoa import simulate
from jaxsoa.simulate import TendonDescription as Tendon

ROBOT = soa.models.planar_arm(2)
FIRST, SECOND = ROBOT.joint_names
Q, V = jnp.array([0.4, -0.9]), jnp.array([0.7, 0.3])


def strings():
    path = ("base", "tip", 2, "base", ROBOT.link_names[1], "tip")
    return simulate.tendon_set(ROBOT, [Tendon("cable", {FIRST: 0.2, SECOND: -0.1}), Tendon("string", path=path)])


def test_forces_are_minus_the_slope_of_the_energy():
    ends = jnp.array([[-jnp.inf, 0.1], [3.5, 4.0]])  # 0.17 long, and between 2.7 and 3.4
    limits = simulate.TendonLimits(strings(), ends, stiffness=jnp.array([30.0, 70.0]), damping=0.0)

    @jax.jit
    def both(q):
        return limits(ROBOT, q, 0 * V), jax.grad(lambda q: limits.energy(ROBOT, q))(q)

    force, slope = both(Q)
    np.testing.assert_allclose(force, -slope, rtol=1e-12)
    assert float(jnp.abs(force).min()) > 0.1


def test_the_pull_on_links_is_the_torque_on_joints():
    set_of = strings()
    pull = jnp.array([0.0, 3.0])

    @jax.jit
    def both(q):
        wrenches = set_of.on_links(ROBOT, q, pull)
        free = soa.bias_force(ROBOT, q, 0 * V)
        return free - soa.inverse_dynamics(ROBOT, q, 0 * V, 0 * V, wrenches), -set_of(ROBOT, q)[1].T @ pull

    pushed, torque = both(Q)
    np.testing.assert_allclose(pushed, torque, rtol=1e-12, atol=1e-14)
    # The derivative of the length along the motion is the rate.
    rate = jax.jit(lambda: jax.jvp(lambda q: set_of(ROBOT, q)[0], (Q,), (V,))[1])()
    np.testing.assert_allclose(set_of(ROBOT, Q)[1] @ V, rate, rtol=1e-12)


def test_a_winch_pulls_by_its_gear_and_a_string_of_no_length_is_finite():
    winch = simulate.ActuatorDescription("winch", {}, path=("base", "tip"), path_gear=-2.0)
    motors = simulate.actuator_set(ROBOT, [winch])
    torque = jax.jit(lambda q, v: motors(jnp.ones(1), q, v, motors.initial(q, v), 0.01)[0])(Q, V)
    plain = simulate.tendon_set(ROBOT, [Tendon("x", path=("base", "tip"))])
    np.testing.assert_allclose(torque, -2 * plain(ROBOT, Q)[1][0], rtol=1e-12)
    folded = simulate.tendon_set(ROBOT, [Tendon("x", path=("base", ROBOT.link_names[0]))])  # at the same place
    value, slope = jax.jit(lambda q: (folded(ROBOT, q)[0], jax.jacfwd(lambda q: folded(ROBOT, q)[0])(q)))(Q)
    assert float(value[0]) == 0 and np.isfinite(slope).all()


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (Tendon("t"), "neither joints nor a path"),
        (Tendon("t", path=("tip",)), "from 'tip' to nowhere"),
        (Tendon("t", path=("tip", "base", 2, "tip")), "from 'tip' to nowhere"),
        (Tendon("t", path=("tip", "base", 0, "tip", "base")), "positive number, got 0"),
        (Tendon("t", path=("tip", "bose")), "no frame named 'bose'"),
        (Tendon("t", {"jont": 1.0}), "no joint named 'jont'"),
    ],
)
def test_what_is_no_tendon_is_refused(one, words):
    with pytest.raises((ValueError, KeyError), match=words):
        simulate.tendon_set(ROBOT, [one])


def test_two_tendons_of_one_name_are_refused():
    with pytest.raises(ValueError, match="Two tendons are called 't'"):
        simulate.tendon_set(ROBOT, [Tendon("t", {FIRST: 1.0})] * 2)
