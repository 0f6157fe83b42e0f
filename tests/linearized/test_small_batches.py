"""Linearizations of batches that are one kernel: the same as one state at a time, and as forward mode."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from helpers.compare import assert_close

import jaxsoa as soa
from jaxsoa.linearized.step import linearize_step, semi_implicit_euler
from jaxsoa.one_kernel import OFF

MARK = "xla_cpu_small_call"


def flying_arm():
    """A free joint, a ball joint and hinges: a chain with every kind of coordinates."""
    builder = soa.Builder("flying")
    rod = {"mass": 1.0, "com": (0.1, 0, 0), "inertia": 0.02 * jnp.eye(3)}
    builder.link("body", joint="free", **rod)
    builder.link("ball", joint="spherical", parent="body", position=(0.3, 0, 0), **rod)
    for k, parent in enumerate(("ball", "hinge0")):
        builder.link(f"hinge{k}", joint="continuous", parent=parent, axis=(0, k, 1), position=(0.3, 0, 0), **rod)
    return builder.build()


ROBOTS = {"arm": soa.models.puma560, "flying": flying_arm, "tree": soa.models.dual_arm}


def states(robot, count):
    q = jax.vmap(robot.random)(jax.random.split(jax.random.key(0), count))
    return q, *jax.random.normal(jax.random.key(1), (2, count, robot.nv), robot.dtype)


@pytest.mark.parametrize("name", ROBOTS)
def test_batch_against_forward_mode(name):
    robot = ROBOTS[name]()
    q, v, tau = states(robot, 5)
    batch = jax.jit(jax.vmap(lambda *x: soa.linearize_forward_dynamics(robot, *x)))
    assert (MARK in batch.lower(q, v, tau).as_text()) == (name != "tree")  # trees would take long to compile
    found = batch(q, v, tau)

    def moved(q, v, tau, dq, dv, dtau):
        return soa.forward_dynamics(robot, robot.integrate(q, dq), v + dv, tau + dtau)

    still = jnp.zeros(robot.nv)
    exact = jax.jit(jax.vmap(lambda *x: jax.jacfwd(moved, argnums=(3, 4, 5))(*x, still, still, still)))(q, v, tau)
    for x, y in zip(found, exact, strict=True):
        assert_close(x, y, 1e-9)


def test_batches_of_batches_and_float32(monkeypatch):
    robot = flying_arm()
    arguments = states(robot, 6)

    def linearize(*x):
        return soa.linearize_forward_dynamics(robot, *x)

    one_by_one = jax.lax.map(lambda x: linearize(*x), arguments)
    nested = jax.jit(jax.vmap(jax.vmap(linearize)))
    pairs = jax.tree.map(lambda x: x.reshape(2, 3, -1), arguments)
    assert MARK not in nested.lower(*pairs).as_text()
    for x, y in zip(nested(*pairs), one_by_one, strict=True):
        assert_close(x.reshape(y.shape), y, 1e-10)
    single = robot.astype(jnp.float32)
    found = jax.jit(jax.vmap(lambda *x: soa.linearize_forward_dynamics(single, *x)))(
        *(x.astype(jnp.float32) for x in arguments)
    )
    for x, y in zip(found, one_by_one, strict=True):
        assert x.dtype == jnp.float32
        assert_close(x, y, 1e-4)
    monkeypatch.setenv(OFF, "0")
    plain = jax.jit(jax.vmap(lambda *x: linearize(*x)))
    assert MARK not in plain.lower(*arguments).as_text()
    for x, y in zip(plain(*arguments), one_by_one, strict=True):
        assert_close(x, y, 1e-10)


@pytest.mark.parametrize("name", ROBOTS)
def test_matrices_of_euler_steps_against_forward_mode(name):
    robot = ROBOTS[name]()
    q, v, tau = states(robot, 4)
    A, B = jax.jit(jax.vmap(lambda *x: linearize_step(robot, *x, 0.05)))(q, v, tau)

    def moved(q, v, tau, dx, dtau):
        arrived = semi_implicit_euler(robot, q, v, tau, 0.05)[0]
        dq, dv = dx[: robot.nv], dx[robot.nv :]
        q, v = semi_implicit_euler(robot, robot.integrate(q, dq), v + dv, tau + dtau, 0.05)
        return jnp.concatenate([robot.difference(jax.lax.stop_gradient(arrived), q), v])

    still = jnp.zeros(robot.nv)
    exact = jax.vmap(lambda *x: jax.jacfwd(moved, argnums=(3, 4))(*x, jnp.concatenate([still, still]), still))
    for x, y in zip((A, B), jax.jit(exact)(q, v, tau), strict=True):
        assert_close(x, y, 1e-9)
