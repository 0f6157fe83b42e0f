"""Three-vectors and 3x3 matrices as small products that XLA can fuse and kernels can take apart.

Vectors stand along the last axis, matrices along the last two; whatever leads (links, columns) broadcasts. NumPy's
arrays in give NumPy's arrays out, so that what is known on the host can be worked out there in double. `jnp.matmul`
would not do: on a 3x3 operand inside a scan it is a call to a library.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

Vector = Any  # (..., 3)
Matrix = Any  # (..., 3, 3)


def library(x) -> Any:
    """NumPy for its own arrays, else JAX's."""
    return np if isinstance(x, np.ndarray | np.generic | float) else jnp


def part(x, i: int):
    """x[..., i]."""
    return x[..., i] if isinstance(x, np.ndarray) else lax.index_in_dim(x, i, axis=-1, keepdims=False)


def parts(x) -> tuple:
    """The three components of a vector."""
    return part(x, 0), part(x, 1), part(x, 2)


def stack(components: tuple) -> Vector:
    """Components (...) to a vector (..., k)."""
    return library(components[0]).stack(components, axis=-1)


def cross(a: Vector, b: Vector) -> Vector:
    """a x b."""
    (a0, a1, a2), (b0, b1, b2) = parts(a), parts(b)
    return stack((a1 * b2 - a2 * b1, a2 * b0 - a0 * b2, a0 * b1 - a1 * b0))


def dot(a: Vector, b: Vector):
    (a0, a1, a2), (b0, b1, b2) = parts(a), parts(b)
    return a0 * b0 + a1 * b1 + a2 * b2


def scale(s, a: Vector) -> Vector:
    """Scalars (...) times vectors (..., 3)."""
    return s * a if isinstance(s, float | int) else _spread(s) * a


def _spread(s: Any) -> Any:
    """s[..., None]."""
    return np.expand_dims(s, -1) if library(s) is np else lax.expand_dims(s, (s.ndim,))


def transpose(m: Matrix) -> Matrix:
    return library(m).swapaxes(m, -1, -2)


def symmetric(m: Matrix) -> Matrix:
    """The symmetric part of a matrix."""
    return (m + transpose(m)) / 2


def matvec(m: Matrix, x: Vector) -> Vector:
    return sum_of(part(m, j) * _spread(part(x, j)) for j in range(3))


def matvec_t(m: Matrix, x: Vector) -> Vector:
    """m.T @ x."""
    return matvec(transpose(m), x)


def matmul(a: Matrix, b: Matrix) -> Matrix:
    return sum_of(_spread(part(a, j)) * b[..., j : j + 1, :] for j in range(3))


def matmul_t(a: Matrix, b: Matrix) -> Matrix:
    """a @ b.T."""
    return matmul(a, transpose(b))


def sum_of(terms):
    """The sum, without the zero that Python's begins with."""
    terms = iter(terms)
    total = next(terms)
    for term in terms:
        total = total + term
    return total


def outer(a: Vector, b: Vector) -> Matrix:
    return _spread(a) * b[..., None, :]


def cross_rows(a: Vector, m: Matrix) -> Matrix:
    """The matrix whose rows are a x (rows of m), that is m @ skew(a).T."""
    return cross(a[..., None, :], m)


def cross_columns(a: Vector, m: Matrix) -> Matrix:
    """skew(a) @ m: the columns of m crossed with a."""
    return transpose(cross_rows(a, transpose(m)))


def from_rows(rows: tuple) -> Matrix:
    """A matrix (..., 3, 3) from its nine entries (...)."""
    return library(rows[0][0]).stack([stack(row) for row in rows], axis=-2)


def skew(a: Vector) -> Matrix:
    """The matrix of a x."""
    x, y, z = parts(a)
    zero = x * 0 if isinstance(a, np.ndarray) else jnp.zeros_like(x)
    return from_rows(((zero, -z, y), (z, zero, -x), (-y, x, zero)))


def identity_times(s) -> Matrix:
    """s (...) times the 3x3 identity."""
    return _spread(_spread(s)) * library(s).eye(3, dtype=s.dtype)
