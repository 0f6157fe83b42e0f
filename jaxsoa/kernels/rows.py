"""A program as loops over rows, and its memory: what is written by `read_rows` and compiled by `llvm_rows`.

positions   of arguments, constants, rows of stages, carries and results: one space, a region each
access      where the body of a stage finds an element: of an array, at `start + row * step`
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any, NamedTuple

import numpy as np

from jaxsoa.kernels.llvm_values import EMITTED
from jaxsoa.kernels.program import Operand, Program, Straight, Unreadable, pruned
from jaxsoa.kernels.reader import Reader


class Access(NamedTuple):
    """Elements start + row * step of what is called `of`: "argument" or "result" (number), "constants", "kept"; or
    element `start` of what the loop carries, "carried"."""

    of: str
    number: int
    start: int
    step: int


class Stage(NamedTuple):
    """A loop: `body` has one input, the elements of `reads`, and one result, those of `writes`. What it carries is
    `carries` elements long and begins at `carried` in what is kept; the other buffer stands behind it."""

    rows: int
    reverse: bool
    body: Straight
    reads: tuple[Access, ...]
    writes: tuple[Access, ...]
    carried: int
    carries: int


class Copies(NamedTuple):
    """Elements of one array put to others' places in what is kept."""

    of: str
    number: int
    sources: tuple[int, ...]
    targets: tuple[int, ...]


class Rows(NamedTuple):
    """A program as loops over rows."""

    stages: tuple[Stage | Copies, ...]
    constants: np.ndarray
    kept: int

    @property
    def scalars(self) -> int:
        return sum(s.body.scalars for s in self.stages if isinstance(s, Stage))

    @property
    def cost(self) -> int:
        return sum(s.body.cost * s.rows if isinstance(s, Stage) else len(s.sources) for s in self.stages)


class Place:
    """An array while it is read: positions of its elements."""

    def __init__(self, at: np.ndarray):
        self.at = at

    @property
    def shape(self) -> tuple[int, ...]:
        return self.at.shape


Value = np.ndarray | Place


class Region:
    def __init__(self, of: str, number: int, base: int, width: int, logical: bool, group: Group | None):
        self.of, self.number, self.base, self.width, self.logical, self.group = of, number, base, width, logical, group
        self.columns: dict[int, int] = {}  # of what is kept: which columns are read, and where
        self.start = 0


class Group:
    """A stage that still grows."""

    def __init__(self, rows: int, dtype: Any, limit: int):
        self.rows, self.program = rows, Program(dtype, limit)
        self.reader = Reader(self.program, False, True)
        self.inputs: dict[tuple[int, int] | int, int] = {}
        self.values: dict[int, list[Operand]] = {}  # of each region of its own, what a row computes
        self.writes: list[tuple[Operand, int, int]] = []
        self.open, self.scans, self.reverse = True, False, False
        self.carried: Region | None = None
        self.carry: list[Operand] = []

    def input(self, key: tuple[int, int] | int) -> int:
        return self.program.input(0, self.inputs.setdefault(key, len(self.inputs)))


class RowMemory:
    """The stages of a program while it grows, and where everything is."""

    def __init__(self, dtype: Any, limit: int):
        self.dtype, self.limit = np.dtype(dtype), limit
        self.regions: list[Region] = []
        self.bases: list[int] = []
        self.size = 0
        self.numbers: list[np.ndarray] = []  # constants in memory
        self.stages: list[tuple] = []
        self.open: dict[int, Group] = {}

    def region(self, of: str, number: int, width: int, rows: int, logical: bool, group: Group | None = None) -> Region:
        region = Region(of, number, self.size, width, logical, group)
        self.regions.append(region)
        self.bases.append(self.size)
        self.size += max(1, width * rows)
        return region

    def region_of(self, position: int) -> Region:
        return self.regions[bisect_right(self.bases, position) - 1]

    def place(self, x: Value) -> np.ndarray:
        """Positions of any array; a constant is put into memory."""
        if isinstance(x, Place):
            return x.at
        if x.dtype != np.bool_ and not np.issubdtype(x.dtype, np.floating):
            raise Unreadable(f"constants of type {x.dtype} among traced ones")
        region = self.region("constants", sum(c.size for c in self.numbers), x.size, 1, x.dtype == np.bool_)
        self.numbers.append(np.asarray(x, self.dtype).ravel())
        return region.base + np.arange(x.size).reshape(x.shape)

    def close(self, group: Group) -> None:
        group.open = False
        del self.open[group.rows]
        self.stages.append(("stage", group))

    def pruned(self) -> Rows:
        """The stages with what is read of them alone, and places in memory for that."""
        read = np.zeros(self.size, bool)
        for region, end in zip(self.regions, [*self.bases[1:], self.size], strict=True):
            read[region.base : end] = region.of == "result"
        kept: list[tuple] = []
        for stage in reversed(self.stages):
            if stage[0] == "copy":
                _, region, sources = stage
                if read[region.base : region.base + sources.size].any():
                    read[sources.ravel()] = True
                    kept.append(stage)
                continue
            group: Group = stage[1]
            every = np.arange(group.rows)
            writes = [w for w in group.writes if read[w[1] + w[2] * every].any()]
            if not writes and not (group.carried and read[group.carried.base :][: group.carried.width].any()):
                continue
            body = pruned(group.program.operations, [[*(w[0] for w in writes), *group.carry]])
            unknown = {op[0] for op in body.operations} - EMITTED
            if unknown:
                raise Unreadable(f"the operation {min(unknown)}")
            names = {number: key for key, number in group.inputs.items()}
            keys = [names[op[2]] for op in body.operations if op[0] == "in"]
            for key in keys:
                if isinstance(key, tuple):
                    read[key[0] + key[1] * every] = True
            if group.carried is not None:
                read[group.carried.base :][: group.carried.width] = True
            new = {group.inputs[key]: k for k, key in enumerate(keys)}
            operations = tuple(("in", 0, new[op[2]]) if op[0] == "in" else op for op in body.operations)
            kept.append(("stage", group, Straight(operations, body.results), keys, writes))
        total = 0
        for region, end in zip(self.regions, [*self.bases[1:], self.size], strict=True):
            if region.of != "kept":
                continue
            wanted = read[region.base : end].reshape(-1, region.width).any(axis=0) if region.width else []
            region.columns = {e: k for k, e in enumerate(np.flatnonzero(wanted).tolist())}
            region.start = total
            total += len(region.columns) * ((end - region.base) // max(1, region.width))
        constants = np.concatenate(self.numbers) if self.numbers else np.zeros(0, self.dtype)
        found = Rows(tuple(s for stage in reversed(kept) for s in self._stage(stage)), constants, total)
        if found.scalars > self.limit:
            raise Unreadable(f"{found.scalars} operations in rows, of which {self.limit} fit into a kernel")
        return found

    def _access(self, p: int, d: int) -> Access:
        region = self.region_of(p)
        place = p - region.base
        if region.of == "constants":
            return Access("constants", 0, region.number + place, d)
        if region.of != "kept":
            return Access(region.of, region.number, place, d)
        row, column = divmod(place, region.width)
        width = len(region.columns)
        start = region.start + row * width + region.columns[column]
        steps, rest = divmod(d, region.width)
        if rest:
            raise Unreadable("rows that move across columns")
        return Access("kept", 0, start, steps * width)

    def _stage(self, stage: tuple) -> list[Stage | Copies]:
        if stage[0] == "copy":
            _, region, sources = stage
            by_array: dict[tuple[str, int], list[tuple[int, int]]] = {}
            for k, p in enumerate(sources.ravel().tolist()):
                if k % region.width in region.columns:
                    target = self._access(region.base + k, 0).start
                    source = self._access(p, 0)
                    by_array.setdefault(source[:2], []).append((source.start, target))
            return [Copies(*of, *map(tuple, zip(*pairs, strict=True))) for of, pairs in by_array.items()]
        _, group, body, keys, writes = stage
        reads = tuple(self._access(*key) if isinstance(key, tuple) else Access("carried", 0, key, 0) for key in keys)
        targets = [self._access(p, d) for _, p, d in writes]
        targets += [Access("carried", 0, e, 0) for e in range(len(group.carry))]
        carried = group.carried.start if group.carried else 0
        return [Stage(group.rows, group.reverse, body, reads, tuple(targets), carried, len(group.carry))]
