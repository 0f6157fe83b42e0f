"""gather and scatter against the plain loops of their docstrings, on every shape of tree; values, gradients, dtypes."""

from __future__ import annotations

from functools import cache

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

from jaxsoa.sweep_plan import MAX_LISTED_CHILDREN, MAX_RUNS, SweepPlan
from jaxsoa.sweeps import gather, scatter


def scatter_loop(parents, body, base, xs):
    """The specification in the docstring of `scatter`."""
    carry, ys = {-1: base}, []
    for k, parent in enumerate(parents):
        carry[k], y = body(carry[parent], jax.tree.map(lambda x, k=k: x[k], xs))
        ys.append(y)
    return jax.tree.map(lambda *rows: np.stack(rows), *ys)


def gather_loop(parents, body, zero, xs):
    """The specification in the docstring of `gather`."""
    total = dict.fromkeys((-1, *range(len(parents))), zero)
    ys: list = [None] * len(parents)
    for k in reversed(range(len(parents))):
        contribution, ys[k] = body(total[k], jax.tree.map(lambda x, k=k: x[k], xs))
        total[parents[k]] = jax.tree.map(np.add, total[parents[k]], contribution)
    return total[-1], jax.tree.map(lambda *rows: np.stack(rows), *ys)


def body(carry, x):
    """Not linear, not symmetric in its two carries, and sensitive to which link it sees."""
    matrix, scale = x["matrix"], x["scale"]
    first, second = carry
    first = matrix @ (first + scale) * 0.5
    second = 0.3 * second * scale + first[0] * first[1] + 1.0
    return (first, second), {"y": first * second, "z": second - scale}


def inputs(n: int, seed: int = 0):
    rng = np.random.default_rng(seed)
    xs = {"matrix": rng.normal(size=(n, 2, 2)), "scale": rng.normal(size=n)}
    return xs, (rng.normal(size=2), rng.normal())


ZERO = (np.zeros(2), np.float64(0))


def tree_of_pairs(depth: int) -> tuple[int, ...]:
    """Branches at every depth: a backbone whose every link carries a leaf beside the next one."""
    parents, tip = [], -1
    for _ in range(depth):
        parents += [tip, tip]
        tip = len(parents) - 2
    return tuple(parents)


FIXED_TREES = {
    "one link": (-1,),
    "chain": tuple(range(-1, 11)),
    "star": (-1,) * 9,
    "two equal legs": (-1, 0, 1, 0, 3),
    "legs of different length": (-1, 0, 1, 2, 0, 4, 0),
    "four legs of a quadruped": (-1, 0, 1, 2, 0, 4, 5, 0, 7, 8, 0, 10, 11),
    "a hand on an arm": (-1, 0, 1, 2, 3, 3, 3, 4, 5, 6, 7, 8, 9),
    "two roots": (-1, 0, -1, 2, 3),
    "interleaved branches": (-1, -1, 0, 1, 2, 3, 4, 5),
    "branches at many depths": tree_of_pairs(9),
    "many children at many depths": tuple(
        p for tip in range(0, 6 * (MAX_LISTED_CHILDREN + 2), MAX_LISTED_CHILDREN + 2)
        for p in [tip - (MAX_LISTED_CHILDREN + 2) if tip else -1] * (MAX_LISTED_CHILDREN + 2)
    ),
    "complete binary tree": (-1, *((k - 1) // 2 for k in range(1, 63))),
}  # fmt: skip


@cache
def compiled(parents: tuple[int, ...]):
    plan = SweepPlan(parents)
    return jax.jit(lambda base, xs: (scatter(plan, body, base, xs), gather(plan, body, ZERO, xs)))


def check(parents: tuple[int, ...], seed: int = 0) -> None:
    xs, base = inputs(len(parents), seed)
    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-11)  # noqa: E731
    outward, inward = compiled(parents)(base, xs)
    jax.tree.map(close, outward, scatter_loop(parents, body, base, xs))
    jax.tree.map(close, inward, gather_loop(parents, body, ZERO, xs))


@pytest.mark.parametrize("parents", FIXED_TREES.values(), ids=FIXED_TREES)
def test_sweeps_equal_their_reference_loops(parents):
    check(parents)


def test_the_fixed_trees_cover_every_way_of_sweeping():
    plans = {name: SweepPlan(parents) for name, parents in FIXED_TREES.items()}
    assert len(plans["chain"].runs) == 1 and plans["chain"].runs[0].width == 1
    assert [run.straight for run in plans["four legs of a quadruped"].runs] == [True, True]
    many = plans["branches at many depths"]
    assert not any(run.straight for run in many.runs) and len(many.runs) <= MAX_RUNS
    bushy = np.bincount([p for p in FIXED_TREES["many children at many depths"] if p >= 0])
    assert bushy.max() > MAX_LISTED_CHILDREN
    assert not any(run.straight for run in plans["many children at many depths"].runs)


@st.composite
def trees(draw):
    """parents of a random tree: each link on the base, the last link, or any link before it."""
    n = draw(st.integers(1, 24))
    shape = draw(st.sampled_from(["any", "deep", "bushy"]))
    parents = [-1]
    for k in range(1, n):
        low = {"any": -1, "deep": max(-1, k - 3), "bushy": -1}[shape]
        high = {"any": k - 1, "deep": k - 1, "bushy": min(k - 1, 2)}[shape]
        parents.append(draw(st.integers(low, high)))
    return tuple(parents)


@settings(max_examples=6)
@given(trees(), st.integers(0, 1000))
def test_sweeps_equal_their_reference_loops_on_random_trees(parents, seed):
    check(parents, seed)


@pytest.mark.slow
@settings(max_examples=100)
@given(trees(), st.integers(0, 1000))
def test_sweeps_equal_their_reference_loops_on_many_random_trees(parents, seed):
    check(parents, seed)


@settings(max_examples=200)
@given(trees())
def test_plans_hold_every_link_once_and_know_its_parent(parents):
    plan = SweepPlan(parents)
    seen = np.concatenate([run.slots[run.valid] for run in plan.runs])
    assert sorted(seen.tolist()) == list(range(len(parents)))
    depth = [0] * len(parents)
    for k, parent in enumerate(parents):
        depth[k] = 0 if parent < 0 else depth[parent] + 1
    assert plan.sequential_steps == max(depth) + 1
    assert len(plan.runs) <= MAX_RUNS
    above = None
    for run in plan.runs:
        for d in range(run.depth):
            for slot in np.flatnonzero(run.valid[d]):
                link = run.slots[d, slot]
                if above is not None:
                    assert above[run.parent_slots[d, slot]] == parents[link]
                else:
                    assert parents[link] == -1
            above = run.slots[d]


@pytest.mark.parametrize("name", ["chain", "legs of different length", "branches at many depths"])
def test_gradients_of_sweeps_equal_finite_differences(name):
    parents = FIXED_TREES[name]
    plan, n = SweepPlan(parents), len(parents)
    xs, base = inputs(n)
    weights = np.random.default_rng(5).normal(size=(n, 2))

    def loss(outward, inward):
        total, (back,) = inward[0], (inward[1],)
        return jnp.sum(outward["y"] * weights) + jnp.sum(back["y"] * weights) + jnp.sum(total[0]) + total[1]

    @jax.jit
    def ours(base, xs):
        return loss(scatter(plan, body, base, xs), gather(plan, body, ZERO, xs))

    gradient = jax.jit(jax.grad(ours, argnums=(0, 1)))(base, xs)
    rng = np.random.default_rng(6)
    for _ in range(3):
        direction = jax.tree.map(lambda x: rng.normal(size=np.shape(x)), (base, xs))

        def along(t, direction=direction):
            moved = jax.tree.map(lambda x, step, t=t: x + t * step, (base, xs), direction)
            return float(
                loss(scatter_loop(parents, body, *moved), gather_loop(parents, body, ZERO, moved[1]))
            )  # of the plain loops: an independent oracle

        h = 1e-5
        expected = (8 * (along(h) - along(-h)) - (along(2 * h) - along(-2 * h))) / (12 * h)
        actual = sum(
            np.sum(g * dx) for g, dx in zip(jax.tree.leaves(gradient), jax.tree.leaves(direction), strict=True)
        )
        np.testing.assert_allclose(actual, expected, rtol=1e-8)


@pytest.mark.parametrize("name", ["chain", "legs of different length", "branches at many depths", "star"])
def test_sweeps_keep_the_dtype_they_are_given(name):
    parents = FIXED_TREES[name]
    plan = SweepPlan(parents)
    xs, base = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), inputs(len(parents)))
    zero = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), ZERO)
    outward = jax.eval_shape(lambda: scatter(plan, body, base, xs))
    inward = jax.eval_shape(lambda: gather(plan, body, zero, xs))
    assert {leaf.dtype for leaf in jax.tree.leaves((outward, inward))} == {jnp.dtype("float32")}


def test_nan_in_a_link_reaches_only_what_hangs_on_it():
    """Padding must not carry NaN from one branch into another, in values or in gradients."""
    parents = FIXED_TREES["legs of different length"]  # branches 1-2-3, 4-5 and 6 on link 0
    plan = SweepPlan(parents)
    xs, base = inputs(len(parents))
    xs["scale"][3] = np.nan
    y = np.asarray(jax.jit(lambda: scatter(plan, body, base, xs))()["y"])
    assert np.isnan(y[3]).all() and np.isfinite(np.delete(y, 3, axis=0)).all()
    z = np.asarray(jax.jit(lambda: gather(plan, body, ZERO, xs))()[1]["y"])
    assert np.isnan(z[[0, 1, 2, 3]]).any(axis=1).all() and np.isfinite(z[[4, 5, 6]]).all()


def test_parents_must_come_before_children():
    with pytest.raises(ValueError, match="link 0 has parent 1"):
        SweepPlan((1, -1))
    with pytest.raises(ValueError, match="at least one link"):
        scatter(SweepPlan(()), body, ZERO, {})


def test_plans_of_equal_trees_are_equal():
    assert SweepPlan((-1, 0)) == SweepPlan([-1, 0]) and hash(SweepPlan((-1, 0))) == hash(SweepPlan([-1, 0]))
    assert SweepPlan((-1, 0)) != SweepPlan((-1, -1))
