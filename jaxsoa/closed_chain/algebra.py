"""Small dense algebra for constraints: minimum-norm solutions with exact derivatives, and projectors.

Redundant constraints (a planar four-bar in space) and singular configurations make the compliance of the cut points
singular. Their answer is the minimum-norm one, and its derivative is that of the pseudo-inverse at constant rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jaxtyping import Array, Float, Int

from jaxsoa.kernels.lasting import lasting
from jaxsoa.spatial import pairs


class PseudoInverse(NamedTuple):
    """A symmetric matrix with its spectral pseudo-inverse V diag(w) V*; only `matrix` carries derivatives.

    V has orthonormal columns that span at least the range of `matrix`.
    """

    matrix: Float[Array, "m m"]
    vectors: Float[Array, "m k"]
    inverse_values: Float[Array, " k"]
    rank: Int[Array, ""]

    def solve(self, b: Float[Array, " m"]) -> Float[Array, " m"]:
        """The minimum-norm least-squares solution of `matrix` x = b."""
        return self.inverse() @ b

    def unreached(self, b: Float[Array, " m"]) -> Float[Array, " m"]:
        """(I - P) b: the part of b that no x reaches, P the projector onto the range of `matrix`."""
        return self.null() @ b

    def inverse(self) -> Float[Array, "m m"]:
        """S."""
        return _inverse(self.matrix, self.vectors, self.inverse_values)

    def null(self) -> Float[Array, "m m"]:
        """I - P."""
        return _null(self.matrix, self.vectors, self.inverse_values)


def default_tolerance(size: int, dtype) -> float:
    """Eigenvalues below this fraction of the largest count as zero."""
    return 50 * max(size, 1) * float(jnp.finfo(dtype).eps)


def pseudo_inverse(
    A: Float[Array, "m m"], rtol: float | None = None, basis: Float[Array, "m k"] | None = None
) -> PseudoInverse:
    """Factor a symmetric matrix. Derivatives of solutions never differentiate the eigenvectors.

    With `basis`, orthonormal columns within which the range of A lies, a k by k matrix is factored.
    """
    A = (A + A.T) / 2
    if A.shape[0] == 0 or (basis is not None and basis.shape[1] == 0):
        return PseudoInverse(A, A[:, :0], jnp.zeros(0, A.dtype), jnp.zeros((), int))
    rtol = default_tolerance(A.shape[0], A.dtype) if rtol is None else rtol
    seen = lax.stop_gradient(A if basis is None else basis.T @ A @ basis)
    values, vectors = jnp.linalg.eigh(seen, symmetrize_input=False)
    vectors = vectors if basis is None else lax.stop_gradient(basis) @ vectors
    size = jnp.abs(values)
    # NaN must stay visible: `not below` keeps it, `above` would drop it.
    keep = ~(size <= rtol * jnp.max(size))
    inverse = jnp.where(keep, 1 / jnp.where(keep, values, 1), 0)
    return PseudoInverse(A, vectors, inverse, jnp.sum(keep))


# The two matrices have rules, and not their products with vectors: what reverse mode makes of a product must still know
# that the matrix depends on A, or derivatives of gradients would be wrong. The rules are those of a symmetric matrix at
# constant rank (Golub and Pereyra 1973), whose null space moves along, and are made of the matrices themselves.


def _transposed(x: Array) -> Array:
    return jnp.swapaxes(x, -1, -2)


def _inverse_of(A: Array, vectors: Array, inverse: Array) -> Array:
    """S = A^+."""
    return (vectors * inverse[..., None, :]) @ _transposed(vectors)


def _null_of(A: Array, vectors: Array, inverse: Array) -> Array:
    """N = I - A A^+, the projector onto the null space."""
    kept = vectors * (inverse != 0)[..., None, :]
    return jnp.eye(A.shape[-1], dtype=A.dtype) - kept @ _transposed(kept)


def _inverse_rate(primals: tuple[Array, Array, Array], dA: Array) -> Array:
    """dS = -S dA S + S S dA N + N dA S S."""
    S, N = _inverse(*primals), _null(*primals)
    turning = S @ (S @ (dA @ N))
    return turning + _transposed(turning) - S @ dA @ S


def _null_rate(primals: tuple[Array, Array, Array], dA: Array) -> Array:
    """dN = -N dA S - S dA N."""
    turning = _inverse(*primals) @ (dA @ _null(*primals))
    return -(turning + _transposed(turning))


_inverse = lasting("pseudo_inverse", _inverse_of, _inverse_rate, (2, 2, 1))
_null = lasting("null_projector", _null_of, _null_rate, (2, 2, 1))


def complement(axes: Float[Array, "k n"]) -> Float[Array, "n n"]:
    """The orthogonal projector onto what no combination of `axes` reaches: I - F* (F F*)^+ F, by Gram and Schmidt."""
    N = jnp.eye(axes.shape[1], dtype=axes.dtype)
    directions = []
    for axis in axes:
        rest = N @ axis
        square = jnp.sum(rest * rest)
        new = ~(square <= default_tolerance(len(axes), axes.dtype) * jnp.sum(axis * axis))  # NaN stays visible
        N = N - jnp.outer(rest, jnp.where(new, rest / jnp.where(new, square, 1), 0))
        directions.append(jnp.where(new, 1, jnp.zeros_like(square)))
    if axes.shape[0] < axes.shape[1]:
        return N
    # Exactly zero where all is free: a remainder of rounding would count as a direction held.
    return jnp.where(sum(directions) < axes.shape[1], N, 0)


def components(axes: Float[Array, "k n"], x: Float[Array, " n"]) -> Float[Array, " k"]:
    """The w for which F* w is nearest to x."""
    return solve_semidefinite(axes @ axes.T, axes @ x)


def solve_semidefinite(A: Float[Array, "m m"], b: Array) -> Array:
    """x of A x = b (m, ...) for a small, usually regular A: elimination that leaves out what depends on rows before.

    For A of the form B* B, with b within its range, B x is the same for every such x. Readable by kernels; derivatives
    are those of the elimination.
    """
    if len(A) == 0:
        return b
    tolerance = default_tolerance(len(A), A.dtype)
    rows = jnp.concatenate([A, b.reshape(len(A), -1)], axis=1)
    for j in range(len(A)):
        pivot = rows[j, j]
        regular = ~(pivot <= tolerance * A[j, j])  # NaN stays visible
        row = jnp.where(regular, rows[j] / jnp.where(regular, pivot, 1), 0)
        rows = jnp.where((np.arange(len(A)) == j)[:, None], row, rows - jnp.outer(rows[:, j], row))
    return rows[:, len(A) :].reshape(b.shape)


def stack(values: Sequence[Any]) -> Any:
    """Equal pytrees, stacked."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *values)


def motion_shift(offset: Float[Array, "3"]) -> Float[Array, "6 6"]:
    """phi*: takes a spatial velocity to the point that lies at `offset` on the same body."""
    return pairs.phi(offset).T


def turned(R: Float[Array, "3 3"]) -> Float[Array, "6 6"]:
    """The rotation of a spatial vector: diag(R, R)."""
    zero = jnp.zeros((3, 3), R.dtype)
    return jnp.block([[R, zero], [zero, R]])


def safe_norm(x: Float[Array, " n"]) -> Float[Array, ""]:
    """Length of a vector, with derivative zero (not NaN) where the vector vanishes."""
    square = jnp.sum(x * x)
    positive = square > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, square, 1)), 0)


def is_concrete(*values) -> bool:
    """Whether values may be looked at: nothing is traced."""
    return not any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(values))
