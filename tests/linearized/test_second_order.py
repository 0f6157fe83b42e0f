"""Second derivatives of the dynamics on random trees with every joint kind, both modes, by `check_grads`.

The states are those where derivatives tend to break: anywhere; at rest in the neutral pose (q = 0, v = 0, quaternions
at the identity, arms straight, free bodies falling); and in motion through the neutral pose.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.compare import random_states
from jax.test_util import check_grads

import jaxsoa as soa
from jaxsoa.model.joints import JOINT_KINDS

KINDS = {name for name, joint in JOINT_KINDS.items() if joint.nv > 0}
TREES = {
    "every kind": soa.models.random_tree(0, 9, armature=True, damping=True),
    "one degree each": soa.models.random_tree(
        1, 8, kinds=["revolute", "continuous", "prismatic", "helical"], damping=True, friction=True
    ).replace(friction_velocity=0.5),  # smooth enough for finite differences
    "two and three degrees": soa.models.random_tree(2, 5, kinds=["universal", "cylindrical", "planar"], shape="chain"),
    "quaternions": soa.models.random_tree(3, 5, kinds=["spherical", "free"], shape="star", armature=True),
    "floating": soa.models.random_tree(4, 6, kinds=["revolute", "spherical"], shape="chain", floating_base=True),
}


def test_the_trees_have_every_joint_kind():
    assert {joint.name for joint in TREES["every kind"].topology.joints} == KINDS
    assert {joint.name for name in list(TREES)[1:] for joint in TREES[name].topology.joints} == KINDS


def check(function, robot, modes):
    """Against central differences (about six digits) of the function and of its first derivatives, along random
    tangents: forward over forward, reverse over reverse, and with both modes also one over the other."""

    @jax.jit  # the state is an argument, so that all states share what is compiled
    def at(q, dq, v, x):
        return function(robot, robot.integrate(q, dq), v, x)

    q, v, x, _ = (y[0] for y in random_states(robot, 61, 1))
    rest = robot.neutral()
    for q, *others in ((q, v, x), (rest, 0 * v, 0 * x), (rest, v, x)):  # noqa: B020
        moving = (jnp.zeros(robot.nv), *others)
        check_grads(lambda *y, q=q: at(q, *y), moving, order=2, modes=modes, atol=1e-5, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["fwd", "rev"])
@pytest.mark.parametrize("tree", TREES)
def test_forward_dynamics_of_random_trees(tree, mode):
    check(soa.forward_dynamics, TREES[tree], [mode])


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["fwd", "rev"])
def test_inverse_dynamics_of_a_random_tree(mode):
    check(soa.inverse_dynamics, TREES["every kind"], [mode])


@pytest.mark.slow
@pytest.mark.parametrize("function", [soa.forward_dynamics, soa.inverse_dynamics])
def test_one_mode_over_the_other(function):
    """Forward over reverse and reverse over forward, on an arm that is straight in its neutral pose."""
    check(function, soa.models.chain(6), ["fwd", "rev"])


@pytest.mark.parametrize("function", [soa.forward_dynamics, soa.inverse_dynamics])
@pytest.mark.slow
def test_reverse_over_reverse_by_velocities_alone(function):
    """The mass matrix does not vary with the velocities, so a part of what is transposed the second time is zero."""
    robot = soa.models.chain(2)
    q, v, x, _ = (y[0] for y in random_states(robot, 61, 1))

    def total(v):
        return jnp.sum(function(robot, q, v, x))

    reverse = jax.jit(jax.jacrev(jax.jacrev(total)))(v)
    np.testing.assert_allclose(reverse, jax.jit(jax.jacfwd(jax.jacfwd(total)))(v), rtol=1e-10, atol=1e-12)
    assert np.abs(reverse).max() > 1e-3
