"""Three-vectors and 3x3 matrices as small products that XLA can fuse and vectorize over a batch.

Every function takes its operands in one of two forms and answers in the same form: *packed*, one array per vector or
matrix, or *in components*, tuples of scalars (a matrix is a tuple of rows). Packed is what one evaluation on its own
likes; components under `jax.vmap` are plain element-wise arithmetic on arrays of the batch's shape, which is what a
large batch likes. `jnp.matmul` would be neither: on a 3x3 operand inside a scan it is a call to a library.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

Vector = Any  # (3,) array, or a tuple of three scalars
Matrix = Any  # (3, 3) array, or a tuple of three rows


def in_components(x) -> bool:
    return isinstance(x, tuple)


def library(x) -> Any:
    """NumPy for its own arrays, so that what is known on the host can be worked out there in double; else JAX's."""
    return np if isinstance(x, np.ndarray) else jnp


def cross(a: Vector, b: Vector) -> Vector:
    """a x b."""
    c = (a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0])
    return c if in_components(a) else jnp.stack(c)


def dot(a: Vector, b: Vector):
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def add(*terms):
    """Sum of vectors (or matrices, or scalars); terms that are the literal zero cost nothing."""
    if in_components(terms[0]):
        return tuple(add(*parts) for parts in zip(*terms, strict=True))
    terms = tuple(term for term in terms if not _is_literal_zero(term)) or terms[:1]
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


def _is_literal_zero(x) -> bool:
    return isinstance(x, float) and x == 0.0


def scale(s, a: Vector) -> Vector:
    """Scalar times vector (or matrix)."""
    return tuple(scale(s, x) for x in a) if in_components(a) else s * a


def negative(a: Vector) -> Vector:
    return tuple(negative(x) for x in a) if in_components(a) else -a


def upper(m: Matrix):
    """What a sweep carries of a symmetric matrix: its upper triangle in components, the whole array when packed."""
    return (m[0][0], m[0][1], m[0][2], m[1][1], m[1][2], m[2][2]) if in_components(m) else m


def symmetric(u) -> Matrix:
    """The symmetric matrix of `upper`; of a packed array, the symmetric part."""
    if in_components(u):
        return (u[0], u[1], u[2]), (u[1], u[3], u[4]), (u[2], u[4], u[5])
    return (u + u.T) / 2


def transpose(m: Matrix) -> Matrix:
    return tuple(zip(*m, strict=True)) if in_components(m) else m.T


def matvec(m: Matrix, x: Vector) -> Vector:
    if in_components(m):
        return tuple(dot(row, x) for row in m)
    return m[:, 0] * x[0] + m[:, 1] * x[1] + m[:, 2] * x[2]


def matvec_t(m: Matrix, x: Vector) -> Vector:
    """m.T @ x."""
    if in_components(m):
        return matvec(transpose(m), x)
    return m[0] * x[0] + m[1] * x[1] + m[2] * x[2]


def matmul(a: Matrix, b: Matrix) -> Matrix:
    if in_components(a):
        columns = transpose(b)
        return tuple(tuple(dot(row, column) for column in columns) for row in a)
    return a[:, 0, None] * b[0] + a[:, 1, None] * b[1] + a[:, 2, None] * b[2]


def matmul_t(a: Matrix, b: Matrix) -> Matrix:
    """a @ b.T."""
    return matmul(a, transpose(b))


def outer(a: Vector, b: Vector) -> Matrix:
    if in_components(a):
        return tuple(tuple(x * y for y in b) for x in a)
    return a[:, None] * b[None, :]


def cross_rows(a: Vector, m: Matrix) -> Matrix:
    """The matrix whose rows are a x (rows of m), that is m @ skew(a).T."""
    if in_components(a):
        return tuple(cross(a, row) for row in m)
    return jnp.stack(
        [a[1] * m[:, 2] - a[2] * m[:, 1], a[2] * m[:, 0] - a[0] * m[:, 2], a[0] * m[:, 1] - a[1] * m[:, 0]], axis=1
    )


def cross_columns(a: Vector, m: Matrix) -> Matrix:
    """skew(a) @ m: the columns of m crossed with a."""
    if in_components(a):
        return transpose(cross_rows(a, transpose(m)))
    return jnp.stack([a[1] * m[2] - a[2] * m[1], a[2] * m[0] - a[0] * m[2], a[0] * m[1] - a[1] * m[0]])


def from_rows(rows: tuple, like: Vector) -> Matrix:
    """A matrix from its nine entries, in the form of `like`."""
    return rows if in_components(like) else jnp.stack([jnp.stack(row) for row in rows])


def skew(a: Vector) -> Matrix:
    """The matrix of a x."""
    zero = 0.0 if in_components(a) else jnp.zeros_like(a[0])
    return from_rows(((zero, -a[2], a[1]), (a[2], zero, -a[0]), (-a[1], a[0], zero)), a)


def identity_times(s, like: Vector) -> Matrix:
    """s times the 3x3 identity, in the form of `like`."""
    if in_components(like):
        return ((s, 0.0, 0.0), (0.0, s, 0.0), (0.0, 0.0, s))
    return s * jnp.eye(3, dtype=like.dtype)


# Stacked vectors and matrices have the stack first, then their own axes, then whatever else (a batch).


def split_vector(x) -> tuple:
    """(n, 3, ...) array to components (n, ...)."""
    return tuple(x[:, i] for i in range(3))


def split_spatial(x) -> tuple:
    """(n, 6, ...) array to (angular, linear) halves in components (n, ...)."""
    return split_vector(x[:, :3]), split_vector(x[:, 3:])


def split_matrix(m) -> tuple:
    """(n, 3, 3, ...) array to components (n, ...)."""
    return tuple(tuple(m[:, i, j] for j in range(3)) for i in range(3))


def join_vector(x):
    """Components (n, ...) to one (n, 3, ...) array; a packed array is passed on."""
    return jnp.stack(jnp.broadcast_arrays(*x), axis=1) if in_components(x) else x
