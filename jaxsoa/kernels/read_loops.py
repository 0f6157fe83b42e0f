"""Reading loops whose end depends on values: two programs of their own, for the test and for the body."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from jaxsoa.kernels.jax_interface import Opened
from jaxsoa.kernels.program import Loop, Operand, Program, Unreadable, pruned
from jaxsoa.kernels.read_arrays import as_objects, constant, objects


class Reader(Protocol):
    """What is asked of a reader."""

    program: Program

    def another(self, program: Program) -> Reader: ...

    def operand(self, x: Any) -> Operand: ...

    def run(self, inner: Opened, arguments: Sequence[np.ndarray]) -> list[np.ndarray]: ...


Part = tuple[Opened, Sequence[np.ndarray], Sequence[Any]]  # a program, what stays for it, of which types


def read_loop(reader: Reader, parts: tuple[Part, Part], carry: list[np.ndarray], kinds: Sequence[Any]):
    """What is carried out of a loop, given its test and its body, as results of one operation. Both programs see what
    is carried, then what stays, as elements of one input."""
    if not all(np.issubdtype(kind, np.floating) for kind in kinds):
        raise Unreadable("a loop that carries something other than floating numbers")
    carried = [reader.operand(e) for c in carry for e in as_objects(c).ravel()]
    stays: dict[int, int] = {}

    def inside(program: Program, array: np.ndarray, kind: Any) -> np.ndarray:
        if constant(array):
            return array
        flat = objects(array.shape, 0.0).reshape(-1)
        for i, e in enumerate(map(reader.operand, array.ravel())):
            if type(e) is int:
                if not np.issubdtype(kind, np.floating) and kind != np.bool_:
                    raise Unreadable(f"a loop that reads traced {kind}")
                e = program.input(0, len(carried) + stays.setdefault(e, len(stays)))
                e = program.binary("ne", e, 0.0) if kind == np.bool_ else e
            flat[i] = e
        return flat.reshape(array.shape)

    found = []
    for part, given, types in parts:
        program = Program(np.float32 if reader.program.single else np.float64, reader.program.limit)
        inner, begun = reader.another(program), iter(range(len(carried)))
        own = [_filled(c.shape, lambda p=program, begun=begun: p.input(0, next(begun))) for c in carry]
        kept = [inside(program, array, kind) for array, kind in zip(given, types, strict=True)]
        outs = inner.run(part, [*kept, *own])
        found.append(pruned(program.operations, [[inner.operand(e) for out in outs for e in as_objects(out).ravel()]]))
    test, body = found
    results = iter(reader.program.loop(Loop(test, body, len(carried)), [*carried, *stays]))
    return [_filled(c.shape, lambda: next(results)) for c in carry]


def _filled(shape: tuple[int, ...], make) -> np.ndarray:
    flat = objects(shape, 0.0).reshape(-1)
    for i in range(flat.size):
        flat[i] = make()
    return flat.reshape(shape)
