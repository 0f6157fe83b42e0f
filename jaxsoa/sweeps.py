"""Gather and scatter: the two recursions of the spatial operator algebra, over any tree, by `lax.scan`.

This is the only place of the package that loops over links. An algorithm is a small body for one link, handed to
`scatter` (base to tip: the papers' anticausal sweep, phi*) or `gather` (tip to base: causal, phi).

How a tree becomes a scan. Links of equal depth do not depend on each other, so a scan over depth carries one slot per
link of the widest level. The levels are cut into *runs*. In a straight run every link has at most one child and a
child sits in its parent's slot, so a step needs no indexing at all; a serial chain is one straight run of width one.
Cuts lie where the tree branches, and there the indices are compile-time constants. A tree that branches at many
depths would need many runs, each compiled on its own, so beyond `MAX_RUNS` it is cut by width only and every step
indexes its parents. Either way the number of compiled bodies is bounded, whatever the number of links.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxsoa.indexing import MAX_PIECES, take_rows

PyTree = Any

MAX_RUNS = 3
"""Above this many straight runs a tree is swept with indexed steps instead (compile time grows with the runs)."""

MAX_LISTED_CHILDREN = 4
"""Up to this many children a parent adds them by a list; above, by a segment sum (a star would make the list long)."""


@dataclasses.dataclass(frozen=True)
class _Run:
    """Consecutive levels swept by one scan of fixed width.

    slots[d, w]: the link in that slot (padding repeats a valid link; nothing ever reads its result).
    parent_slots[d, w]: its parent's slot in the level above; for d = 0, in the last level of the run before.
    """

    slots: np.ndarray
    parent_slots: np.ndarray
    valid: np.ndarray
    straight: bool

    @property
    def depth(self) -> int:
        return self.slots.shape[0]

    @property
    def width(self) -> int:
        return self.slots.shape[1]


class SweepPlan:
    """How to sweep one tree; static, made once from `parents` (parent index of each link, -1 for the base)."""

    def __init__(self, parents: Sequence[int]):
        self.parents = tuple(int(p) for p in parents)
        for link, parent in enumerate(self.parents):
            if not -1 <= parent < link:
                raise ValueError(f"Links must come after their parents: link {link} has parent {parent}.")
        self.runs = _plan_runs(self.parents)
        self.n_links = len(self.parents)
        order = np.concatenate([run.slots.ravel() for run in self.runs]) if self.runs else np.zeros(0, int)
        valid = np.concatenate([run.valid.ravel() for run in self.runs]) if self.runs else np.zeros(0, bool)
        position = np.zeros(self.n_links, int)
        position[order[valid]] = np.flatnonzero(valid)
        self.link_position = position  # where each link's result stands in the concatenated runs
        self.pieces = _pieces(self.runs, self.n_links)
        self._hash = hash(self.parents)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, SweepPlan) and self.parents == other.parents)

    def __repr__(self) -> str:
        shapes = ", ".join(f"{run.depth}x{run.width}{'' if run.straight else ' indexed'}" for run in self.runs)
        return f"SweepPlan({self.n_links} links; runs {shapes})"

    @property
    def is_chain(self) -> bool:
        return len(self.runs) == 1 and self.runs[0].width == 1

    @property
    def sequential_steps(self) -> int:
        """Number of steps one sweep takes one after another: the depth of the tree."""
        return sum(run.depth for run in self.runs)


def _pieces(runs: list[_Run], n_links: int) -> list[tuple[int, int, int, int]]:
    """Stretches (run, slot, first depth, count) of results that, one after another, are in link order."""
    place = {}
    for number, run in enumerate(runs):
        for d, w in zip(*np.nonzero(run.valid), strict=True):
            place[int(run.slots[d, w])] = (number, int(w), int(d))
    pieces: list[tuple[int, int, int, int]] = []
    for link in range(n_links):
        number, slot, d = place[link]
        if pieces and pieces[-1][:2] == (number, slot) and sum(pieces[-1][2:]) == d:
            pieces[-1] = (*pieces[-1][:3], pieces[-1][3] + 1)
        else:
            pieces.append((number, slot, d, 1))
    return pieces


def _levels(parents: Sequence[int]) -> list[list[int]]:
    depth: list[int] = []
    levels: list[list[int]] = []
    for link, parent in enumerate(parents):
        depth.append(0 if parent < 0 else depth[parent] + 1)
        if depth[link] == len(levels):
            levels.append([])
        levels[depth[link]].append(link)
    return levels


def _plan_runs(parents: Sequence[int]) -> list[_Run]:
    levels = _levels(parents)
    n_children = np.bincount([p for p in parents if p >= 0], minlength=len(parents))
    branching = [d for d, level in enumerate(levels) if any(n_children[k] > 1 for k in level)]
    straight = len(branching) + 1 <= MAX_RUNS
    starts = [0] + [d + 1 for d in branching if d + 1 < len(levels)] if straight else _cut_by_width(levels)
    runs: list[_Run] = []
    slot_of: dict[int, int] = {-1: 0}
    for start, stop in zip(starts, [*starts[1:], len(levels)], strict=True):
        if start == stop:
            continue
        width = max(len(level) for level in levels[start:stop])
        slots = np.full((stop - start, width), levels[start][0])
        parent_slots = np.tile(np.arange(width), (stop - start, 1))
        valid = np.zeros((stop - start, width), bool)
        for d, level in enumerate(levels[start:stop]):
            for position, link in enumerate(sorted(level, key=lambda k: (slot_of[parents[k]], k))):
                slot = slot_of[parents[link]] if straight and d > 0 else position
                slots[d, slot], parent_slots[d, slot], valid[d, slot] = link, slot_of[parents[link]], True
                slot_of[link] = slot
            if not straight or d == 0:  # padding may point anywhere that exists in the level above
                parent_slots[d, ~valid[d]] = 0
        runs.append(_Run(slots, parent_slots, valid, straight))
    return runs


def _cut_by_width(levels: list[list[int]]) -> list[int]:
    """Starts of one or two indexed runs: two where that saves more than half the slots (a brush on a long handle)."""
    widths = np.array([len(level) for level in levels])
    depth = len(widths)
    widest_before = np.maximum.accumulate(widths)[:-1]
    widest_after = np.maximum.accumulate(widths[::-1])[::-1][1:]
    cuts = np.arange(1, depth)
    slots = cuts * widest_before + (depth - cuts) * widest_after
    if depth > 1 and slots.min() < depth * widths.max() / 2:
        return [0, int(cuts[slots.argmin()])]
    return [0]


def _take(tree: PyTree, index: np.ndarray) -> PyTree:
    """Rows of every leaf by an index known at compile time."""
    return jax.tree.map(lambda leaf: take_rows(leaf, index), tree)


def _unpack(plan: SweepPlan, ys: list[PyTree]) -> PyTree:
    """Results of the runs, each (depth, width, ...), in link order: stretches of a slot, where those are few."""
    pieces = plan.pieces
    if len(pieces) > MAX_PIECES:
        flat = [jax.tree.map(lambda y: y.reshape(-1, *y.shape[2:]), y) for y in ys]
        joined = flat[0] if len(flat) == 1 else jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *flat)
        return jax.tree.map(lambda x: jnp.take(x, plan.link_position, axis=0, mode="clip"), joined)

    def joined_leaf(*leaves):
        parts = [leaves[run][start : start + count, slot] for run, slot, start, count in pieces]
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
    if plan.is_chain:
        return lax.scan(body, base, xs)[1]
    each = jax.vmap(body)
    carry = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], base)
    ys = []
    for run in plan.runs:
        x = _take(xs, run.slots)
        carry = _take(carry, run.parent_slots[0])
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

    `body(children_sum, x) -> (contribution, y)` sees one link; `zero` has the shape of a contribution. The
    specification:

        total = {k: zero for k in (-1, *range(n_links))}
        for k in reversed(range(n_links)):
            contribution, y[k] = body(total[k], x[k])
            total[parents[k]] += contribution
        return total[-1], y
    """
    if plan.n_links == 0:
        raise ValueError("A sweep needs at least one link.")
    if plan.is_chain:
        return lax.scan(body, zero, xs, reverse=True)
    each = jax.vmap(body)
    ys: list[PyTree] = []
    deeper: tuple[_Run, PyTree] | None = None
    for number in reversed(range(len(plan.runs))):
        run = plan.runs[number]
        x = _take(xs, run.slots)
        if deeper is None:
            total = jax.tree.map(partial(_repeated, run.width), zero)
        else:
            child_run, contribution = deeper
            total = _sum_into_parents(contribution, child_run.parent_slots[0], child_run.valid[0], run.width)
        mask, lists = None, None
        if run.straight:
            # The child sits in its parent's slot; padding below a leaf must not reach it.
            has_child = np.zeros((run.depth, run.width), bool)
            has_child[:-1] = run.valid[1:]
            has_child[-1] = True  # whatever came from the run below is already summed
            mask = None if has_child.all() else jnp.asarray(has_child)
        else:
            lists = jax.tree.map(jnp.asarray, _child_lists(run))

        def step(total, inputs):
            keep, children, x = inputs
            if keep is not None:
                total = _masked(keep, total)
            if children is not None:
                total = _sum_children(total, children)
            return each(total, x)

        inputs = (mask, lists, x)
        contribution, y = _scan(step, total, inputs, run.depth, reverse=True)
        ys.append(y)
        deeper = (run, contribution)
    assert deeper is not None
    root_run, contribution = deeper
    root = _sum_into_parents(contribution, np.zeros(root_run.width, int), root_run.valid[0], 1)
    return jax.tree.map(lambda leaf: leaf[0], root), _unpack(plan, ys[::-1])


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


def _child_lists(run: _Run) -> np.ndarray | tuple[np.ndarray]:
    """Per level: a list of children's slots per parent (D, W, C), or, for bushy trees, each child's parent slot (D, W).

    The last level of a run gets each slot's own total, summed before the scan.
    """
    width, none = run.width, run.width
    by_parent: list[list[list[int]]] = [[[slot] for slot in range(width)]]
    for d in range(run.depth - 1, 0, -1):
        children: list[list[int]] = [[] for _ in range(width)]
        for slot in np.flatnonzero(run.valid[d]):
            children[run.parent_slots[d, slot]].append(int(slot))
        by_parent.insert(0, children)
    most = max(len(children) for level in by_parent for children in level)
    if most <= MAX_LISTED_CHILDREN:
        lists = np.full((run.depth, width, most), none)
        for d, level in enumerate(by_parent):
            for slot, own in enumerate(level):
                lists[d, slot, : len(own)] = own
        return lists
    segments = np.tile(np.arange(width), (run.depth, 1))
    segments[:-1] = np.where(run.valid[1:], run.parent_slots[1:], none)
    return (segments,)


def _sum_children(contribution: PyTree, children: jax.Array | tuple[jax.Array]) -> PyTree:
    def add(leaf: jax.Array) -> jax.Array:
        if isinstance(children, tuple):
            return jax.ops.segment_sum(leaf, children[0], num_segments=leaf.shape[0] + 1)[:-1]
        padded = jnp.concatenate([leaf, jnp.zeros_like(leaf[:1])])
        return sum((padded[children[:, c]] for c in range(1, children.shape[1])), padded[children[:, 0]])

    return jax.tree.map(add, contribution)
