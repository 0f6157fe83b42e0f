"""Sweeps in logarithmic depth: the tree cut into paths, an associative scan along each.

Every link goes on to its heaviest child, so the links fall into paths, and on the way from any link to the base one
changes path at most log2(N) times. Paths are handled level by level (level 0 is the path through the base); all paths
of a level are scanned together as one array. A chain is one path, and one associative scan.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

PyTree = Any


@dataclasses.dataclass(frozen=True)
class _Level:
    """The paths of one level, one after the other, each from its head (nearest the base) to its tip."""

    links: np.ndarray
    is_head: np.ndarray
    is_tip: np.ndarray
    above: np.ndarray  # per link: the link from which its path hangs (-1 for the base)


class PathPlan:
    """The paths of a tree given by `parents` (-1 for the base, parents before children)."""

    def __init__(self, parents: Sequence[int]):
        self.parents = tuple(int(p) for p in parents)
        n = len(self.parents)
        size = np.ones(n, int)
        for link in reversed(range(n)):
            if self.parents[link] >= 0:
                size[self.parents[link]] += size[link]
        heavy = np.full(n, -1)
        for link, parent in enumerate(self.parents):
            if parent >= 0 and (heavy[parent] < 0 or size[link] > size[heavy[parent]]):
                heavy[parent] = link
        level_of = np.zeros(n, int)
        paths: dict[int, list[list[int]]] = {}
        for link, parent in enumerate(self.parents):
            if parent >= 0 and heavy[parent] == link:
                level_of[link] = level_of[parent]
                continue
            level_of[link] = 0 if parent < 0 else level_of[parent] + 1
            path = [link]
            while heavy[path[-1]] >= 0:
                path.append(int(heavy[path[-1]]))
            paths.setdefault(int(level_of[link]), []).append(path)
        self.levels = tuple(self._level(paths[number]) for number in sorted(paths))

    def _level(self, paths: list[list[int]]) -> _Level:
        links = np.concatenate(paths)
        lengths = np.array([len(path) for path in paths], dtype=int)
        ends = np.cumsum(lengths)
        is_head, is_tip = np.zeros(len(links), bool), np.zeros(len(links), bool)
        is_head[ends - lengths], is_tip[ends - 1] = True, True
        above = np.repeat([self.parents[path[0]] for path in paths], lengths)
        return _Level(links, is_head, is_tip, above)

    @property
    def sequential_steps(self) -> int:
        """Combinations one after another: the depth of the scans, summed over the levels."""
        return sum(2 * int(np.ceil(np.log2(max(len(level.links), 2)))) for level in self.levels)


def prefix_from_base(plan: PathPlan, combine: Callable, elements: PyTree, base: PyTree) -> PyTree:
    """For every link the combination of `base` and the elements on the way out to it, the link's own last.

    `combine(inner, outer)` must be associative; it sees stacked elements. The specification:

        for k in range(n_links):
            y[k] = combine(base if parents[k] < 0 else y[parents[k]], x[k])
    """
    n = len(plan.parents)
    # Row n stands for the base, so that every link has a row to hang from.
    results = jax.tree.map(lambda x, b: jnp.zeros((n + 1, *x.shape[1:]), x.dtype).at[n].set(b), elements, base)

    def segmented(first, second):
        (_, a), (restart, b) = first, second
        both = combine(a, b)
        keep = jax.tree.map(lambda x, y: jnp.where(restart.reshape(-1, *(1,) * (x.ndim - 1)), y, x), both, b)
        return first[0] | restart, keep

    for level in plan.levels:
        own = jax.tree.map(lambda x, level=level: x[level.links], elements)
        _, along = lax.associative_scan(segmented, (jnp.asarray(level.is_head), own))
        above = jax.tree.map(lambda r, level=level: r[np.where(level.above < 0, n, level.above)], results)
        whole = combine(above, along)
        results = jax.tree.map(lambda r, w, level=level: r.at[level.links].set(w), results, whole)
    return jax.tree.map(lambda r: r[:n], results)


def suffix_from_tips(
    plan: PathPlan, combine: Callable, element: Callable, message: Callable, zero: PyTree, xs: PyTree
) -> tuple[PyTree, PyTree]:
    """Tip to base along every path, the paths that hang on a link entering its element. Returns (results, received).

    `element(x, received, is_tip)` makes the stacked elements of some links from their inputs and what they received
    from side paths; elements of tips must ignore what is combined before them. `combine(outer, inner)` is associative.
    `message(x, result)` is what the head of a path hands to the link it hangs on; `zero` is no message.
    """
    n = len(plan.parents)
    received = jax.tree.map(lambda z: jnp.zeros((n + 1, *z.shape), z.dtype), zero)
    results = None
    for level in reversed(plan.levels):
        order = level.links[::-1]  # tip to head
        own = jax.tree.map(lambda x, order=order: x[order], xs)
        elements = element(own, jax.tree.map(lambda r, order=order: r[order], received), level.is_tip[::-1])
        along = lax.associative_scan(combine, elements)
        if results is None:
            results = jax.tree.map(lambda a: jnp.zeros((n, *a.shape[1:]), a.dtype), along)
        results = jax.tree.map(lambda r, a, order=order: r.at[order].set(a), results, along)
        heads = np.flatnonzero(level.is_head[::-1])
        hang_on = np.where(level.above[::-1][heads] < 0, n, level.above[::-1][heads])
        at_heads = jax.tree.map(lambda a, heads=heads: a[heads], (own, along))
        handed = message(*at_heads)
        received = jax.tree.map(lambda r, m, hang_on=hang_on: r.at[hang_on].add(m), received, handed)
    return results, jax.tree.map(lambda r: r[:n], received)
