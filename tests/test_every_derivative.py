"""Second derivatives of every smooth public function, by all four compositions of forward and reverse mode.

Each function becomes a number that depends on two: how far state and model are moved along two directions. Its Hessian
is then (2, 2), however large the robot.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.every_function import CORE, TABLE
from helpers.function_states import MODELS, states
from helpers.transformed import traced_once

import jaxsoa as soa

FORWARD, REVERSE = jax.jacfwd, jax.jacrev
COMPOSITIONS = [(outer, inner) for outer in (FORWARD, REVERSE) for inner in (FORWARD, REVERSE)]
SLOW = pytest.mark.slow
ALL = [SLOW, pytest.mark.skipif("JAXSOA_EVERY_COMBINATION" not in os.environ, reason="an hour of compiling: by hand")]


def is_float(x) -> bool:
    return jnp.issubdtype(x.dtype, jnp.floating)


def moved(tree, x, seed: int, size: float):
    """Every floating leaf moved along two random directions, by x (2,) of them."""
    rng = np.random.default_rng(seed)

    def move(leaf):
        if not is_float(leaf):
            return leaf
        ways = size * rng.normal(size=(2, *leaf.shape))
        return leaf + x[0] * ways[0] + x[1] * ways[1]

    return jax.tree.map(move, tree)


def weighed(tree):
    """All floating results as one number; what is infinite, as limits may be, is left out."""
    rng = np.random.default_rng(0)
    leaves = [leaf for leaf in jax.tree.leaves(tree) if is_float(leaf)]
    return sum(jnp.sum(jnp.where(jnp.isfinite(leaf), leaf, 0) * rng.normal(size=leaf.shape)) for leaf in leaves)


def as_number(name: str, model, state) -> Callable:
    """The function as one of x (2,): masses, armatures and the whole state move."""

    def f(x):
        heavier = jax.tree_util.tree_map_with_path(
            lambda path, leaf: leaf * (1 + 0.1 * x[1]) if str(path[-1]) == ".mass" else leaf, model
        )
        return weighed(traced_once(name)(heavier, moved(state, x, 1, 0.1)))

    return f


def hessians(f: Callable, x) -> list:
    return [outer(inner(f))(x) for outer, inner in COMPOSITIONS]


def assert_alike(found: list, what: str) -> None:
    """Equal to one another and symmetric, to the rounding of second derivatives; and not all zero by accident."""
    first = np.asarray(found[0])
    assert np.isfinite(first).all(), f"{what}: {first}"
    scale = max(np.abs(first).max(), 1e-2)
    for other, (outer, inner) in zip(found, COMPOSITIONS, strict=True):
        error = np.abs(np.asarray(other) - first).max() / scale
        assert error < 1e-9, f"{what}: {outer.__name__} of {inner.__name__} deviates by {error:.1e}"
    assert np.abs(first - first.T).max() / scale < 1e-9, f"{what}: the Hessian is not symmetric"


def problem_of(name: str, model: str):
    made = MODELS[model](jnp.float64)
    return as_number(name, made, jax.tree.map(lambda x: x[0], states(made, 1)))


EVERY_DAY = ("soa.forward_dynamics", "soa.inverse_dynamics", "soa.solve_mass_matrix")
SMOOTH = [name for name, entry in TABLE.items() if entry.smooth]


def parameters() -> list:
    """(function, model): the pendulum for every function of a tree, a floating tree for those of every day."""
    small = [(n, "pendulum" if TABLE[n].on == "tree" else TABLE[n].on) for n in SMOOTH]
    marked = [pytest.param(*case, marks=SLOW if case[0] in EVERY_DAY else ALL) for case in small]
    return marked + [pytest.param(n, "floating", marks=ALL) for n in CORE if n in EVERY_DAY]


@pytest.mark.parametrize(("name", "model"), parameters())
def test_all_compositions_of_both_modes_agree(name, model):
    f = problem_of(name, model)
    assert_alike(jax.jit(lambda x: hessians(f, x))(jnp.zeros(2)), name)


@pytest.mark.parametrize("name", [pytest.param("soa.forward_dynamics", marks=SLOW)])
def test_all_compositions_agree_inside_a_scan(name):
    """The Hessians of a loop around the function, and a loop around its Hessians."""
    f = problem_of(name, "pendulum")

    def looped(x):
        return jax.lax.scan(lambda total, k: (total + f(x * k), None), jnp.zeros(()), jnp.arange(1.0, 3.0))[0]

    @jax.jit
    def both(x):
        inside = jax.lax.map(lambda k: hessians(lambda x: f(k * x), x), jnp.arange(1.0, 3.0))
        return hessians(looped, x), [jnp.sum(h, axis=0) for h in inside]

    around, inside = both(jnp.zeros(2))
    assert_alike(around, name)
    assert_alike([around[0], *inside[1:]], name)


@pytest.mark.slow
@pytest.mark.parametrize("checkpoint", [True, pytest.param(False, marks=ALL), pytest.param("segments", marks=ALL)])
@pytest.mark.parametrize(
    "integrator",
    ["semi_implicit_euler", *(pytest.param(x, marks=ALL) for x in ("rk4", "implicit_midpoint"))],
)
def test_all_compositions_agree_through_a_rollout(checkpoint, integrator):
    robot = soa.models.pendulum(2)
    q, v = jnp.asarray([0.3, -0.7]), jnp.asarray([0.5, 1.0])

    def f(x):
        path = soa.rollout(robot, q, v + x, None, 0.05, steps=4, checkpoint=checkpoint, integrator=integrator)
        return jnp.sum(path.v) + jnp.sum(path.q**2)

    step = 1e-5

    @jax.jit
    def everything(x):
        ways = step * jnp.eye(2)
        gradient = jax.grad(f)
        slopes = jax.lax.map(lambda d: (gradient(x + d) - gradient(x - d)) / (2 * step), ways)
        return hessians(f, x), slopes

    found, differences = everything(jnp.zeros(2))
    assert_alike(found, "rollout")
    np.testing.assert_allclose(found[0], differences, atol=1e-7 * np.abs(differences).max())


def second_difference(f: Callable, x, a, b) -> float:
    """The second derivative along a and b, of fourth order in their lengths."""

    def coarse(k):
        return sum(s * t * f(x + k * (s * a + t * b)) for s in (1, -1) for t in (1, -1)) / (4 * k**2)

    return (4 * coarse(1) - coarse(2)) / 3


def test_the_hessian_of_a_rollout():
    """Forward over reverse, against second differences."""
    robot = soa.models.pendulum(2)
    q, v = jnp.asarray([0.3, -0.7]), jnp.asarray([0.5, 1.0])

    def last(v):
        return jnp.sum(soa.rollout(robot, q, v, None, 0.05, steps=2, record="final").v ** 2)

    value = jax.jit(last)
    h = 1e-3
    expected = [[second_difference(value, v, h * a, h * b) / h**2 for a in np.eye(2)] for b in np.eye(2)]
    np.testing.assert_allclose(jax.jit(jax.hessian(last))(v), expected, atol=1e-8)  # the accuracy of differences
