"""Fits of robots whose joints mimic others: one motor moves several joints, and its torque is what is measured."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.mimicking import A, B, gripper
from helpers.transformed import by_numpy

import jaxsoa as soa
from jaxsoa import identify


def measured(robot: soa.Multibody, count: int) -> identify.TorqueData:
    """Random motions along the mimics, with the torques of the two motors that make them (Pinocchio's convention:
    A* ID, written here without the library's own map)."""
    y, rates, accelerations = np.random.default_rng(0).normal(size=(3, count, 2))
    q, v, a = y @ A.T + B, rates @ A.T, accelerations @ A.T
    inverse = jax.vmap(lambda q, v, a: soa.inverse_dynamics(robot, q, v, a))
    motors = by_numpy(inverse, *map(jnp.asarray, (q, v, a))) @ A
    tau = np.stack([motors[:, 0], np.zeros(count), np.zeros(count), motors[:, 1]], axis=1)
    return identify.TorqueData(q, v, a, tau)


def test_torques_of_joints_that_follow_are_felt_at_the_motor():
    robot = gripper()
    data = jax.tree.map(lambda x: jnp.asarray(x)[0], measured(robot, 1))
    true = identify.Candidate(robot, jnp.zeros(4))
    residual = by_numpy(identify.torque_residual, true, data)
    assert residual.shape == (1, 2)  # shoulder and swing
    np.testing.assert_allclose(residual, 0, atol=1e-12)


@pytest.mark.slow
def test_a_fit_finds_what_moves_the_motors():
    robot = gripper()
    heavier, data = robot.replace(mass=1.2 * robot.mass), measured(robot, 60)
    found = identify.fit(heavier, data, ["inertial"], progress=False, weights=np.ones(2))
    assert found.channels == ("shoulder", "swing")
    assert found.rms_before.min() > 0.1
    np.testing.assert_allclose(found.rms_before, identify.residual_rms(heavier, data), rtol=1e-9)  # not compressed
    np.testing.assert_allclose(found.rms_after, 0, atol=1e-6)
