"""Reading long programs as loops over rows: a chain of a thousand links would be too many operations one by one.

Where arrays have a long axis (the links of a chain) a program becomes a list of stages. A stage is a loop over that
axis; its body is a straight-line program of one row: element-wise operations, and at most one `lax.scan` of that length
with its carry. What later stages read is kept in memory; moving elements about (slices, transposes, stacks) costs
nothing, because while reading an array is only the positions in memory where its elements will be (`rows`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxsoa.kernels import jax_interface
from jaxsoa.kernels.lasting import WRITTEN
from jaxsoa.kernels.program import BINARY, UNARY, Program, Unreadable
from jaxsoa.kernels.read_arrays import CALLS, FOLDED, MOVES, SAME, as_objects, gather_positions, objects
from jaxsoa.kernels.reader import Reader
from jaxsoa.kernels.rows import Group, Place, RowMemory, Rows, Value

LONG = 12
"""Length from which an axis is looped over."""

SMALL = 600
"""Elements up to which an operation that no row has for itself is written out."""

_ELEMENTWISE = {*UNARY, *BINARY, "square", "rsqrt", "logistic", "integer_pow", "select_n", "clamp", "add_any",
                "convert_element_type"}  # fmt: skip
_ARRANGED = {"concatenate", "stack", "pad", "dynamic_slice"}


def read_rows(
    program: Any, constants: Sequence[np.ndarray | None], dtype: Any, limit: int, used: Sequence[bool]
) -> Rows:
    """A jaxpr as loops over rows; arguments with a constant are baked, the others numbered in their order."""
    inner = jax_interface.opened(program)
    reader, arguments, number = _RowReader(dtype, limit), [], 0
    for v, known in zip(inner.jaxpr.invars, constants, strict=True):
        if known is not None:
            arguments.append(np.asarray(known))
            continue
        if v.aval.dtype != np.bool_ and v.aval.dtype != dtype:
            raise Unreadable(f"an argument of type {v.aval.dtype}")
        region = reader.region("argument", number, math.prod(v.aval.shape), 1, v.aval.dtype == np.bool_)
        arguments.append(Place(region.base + np.arange(region.width).reshape(v.aval.shape)))
        number += 1
    with np.errstate(all="ignore"):
        results = reader.run(inner, arguments)
        return reader.finished([x for x, wanted in zip(results, used, strict=True) if wanted])


class _RowReader(RowMemory):
    def __init__(self, dtype: Any, limit: int):
        super().__init__(dtype, limit)
        self.plain = Reader(Program(dtype, limit), False, False)

    # --- groups ----------------------------------------------------------------------------------------------

    def columns(self, x: Value, axis: int | None, rows: int) -> tuple[np.ndarray, np.ndarray] | np.ndarray:
        """Of each element of a row: where it is in the first row, and how far the next is. A constant: its rows."""
        at = x.at if isinstance(x, Place) else x
        by_row = at.reshape(1, -1) if axis is None else np.moveaxis(at, axis, 0).reshape(rows, -1)
        if not isinstance(x, Place):
            same = (by_row == by_row[:1]) | ((by_row != by_row) & (by_row[:1] != by_row[:1]))
            same = same & (np.signbit(by_row) == np.signbit(by_row[:1])) if by_row.dtype.kind == "f" else same
            if same.all():
                return by_row[0]
            by_row = self.place(by_row)
        if len(by_row) == 1 or by_row.shape[1] == 0:
            return by_row[0], np.zeros(by_row.shape[1], int)
        step = by_row[1] - by_row[0]
        straight = (by_row == by_row[0] + np.arange(rows)[:, None] * step).all()
        if not straight or not all(map(self.one_region, by_row[0].tolist(), by_row[-1].tolist(), step.tolist())):
            by_row = self.copied(by_row)
            step = by_row[1] - by_row[0]
        return by_row[0], step

    def one_region(self, first: int, last: int, step: int) -> bool:
        """Whether positions that far apart are a column of one region."""
        region = self.region_of(first)
        return region is self.region_of(last) and (region.of != "kept" or step % region.width == 0)

    def copied(self, by_row: np.ndarray) -> np.ndarray:
        """Rows whose elements are anywhere, side by side."""
        touched = np.unique(np.searchsorted(self.bases, by_row.ravel(), "right") - 1).tolist()
        for k in touched:
            if self.regions[k].group is not None and self.regions[k].group.open:
                self.close(self.regions[k].group)
        region = self.region("kept", 0, by_row.shape[1], len(by_row), self.regions[touched[0]].logical)
        self.stages.append(("copy", region, by_row))
        return region.base + np.arange(by_row.size).reshape(by_row.shape)

    def group(self, rows: int, columns: Sequence[Any], scan: bool = False) -> Group:
        """The open group of so many rows, others closed as far as these columns are theirs."""
        for start, step in (c for c in columns if isinstance(c, tuple)):
            for p, d in zip(start.tolist(), step.tolist(), strict=True):
                region = self.region_of(p)
                group = region.group
                if group is None or not group.open:
                    continue
                near = p - region.base < region.width and (rows == 1 or d == region.width)
                if group.rows != rows or not near or region is group.carried:
                    self.close(group)
        found = self.open.get(rows)
        if found is not None and scan and found.scans:
            self.close(found)
            found = None
        if found is None:
            found = self.open[rows] = Group(rows, self.dtype, self.limit)
        return found

    def load(self, group: Group, columns: Any, shape: tuple[int, ...]) -> np.ndarray:
        """One row as operands of a group's program."""
        if not isinstance(columns, tuple):
            return columns.reshape(shape)
        out = objects((columns[0].size,), 0.0)
        for k, (p, d) in enumerate(zip(columns[0].tolist(), columns[1].tolist(), strict=True)):
            region = self.region_of(p)
            if region.group is group:
                out[k] = group.values[region.base][p - region.base]
                continue
            out[k] = group.input((p, d))
            if region.logical:
                out[k] = group.program.binary("ne", out[k], 0.0)
        return out.reshape(shape)

    def define(self, group: Group, row: np.ndarray, axis: int | None, aval: Any) -> Value:
        """An array of a group's rows, given one."""
        flat = [group.reader.operand(x) for x in as_objects(row).ravel()]
        shape = aval.shape
        if all(type(x) is not int for x in flat):
            one = np.array(flat, aval.dtype).reshape([1 if i == axis else n for i, n in enumerate(shape)])
            return np.broadcast_to(one, shape)
        if aval.dtype != np.bool_ and aval.dtype != self.dtype:
            raise Unreadable(f"traced {aval.dtype}")
        region = self.region("kept", 0, len(flat), group.rows, aval.dtype == np.bool_, group)
        group.values[region.base] = flat
        group.writes += [(x, region.base + e, region.width) for e, x in enumerate(flat)]
        at = region.base + np.arange(len(flat) * group.rows)
        if axis is None:
            return Place(at.reshape(shape))
        rest = [n for i, n in enumerate(shape) if i != axis]
        return Place(np.moveaxis(at.reshape(group.rows, *rest), 0, axis))

    # --- equations -------------------------------------------------------------------------------------------

    def run(self, inner: jax_interface.Opened, arguments: Sequence[Value]) -> list[Value]:
        values: dict[Any, Value] = {}

        def value(v: Any) -> Value:
            return jax_interface.literal(v) if jax_interface.is_literal(v) else values[v]

        values.update(zip(inner.jaxpr.constvars, map(np.asarray, inner.consts), strict=True))
        values.update(zip(inner.jaxpr.invars, arguments, strict=True))
        for equation in inner.jaxpr.eqns:
            found = self.equation(equation, [value(v) for v in equation.invars])
            values.update(zip(equation.outvars, found, strict=True))
        return [value(v) for v in inner.jaxpr.outvars]

    def equation(self, equation: Any, x: list[Value]) -> Sequence[Value]:
        name, params = equation.primitive.name, equation.params
        known = not any(isinstance(y, Place) for y in x)
        if name in SAME:
            return x
        if name in MOVES:
            if known:
                return MOVES[name](params, *x)
            return [Place(y) for y in MOVES[name](params, *(getattr(y, "at", y) for y in x))]
        if known and name in FOLDED:
            return [np.asarray(FOLDED[name](params, *x)).astype(equation.outvars[0].aval.dtype)]
        if name in _ARRANGED and not known:
            first = x[:1] if name == "dynamic_slice" else x
            if not all(isinstance(y, np.ndarray) for y in x[len(first) :]):
                raise Unreadable("a slice at a traced place")
            at = [self.place(y) for y in first] + [y for y in x[len(first) :] if isinstance(y, np.ndarray)]
            return [Place(np.asarray(y)) for y in self.plain.equation(equation, at)]
        if name == "gather" and not known and isinstance(x[1], np.ndarray):
            where = gather_positions(x[0].shape, x[1], params)
            flat = np.append(self.place(x[0]).ravel(), self.place(np.full(1, np.nan, self.dtype)))
            return [Place(flat[where])]
        if name == "scan":
            return self.scan(equation, params, x)
        if name == "jaxsoa_kernel" and params["size"] is None:
            kernel = params["kernel"]
            outs = self.run(jax_interface.opened(kernel.program()), kernel.with_constants(x))
            return [out for out, used in zip(outs, params["used"], strict=True) if used]
        called = jax_interface.called(params)
        if called is not None and name in CALLS:
            return self.run(called, x)
        if name in WRITTEN:
            return self.run(jax_interface.written(WRITTEN[name], equation), x)
        if name == "custom_linear_solve":
            return self.run(*jax_interface.linear_solve(params, x))
        if name == "cond" and isinstance(x[0], np.ndarray):
            branches = params["branches"]
            return self.run(jax_interface.opened(branches[min(max(int(x[0]), 0), len(branches) - 1)]), x[1:])
        if known:
            found = self.plain.equation(equation, [np.asarray(y) for y in x])
            return [np.asarray(y.tolist(), v.aval.dtype) for y, v in zip(found, equation.outvars, strict=True)]
        shape = equation.outvars[0].aval.shape
        axes: list[int | None] = [None] * len(x)
        out = None
        if name in _ELEMENTWISE:
            out = _longest(shape)  # operands may have an extent of one where the result has more
            axes = [out if out is not None and y.shape and y.shape[out] == shape[out] else None for y in x]
        elif name.startswith("reduce_") and x[0].shape:
            axes[0] = _longest([0 if i in params["axes"] else n for i, n in enumerate(x[0].shape)])
            out = None if axes[0] is None else axes[0] - sum(a < axes[0] for a in params["axes"])
        elif name == "dot_general":
            axes, out = _rows_of_product(params, x[0].shape, x[1].shape)
        return self.by_row(equation, x, axes, out)

    def by_row(self, equation: Any, x: list[Value], axes: Sequence[int | None], out: int | None) -> list[Value]:
        """An equation of a row, for all rows; axis of the rows in every operand and in the result."""
        avals = [v.aval for v in equation.outvars]
        rows = 1 if out is None else avals[0].shape[out]
        if out is None and sum(math.prod(s.shape) for s in (*x, *avals)) > SMALL:
            raise Unreadable(f"{equation.primitive.name} of large arrays")
        columns = [self.columns(y, axis, rows) for y, axis in zip(x, axes, strict=True)]
        group = self.group(rows, columns)
        shapes = [tuple(1 if i == a else n for i, n in enumerate(y.shape)) for y, a in zip(x, axes, strict=True)]
        given = [self.load(group, c, shape) for c, shape in zip(columns, shapes, strict=True)]
        found = group.reader.equation(equation, given)
        return [self.define(group, y, out, aval) for y, aval in zip(found, avals, strict=True)]

    def scan(self, equation: Any, params: dict, x: list[Value]) -> list[Value]:
        scan = jax_interface.scan_parts(params)
        n, m = scan.consts, scan.carries
        consts, carry, xs = x[:n], x[n : n + m], x[n + m :]
        if scan.length < LONG:
            return self.unrolled(equation, scan, consts, carry, xs)
        kinds = [v.aval.dtype for v in equation.invars[n : n + m]]
        if any(kind != self.dtype for kind in kinds):
            raise Unreadable("a long loop that carries something other than floating numbers")
        begin = [self.columns(c, None, 1) for c in carry]
        first = self.group(1, begin)
        carries = sum(math.prod(c.shape) for c in carry)
        carried = self.region("kept", 0, 2 * carries, 1, False)
        number = carried.base
        for c, columns in zip(carry, begin, strict=True):
            for e in as_objects(self.load(first, columns, c.shape)).ravel():
                first.writes.append((first.reader.operand(e), number, 0))
                number += 1
        self.close(first)
        fixed = [self.columns(c, None, 1) for c in consts]
        moving = [self.columns(c, 0, scan.length) for c in xs]
        group = self.group(scan.length, [*fixed, *moving], scan=True)
        group.scans, group.reverse, group.carried = True, scan.reverse, carried
        given = [self.load(group, c, y.shape) for c, y in zip(fixed, consts, strict=True)]
        place = iter(range(carries))
        for c in carry:
            own = objects((math.prod(c.shape),), 0.0)
            own[:] = [group.input(next(place)) for _ in range(own.size)]
            given.append(own.reshape(c.shape))
        given += [self.load(group, c, y.shape[1:]) for c, y in zip(moving, xs, strict=True)]
        outs = group.reader.run(scan.body, given)
        group.carry = [group.reader.operand(e) for out in outs[:m] for e in as_objects(out).ravel()]
        carried.group = group
        avals = [v.aval for v in equation.outvars]
        ys = [self.define(group, as_objects(y)[None], 0, a) for y, a in zip(outs[m:], avals[m:], strict=True)]
        place, ends = carried.base + (carries if scan.length % 2 else 0), []
        for a in avals[:m]:
            size = math.prod(a.shape)
            ends.append(Place(place + np.arange(size).reshape(a.shape)))
            place += size
        return [*ends, *ys]

    def unrolled(self, equation: Any, scan: jax_interface.ScanParts, consts, carry, xs) -> list[Value]:
        ys: list[list[Value]] = [[]] * scan.length
        for i in reversed(range(scan.length)) if scan.reverse else range(scan.length):
            rows = [Place(np.asarray(y.at[i])) if isinstance(y, Place) else np.asarray(y[i]) for y in xs]
            outs = self.run(scan.body, [*consts, *carry, *rows])
            carry, ys[i] = outs[: scan.carries], outs[scan.carries :]
        stacked = []
        for k, v in enumerate(equation.outvars[scan.carries :]):
            each = [y[k] for y in ys]
            if any(isinstance(y, Place) for y in each):
                stacked.append(Place(np.stack([self.place(y) for y in each])))
            else:
                stacked.append(np.asarray(each, v.aval.dtype).reshape(v.aval.shape))
        return [*carry, *stacked]

    # --- at the end ------------------------------------------------------------------------------------------

    def finished(self, results: Sequence[Value]) -> Rows:
        for number, x in enumerate(results):
            size, axis = math.prod(x.shape), _longest(x.shape)
            if size == 0:
                continue
            region = self.region("result", number, size, 1, False)
            at = region.base + np.arange(size).reshape(x.shape)
            rows = 1 if axis is None else x.shape[axis]
            if axis is None and size > SMALL:
                raise Unreadable("a large result without rows")
            columns = self.columns(x, axis, rows)
            group = self.group(rows, [columns])
            flat = as_objects(self.load(group, columns, (-1,)))
            start, step = self.columns(Place(at), axis, rows)
            places = zip(flat, start.tolist(), step.tolist(), strict=True)
            group.writes += [(group.reader.operand(y), p, d) for y, p, d in places]
        for group in list(self.open.values()):
            self.close(group)
        return self.pruned()


def longest_scan(inner: jax_interface.Opened) -> int:
    """Turns of the longest loop of a program."""
    most = 0
    for equation in inner.jaxpr.eqns:
        if equation.primitive.name == "scan":
            scan = jax_interface.scan_parts(equation.params)
            most = max(most, scan.length, longest_scan(scan.body))
        elif equation.primitive.name == "jaxsoa_kernel":
            most = max(most, longest_scan(jax_interface.opened(equation.params["kernel"].program())))
        elif (found := jax_interface.called(equation.params)) is not None:
            most = max(most, longest_scan(found))
    return most


def _longest(shape: Sequence[int]) -> int | None:
    """The axis to loop over, if there is one."""
    if not len(shape) or max(shape) < LONG:
        return None
    return int(np.argmax(shape))


def _rows_of_product(params: dict, a: tuple[int, ...], b: tuple[int, ...]) -> tuple[list[int | None], int | None]:
    """Of a product: the axis of the rows in both factors and in the result."""
    (contract_a, contract_b), (batch_a, batch_b) = params["dimension_numbers"]
    batch = _longest([a[i] for i in batch_a])
    if batch is not None:
        return [batch_a[batch], batch_b[batch]], batch
    free = [[i for i in range(len(s)) if i not in c and i not in t]
            for s, c, t in ((a, contract_a, batch_a), (b, contract_b, batch_b))]  # fmt: skip
    for k, shape in enumerate((a, b)):
        long = _longest([shape[i] for i in free[k]])
        if long is not None:
            axes: list[int | None] = [None, None]
            axes[k] = free[k][long]
            return axes, len(batch_a) + (len(free[0]) if k else 0) + long
    return [None, None], None
