"""Small vector algebra against NumPy, packed and in components alike."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from jaxsoa.spatial import ops

rng = np.random.default_rng(0)
A, B, C = rng.normal(size=(3, 3))
M, N = rng.normal(size=(2, 3, 3))
S = 1.7


def skew(a):
    return np.array([[0, -a[2], a[1]], [a[2], 0, -a[0]], [-a[1], a[0], 0]])


CASES = {
    "cross": (ops.cross, (A, B), np.cross(A, B)),
    "dot": (ops.dot, (A, B), A @ B),
    "add vectors": (ops.add, (A, B, C), A + B + C),
    "add matrices": (ops.add, (M, N), M + N),
    "negative": (ops.negative, (M,), -M),
    "transpose": (ops.transpose, (M,), M.T),
    "matvec": (ops.matvec, (M, A), M @ A),
    "matvec_t": (ops.matvec_t, (M, A), M.T @ A),
    "matmul": (ops.matmul, (M, N), M @ N),
    "matmul_t": (ops.matmul_t, (M, N), M @ N.T),
    "outer": (ops.outer, (A, B), np.outer(A, B)),
    "cross_rows": (ops.cross_rows, (A, M), M @ skew(A).T),
    "cross_columns": (ops.cross_columns, (A, M), skew(A) @ M),
    "skew": (ops.skew, (A,), skew(A)),
    "scale a vector": (lambda a: ops.scale(S, a), (A,), S * A),
    "scale a matrix": (lambda m: ops.scale(S, m), (M,), S * M),
    "identity_times": (lambda a: ops.identity_times(S, a), (A,), S * np.eye(3)),
}


def components(x):
    return tuple(tuple(row) for row in x) if x.ndim == 2 else tuple(x)


@pytest.mark.parametrize("name", CASES)
def test_packed(name):
    f, arguments, expected = CASES[name]
    result = f(*(jnp.asarray(x) for x in arguments))
    assert np.shape(result) == np.shape(expected)
    np.testing.assert_allclose(result, expected, atol=1e-15, rtol=1e-14)


@pytest.mark.parametrize("name", CASES)
def test_in_components(name):
    f, arguments, expected = CASES[name]
    result = f(*(components(x) for x in arguments))
    assert np.ndim(expected) == 0 or ops.in_components(result)
    np.testing.assert_allclose(np.array(result), expected, atol=1e-15, rtol=1e-14)


def test_stacks_are_split_and_joined_along_the_axis_after_the_first():
    stack = rng.normal(size=(5, 3, 3))
    parts = ops.split_matrix(stack)
    assert parts[0][1].shape == (5,)
    np.testing.assert_array_equal(parts[1][2], stack[:, 1, 2])
    vectors = rng.normal(size=(5, 3, 7))  # a batch of seven trails
    np.testing.assert_array_equal(ops.split_vector(vectors)[2], vectors[:, 2])
    np.testing.assert_array_equal(ops.join_vector(ops.split_vector(vectors)), vectors)


def test_a_symmetric_matrix_from_its_upper_triangle():
    m = components(M + M.T)
    assert len(ops.upper(m)) == 6
    np.testing.assert_array_equal(np.array(ops.symmetric(ops.upper(m))), M + M.T)


def test_literal_zeros_in_sums_change_nothing():
    assert ops.add(0.0, 2.0, 0.0) == 2.0
    assert ops.add(0.0, 0.0) == 0.0
    assert ops.add((0.0, 1.0, 2.0), (3.0, 0.0, 1.0)) == (3.0, 1.0, 3.0)
