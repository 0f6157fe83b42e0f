"""Gather and scatter: the two recursions of the spatial operator algebra, over any tree, by `lax.scan`.

This is the only place of the package that loops over links. An algorithm is a small body for one link, handed to
`scatter` (base to tip: the papers' anticausal sweep, phi*) or `gather` (tip to base: causal, phi).

`sweep_plan` says how a tree is laid out for a scan.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxsoa.indexing import MAX_PIECES, take_rows
from jaxsoa.mesh_axes import keeping_axes, varying_like
from jaxsoa.sweep_plan import MAX_LISTED_CHILDREN, Run, SweepPlan, child_lists

PyTree = Any


def _take(tree: PyTree, index: np.ndarray) -> PyTree:
    """Rows of every leaf by an index known at compile time."""
    return jax.tree.map(lambda leaf: take_rows(leaf, index), tree)


def _unpack(plan: SweepPlan, ys: list[PyTree]) -> PyTree:
    """Results of the runs, each (depth, width, ...), or (depth, ...) of a single limb, in link order: stretches of a
    slot, where those are few."""
    pieces, limbs = plan.pieces, [run.is_limb for run in plan.runs]
    if len(pieces) > MAX_PIECES:
        flat = [
            y if limb else jax.tree.map(lambda y: y.reshape(-1, *y.shape[2:]), y)
            for y, limb in zip(ys, limbs, strict=True)
        ]
        joined = flat[0] if len(flat) == 1 else jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *flat)
        return jax.tree.map(lambda x: jnp.take(x, plan.link_position, axis=0, mode="clip"), joined)

    def joined_leaf(*leaves):
        stretches = ((leaves[run][start : start + count], limbs[run], slot) for run, slot, start, count in pieces)
        parts = [rows if limb else rows[:, slot] for rows, limb, slot in stretches]
        return parts[0] if len(parts) == 1 else jnp.concatenate(parts)

    return jax.tree.map(joined_leaf, *ys)


def scatter(plan: SweepPlan, body: Callable, base: PyTree, xs: PyTree) -> PyTree:
    """Base to tip: every link from its parent. Returns the links' results `ys`, stacked in link order.

    `body(parent_carry, x) -> (carry, y)` sees one link; `base` is the carry of the base. The specification:

        for k in range(n_links):
            carry[k], y[k] = body(base if parents[k] < 0 else carry[parents[k]], x[k])
    """
    if plan.n_links == 0:
        raise ValueError("A sweep needs at least one link.")
    body, base = keeping_axes(body), varying_like(base, xs)
    if plan.is_chain:
        return lax.scan(body, base, xs)[1]
    each = jax.vmap(body)
    carry = _one_slot(base)
    ys = []
    for run in plan.runs:
        carry = _take(carry, run.parent_slots[0])
        if run.is_limb:
            carry, y = _scan(body, _only(carry), _take(xs, run.slots[:, 0]), run.depth, reverse=False)
            carry = _one_slot(carry)
            ys.append(y)
            continue
        x = _take(xs, run.slots)
        index = None
        if not run.straight:
            index = run.parent_slots.copy()
            index[0] = np.arange(run.width)  # the first level was indexed above, from the run before
            index = jnp.asarray(index)

        def step(carry, inputs):
            parent_slots, x = inputs
            if parent_slots is not None:
                carry = jax.tree.map(lambda c: c[parent_slots], carry)
            return each(carry, x)

        inputs = (index, x)
        carry, y = _scan(step, carry, inputs, run.depth, reverse=False)
        ys.append(y)
    return _unpack(plan, ys)


def gather(plan: SweepPlan, body: Callable, zero: PyTree, xs: PyTree) -> tuple[PyTree, PyTree]:
    """Tip to base: every link from the sum over its children. Returns (sum that reaches the base, `ys`).

    `body(children_sum, x) -> (contribution, y)` sees one link; `zero` has the shape of a contribution, and is what a
    tip gets (of a chain, it may be what hangs on the tip). The specification:

        total = {k: zero for k in (-1, *range(n_links))}
        for k in reversed(range(n_links)):
            contribution, y[k] = body(total[k], x[k])
            total[parents[k]] += contribution
        return total[-1], y
    """
    if plan.n_links == 0:
        raise ValueError("A sweep needs at least one link.")
    body, zero = keeping_axes(body), varying_like(zero, xs)
    if plan.is_chain:
        return lax.scan(body, zero, xs, reverse=True)
    each = jax.vmap(body)
    ys: list[PyTree] = []
    deeper: tuple[Run, PyTree] | None = None
    for number in reversed(range(len(plan.runs))):
        run = plan.runs[number]
        if deeper is None:
            total = jax.tree.map(partial(_repeated, run.width), zero)
        else:
            child_run, contribution = deeper
            total = _sum_into_parents(contribution, child_run.parent_slots[0], child_run.valid[0], run.width)
        if run.is_limb:
            contribution, y = _scan(body, _only(total), _take(xs, run.slots[:, 0]), run.depth, reverse=True)
            ys.append(y)
            deeper = (run, _one_slot(contribution))
            continue
        x = _take(xs, run.slots)
        own, sources, added, lists = None, [], [], None
        if run.straight:  # the child sits in its parent's slot; padding below a leaf must not reach it
            own = None if run.has_child.all() else jnp.asarray(run.has_child)
            sources, added = [source for source, _ in run.added], [jnp.asarray(at) for _, at in run.added]
        else:
            lists = jax.tree.map(jnp.asarray, child_lists(run))

        def step(total, inputs, sources=sources):
            own, added, children, x = inputs
            if children is not None:
                return each(_sum_children(total, children), x)
            mine = total if own is None else _masked(own, total)
            for source, at in zip(sources, added, strict=True):
                mine = jax.tree.map(jnp.add, mine, _masked(at, _take(total, source)))
            return each(mine, x)

        inputs = (own, added, lists, x)
        contribution, y = _scan(step, total, inputs, run.depth, reverse=True)
        ys.append(y)
        deeper = (run, contribution)
    assert deeper is not None
    root_run, contribution = deeper
    root = _sum_into_parents(contribution, np.zeros(root_run.width, int), root_run.valid[0], 1)
    return _only(root), _unpack(plan, ys[::-1])


def _only(tree: PyTree) -> PyTree:
    """What is in the only slot."""
    return jax.tree.map(lambda leaf: leaf[0], tree)


def _one_slot(tree: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], tree)


def _repeated(width: int, leaf: jax.Array) -> jax.Array:
    return jnp.broadcast_to(leaf, (width, *jnp.shape(leaf)))


def _scan(step: Callable, carry: PyTree, inputs: PyTree, length: int, *, reverse: bool) -> tuple[PyTree, PyTree]:
    if length == 1:  # one level needs no loop, and compiles faster without
        carry, y = step(carry, jax.tree.map(lambda leaf: leaf[0], inputs))
        return carry, jax.tree.map(lambda leaf: leaf[None], y)
    return lax.scan(step, carry, inputs, length=length, reverse=reverse)


def _masked(keep: jax.Array, tree: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf: jnp.where(keep.reshape(-1, *(1,) * (leaf.ndim - 1)), leaf, 0), tree)


def _sum_into_parents(contribution: PyTree, parent_slots: np.ndarray, valid: np.ndarray, width: int) -> PyTree:
    """Sum of children per parent, indices known at compile time."""
    if valid.all() and len(parent_slots) == width and np.array_equal(parent_slots, np.arange(width)):
        return contribution
    children = [np.flatnonzero(valid & (parent_slots == parent)) for parent in range(width)]
    listed = width <= MAX_PIECES and max(map(len, children)) <= MAX_LISTED_CHILDREN

    def add(leaf: jax.Array) -> jax.Array:
        if width == 1:
            return jnp.sum(take_rows(leaf, children[0]), axis=0, keepdims=True)
        if listed:
            zero = jnp.zeros_like(leaf[0])
            return jnp.stack([sum((leaf[i] for i in own[1:]), leaf[own[0]]) if len(own) else zero for own in children])
        segments = jnp.asarray(np.where(valid, parent_slots, width))
        return jax.ops.segment_sum(leaf, segments, num_segments=width + 1)[:width]

    return jax.tree.map(add, contribution)


def _sum_children(contribution: PyTree, children: jax.Array | tuple[jax.Array]) -> PyTree:
    def add(leaf: jax.Array) -> jax.Array:
        if isinstance(children, tuple):
            return jax.ops.segment_sum(leaf, children[0], num_segments=leaf.shape[0] + 1)[:-1]
        padded = jnp.concatenate([leaf, jnp.zeros_like(leaf[:1])])
        return sum((padded[children[:, c]] for c in range(1, children.shape[1])), padded[children[:, 0]])

    return jax.tree.map(add, contribution)
