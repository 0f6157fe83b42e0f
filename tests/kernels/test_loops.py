"""Loops inside kernels whose end depends on values, against the same loops in plain JAX."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsoa.kernels import door, report


def _roots(x, most, M):
    """Square roots by Heron's rule, summed until the sum is large: a loop in a loop, constants and products in both."""

    def outer(carry):
        total, k, _ = carry

        def inner(carry):
            r, n = carry
            return 0.5 * (r + (x[0] + k) / r), n + 1

        def unfinished(carry):
            r, n = carry
            return (jnp.abs(r * r - (x[0] + k)) > 1e-12 * (x[0] + k)) & (n < 50)

        r, n = jax.lax.while_loop(unfinished, inner, (jnp.ones(()), jnp.zeros(())))
        return total + M @ jnp.stack([r, jnp.sin(r), n]), k + 1, r

    start = jnp.zeros(3), jnp.zeros(()), jnp.zeros(())
    total, k, r = jax.lax.while_loop(lambda c: (c[0][0] < most) & (c[1] < 100), outer, start)
    return total * jnp.cos(x[1]), k, r


def test_states_end_each_in_its_own_time():
    """Batches with a part of a block left over, NaN where it is, one state, and what all states share."""
    rng = np.random.default_rng(0)
    M = np.arange(9.0).reshape(3, 3) / 7 + 0.1
    x, most = rng.uniform(0.1, 9, (37, 2)), rng.uniform(1, 60, 37)
    x[5], most[7] = np.nan, np.nan
    most[9] = -1.0  # nothing to do
    fast = door(_roots, constants=())
    expected = jax.jit(jax.vmap(_roots, (0, 0, None)))(x, most, M)
    for found in (
        jax.jit(jax.vmap(fast, (0, 0, None)))(x, most, M),
        jax.jit(lambda *x: jax.lax.map(lambda y: fast(*y, M), x))(x, most),
    ):
        for a, b in zip(found, expected, strict=True):
            assert np.array_equal(np.isnan(a), np.isnan(b))
            assert np.asarray(a) == pytest.approx(np.asarray(b), rel=1e-12, nan_ok=True)
    assert len(set(np.asarray(expected[1]))) > 5 and not expected[1][9]
    assert "_roots (batch): kernel" in str(report())
    shared = jax.jit(jax.vmap(fast, (None, 0, None)))(x[0], most, M)
    assert np.asarray(shared[1]) == pytest.approx(
        np.asarray(jax.vmap(_roots, (None, 0, None))(x[0], most, M)[1]), nan_ok=True
    )


def _squares(A, small):
    """Of a matrix large enough for products that are loops themselves, until it is small."""
    return jax.lax.while_loop(lambda X: jnp.sum(X * X) > small, lambda X: 0.8 * X - 0.1 * X @ X.T @ X, A)


def test_products_of_matrices_inside_a_loop():
    rng = np.random.default_rng(1)
    A, small = 0.2 * rng.normal(size=(9, 12, 12)), rng.uniform(0.01, 0.1, 9)
    found = jax.jit(jax.vmap(door(_squares, constants=())))(A, small)
    assert np.asarray(found) == pytest.approx(np.asarray(jax.vmap(_squares)(A, small)), abs=1e-14)


def test_what_counts_in_integers_is_left_to_jax():
    def halved(x):
        return jax.lax.while_loop(lambda c: c[0] > 1, lambda c: (0.5 * c[0], c[1] + 1), (x, 0))

    found, count = jax.jit(jax.vmap(door(halved, constants=())))(np.array([0.5, 3.0, 100.0]))
    assert np.asarray(count).tolist() == [0, 2, 7] and np.asarray(found) == pytest.approx([0.5, 0.75, 0.78125])
