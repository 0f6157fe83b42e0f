"""A straight-line program as a module of LLVM IR: a function that XLA can call on a batch of states.

The states of a batch stand one after the other (batch-first). A block of `width` states is brought into registers by
transposes, component by component, computed side by side, and written back the same way. What depends only on arguments
that all states share is computed once per call. A single state is computed without lanes.

    handler(call frame)     XLA's entry: finds buffers, shares blocks out over XLA's threads
      prologue              what all states share
      range(first, last)    blocks: load, body, store
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxsoa.kernels.ffi_frame import batch_handler, single_handler
from jaxsoa.kernels.llvm_blocks import block_range, load_block, store_block
from jaxsoa.kernels.llvm_values import Lanes, Writer, function, product, sincos, tanh
from jaxsoa.kernels.program import Operand, Straight, operands

BLOCK = 4000
"""Operations of a basic block: some of what LLVM does grows with the square of that."""

LARGEST_SCRATCH = 1 << 20
"""Bytes of matrices that a kernel may keep on the stack."""


class Target(NamedTuple):
    """What the emitter needs to know of a processor."""

    vector_bytes: int
    fused: bool  # has fused multiply-add
    x86: bool


class _Values:
    """Names of a program's values inside one function; loads what is not there yet."""

    def __init__(self, writer: Writer, straight: Straight, logical: list[bool], load):
        self.writer, self.straight, self.logical, self.load = writer, straight, logical, load
        self.names: dict[int, str] = {}

    def ref(self, x: Operand, logical: bool) -> str:
        lanes = self.writer.lanes
        if type(x) is bool or (logical and type(x) is not int):
            return lanes.truth(bool(x)) if logical else lanes.constant(float(x))
        if type(x) is not int:
            return lanes.constant(x)
        if x not in self.names:
            self.names[x] = self.load(x)
        return self.names[x]

    def as_number(self, x: Operand) -> str:
        """A value as a floating number, for storing."""
        if type(x) is int and self.logical[x]:
            lanes = self.writer.lanes
            one, zero = lanes.constant(1.0), lanes.constant(0.0)
            return self.writer.let(f"select {lanes.bit} {self.ref(x, True)}, {lanes.type} {one}, {lanes.type} {zero}")
        return self.ref(x, False)


def _emit(values: _Values, numbers: Sequence[int], after, products: dict[str, str]) -> int:
    """Operations in order; `after(i)` is called when value i is known. Returns bytes of scratch for matrices."""
    writer, operations = values.writer, values.straight.operations
    lanes, scratch = writer.lanes, 0
    size = lanes.bytes * lanes.width
    places: dict[int, int] = {}
    for count, i in enumerate(numbers):
        op = operations[i]
        if count % BLOCK == BLOCK - 1:
            writer.lines += [f"  br label %block{count}", f"block{count}:"]
        if op[0] == "product":
            rows, inner, columns = op[1]
            table = [op[2][i * inner : (i + 1) * inner] for i in range(rows)]
            nonzero = [[k for k, x in enumerate(row) if type(x) is int or x] for row in table]
            name, text = product(lanes, rows, inner, columns, nonzero)
            products[name] = text
            start, places[i] = scratch, scratch + (rows * inner + inner * columns) * size
            scratch = places[i] + rows * columns * size
            for k, x in enumerate(op[2]):
                place = writer.at("%scratch", start + k * size)
                writer.lines.append(f"  store {lanes.type} {values.as_number(x)}, ptr {place}, align {size}")
            a, b = writer.at("%scratch", start), writer.at("%scratch", start + rows * inner * size)
            writer.lines.append(f"  call void @{name}(ptr {a}, ptr {b}, ptr {writer.at('%scratch', places[i])})")
            continue
        if op[0] == "item":
            place = writer.at("%scratch", places[op[1]] + op[2] * size)
            values.names[i] = writer.let(f"load {lanes.type}, ptr {place}, align {size}", f"%v{i}")
        else:
            values.names[i] = writer.operation(f"%v{i}", op, values.ref, values.logical[i])
        after(i)
    return scratch


def _where_stored(straight: Straight) -> dict[int, list[tuple[int, int]]]:
    """For each value, the places (result, element) that it fills."""
    places: dict[int, list[tuple[int, int]]] = {}
    for r, elements in enumerate(straight.results):
        for e, x in enumerate(elements):
            if type(x) is int:
                places.setdefault(x, []).append((r, e))
    return places


class Emitted(NamedTuple):
    text: str
    scratch: int


def single_module(straight: Straight, arguments: int, dtype: np.dtype, target: Target, name: str) -> Emitted:
    """A kernel of one state: arguments and results are read and written where XLA has them."""
    lanes, logical = Lanes(dtype, 1), straight.logical()
    writer, operations, places = Writer(lanes), straight.operations, _where_stored(straight)
    pointers: dict[tuple[str, int], str] = {}
    heads: list[str] = []

    def pointer(base: str, k: int) -> str:
        if (base, k) not in pointers:
            pointers[base, k] = f"%{base}{k}"
            heads.append(f"  %{base}_at{k} = getelementptr i8, ptr %{base}, i64 {8 * k}")
            heads.append(f"  %{base}{k} = load ptr, ptr %{base}_at{k}, !invariant.load !0")
        return pointers[base, k]

    def load(i: int) -> str:
        _, argument, element = operations[i]
        place = writer.at(pointer("arguments", argument), element * lanes.bytes)
        return writer.let(f"load {lanes.scalar}, ptr {place}, align {lanes.bytes}, !invariant.load !0", f"%v{i}")

    values = _Values(writer, straight, logical, load)

    def store(x: Operand, r: int, e: int) -> None:
        place = writer.at(pointer("results", r), e * lanes.bytes)
        writer.lines.append(f"  store {lanes.scalar} {values.as_number(x)}, ptr {place}, align {lanes.bytes}")

    def after(i: int) -> None:
        for r, e in places.get(i, ()):
            store(i, r, e)

    products: dict[str, str] = {}
    numbers = [i for i, op in enumerate(operations) if op[0] != "in"]
    scratch = _emit(values, numbers, after, products)
    for r, elements in enumerate(straight.results):
        for e, x in enumerate(elements):
            if type(x) is not int or operations[x][0] == "in":
                store(x, r, e)
    writer.lines[:0] = heads
    body = function("@body(ptr noalias %arguments, ptr noalias %results)", writer, scratch)
    parts = [_functions_used(straight, lanes, target), *products.values(), _declared(writer), body]
    return _finished([*parts, single_handler(name, arguments, len(straight.results))], target, scratch)


def _functions_used(straight: Straight, lanes: Lanes, target: Target) -> str:
    names = {op[0] for op in straight.operations}
    text = sincos(lanes, target.fused) if names & {"sin", "cos"} else ""
    return text + (tanh(lanes, target.fused) if "tanh" in names else "")


def _declared(*writers: Writer) -> str:
    return "\n".join(sorted(set().union(*(w.declared for w in writers)))) + "\n"


def _finished(parts: Sequence[str], target: Target, scratch: int) -> Emitted:
    wide = f'"prefer-vector-width"="{8 * target.vector_bytes}" "min-legal-vector-width"="{8 * target.vector_bytes}"'
    attributes = f"attributes #0 = {{ nounwind {wide} }}\n!0 = !{{}}\n"
    lines, seen = [], set()
    for line in "\n".join([*parts, attributes]).splitlines():
        if line.startswith("declare"):
            if line in seen:
                continue
            seen.add(line)
        lines.append(line)
    return Emitted("\n".join(lines) + "\n", scratch)


def batch_module(
    straight: Straight, sizes: Sequence[int], batched: Sequence[bool], dtype: np.dtype, target: Target, name: str
) -> Emitted:
    """A kernel of a batch; `sizes`: elements of each argument for one state, `batched`: which have a batch."""
    width = target.vector_bytes // dtype.itemsize
    lanes, one, logical = Lanes(dtype, width), Lanes(dtype, 1), straight.logical()
    operations, places = straight.operations, _where_stored(straight)
    shared = _shared(straight, batched)
    results = [len(elements) for elements in straight.results]
    starts = np.concatenate([[0], np.cumsum([n if b else 0 for n, b in zip(sizes, batched, strict=True)])]).tolist()
    ends = np.concatenate([[0], np.cumsum(results)]).tolist()
    block = width * lanes.bytes

    # What all states share is kept as plain numbers, in the order in which the body first asks for it.
    kept: dict[int, int] = {}
    writer = Writer(lanes)

    def load(i: int) -> str:
        op = operations[i]
        if op[0] == "in" and batched[op[1]]:
            place = writer.at("%in", (starts[op[1]] + op[2]) * block)
            return writer.let(f"load {lanes.type}, ptr {place}, align {block}, !invariant.load !0", f"%v{i}")
        place = writer.at("%shared", kept.setdefault(i, len(kept)) * lanes.bytes)
        number = writer.let(f"load {lanes.scalar}, ptr {place}, align {lanes.bytes}, !invariant.load !0")
        first = writer.let(f"insertelement {lanes.type} poison, {lanes.scalar} {number}, i64 0")
        splat = f"shufflevector {lanes.type} {first}, {lanes.type} poison, <{width} x i32> zeroinitializer"
        if not logical[i]:
            return writer.let(splat, f"%v{i}")
        return writer.let(f"fcmp une {lanes.type} {writer.let(splat)}, {lanes.constant(0.0)}", f"%v{i}")

    values = _Values(writer, straight, logical, load)

    def store(x: Operand, r: int, e: int) -> None:
        place = writer.at("%out", (ends[r] + e) * block)
        writer.lines.append(f"  store {lanes.type} {values.as_number(x)}, ptr {place}, align {block}")

    def after(i: int) -> None:
        for r, e in places.get(i, ()):
            store(i, r, e)

    products: dict[str, str] = {}
    own = [i for i, op in enumerate(operations) if op[0] != "in" and not shared[i]]
    scratch = _emit(values, own, after, products)
    for r, elements in enumerate(straight.results):
        for e, x in enumerate(elements):
            if type(x) is not int or operations[x][0] == "in" or shared[x]:
                store(x, r, e)
    body = function("@body(ptr noalias %in, ptr noalias %out, ptr noalias %shared)", writer, scratch)

    before, more = _prologue(straight, one, logical, shared, kept, products)
    functions = _functions_used(straight, lanes, target) + _functions_used(straight, one, target)
    moves = load_block(lanes, sizes, batched, starts) + store_block(lanes, results, ends)
    loops = block_range(lanes, sizes, batched, starts, results, ends)
    parts = [functions, *products.values(), _declared(writer, before), more, body, moves, loops]
    cost = max(1, len(own))
    parts.append(batch_handler(name, len(sizes), len(results), len(kept) * lanes.bytes, width, cost, target.x86))
    return _finished(parts, target, scratch)


def _shared(straight: Straight, batched: Sequence[bool]) -> list[bool]:
    """Which values are the same for all states."""
    shared: list[bool] = []
    for op in straight.operations:
        if op[0] == "in":
            shared.append(not batched[op[1]])
        else:
            shared.append(all(type(x) is not int or shared[x] for x in operands(op)))
    return shared


def _prologue(straight: Straight, one: Lanes, logical, shared, kept: dict[int, int], products: dict[str, str]):
    """What all states share, computed once: (its writer, its text)."""
    writer, operations = Writer(one), straight.operations

    def load(i: int) -> str:
        _, argument, element = operations[i]
        pointer = writer.let(f"load ptr, ptr {writer.at('%arguments', 8 * argument)}, !invariant.load !0")
        place = writer.at(pointer, element * one.bytes)
        return writer.let(f"load {one.scalar}, ptr {place}, align {one.bytes}, !invariant.load !0", f"%v{i}")

    values = _Values(writer, straight, logical, load)

    def after(i: int) -> None:
        if i in kept:
            place = writer.at("%shared", kept[i] * one.bytes)
            writer.lines.append(f"  store {one.scalar} {values.as_number(i)}, ptr {place}, align {one.bytes}")

    needed = _needed(straight, kept)
    for i in sorted(needed):
        if operations[i][0] == "in":
            values.ref(i, False)
            after(i)
    scratch = _emit(values, [i for i in sorted(needed) if operations[i][0] != "in"], after, products)
    return writer, function("@prologue(ptr noalias %arguments, ptr noalias %shared)", writer, scratch)


def _needed(straight: Straight, wanted) -> set[int]:
    found: set[int] = set()
    stack = list(wanted)
    while stack:
        i = stack.pop()
        if i not in found:
            found.add(i)
            stack += [x for x in operands(straight.operations[i]) if type(x) is int]
    return found
