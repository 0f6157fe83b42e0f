"""A straight-line program as C99: one function that reads arrays, computes scalars and writes arrays.

The function allocates nothing, keeps nothing between calls and needs only <math.h>, so that it can run in a control
loop of any C or C++ program, from several threads at once. Products of large matrices are loops over arrays on the
stack, as in the kernels for this machine.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxsoa.kernels.program import Operand, Operation, Straight, Unreadable

_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "lt": "<", "gt": ">", "le": "<=", "ge": ">=", "eq": "==",
    "ne": "!=", "and": "&", "or": "|", "xor": "^",
}  # fmt: skip
_LIBRARY = {
    "rem": "fmod", "abs": "fabs", "round": "rint",
    **{name: name for name in """sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh exp exp2 expm1 log log1p
       sqrt cbrt erf floor ceil pow atan2""".split()},
}  # fmt: skip
# NaN goes through all of them, as it does through JAX's.
_OWN = {
    "max": "static REAL max_(REAL a, REAL b) { return a > b || a != a ? a : b; }",
    "min": "static REAL min_(REAL a, REAL b) { return a < b || a != a ? a : b; }",
    "sign": "static REAL sign_(REAL a) { return a > 0 ? (REAL)1 : a < 0 ? (REAL)-1 : a; }",
}
_KINDS = {
    "additions": {"add", "sub"}, "multiplications": {"mul"}, "divisions": {"div"}, "square roots": {"sqrt"},
    "sines and cosines": {"sin", "cos"},
}  # fmt: skip
RESERVED = frozenset(
    """auto break case char const continue default do double else enum extern float for goto if inline int long
    register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while
    and and_eq asm bitand bitor bool catch class compl delete explicit export false friend mutable namespace new not
    not_eq operator or or_eq private protected public template this throw true try typeid typename using virtual
    wchar_t xor xor_eq main NAN INFINITY""".split()
)
"""Words that C, C++ or <math.h> have taken."""


class Array(NamedTuple):
    """An argument or a result: a name, and the shape of its elements, which stand row by row."""

    name: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        return math.prod(self.shape)


class Written(NamedTuple):
    """A program as text of C, and what it computes: operations by kind, bytes of matrices on the stack."""

    source: str
    header: str
    operations: dict[str, int]
    stack: int


def identifier(name: str) -> bool:
    """Whether C and C++ accept a name."""
    return re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name) is not None and name not in RESERVED


def comment(text: str) -> str:
    """Text that may stand in a comment, on one line."""
    return "".join(c if c.isprintable() and c.isascii() else "?" for c in text).replace("*/", "* /").replace("??", "?")


def counted(straight: Straight) -> dict[str, int]:
    """Operations by kind. A product of matrices counts where its left factor is not zero, as it is written."""
    found: Counter[str] = Counter()
    names = {name: kind for kind, members in _KINDS.items() for name in members}
    for op in straight.operations:
        if op[0] == "product":
            terms = [len(row) for row in _rows(op)]
            found["multiplications"] += sum(terms) * op[1][2]
            found["additions"] += sum(max(n - 1, 0) for n in terms) * op[1][2]
        elif op[0] not in ("in", "item"):
            found[names.get(op[0], "others")] += 1
    return {kind: found[kind] for kind in (*_KINDS, "others") if found[kind]}


def _rows(op: Operation) -> list[list[tuple[int, Operand]]]:
    """Per row of a product's left factor, the elements that are not constant zeros, with their columns."""
    rows, inner, _ = op[1]
    table = (op[2][i * inner : (i + 1) * inner] for i in range(rows))
    return [[(k, x) for k, x in enumerate(row) if type(x) is int or x] for row in table]


def write(
    straight: Straight, name: str, arguments: Sequence[Array], results: Sequence[Array], dtype: np.dtype, about: str
) -> Written:
    """Source and header of `void name(arguments, results)`; `about` is a sentence for the header."""
    real = "double" if dtype == np.float64 else "float"
    body = _Body(straight, real)
    lines = body.lines(arguments, results)
    operations = counted(straight)
    counts = ", ".join(f"{n} {kind}" for kind, n in operations.items()) or "none"
    given = [f"const {real} {_declared(x)}" for x in arguments] + [f"{real} {_declared(x)}" for x in results]
    head = f"void {name}({', '.join(given)})"
    table = [f"  in   {_described(x)}" for x in arguments] + [f"  out  {_described(x)}" for x in results]
    comment = [
        f"{name}: {about}",
        "",
        f"Arrays of {real}, in this order, matrices row by row:",
        "",
        *table,
        "",
        f"Operations: {counts}. Stack for matrices: {body.stack} bytes.",
        "Nothing is allocated or kept between calls. Results may stand where arguments stood, but not where others do.",
        "NaN in an argument reaches every result that depends on it; compile without -ffast-math for that.",
    ]
    guard = f"{name.upper()}_H"
    header = f"""/* {chr(10).join("   " + line if line and i else line for i, line in enumerate(comment))} */
#ifndef {guard}
#define {guard}

#define {name.upper()}_OPERATIONS {sum(operations.values())}

#ifdef __cplusplus
extern "C" {{
#endif

{head};

#ifdef __cplusplus
}}
#endif

#endif
"""
    own = "".join(f"{text.replace('REAL', real)}\n\n" for op, text in _OWN.items() if op in body.used)
    source = f'#include "{name}.h"\n\n#include <math.h>\n\n{own}{head}\n{{\n' + "\n".join(lines) + "\n}\n"
    return Written(source, header, operations, body.stack)


def _declared(x: Array) -> str:
    return f"{x.name}[{x.size}]" if x.size else f"*{x.name}"


def _described(x: Array) -> str:
    return f"{x.name} ({' x '.join(map(str, x.shape)) or 'one number'})"


class _Body:
    """The statements of a program."""

    def __init__(self, straight: Straight, real: str):
        self.straight, self.real, self.logical = straight, real, straight.logical()
        self.short = "" if real == "double" else "f"
        self.used = {op[0] for op in straight.operations}
        self.stack = 0

    def lines(self, arguments: Sequence[Array], results: Sequence[Array]) -> list[str]:
        operations = self.straight.operations
        read = {op[1] for op in operations if op[0] == "in"}
        out = [f"  (void){x.name};" for k, x in enumerate(arguments) if k not in read]
        out += [f"  (void){x.name};" for x in results if not x.size]
        # All arguments first, so that a result may take the place of one.
        for i, op in enumerate(operations):
            if op[0] == "in":
                out.append(f"  const {self.real} v{i} = {arguments[op[1]].name}[{op[2]}];")
        for i, op in enumerate(operations):
            if op[0] == "product":
                out += self.product(i, op)
            elif op[0] != "in":
                kind = "int" if self.logical[i] else self.real
                out.append(f"  const {kind} v{i} = {self.value(i, op)};")
        for array, elements in zip(results, self.straight.results, strict=True):
            for e, x in enumerate(elements):
                out.append(f"  {array.name}[{e}] = {self.operand(x)};")
        return out

    def operand(self, x: Operand) -> str:
        if type(x) is int:
            return f"v{x}"
        if type(x) is bool:
            return str(int(x))
        if math.isnan(x):
            return "NAN"
        text = "INFINITY" if math.isinf(x) else f"{abs(x)!r}{self.short}"
        return f"(-{text})" if math.copysign(1, x) < 0 else text

    def value(self, i: int, op: Operation) -> str:
        kind, x = op[0], [self.operand(y) for y in op[1:]]
        if kind in _INFIX:
            return f"{x[0]} {_INFIX[kind]} {x[1]}"
        if kind in _LIBRARY:
            return f"{_LIBRARY[kind]}{self.short}({', '.join(x)})"
        if kind in _OWN:
            return f"{kind}_({', '.join(x)})"
        if kind == "neg":
            return f"-{x[0]}"
        if kind == "not":
            return f"!{x[0]}"
        if kind == "is_finite":
            return f"isfinite({x[0]}) != 0"
        if kind == "select":
            return f"{x[0]} ? {x[2]} : {x[1]}"
        if kind == "item":
            return f"m{op[1]}[{op[2]}]"
        raise Unreadable(f"the operation {kind}")

    def product(self, i: int, op: Operation) -> list[str]:
        """m = a b, row by row: each row of m is a sum of rows of b."""
        rows, inner, columns = op[1]
        right = op[2][rows * inner :]
        self.stack += (rows * columns + inner * columns) * (8 if self.real == "double" else 4)
        out = [f"  {self.real} m{i}[{rows * columns}];", "  {", f"    {self.real} b[{inner * columns}];", "    int j;"]
        out += [f"    b[{k}] = {self.operand(x)};" for k, x in enumerate(right)]
        out.append(f"    for (j = 0; j < {columns}; ++j) {{")
        for r, row in enumerate(_rows(op)):
            terms = " + ".join(f"{self.operand(x)}*b[{k * columns} + j]" for k, x in row) or "0"
            out.append(f"      m{i}[{r * columns} + j] = {terms};")
        return [*out, "    }", "  }"]
