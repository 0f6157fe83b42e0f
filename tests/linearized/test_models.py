"""Algorithms 1 to 6 against automatic differentiation and central differences of the plain dynamics."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.compare import assert_close, random_states

import jaxsoa as soa
from jaxsoa.linearized import forward
from jaxsoa.linearized.conventional import conventional_linearization, conventional_perturbation
from jaxsoa.linearized.forward import by_parts
from jaxsoa.model.joints import JOINT_KINDS

ROBOTS = {
    "chain": lambda: soa.models.chain(5),
    "mixed": lambda: soa.models.random_tree(
        8, 3, kinds=["universal", "spherical", "helical"], shape="chain", armature=True, damping=True, friction=True
    ),
}
SLOW_ROBOTS = {
    "tree of all kinds": lambda: soa.models.random_tree(3, 10, armature=True, damping=True, friction=True),
}


def on_robots(*also_slow: str):
    slow = {*SLOW_ROBOTS, *also_slow}
    values = [
        pytest.param(make, marks=[pytest.mark.slow] if name in slow else [], id=name)
        for name, make in {**ROBOTS, **SLOW_ROBOTS}.items()
    ]
    return pytest.mark.parametrize("make", values)


# Compiled once per robot and shared by the tests below.
algorithm_1 = jax.jit(soa.inverse_dynamics_perturbation)
algorithm_2 = jax.jit(soa.linearize_inverse_dynamics)
algorithm_3 = jax.jit(conventional_perturbation)
algorithm_4 = jax.jit(conventional_linearization)
algorithm_5 = jax.jit(soa.forward_dynamics_perturbation)
algorithm_6 = jax.jit(soa.linearize_forward_dynamics)
algorithm_6_by_parts = jax.jit(by_parts)


def matrices_by_ad(function, jacobian=jax.jacfwd):
    """Derivatives by tangent of q, by v and by the third argument."""

    def matrices(robot, q, v, x, f_ext):
        def at(dq, v, x):
            return function(robot, robot.integrate(q, dq), v, x, f_ext)

        return jacobian(at, argnums=(0, 1, 2))(jnp.zeros_like(v), v, x)

    return matrices


def batched(function):
    return jax.jit(jax.vmap(function, in_axes=(None, 0, 0, 0, 0)))


def test_the_slow_tree_has_joints_of_every_kind():
    moving = {name for name, joint in JOINT_KINDS.items() if joint.nv > 0}
    assert set(SLOW_ROBOTS["tree of all kinds"]().topology.kinds) == moving


@on_robots("mixed")
def test_inverse_model_is_the_derivative_of_inverse_dynamics(make):
    robot = make()
    states = random_states(robot, 1, 2)
    expected = batched(matrices_by_ad(soa.inverse_dynamics))(robot, *states)
    actual = batched(soa.linearize_inverse_dynamics)(robot, *states)
    single = algorithm_2(robot, *(x[1] for x in states))
    for name, x, y, z in zip(actual._fields, actual, expected, single, strict=True):
        assert_close(x, y, 1e-12, name)
        assert_close(z, y[1], 1e-12, f"{name}, one state")


@on_robots("mixed")
def test_forward_model_is_the_derivative_of_forward_dynamics(make):
    robot = make()
    states = random_states(robot, 2, 2)
    expected = batched(matrices_by_ad(soa.forward_dynamics))(robot, *states)
    one = tuple(x[1] for x in states)
    answers = {
        "batched": jax.tree.map(lambda x: x[1], batched(soa.linearize_forward_dynamics)(robot, *states)),
        "one state": algorithm_6(robot, *one),
    }
    for way, answer in answers.items():
        for name, x, y in zip(answer._fields, answer, expected, strict=True):
            assert_close(x, y[1], 1e-10, f"{way}: {name}")


@on_robots()
def test_the_form_for_large_robots(make, monkeypatch):
    """Sweeps that carry all columns instead of dense products, one state and a batch."""
    robot = make()
    states = random_states(robot, 5, 3)
    one = tuple(x[1] for x in states)
    expected = algorithm_6(robot, *one)
    monkeypatch.setattr(forward, "DENSE_UP_TO", 0)
    answers = {
        "batched": jax.tree.map(lambda x: x[1], batched(lambda *x: soa.linearize_forward_dynamics(*x))(robot, *states)),
        "one state": jax.jit(lambda *x: soa.linearize_forward_dynamics(*x))(robot, *one),
    }
    for way, answer in answers.items():
        for name, x, y in zip(answer._fields, answer, expected, strict=True):
            assert_close(x, y, 1e-10, f"{way}: {name}")


@pytest.mark.slow
@on_robots()
def test_other_ways_to_the_forward_model(make):
    """Algorithm 4, and Algorithm 6 in the form that higher derivatives take, against reverse mode."""
    robot = make()
    state = tuple(x[0] for x in random_states(robot, 2, 1))
    expected = jax.jit(matrices_by_ad(soa.forward_dynamics, jax.jacrev))(robot, *state)
    answers = {"by parts": algorithm_6_by_parts(robot, *state).matrices, "Algorithm 4": algorithm_4(robot, *state)}
    for way, answer in answers.items():
        for name, x, y in zip(answer._fields, answer, expected, strict=True):
            assert_close(x, y, 1e-10, f"{way}: {name}")


@on_robots("mixed")
def test_inverse_model_by_reverse_mode(make):
    robot = make()
    state = tuple(x[1] for x in random_states(robot, 1, 2))
    expected = jax.jit(matrices_by_ad(soa.inverse_dynamics, jax.jacrev))(robot, *state)
    for x, y in zip(algorithm_2(robot, *state), expected, strict=True):
        assert_close(x, y, 1e-12)


@on_robots("mixed")
@pytest.mark.slow
def test_perturbations_are_directional_derivatives(make):
    """Algorithms 1, 3 and 5 along one random direction."""
    robot = make()
    q, v, x, f_ext = (y[0] for y in random_states(robot, 3, 1))
    dq, dv, dx = jax.random.normal(jax.random.key(4), (3, robot.nv))

    def along(function):
        def derivative(robot, q, v, x, f_ext):
            def at(dq, v, x):
                return function(robot, robot.integrate(q, dq), v, x, f_ext)

            return jax.jvp(at, (jnp.zeros_like(v), v, x), (dq, dv, dx))[1]

        return jax.jit(derivative)(robot, q, v, x, f_ext)

    arguments = (robot, q, v, x, dq, dv, dx, f_ext)
    assert_close(algorithm_1(*arguments), along(soa.inverse_dynamics), 1e-12, "Algorithm 1")
    expected = along(soa.forward_dynamics)
    assert_close(algorithm_5(*arguments), expected, 1e-10, "Algorithm 5")
    assert_close(algorithm_3(*arguments), expected, 1e-10, "Algorithm 3")


@pytest.mark.slow
def test_central_differences_on_the_manifold():
    """All six algorithms without automatic differentiation. A step of 1e-5 errs by about 1e-10; the bound is 1e-8."""
    robot = ROBOTS["mixed"]()
    q, v, x, f_ext = (x[0] for x in random_states(robot, 5, 1))
    n, h = robot.nv, 1e-5
    steps = h * np.concatenate([np.eye(3 * n), -np.eye(3 * n)])
    direction = np.random.default_rng(6).normal(size=3 * n)

    def differences(function):
        def at(d):
            return function(robot, robot.integrate(q, d[:n]), v + d[n : 2 * n], x + d[2 * n :], f_ext)

        values = np.asarray(jax.jit(jax.vmap(at))(steps))
        return (values[: 3 * n] - values[3 * n :]).T / (2 * h)  # (nv, 3 nv)

    tangents = direction.reshape(3, n)
    models = {
        soa.inverse_dynamics: ({"Algorithm 2": algorithm_2}, {"Algorithm 1": algorithm_1}),
        soa.forward_dynamics: (
            {"Algorithm 4": algorithm_4, "Algorithm 6": algorithm_6},
            {"Algorithm 3": algorithm_3, "Algorithm 5": algorithm_5},
        ),
    }
    for function, (matrices, perturbations) in models.items():
        expected = differences(function)
        for name, algorithm in matrices.items():
            for actual, columns in zip(algorithm(robot, q, v, x, f_ext), np.split(expected, 3, axis=1), strict=True):
                assert_close(actual, columns, 1e-8, name)
        for name, algorithm in perturbations.items():
            assert_close(algorithm(robot, q, v, x, *tangents, f_ext), expected @ direction, 1e-8, name)


def test_chunks_agree_with_single_states():
    """A batch larger than a chunk, with a remainder."""
    robot = soa.models.chain(3)
    q, v, tau, _ = random_states(robot, 6, 1)
    q, v, tau = (jnp.tile(x, (600, 1)) * jnp.linspace(0.5, 1.5, 600)[:, None] for x in (q, v, tau))
    many = jax.jit(jax.vmap(soa.linearize_forward_dynamics, in_axes=(None, 0, 0, 0)))(robot, q, v, tau)
    one = jax.jit(soa.linearize_forward_dynamics)
    for k in (0, 255, 256, 511, 512, 599):
        for x, y in zip(many, one(robot, q[k], v[k], tau[k]), strict=True):
            assert_close(x[k], y, 1e-12)


def test_a_batch_of_models():
    """vmap over the model too, and over nothing but the model."""
    robot = soa.models.chain(3)
    q, v, tau, _ = (x[0] for x in random_states(robot, 7, 1))
    masses = robot.mass * jnp.array([[1.0], [2.0]])
    models = jax.vmap(lambda m: robot.replace(mass=m))(masses)
    many = jax.jit(jax.vmap(soa.linearize_forward_dynamics, in_axes=(0, None, None, None)))(models, q, v, tau)
    for k in range(2):
        one = jax.jit(soa.linearize_forward_dynamics)(robot.replace(mass=masses[k]), q, v, tau)
        for x, y in zip(many, one, strict=True):
            assert_close(x[k], y, 1e-12)


def test_wrong_shapes_are_named():
    robot = soa.models.chain(3)
    with pytest.raises(ValueError, match="dq must be one velocity-like vector"):
        soa.inverse_dynamics_perturbation(robot, *jnp.zeros((3, 3)), jnp.zeros(2), *jnp.zeros((2, 3)))
    with pytest.raises(ValueError, match="tau must be"):
        soa.linearize_forward_dynamics(robot, *jnp.zeros((2, 3)), jnp.zeros(4))
