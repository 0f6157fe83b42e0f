"""Three-vectors and 3x3 matrices as small products that XLA can fuse and vectorize over a batch.

Every function takes its operands in one of two forms and answers in the same form: *packed*, one array per vector or
matrix, or *in components*, tuples of scalars (a matrix is a tuple of rows). Packed is what one evaluation on its own
likes; components under `jax.vmap` are plain element-wise arithmetic on arrays of the batch's shape, which is what a
large batch likes. `jnp.matmul` would be neither: on a 3x3 operand inside a scan it is a call to a library.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

Vector = Any  # (3,) array, or a tuple of three scalars
Matrix = Any  # (3, 3) array, or a tuple of three rows
Symmetric = Any  # (3, 3) array, or the tuple of rows


def in_components(x) -> bool:
    return isinstance(x, tuple)


def cross(a: Vector, b: Vector) -> Vector:
    """a x b."""
    c = (a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0])
    return c if in_components(a) else jnp.stack(c)


def dot(a: Vector, b: Vector):
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def add(*terms: Vector) -> Vector:
    """Sum of vectors (or of matrices)."""
    first = terms[0]
    if in_components(first):
        return tuple(add(*parts) for parts in zip(*terms, strict=True))
    total = first
    for term in terms[1:]:
        total = total + term
    return total


def scale(s, a: Vector) -> Vector:
    """Scalar times vector (or matrix)."""
    return tuple(scale(s, x) for x in a) if in_components(a) else s * a


def negative(a: Vector) -> Vector:
    return tuple(negative(x) for x in a) if in_components(a) else -a


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


def skew(a: Vector) -> Matrix:
    """The matrix of a x."""
    zero = a[0] * 0
    rows = ((zero, -a[2], a[1]), (a[2], zero, -a[0]), (-a[1], a[0], zero))
    return rows if in_components(a) else jnp.stack([jnp.stack(row) for row in rows])


def identity_times(s, like: Vector) -> Matrix:
    """s times the 3x3 identity, in the form of `like`."""
    if in_components(like):
        zero = s * 0
        return ((s, zero, zero), (zero, s, zero), (zero, zero, s))
    return s * jnp.eye(3, dtype=like.dtype)


def vector_in_components(x) -> tuple:
    """(..., 3) array to components, each of the leading shape."""
    return tuple(x[..., i] for i in range(3))


def matrix_in_components(m) -> tuple:
    """(..., 3, 3) array to components."""
    return tuple(tuple(m[..., i, j] for j in range(3)) for i in range(3))
