"""A cost that is written as a sum of squares, read as one: what `LeastSquares` would have been told.

The cost is traced, and its operations are followed with what is known of each value: that it is a sum of squares,

    x[i] = sum_k root[i, k]^2 + rest[i],

by the few operations that keep it one (squares and products with itself, sums, positive constants, quadratic forms with
constant positive semidefinite matrices). At the end the roots are the residual; what is no square stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array

from jaxsoa.kernels.jax_interface import Literal, evaluated, opened


class _Known(NamedTuple):
    """A value, and what is known of it: `root` (*shape, k) and `rest`; or that it is `of` times (or through) `by`."""

    value: Any
    root: Array | None = None
    rest: Array | None = None
    of: Any = None  # the value that this one is proportional to,
    by: np.ndarray | None = None  # by these factors, or (a matrix) through this symmetric matrix
    of_root: Array | None = None  # root of the sum of squares that this is the square root of
    given: bool = False  # whether it is in the program, and not computed from its arguments


def as_squares(cost: Callable[..., Array], *arguments: Any) -> tuple[Array, Array | None]:
    """(residual, rest) with cost(*arguments) = |residual|^2 / 2 + rest; an empty residual where no squares are seen."""
    flat, tree = jax.tree.flatten(arguments)
    closed = jax.make_jaxpr(lambda *x: cost(*jax.tree.unflatten(tree, x)))(*flat)
    (end,) = _follow(*opened(closed), [_Known(jnp.asarray(x)) for x in flat], {})
    if end.root is None:
        return jnp.zeros(0, jnp.result_type(end.value)), end.value
    return jnp.sqrt(2.0).astype(end.root.dtype) * end.root, end.rest


def _follow(jaxpr: Any, consts: Any, inputs: list[_Known], seen: dict) -> list[_Known]:
    """What is known of a program's results. What is written twice is one value: `seen` finds it again."""
    known: dict[Any, _Known] = dict(zip(jaxpr.invars, inputs, strict=True))
    known.update(zip(jaxpr.constvars, [_Known(x, given=True) for x in consts], strict=True))

    def read(atom: Any) -> _Known:
        return _Known(atom.val, given=True) if isinstance(atom, Literal) else known[atom]

    for eqn in jaxpr.eqns:
        operands = [read(atom) for atom in eqn.invars]
        if eqn.primitive.name in ("jit", "pjit"):
            found = _follow(*opened(eqn.params["jaxpr"]), operands, seen)
        elif (key := _key(eqn, operands)) in seen:
            found = seen[key][0]
        else:
            rule = _RULES.get(eqn.primitive.name)
            found = [_Known(value) for value in evaluated(eqn, [x.value for x in operands])]
            if rule is not None:
                found = [rule(found[0].value, eqn.params, *operands) or found[0]]
            seen[key] = found, operands  # which keeps the operands, so that nothing else gets their ids
        known.update(zip(eqn.outvars, found, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _key(eqn: Any, operands: list[_Known]) -> tuple:
    names = [float(x.value) if x.given and not np.ndim(x.value) else id(x.value) for x in operands]
    return eqn.primitive, str(eqn.params), *names


def _constant(x: _Known) -> np.ndarray | None:
    return np.asarray(x.value) if x.given and not isinstance(x.value, Tracer) else None


def _positive(x: _Known) -> np.ndarray | None:
    value = _constant(x)
    return value if value is not None and (value >= 0).all() else None


def _scaled(value: Any, x: _Known, factor: np.ndarray) -> _Known:
    assert x.root is not None
    root = x.root * np.sqrt(factor)[..., None].astype(x.root.dtype)
    return _Known(value, root, None if x.rest is None else x.rest * factor)


def _product_of(value: Any, a: _Known, b: _Known) -> _Known | None:
    """The square of one value, or its product with a positive multiple of itself; entry by entry."""
    for x, y in ((a, b), (b, a)):
        if x.value is y.value:
            return _Known(value, x.value[..., None] if x.of_root is None else x.of_root)
        if y.of is x.value and y.by is not None and y.by.ndim <= jnp.ndim(x.value):
            return _Known(value, (x.value * np.sqrt(y.by).astype(x.value.dtype))[..., None])
    return None


def _mul(value: Any, params: Any, a: _Known, b: _Known) -> _Known | None:
    found = _product_of(value, a, b)
    if found is not None:
        return found
    for x, y in ((a, b), (b, a)):
        factor = _positive(y)
        if factor is not None:
            return _scaled(value, x, factor) if x.root is not None else _Known(value, of=x.value, by=factor)
    return None


def _div(value: Any, params: Any, a: _Known, b: _Known) -> _Known | None:
    factor = _positive(b)
    return None if factor is None or a.root is None else _scaled(value, a, 1 / factor)


def _square(value: Any, params: Any, a: _Known) -> _Known | None:
    power = params.get("y", 2)
    if power % 2 or power <= 0:
        return None
    return _product_of(value, a, a) if power == 2 else _Known(value, (a.value ** (power // 2))[..., None])


def _sqrt(value: Any, params: Any, a: _Known) -> _Known | None:
    return _Known(value, of_root=a.root) if a.root is not None and a.rest is None else None


def _add(value: Any, params: Any, a: _Known, b: _Known) -> _Known | None:
    if a.root is None and b.root is None:
        return None
    if jnp.shape(a.value) != jnp.shape(b.value):
        return None
    roots = [x.root for x in (a, b) if x.root is not None]
    rests = [x.rest if x.root is not None else x.value for x in (a, b)]
    rests = [x for x in rests if x is not None]
    return _Known(value, jnp.concatenate(roots, axis=-1), sum(rests[1:], rests[0]) if rests else None)


def _sub(value: Any, params: Any, a: _Known, b: _Known) -> _Known | None:
    if a.root is None or jnp.shape(a.value) != jnp.shape(b.value):
        return None
    return _Known(value, a.root, -b.value if a.rest is None else a.rest - b.value)


def _sum(value: Any, params: Any, a: _Known) -> _Known | None:
    if a.root is None:
        return None
    axes, ndim = params["axes"], a.root.ndim
    root = jnp.moveaxis(a.root, axes, range(ndim - 1 - len(axes), ndim - 1))
    return _Known(value, root.reshape(*jnp.shape(value), -1), None if a.rest is None else jnp.sum(a.rest, axes))


def _same(value: Any, params: Any, a: _Known) -> _Known | None:
    """What only changes the type or the shape."""
    if a.root is None:
        return None
    root = a.root.astype(value.dtype).reshape(*value.shape, -1)
    return _Known(value, root, None if a.rest is None else a.rest.astype(value.dtype).reshape(value.shape))


def _dot(value: Any, params: Any, a: _Known, b: _Known) -> _Known | None:
    """x . x, x . (c x) and x . Q x; the first half of the last, x Q or Q x, is remembered."""
    if jnp.ndim(value) == 1:
        for x, y in ((a, b), (b, a)):
            matrix = _constant(y)
            if matrix is not None and jnp.ndim(x.value) == 1 and matrix.ndim == 2 and np.allclose(matrix, matrix.T):
                return _Known(value, of=x.value, by=matrix)
    if jnp.ndim(value) or jnp.ndim(a.value) != 1:
        return None
    for x, y in ((a, b), (b, a)):
        scale = 1.0 if y.of is x.value else x.by if y.of is not None and x.of is y.of else None
        if y.of is not None and scale is not None and np.ndim(scale) == 0 and y.by is not None and y.by.ndim == 2:
            moments, axes = np.linalg.eigh(y.by)
            if moments.min() < -1e-12 * np.abs(moments).max():
                return None
            half = np.sqrt(scale) * np.sqrt(np.maximum(moments, 0))[:, None] * axes.T
            return _Known(value, half.astype(x.value.dtype) @ y.of)
    found = _product_of(value, a, b)
    return None if found is None or found.root is None else _Known(value, found.root.reshape(-1))


_RULES: dict[str, Callable[..., _Known | None]] = {
    "mul": _mul,
    "div": _div,
    "square": _square,
    "integer_pow": _square,
    "sqrt": _sqrt,
    "add": _add,
    "add_any": _add,
    "sub": _sub,
    "reduce_sum": _sum,
    "dot_general": _dot,
    "convert_element_type": _same,
    "squeeze": _same,
    "reshape": _same,
    "copy": _same,
}
