"""Reading products of matrices, Cholesky factors and triangular solves: written out on operands of the program."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from jaxsoa.kernels.program import Program, Unreadable
from jaxsoa.kernels.read_arrays import objects

Apply = Callable[..., np.ndarray]  # an element-wise operation by its name, on arrays of operands

LARGEST_UNROLLED_PRODUCT = 900
"""Multiplications up to which a product of matrices is written out; larger ones are loops inside the kernel."""


def dot_general(program: Program, apply: Apply, params: Any, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """A product over any axes, in batches: written out while it is small."""
    (contract_a, contract_b), (batch_a, batch_b) = params["dimension_numbers"]
    free_a = [i for i in range(a.ndim) if i not in (*contract_a, *batch_a)]
    free_b = [i for i in range(b.ndim) if i not in (*contract_b, *batch_b)]
    shape = [a.shape[i] for i in (*batch_a, *free_a)] + [b.shape[i] for i in free_b]
    batch, rows = math.prod(a.shape[i] for i in batch_a), math.prod(a.shape[i] for i in free_a)
    inner, columns = math.prod(a.shape[i] for i in contract_a), math.prod(b.shape[i] for i in free_b)
    a = a.transpose(*batch_a, *free_a, *contract_a).reshape(batch, rows, inner)
    b = b.transpose(*batch_b, *contract_b, *free_b).reshape(batch, inner, columns)
    if inner == 0:
        return np.zeros(shape)
    if rows * inner * columns > LARGEST_UNROLLED_PRODUCT:
        parts = [program.product(rows, inner, columns, a[k].ravel(), b[k].ravel()) for k in range(batch)]
        out = objects((batch, rows * columns))
        for k, part in enumerate(parts):
            out[k] = part
        return out.reshape(shape)
    total = apply("mul", a[:, :, 0, None], b[:, None, 0, :])
    for k in range(1, inner):
        total = apply("add", total, apply("mul", a[:, :, k, None], b[:, None, k, :]))
    return total.reshape(shape)


def cholesky(program: Program, apply: Apply, params: Any, given: np.ndarray) -> np.ndarray:
    """The lower factors of a stack of matrices."""
    p, n = program, given.shape[-1]
    if n**3 > 6 * LARGEST_UNROLLED_PRODUCT:
        raise Unreadable("the factors of a large matrix")
    out = objects(given.shape, 0.0)
    for A, L in zip(given.reshape(-1, n, n), out.reshape(-1, n, n), strict=True):
        for j in range(n):
            pivot = A[j, j]
            for m in range(j):
                pivot = p.binary("sub", pivot, p.binary("mul", L[j, m], L[j, m]))
            L[j, j] = p.unary("sqrt", pivot)
            inverse = p.binary("div", 1.0, L[j, j])
            for i in range(j + 1, n):
                entry = A[i, j]
                for m in range(j):
                    entry = p.binary("sub", entry, p.binary("mul", L[i, m], L[j, m]))
                L[i, j] = p.binary("mul", entry, inverse)
    return out


def triangular_solve(program: Program, apply: Apply, params: Any, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """By substitution, a column of the right side after the other."""
    if a.ndim != 2 or a.shape[0] ** 2 * max(b.shape) > 6 * LARGEST_UNROLLED_PRODUCT:
        raise Unreadable("a large or batched triangular solve")
    p, lower = program, params["lower"] ^ bool(params["transpose_a"])
    A = a.T if params["transpose_a"] else a
    if not params["left_side"]:
        A, lower, b = A.T, not lower, b.T
    n, X = A.shape[0], b.copy()
    for c in range(X.shape[1]):
        for i in range(n) if lower else range(n - 1, -1, -1):
            entry = X[i, c]
            for j in range(i) if lower else range(i + 1, n):
                entry = p.binary("sub", entry, p.binary("mul", A[i, j], X[j, c]))
            X[i, c] = entry if params["unit_diagonal"] else p.binary("div", entry, A[i, i])
    return X if params["left_side"] else X.T


LINEAR_ALGEBRA = {"dot_general": dot_general, "cholesky": cholesky, "triangular_solve": triangular_solve}
