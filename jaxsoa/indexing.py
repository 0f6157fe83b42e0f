"""Rows of an array by an index known at compile time, as a few slices.

A gather is an opaque, element-wise loop to the compiler; slices are copied whole and fuse with what follows. Robots
number their links limb by limb, so the indices that sweeps need are a handful of stretches.
"""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

MAX_PIECES = 16
"""Indices in more stretches than this are gathered: compile time must not grow with the number of links."""


def stretches(index: np.ndarray, step: int = 1) -> list[tuple[int, int, int]]:
    """A 1-D index as stretches (start, count, step), step as given or 0 for a repeated entry."""
    pieces: list[tuple[int, int, int]] = []
    for i in map(int, index):
        if pieces:
            start, count, stride = pieces[-1]
            if count == 1 and i - start in (0, step):
                pieces[-1] = (start, 2, i - start)
                continue
            if count > 1 and i == start + count * stride:
                pieces[-1] = (start, count + 1, stride)
                continue
        pieces.append((i, 1, step))
    return pieces


def take_rows(x: Array, index: np.ndarray) -> Array:
    """x[index] along the first axis; index has one axis or two, and free when it is the identity."""
    index = np.asarray(index)
    if index.ndim == 2:
        columns = [stretches(column) for column in index.T]
        if sum(map(len, columns)) <= MAX_PIECES and not _row_by_row(index):
            return jnp.stack([_joined(x, column) for column in columns], axis=1)
        return take_rows(x, index.ravel()).reshape(*index.shape, *x.shape[1:])
    pieces = stretches(index)
    if len(pieces) > MAX_PIECES:
        return jnp.take(x, index, axis=0, mode="clip")
    return _joined(x, pieces)


def take_rows_or_zeros(x: Array, index: np.ndarray) -> Array:
    """x[index] along the first axis, zeros where the index is negative."""
    index = np.asarray(index)
    ends = [0, *(np.flatnonzero(np.diff(index < 0)) + 1), len(index)]
    if len(ends) - 1 > MAX_PIECES:
        keep = (index >= 0).reshape(-1, *(1,) * (x.ndim - 1))
        return jnp.where(keep, take_rows(x, np.maximum(index, 0)), 0)
    # Zeros between slices, not a choice row by row: what then takes rows of these reads the slices.
    parts = []
    for start, stop in itertools.pairwise(ends):
        rows = index[start:stop]
        parts.append(jnp.zeros((len(rows), *x.shape[1:]), x.dtype) if rows[0] < 0 else take_rows(x, rows))
    return parts[0] if len(parts) == 1 else jnp.concatenate(parts)


def _row_by_row(index: np.ndarray) -> bool:
    return len(stretches(index.ravel())) == 1


def _joined(x: Array, pieces: list[tuple[int, int, int]]) -> Array:
    parts = []
    for start, count, step in pieces:
        if step == 0:
            parts.append(jnp.broadcast_to(x[start : start + 1], (count, *x.shape[1:])))
        elif (start, count) == (0, x.shape[0]):
            parts.append(x)
        else:
            parts.append(jax.lax.slice_in_dim(x, start, start + count))
    return parts[0] if len(parts) == 1 else jnp.concatenate(parts)


def owned(x: Any) -> Any:
    """The same; of a NumPy array a copy, whose memory JAX may use as it is, since nobody else can write to it."""
    return np.array(x) if isinstance(x, np.ndarray) else x
