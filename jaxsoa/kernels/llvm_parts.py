"""The arithmetic of a program as functions of a few thousand operations each.

LLVM takes more than twice as long for twice as long a function, and several functions can be compiled side by side. So
a long program is cut into parts. What one part computes and a later one reads is kept in memory in between, where most
of it would be anyway, registers being few. Within a part such a place is only read or only written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from jaxsoa.kernels.llvm_products import plan_product, product_function, product_tables
from jaxsoa.kernels.llvm_values import Lanes, Writer, sincos, tanh
from jaxsoa.kernels.program import Operand, Straight, operands

WHOLE = 4000
"""Operations up to which a program is one part."""

PART = 1500
"""Operations of a part of a longer program."""


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
    scratch: int  # bytes of matrices


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


class _Products:
    """Where the matrices of all products are, and which of their elements are read."""

    def __init__(self, straight: Straight, numbers: Sequence[int], size: int):
        wanted: dict[int, set[int]] = {}
        for i in numbers:
            op = straight.operations[i]
            if op[0] == "item":
                wanted.setdefault(op[1], set()).add(op[2])
        self.plans, self.start, self.end = {}, {}, 0
        self.places: dict[int, list[int]] = {}  # for each value, where it is stored as an element
        self.constants: dict[int, list[tuple[Operand, int]]] = {}
        for i, asked in wanted.items():
            (rows, inner, columns), elements = straight.operations[i][1:]
            plan = self.plans[i] = plan_product(rows, inner, columns, elements, asked)
            self.start[i] = self.end
            in_a, in_b = plan.reads(inner, columns)
            for k in sorted(in_a | {rows * inner + k for k in in_b}):
                x, place = elements[k], self.end + k * size
                if type(x) is int:
                    self.places.setdefault(x, []).append(place)
                else:
                    self.constants.setdefault(i, []).append((x, place))
            self.end += (len(elements) + rows * columns) * size

    def item(self, op: tuple, straight: Straight, size: int) -> int:
        return self.start[op[1]] + (len(straight.operations[op[1]][2]) + op[2]) * size


def write_parts(
    straight: Straight, numbers: Sequence[int], logical: Sequence[bool], lanes: Lanes, memory: Memory, label: str
) -> Code:
    """Functions for the operations `numbers`, in that order."""
    operations, size = straight.operations, lanes.bytes * lanes.width
    own = set(numbers)
    products = _Products(straight, numbers, size)
    count = 1 if len(numbers) <= WHOLE else -(-len(numbers) // PART)
    length = -(-len(numbers) // count)
    chunks = [numbers[k * length : (k + 1) * length] for k in range(count)]
    last: dict[int, int] = {}  # the part that reads a value last
    for part, chunk in enumerate(chunks):
        for i in chunk:
            if operations[i][0] not in ("item", "product"):
                for x in operands(operations[i]):
                    if type(x) is int:
                        last[x] = part
    slots: dict[int, int] = {}
    free: list[int] = []
    released: list[list[int]] = [[] for _ in range(count + 1)]
    slots_made = 0
    parts, used, extras = [], [], []
    for part, chunk in enumerate(chunks):
        free += released[part]
        writer, extra = Writer(lanes), {}

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
            if op[0] == "product":
                if i in products.plans:
                    _call_product(writer, keep, products, i, op, own, extra, f"{label}{i}")
                continue
            if op[0] == "item":
                place = writer.at("%scratch", products.item(op, straight, size))
                values.names[i] = writer.let(f"load {lanes.type}, ptr {place}, align {size}", f"%v{i}")
            else:
                values.names[i] = writer.operation(f"%v{i}", op, values.ref, logical[i])
            for place in products.places.get(i, ()):
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
        used.append({operations[i][0] for i in chunk})
        extra["declared"] = "\n".join(sorted(writer.declared)) + "\n"
        extras.append(extra)
    return Code(parts, used, extras, slots_made * size, products.end)


def _call_product(writer: Writer, keep, products: _Products, i: int, op: tuple, own: set[int], extra, label: str):
    """A product of matrices: what it reads that is not stored yet, and the call."""
    lanes, plan = writer.lanes, products.plans[i]
    (rows, inner, columns), elements = op[1:]
    size, start = lanes.bytes * lanes.width, products.start[i]
    name, text = product_function(lanes, plan.width)
    tables = f"table_{label}_{lanes.tag}"
    extra[name] = text
    extra[tables] = product_tables(tables, lanes, plan, inner, columns)
    in_a, in_b = plan.reads(inner, columns)
    for k in sorted(in_a | {rows * inner + k for k in in_b}):
        if type(elements[k]) is not int or elements[k] not in own:
            keep(elements[k], writer.at("%scratch", start + k * size))
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
