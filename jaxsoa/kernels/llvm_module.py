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
from jaxsoa.kernels.llvm_values import Lanes, Writer, product, sincos, tanh
from jaxsoa.kernels.program import Operand, Straight, operands

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
    for i in numbers:
        op = operations[i]
        if op[0] == "product":
            rows, inner, columns = op[1]
            name, text = product(lanes, rows, inner, columns)
            products[name] = text
            start, places[i] = scratch, scratch + (rows * inner + inner * columns) * size
            scratch = places[i] + rows * columns * size
            for k, x in enumerate(op[2]):
                writer.lines.append(
                    f"  store {lanes.type} {values.as_number(x)}, ptr {writer.at('%scratch', start + k * size)}, align {size}"
                )
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


def _function(head: str, writer: Writer, scratch: int) -> str:
    place = f"  %scratch = alloca [{scratch} x i8], align 64\n" if scratch else ""
    return f"define internal void {head} #0 {{\n{place}" + "\n".join(writer.lines) + "\n  ret void\n}\n"


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
    body = _function("@body(ptr noalias %arguments, ptr noalias %results)", writer, scratch)
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
    """A kernel of a batch; `sizes` are the elements of each argument for one state, `batched` says which have a batch."""
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
    body = _function("@body(ptr noalias %in, ptr noalias %out, ptr noalias %shared)", writer, scratch)

    before, more = _prologue(straight, one, logical, shared, kept, products)
    functions = _functions_used(straight, lanes, target) + _functions_used(straight, one, target)
    moves = _load_block(lanes, sizes, batched, starts) + _store_block(lanes, results, ends)
    loops = _range(lanes, sizes, batched, starts, results, ends)
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
    return writer, _function("@prologue(ptr noalias %arguments, ptr noalias %shared)", writer, scratch)


def _needed(straight: Straight, wanted) -> set[int]:
    found: set[int] = set()
    stack = list(wanted)
    while stack:
        i = stack.pop()
        if i not in found:
            found.add(i)
            stack += [x for x in operands(straight.operations[i]) if type(x) is int]
    return found


# --- blocks in and out -------------------------------------------------------------------------------------------


def _transposed(writer: Writer, rows: list[str]) -> list[str]:
    """Columns of a square of lanes, by rounds of shuffles."""
    W, V, distance, current = writer.lanes.width, writer.lanes.type, 1, rows
    while distance < W:
        new = list(current)
        for i in range(W):
            if i & distance:
                continue
            a, b = current[i], current[i | distance]
            low = [(j & ~distance) + (W if j & distance else 0) for j in range(W)]
            high = [(j | distance) + (W if j & distance else 0) for j in range(W)]
            for at, order in ((i, low), (i | distance, high)):
                mask = ", ".join(f"i32 {j}" for j in order)
                new[at] = writer.let(f"shufflevector {V} {a}, {V} {b}, <{W} x i32> <{mask}>")
        current, distance = new, 2 * distance
    return current


LOOPED = 6
"""Squares of an array from which its transposes are a loop, to compile faster."""


def _loop(writer: Writer, name: str, squares: int, body) -> None:
    """`body(column)` for the first columns of `squares` squares."""
    before, start = f"before{name}", f"loop{name}"
    lines, W = writer.lines, writer.lanes.width
    lines += [f"  br label %{before}", f"{before}:", f"  br label %{start}", f"{start}:"]
    lines.append(f"  %c{name} = phi i64 [0, %{before}], [%n{name}, %{start}]")
    body(f"%c{name}")
    lines.append(f"  %n{name} = add i64 %c{name}, {W}")
    lines.append(f"  %m{name} = icmp slt i64 %n{name}, {squares * W}")
    lines.append(f"  br i1 %m{name}, label %{start}, label %end{name}")
    lines.append(f"end{name}:")


def _load_block(lanes: Lanes, sizes, batched, starts) -> str:
    """@load_block(arguments, in, first): a full block of states, component by component."""
    writer, W, V, size = Writer(lanes), lanes.width, lanes.type, lanes.bytes
    for k, n in enumerate(sizes):
        if not batched[k] or n == 0:
            continue
        base = writer.let(f"load ptr, ptr {writer.at('%arguments', 8 * k)}")
        row = writer.let(f"getelementptr i8, ptr {base}, i64 {writer.let(f'mul i64 %first, {n * size}')}")
        own = writer.at("%in", starts[k] * W * size)

        def square(far: str, near: str, n: int = n) -> None:
            rows = [writer.let(f"load {V}, ptr {writer.at(far, i * n * size)}, align {size}") for i in range(W)]
            for j, column in enumerate(_transposed(writer, rows)):
                writer.lines.append(f"  store {V} {column}, ptr {writer.at(near, j * W * size)}, align {W * size}")

        _squares(writer, str(k), n, row, own, square)
        if n < W:
            for j in range(n):
                found = "poison"
                for lane in range(W):
                    place = writer.at(row, (lane * n + j) * size)
                    x = writer.let(f"load {lanes.scalar}, ptr {place}, align {size}")
                    found = writer.let(f"insertelement {V} {found}, {lanes.scalar} {x}, i64 {lane}")
                writer.lines.append(f"  store {V} {found}, ptr {writer.at(own, j * W * size)}, align {W * size}")
    return _function("@load_block(ptr noalias %arguments, ptr noalias %in, i64 %first)", writer, 0)


def _squares(writer: Writer, name: str, n: int, row: str, own: str, square) -> None:
    """`square(place in the array, place in the block)` for squares that cover rows of n; the last may overlap."""
    W, size = writer.lanes.width, writer.lanes.bytes
    whole = n // W
    if whole >= LOOPED:

        def at(column: str) -> None:
            far = writer.let(f"getelementptr {writer.lanes.scalar}, ptr {row}, i64 {column}")
            near = writer.let(f"getelementptr {writer.lanes.type}, ptr {own}, i64 {column}")
            square(far, near)

        _loop(writer, name, whole, at)
    else:
        for c in range(0, whole * W, W):
            square(writer.at(row, c * size), writer.at(own, c * W * size))
    if n % W and n > W:
        square(writer.at(row, (n - W) * size), writer.at(own, (n - W) * W * size))


def _store_block(lanes: Lanes, results, ends) -> str:
    """@store_block(results, out, first): the inverse of @load_block."""
    writer, W, V, size = Writer(lanes), lanes.width, lanes.type, lanes.bytes
    for k, n in enumerate(results):
        if n == 0:
            continue
        base = writer.let(f"load ptr, ptr {writer.at('%results', 8 * k)}")
        row = writer.let(f"getelementptr i8, ptr {base}, i64 {writer.let(f'mul i64 %first, {n * size}')}")
        own = writer.at("%out", ends[k] * W * size)

        def square(far: str, near: str, n: int = n) -> None:
            columns = [writer.let(f"load {V}, ptr {writer.at(near, j * W * size)}, align {W * size}") for j in range(W)]
            for lane, x in enumerate(_transposed(writer, columns)):
                writer.lines.append(f"  store {V} {x}, ptr {writer.at(far, lane * n * size)}, align {size}")

        _squares(writer, str(k), n, row, own, square)
        if n < W:
            for j in range(n):
                x = writer.let(f"load {V}, ptr {writer.at(own, j * W * size)}, align {W * size}")
                for lane in range(W):
                    one = writer.let(f"extractelement {V} {x}, i64 {lane}")
                    place = writer.at(row, (lane * n + j) * size)
                    writer.lines.append(f"  store {lanes.scalar} {one}, ptr {place}, align {size}")
    return _function("@store_block(ptr noalias %results, ptr noalias %out, i64 %first)", writer, 0)


def _range(lanes: Lanes, sizes, batched, starts, results, ends) -> str:
    """@range: blocks from one state to another; the last one may be filled up with its last state."""
    W, size = lanes.width, lanes.bytes
    n_in, n_out = max(1, starts[-1]) * W * size, max(1, ends[-1]) * W * size
    text = []
    for kind, lengths, offsets in (("in", [n if b else 0 for n, b in zip(sizes, batched, strict=True)], starts), ("out", results, ends)):
        arrays = "arguments" if kind == "in" else "results"
        lines = []
        for k, n in enumerate(lengths):
            if n == 0:
                continue
            copy = f"""  %x{k} = load {lanes.scalar}, ptr %far{k}, align {size}
  store {lanes.scalar} %x{k}, ptr %near{k}, align {size}""" if kind == "in" else f"""  %x{k} = load {lanes.scalar}, ptr %near{k}, align {size}
  store {lanes.scalar} %x{k}, ptr %far{k}, align {size}"""
            lines.append(f"""  br label %head{k}
head{k}:
  %at{k} = getelementptr i8, ptr %{arrays}, i64 {8 * k}
  %base{k} = load ptr, ptr %at{k}
  br label %lane{k}
lane{k}:
  %l{k} = phi i64 [0, %head{k}], [%ln{k}, %next{k}]
  %inside{k} = icmp slt i64 %l{k}, %count
  %state{k} = select i1 %inside{k}, i64 %l{k}, i64 %last
  %number{k} = add i64 %first, %state{k}
  %offset{k} = mul i64 %number{k}, {n * size}
  %row{k} = getelementptr i8, ptr %base{k}, i64 %offset{k}
  %column{k} = getelementptr {lanes.scalar}, ptr %block, i64 %l{k}
  %own{k} = getelementptr i8, ptr %column{k}, i64 {offsets[k] * W * size}
  br label %element{k}
element{k}:
  %e{k} = phi i64 [0, %lane{k}], [%en{k}, %element{k}]
  %far{k} = getelementptr {lanes.scalar}, ptr %row{k}, i64 %e{k}
  %stride{k} = mul i64 %e{k}, {W * size}
  %near{k} = getelementptr i8, ptr %own{k}, i64 %stride{k}
{copy}
  %en{k} = add i64 %e{k}, 1
  %more{k} = icmp slt i64 %en{k}, {n}
  br i1 %more{k}, label %element{k}, label %next{k}
next{k}:
  %ln{k} = add i64 %l{k}, 1
  %again{k} = icmp slt i64 %ln{k}, {W if kind == "in" else "%count"}
  br i1 %again{k}, label %lane{k}, label %done{k}
done{k}:""")
        text.append(
            f"define internal void @part_{kind}(ptr noalias %{arrays}, ptr noalias %block, i64 %first, i64 %count) #0 {{\n"
            "  %last = sub i64 %count, 1\n" + "\n".join(lines) + "\n  ret void\n}\n"
        )
    return "".join(text) + f"""
define internal void @range(ptr %arguments, ptr %results, ptr %shared, i64 %from, i64 %to) #0 {{
entry:
  %in = alloca [{n_in} x i8], align 64
  %out = alloca [{n_out} x i8], align 64
  br label %loop
loop:
  %first = phi i64 [%from, %entry], [%after, %next]
  %after = add i64 %first, {W}
  %full = icmp sle i64 %after, %to
  br i1 %full, label %whole, label %part
whole:
  call void @load_block(ptr %arguments, ptr %in, i64 %first)
  call void @body(ptr %in, ptr %out, ptr %shared)
  call void @store_block(ptr %results, ptr %out, i64 %first)
  br label %next
part:
  %count = sub i64 %to, %first
  call void @part_in(ptr %arguments, ptr %in, i64 %first, i64 %count)
  call void @body(ptr %in, ptr %out, ptr %shared)
  call void @part_out(ptr %results, ptr %out, i64 %first, i64 %count)
  br label %next
next:
  %more = icmp slt i64 %after, %to
  br i1 %more, label %loop, label %end
end:
  ret void
}}
"""
