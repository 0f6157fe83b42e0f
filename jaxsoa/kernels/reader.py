"""Reads a jaxpr into a straight-line program: arrays become their components, indices and loops are resolved.

While reading, an array is either a NumPy array of numbers (all of it constant) or an object array whose elements are
operands of the program. What is constant is computed by NumPy; everything else adds operations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsoa.kernels import jax_interface
from jaxsoa.kernels.program import BINARY, UNARY, Operand, Program, Straight, Unreadable, pruned

LARGEST_UNROLLED_PRODUCT = 900
"""Multiplications up to which a product of matrices is written out; larger ones are loops inside the kernel."""


def read(program: Any, constants: Sequence[np.ndarray | None], dtype: Any, limit: int) -> Straight:
    """The straight-line program of a jaxpr; arguments with a constant are baked, the others are inputs.

    Raises `Unreadable` where it is none: traced indices, unbounded loops, unknown operations, too many of them.
    """
    inner = jax_interface.opened(program)
    if estimated(inner) > 40 * limit:
        raise Unreadable("a program much longer than the limit")
    reader = _Reader(Program(dtype, limit))
    arguments = []
    for k, (v, constant) in enumerate(zip(inner.jaxpr.invars, constants, strict=True)):
        arguments.append(reader.argument(k, v.aval) if constant is None else np.asarray(constant))
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


def _objects(shape: tuple[int, ...], fill: Any = None) -> np.ndarray:
    x = np.empty(shape, object)
    if fill is not None:
        x[...] = fill
    return x


def _constant(x: np.ndarray) -> bool:
    return x.dtype != object


def _as_objects(x: np.ndarray) -> np.ndarray:
    """An array of operands: numbers as Python's own."""
    if x.dtype == object:
        return x
    out = np.empty(x.shape, object)
    if x.size:
        values = x.ravel().tolist()
        if x.dtype != np.bool_:
            values = [float(value) for value in values]
        out.reshape(-1)[:] = values
    return out


class _Reader:
    def __init__(self, program: Program):
        self.program = program
        p = program
        self.unary = {name: np.frompyfunc(lambda x, n=name: p.unary(n, x), 1, 1) for name in UNARY}
        self.binary = {name: np.frompyfunc(lambda a, b, n=name: p.binary(n, a, b), 2, 1) for name in BINARY}
        self.select = np.frompyfunc(p.select, 3, 1)

    def argument(self, k: int, aval: Any) -> np.ndarray:
        out = _objects(aval.shape)
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
        x = tuple(map(_as_objects, x))
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
                values[v] = x if isinstance(x, np.ndarray) else _objects((), x)
        return [value(v) for v in inner.jaxpr.outvars]

    def equation(self, equation: Any, x: list[np.ndarray]) -> Sequence[np.ndarray]:
        name, params = equation.primitive.name, equation.params
        moved = _MOVES.get(name)
        if moved is not None:
            return moved(params, *x)
        if name in _SAME:
            return x
        if all(map(_constant, x)) and name in _FOLDED:
            with np.errstate(all="ignore"):
                aval = equation.outvars[0].aval
                return [np.asarray(_FOLDED[name](params, *x)).astype(aval.dtype)]
        if name in self.unary:
            return [self.apply(name, x[0])]
        if name in self.binary:
            if not np.issubdtype(equation.invars[0].aval.dtype, np.floating) and name not in ("and", "or", "xor"):
                if equation.invars[0].aval.dtype != np.bool_:
                    raise Unreadable(f"{name} of traced {equation.invars[0].aval.dtype}")
            return [self.apply(name, *x)]
        special = getattr(self, "_" + name.replace("-", "_"), None)
        if special is not None:
            return special(equation, params, x)
        called = jax_interface.called(params)
        if called is not None and name in _CALLS:
            return self.run(called, x)
        raise Unreadable(f"the operation {name}")

    # --- arithmetic ------------------------------------------------------------------------------------------

    def _add_any(self, _, params, x):
        return [self.apply("add", *x)]

    def _mul_add(self, a, b):
        return self.apply("mul", a, b)

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
        if np.issubdtype(kinds, np.integer) and not _constant(x[0]):
            raise Unreadable("a traced choice of integers")
        if _constant(x[0]) and all(map(_constant, x)):
            return [np.where(x[0], x[2], x[1])]
        if len(x) == 2:
            return [x[1]]
        return [np.asarray(self.select(*np.broadcast_arrays(*map(_as_objects, x))), object)]

    def _clamp(self, _, params, x):
        low, value, high = np.broadcast_arrays(*map(_as_objects, x))
        return [self.apply("min", self.apply("max", value, low), high)]

    def _convert_element_type(self, equation, params, x):
        new, old = np.dtype(params["new_dtype"]), equation.invars[0].aval.dtype
        if _constant(x[0]):
            return [x[0].astype(new)]
        if old == new:
            return x
        if old == np.bool_ and np.issubdtype(new, np.floating):
            shape = x[0].shape
            return [np.asarray(self.select(x[0], _objects(shape, 0.0), _objects(shape, 1.0)), object)]
        if new == np.bool_:
            return [self.apply("ne", x[0], np.zeros(x[0].shape))]
        if np.issubdtype(old, np.floating) and np.issubdtype(new, np.floating):
            raise Unreadable(f"{old} made {new}")
        raise Unreadable(f"traced {old} made {new}")

    def _reduce(self, name: str, params, x):
        result = _as_objects(x[0])
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
        parts = np.moveaxis(_as_objects(x[0]), params["axis"], 0).copy()
        order = range(1, len(parts)) if not params["reverse"] else range(len(parts) - 2, -1, -1)
        step = 1 if params["reverse"] else -1
        for i in order:
            parts[i] = self.apply(name, np.asarray(parts[i + step], object), np.asarray(parts[i], object))
        return [np.moveaxis(parts, 0, params["axis"])]

    def _cumsum(self, _, params, x):
        return self._cumulative("add", params, x)

    def _cumprod(self, _, params, x):
        return self._cumulative("mul", params, x)

    def _dot_general(self, _, params, x):
        (contract_a, contract_b), (batch_a, batch_b) = params["dimension_numbers"]
        a, b = map(_as_objects, x)
        free_a = [i for i in range(a.ndim) if i not in (*contract_a, *batch_a)]
        free_b = [i for i in range(b.ndim) if i not in (*contract_b, *batch_b)]
        shape = [a.shape[i] for i in (*batch_a, *free_a)] + [b.shape[i] for i in free_b]
        batch, rows = math.prod(a.shape[i] for i in batch_a), math.prod(a.shape[i] for i in free_a)
        inner, columns = math.prod(a.shape[i] for i in contract_a), math.prod(b.shape[i] for i in free_b)
        a = a.transpose(*batch_a, *free_a, *contract_a).reshape(batch, rows, inner)
        b = b.transpose(*batch_b, *contract_b, *free_b).reshape(batch, inner, columns)
        if inner == 0:
            return [np.zeros(shape)]
        if rows * inner * columns > LARGEST_UNROLLED_PRODUCT:
            parts = [self.program.product(rows, inner, columns, a[k].ravel(), b[k].ravel()) for k in range(batch)]
            out = _objects((batch, rows * columns))
            for k, part in enumerate(parts):
                out[k] = part
            return [out.reshape(shape)]
        total = self.apply("mul", a[:, :, 0, None], b[:, None, 0, :])
        for k in range(1, inner):
            total = self.apply("add", total, self.apply("mul", a[:, :, k, None], b[:, None, k, :]))
        return [total.reshape(shape)]

    def _cholesky(self, _, params, x):
        given = _as_objects(x[0])
        n, p = given.shape[-1], self.program
        if n**3 > 6 * LARGEST_UNROLLED_PRODUCT:
            raise Unreadable("the factors of a large matrix")
        out = _objects(given.shape, 0.0)
        for A, L in zip(given.reshape(-1, n, n), out.reshape(-1, n, n), strict=True):
            for j in range(n):
                pivot = A[j, j]
                for m in range(j):
                    pivot = p.binary("sub", pivot, p.binary("mul", L[j, m], L[j, m]))
                L[j, j] = p.unary("sqrt", pivot)
                inverse = p.binary("div", 1.0, L[j, j])
                for i in range(j + 1, n):
                    entry = A[i, j]
                    for m in range(j):
                        entry = p.binary("sub", entry, p.binary("mul", L[i, m], L[j, m]))
                    L[i, j] = p.binary("mul", entry, inverse)
        return [out]

    def _triangular_solve(self, _, params, x):
        a, b = map(_as_objects, x)
        if a.ndim != 2 or a.shape[0] ** 2 * max(b.shape) > 6 * LARGEST_UNROLLED_PRODUCT:
            raise Unreadable("a large or batched triangular solve")
        p, lower = self.program, params["lower"] ^ bool(params["transpose_a"])
        A = a.T if params["transpose_a"] else a
        if not params["left_side"]:
            A, lower, b = A.T, not lower, b.T
        n, X = A.shape[0], b.copy()
        for c in range(X.shape[1]):
            for i in range(n) if lower else range(n - 1, -1, -1):
                entry = X[i, c]
                for j in range(i) if lower else range(i + 1, n):
                    entry = p.binary("sub", entry, p.binary("mul", A[i, j], X[j, c]))
                X[i, c] = entry if params["unit_diagonal"] else p.binary("div", entry, A[i, i])
        return [X if params["left_side"] else X.T]

    # --- indices known while reading -------------------------------------------------------------------------

    def _gather(self, equation, params, x):
        if not _constant(x[1]):
            raise Unreadable("a gather by traced indices")
        where = _gather_positions(x[0].shape, x[1], params)
        flat = np.append(_as_objects(x[0]).ravel(), [math.nan])
        return [flat[where]]

    def _scatter(self, equation, params, x, combine: str | None = None):
        if not _constant(x[1]):
            raise Unreadable("a scatter by traced indices")
        target, updates = _as_objects(x[0]).copy(), _as_objects(x[2])
        flat = target.reshape(-1)
        for update, at in zip(updates.ravel(), _scatter_positions(x, params).ravel(), strict=True):
            if at >= 0:
                flat[at] = update if combine is None else self.program.binary(combine, flat[at], update)
        return [flat.reshape(target.shape)]

    def _scatter_add(self, equation, params, x):
        return self._scatter(equation, params, x, "add")

    def _dynamic_slice(self, _, params, x):
        return [x[0][_window(x[1:], params["slice_sizes"], x[0].shape)]]

    def _dynamic_update_slice(self, _, params, x):
        out = _as_objects(x[0]).copy()
        out[_window(x[2:], x[1].shape, out.shape)] = _as_objects(x[1])
        return [out]

    def _concatenate(self, _, params, x):
        if not all(map(_constant, x)):
            x = list(map(_as_objects, x))
        return [np.concatenate(x, params["dimension"])]

    def _stack(self, _, params, x):
        if not all(map(_constant, x)):
            x = list(map(_as_objects, x))
        return [np.stack(x, params.get("axis", params.get("dimension", 0)))]

    def _pad(self, _, params, x):
        if not all(map(_constant, x)):
            x = list(map(_as_objects, x))
        operand, fill = x
        config = params["padding_config"]
        if any(low < 0 or high < 0 for low, high, _ in config):
            raise Unreadable("a negative padding")
        shape = [low + high + n + max(n - 1, 0) * gap for n, (low, high, gap) in zip(operand.shape, config, strict=True)]
        out = np.full(shape, fill[()], operand.dtype)
        at = (slice(l, l + (n - 1) * (g + 1) + 1 if n else l, g + 1) for n, (l, _, g) in zip(operand.shape, config))
        out[tuple(at)] = operand
        return [out]

    # --- control ---------------------------------------------------------------------------------------------

    def _scan(self, equation, params, x):
        scan = jax_interface.scan_parts(params)
        consts, carry = x[: scan.consts], x[scan.consts : scan.consts + scan.carries]
        xs = x[scan.consts + scan.carries :]
        ys: list[list[np.ndarray]] = [[]] * scan.length
        for i in reversed(range(scan.length)) if scan.reverse else range(scan.length):
            outs = self.run(scan.body, [*consts, *carry, *(_row(a, i) for a in xs)])
            carry, ys[i] = outs[: scan.carries], outs[scan.carries :]
        stacked = []
        for k, v in enumerate(equation.outvars[scan.carries :]):
            rows = [y[k] for y in ys]
            if not rows:
                stacked.append(np.zeros(v.aval.shape, v.aval.dtype))
            else:
                stacked.append(np.stack(rows if all(map(_constant, rows)) else list(map(_as_objects, rows))))
        return [*carry, *stacked]

    def _while(self, _, params, x):
        test, body = (jax_interface.opened(params[name]) for name in ("cond_jaxpr", "body_jaxpr"))
        n, m = params["cond_nconsts"], params["body_nconsts"]
        for_test, for_body, carry = x[:n], x[n : n + m], x[n + m :]
        for _ in range(10_000):
            go_on = self.run(test, [*for_test, *carry])[0]
            if not _constant(go_on) and type(go_on[()]) is int:
                raise Unreadable("a loop whose end depends on values")
            if not go_on[()]:
                return carry
            carry = self.run(body, [*for_body, *carry])
        raise Unreadable("a very long loop")

    def _cond(self, equation, params, x):
        branches = [jax_interface.opened(branch) for branch in params["branches"]]
        choice = x[0]
        if _constant(choice):
            number = min(max(int(choice), 0), len(branches) - 1)
            return self.run(branches[number], x[1:])
        if len(branches) != 2 or equation.invars[0].aval.dtype != np.bool_:
            raise Unreadable("a branch that depends on a traced number")
        no, yes = (self.run(branch, x[1:]) for branch in branches)
        return [
            np.asarray(self.select(*np.broadcast_arrays(choice, _as_objects(a), _as_objects(b))), object)
            for a, b in zip(no, yes, strict=True)
        ]

    def _custom_linear_solve(self, _, params, x):
        inner, arguments = jax_interface.linear_solve(params, x)
        return self.run(inner, arguments)

    def _jaxsoa_kernel(self, _, params, x):
        kernel, size = params["kernel"], params["size"]
        if size is not None:
            raise Unreadable("a batch of kernels inside a kernel")
        inner = jax_interface.opened(kernel.program())
        outs = self.run(inner, kernel.with_constants(x))
        return [out for out, used in zip(outs, params["used"], strict=True) if used]


def _row(x: np.ndarray, i: int) -> np.ndarray:
    row = x[i]
    if isinstance(row, np.ndarray):
        return row
    return np.asarray(row, x.dtype) if x.dtype != object else _objects((), row)


def _window(starts: Sequence[np.ndarray], sizes: Sequence[int], shape: Sequence[int]) -> tuple[slice, ...]:
    if not all(map(_constant, starts)):
        raise Unreadable("a slice at a traced place")
    first = [min(max(int(i), 0), n - size) for i, size, n in zip(starts, sizes, shape, strict=True)]
    return tuple(slice(i, i + size) for i, size in zip(first, sizes, strict=True))


def _gather_positions(shape: tuple[int, ...], index: np.ndarray, params: dict) -> np.ndarray:
    """For each element of a gather's result, where it comes from (-1: from outside)."""
    with jax.ensure_compile_time_eval():
        positions = jnp.arange(math.prod(shape)).reshape(shape)
        options = {name: params[name] for name in ("dimension_numbers", "slice_sizes", "mode")}
        return np.asarray(jax.lax.gather(positions, jnp.asarray(index), fill_value=-1, **options))


def _scatter_positions(x: list[np.ndarray], params: dict) -> np.ndarray:
    """For each update of a scatter, where it goes (-1: nowhere): the transpose, a gather of positions, tells."""
    with jax.ensure_compile_time_eval():
        index, numbers, mode = jnp.asarray(x[1]), params["dimension_numbers"], params["mode"]

        def scatter(updates):
            return jax.lax.scatter_add(jnp.zeros(x[0].shape), index, updates, numbers, mode=mode)

        positions = jnp.arange(1.0, x[0].size + 1).reshape(x[0].shape)
        found = jax.linear_transpose(scatter, jax.ShapeDtypeStruct(x[2].shape, positions.dtype))(positions)[0]
        return np.asarray(found).astype(int) - 1


def _broadcast(params: dict, x: np.ndarray) -> list[np.ndarray]:
    shape = [1] * len(params["shape"])
    for i, d in enumerate(params["broadcast_dimensions"]):
        shape[d] = x.shape[i]
    return [np.broadcast_to(x.reshape(shape), params["shape"])]


def _iota(params: dict) -> list[np.ndarray]:
    shape = [1] * len(params["shape"])
    shape[params["dimension"]] = -1
    count = np.arange(params["shape"][params["dimension"]], dtype=params["dtype"])
    return [np.broadcast_to(count.reshape(shape), params["shape"])]


def _slice(params: dict, x: np.ndarray) -> list[np.ndarray]:
    strides = params["strides"] or (1,) * x.ndim
    bounds = zip(params["start_indices"], params["limit_indices"], strides, strict=True)
    return [x[tuple(slice(*bound) for bound in bounds)]]


_MOVES: dict[str, Callable[..., list[np.ndarray]]] = {
    "broadcast_in_dim": lambda p, x, *_: _broadcast(p, x),
    "iota": _iota,
    "slice": _slice,
    "squeeze": lambda p, x: [np.squeeze(x, tuple(p["dimensions"]))],
    "expand_dims": lambda p, x: [np.expand_dims(x, tuple(p["dimensions"]))],
    "reshape": lambda p, x, *_: [x.reshape(p["new_sizes"])],
    "transpose": lambda p, x: [x.transpose(p["permutation"])],
    "rev": lambda p, x: [np.flip(x, p["dimensions"])],
    "unstack": lambda p, x: list(np.moveaxis(x, p["axis"], 0)),
    "split": lambda p, x: np.split(x, np.cumsum(p["sizes"])[:-1], p["axis"]),
}
_SAME = frozenset(
    """copy copy_p optimization_barrier stop_gradient layout_constraint sharding_constraint pvary pcast
    reduce_precision name called_as_one_kernel""".split()
)
_CALLS = frozenset(
    """jit pjit custom_jvp_call custom_vjp_call custom_vmap_call closed_call core_call remat remat2 checkpoint
    custom_lin custom_jvp_call_jaxpr""".split()
)


def _floor_divide(params, a, b):
    if np.issubdtype(a.dtype, np.integer):
        return (a / b).astype(a.dtype)  # towards zero, as JAX
    return np.divide(a, b)


# What NumPy computes where every operand is a constant.
_FOLDED: dict[str, Callable[..., Any]] = {
    "add": lambda p, a, b: a + b, "sub": lambda p, a, b: a - b, "mul": lambda p, a, b: a * b, "div": _floor_divide,
    "add_any": lambda p, a, b: a + b,
    "max": lambda p, a, b: np.maximum(a, b), "min": lambda p, a, b: np.minimum(a, b), "neg": lambda p, a: -a,
    "lt": lambda p, a, b: a < b, "gt": lambda p, a, b: a > b, "le": lambda p, a, b: a <= b,
    "ge": lambda p, a, b: a >= b, "eq": lambda p, a, b: a == b, "ne": lambda p, a, b: a != b,
    "and": lambda p, a, b: a & b, "or": lambda p, a, b: a | b, "xor": lambda p, a, b: a ^ b, "not": lambda p, a: ~a,
    "rem": lambda p, a, b: np.fmod(a, b), "pow": lambda p, a, b: np.power(a, b), "sin": lambda p, a: np.sin(a),
    "cos": lambda p, a: np.cos(a), "tan": lambda p, a: np.tan(a), "tanh": lambda p, a: np.tanh(a),
    "exp": lambda p, a: np.exp(a), "log": lambda p, a: np.log(a), "sqrt": lambda p, a: np.sqrt(a),
    "rsqrt": lambda p, a: 1 / np.sqrt(a), "abs": lambda p, a: np.abs(a), "sign": lambda p, a: np.sign(a),
    "square": lambda p, a: a * a, "is_finite": lambda p, a: np.isfinite(a), "floor": lambda p, a: np.floor(a),
    "ceil": lambda p, a: np.ceil(a), "atan2": lambda p, a, b: np.arctan2(a, b), "acos": lambda p, a: np.arccos(a),
    "asin": lambda p, a: np.arcsin(a), "atan": lambda p, a: np.arctan(a),
    "integer_pow": lambda p, a: a ** p["y"] if p["y"] >= 0 else 1 / a ** -p["y"],
    "reduce_sum": lambda p, a: a.sum(tuple(p["axes"])), "reduce_max": lambda p, a: a.max(tuple(p["axes"])),
    "reduce_min": lambda p, a: a.min(tuple(p["axes"])), "reduce_and": lambda p, a: a.all(tuple(p["axes"])),
    "reduce_or": lambda p, a: a.any(tuple(p["axes"])), "reduce_prod": lambda p, a: a.prod(tuple(p["axes"])),
    "clamp": lambda p, low, a, high: np.clip(a, low, high),
    "cumsum": lambda p, a: np.flip(np.cumsum(np.flip(a, p["axis"]), p["axis"]), p["axis"])
    if p["reverse"] else np.cumsum(a, p["axis"]),
}  # fmt: skip
