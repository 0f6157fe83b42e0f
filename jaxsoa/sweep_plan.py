"""How a tree is laid out for the scans of `sweeps`: which link sits in which slot of which level.

Links of equal depth do not depend on each other, so a scan over depth carries one slot per link of the widest level.
The levels are cut into *runs*, each swept by one scan. In a straight run a child sits in its parent's slot, so a step
needs no indexing at all; a serial chain is one straight run of width one. Cuts lie where the tree branches, and there
the indices are compile-time constants.

Every run is a loop body to compile, so runs are joined where that costs few slots (a humanoid's legs and waist with
its arms). Where a limb branches inside a joined run, its other children get slots of their own, and the levels above
them hold *ghosts* there: copies of the children's ancestors. Outward they arrive at the branch with just what the
children need; inward the children's contributions are added to the slot of their parent, at that one level.

A tree that branches at many depths would need many runs or many ghosts; it is cut by width only, and every step
indexes its parents. Either way the number of compiled bodies is bounded, whatever the number of links.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence

import numpy as np

MAX_RUNS = 3
"""Above this many straight runs a tree is swept with indexed steps instead (compile time grows with the runs)."""

MAX_LISTED_CHILDREN = 4
"""Up to this many children a parent adds them by a list; above, by a segment sum (a star would make the list long)."""

SPARE_SLOTS = 1.15
"""Runs are joined while their slots do not grow by more than this factor."""

MAX_ADDED = 1
"""Slots that may be added to one slot in a joined run: each is paid for in every step (with three, a humanoid's inverse
dynamics took 13 % longer)."""


@dataclasses.dataclass(frozen=True)
class Run:
    """Consecutive levels swept by one scan of fixed width.

    slots[d, w]: the link in that slot. Padding and ghosts repeat a valid link; nothing ever reads their results.
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

    @property
    def is_limb(self) -> bool:
        """Whether it is a single limb, which needs no axis for slots."""
        return self.straight and self.width == 1

    @property
    def has_child(self) -> np.ndarray:
        """(depth, width): of a straight run, whether a slot's total comes from the same slot one level deeper.

        In the last level it does: whatever comes from the run below has been summed.
        """
        own = np.ones((self.depth, self.width), bool)
        own[:-1] = self.valid[1:] & (self.parent_slots[1:] == np.arange(self.width))
        return own

    @property
    def added(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """[(from slot (width,), at (depth, width))]: of a straight run, whose totals are added to which slots' own."""
        sums: list[tuple[np.ndarray, np.ndarray]] = []
        for d, slot in zip(*np.nonzero(self.valid[1:] & (self.parent_slots[1:] != np.arange(self.width))), strict=True):
            parent = self.parent_slots[d + 1, slot]
            free = (pair for pair in sums if pair[0][parent] in (parent, slot))  # nothing else is added there so far
            pair = next(free, None)
            if pair is None:
                pair = np.arange(self.width), np.zeros((self.depth, self.width), bool)
                sums.append(pair)
            pair[0][parent], pair[1][d, parent] = slot, True
        return sums


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
        return len(self.runs) == 1 and self.runs[0].is_limb

    @property
    def sequential_steps(self) -> int:
        """Number of steps one sweep takes one after another: the depth of the tree."""
        return sum(run.depth for run in self.runs)


def _pieces(runs: list[Run], n_links: int) -> list[tuple[int, int, int, int]]:
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


def _plan_runs(parents: Sequence[int]) -> list[Run]:
    levels = _levels(parents)
    n_children = np.bincount([p for p in parents if p >= 0], minlength=len(parents))
    starts = [0] + [d + 1 for d, level in enumerate(levels) if d + 1 < len(levels) and max(n_children[level]) > 1]
    if 1 < len(starts) <= 2 * MAX_RUNS:  # with many more, joining could not save enough
        starts = _joined(starts, levels, parents)
    straight = len(starts) <= MAX_RUNS
    if not straight:
        starts = _cut_by_width(levels)
    runs: list[Run] = []
    slot_of: dict[int, int] = {-1: 0}
    for start, stop in zip(starts, [*starts[1:], len(levels)], strict=True):
        make = _straight_run if straight else _indexed_run
        if start < stop:
            runs.append(make(levels[start:stop], parents, slot_of))
    return runs


def _straight_run(levels: list[list[int]], parents: Sequence[int], slot_of: dict[int, int]) -> Run:
    """A run in which every limb keeps its slot; `slot_of` is read for the level above and filled."""
    rows: list[dict[int, int]] = []  # per level: slot -> link
    ghosts: list[tuple[int, int, int]] = []  # level, slot, link
    width = 0
    for d, level in enumerate(levels):
        row: dict[int, int] = {}
        for link in sorted(level, key=lambda k: (slot_of[parents[k]], k)):
            slot = slot_of[parents[link]]
            if d == 0 or slot in row:  # a limb begins here
                slot, width = width, width + 1
                ancestor = link
                for above in range(d - 1, -1, -1):
                    ancestor = parents[ancestor]
                    ghosts.append((above, slot, ancestor))
            row[slot] = link
        slot_of.update((link, slot) for slot, link in row.items())
        rows.append(row)
    slots = np.full((len(levels), width), levels[0][0])
    valid = np.zeros(slots.shape, bool)
    parent_slots = np.tile(np.arange(width), (len(levels), 1))
    for d, row in enumerate(rows):
        for slot, link in row.items():
            slots[d, slot], parent_slots[d, slot], valid[d, slot] = link, slot_of[parents[link]], True
    for d, slot, link in ghosts:
        slots[d, slot], parent_slots[d, slot] = link, slot_of[parents[link]] if d == 0 else slot
    return Run(slots, parent_slots, valid, True)


def _indexed_run(levels: list[list[int]], parents: Sequence[int], slot_of: dict[int, int]) -> Run:
    """A run whose every step indexes its parents; `slot_of` is read for the level above and filled."""
    width = max(map(len, levels))
    slots = np.full((len(levels), width), levels[0][0])
    parent_slots, valid = np.zeros(slots.shape, int), np.zeros(slots.shape, bool)
    for d, level in enumerate(levels):
        for slot, link in enumerate(sorted(level, key=lambda k: (slot_of[parents[k]], k))):
            slots[d, slot], parent_slots[d, slot], valid[d, slot] = link, slot_of[parents[link]], True
            slot_of[link] = slot
    return Run(slots, parent_slots, valid, False)


def _joined(starts: list[int], levels: list[list[int]], parents: Sequence[int]) -> list[int]:
    """Cuts taken out, one after another, while the slots of a tree grow little."""
    depth = len(levels)

    def limbs(start: int, stop: int) -> int | None:
        """Width of the levels as one straight run; None where a slot would collect from too many others."""
        width, others = len(levels[start]), Counter()
        own = {link: slot for slot, link in enumerate(levels[start])}
        for level in levels[start + 1 : stop]:
            taken: set[int] = set()
            for link in level:
                slot = own[parents[link]]
                if slot in taken:
                    others[slot] += 1
                    if others[slot] > MAX_ADDED:
                        return None
                    slot, width = width, width + 1
                taken.add(slot)
                own[link] = slot
        return width

    def slots(cuts: list[int]) -> float:
        total = 0
        for start, stop in zip(cuts, [*cuts[1:], depth], strict=True):
            width = limbs(start, stop)
            if width is None:
                return np.inf
            total += (stop - start) * width
        return total

    most = SPARE_SLOTS * slots(starts)
    while len(starts) > 1:
        fewer = min(([s for s in starts if s != cut] for cut in starts[1:]), key=slots)
        if slots(fewer) > most:
            break
        starts = fewer
    return starts


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


def child_lists(run: Run) -> np.ndarray | tuple[np.ndarray]:
    """Of an indexed run, per level: a list of children's slots per parent (D, W, C), or, for bushy trees, each child's
    parent slot (D, W).

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
