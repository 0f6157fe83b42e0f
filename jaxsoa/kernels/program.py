"""A straight-line program on scalars: what is left of a function of arrays once every index is known.

Values are numbered in the order in which they are computed. An operand is the number of a value (an `int`) or a
constant (a `float` or a `bool`). Constants fold, equal operations are kept once, and the operations that no result
needs fall away (`Program.pruned`).

What folds is decided by the constants of the program alone, never by what a state might hold: 0 * x is 0 where the zero
is a constant (a robot's missing inertia), x - x is kept (x may be infinite).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

Operand = int | float | bool
Operation = tuple[Any, ...]

BLOCKS = frozenset({"product", "loop"})
"""Operations with many results, of which an "item" is one."""

ROUNDS = 4
"""As how many rounds a loop counts whose end depends on values."""

COMPARISONS = frozenset({"lt", "gt", "le", "ge", "eq", "ne"})
LOGICAL = COMPARISONS | {"and", "or", "xor", "not", "is_finite"}
COMMUTATIVE = frozenset({"add", "mul", "max", "min", "eq", "ne", "and", "or", "xor"})
UNARY = frozenset(
    """neg sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh exp exp2 expm1 log log1p sqrt cbrt abs sign
    floor ceil round is_finite not erf""".split()
)
BINARY = COMPARISONS | {"add", "sub", "mul", "div", "max", "min", "and", "or", "xor", "pow", "rem", "atan2"}


class Unreadable(Exception):
    """Why a function cannot be written as a straight-line program."""


class Loop(NamedTuple):
    """What a loop computes whose end depends on values: two programs of one input each, the carried values and then
    what stays: whether to go on (one number that is not zero), and the values carried further."""

    test: Straight
    body: Straight
    carried: int

    @property
    def scalars(self) -> int:
        return self.test.scalars + self.body.scalars

    def __repr__(self) -> str:
        return f"Loop({self.scalars} operations)"


class Straight(NamedTuple):
    """A finished program: operations in order, and per result the operands that are its elements."""

    operations: tuple[Operation, ...]
    results: tuple[tuple[Operand, ...], ...]

    @property
    def scalars(self) -> int:
        """Operations that are written out: inputs and matrices, which are loops, aside."""
        written = sum(1 for op in self.operations if op[0] not in ("in", "item", "product", "loop"))
        return written + sum(op[1].scalars for op in self.operations if op[0] == "loop")

    @property
    def cost(self) -> int:
        """Operations that are computed, products of matrices and rounds of loops included."""
        products = sum(math.prod(op[1]) for op in self.operations if op[0] == "product")
        again = sum((ROUNDS - 1) * op[1].scalars for op in self.operations if op[0] == "loop")
        return self.scalars + products + again

    def logical(self) -> list[bool]:
        """Which values are true or false."""
        kinds: list[bool] = []
        for op in self.operations:
            name = op[0]
            if name == "select":
                kinds.append(any(type(x) is bool or (type(x) is int and kinds[x]) for x in op[2:]))
            else:
                kinds.append(name in LOGICAL)
        return kinds


def operands(op: Operation) -> Sequence[Operand]:
    """What an operation reads."""
    name = op[0]
    if name == "in":
        return ()
    if name in BLOCKS:
        return op[2]
    if name == "item":
        return op[1:2]
    return op[1:]


def depth_first(straight: Straight, *, turns_first: bool = False) -> Straight:
    """The same, each value computed shortly before it is first read; a sine next to its cosine.

    `turns_first`: sines and cosines of inputs before all else, one after the other.
    """
    operations = straight.operations
    sines = {op: i for i, op in enumerate(operations) if op[0] in ("sin", "cos")}
    order: list[int] = []
    seen = bytearray(len(operations))  # 1: its operands are on the way, 2: it stands in the order
    turns = [i for op, i in sines.items() if turns_first and type(op[1]) is int and operations[op[1]][0] == "in"]
    for elements in (turns, *straight.results):
        for result in elements:
            stack = [result] if type(result) is int else []
            while stack:
                i = stack[-1]
                if seen[i] == 0:
                    seen[i] = 1
                    stack += [x for x in operands(operations[i]) if type(x) is int and not seen[x]]
                    continue
                stack.pop()
                if seen[i] == 1:
                    seen[i] = 2
                    order.append(i)
                    op = operations[i]
                    pair = sines.get(("cos" if op[0] == "sin" else "sin", *op[1:]))
                    if pair is not None and op[0] in ("sin", "cos") and seen[pair] != 2:
                        seen[pair] = 2
                        order.append(pair)
    return _renumbered(straight, order)


def pruned(operations: Sequence[Operation], results: Sequence[Sequence[Operand]]) -> Straight:
    """Only what the results need, numbered anew."""
    live = [False] * len(operations)
    for elements in results:
        for x in elements:
            if type(x) is int:
                live[x] = True
    for i in range(len(operations) - 1, -1, -1):
        if live[i]:
            for x in operands(operations[i]):
                if type(x) is int:
                    live[x] = True
    return _renumbered(Straight(tuple(operations), tuple(map(tuple, results))), [i for i, x in enumerate(live) if x])


def _renumbered(straight: Straight, order: Sequence[int]) -> Straight:
    """Only the operations in `order`, in that order."""
    number = [0] * len(straight.operations)
    kept: list[Operation] = []

    def new(x: Operand) -> Operand:
        return number[x] if type(x) is int else x

    for i in order:
        op = straight.operations[i]
        number[i] = len(kept)
        name = op[0]
        if name == "in":
            kept.append(op)
        elif name in BLOCKS:
            kept.append((name, op[1], tuple(map(new, op[2]))))
        elif name == "item":
            kept.append((name, number[op[1]], op[2]))
        else:
            kept.append((name, *map(new, op[1:])))
    return Straight(tuple(kept), tuple(tuple(map(new, elements)) for elements in straight.results))


def _key(op: Operation) -> tuple:
    """What makes two operations the same. In Python 1 == 1.0 == True and 0.0 == -0.0; here the first of these is the
    number of a value, the others are constants that differ."""
    if op[0] == "product":
        return op[0], op[1], *(x if type(x) is int else repr(x) for x in op[2])
    return tuple(x if type(x) is int else repr(x) for x in op)


class Program:
    """A program that grows while a function is read. `dtype` is the floating type of all of it."""

    def __init__(self, dtype: Any, limit: int):
        self.operations: list[Operation] = []
        self.limit = limit
        self._known: dict[tuple, int] = {}
        self.single = np.dtype(dtype) == np.float32

    def number(self, x: Any) -> float:
        """A constant, rounded to the program's type."""
        return float(np.float32(x)) if self.single else float(x)

    def add_operation(self, op: Operation) -> int:
        key = _key(op)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = len(self.operations)
            self.operations.append(op)
            if known >= self.limit:
                raise Unreadable(f"more than {self.limit} operations")
        return known

    def input(self, argument: int, element: int) -> int:
        return self.add_operation(("in", argument, element))

    def unary(self, name: str, x: Any) -> Any:
        if type(x) is not int:
            return self._fold_unary(name, x)
        if name == "neg":
            op = self.operations[x]
            if op[0] == "neg":
                return op[1]
            if op[0] == "sub":
                return self.add_operation(("sub", op[2], op[1]))
        elif name == "not" and self.operations[x][0] == "not":
            return self.operations[x][1]
        return self.add_operation((name, x))

    def _fold_unary(self, name: str, x: Operand) -> Operand:
        with np.errstate(all="ignore"):
            if name == "not":
                return not x
            if name == "is_finite":
                return math.isfinite(x)
            if name == "erf":
                return self.number(math.erf(x))
            return self.number(_NUMPY_UNARY[name](np.float64(x)))

    def binary(self, name: str, a: Any, b: Any) -> Any:
        fixed_a, fixed_b = type(a) is not int, type(b) is not int
        if fixed_a and fixed_b:
            return self._fold_binary(name, a, b)
        if fixed_a or fixed_b:
            folded = self._fold_constant(name, a, b, fixed_a)
            if folded is not None:
                return folded
        operations = self.operations
        if name == "add":  # a + -b
            if not fixed_b and operations[b][0] == "neg":
                return self.binary("sub", a, operations[b][1])
            if not fixed_a and operations[a][0] == "neg":
                return self.binary("sub", b, operations[a][1])
        elif name == "sub":
            if not fixed_b and operations[b][0] == "neg":
                return self.binary("add", a, operations[b][1])
        elif name == "mul" and not fixed_a and not fixed_b:  # -a * -b
            if operations[a][0] == "neg" and operations[b][0] == "neg":
                a, b = operations[a][1], operations[b][1]
        if name in COMMUTATIVE and (fixed_a or (not fixed_b and b < a)):
            a, b = b, a
        return self.add_operation((name, a, b))

    def _fold_constant(self, name: str, a: Any, b: Any, fixed_a: bool) -> Operand | None:
        """One operand is a constant: the simpler form, or None."""
        c, x = (a, b) if fixed_a else (b, a)
        if name == "add":
            return x if c == 0 else None
        if name == "sub":
            if c == 0:
                return self.unary("neg", x) if fixed_a else x
            return None
        if name == "mul":
            if c == 0:
                return 0.0
            if c == 1:
                return x
            return self.unary("neg", x) if c == -1 else None
        if name == "div":
            if fixed_a:
                return 0.0 if c == 0 else None
            if c in (1, -1):
                return x if c == 1 else self.unary("neg", x)
            # Exact where the inverse is a power of two; elsewhere one rounding more than a division has.
            inverse = 1 / c if c else math.inf
            return self.binary("mul", x, self.number(inverse)) if math.isfinite(inverse) and inverse else None
        if name == "and":
            return x if c else False
        if name == "or":
            return True if c else x
        return None

    def _fold_binary(self, name: str, a: Any, b: Any) -> Operand:
        if name in ("and", "or", "xor"):
            return bool({"and": a & b, "or": a | b, "xor": a ^ b}[name])
        if name in COMPARISONS:
            return bool(_NUMPY_BINARY[name](a, b))
        with np.errstate(all="ignore"):
            return self.number(_NUMPY_BINARY[name](np.float64(a), np.float64(b)))

    def select(self, choice: Any, otherwise: Any, chosen: Any) -> Any:
        """`chosen` where `choice` is true."""
        if type(choice) is not int:
            return chosen if choice else otherwise
        if otherwise == chosen and _key((otherwise,)) == _key((chosen,)):
            return chosen
        if type(chosen) is bool or type(otherwise) is bool:
            if chosen is True and otherwise is False:
                return choice
            if chosen is False and otherwise is True:
                return self.unary("not", choice)
        return self.add_operation(("select", choice, otherwise, chosen))

    def product(self, rows: int, inner: int, columns: int, a: Sequence[Operand], b: Sequence[Operand]) -> list[Operand]:
        """Elements of the matrix product of a (rows, inner) and b (inner, columns), computed by loops.

        An element without a term, all of its products having a constant zero, is zero.
        """
        nonzero = [np.array([type(x) is int or bool(x) for x in m]) for m in (a, b)]
        terms = nonzero[0].reshape(rows, inner).astype(int) @ nonzero[1].reshape(inner, columns)
        block = self.add_operation(("product", (rows, inner, columns), (*a, *b)))
        return [self.add_operation(("item", block, i)) if n else 0.0 for i, n in enumerate(terms.ravel().tolist())]

    def loop(self, parts: Loop, values: Sequence[Operand]) -> list[Operand]:
        """What is carried out of a loop: `values` are what it begins with, and what stays."""
        block = len(self.operations)
        self.operations.append(("loop", parts, tuple(values)))  # no two loops are looked at for being the same
        return [self.add_operation(("item", block, i)) for i in range(parts.carried)]


_NUMPY_UNARY = {
    "neg": np.negative, "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos,
    "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "asinh": np.arcsinh, "acosh": np.arccosh,
    "atanh": np.arctanh, "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log1p": np.log1p,
    "sqrt": np.sqrt, "cbrt": np.cbrt, "abs": np.abs, "sign": np.sign, "floor": np.floor, "ceil": np.ceil,
    "round": np.rint,
}  # fmt: skip
_NUMPY_BINARY = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "max": np.maximum, "min": np.minimum,
    "pow": np.power, "rem": np.fmod, "atan2": np.arctan2, "lt": np.less, "gt": np.greater, "le": np.less_equal,
    "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal,
}  # fmt: skip
