"""A straight-line program as element-wise operations of JAX on whole batches: for GPUs and TPUs.

Every scalar of the program becomes an array with one element per state, so that XLA sees nothing but element-wise
operations and fuses them into few launches. Long programs are cut into parts (`PART` operations each) between which
values are stored: fusing everything would take minutes to compile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxsoa.kernels.program import Operation, Straight, depth_first, operands

WHOLE = 5_000
"""Operations up to which a program has no barrier: an arm's forward dynamics is 6 launches then instead of 14, and half
the traffic, but takes twice as long to compile."""

PART = 2_000
"""Operations between two barriers of a longer program."""

LONGEST = 24_000
"""Operations up to which a program is written out for an accelerator; beyond, XLA compiles for minutes."""

_FUNCTIONS: dict[str, Callable] = {
    "add": lax.add, "sub": lax.sub, "mul": lax.mul, "div": lax.div, "max": lax.max, "min": lax.min, "rem": lax.rem,
    "pow": lax.pow, "atan2": lax.atan2, "lt": lax.lt, "gt": lax.gt, "le": lax.le, "ge": lax.ge, "eq": lax.eq,
    "ne": lax.ne, "and": lax.bitwise_and, "or": lax.bitwise_or, "xor": lax.bitwise_xor, "not": lax.bitwise_not,
    "neg": lax.neg, "round": lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN),
    "select": lambda which, false, true: jnp.where(which, true, false),
    **{name: getattr(lax, name) for name in """sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh exp exp2
       expm1 log log1p sqrt cbrt abs sign floor ceil is_finite erf""".split()},
}  # fmt: skip
WRITTEN = {*_FUNCTIONS, "in", "item", "product"}


def evaluate(straight: Straight, arguments: Sequence[Array], batched: Sequence[bool], size: int | None, dtype: Any):
    """The results, each (its number of elements,) or, with `size` states, (size, its number of elements).

    Arguments are flat: (elements,), or (size, elements) where `batched`.
    """
    straight = depth_first(straight)
    # Batch last: the elements of one component of all states are neighbours in memory.
    rows = [x.T if b else x for x, b in zip(arguments, batched, strict=True)]
    lead = () if size is None else (size,)
    values: list[Any] = []
    last_read, whole = _last_readers(straight), straight.cost <= WHOLE
    for number, op in enumerate(straight.operations):
        values.append(_value(op, values, rows, dtype))
        if not whole and (number + 1) % PART == 0:
            _store(values, number, last_read)

    def column(x):
        if type(x) is not int:
            x = np.asarray(x, bool if type(x) is bool else dtype)
        else:
            x = values[x]
        return jnp.broadcast_to(jnp.asarray(x, dtype), lead)

    return [
        jnp.stack([column(x) for x in elements], axis=-1) if elements else jnp.zeros((*lead, 0), dtype)
        for elements in straight.results
    ]


def _value(op: Operation, values: list, rows: Sequence[Array], dtype: Any) -> Any:
    def read(x):
        if type(x) is int:
            return values[x]
        return np.asarray(x, bool if type(x) is bool else dtype)

    name = op[0]
    if name == "in":
        return rows[op[1]][op[2]]
    if name == "product":
        (n, inner, m), elements = op[1], [read(x) for x in op[2]]
        shape = jnp.broadcast_shapes(*(x.shape for x in elements))
        table = jnp.stack([jnp.broadcast_to(x, shape) for x in elements])
        left, right = table[: n * inner].reshape(n, inner, *shape), table[n * inner :].reshape(inner, m, *shape)
        return jnp.sum(left[:, :, None] * right[None], axis=1).reshape(n * m, *shape)
    if name == "item":
        return values[op[1]][op[2]]
    return _FUNCTIONS[name](*_alike([read(x) for x in op[1:]]))


def _alike(operands: list) -> list:
    """Numbers of no state spread over all states where they meet others."""
    shape = jnp.broadcast_shapes(*(x.shape for x in operands))
    return [x if x.shape == shape else jnp.broadcast_to(x, shape) for x in operands]


def _last_readers(straight: Straight) -> list[int]:
    """Per value, the number of the last operation that reads it; results are read at the end."""
    last = [0] * len(straight.operations)
    for number, op in enumerate(straight.operations):
        for x in operands(op):
            if type(x) is int:
                last[x] = number
    for elements in straight.results:
        for x in elements:
            if type(x) is int:
                last[x] = len(straight.operations)
    return last


def _store(values: list, number: int, last_read: Sequence[int]) -> None:
    """What is still needed goes through memory here, so that no fusion reaches across."""
    open_ = [i for i in range(number + 1) if last_read[i] > number and values[i] is not None]
    for i, x in zip(open_, lax.optimization_barrier([values[i] for i in open_]), strict=True):
        values[i] = x
