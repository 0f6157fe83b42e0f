"""What derivatives of closed chains are made of: read off their programs."""

from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsoa as soa
from jaxsoa import closed_chain as cc


def counted(program, total=None):
    """How often each primitive occurs; kernels by the functions they compute."""
    total = Counter() if total is None else total
    for equation in getattr(program, "jaxpr", program).eqns:
        kernel = equation.params.get("kernel")
        total[equation.primitive.name if kernel is None else kernel.traced.name] += 1
        for value in jax.tree.leaves(equation.params, is_leaf=lambda x: hasattr(x, "eqns") or hasattr(x, "jaxpr")):
            if hasattr(value, "eqns") or hasattr(value, "jaxpr"):
                counted(value, total)
    return total


def loops():
    robot, closed, q = cc.mechanisms.five_bar()
    return lambda x: cc.loop_forward_dynamics(robot, closed, q + x, x, x).a, 4


def grasp():
    system, q, pose = cc.mechanisms.two_arm_grasp((cc.SoftFinger((1, 0, 0)), cc.Point()))

    def moved(x):
        state = [jnp.split(x, 2)] * 2
        q_moved = tuple(a + d for a, d in zip(q, state[0], strict=True))
        return cc.grasp_forward_dynamics(system, q_moved, *state, pose).object_acceleration

    return moved, 14


def embedded():
    robot, closed, q = cc.mechanisms.five_bar()
    embedding = cc.embed(robot, closed, ["left1_joint", "right1_joint"], q)
    return lambda x: cc.embedded_forward_dynamics(embedding, q + x, x[:2], x).rates, 4


def hybrid():
    robot = soa.models.chain(5)
    mask = jnp.arange(5) % 2 == 0
    return lambda x: jnp.concatenate(soa.hybrid_dynamics(robot, x, x, x, x, mask)), 5


# What is embedded is the same five-bar, with its loops.
@pytest.mark.parametrize("make", [pytest.param(loops, marks=pytest.mark.slow), grasp, embedded, hybrid])
def test_derivatives_have_no_eigenvalues_and_no_riccati_sweep_of_their_own(make):
    function, size = make()
    x = jnp.asarray(np.random.default_rng(0).normal(size=size))
    once = counted(jax.make_jaxpr(function)(x))
    forward = counted(jax.make_jaxpr(lambda x: jax.jvp(function, (x,), (x,)))(x))
    backward = counted(jax.make_jaxpr(jax.grad(lambda x: jnp.sum(function(x))))(x))
    sweep = "dynamics.motion._sweeps"
    assert once[sweep] > 0 or make is embedded
    for derivative in (forward, backward):
        for name in ("eigh", "svd", sweep):
            assert derivative[name] <= once[name], name
        assert derivative["lu"] <= once["lu"]
