"""Compile time does not depend on the number of links, in its deterministic form; long chains are exact."""

from __future__ import annotations

import jax
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


def equations(jaxpr) -> int:
    """Equations of a jaxpr, those of loops and calls within it included."""
    total = 0
    for equation in jaxpr.eqns:
        total += 1
        for parameter in jax.tree.leaves(equation.params, is_leaf=lambda x: hasattr(x, "eqns") or hasattr(x, "jaxpr")):
            inner = getattr(parameter, "jaxpr", parameter)
            if hasattr(inner, "eqns"):
                total += equations(inner)
    return total


@pytest.mark.parametrize("batch", [False, True], ids=["one state", "batch"])
def test_the_program_is_as_long_for_512_links_as_for_8(batch):
    sizes = {}
    for n in (8, 512):
        run, arguments = program(soa.models.chain(n), batch)
        lowered = jax.jit(run).lower(*arguments).as_text()
        sizes[n] = (equations(jax.make_jaxpr(run)(*arguments).jaxpr), lowered.count("\n"), lowered.count("stablehlo"))
    assert sizes[8] == sizes[512]
    assert sizes[8][0] > 100  # something was counted


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

    sizes = []
    for n in (64, 256):
        run, arguments = program(comb(n), False)
        sizes.append(equations(jax.make_jaxpr(run)(*arguments).jaxpr))
    assert sizes[0] == sizes[1]


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
