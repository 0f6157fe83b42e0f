"""Spatial vectors in components: pairs (angular, linear) of three arrays each, one entry per link or degree of freedom.

The pairwise stages of the linearized models are products of many small vectors at once. In components they are plain
element-wise arithmetic, whatever the leading shape, which is what XLA vectorizes best.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxsoa.spatial import ops

Vector = tuple  # three arrays
Spatial = tuple[Vector, Vector]  # (w, v) of a motion, (moment, force) of a force


def vector(x) -> Vector:
    """(..., 3) to components."""
    return tuple(x[..., i] for i in range(3))


def split(x) -> Spatial:
    """(..., 6) to components."""
    return vector(x[..., :3]), vector(x[..., 3:])


def join(*vectors: Vector):
    """Components to one array (..., 3 m)."""
    return jnp.stack([x for vector in vectors for x in vector], axis=-1)


def take(tree: Any, index: np.ndarray | None) -> Any:
    """Entries of every component (None: all of them); tuples stay tuples."""
    if index is None:
        return tree
    return tuple(take(x, index) for x in tree) if isinstance(tree, tuple) else tree[index]


def add(*terms: Spatial) -> Spatial:
    return ops.add(*terms)


def subtract(a: Spatial, b: Spatial) -> Spatial:
    return ops.add(a, ops.negative(b))


def cross_motion(x: Spatial, y: Spatial) -> Spatial:
    """x cross y: how the motion y, fixed in a frame that moves with x, changes (the paper's -S*[y] x, eq. 1.5-1.6)."""
    return ops.cross(x[0], y[0]), ops.add(ops.cross(x[0], y[1]), ops.cross(x[1], y[0]))


def cross_force(x: Spatial, f: Spatial) -> Spatial:
    """The same for a force f: the negative transpose of `cross_motion` (the paper's S[x] f)."""
    return ops.add(ops.cross(x[0], f[0]), ops.cross(x[1], f[1])), ops.cross(x[0], f[1])


def carry_force(offset: Vector, f: Spatial) -> Spatial:
    """phi f: about the point from which f's own lies at `offset`."""
    return ops.add(f[0], ops.cross(offset, f[1])), f[1]


def carry_motion(offset: Vector, m: Spatial) -> Spatial:
    """phi* m: at the point that lies at `offset` from m's own."""
    return m[0], ops.add(m[1], ops.cross(m[0], offset))


def dot(a: Spatial, b: Spatial):
    return ops.dot(a[0], b[0]) + ops.dot(a[1], b[1])
