"""Operations executed and bytes moved by a compiled XLA program, counted in its text.

XLA's own `cost_analysis` counts the body of a loop once. Here a body counts as often as the loop runs (XLA writes known
trip counts into the program). Operations: floating-point sums, differences, products, quotients, roots and dot
products, inside fusions too, so what fusions compute twice counts twice. Bytes: what each instruction outside fusions
reads and writes; of an array that is only sliced, or written in part, only that part.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from math import prod

ARITHMETIC = {"add", "subtract", "multiply", "divide", "sqrt", "rsqrt", "maximum", "minimum"}
FREE = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "while", "call", "conditional", "after-all"}
FREE |= {"opt-barrier", "optimization-barrier", "iota", "partition-id", "custom-call"}
SIZES = {"f64": 8, "f32": 4, "s64": 8, "u64": 8, "s32": 4, "u32": 4, "pred": 1, "s8": 1, "u8": 1, "s16": 2, "u16": 2}

_HEAD = re.compile(r"^(?:ENTRY )?%?([\w.\-]+)\s.*\{\s*$")
_LINE = re.compile(r"^\s+(ROOT )?%?([\w.\-]+) = (.*)$")
_SHAPE = re.compile(r"\b([a-z]+\d*)\[([\d,]*)\]")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')


@dataclass
class Instruction:
    name: str
    root: bool
    kind: str
    shapes: list[tuple[str, tuple[int, ...]]]  # of the result; several for a tuple
    operands: list[str]
    rest: str

    @property
    def elements(self) -> int:
        return sum(prod(shape) for _, shape in self.shapes)

    @property
    def bytes(self) -> int:
        return sum(SIZES.get(kind, 0) * prod(shape) for kind, shape in self.shapes)

    @property
    def floating(self) -> bool:
        return self.shapes[0][0].startswith("f") if self.shapes else False


@dataclass
class Computation:
    entry: bool
    instructions: dict[str, Instruction] = field(default_factory=dict)


@dataclass
class Costs:
    operations: float = 0.0
    multiply_adds: float = 0.0
    """Sums that could have been fused with a product: the lesser of the products and the sums of each fusion."""
    bytes: float = 0.0
    unknown_loops: int = 0


def parse(text: str) -> dict[str, Computation]:
    computations, current = {}, None
    for line in text.splitlines():
        head = None if line.startswith(" ") else _HEAD.match(line)
        if head and "->" in line:
            current = computations[head[1]] = Computation(line.startswith("ENTRY"))
            continue
        found = _LINE.match(line)
        if found and current is not None:
            instruction = _instruction(bool(found[1]), found[2], found[3])
            current.instructions[instruction.name] = instruction
    return computations


def _instruction(root: bool, name: str, text: str) -> Instruction:
    text = re.sub(r"/\*.*?\*/", "", text)
    if text.startswith("("):  # a tuple
        end = _closing(text, 0) + 1
    else:
        end = text.index(" ")
    shape, rest = text[:end], text[end:].lstrip()
    kind, rest = rest.split("(", 1)
    close = _closing("(" + rest, 0) - 1
    shapes = [(t, tuple(int(n) for n in d.split(",") if n)) for t, d in _SHAPE.findall(shape)]
    return Instruction(name, root, kind, shapes, re.findall(r"%([\w.\-]+)", rest[:close]), rest[close:])


def _closing(text: str, start: int) -> int:
    depth = 0
    for place in range(start, len(text)):
        depth += (text[place] == "(") - (text[place] == ")")
        if depth == 0:
            return place
    return len(text) - 1


def count(text: str, *, repeat: bool = True) -> Costs:
    """Of a compiled program: `count(jax.jit(f).lower(x).compile().as_text())`.

    Without `repeat` the body of a loop counts once, as in XLA's `cost_analysis`.
    """
    computations, costs = parse(text), Costs()
    (entry,) = [name for name, computation in computations.items() if computation.entry]
    _visit(computations, entry, 1.0, costs, repeat)
    return costs


def _called(rest: str, key: str) -> str | None:
    found = re.search(rf"{key}=%?([\w.\-]+)", rest)
    return found[1] if found else None


def _visit(computations: dict[str, Computation], name: str, times: float, costs: Costs, repeat: bool) -> None:
    instructions = computations[name].instructions
    for one in instructions.values():
        if one.kind == "while":
            trips = _TRIPS.search(one.rest)
            costs.unknown_loops += trips is None
            again = int(trips[1]) if trips and repeat else 1
            _visit(computations, str(_called(one.rest, "body")), times * again, costs, repeat)
        elif one.kind == "call":
            _visit(computations, str(_called(one.rest, "to_apply")), times, costs, repeat)
        elif one.kind == "fusion":
            inner = computations[str(_called(one.rest, "calls"))]
            products, sums, others = _arithmetic(inner.instructions)
            costs.operations += times * (products + sums + others)
            costs.multiply_adds += times * min(products, sums)
            costs.bytes += times * _fusion_bytes(one, inner, instructions)
        elif one.kind not in FREE:
            products, sums, others = _arithmetic({one.name: one}, instructions)
            costs.operations += times * (products + sums + others)
            costs.multiply_adds += times * (products if one.kind == "dot" else 0)
            costs.bytes += times * _plain_bytes(one, instructions)


def _arithmetic(instructions: dict[str, Instruction], scope: dict[str, Instruction] | None = None):
    """(products, sums, other operations) of a list of instructions."""
    products = sums = others = 0.0
    scope = scope or instructions
    for one in instructions.values():
        if not one.floating:
            continue
        if one.kind == "multiply":
            products += one.elements
        elif one.kind in ("add", "subtract"):
            sums += one.elements
        elif one.kind in ARITHMETIC:
            others += one.elements
        elif one.kind == "dot":
            left = scope.get(one.operands[0])
            axes = re.search(r"lhs_contracting_dims=\{([\d,]*)\}", one.rest)
            depth = prod(left.shapes[0][1][int(i)] for i in axes[1].split(",")) if left and axes and axes[1] else 1
            products, sums = products + one.elements * depth, sums + one.elements * depth
        elif one.kind == "reduce":
            operand = scope.get(one.operands[0])
            sums += operand.elements if operand else 0
    return products, sums, others


def _fusion_bytes(fusion: Instruction, inner: Computation, scope: dict[str, Instruction]) -> float:
    users: dict[str, list[Instruction]] = {}
    for one in inner.instructions.values():
        for operand in one.operands:
            users.setdefault(operand, []).append(one)
    total = 0.0
    for one in inner.instructions.values():
        if one.kind == "parameter":
            total += _read(one, users)
    roots = [one for one in inner.instructions.values() if one.root]
    if roots and roots[0].kind == "tuple":
        roots = [inner.instructions[name] for name in roots[0].operands if name in inner.instructions]
    for root in roots:
        total += _written(root, inner.instructions)
    return total


def _read(parameter: Instruction, users: dict[str, list[Instruction]]) -> float:
    """Bytes read of a parameter: slices alone where nothing else looks at it."""
    total = 0.0
    for user in users.get(parameter.name, []):
        if user.kind == "bitcast":
            total += _read(user, users)
        elif user.kind in ("dynamic-slice", "slice", "gather") and user.operands[0] == parameter.name:
            total += user.bytes
        elif user.kind == "dynamic-update-slice" and user.operands[0] == parameter.name:
            pass  # updated in place
        else:
            return parameter.bytes
    return min(total, parameter.bytes)


def _written(root: Instruction, instructions: dict[str, Instruction]) -> float:
    while root.kind == "bitcast" and root.operands[0] in instructions:
        root = instructions[root.operands[0]]
    if root.kind == "dynamic-update-slice" and root.operands[1] in instructions:
        return instructions[root.operands[1]].bytes
    return root.bytes


def _plain_bytes(one: Instruction, scope: dict[str, Instruction]) -> float:
    if one.kind in ("dynamic-slice", "slice", "gather"):
        return 2.0 * one.bytes
    if one.kind == "dynamic-update-slice":
        update = scope.get(one.operands[1])
        return 2.0 * (update.bytes if update else one.bytes)
    return one.bytes + sum(scope[name].bytes for name in one.operands if name in scope)
