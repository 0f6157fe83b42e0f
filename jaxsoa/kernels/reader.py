"""Reads a jaxpr into a straight-line program: arrays become their components, indices and loops are resolved.

While reading, an array is either a NumPy array of numbers (all of it constant) or an object array whose elements are
operands of the program. What is constant is computed by NumPy; everything else adds operations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxsoa.kernels import jax_interface
from jaxsoa.kernels.lasting import WRITTEN
from jaxsoa.kernels.program import BINARY, UNARY, Operand, Program, Straight, Unreadable, pruned
from jaxsoa.kernels.read_algebra import LINEAR_ALGEBRA
from jaxsoa.kernels.read_arrays import (
    CALLS,
    FOLDED,
    MOVES,
    SAME,
    as_objects,
    constant,
    gather_positions,
    objects,
    row,
    scatter_positions,
    window,
)
from jaxsoa.kernels.read_loops import read_loop


def read(
    program: Any, constants: Sequence[np.ndarray | None], dtype: Any, limit: int, *, batches=False, loops=False
) -> Straight:
    """The straight-line program of a jaxpr; arguments with a constant are baked, the others are inputs.

    With `batches`, batches of kernels inside it are written out; with `loops`, loops whose end depends on values become
    operations. Raises `Unreadable` where it is none: traced indices, unknown operations, too many of them.
    """
    inner = jax_interface.opened(program)
    # Four to six times what is left after folding: what is surely too long is not read at all.
    if estimated(inner) > 1.25 * limit:
        raise Unreadable("a program much longer than the limit")
    reader = Reader(Program(dtype, limit), batches, loops)
    arguments = []
    for k, (v, known) in enumerate(zip(inner.jaxpr.invars, constants, strict=True)):
        arguments.append(reader.argument(k, v.aval) if known is None else np.asarray(known))
    with np.errstate(all="ignore"):  # the padding of a tree may divide by zero; nobody reads it
        results = reader.run(inner, arguments)
    flat = [[reader.operand(x) for x in np.asarray(r, object).ravel()] for r in results]
    return pruned(reader.program.operations, flat)


def estimated(inner: jax_interface.Opened) -> int:
    """A rough upper count of scalar operations, without reading: sizes of results times lengths of loops."""
    total = 0
    for equation in inner.jaxpr.eqns:
        name, params = equation.primitive.name, equation.params
        if name == "scan":
            scan = jax_interface.scan_parts(params)
            total += scan.length * estimated(scan.body)
            continue
        called = jax_interface.called(params)
        if called is not None:
            total += estimated(called)
        else:
            total += sum(math.prod(getattr(v.aval, "shape", ())) for v in equation.outvars)
    return total


class Reader:
    def __init__(self, program: Program, batches: bool, loops: bool):
        self.program, self.batches, self.loops = program, batches, loops
        p = program
        self.unary = {name: np.frompyfunc(lambda x, n=name: p.unary(n, x), 1, 1) for name in UNARY}
        self.binary = {name: np.frompyfunc(lambda a, b, n=name: p.binary(n, a, b), 2, 1) for name in BINARY}
        self.select = np.frompyfunc(p.select, 3, 1)

    def argument(self, k: int, aval: Any) -> np.ndarray:
        out = objects(aval.shape)
        flat = out.reshape(-1)
        for i in range(flat.size):
            x: Operand = self.program.input(k, i)
            flat[i] = self.program.binary("ne", x, 0.0) if aval.dtype == np.bool_ else x
        if aval.dtype != np.bool_ and not np.issubdtype(aval.dtype, np.floating):
            raise Unreadable(f"an argument of type {aval.dtype}")
        return flat.reshape(aval.shape)

    def operand(self, x: Any) -> Operand:
        """An element of a result."""
        if type(x) in (int, bool, float):
            return x
        return bool(x) if isinstance(x, np.bool_) else float(x)

    def apply(self, name: str, *x: np.ndarray) -> np.ndarray:
        """An element-wise operation of the program on operands."""
        x = tuple(map(as_objects, x))
        table = self.unary if len(x) == 1 else self.binary
        return np.asarray(table[name](*x), object)

    def run(self, inner: jax_interface.Opened, arguments: Sequence[np.ndarray]) -> list[np.ndarray]:
        values: dict[Any, np.ndarray] = {}

        def value(v: Any) -> np.ndarray:
            return jax_interface.literal(v) if jax_interface.is_literal(v) else values[v]

        for v, c in zip(inner.jaxpr.constvars, inner.consts, strict=True):
            values[v] = np.asarray(c)
        for v, x in zip(inner.jaxpr.invars, arguments, strict=True):
            values[v] = x
        for equation in inner.jaxpr.eqns:
            inputs = [value(v) for v in equation.invars]
            for v, x in zip(equation.outvars, self.equation(equation, inputs), strict=True):
                values[v] = x if isinstance(x, np.ndarray) else objects((), x)
        return [value(v) for v in inner.jaxpr.outvars]

    def equation(self, equation: Any, x: list[np.ndarray]) -> Sequence[np.ndarray]:
        name, params = equation.primitive.name, equation.params
        moved = MOVES.get(name)
        if moved is not None:
            return moved(params, *x)
        if name in SAME:
            return x
        if all(map(constant, x)) and name in FOLDED:
            return [np.asarray(FOLDED[name](params, *x)).astype(equation.outvars[0].aval.dtype)]
        if name == "round" and int(params.get("rounding_method", 0)) != 1:
            raise Unreadable("rounding of halves away from zero")
        if name in self.unary:
            return [self.apply(name, x[0])]
        if name in self.binary:
            if not np.issubdtype(equation.invars[0].aval.dtype, np.floating) and name not in ("and", "or", "xor"):
                if equation.invars[0].aval.dtype != np.bool_:
                    raise Unreadable(f"{name} of traced {equation.invars[0].aval.dtype}")
            return [self.apply(name, *x)]
        if name in LINEAR_ALGEBRA:
            return [LINEAR_ALGEBRA[name](self.program, self.apply, params, *map(as_objects, x))]
        if name == "add_any":
            return [self.apply("add", *x)]
        special = getattr(self, "_" + name.replace("-", "_"), None)
        if special is not None:
            return special(equation, params, x)
        called = jax_interface.called(params)
        if called is not None and name in CALLS:
            return self.run(called, x)
        if name in WRITTEN:
            return self.run(jax_interface.written(WRITTEN[name], equation), x)
        raise Unreadable(f"the operation {name}")

    def another(self, program: Program) -> Reader:
        return Reader(program, self.batches, self.loops)

    # --- arithmetic ------------------------------------------------------------------------------------------

    def _square(self, _, params, x):
        return [self.apply("mul", x[0], x[0])]

    def _rsqrt(self, _, params, x):
        root = self.apply("sqrt", x[0])
        return [self.apply("div", np.ones(root.shape), root)]

    def _logistic(self, _, params, x):
        grown = self.apply("exp", self.apply("neg", x[0]))
        one = np.ones(grown.shape)
        return [self.apply("div", one, self.apply("add", one, grown))]

    def _integer_pow(self, _, params, x):
        power, result, base = abs(params["y"]), None, x[0]
        while power:  # by squaring
            if power & 1:
                result = base if result is None else self.apply("mul", result, base)
            power >>= 1
            if power:
                base = self.apply("mul", base, base)
        if result is None:
            return [np.ones(x[0].shape)]
        return [result if params["y"] > 0 else self.apply("div", np.ones(result.shape), result)]

    def _select_n(self, equation, params, x):
        if equation.invars[0].aval.dtype != np.bool_ and len(x) > 3:
            raise Unreadable("a choice of more than two")
        kinds = equation.invars[1].aval.dtype
        if np.issubdtype(kinds, np.integer) and not constant(x[0]):
            raise Unreadable("a traced choice of integers")
        if constant(x[0]) and all(map(constant, x)):
            return [np.where(x[0], x[2], x[1])]
        if len(x) == 2:
            return [x[1]]
        return [np.asarray(self.select(*np.broadcast_arrays(*map(as_objects, x))), object)]

    def _clamp(self, _, params, x):
        low, value, high = np.broadcast_arrays(*map(as_objects, x))
        return [self.apply("min", self.apply("max", value, low), high)]

    def _convert_element_type(self, equation, params, x):
        new, old = np.dtype(params["new_dtype"]), equation.invars[0].aval.dtype
        if constant(x[0]):
            return [x[0].astype(new)]
        if old == new:
            return x
        # A truth made a number stays what it is until it is read: traced integers can only have come from one.
        if old == np.bool_ and np.issubdtype(new, np.integer):
            return x
        if (old == np.bool_ or np.issubdtype(old, np.integer)) and np.issubdtype(new, np.floating):
            shape = x[0].shape
            return [np.asarray(self.select(x[0], objects(shape, 0.0), objects(shape, 1.0)), object)]
        if new == np.bool_ and np.issubdtype(old, np.integer):
            return x
        if new == np.bool_:
            return [self.apply("ne", x[0], np.zeros(x[0].shape))]
        if np.issubdtype(old, np.floating) and np.issubdtype(new, np.floating):
            raise Unreadable(f"{old} made {new}")
        raise Unreadable(f"traced {old} made {new}")

    def _reduce(self, name: str, params, x):
        result = as_objects(x[0])
        for axis in sorted(params["axes"], reverse=True):
            parts = list(np.moveaxis(result, axis, 0))
            if not parts:
                raise Unreadable("a reduction of nothing")
            total = np.asarray(parts[0], object)
            for part in parts[1:]:
                total = self.apply(name, total, np.asarray(part, object))
            result = total
        return [result]

    def _reduce_sum(self, _, params, x):
        if any(x[0].shape[a] == 0 for a in params["axes"]):
            return [np.zeros([n for a, n in enumerate(x[0].shape) if a not in params["axes"]])]
        return self._reduce("add", params, x)

    def _reduce_prod(self, _, params, x):
        return self._reduce("mul", params, x)

    def _reduce_max(self, _, params, x):
        return self._reduce("max", params, x)

    def _reduce_min(self, _, params, x):
        return self._reduce("min", params, x)

    def _reduce_and(self, _, params, x):
        return self._reduce("and", params, x)

    def _reduce_or(self, _, params, x):
        return self._reduce("or", params, x)

    def _cumulative(self, name: str, params, x):
        parts = np.moveaxis(as_objects(x[0]), params["axis"], 0).copy()
        order = range(1, len(parts)) if not params["reverse"] else range(len(parts) - 2, -1, -1)
        step = 1 if params["reverse"] else -1
        for i in order:
            parts[i] = self.apply(name, np.asarray(parts[i + step], object), np.asarray(parts[i], object))
        return [np.moveaxis(parts, 0, params["axis"])]

    def _cumsum(self, _, params, x):
        return self._cumulative("add", params, x)

    def _cumprod(self, _, params, x):
        return self._cumulative("mul", params, x)

    # --- indices known while reading -------------------------------------------------------------------------

    def _gather(self, equation, params, x):
        if not constant(x[1]):
            raise Unreadable("a gather by traced indices")
        where = gather_positions(x[0].shape, x[1], params)
        flat = np.append(as_objects(x[0]).ravel(), [math.nan])
        return [flat[where]]

    def _scatter(self, equation, params, x, combine: str | None = None):
        if not constant(x[1]):
            raise Unreadable("a scatter by traced indices")
        target, updates = as_objects(x[0]).copy(), as_objects(x[2])
        flat = target.reshape(-1)
        for update, at in zip(updates.ravel(), scatter_positions(x, params).ravel(), strict=True):
            if at >= 0:
                flat[at] = update if combine is None else self.program.binary(combine, flat[at], update)
        return [flat.reshape(target.shape)]

    def _scatter_add(self, equation, params, x):
        return self._scatter(equation, params, x, "add")

    def _dynamic_slice(self, _, params, x):
        return [x[0][window(x[1:], params["slice_sizes"], x[0].shape)]]

    def _dynamic_update_slice(self, _, params, x):
        out = as_objects(x[0]).copy()
        out[window(x[2:], x[1].shape, out.shape)] = as_objects(x[1])
        return [out]

    def _concatenate(self, _, params, x):
        if not all(map(constant, x)):
            x = list(map(as_objects, x))
        return [np.concatenate(x, params["dimension"])]

    def _stack(self, _, params, x):
        if not all(map(constant, x)):
            x = list(map(as_objects, x))
        return [np.stack(x, params.get("axis", params.get("dimension", 0)))]

    def _pad(self, _, params, x):
        if not all(map(constant, x)):
            x = list(map(as_objects, x))
        operand, fill = x
        config = params["padding_config"]
        if any(low < 0 or high < 0 for low, high, _ in config):
            raise Unreadable("a negative padding")
        sides = list(zip(operand.shape, config, strict=True))
        out = np.full([l + h + n + max(n - 1, 0) * gap for n, (l, h, gap) in sides], fill[()], operand.dtype)
        at = (slice(l, l + (n - 1) * (gap + 1) + 1 if n else l, gap + 1) for n, (l, _, gap) in sides)
        out[tuple(at)] = operand
        return [out]

    # --- control ---------------------------------------------------------------------------------------------

    def _scan(self, equation, params, x):
        scan = jax_interface.scan_parts(params)
        consts, carry = x[: scan.consts], x[scan.consts : scan.consts + scan.carries]
        xs = x[scan.consts + scan.carries :]
        ys: list[list[np.ndarray]] = [[]] * scan.length
        for i in reversed(range(scan.length)) if scan.reverse else range(scan.length):
            outs = self.run(scan.body, [*consts, *carry, *(row(a, i) for a in xs)])
            carry, ys[i] = outs[: scan.carries], outs[scan.carries :]
        stacked = []
        for k, v in enumerate(equation.outvars[scan.carries :]):
            rows = [y[k] for y in ys]
            if not rows:
                stacked.append(np.zeros(v.aval.shape, v.aval.dtype))
            else:
                stacked.append(np.stack(rows if all(map(constant, rows)) else list(map(as_objects, rows))))
        return [*carry, *stacked]

    def _while(self, equation, params, x):
        test, body = (jax_interface.opened(params[name]) for name in ("cond_jaxpr", "body_jaxpr"))
        n, m = params["cond_nconsts"], params["body_nconsts"]
        for_test, for_body, carry = x[:n], x[n : n + m], x[n + m :]
        for _ in range(10_000):
            go_on = self.run(test, [*for_test, *carry])[0]
            if not constant(go_on) and type(go_on[()]) is int:
                if not self.loops:
                    raise Unreadable("a loop whose end depends on values")
                dtypes = [v.aval.dtype for v in equation.invars]
                parts = (test, for_test, dtypes[:n]), (body, for_body, dtypes[n : n + m])
                return read_loop(self, parts, carry, dtypes[n + m :])
            if not go_on[()]:
                return carry
            carry = self.run(body, [*for_body, *carry])
        raise Unreadable("a very long loop")

    def _cond(self, equation, params, x):
        branches = [jax_interface.opened(branch) for branch in params["branches"]]
        choice = x[0]
        if constant(choice):
            number = min(max(int(choice), 0), len(branches) - 1)
            return self.run(branches[number], x[1:])
        if len(branches) != 2:
            raise Unreadable("a branch that depends on a traced number")
        no, yes = (self.run(branch, x[1:]) for branch in branches)
        return [
            np.asarray(self.select(*np.broadcast_arrays(choice, as_objects(a), as_objects(b))), object)
            for a, b in zip(no, yes, strict=True)
        ]

    def known(self, equation, x: np.ndarray) -> np.ndarray:
        """The operand of an equation that can be computed for numbers alone, such as the free axes of a known loop."""
        flat = [self.operand(element) for element in as_objects(x).ravel()]
        if any(type(element) is int for element in flat):
            raise Unreadable(f"the operation {equation.primitive.name}")
        return np.array(flat, equation.invars[0].aval.dtype).reshape(x.shape)

    def _argmax(self, equation, params, x):
        return [np.asarray(np.argmax(self.known(equation, x[0]), params["axes"][0]))]

    def _eigh(self, equation, _, x):
        values, vectors = np.linalg.eigh(self.known(equation, x[0]), "L")
        return [vectors, values]

    def _custom_linear_solve(self, _, params, x):
        inner, arguments = jax_interface.linear_solve(params, x)
        return self.run(inner, arguments)

    def _jaxsoa_kernel(self, equation, params, x):
        kernel, size = params["kernel"], params["size"]
        inner = jax_interface.opened(kernel.program())
        if size is None:
            outs = self.run(inner, kernel.with_constants(x))
            return [out for out, used in zip(outs, params["used"], strict=True) if used]
        if not self.batches:
            raise Unreadable("a batch of kernels inside a kernel")
        one, batched = {**params, "size": None}, params["batched"]
        each = []
        for i in range(size):
            state = [row(y, i) if b else y for y, b in zip(x, batched, strict=True)]
            each.append(self._jaxsoa_kernel(equation, one, state))
        return [np.stack(list(map(as_objects, same))) for same in zip(*each, strict=True)]
