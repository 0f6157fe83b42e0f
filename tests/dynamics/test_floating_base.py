"""Robots on a floating base, with armature on it and prescribed motion of it, against other algorithms."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.compare import assert_close, random_states

import jaxsoa as soa
from jaxsoa.dynamics.articulated import articulated_body
from jaxsoa.dynamics.kinematics import kinematics, link_inertias
from jaxsoa.dynamics.motion import solve_motion


def floating_tree(n: int = 5, **options):
    robot = soa.models.random_tree(7, n, floating_base=True, armature=True, damping=True, friction=True, **options)
    # Armature on the base too: nobody has a motor there, but inertia added to a free body is a fine model.
    return robot.replace(armature=robot.armature + 0.1)


def one_by_one(function):
    return lambda *states: jax.lax.map(lambda state: function(*state), states)


@pytest.mark.parametrize(
    "kinds",
    [["revolute"], pytest.param(["revolute", "prismatic", "spherical", "free"], marks=pytest.mark.slow)],
    ids=["turning", "mixed"],
)
@pytest.mark.parametrize("batched", [jax.vmap, one_by_one], ids=["batch", "one state"])
def test_equals_the_dense_mass_matrix(kinds, batched):
    robot = floating_tree(kinds=kinds)
    q, v, tau, f_ext = random_states(robot, 1, 3)
    found = jax.jit(batched(lambda *state: soa.forward_dynamics(robot, *state)))(q, v, tau, f_ext)
    dense = jax.jit(jax.vmap(lambda *state: soa.forward_dynamics(robot, *state, method="crb")))(q, v, tau, f_ext)
    assert_close(found, dense, 1e-11)


@pytest.mark.parametrize("prescribed_base", [(), (1,), (0, 3, 4), range(6)], ids=["none", "one", "some", "all"])
@pytest.mark.parametrize("batched", [jax.vmap, one_by_one], ids=["batch", "one state"])
def test_prescribed_motion_of_the_base(prescribed_base, batched):
    robot = floating_tree(kinds=["revolute"])
    q, v, tau, f_ext = random_states(robot, 2, 3)
    mask = np.zeros(robot.nv, bool)
    mask[[*prescribed_base, 7]] = True
    given = jnp.sin(jnp.arange(robot.nv) + jnp.arange(3.0)[:, None])

    @jax.jit
    def hybrid(mask):
        return batched(lambda q, v, a, tau, f_ext: soa.hybrid_dynamics(robot, q, v, a, tau, mask, f_ext))(
            q, v, given, tau, f_ext
        )

    a, torque = hybrid(mask)
    np.testing.assert_array_equal(a[:, mask], given[:, mask])
    np.testing.assert_array_equal(torque[:, ~mask], tau[:, ~mask])
    needed = jax.jit(jax.vmap(lambda *state: soa.inverse_dynamics(robot, *state)))(q, v, a, f_ext)
    assert_close(torque, needed, 1e-10)


@pytest.mark.parametrize("batched", [jax.vmap, one_by_one], ids=["batch", "one state"])
def test_factors_are_those_of_the_sweep_over_every_degree_of_freedom(batched):
    """Derivatives reuse them."""
    robot = floating_tree(kinds=["revolute", "universal"])
    q, v, tau, _ = random_states(robot, 3, 2)

    def by_one_sweep(q):
        kin = kinematics(robot, q)
        return articulated_body(robot, kin, link_inertias(robot, kin.rotation)).factors

    found = jax.jit(batched(lambda q, v, tau: solve_motion(robot, q, v, tau, tau, None, None)[2]))(q, v, tau)
    jax.tree.map(lambda x, y: assert_close(x, y, 1e-11), found, jax.jit(jax.vmap(by_one_sweep))(q))


def test_one_free_body_and_several():
    alone = soa.models.random_tree(0, 1, kinds=["free"])
    several = soa.models.random_tree(0, 3, kinds=["free"], shape="star")
    for robot in (alone, several):
        q, v, tau, f_ext = (x[0] for x in random_states(robot, 0, 1))
        dense = soa.forward_dynamics(robot, q, v, tau, f_ext, method="crb")
        assert_close(soa.forward_dynamics(robot, q, v, tau, f_ext), dense, 1e-11)


def test_in_single_precision():
    robot = floating_tree(kinds=["revolute"])
    q, v, tau, f_ext = random_states(robot, 4, 3)
    precise = jax.vmap(lambda *state: soa.forward_dynamics(robot, *state, method="crb"))(q, v, tau, f_ext)
    single, state = robot.astype(jnp.float32), [x.astype(jnp.float32) for x in (q, v, tau, f_ext)]
    found = jax.vmap(lambda *state: soa.forward_dynamics(single, *state))(*state)
    assert found.dtype == jnp.float32
    assert_close(found, precise, 1e-5)  # rounding of single precision
    # Torques in double precision: the model's type is that of everything.
    assert soa.forward_dynamics(single, state[0][0], state[1][0], tau[0]).dtype == jnp.float32
