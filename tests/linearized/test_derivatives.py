"""Derivatives of the dynamics: second order in both modes, singular states, every leaf, size of the program."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.compare import assert_close, random_states
from jax.test_util import check_grads

import jaxsoa as soa

STATES = ("random", "at rest in the neutral pose")


def state_of(robot, which):
    q, v, tau, _ = (x[0] for x in random_states(robot, 51, 1))
    return (q, v, tau) if which == "random" else (robot.neutral(), jnp.zeros_like(v), jnp.zeros_like(tau))


@pytest.mark.exhaustive
@pytest.mark.parametrize("which", STATES)
@pytest.mark.parametrize("kinds", [["revolute"], ["spherical", "universal"]], ids=["revolute", "mixed"])
@pytest.mark.parametrize("function", [soa.inverse_dynamics, soa.forward_dynamics])
def test_second_order_in_both_modes(function, kinds, which):
    robot = soa.models.random_tree(5, 2, kinds=kinds, shape="chain", damping=True)
    q, v, tau = state_of(robot, which)

    def at(dq, v, tau):
        return function(robot, robot.integrate(q, dq), v, tau)

    # Central differences of derivatives: about six digits.
    check_grads(jax.jit(at), (jnp.zeros_like(v), v, tau), order=2, modes=("fwd", "rev"), atol=1e-5, rtol=1e-5)


@pytest.mark.exhaustive
@pytest.mark.parametrize("which", STATES)
def test_linearization_is_differentiable(which):
    """Second derivatives of forward dynamics through the matrices and through two jacfwd agree."""
    robot = soa.models.random_tree(5, 2, kinds=["spherical", "revolute"], shape="chain", damping=True)
    q, v, tau = state_of(robot, which)

    def matrix(v):
        return soa.linearize_forward_dynamics(robot, q, v, tau).wrt_v

    expected = jax.jit(jax.jacfwd(jax.jacfwd(lambda v: soa.forward_dynamics(robot, q, v, tau))))(v)
    assert_close(jax.jit(jax.jacfwd(matrix))(v), expected, 1e-9, "forward")
    assert_close(jax.jit(jax.jacrev(matrix))(v), expected, 1e-9, "reverse")


@pytest.mark.exhaustive
def test_gradient_by_every_leaf():
    """Against central differences along one random direction per leaf (rotations may leave SO(3))."""
    robot = soa.models.random_tree(
        6, 3, kinds=["universal", "helical", "planar"], shape="chain", armature=True, damping=True, friction=True
    )
    q, v, tau, f_ext = (x[0] for x in random_states(robot, 52, 1))
    weights = jnp.linspace(0.5, 1.5, robot.nv)

    @jax.jit
    def loss(robot, f_ext):
        return weights @ soa.forward_dynamics(robot, q, v, tau, f_ext)

    gradient, by_force = jax.jit(jax.grad(loss, argnums=(0, 1)))(robot, f_ext)
    h = 1e-6  # relative errors of order 1e-9 beside rounding
    rng = np.random.default_rng(0)
    unused = {"limits", "topology", "frame_rotation", "frame_position", "base_position"}
    for name in (f for f in robot.__dataclass_fields__ if f not in unused):
        leaf = getattr(robot, name)
        direction = jnp.asarray(rng.normal(size=leaf.shape))
        ends = [loss(robot.replace(**{name: leaf + s * h * direction}), f_ext) for s in (1, -1)]
        expected = (ends[0] - ends[1]) / (2 * h)
        actual = jnp.sum(getattr(gradient, name) * direction)
        assert abs(actual - expected) <= 1e-6 * max(1.0, abs(expected)), name
    direction = jnp.asarray(rng.normal(size=f_ext.shape))
    expected = (loss(robot, f_ext + h * direction) - loss(robot, f_ext - h * direction)) / (2 * h)
    assert abs(jnp.sum(by_force * direction) - expected) <= 1e-6 * max(1.0, abs(expected))


def lines(function, n):
    robot = soa.models.chain(n)
    x = jnp.zeros(n)
    return len(jax.jit(function).lower(robot, x).as_text().splitlines())


def test_the_program_does_not_grow_with_the_robot():
    """Lines of the program to compile, for 72 and for 512 links."""

    def algorithm_5(robot, x):
        return soa.forward_dynamics_perturbation(robot, x, x, x, x, x, x)

    def algorithm_6(robot, x):
        return soa.linearize_forward_dynamics(robot, x, x, x)

    for function in (algorithm_5, algorithm_6):
        assert lines(function, 72) == lines(function, 512)
