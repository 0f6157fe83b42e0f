"""Arrays while a jaxpr is read: what moves their elements, and what NumPy computes where all of them are constant."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsoa.kernels.program import Unreadable


def objects(shape: tuple[int, ...], fill: Any = None) -> np.ndarray:
    x = np.empty(shape, object)
    if fill is not None:
        x[...] = fill
    return x


def constant(x: np.ndarray) -> bool:
    return x.dtype != object


def as_objects(x: np.ndarray) -> np.ndarray:
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


def row(x: np.ndarray, i: int) -> np.ndarray:
    row = x[i]
    if isinstance(row, np.ndarray):
        return row
    return np.asarray(row, x.dtype) if x.dtype != object else objects((), row)


def window(starts: Sequence[np.ndarray], sizes: Sequence[int], shape: Sequence[int]) -> tuple[slice, ...]:
    if not all(map(constant, starts)):
        raise Unreadable("a slice at a traced place")
    first = [min(max(int(i), 0), n - size) for i, size, n in zip(starts, sizes, shape, strict=True)]
    return tuple(slice(i, i + size) for i, size in zip(first, sizes, strict=True))


def gather_positions(shape: tuple[int, ...], index: np.ndarray, params: dict) -> np.ndarray:
    """For each element of a gather's result, where it comes from (-1: from outside)."""
    with jax.ensure_compile_time_eval():
        positions = jnp.arange(math.prod(shape)).reshape(shape)
        options = {name: params[name] for name in ("dimension_numbers", "slice_sizes", "mode")}
        return np.asarray(jax.lax.gather(positions, jnp.asarray(index), fill_value=-1, **options))


def scatter_positions(x: list[np.ndarray], params: dict) -> np.ndarray:
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


MOVES: dict[str, Callable[..., list[np.ndarray]]] = {
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
SAME = frozenset(
    """copy copy_p optimization_barrier stop_gradient layout_constraint sharding_constraint pvary pcast
    reduce_precision name called_as_one_kernel""".split()
)
CALLS = frozenset(
    """jit pjit custom_jvp_call custom_vjp_call custom_vmap_call closed_call core_call remat remat2 checkpoint
    custom_lin custom_jvp_call_jaxpr""".split()
)


def _floor_divide(params, a, b):
    if np.issubdtype(a.dtype, np.integer):
        return (a / b).astype(a.dtype)  # towards zero, as JAX
    return np.divide(a, b)


# What NumPy computes where every operand is a constant.
FOLDED: dict[str, Callable[..., Any]] = {
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
