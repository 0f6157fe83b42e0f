"""Spatial vectors as pairs (angular, linear) of arrays (..., 3), one entry per link or degree of freedom.

The linear part of a motion may be None, which stands for zero (the axes of robots that only turn).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxsoa.indexing import take_rows
from jaxsoa.spatial import ops

Vector = Any  # (..., 3), or None for zero
Spatial = tuple[Any, Any]  # (w, v) of a motion, (moment, force) of a force


def flat(*vectors: Vector) -> Array:
    """Vectors (n, 3) side by side; nothing for a None."""
    return jnp.concatenate([vector for vector in vectors if vector is not None], axis=-1)


def halves(x: Array) -> Spatial:
    """The two halves of arrays (..., 6)."""
    return x[..., :3], x[..., 3:]


def take(tree: Any, index: np.ndarray | None) -> Any:
    """Entries of every array (None: all of them)."""
    return tree if index is None else jax.tree.map(lambda x: take_rows(x, index), tree)


def plus(*terms: Vector) -> Vector:
    """Sum of vectors, some of which may be None."""
    present = [term for term in terms if term is not None]
    return ops.sum_of(present) if present else None


def add(*terms: Spatial) -> Spatial:
    return plus(*(t[0] for t in terms)), plus(*(t[1] for t in terms))


def negative(a: Vector) -> Vector:
    return None if a is None else -a


def subtract(a: Spatial, b: Spatial) -> Spatial:
    return add(a, (negative(b[0]), negative(b[1])))


def scale(s, x: Spatial) -> Spatial:
    return tuple(None if part is None else ops.scale(s, part) for part in x)  # pyright: ignore[reportReturnType]


def cross(a: Vector, b: Vector) -> Vector:
    return None if a is None or b is None else ops.cross(a, b)


def cross_motion(x: Spatial, y: Spatial) -> Spatial:
    """[x, y]: how the motion y, fixed in a frame that moves with x, changes (the paper's -S*[y] x, eq. 1.5-1.6)."""
    return cross(x[0], y[0]), plus(cross(x[0], y[1]), cross(x[1], y[0]))


def cross_force(x: Spatial, f: Spatial) -> Spatial:
    """The same for a force f: the negative transpose of `cross_motion` (the paper's S[x] f)."""
    return plus(cross(x[0], f[0]), cross(x[1], f[1])), cross(x[0], f[1])


def carry_force(offset: Vector, f: Spatial) -> Spatial:
    """phi f: about the point from which f's own lies at `offset`."""
    return plus(f[0], cross(offset, f[1])), f[1]


def carry_motion(offset: Vector, m: Spatial) -> Spatial:
    """phi* m: at the point that lies at `offset` from m's own."""
    return m[0], plus(m[1], cross(m[0], offset))


def phi(offset: Vector) -> Any:
    """The matrix (..., 6, 6) of `carry_force`; its transpose is that of `carry_motion`."""
    across = ops.skew(offset)
    join = ops.library(across).concatenate
    none = across * 0
    one = none + ops.library(across).eye(3, dtype=across.dtype)
    return join([join([one, across], axis=-1), join([none, one], axis=-1)], axis=-2)


def dot(a: Spatial, b: Spatial):
    """Product of a motion and a force."""
    return ops.sum_of(ops.dot(x, y) for x, y in zip(a, b, strict=True) if x is not None and y is not None)
