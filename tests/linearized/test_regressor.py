"""The regressor against inverse dynamics and its derivative; base parameters against known counts."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.compare import assert_close, random_states

import jaxsoa as soa


@pytest.mark.parametrize("kinds, n", [(["revolute"], 4), (["universal", "spherical", "prismatic"], 3)])
def test_linear_in_the_inertial_parameters(kinds, n):
    robot = soa.models.random_tree(5, n, kinds=kinds)
    q, v, a, _ = (x[0] for x in random_states(robot, 31, 1))
    Y = jax.jit(soa.regressor)(robot, q, v, a)
    pi = soa.inertial_parameters(robot)
    torque = jax.jit(soa.inverse_dynamics)
    assert_close(Y @ pi, torque(robot, q, v, a), 1e-12)
    other = pi * jnp.linspace(1.0, 1.3, len(pi))
    assert_close(Y @ other, torque(soa.with_inertial_parameters(robot, other), q, v, a), 1e-12)
    assert_close(soa.inertial_parameters(soa.with_inertial_parameters(robot, other)), other, 1e-12)


def test_derivative_by_parameters():
    robot = soa.models.random_tree(6, 3, kinds=["revolute"], armature=True, damping=True)
    q, v, a, _ = (x[0] for x in random_states(robot, 32, 1))

    def torque(pi):
        return soa.inverse_dynamics(soa.with_inertial_parameters(robot, pi), q, v, a)

    expected = jax.jit(jax.jacrev(torque))(soa.inertial_parameters(robot))
    assert_close(jax.jit(soa.regressor)(robot, q, v, a), expected, 1e-10)


def test_base_parameters_of_known_mechanisms():
    """A pendulum about y in the x-z plane has 3 base parameters (mcx, mcz, Iyy), n of them in a plane 3n."""
    assert soa.base_parameters(soa.models.pendulum(1)).rank == 3
    assert soa.base_parameters(soa.models.pendulum(2)).rank == 6
    floating = soa.models.random_tree(9, 1, kinds=["free"])
    assert soa.base_parameters(floating).rank == 10  # all of one free body


def test_grouping_reproduces_the_torques():
    robot = soa.models.puma560()
    base = soa.base_parameters(robot)
    assert base.rank == 36  # the count of the literature for a six-joint arm of this kind
    q, v, a, _ = (x[0] for x in random_states(robot, 33, 1))
    Y = np.asarray(jax.jit(soa.regressor)(robot, q, v, a))
    pi = np.asarray(soa.inertial_parameters(robot))
    assert_close(Y[:, base.independent] @ (base.grouping @ pi), Y @ pi, 1e-10)
    assert len(base.describe(robot)) == base.rank
    assert np.abs(Y[:, base.unidentifiable]).max() < 1e-8


def test_wrong_number_of_parameters():
    with pytest.raises(ValueError, match="10 n_links"):
        soa.with_inertial_parameters(soa.models.pendulum(1), jnp.zeros(9))
