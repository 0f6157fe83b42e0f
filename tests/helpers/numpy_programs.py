"""JAX's programs, as they are after batching and differentiating, computed by NumPy, an operation at a time.

    results = evaluated(jax.make_jaxpr(f)(*x), jax.tree.leaves(x))

Nothing is compiled. A transformation of JAX is done when its program is made: what a batch, a derivative or `shard_map`
does to a function is in there, and compiling, nearly all of what trying it costs, adds nothing to it. What compilers
and kernels make of a program is another question, which other tests ask.

Operations that are rare are left to JAX, one at a time; a kernel is the program it stands for, state by state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxsoa.kernels import jax_interface

IDENTITIES = "copy copy_p stop_gradient optimization_barrier pvary pcast reshard sharding_constraint".split()


def evaluated(program: Any, values: Sequence[Any]) -> list[np.ndarray]:
    """Results of a jaxpr, closed or with its constants beside it."""
    jaxpr, consts = jax_interface.opened(program)
    plan = _plan(jaxpr)
    known = list(plan.literals)
    known[: len(plan.given)] = map(_array, (*consts, *values))
    with np.errstate(all="ignore"):
        for step in plan.steps:
            found = step.run([known[i] for i in step.operands])
            for i, x, kind in zip(step.results, found, step.kinds, strict=True):
                x = _array(x)
                assert (x.shape, x.dtype) == kind, f"{step.name}: {x.shape} {x.dtype}, not {kind}"
                known[i] = x
    return [known[i] for i in plan.results]


class Step(NamedTuple):
    name: str
    run: Callable[[list[Any]], Sequence[Any]]
    operands: tuple[int, ...]
    results: tuple[int, ...]
    kinds: tuple[tuple, ...]


class Plan(NamedTuple):
    """A jaxpr whose variables have numbers: those given come first; what is written in it is known from the start."""

    given: tuple[Any, ...]
    literals: list[Any]
    steps: list[Step]
    results: tuple[int, ...]


@lru_cache(maxsize=4096)
def _plan(jaxpr: Any) -> Plan:
    given = (*jaxpr.constvars, *jaxpr.invars)
    number = {v: i for i, v in enumerate(given)}
    literals: list[Any] = [None] * len(given)

    def of(v: Any) -> int:
        if not jax_interface.is_literal(v) and v in number:
            return number[v]
        literals.append(jax_interface.literal(v) if jax_interface.is_literal(v) else None)
        if not jax_interface.is_literal(v):
            number[v] = len(literals) - 1
        return len(literals) - 1

    steps = []
    for eqn in jaxpr.eqns:
        operands = tuple(map(of, eqn.invars))
        kinds = tuple((v.aval.shape, v.aval.dtype) for v in eqn.outvars)
        steps.append(Step(eqn.primitive.name, partial(_of_one, eqn), operands, tuple(map(of, eqn.outvars)), kinds))
    return Plan(given, literals, steps, tuple(map(of, jaxpr.outvars)))


def _array(x: Any) -> Any:
    if type(x) is np.ndarray:
        return x
    return x if isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.extended) else np.asarray(x)


def _of_one(eqn: Any, x: list[Any]) -> Sequence[Any]:
    name, params = eqn.primitive.name, eqn.params
    if name in SIMPLE:
        return [SIMPLE[name](*x)]
    if name in WITH_PARAMETERS:
        return [WITH_PARAMETERS[name](params, *x)]
    if name in PROGRAMS:
        return PROGRAMS[name](params, x)
    if name in IDENTITIES:
        return x
    inner = jax_interface.called(params)
    if inner is not None:
        return evaluated(inner, x)
    return jax_interface.evaluated(eqn, [jnp.asarray(y) if isinstance(y, np.ndarray) else y for y in x])


# --- one operation, one result ------------------------------------------------------------------------------------


def _divided(x, y):
    if x.dtype.kind == "f":
        return x / y
    return (np.sign(x) * np.sign(y) * (np.abs(x) // np.maximum(np.abs(y), 1))).astype(x.dtype)


def _select(which, *cases):
    return np.choose(which.astype(int), cases) if len(cases) > 2 else np.where(which, cases[1], cases[0])


SIMPLE: dict[str, Callable] = {
    "add": np.add, "add_any": np.add, "sub": np.subtract, "mul": np.multiply, "div": _divided, "neg": np.negative,
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan,
    "atan2": np.arctan2, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "log": np.log, "log1p": np.log1p,
    "expm1": np.expm1, "sqrt": np.sqrt, "abs": np.abs, "sign": np.sign, "floor": np.floor, "ceil": np.ceil,
    "max": np.maximum, "min": np.minimum, "pow": np.power, "square": np.square, "is_finite": np.isfinite,
    "rsqrt": lambda x: (1 / np.sqrt(x)).astype(x.dtype), "cbrt": np.cbrt, "exp": lambda x: np.exp(x), "not": np.invert,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "eq": np.equal, "ne": np.not_equal,
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "rem": np.fmod,
    "select_n": _select, "nextafter": np.nextafter,
    "clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high),
}  # fmt: skip


def _broadcast(p, x):
    shape = [1] * len(p["shape"])
    for d, size in zip(p["broadcast_dimensions"], x.shape, strict=True):
        shape[d] = size
    return np.broadcast_to(x.reshape(shape), p["shape"])


def _product(p, x, y):
    """As letters of `einsum`: those of the batch, of what is summed, and of the rest."""
    (sum_x, sum_y), (batch_x, batch_y) = p["dimension_numbers"]
    of_x, of_y = list(range(x.ndim)), list(range(x.ndim, x.ndim + y.ndim))
    for i, j in zip((*batch_x, *sum_x), (*batch_y, *sum_y), strict=True):
        of_y[j] = of_x[i]
    rest_x = [of_x[i] for i in range(x.ndim) if i not in (*batch_x, *sum_x)]
    rest_y = [of_y[j] for j in range(y.ndim) if j not in (*batch_y, *sum_y)]
    kind = p["preferred_element_type"] or x.dtype
    return np.einsum(x, of_x, y, of_y, [*(of_x[i] for i in batch_x), *rest_x, *rest_y]).astype(kind)


def _window(starts, sizes, shape):
    first = [min(max(int(i), 0), n - size) for i, size, n in zip(starts, sizes, shape, strict=True)]
    return tuple(slice(i, i + size) for i, size in zip(first, sizes, strict=True))


def _updated(p, x, update, *starts):
    found = x.copy()
    found[_window(starts, update.shape, x.shape)] = update
    return found


def _padded(p, x, fill):
    low, high, inner = zip(*p["padding_config"], strict=True) if x.ndim else ((), (), ())
    spread = [n + max(n - 1, 0) * k for n, k in zip(x.shape, inner, strict=True)]
    sizes = [n + a + b for n, a, b in zip(spread, low, high, strict=True)]
    wide = np.full([n + max(a, 0) + max(b, 0) for n, a, b in zip(spread, low, high, strict=True)], fill, x.dtype)
    steps = zip(spread, low, inner, strict=True)
    wide[tuple(slice(max(a, 0), max(a, 0) + n, k + 1) for n, a, k in steps)] = x
    return wide[tuple(slice(max(-a, 0), max(-a, 0) + n) for n, a in zip(sizes, low, strict=True))]


def _strided(p, x):
    strides = p["strides"] or (1,) * x.ndim
    return x[tuple(map(slice, p["start_indices"], p["limit_indices"], strides))]


def _cumulative(function):
    def call(p, x):
        x = np.flip(x, p["axis"]) if p["reverse"] else x
        found = function(x, p["axis"], x.dtype)
        return np.flip(found, p["axis"]) if p["reverse"] else found

    return call


def _power(p, x):
    return x ** p["y"] if p["y"] >= 0 else 1 / x ** -p["y"]


def _counted(p, *_):
    counts = np.arange(p["shape"][p["dimension"]]).astype(p["dtype"])
    return _broadcast({"shape": p["shape"], "broadcast_dimensions": (p["dimension"],)}, counts)


def _gathered(p, x, index):
    numbers = p["dimension_numbers"]
    sizes, batching = p["slice_sizes"], numbers.operand_batching_dims
    hidden = {*numbers.collapsed_slice_dims, *batching}
    place = _places(x.shape, sizes, index, numbers.start_index_map, batching, numbers.start_indices_batching_dims)
    starts, inside = place
    exact = "PROMISE" in str(p["mode"]) or "CLIP" in str(p["mode"])
    starts = [np.clip(s, 0, n - k) for s, n, k in zip(starts, x.shape, sizes, strict=True)]
    free = [d for d in range(x.ndim) if d not in hidden]
    found = x[_slices(starts, sizes, free)]
    batch_rank = index.ndim - 1
    if not exact:
        nothing = np.nan if x.dtype.kind == "f" else np.iinfo(x.dtype).min
        fill = nothing if p["fill_value"] is None else p["fill_value"]
        found = np.where(inside.reshape(*inside.shape, *(1,) * len(free)), found, np.asarray(fill, x.dtype))
    return np.moveaxis(found, range(batch_rank, found.ndim), numbers.offset_dims)


def _places(shape, sizes, index, index_map, batching, index_batching):
    """Where each slice starts, along every axis, and whether all of it lies inside."""
    batch = index.shape[:-1]
    starts = [np.zeros(batch, int) for _ in shape]
    for k, d in enumerate(index_map):
        starts[d] = index[..., k].astype(int)
    for d, axis in zip(batching, index_batching, strict=True):
        starts[d] = np.broadcast_to(np.arange(batch[axis]).reshape(-1, *(1,) * (len(batch) - axis - 1)), batch)
    inside = np.ones(batch, bool)
    for start, n, size in zip(starts, shape, sizes, strict=True):
        inside &= (start >= 0) & (start <= n - size)
    return starts, inside


def _slices(starts, sizes, free):
    """Indices of every slice's elements, along axes behind those of `starts`: one for each axis that is `free`."""

    def along(d, start, size):
        start = start.reshape(*start.shape, *(1,) * len(free))
        if d not in free:
            return start
        return start + np.arange(size).reshape(*(size if k == d else 1 for k in free))

    return tuple(along(d, start, size) for d, (start, size) in enumerate(zip(starts, sizes, strict=True)))


def _scattered(combine):
    def call(p, x, index, updates):
        numbers = p["dimension_numbers"]
        batching = numbers.operand_batching_dims
        hidden = {*numbers.inserted_window_dims, *batching}
        free = [d for d in range(x.ndim) if d not in hidden]
        window = numbers.update_window_dims
        sizes = [1] * x.ndim
        for d, axis in zip(free, window, strict=True):
            sizes[d] = updates.shape[axis]
        to_dims = numbers.scatter_dims_to_operand_dims
        starts, inside = _places(x.shape, sizes, index, to_dims, batching, numbers.scatter_indices_batching_dims)
        if "CLIP" in str(p["mode"]):
            starts = [np.clip(s, 0, n - k) for s, n, k in zip(starts, x.shape, sizes, strict=True)]
            inside = np.ones_like(inside)
        updates = np.moveaxis(updates, window, range(updates.ndim - len(window), updates.ndim))
        found = x.copy()
        combine(found, _slices([start[inside] for start in starts], sizes, free), updates[inside])
        return found

    return call


def _put(x, where, updates):
    x[where] = updates


WITH_PARAMETERS: dict[str, Callable] = {
    "convert_element_type": lambda p, x: x.astype(p["new_dtype"]),
    # A sum over devices arises as the derivative by a constant, and is nobody's concern: NaN, should it be somebody's.
    "psum_invariant": lambda p, x: np.full_like(x, np.nan),
    "integer_pow": _power,
    "reduce_precision": lambda p, x: x,
    "round": lambda p, x: np.rint(x) if int(p["rounding_method"]) == 1 else np.trunc(x + np.copysign(0.5, x)),
    "broadcast_in_dim": _broadcast,
    "reshape": lambda p, x: x.reshape(p["new_sizes"]),
    "squeeze": lambda p, x: x.squeeze(tuple(p["dimensions"])),
    "expand_dims": lambda p, x: np.expand_dims(x, p["dimensions"]),
    "transpose": lambda p, x: x.transpose(p["permutation"]),
    "concatenate": lambda p, *x: np.concatenate(x, p["dimension"]),
    "stack": lambda p, *x: np.stack(x, p["axis"]),
    "tile": lambda p, x: np.tile(x, p["reps"]),
    "rev": lambda p, x: np.flip(x, p["dimensions"]),
    "slice": _strided,
    "dynamic_slice": lambda p, x, *starts: x[_window(starts, p["slice_sizes"], x.shape)],
    "dynamic_update_slice": _updated,
    "pad": _padded,
    "iota": _counted,
    "dot_general": _product,
    "reduce_sum": lambda p, x: x.sum(tuple(p["axes"]), dtype=x.dtype),
    "reduce_prod": lambda p, x: x.prod(tuple(p["axes"]), dtype=x.dtype),
    "reduce_max": lambda p, x: x.max(tuple(p["axes"])),
    "reduce_min": lambda p, x: x.min(tuple(p["axes"])),
    "reduce_or": lambda p, x: x.any(tuple(p["axes"])),
    "reduce_and": lambda p, x: x.all(tuple(p["axes"])),
    "argmax": lambda p, x: x.argmax(p["axes"][0]).astype(p["index_dtype"]),
    "argmin": lambda p, x: x.argmin(p["axes"][0]).astype(p["index_dtype"]),
    "cumsum": _cumulative(np.add.accumulate),
    "cumprod": _cumulative(np.multiply.accumulate),
    "cummax": _cumulative(np.maximum.accumulate),
    "gather": _gathered,
    "scatter": _scattered(_put),
    "scatter-add": _scattered(np.add.at),
    "scatter_add": _scattered(np.add.at),
    "scatter_mul": _scattered(np.multiply.at),
}


# --- several results, programs inside programs ---------------------------------------------------------------------


def _scan(params, x):
    parts = jax_interface.scan_parts(params)
    first = parts.consts + parts.carries
    consts, carry, slices = x[: parts.consts], x[parts.consts : first], x[first:]
    rows = []
    for k in reversed(range(parts.length)) if parts.reverse else range(parts.length):
        found = evaluated(parts.body, [*consts, *carry, *(y[k] for y in slices)])
        carry = found[: parts.carries]
        rows.append(found[parts.carries :])
    if parts.reverse:
        rows.reverse()
    empty = [np.empty((0, *a.shape), a.dtype) for a in jax_interface.out_avals(parts.body)[parts.carries :]]
    return [*carry, *([np.stack(column) for column in zip(*rows, strict=True)] if rows else empty)]


def _while(params, x):
    before, within = params["cond_nconsts"], params["body_nconsts"]
    of_cond, of_body, carry = x[:before], x[before : before + within], x[before + within :]
    while (goes_on := evaluated(params["cond_jaxpr"], [*of_cond, *carry])[0]).any():
        found = evaluated(params["body_jaxpr"], [*of_body, *carry])
        if goes_on.ndim:  # of a batch, those that have ended stay as they are
            shapes = [goes_on.shape + (1,) * (y.ndim - goes_on.ndim) for y in carry]
            pairs = zip(shapes, found, carry, strict=True)
            found = [np.where(goes_on.reshape(shape), after, before) for shape, after, before in pairs]
        carry = found
    return carry


def _branch(params, x):
    return evaluated(params["branches"][int(x[0])], x[1:])


def _linear_solve(params, x):
    return evaluated(*jax_interface.linear_solve(params, x))


def _kernel(params, x):
    """The program of the function, for each state of a batch."""
    kernel, size, batched, used = (params[name] for name in ("kernel", "size", "batched", "used"))

    def one(state):
        found = evaluated(kernel.program(), kernel.with_constants(state))
        return [y for y, keep in zip(found, used, strict=True) if keep]

    if size is None:
        return one(x)
    rows = [one([y[k] if b else y for y, b in zip(x, batched, strict=True)]) for k in range(size)]
    return [np.stack(column) for column in zip(*rows, strict=True)]


def _split(params, x):
    return np.split(x[0], np.cumsum(params["sizes"])[:-1], params["axis"])


def _sharded(params, x):
    """The program of every device, one after the other; arrays are divided along their first axis or not at all."""
    count, into, out_of = params["mesh"].size, *(params[name] for name in ("in_specs", "out_specs"))

    def part(y, spec, device):
        return np.split(y, count)[device] if any(spec) else y

    found = [
        evaluated(params["jaxpr"], [part(y, spec, k) for y, spec in zip(x, into, strict=True)]) for k in range(count)
    ]
    columns = zip(*found, strict=True)
    return [np.concatenate(y) if any(spec) else y[0] for y, spec in zip(columns, out_of, strict=True)]


PROGRAMS: dict[str, Callable] = {
    "shard_map": _sharded,
    "split": _split,
    "unstack": lambda params, x: list(np.moveaxis(x[0], params["axis"], 0)),
    "scan": _scan,
    "while": _while,
    "cond": _branch,
    "custom_linear_solve": _linear_solve,
    "jaxsoa_kernel": _kernel,
}
