"""Small dense algebra for constraints: minimum-norm solutions with exact derivatives, and projectors.

Redundant constraints (a planar four-bar in space) and singular configurations make the compliance of the cut points
singular. Their answer is the minimum-norm one, and its derivative is that of the pseudo-inverse at constant rank.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.core import Tracer
from jaxtyping import Array, Float, Int

from jaxsoa.spatial import ops


class PseudoInverse(NamedTuple):
    """A symmetric matrix with its spectral pseudo-inverse V diag(w) V*; only `matrix` carries derivatives."""

    matrix: Float[Array, "m m"]
    vectors: Float[Array, "m m"]
    inverse_values: Float[Array, " m"]
    rank: Int[Array, ""]

    def solve(self, b: Float[Array, " m"]) -> Float[Array, " m"]:
        """The minimum-norm least-squares solution of `matrix` x = b."""
        return _solve(self.matrix, self.vectors, self.inverse_values, b)

    def unreached(self, b: Float[Array, " m"]) -> Float[Array, " m"]:
        """(I - P) b: the part of b that no x reaches, P the projector onto the range of `matrix`."""
        return _unreached(self.matrix, self.vectors, self.inverse_values, b)


def default_tolerance(size: int, dtype) -> float:
    """Eigenvalues below this fraction of the largest count as zero."""
    return 50 * max(size, 1) * float(jnp.finfo(dtype).eps)


def pseudo_inverse(A: Float[Array, "m m"], rtol: float | None = None) -> PseudoInverse:
    """Factor a symmetric matrix. Derivatives of solutions never differentiate the eigenvectors."""
    A = (A + A.T) / 2
    if A.shape[0] == 0:
        return PseudoInverse(A, A, A[:, 0] if A.shape[1] else jnp.zeros(0, A.dtype), jnp.zeros((), int))
    rtol = default_tolerance(A.shape[0], A.dtype) if rtol is None else rtol
    values, vectors = jnp.linalg.eigh(lax.stop_gradient(A), symmetrize_input=False)
    size = jnp.abs(values)
    # NaN must stay visible: `not below` keeps it, `above` would drop it.
    keep = ~(size <= rtol * jnp.max(size))
    inverse = jnp.where(keep, 1 / jnp.where(keep, values, 1), 0)
    return PseudoInverse(A, vectors, inverse, jnp.sum(keep))


@jax.custom_jvp
def _solve(A: Array, vectors: Array, inverse: Array, b: Array) -> Array:
    return vectors @ (inverse * (vectors.T @ b))


@_solve.defjvp
def _solve_jvp(primals, tangents):
    """With S = A^+ of constant rank and x = S b:  dx = S (db - dA x) + (I - S A) dA S x + S S dA (b - A x).

    (Golub and Pereyra 1973, for a symmetric matrix.) The last two terms move the null space along.
    """
    A, vectors, inverse, b = primals
    dA, _, _, db = tangents
    vectors, inverse = lax.stop_gradient(vectors), lax.stop_gradient(inverse)

    def S(y):
        return _solve(A, vectors, inverse, y)

    x = S(b)
    turned = dA @ S(x)
    dx = S(db - dA @ x) + (turned - S(A @ turned)) + S(S(dA @ (b - A @ x)))
    return x, dx


@jax.custom_jvp
def _unreached(A: Array, vectors: Array, inverse: Array, b: Array) -> Array:
    return b - vectors @ jnp.where(inverse != 0, vectors.T @ b, 0)


@_unreached.defjvp
def _unreached_jvp(primals, tangents):
    """At constant rank dP = (I - P) dA S + S dA (I - P)."""
    A, vectors, inverse, b = primals
    dA, _, _, db = tangents
    vectors, inverse = lax.stop_gradient(vectors), lax.stop_gradient(inverse)

    def rest(y):
        return _unreached(A, vectors, inverse, y)

    def S(y):
        return _solve(A, vectors, inverse, y)

    left = rest(b)
    return left, rest(db - dA @ S(b)) - S(dA @ left)


def complement(axes: Float[Array, "k n"]) -> Float[Array, "n n"]:
    """The orthogonal projector onto what no combination of `axes` reaches: I - F* (F F*)^+ F."""
    identity = jnp.eye(axes.shape[1], dtype=axes.dtype)
    if axes.shape[0] == 0:
        return identity
    if axes.shape[0] >= axes.shape[1]:
        return jnp.zeros_like(identity)  # exactly: a remainder of rounding would count as a direction held
    gram = pseudo_inverse(axes @ axes.T)
    return identity - axes.T @ jax.vmap(gram.solve, in_axes=1, out_axes=1)(axes)


def components(axes: Float[Array, "k n"], x: Float[Array, " n"]) -> Float[Array, " k"]:
    """The w for which F* w is nearest to x."""
    if axes.shape[0] == 0:
        return jnp.zeros(0, x.dtype)
    return pseudo_inverse(axes @ axes.T).solve(axes @ x)


def motion_shift(offset: Float[Array, "3"]) -> Float[Array, "6 6"]:
    """phi*: takes a spatial velocity to the point that lies at `offset` on the same body."""
    eye, zero = jnp.eye(3, dtype=offset.dtype), jnp.zeros((3, 3), offset.dtype)
    return jnp.block([[eye, zero], [-ops.skew(offset), eye]])


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
