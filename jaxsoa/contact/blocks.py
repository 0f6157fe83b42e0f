"""Linear systems of contacts: matrices of 3x3 blocks (contacts) and single rows (limits, loops).

Elimination block by block, without a search for pivots, is plain arithmetic that kernels can read. A block is inverted
by its adjugate, so that a single small number inside it does no harm. What is larger goes to LAPACK.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from jaxsoa.spatial import ops

LARGEST = 30
"""Rows up to which elimination is written out."""


class Eliminated(NamedTuple):
    """One block of rows taken out: its inverse, its coupling to the rest from the left and from above."""

    inverse: Array
    left: Array
    above: Array


def eliminated(A: Float[Array, "n n"], contacts: int) -> list[Eliminated]:
    """The block factors of A, whose first 3 * `contacts` rows are contacts."""
    found = []
    while A.shape[0]:
        w = 3 if len(found) < contacts else 1
        inverse = inverse_3x3(A[:3, :3]) if w == 3 else 1 / A[:1, :1]
        left, above = A[w:, :w] @ inverse, A[:w, w:]
        A = A[w:, w:] - left @ above
        found.append(Eliminated(inverse, left, above))
    return found


def solved(factors: list[Eliminated], b: Float[Array, " n"]) -> Float[Array, " n"]:
    """x with A x = b."""
    heads = []
    for one in factors:
        w = one.inverse.shape[0]
        heads.append(b[:w])
        b = b[w:] - one.left @ b[:w]
    x = b
    for one, head in zip(reversed(factors), reversed(heads), strict=True):
        x = jnp.concatenate([one.inverse @ (head - one.above @ x), x])
    return x


def inverse_3x3(A: Float[Array, "3 3"]) -> Float[Array, "3 3"]:
    """By the adjugate."""
    a, b, c = A[0], A[1], A[2]
    columns = jnp.stack([ops.cross(b, c), ops.cross(c, a), ops.cross(a, b)], axis=1)
    return columns * (1 / ops.dot(a, columns[:, 0]))


def regularized_solve(
    A: Float[Array, "n n"],
    b: Float[Array, " n"],
    contacts: int | None = None,
    *,
    refined: int = 2,
    shift: float | None = None,
) -> Float[Array, " n"]:
    """x with A x = b where A may be singular but b is in its range: proximal steps x += (A + eps 1)^-1 (b - A x).

    With `contacts`, by elimination written out; `refined` is the number of steps after the first, `shift` is eps,
    the root of a rounding error if None.
    """
    one = jnp.eye(A.shape[0], dtype=A.dtype)
    shifted = A + (jnp.finfo(A.dtype).eps ** 0.5 if shift is None else shift) * one
    if contacts is None:
        factors = jax.scipy.linalg.lu_factor(shifted)
        solve = lambda b: jax.scipy.linalg.lu_solve(factors, b)  # noqa: E731
    elif b.ndim > 1:  # products compile and run faster than the elimination of many columns
        inverse = solved(eliminated(shifted, contacts), one)
        solve = lambda b: inverse @ b  # noqa: E731
    else:
        blocks = eliminated(shifted, contacts)
        solve = lambda b: solved(blocks, b)  # noqa: E731
    x = solve(b)
    return lax.scan(lambda x, _: (x + solve(b - A @ x), None), x, length=refined)[0] if refined else x
