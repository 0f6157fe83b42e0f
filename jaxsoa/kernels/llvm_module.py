"""A straight-line program as a module of LLVM IR: a function that XLA can call on a batch of states.

The states of a batch stand one after the other (batch-first). A block of `width` states is brought into registers by
transposes, component by component, computed side by side, and written back the same way. What depends only on arguments
that all states share is computed once per call. A single state is computed without lanes.

    handler(call frame)     XLA's entry: finds buffers, shares blocks out over XLA's threads
      prologue              what all states share
      range(first, last)    results that are the same for all, once; blocks: load, body, store
        body                the arithmetic, part by part (`llvm_parts`)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxsoa.kernels.ffi_frame import batch_handler, single_handler
from jaxsoa.kernels.llvm_blocks import block_range, load_block, store_block
from jaxsoa.kernels.llvm_parts import Code, Memory, as_logical, caller, copied, helpers, write_parts
from jaxsoa.kernels.llvm_values import Lanes, Target, Writer, function
from jaxsoa.kernels.program import Operand, Straight, depth_first, operands

LARGEST_SCRATCH = 1 << 21
"""Bytes of matrices that a kernel may keep on the stack."""

SHORT = 4000
"""Operations from which on they are ordered depth first. A short program is faster in the order in which it was
written, link beside link, because the processor finds more to do at once (an arm's forward dynamics by 12 %); a long
one is slower, because too much has to leave the registers (a humanoid's by 20 %, its inverse dynamics by 25 %)."""


class Emitted(NamedTuple):
    """Modules that together are a kernel; the first has its entry, @NAME."""

    texts: tuple[str, ...]
    scratch: int


def _where_stored(straight: Straight) -> dict[int, list[tuple[int, int]]]:
    """For each value, the places (result, element) that it fills."""
    places: dict[int, list[tuple[int, int]]] = {}
    for r, elements in enumerate(straight.results):
        for e, x in enumerate(elements):
            if type(x) is int:
                places.setdefault(x, []).append((r, e))
    return places


def _ordered(straight: Straight) -> Straight:
    # Scattered over a long program, every sine would have to come back into the processor's caches first.
    return depth_first(straight, turns_first=True) if straight.scalars > SHORT else straight


def single_module(straight: Straight, arguments: int, dtype: np.dtype, target: Target) -> Emitted:
    """A kernel of one state: arguments and results are read and written where XLA has them."""
    straight = _ordered(straight)
    lanes, logical = Lanes(dtype, 1), straight.logical()
    operations, places = straight.operations, _where_stored(straight)

    def pointer(writer: Writer, base: str, k: int) -> str:
        if (base, k) not in writer.bases:
            writer.bases[base, k] = writer.let(f"load ptr, ptr {writer.at(f'%{base}', 8 * k)}, !invariant.load !0")
        return writer.bases[base, k]

    def load(writer: Writer, i: int) -> str:
        _, argument, element = operations[i]
        place = writer.at(pointer(writer, "arguments", argument), element * lanes.bytes)
        return writer.let(f"load {lanes.scalar}, ptr {place}, align {lanes.bytes}, !invariant.load !0", f"%v{i}")

    def fill(writer: Writer, value: str, r: int, e: int) -> None:
        place = writer.at(pointer(writer, "results", r), e * lanes.bytes)
        writer.lines.append(f"  store {lanes.scalar} {value}, ptr {place}, align {lanes.bytes}")

    def store(writer: Writer, value: str, i: int) -> None:
        for r, e in places[i]:
            fill(writer, value, r, e)

    pointers = ("arguments", "results")
    memory = Memory(pointers, load, store, places.__contains__)
    numbers = [i for i, op in enumerate(operations) if op[0] != "in"]
    code = write_parts(straight, numbers, logical, lanes, memory, "body")
    head = "@copied(ptr noalias %arguments, ptr noalias %results)"
    rest = copied(straight, logical, lanes, load, fill, set(numbers), head)
    entry = single_handler("NAME", arguments, len(straight.results))
    return finished([rest, caller(code, "body", pointers, "@copied"), entry], [(code, lanes)], target)


def finished(parts: Sequence[str], codes: Sequence[tuple[Code, Lanes]], target: Target) -> Emitted:
    """The modules: one for all that is short, and one for each part of what is long."""
    main, texts, scratch = list(parts), [], 0
    for code, lanes in [(part, lanes) for whole, lanes in codes for part in (whole, *whole.inner)]:
        scratch += code.scratch + code.kept
        for k, part in enumerate(code.parts):
            whole = [part, helpers(code, k, lanes, target.fused)]
            if len(code.parts) > 1:
                texts.append(_module(whole, target))
            else:
                main += whole
    return Emitted((_module(main, target), *texts), scratch)


def _module(parts: Sequence[str], target: Target) -> str:
    wide = f'"prefer-vector-width"="{8 * target.vector_bytes}" "min-legal-vector-width"="{8 * target.vector_bytes}"'
    # The stack is aligned for vectors: what is put aside there would otherwise lie across two lines of the cache.
    attributes = f'attributes #0 = {{ nounwind "stackrealign" {wide} }}\n!0 = !{{}}\n'
    lines, seen = [], set()
    for line in "\n".join([*parts, attributes]).splitlines():
        if line.startswith("declare"):
            if line in seen:
                continue
            seen.add(line)
        lines.append(line)
    return "\n".join(lines) + "\n"


def batch_module(
    straight: Straight, sizes: Sequence[int], batched: Sequence[bool], dtype: np.dtype, target: Target
) -> Emitted:
    """A kernel of a batch; `sizes`: elements of each argument for one state, `batched`: which have a batch."""
    straight, slots = _once_each(_ordered(straight))
    width = target.vector_bytes // dtype.itemsize
    lanes, one, logical = Lanes(dtype, width), Lanes(dtype, 1), straight.logical()
    operations, places = straight.operations, _where_stored(straight)
    shared = _shared(straight, batched)
    results = list(map(len, slots))
    starts = np.concatenate([[0], np.cumsum([n if b else 0 for n, b in zip(sizes, batched, strict=True)])]).tolist()
    block = width * lanes.bytes

    # What all states share is kept as plain numbers, in the order in which the body first asks for it.
    kept: dict[int, int] = {}

    def load(writer: Writer, i: int) -> str:
        op = operations[i]
        if op[0] == "in" and batched[op[1]]:
            place = writer.at("%in", (starts[op[1]] + op[2]) * block)
            return writer.let(f"load {lanes.type}, ptr {place}, align {block}, !invariant.load !0", f"%v{i}")
        place = writer.at("%shared", kept.setdefault(i, len(kept)) * lanes.bytes)
        number = writer.let(f"load {lanes.scalar}, ptr {place}, align {lanes.bytes}, !invariant.load !0")
        first = writer.let(f"insertelement {lanes.type} poison, {lanes.scalar} {number}, i64 0")
        splat = f"shufflevector {lanes.type} {first}, {lanes.type} poison, <{width} x i32> zeroinitializer"
        return as_logical(writer, writer.let(splat), f"%v{i}") if logical[i] else writer.let(splat, f"%v{i}")

    def fill(writer: Writer, value: str, r: int, e: int) -> None:
        place = writer.at("%out", e * block)
        writer.lines.append(f"  store {lanes.type} {value}, ptr {place}, align {block}")

    def store(writer: Writer, value: str, i: int) -> None:
        for r, e in places[i]:
            fill(writer, value, r, e)

    pointers = ("in", "out", "shared")
    own = [i for i, op in enumerate(operations) if op[0] != "in" and not shared[i]]
    code = write_parts(straight, own, logical, lanes, Memory(pointers, load, store, places.__contains__), "body")
    head = ", ".join(f"ptr noalias %{x}" for x in pointers)
    moving = {x for x in places if operations[x][0] == "in" and not shared[x]}
    same = copied(straight, logical, lanes, load, fill, moving.union(own), f"@same_results({head})")
    fixed = set(places) - moving
    moved = copied(straight, logical, lanes, load, fill, fixed, f"@copied({head})", constants=False)

    before, again = _prologue(straight, one, logical, shared, kept)
    moves = load_block(lanes, sizes, batched, starts) + store_block(lanes, slots)
    loops = block_range(lanes, sizes, batched, starts, slots, len(straight.results[0]))
    entry = batch_handler(
        "NAME",
        len(sizes),
        [n * lanes.bytes for n in results],
        len(kept) * lanes.bytes,
        width,
        max(1, straight.cost),
        target,
    )
    parts = [same, moved, caller(code, "body", pointers), again, moves, loops, entry]
    return finished(parts, [(code, lanes), (before, one)], target)


def _once_each(straight: Straight) -> tuple[Straight, list[list[int]]]:
    """The same with one result, the elements that differ, and for each result where its elements are in that.

    A mass matrix is symmetric and has zeros where links do not meet: half of it and more need not be stored twice.
    """
    found: dict[Any, int] = {}
    distinct: list[Operand] = []
    slots: list[list[int]] = []
    for elements in straight.results:
        slots.append([])
        for x in elements:
            key = x if type(x) is int else repr(x)
            if key not in found:
                found[key] = len(distinct)
                distinct.append(x)
            slots[-1].append(found[key])
    return Straight(straight.operations, (tuple(distinct),)), slots


def _shared(straight: Straight, batched: Sequence[bool]) -> list[bool]:
    """Which values are the same for all states."""
    shared: list[bool] = []
    for op in straight.operations:
        if op[0] == "in":
            shared.append(not batched[op[1]])
        else:
            shared.append(all(type(x) is not int or shared[x] for x in operands(op)))
    return shared


def _prologue(straight: Straight, one: Lanes, logical, shared, kept: dict[int, int]) -> tuple[Code, str]:
    """What all states share, computed once: its functions, and @prologue that calls them."""
    operations = straight.operations

    def load(writer: Writer, i: int) -> str:
        _, argument, element = operations[i]
        pointer = writer.let(f"load ptr, ptr {writer.at('%arguments', 8 * argument)}, !invariant.load !0")
        place = writer.at(pointer, element * one.bytes)
        return writer.let(f"load {one.scalar}, ptr {place}, align {one.bytes}, !invariant.load !0", f"%v{i}")

    def store(writer: Writer, value: str, i: int) -> None:
        place = writer.at("%shared", kept[i] * one.bytes)
        writer.lines.append(f"  store {one.scalar} {value}, ptr {place}, align {one.bytes}")

    needed = sorted(_needed(straight, kept))
    numbers = [i for i in needed if operations[i][0] != "in"]
    pointers = ("arguments", "shared")
    code = write_parts(straight, numbers, logical, one, Memory(pointers, load, store, kept.__contains__), "before")
    given = Writer(one)
    for i in needed:
        if operations[i][0] == "in" and i in kept:
            store(given, load(given, i), i)
    given.lines.append("  call void @before(ptr %arguments, ptr %shared)")
    text = function("@prologue(ptr noalias %arguments, ptr noalias %shared)", given)
    return code, caller(code, "before", pointers) + text


def _needed(straight: Straight, wanted) -> set[int]:
    found: set[int] = set()
    stack = list(wanted)
    while stack:
        i = stack.pop()
        if i not in found:
            found.add(i)
            stack += [x for x in operands(straight.operations[i]) if type(x) is int]
    return found
