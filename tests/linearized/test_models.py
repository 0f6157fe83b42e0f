"""Algorithms 1 to 6 against automatic differentiation and central differences of the plain dynamics."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.compare import assert_close, random_states

import jaxsoa as soa
from jaxsoa.linearized.conventional import conventional_linearization, conventional_perturbation
from jaxsoa.linearized.forward import by_parts

ROBOTS = {
    "chain": lambda: soa.models.chain(5),
    "mixed": lambda: soa.models.random_tree(
        8, 3, kinds=["universal", "spherical", "helical"], shape="chain", armature=True, damping=True, friction=True
    ),
}
SLOW_ROBOTS = {
    "sliding chain": lambda: soa.models.random_tree(2, 4, kinds=["prismatic", "helical", "revolute"], shape="chain"),
    "ordered joints": lambda: soa.models.random_tree(
        4, 3, kinds=["universal", "planar", "cylindrical"], shape="chain", armature=True, damping=True, friction=True
    ),
    "body-rate joints": lambda: soa.models.random_tree(
        5, 3, kinds=["spherical", "free"], shape="chain", armature=True, damping=True
    ),
    "tree of all kinds": lambda: soa.models.random_tree(3, 10, armature=True, damping=True, friction=True),
    "floating tree": lambda: soa.models.random_tree(7, 8, kinds=["revolute"], floating_base=True, armature=True),
}
robots = pytest.mark.parametrize(
    "make",
    [*ROBOTS.values(), *(pytest.param(make, marks=pytest.mark.exhaustive) for make in SLOW_ROBOTS.values())],
    ids=[*ROBOTS, *SLOW_ROBOTS],
)


def matrices_by_ad(function):
    """Derivatives by tangent of q, by v and by the third argument."""

    def matrices(robot, q, v, x, f_ext):
        def at(dq, v, x):
            return function(robot, robot.integrate(q, dq), v, x, f_ext)

        return jax.jacfwd(at, argnums=(0, 1, 2))(jnp.zeros_like(v), v, x)

    return matrices


def batched(function):
    return jax.jit(jax.vmap(function, in_axes=(None, 0, 0, 0, 0)))


@robots
def test_inverse_model_is_the_derivative_of_inverse_dynamics(make):
    robot = make()
    states = random_states(robot, 1, 2)
    expected = batched(matrices_by_ad(soa.inverse_dynamics))(robot, *states)
    actual = batched(soa.linearize_inverse_dynamics)(robot, *states)
    single = jax.jit(soa.linearize_inverse_dynamics)(robot, *(x[1] for x in states))
    for name, x, y, z in zip(actual._fields, actual, expected, single, strict=True):
        assert_close(x, y, 1e-12, name)
        assert_close(z, y[1], 1e-12, f"{name}, one state")


@robots
def test_forward_model_is_the_derivative_of_forward_dynamics(make):
    robot = make()
    states = random_states(robot, 2, 2)
    expected = batched(matrices_by_ad(soa.forward_dynamics))(robot, *states)
    one = tuple(x[1] for x in states)
    answers = {
        "batched": jax.tree.map(lambda x: x[1], batched(soa.linearize_forward_dynamics)(robot, *states)),
        "one state": jax.jit(soa.linearize_forward_dynamics)(robot, *one),
        "by parts (large robots)": jax.jit(by_parts)(robot, *one),
        "conventional (Algorithm 4)": jax.jit(conventional_linearization)(robot, *one),
    }
    for way, answer in answers.items():
        for name, x, y in zip(answer._fields, answer, expected, strict=True):
            assert_close(x, y[1], 1e-10, f"{way}: {name}")


@robots
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
    expected = along(soa.inverse_dynamics)
    assert_close(jax.jit(soa.inverse_dynamics_perturbation)(*arguments), expected, 1e-12, "Algorithm 1")
    expected = along(soa.forward_dynamics)
    assert_close(jax.jit(soa.forward_dynamics_perturbation)(*arguments), expected, 1e-10, "Algorithm 5")
    assert_close(jax.jit(conventional_perturbation)(*arguments), expected, 1e-10, "Algorithm 3")


@pytest.mark.parametrize(
    "make", [ROBOTS["mixed"], pytest.param(SLOW_ROBOTS["body-rate joints"], marks=pytest.mark.exhaustive)]
)
def test_central_differences_on_the_manifold(make):
    """Independent of automatic differentiation. The step 1e-5 leaves errors of order 1e-10; 1e-8 is the bound."""
    robot = make()
    q, v, tau, f_ext = (x[0] for x in random_states(robot, 5, 1))
    linear = jax.jit(soa.linearize_forward_dynamics)(robot, q, v, tau, f_ext)
    h = 1e-5
    steps = h * np.concatenate([np.eye(robot.nv), -np.eye(robot.nv)])

    def along_q(d):
        return soa.forward_dynamics(robot, robot.integrate(q, d), v, tau, f_ext)

    def along_v(d):
        return soa.forward_dynamics(robot, q, v + d, tau, f_ext)

    for function, actual, what in ((along_q, linear.wrt_q, "wrt_q"), (along_v, linear.wrt_v, "wrt_v")):
        values = np.asarray(jax.jit(jax.vmap(function))(steps))
        assert_close(actual, (values[: robot.nv] - values[robot.nv :]).T / (2 * h), 1e-8, what)


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
