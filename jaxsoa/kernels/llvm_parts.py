"""The arithmetic of a program as functions of a few thousand operations each.

LLVM takes more than twice as long for twice as long a function, and several functions can be compiled side by side. So
a long program is cut into parts. What one part computes and a later one reads is kept in memory in between, where most
of it would be anyway, registers being few. Within a part such a place is only read or only written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from jaxsoa.kernels.llvm_loops import loop_function
from jaxsoa.kernels.llvm_products import fill_function, fill_tables, plan_product, product_function, product_tables
from jaxsoa.kernels.llvm_values import Lanes, Writer, function, sincos, tanh
from jaxsoa.kernels.program import BLOCKS, Operand, Straight, operands

WHOLE = 6000
"""Operations up to which a program is one part: the reverse mode of an arm's forward dynamics, 5700 operations, takes
0.34 us instead of 0.43."""

PART = 400
"""Operations of a part of a longer program. What a part reads from memory it reads once, and LLVM puts aside what does
not fit into registers: in shorter parts less (a humanoid's mass matrix takes 0.80 us, in parts of 600 0.87, of 1500
1.01; its forward dynamics 0.70, 0.70, 0.73)."""

STORED = 2
"""Operations that a stored element counts for: LLVM's time is quadratic in the number of stores of a function."""

SHORTEST = 300
"""Operations from which a part ends with a product of matrices."""


class Memory(NamedTuple):
    """Where a program's values come from and go to."""

    pointers: tuple[str, ...]  # names of what its functions are given
    load: Callable[[Writer, int], str]  # a value that is not computed here
    store: Callable[[Writer, str, int], None]  # a value to all places where it is wanted
    stored: Callable[[int], bool]  # whether it is wanted anywhere


class Code(NamedTuple):
    """Functions @NAME_LABEL0, ... to be called one after the other, and what they need."""

    parts: list[str]  # a function each
    used: list[set[str]]  # of each part: the operations in it
    extra: list[dict[str, str]]  # of each part: helper functions and constants, by name
    kept: int  # bytes of values between parts
    scratch: int  # bytes of matrices and of what loops carry
    inner: list[Code]  # of loops, where they are long


class Values:
    """Names of a program's values inside one function; loads what is not there yet."""

    def __init__(self, writer: Writer, logical: Sequence[bool], load: Callable[[Writer, int], str]):
        self.writer, self.logical, self.load = writer, logical, load
        self.names: dict[int, str] = {}

    def ref(self, x: Operand, logical: bool) -> str:
        lanes = self.writer.lanes
        if type(x) is bool or (logical and type(x) is not int):
            return lanes.truth(bool(x)) if logical else lanes.constant(float(x))
        if type(x) is not int:
            return lanes.constant(x)
        if x not in self.names:
            self.names[x] = self.load(self.writer, x)
        return self.names[x]

    def as_number(self, x: Operand) -> str:
        """A value as a floating number, for storing."""
        if type(x) is int and self.logical[x]:
            lanes = self.writer.lanes
            one, zero = lanes.constant(1.0), lanes.constant(0.0)
            return self.writer.let(f"select {lanes.bit} {self.ref(x, True)}, {lanes.type} {one}, {lanes.type} {zero}")
        return self.ref(x, False)


def as_logical(writer: Writer, number: str, name: str) -> str:
    return writer.let(f"fcmp une {writer.lanes.type} {number}, {writer.lanes.constant(0.0)}", name)


class _Blocks:
    """Where the matrices of all products and the values of all loops are, and which of their elements are read."""

    def __init__(self, straight: Straight, numbers: Sequence[int], size: int):
        wanted: dict[int, set[int]] = {}
        for i in numbers:
            op = straight.operations[i]
            if op[0] == "item":
                wanted.setdefault(op[1], set()).add(op[2])
        self.plans, self.start, self.end = {}, {}, 0
        self.reads: dict[int, Sequence[int]] = {}  # of each block, the elements that it reads
        self.places: dict[int, list[int]] = {}  # for each value, where it is stored as an element
        for i, asked in wanted.items():
            if straight.operations[i][0] == "loop":
                elements = straight.operations[i][2]
                self.start[i] = self.end
                self.reads[i] = range(len(elements))
                self._place(i, elements, size)
                self.end += len(elements) * size
                continue
            (rows, inner, columns), elements = straight.operations[i][1:]
            plan = self.plans[i] = plan_product(rows, inner, columns, elements, asked)
            self.start[i] = self.end
            in_a, in_b = plan.reads(inner, columns)
            self.reads[i] = sorted(in_a | {rows * inner + k for k in in_b})
            self._place(i, elements, size)
            self.end += (len(elements) + rows * columns) * size

    def _place(self, i: int, elements: Sequence[Operand], size: int) -> None:
        for k in self.reads[i]:
            if type(elements[k]) is int:
                self.places.setdefault(elements[k], []).append(self.end + k * size)  # pyright: ignore[reportArgumentType]

    def item(self, op: tuple, straight: Straight, size: int) -> int:
        """Of a product behind its factors; of a loop where it began."""
        name, _, elements = straight.operations[op[1]]
        return self.start[op[1]] + (op[2] + (len(elements) if name == "product" else 0)) * size


def _chunks(
    straight: Straight, numbers: Sequence[int], blocks: _Blocks, stored: Callable[[int], bool]
) -> list[Sequence[int]]:
    """The operations of each part. A part that is long enough ends with a product, whose elements later ones only
    read: for a function that writes and reads matrices alternately, LLVM takes time quadratic in its length."""
    if len(numbers) <= WHOLE:
        return [numbers]
    operations, chunks, begun, work = straight.operations, [], 0, 0
    for k, i in enumerate(numbers):
        op = operations[i]
        work += 1 + STORED * (len(blocks.places.get(i, ())) + stored(i))
        if work >= PART or (op[0] in BLOCKS and work >= SHORTEST):
            chunks.append(numbers[begun : k + 1])
            begun, work = k + 1, 0
    if begun < len(numbers):
        chunks.append(numbers[begun:])
    return chunks


def write_parts(
    straight: Straight, numbers: Sequence[int], logical: Sequence[bool], lanes: Lanes, memory: Memory, label: str
) -> Code:
    """Functions for the operations `numbers`, in that order."""
    operations, size = straight.operations, lanes.bytes * lanes.width
    own = set(numbers)
    blocks = _Blocks(straight, numbers, size)
    chunks = _chunks(straight, numbers, blocks, memory.stored)
    count, part_of = len(chunks), {i: part for part, chunk in enumerate(chunks) for i in chunk}
    last: dict[int, int] = {}  # the part that reads a value last
    for part, chunk in enumerate(chunks):
        for i in chunk:
            if operations[i][0] != "item" and operations[i][0] not in BLOCKS:
                for x in operands(operations[i]):
                    if type(x) is int:
                        last[x] = part
    slots: dict[int, int] = {}
    free: list[int] = []
    released: list[list[int]] = [[] for _ in range(count + 1)]
    slots_made = 0
    parts, used, extras = [], [], []
    inner: list[Code] = []
    for part, chunk in enumerate(chunks):
        free += released[part]
        writer, extra, within = Writer(lanes), {}, set()

        def load(writer: Writer, i: int) -> str:
            if i not in own:
                return memory.load(writer, i)
            place = writer.at("%kept", slots[i] * size)
            name = None if logical[i] else f"%v{i}"
            found = writer.let(f"load {lanes.type}, ptr {place}, align {size}, !invariant.load !0", name)
            return as_logical(writer, found, f"%v{i}") if logical[i] else found

        values = Values(writer, logical, load)

        def keep(x: Operand, place: str, values: Values = values, writer: Writer = writer) -> None:
            writer.lines.append(f"  store {lanes.type} {values.as_number(x)}, ptr {place}, align {size}")

        for i in chunk:
            op = operations[i]
            if op[0] in BLOCKS:
                if i in blocks.start:
                    _fill_in(writer, keep, blocks, i, op, own, extra, f"{label}{i}")
                if i in blocks.plans:
                    _call_product(writer, blocks, i, op, extra, f"{label}{i}")
                elif i in blocks.start:
                    of, found = _call_loop(writer, blocks, i, op, extra, f"{label}{i}")
                    within |= of
                    inner += found
                continue
            if op[0] == "item":
                place = writer.at("%scratch", blocks.item(op, straight, size))
                only_read = ", !invariant.load !0" if part_of[op[1]] < part else ""
                values.names[i] = writer.let(f"load {lanes.type}, ptr {place}, align {size}{only_read}", f"%v{i}")
            else:
                values.names[i] = writer.operation(f"%v{i}", op, values.ref, logical[i])
            for place in blocks.places.get(i, ()):
                keep(i, writer.at("%scratch", place))
            if memory.stored(i):
                memory.store(writer, values.as_number(i), i)
            if last.get(i, part) > part:
                if not free:
                    free.append(slots_made)
                    slots_made += 1
                slots[i] = free.pop()
                released[last[i] + 1].append(slots[i])
                keep(i, writer.at("%kept", slots[i] * size))
        parts.append(_function(f"@NAME_{label}{part}", memory.pointers, writer, count > 1))
        used.append({operations[i][0] for i in chunk} | within)
        extra["declared"] = "\n".join(sorted(writer.declared)) + "\n"
        extras.append(extra)
    return Code(parts, used, extras, slots_made * size, blocks.end, inner)


def _fill_in(writer: Writer, keep, blocks: _Blocks, i: int, op: tuple, own: set[int], extra, label: str) -> None:
    """What a block reads that is not stored yet: constants, inputs, what all states share."""
    lanes, constants = writer.lanes, []
    size, start = lanes.bytes * lanes.width, blocks.start[i]
    for k in blocks.reads[i]:
        x = op[2][k]
        if type(x) is not int:
            constants.append((k * size, float(x)))
        elif x not in own:
            keep(x, writer.at("%scratch", start + k * size))
    if constants:
        fill, text = fill_function(lanes)
        extra[fill] = text
        tables = f"table_{label}_{lanes.tag}"
        extra[f"{tables}_constants"] = fill_tables(tables, lanes, constants)
        given = f"ptr @{tables}_places, ptr @{tables}_values, i64 {len(constants)}"
        writer.lines.append(f"  call void @{fill}(ptr {writer.at('%scratch', start)}, {given})")


def _call_loop(writer: Writer, blocks: _Blocks, i: int, op: tuple, extra, label: str) -> tuple[set[str], list[Code]]:
    """A loop: the call, and its functions among what this part needs. (operations in it, codes of modules of their
    own)."""
    lanes, parts = writer.lanes, op[1]
    name = f"NAME_loop_{label}_{lanes.tag}"
    text, used, inner = "", set(), []
    for kind, straight in (("test", parts.test), ("body", parts.body)):
        code, of = _of_values(straight, lanes, f"loop_{label}_{lanes.tag}_{kind}")
        text += of
        inner += code.inner
        if len(code.parts) == 1:
            text += code.parts[0]
            used |= code.used[0]
            for key, found in code.extra[0].items():
                extra[key] = extra.get(key, "") + found if key == "declared" else found
        else:
            inner.append(code)
    extra[name] = text + loop_function(name, lanes, parts.carried)
    writer.lines.append(f"  call void @{name}(ptr {writer.at('%scratch', blocks.start[i])})")
    return used, inner


def _of_values(straight: Straight, lanes: Lanes, label: str) -> tuple[Code, str]:
    """A program of one input as a function @NAME_LABEL(values, new), its first result being what it writes."""
    size, logical = lanes.bytes * lanes.width, straight.logical()
    operations, places = straight.operations, {}
    for e, x in enumerate(straight.results[0]):
        places.setdefault(x, []).append(e)

    def load(writer: Writer, i: int) -> str:
        place = writer.at("%values", operations[i][2] * size)
        return writer.let(f"load {lanes.type}, ptr {place}, align {size}", f"%v{i}")

    def fill(writer: Writer, value: str, _: int, e: int) -> None:
        writer.lines.append(f"  store {lanes.type} {value}, ptr {writer.at('%new', e * size)}, align {size}")

    def store(writer: Writer, value: str, i: int) -> None:
        for e in places[i]:
            fill(writer, value, 0, e)

    pointers = ("values", "new")
    numbers = [i for i, op in enumerate(operations) if op[0] != "in"]
    stored = {x for x in places if type(x) is int}
    code = write_parts(straight, numbers, logical, lanes, Memory(pointers, load, store, stored.__contains__), label)
    head = f"@NAME_{label}_copied(ptr noalias %values, ptr noalias %new)"
    rest = copied(straight, logical, lanes, load, fill, set(numbers), head)
    text = caller(code, label, pointers, f"@NAME_{label}_copied")
    return code, rest + text.replace(f"define internal void @{label}(", f"define internal void @NAME_{label}(")


def copied(straight: Straight, logical, lanes: Lanes, load, fill, others: set[int], head: str, constants=True) -> str:
    """A function that fills in the results that are constants or values but for `others`."""
    values = Values(Writer(lanes), logical, load)
    for r, elements in enumerate(straight.results):
        for e, x in enumerate(elements):
            if (x not in others) if type(x) is int else constants:
                fill(values.writer, values.as_number(x), r, e)
    return function(head, values.writer)


def _call_product(writer: Writer, blocks: _Blocks, i: int, op: tuple, extra, label: str) -> None:
    """A product of matrices."""
    lanes, plan = writer.lanes, blocks.plans[i]
    (rows, inner, columns), elements = op[1:]
    size, start = lanes.bytes * lanes.width, blocks.start[i]
    name, text = product_function(lanes, plan.width)
    tables = f"table_{label}_{lanes.tag}"
    extra[name] = text
    extra[tables] = product_tables(tables, lanes, plan, inner, columns)
    places = (start, start + rows * inner * size, start + len(elements) * size)
    a, b, c = (writer.at("%scratch", x) for x in places)
    tables = f"ptr @{tables}_tiles, ptr @{tables}_terms, i64 {len(plan.tiles)}"
    writer.lines.append(f"  call void @{name}(ptr {a}, ptr {b}, ptr {c}, {tables})")


MEMORY = ("kept", "scratch")


def _pointers(names: Sequence[str]) -> str:
    return ", ".join(f"ptr noalias %{name}" for name in (*names, *MEMORY))


def _function(name: str, pointers: Sequence[str], writer: Writer, visible: bool) -> str:
    lines = "\n".join(writer.lines)
    return f"define {'' if visible else 'internal '}void {name}({_pointers(pointers)}) #0 {{\n{lines}\n  ret void\n}}\n"


def caller(code: Code, label: str, pointers: Sequence[str], last: str | None = None) -> str:
    """@LABEL: calls all parts, and at the end the function `last` of the same pointers."""
    lines = [f"  %{name} = alloca [{max(8, getattr(code, name))} x i8], align 64" for name in MEMORY]
    given = ", ".join(f"ptr %{name}" for name in (*pointers, *MEMORY))
    lines += [f"  call void @NAME_{label}{part}({given})" for part in range(len(code.parts))]
    if last is not None:
        lines.append(f"  call void {last}({', '.join(f'ptr %{name}' for name in pointers)})")
    head = ", ".join(f"ptr noalias %{name}" for name in pointers)
    text = f"define internal void @{label}({head}) #0 {{\n" + "\n".join(lines) + "\n  ret void\n}\n"
    if len(code.parts) > 1:
        text += "".join(f"declare void @NAME_{label}{part}({_pointers(pointers)})\n" for part in range(len(code.parts)))
    return text


def helpers(code: Code, part: int, lanes: Lanes, fused: bool) -> str:
    """What a part needs beside itself."""
    text = sincos(lanes, fused) if code.used[part] & {"sin", "cos"} else ""
    text += tanh(lanes, fused) if "tanh" in code.used[part] else ""
    return text + "".join(code.extra[part].values())
