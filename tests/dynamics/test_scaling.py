"""Compile time does not depend on the number of links, in its deterministic form; long chains are exact."""

from __future__ import annotations

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsoa as soa


def program(robot, batch: bool):
    def run(q, v, tau):
        return soa.forward_dynamics(robot, q, v, tau)

    x = jnp.zeros(robot.nv)
    arguments = (jnp.zeros(robot.nq), x, x)
    if batch:
        run, arguments = jax.vmap(run), tuple(jnp.zeros((8, len(argument))) for argument in arguments)
    return run, arguments


def length(robot, batch: bool) -> int:
    """Operations of the program as XLA gets it; here, forward dynamics is one call of a kernel instead."""
    run, arguments = program(robot, batch)
    return jax.export.export(jax.jit(run))(*arguments).mlir_module().count("stablehlo")


SLOW = pytest.mark.slow


@pytest.mark.parametrize("batch", [False, True], ids=["one state", "batch"])
def test_the_program_is_as_long_for_1024_links_as_for_256(batch):
    """As XLA gets it; that of a kernel: tests/kernels/test_rows.py."""
    sizes = {n: length(soa.models.chain(n), batch) for n in (256, 1024)}
    # Arrays of more than a thousand elements are handed to a kernel one by one: a few operations more.
    assert abs(sizes[256] - sizes[1024]) <= 30
    assert sizes[256] > 300  # something was counted


def test_the_program_of_a_deep_tree_does_not_grow_either():
    """A backbone with a leaf on every link branches at every depth: indexed runs, still a bounded number of them."""

    def comb(n: int) -> soa.Multibody:
        parents = [-1 if k == 0 else k - 1 if k % 2 else k - 2 for k in range(n)]
        rows = np.arange(n)
        return soa.from_arrays(
            parents,
            "revolute",
            position=np.tile([0.1, 0.2, 0.3], (n, 1)),
            axis=np.eye(3)[rows % 3],
            mass=np.ones(n),
            com=np.zeros((n, 3)),
            inertia=np.tile(np.eye(3) * 0.01, (n, 1, 1)),
        )

    sizes = [length(comb(n), False) for n in (256, 512)]
    assert abs(sizes[0] - sizes[1]) <= 30  # as above


@pytest.mark.parametrize("n", [512, pytest.param(4096, marks=pytest.mark.slow)])
def test_long_chains_round_trip(n):
    robot = soa.models.chain(n)
    rng = np.random.default_rng(0)
    # Gentle bends and rates: with unit rates the torques at the base of so long a chain grow beyond all measure.
    q, v, tau = (jnp.asarray(x) for x in (rng.normal(size=n), rng.normal(size=n) / n, rng.normal(size=n)))

    @jax.jit
    def residual(q, v, tau):
        a = soa.forward_dynamics(robot, q, v, tau)
        back = soa.inverse_dynamics(robot, q, v, a)
        return jnp.max(jnp.abs(back - tau)), jnp.max(jnp.abs(soa.bias_force(robot, q, v))), a

    error, scale, a = residual(q, v, tau)
    assert np.isfinite(a).all()
    assert error < 1e-8 * scale, (error, scale)


@pytest.mark.parametrize("way", ["alone", "batch", *(pytest.param(way, marks=SLOW) for way in ("parallel", "fd4"))])
@pytest.mark.parametrize("n", [64, pytest.param(512, marks=SLOW)])
def test_float32_keeps_five_digits_on_long_chains(n, way):
    """Random bends, rates and torques, as in the benchmarks; the reference is float64 with the same rounded numbers."""
    robot = soa.models.chain(n).astype(jnp.float32)
    states = [jnp.asarray(x, jnp.float32) for x in np.random.default_rng(0).uniform(-1, 1, (3, 4, n))]

    def dynamics(robot, states, way):
        def one(q, v, tau):
            return soa.forward_dynamics(robot, q, v, tau, method=way if way in ("parallel", "fd4") else "articulated")

        return jax.jit(jax.vmap(one) if way == "batch" else lambda *x: jax.lax.map(lambda x: one(*x), x))(*states)

    exact = dynamics(robot.astype(jnp.float64), [x.astype(jnp.float64) for x in states], "alone")
    found = dynamics(robot, states, way)
    assert found.dtype == jnp.float32
    assert np.max(np.abs(found - exact)) < 1e-5 * np.max(np.abs(exact))
