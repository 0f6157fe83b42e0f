"""Laws of mechanics on random trees with every joint kind, with armature, damping, friction and external forces.

Topologies come from a small set, since each is compiled once; states are drawn freely.
"""

from __future__ import annotations

from functools import cache

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.compare import assert_close, random_state
from hypothesis import given, settings

import jaxsoa as soa
from jaxsoa.dynamics.forward import METHODS
from jaxsoa.model.joints import JOINT_KINDS

random_tree = soa.models.random_tree
TREES = {
    "every kind": random_tree(1, 9, armature=True, damping=True, friction=True),
    "floating": random_tree(2, 4, kinds=("prismatic", "spherical", "universal"), floating_base=True),
}
SLOW_TREES = {
    "one free body": random_tree(3, 1, kinds=("free",)),
    "two of every kind": random_tree(4, 18, armature=True, damping=True, friction=True),
    "chain of every kind": random_tree(5, 9, shape="chain", damping=True),
    "star of every kind": random_tree(6, 9, shape="star", armature=True),
    "deep and branching": random_tree(7, 30, kinds=("revolute", "prismatic", "helical")),
    "floating, every kind": random_tree(8, 12, floating_base=True, armature=True),
}
ALL_TREES = TREES | SLOW_TREES
# Compiling takes most of the time: in the default run one tree, the one with every kind.
ONE = ["every kind", *(pytest.param(name, marks=pytest.mark.slow) for name in ALL_TREES if name != "every kind")]

states = st.tuples(st.integers(0, 2**31), st.sampled_from([0.0, 0.1, 1.0, 5.0]))


def test_the_trees_hold_every_joint_kind():
    assert {*TREES["every kind"].topology.kinds} == {name for name, joint in JOINT_KINDS.items() if joint.nv}
    assert TREES["floating"].topology.kinds[0] == "free"


def rate(f, robot, q, v, a):
    """Time derivative of f(q, v) along the motion."""
    return jax.jvp(lambda t: f(robot, robot.integrate(q, t * v), v + t * a), (0.0,), (1.0,))[1]


def energy(robot, q, v):
    return soa.kinetic_energy(robot, q, v) + soa.potential_energy(robot, q)


@jax.jit
def laws(robot, q, v, a, f_ext, x):
    tau = soa.inverse_dynamics(robot, q, v, a, f_ext)
    poses = soa.forward_kinematics(robot, q)
    return {
        "torque": tau,
        "acceleration": soa.forward_dynamics(robot, q, v, tau, f_ext),
        "mass times x": soa.mass_matrix(robot, q) @ x,
        "rate of torque": jax.jvp(lambda a: soa.inverse_dynamics(robot, q, v, a, f_ext), (a,), (x,))[1],
        "rate of energy": rate(energy, robot, q, v, a),
        "rate of momentum": rate(soa.momentum, robot, q, v, a),
        "velocities": soa.link_velocities(robot, q, v),
        "positions": poses.position,
        "centre": soa.center_of_mass(robot, q),
        "kinetic energy": soa.kinetic_energy(robot, q, v),
    }


@cache
def evaluated(name: str, seed: int, speed: float):
    robot = ALL_TREES[name]
    q, v, a, f_ext = random_state(robot, seed, speed=speed)
    x = jnp.asarray(np.random.default_rng(seed + 1).normal(size=robot.nv))
    found = {key: np.asarray(value) for key, value in laws(robot, q, v, a, f_ext, x).items()}
    return robot, q, np.asarray(v), np.asarray(a), np.asarray(f_ext), found


def check_laws(name: str, seed: int, speed: float) -> None:
    robot, _, v, a, f_ext, found = evaluated(name, seed, speed)
    # Forward dynamics after inverse dynamics is the identity.
    assert_close(found["acceleration"], a, 1e-9, "FD after ID")
    # The mass matrix is the derivative of inverse dynamics by acceleration.
    assert_close(found["mass times x"], found["rate of torque"], 1e-11, "M = dID/da")
    # Energy changes by the power of torques and external forces, less what damping and friction take.
    lost = np.asarray(robot.damping) * v**2
    lost = lost + np.asarray(robot.friction) * np.tanh(v / float(robot.friction_velocity)) * v
    power = found["torque"] @ v - lost.sum() + np.sum(f_ext * found["velocities"])
    size = np.abs(found["torque"] * v).sum() + np.abs(f_ext * found["velocities"]).sum() + 1e-3
    assert abs(found["rate of energy"] - power) < 1e-11 * size, "d(energy)/dt = power"
    assert found["kinetic energy"] > 0 or speed == 0


@pytest.mark.parametrize("name", ONE)
def test_laws_of_mechanics(name):
    """FD after ID is the identity; M is the derivative of ID; d(energy)/dt equals power."""

    @settings(max_examples=25)
    @given(states)
    def run(state):
        check_laws(name, *state)

    run()


FLOATING = ["floating", *(pytest.param(n, marks=pytest.mark.slow) for n in ("one free body", "floating, every kind"))]


@pytest.mark.parametrize("name", FLOATING)
def test_momentum_of_free_floating_trees(name):
    """With no force but gravity and f_ext, momentum changes by exactly these; without them it is conserved."""
    robot = ALL_TREES[name]
    inner = jnp.ones(robot.nv).at[:6].set(0)  # joint torques, none on the free joint of the base

    def run(robot, q, v, f_ext):
        tau = 0.7 * inner
        a = soa.forward_dynamics(robot, q, v, tau, f_ext)
        return rate(soa.momentum, robot, q, v, a), soa.momentum(robot, q, v)

    run = jax.jit(run)
    here = jax.jit(lambda robot, q: (soa.forward_kinematics(robot, q).position, soa.center_of_mass(robot, q)))
    weightless = robot.with_gravity(jnp.zeros(3))
    total = float(jnp.sum(robot.mass))
    for seed in range(8):
        q, v, _, f_ext = random_state(robot, seed)
        change, size = run(weightless, q, v, 0 * f_ext)
        assert np.abs(change).max() < 1e-11 * max(1, float(np.abs(size).max())), "momentum is conserved"
        assert np.abs(size).max() > 0.1
        position, centre = here(robot, q)
        weight = total * np.asarray(robot.gravity)
        expected = np.concatenate([np.cross(centre, weight), weight])
        expected[:3] += np.sum(f_ext[:, :3] + np.cross(position, f_ext[:, 3:]), axis=0)
        expected[3:] += np.sum(f_ext[:, 3:], axis=0)
        assert_close(run(robot, q, v, f_ext)[0], expected, 1e-11, "momentum changes by gravity and f_ext")


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL_TREES)
def test_all_forward_methods_agree(name):
    robot = ALL_TREES[name]

    @jax.jit
    def every(q, v, tau, f_ext):
        return {method: soa.forward_dynamics(robot, q, v, tau, f_ext, method=method) for method in METHODS}

    for seed in range(5):
        q, v, tau, f_ext = random_state(robot, seed, speed=2.0)
        found = every(q, v, tau, f_ext)
        for method in METHODS:
            assert_close(found[method], found["crb"], 1e-9, method)


@jax.jit
def hybrid_and_dense(robot, q, v, a, tau, masks, f_ext):
    run = jax.vmap(lambda mask: soa.hybrid_dynamics(robot, q, v, a, tau, mask, f_ext))
    return (
        run(masks),
        soa.mass_matrix(robot, q),
        soa.bias_force(robot, q, v, f_ext),
        run_one(robot, q, v, a, tau, masks[0], f_ext),
    )


def run_one(robot, q, v, a, tau, mask, f_ext):
    return soa.hybrid_dynamics(robot, q, v, a, tau, mask, f_ext)


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL_TREES)
def test_hybrid_dynamics_with_traced_masks(name):
    """All free is forward, all prescribed is inverse, any mix is the Schur complement of the dense equations."""
    robot = ALL_TREES[name]
    rng = np.random.default_rng(9)
    for seed in range(3):
        q, v, a, f_ext = random_state(robot, seed)
        tau = rng.normal(size=robot.nv)
        masks = rng.random((6, robot.nv)) < np.array([0.5, 0.2, 0.8, 0.5, 0, 1])[:, None]
        assert masks[0].any() and not masks[0].all() and not masks[4].any() and masks[5].all()
        (found_a, found_tau), M, bias, single = hybrid_and_dense(robot, q, v, a, tau, masks, f_ext)
        M, bias = np.asarray(M), np.asarray(bias)
        for mask, one_a, one_tau in zip(masks, np.asarray(found_a), np.asarray(found_tau), strict=True):
            p, f = mask, ~mask
            expected_a, expected_tau = np.array(a), np.array(tau)
            if f.any():
                expected_a[f] = np.linalg.solve(M[np.ix_(f, f)], (tau - bias)[f] - M[np.ix_(f, p)] @ expected_a[p])
            expected_tau[p] = (M @ expected_a + bias)[p]
            assert_close(one_a, expected_a, 1e-9, "accelerations")
            assert_close(one_tau, expected_tau, 1e-9, "torques")
            np.testing.assert_array_equal(one_a[p], np.asarray(a)[p])
            np.testing.assert_array_equal(one_tau[f], tau[f])
        assert_close(single[0], found_a[0], 1e-10, "one mask, not batched")
        assert_close(single[1], found_tau[0], 1e-10, "one mask, not batched")


def test_values_that_hybrid_dynamics_must_not_read_do_not_matter():
    robot = soa.models.chain(3)
    q, v, a, _ = random_state(robot, 0)
    mask = jnp.array([True, False, True])
    run = jax.jit(lambda a, tau: soa.hybrid_dynamics(robot, q, v, a, tau, mask))
    first = run(a, jnp.array([1e9, 0.5, -1e9]))
    second = run(a.at[1].set(1e9), jnp.array([0, 0.5, 0]))
    np.testing.assert_allclose(first[0], second[0], rtol=1e-12)
    np.testing.assert_allclose(first[1], second[1], rtol=1e-12)


def test_prescribed_mask_names_joints():
    robot = TREES["floating"]
    mask = np.asarray(soa.prescribed_mask(robot, ["floating_base", robot.joint_names[2]]))
    assert mask[:6].all() and mask[robot.v_index(robot.joint_names[2])].all()
    assert mask.sum() == 6 + robot.topology.joints[2].nv
