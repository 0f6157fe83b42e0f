"""First and second derivatives of every smooth public function, by all four compositions of forward and reverse mode.

Each function becomes a number that depends on two: how far state and model are moved along two directions. Its Hessian
is then (2, 2), however large the robot. The programs that JAX makes of the derivatives are computed by NumPy, which
saves compiling them; those of a few functions are compiled as well.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.every_function import TABLE
from helpers.function_states import MODELS, states
from helpers.numpy_programs import evaluated
from helpers.transformed import by_numpy, traced_once

import jaxsoa as soa

SLOW = pytest.mark.slow
EVERYTHING = "JAXSOA_EVERY_COMBINATION" in os.environ
"""Whether to compile the compositions of more than one function."""
ALL = [SLOW, pytest.mark.skipif(not EVERYTHING, reason="much compiling: set JAXSOA_EVERY_COMBINATION")]
ALONG, ACROSS = jnp.asarray([0.8, 0.6]), jnp.asarray([-0.3, 1.1])


def forward(f: Callable, direction) -> Callable:
    return lambda x: jax.jvp(f, (x,), (direction,))[1]


def reverse(f: Callable, direction) -> Callable:
    return lambda x: jax.grad(f)(x) @ direction


COMPOSITIONS = {
    "forward of forward": (forward, forward),
    "forward of reverse": (forward, reverse),
    "reverse of forward": (reverse, forward),
    "reverse of reverse": (reverse, reverse),
}


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


def second(f: Callable, how: str) -> Callable:
    """Its second derivative along two directions, a number."""
    outer, inner = COMPOSITIONS[how]
    return outer(inner(f, ALONG), ACROSS)


def all_second(f: Callable) -> dict[str, Callable]:
    """The second derivatives in all compositions, from programs of the first that are made once."""
    once = jax.jit(f)
    first = {way: jax.jit(way(once, ALONG)) for way in (forward, reverse)}
    return {how: outer(first[inner], ACROSS) for how, (outer, inner) in COMPOSITIONS.items()}


def program_of(f: Callable, x) -> Callable:
    """The function by its program, made once and computed by NumPy."""
    program = jax.make_jaxpr(f)(x)
    return lambda x: evaluated(program, [x])[0]


def differences(gradient: Callable, x) -> float:
    """The second derivative by central differences of the gradient, of fourth order in their step."""

    def slope(step):
        return (gradient(x + step * ACROSS) - gradient(x - step * ACROSS)) @ ALONG / (2 * step)

    return float(4 * slope(1e-3) - slope(2e-3)) / 3


def assert_the_gradient(f: Callable, gradient: Callable, x, what: str) -> None:
    """The first derivative against central differences of values: second ones are only compared with its own."""

    def slope(step):
        return (f(x + step * ALONG) - f(x - step * ALONG)) / (2 * step)

    found, expected = float(gradient(x) @ ALONG), float(4 * slope(1e-3) - slope(2e-3)) / 3
    assert abs(found - expected) < 1e-6 * max(abs(found), 1e-2), f"{what}: gradient {found}, differences {expected}"


def assert_alike(found: dict[str, float], expected: float, what: str) -> None:
    """Equal to one another to the rounding of second derivatives, and to differences to theirs."""
    first = float(next(iter(found.values())))
    assert np.isfinite(first), f"{what}: {first}"
    scale = max(abs(first), 1e-2)
    assert abs(first - expected) < 1e-6 * scale, f"{what}: {first} where differences of the gradient are {expected}"
    for how, value in found.items():
        error = abs(float(value) - first) / scale
        assert error < 1e-9, f"{what}: {how} deviates by {error:.1e}"


def problem_of(name: str, model: str):
    made = MODELS[model](jnp.float64)
    return as_number(name, made, jax.tree.map(lambda x: x[0], states(made, 1)))


EVERY_DAY = ("soa.forward_dynamics", "soa.inverse_dynamics", "soa.solve_mass_matrix")
SMOOTH = [name for name, entry in TABLE.items() if entry.smooth]
FACTORS = jnp.arange(1.0, 3.0)


def looped(f: Callable, checkpoint: bool) -> Callable:
    """A loop around the function, which with `checkpoint` forgets what derivatives need and computes it again."""
    body = jax.checkpoint(f) if checkpoint else f
    return lambda x: jax.lax.scan(lambda total, k: (total + body(x * k), None), jnp.zeros(()), FACTORS)[0]


def parameters() -> list:
    """Functions of a tree on two links, one of them on a spherical joint; some of them on a floating one too."""
    found = [(name, "small" if TABLE[name].on == "tree" else TABLE[name].on) for name in SMOOTH]
    found += [(name, "floating") for name in EVERY_DAY]
    return [pytest.param(*pair, marks=SLOW, id=", ".join(pair)) for pair in found]


@pytest.mark.parametrize(("name", "model"), parameters())
def test_compositions_of_both_modes_agree(name, model):
    """All four of the function, and of a loop around it, checkpointed and not."""
    f, x = jax.jit(problem_of(name, model)), jnp.zeros(2)
    gradient = program_of(jax.grad(f), x)
    assert_the_gradient(program_of(f, x), gradient, x, name)
    found = {how: float(by_numpy(second(f, how), x)) for how in COMPOSITIONS}
    assert_alike(found, differences(gradient, x), name)
    at_zero = next(iter(found.values())) * float(jnp.sum(FACTORS**2))  # f(k x) has k^2 times that of f(x)
    loops = {c: all_second(looped(f, c)) for c in (True, False)}
    found = {f"{how}, checkpoint={c}": by_numpy(g, x) for c, loop in loops.items() for how, g in loop.items()}
    assert_alike(found, at_zero, f"a loop around {name}")


@pytest.mark.parametrize("name", [EVERY_DAY[0], *(pytest.param(name, marks=ALL) for name in EVERY_DAY[1:])])
@pytest.mark.slow
def test_compiled_compositions_of_both_modes_agree(name):
    """The function, a loop around it, and a loop around its derivatives."""
    f, x = problem_of(name, "small"), jnp.zeros(2)
    # One program each: together they compile far longer than one after the other.
    found = {how: jax.jit(second(f, how))(x) for how in COMPOSITIONS}
    expected = float(by_numpy(second(f, "forward of reverse"), x))
    assert_alike(found, expected, name)

    def inside(how):
        return lambda x: jnp.sum(jax.lax.map(lambda k: second(lambda x: f(k * x), how)(x), FACTORS))

    found = {how: jax.jit(second(looped(f, False), how))(x) for how in COMPOSITIONS}
    found |= {f"{how}, inside": jax.jit(inside(how))(x) for how in COMPOSITIONS}
    assert_alike(found, expected * float(jnp.sum(FACTORS**2)), "the loop")


@pytest.mark.slow
@pytest.mark.parametrize("checkpoint", [True, False, "segments"])
@pytest.mark.parametrize("integrator", sorted(soa.simulate.INTEGRATORS))
def test_all_compositions_agree_through_a_rollout(checkpoint, integrator):
    robot = soa.models.pendulum(2)
    q, v = jnp.asarray([0.3, -0.7]), jnp.asarray([0.5, 1.0])

    def f(x):
        path = soa.rollout(robot, q, v + x, None, 0.05, steps=4, checkpoint=checkpoint, integrator=integrator)
        return jnp.sum(path.v) + jnp.sum(path.q**2)

    x = jnp.zeros(2)
    found = {how: by_numpy(second(f, how), x) for how in COMPOSITIONS}
    assert_alike(found, differences(program_of(jax.grad(f), x), x), "rollout")


@pytest.mark.slow
def test_whole_hessians_in_all_compositions():
    """Matrices, whose columns JAX computes as a batch."""
    f, x = problem_of("soa.forward_dynamics", "pendulum"), jnp.zeros(2)
    ways = (jax.jacfwd, jax.jacrev)
    found = [np.asarray(jax.jit(outer(inner(f)))(x)) for outer in ways for inner in ways]
    scale = np.abs(found[0]).max()
    assert scale > 1e-2
    for other in found:
        np.testing.assert_allclose(other, found[0], rtol=0, atol=1e-9 * scale)
        np.testing.assert_allclose(other, other.T, rtol=0, atol=1e-9 * scale)


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
