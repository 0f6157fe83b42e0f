"""Small vector algebra against NumPy: of one, of stacks, on the host."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from jaxsoa.spatial import ops

rng = np.random.default_rng(0)
A, B = rng.normal(size=(2, 3))
M, N = rng.normal(size=(2, 3, 3))
S = 1.7


def skew(a):
    return np.array([[0, -a[2], a[1]], [a[2], 0, -a[0]], [-a[1], a[0], 0]])


CASES = {
    "cross": (ops.cross, (A, B), np.cross(A, B)),
    "dot": (ops.dot, (A, B), A @ B),
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
    "symmetric": (ops.symmetric, (M,), (M + M.T) / 2),
    "from_rows": (lambda m: ops.from_rows(tuple(tuple(row) for row in m)), (M,), M),
}


@pytest.mark.parametrize("name", CASES)
def test_of_one_and_of_stacks(name):
    f, arguments, expected = CASES[name]
    result = f(*(jnp.asarray(x) for x in arguments))
    assert np.shape(result) == np.shape(expected)
    np.testing.assert_allclose(result, expected, atol=1e-15, rtol=1e-14)
    if name == "from_rows":
        return
    # A stack of two along the first axis, and one shared by both.
    stacks = [jnp.stack([x, 2 * x]) if k == 0 else jnp.asarray(x) for k, x in enumerate(arguments)]
    expected = np.stack([expected, 2 * expected])
    np.testing.assert_allclose(f(*stacks), expected, atol=1e-15, rtol=1e-14)


@pytest.mark.parametrize("name", CASES)
def test_on_the_host(name):
    """NumPy's arrays give NumPy's, in double whatever JAX computes in."""
    f, arguments, expected = CASES[name]
    result = f(*arguments)
    assert isinstance(result, np.ndarray | np.float64)
    np.testing.assert_allclose(result, expected, atol=1e-15, rtol=1e-14)


def test_inertias_of_balls():
    sizes = np.array([S, 2.0])
    np.testing.assert_array_equal(ops.identity_times(jnp.asarray(sizes)), sizes[:, None, None] * np.eye(3))
