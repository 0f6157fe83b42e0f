"""Products and solutions of small dense systems, as loops that a compiler vectorizes.

For matrices of a dozen rows XLA's CPU compiler calls libraries, and starting a library takes as long as the product.
Written as sums of outer products of rows, all of a Riccati recursion fits into one kernel (`alone`). Batches, large
matrices and other platforms keep the library.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Float

from jaxsoa.mesh_axes import scan

LARGEST = 64
"""Rows up to which loops are used."""


def _by_loops(rows: int) -> bool:
    return jax.default_backend() == "cpu" and rows <= LARGEST


def transposed_product(a: Float[Array, "k m"], b: Float[Array, "k n"], start: Float[Array, "m n"]) -> Array:
    """start + a* b."""
    return _loop_product(a, b, start) if _by_loops(len(a)) else start + a.T @ b


@custom_vmap
def _loop_product(a, b, start):
    def add_row(total, row):
        return total + row[0][:, None] * row[1], None

    # A few rows at a time, so that the sum is not loaded and stored for each; more of them LLVM does not vectorize.
    return scan(add_row, start, (a, b), unroll=min(len(a), 4 if len(a) >= 12 else 2))[0]


@_loop_product.def_vmap
def _library_product(axis_size, in_batched, a, b, start):
    axes = [0 if batched else None for batched in in_batched]
    return jax.vmap(lambda a, b, start: start + a.T @ b, in_axes=axes)(a, b, start), True


def solve_positive(H: Float[Array, "n n"], b: Float[Array, "n k"]) -> Float[Array, "n k"]:
    """H^-1 b; NaN where H is not positive definite. Reads all of H or its lower half."""
    return _eliminate(H, b) if _by_loops(len(H)) else by_cholesky(H, b)


def by_cholesky(H: Array, b: Array) -> Array:
    """The same with the factors of Cholesky: by a library, or written out in a kernel of ours."""
    factor = lax.linalg.cholesky(H, symmetrize_input=False)
    half = lax.linalg.triangular_solve(factor, b, left_side=True, lower=True)
    return lax.linalg.triangular_solve(factor, half, left_side=True, lower=True, transpose_a=True)


@custom_vmap
def _eliminate(H, b):
    """By Gauss and Jordan: a positive definite matrix needs no exchange of rows, and its pivots are positive."""
    n = len(H)
    number = jnp.arange(n)[:, None]

    def pivot(system, j):
        row = lax.dynamic_index_in_dim(system, j, keepdims=False)
        column = lax.dynamic_index_in_dim(system, j, axis=1)
        diagonal = lax.dynamic_index_in_dim(row, j, keepdims=False)
        row = row / jnp.where(diagonal > 0, diagonal, jnp.nan)
        return jnp.where(number == j, row, system - column * row), None

    return scan(pivot, jnp.concatenate([H, b], axis=1), jnp.arange(n))[0][:, n:]


@_eliminate.def_vmap
def _factorize(axis_size, in_batched, H, b):
    axes = [0 if batched else None for batched in in_batched]
    return jax.vmap(by_cholesky, in_axes=axes)(H, b), True
