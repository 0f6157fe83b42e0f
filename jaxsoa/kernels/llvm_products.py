"""Products of matrices inside a kernel: loops over what is not known to be zero."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxsoa.kernels.llvm_values import Lanes, Writer
from jaxsoa.kernels.program import Operand

COLUMNS_AT_ONCE = 6
"""Sums that a product keeps in registers."""


class Product(NamedTuple):
    """How a product of matrices (rows, inner) and (inner, columns) is computed: only what is read, of what is not zero.

    A tile is some neighbouring elements of one row of the result; its terms are the k for which a[row, k] is not zero,
    nor all of b[k, tile].
    """

    width: int  # columns of a tile
    tiles: list[tuple[int, int, list[int]]]  # row, first column, terms

    def reads(self, inner: int, columns: int) -> tuple[set[int], set[int]]:
        """Numbers of the elements of a and of b that are read."""
        a = {row * inner + k for row, _, terms in self.tiles for k in terms}
        b = {k * columns + j + t for _, j, terms in self.tiles for k in terms for t in range(self.width)}
        return a, b


def plan_product(rows: int, inner: int, columns: int, operands: Sequence[Operand], wanted: set[int]) -> Product:
    """`wanted`: numbers of the elements of the result that are asked for; none of them is known to be zero."""
    nonzero = np.array([type(x) is int or bool(x) for x in operands])
    a = nonzero[: rows * inner].reshape(rows, inner)
    b = nonzero[rows * inner :].reshape(inner, columns)
    width, tiles = min(COLUMNS_AT_ONCE, columns), []
    asked: list[list[int]] = [[] for _ in range(rows)]
    for element in sorted(wanted):
        asked[element // columns].append(element % columns)
    for row, found in enumerate(asked):
        after = 0
        for column in found:
            if column >= after:
                first = min(column, columns - width)
                after = first + width
                tiles.append((row, first, np.flatnonzero(a[row] & b[:, first:after].any(1)).tolist()))
    tiles.sort(key=lambda tile: tile[1])  # what is read of b stays in the cache
    return Product(width, tiles)


def product_tables(name: str, lanes: Lanes, plan: Product, inner: int, columns: int) -> str:
    """Constants for `product_function`: per tile where it is in c and b and its terms; per term where it is in a, b."""
    size = lanes.bytes * lanes.width
    tiles, terms = [], []
    for row, first, ks in plan.tiles:
        start = len(terms) // 2
        for k in ks:
            terms += [(row * inner + k) * size, k * columns * size]
        tiles += [(row * columns + first) * size, first * size, start, len(terms) // 2]

    def table(label, numbers):
        body = ", ".join(f"i32 {x}" for x in numbers)
        return f"@{name}_{label} = private constant [{len(numbers)} x i32] [{body}]\n"

    return table("tiles", tiles) + table("terms", terms)


def product_function(lanes: Lanes, width: int) -> tuple[str, str]:
    """(name, text) of a function (a, b, c, tiles, terms, tiles' number) for products by tiles of `width` columns."""
    V, size, name = lanes.type, lanes.bytes * lanes.width, f"product_{width}_{lanes.tag}"
    w = Writer(lanes, "p")
    w.lines += ["  br label %begin", "begin:", "  br label %tile", "tile:"]
    w.lines.append("  %i = phi i64 [0, %begin], [%i1, %done]")
    tile = w.let("getelementptr [4 x i32], ptr %tiles, i64 %i")
    numbers = [w.let(f"load i32, ptr {w.at(tile, 4 * k)}, align 4, !invariant.load !0") for k in range(4)]
    to, of, first, last = (w.let(f"sext i32 {x} to i64") for x in numbers)
    c_tile, b_tile = (w.let(f"getelementptr i8, ptr {x}, i64 {y}") for x, y in (("%c", to), ("%b", of)))
    w.lines += ["  br label %term", "term:", f"  %k = phi i64 [{first}, %tile], [%k1, %term]"]
    for t in range(width):
        w.lines.append(f"  %s{t} = phi {V} [{lanes.constant(0.0)}, %tile], [%n{t}, %term]")
    term = w.let("getelementptr [2 x i32], ptr %terms, i64 %k")
    numbers = [w.let(f"load i32, ptr {w.at(term, 4 * k)}, align 4, !invariant.load !0") for k in range(2)]
    in_a, in_b = (w.let(f"sext i32 {x} to i64") for x in numbers)
    a, b = (w.let(f"getelementptr i8, ptr {x}, i64 {y}") for x, y in (("%a", in_a), (b_tile, in_b)))
    x = w.let(f"load {V}, ptr {a}, align {size}")
    for t in range(width):
        y = w.let(f"load {V}, ptr {w.at(b, t * size)}, align {size}")
        w.let(f"fadd contract {V} %s{t}, {w.let(f'fmul contract {V} {x}, {y}')}", f"%n{t}")
    w.lines += ["  %k1 = add i64 %k, 1", f"  %more = icmp slt i64 %k1, {last}"]
    w.lines += ["  br i1 %more, label %term, label %done", "done:"]
    for t in range(width):
        w.lines.append(f"  store {V} %n{t}, ptr {w.at(c_tile, t * size)}, align {size}")
    w.lines += ["  %i1 = add i64 %i, 1", "  %again = icmp slt i64 %i1, %count"]
    w.lines += ["  br i1 %again, label %tile, label %end", "end:", "  ret void"]
    pointers = ", ".join(f"ptr noalias %{x}" for x in ("a", "b", "c", "tiles", "terms"))
    head = f"define internal void @{name}({pointers}, i64 %count) #0 {{"
    return name, "\n".join([head, *w.lines, "}"]) + "\n"


def fill_tables(name: str, lanes: Lanes, constants: Sequence[tuple[int, float]]) -> str:
    """Constants for `fill_function`: where they go, and what they are."""
    places = ", ".join(f"i32 {place}" for place, _ in constants)
    one = Lanes(lanes.dtype, 1)
    values = ", ".join(f"{one.scalar} {one.constant(x)}" for _, x in constants)
    count = len(constants)
    return (
        f"@{name}_places = private constant [{count} x i32] [{places}]\n"
        f"@{name}_values = private constant [{count} x {one.scalar}] [{values}]\n"
    )


def fill_function(lanes: Lanes) -> tuple[str, str]:
    """(name, text) of a function (matrix, places, values, their number) that stores constants on all lanes."""
    V, s, name, w = lanes.type, lanes.scalar, f"fill_{lanes.tag}", Writer(lanes, "f")
    w.lines += ["  br label %begin", "begin:", "  br label %next", "next:"]
    w.lines.append("  %i = phi i64 [0, %begin], [%i1, %next]")
    place = w.let(f"load i32, ptr {w.let('getelementptr i32, ptr %places, i64 %i')}, align 4, !invariant.load !0")
    to = w.let(f"getelementptr i8, ptr %matrix, i64 {w.let(f'sext i32 {place} to i64')}")
    at = w.let(f"getelementptr {s}, ptr %values, i64 %i")
    value = w.let(f"load {s}, ptr {at}, align {lanes.bytes}, !invariant.load !0")
    if lanes.width > 1:
        first = w.let(f"insertelement {V} poison, {s} {value}, i64 0")
        value = w.let(f"shufflevector {V} {first}, {V} poison, <{lanes.width} x i32> zeroinitializer")
    w.lines.append(f"  store {V} {value}, ptr {to}, align {lanes.bytes * lanes.width}")
    w.lines += ["  %i1 = add i64 %i, 1", "  %more = icmp slt i64 %i1, %count"]
    w.lines += ["  br i1 %more, label %next, label %end", "end:", "  ret void"]
    pointers = ", ".join(f"ptr noalias %{x}" for x in ("matrix", "places", "values"))
    return name, "\n".join([f"define internal void @{name}({pointers}, i64 %count) #0 {{", *w.lines, "}"]) + "\n"
