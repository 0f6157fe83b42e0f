"""Minimum-norm solutions of singular matrices whose rank stays, and their derivatives in every composition of modes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsoa.closed_chain.algebra import complement, components, pseudo_inverse

rng = np.random.default_rng(0)
FACTOR, MOVES, B = rng.normal(size=(3, 5)), rng.normal(size=(2, 3, 5)), rng.normal(size=5)
WEIGHTS = rng.normal(size=5)


def factor(x):
    return FACTOR + x[0] * MOVES[0] + jnp.sin(x[1]) * MOVES[1]


def solved(x):
    F = factor(x)
    return WEIGHTS @ pseudo_inverse(F.T @ F).solve(jnp.asarray(B) * (1 + x[0]))


def unreached(x):
    F = factor(x)
    return WEIGHTS @ pseudo_inverse(F.T @ F).unreached(jnp.asarray(B) * (1 + x[0]))


def in_a_loop(x):
    def step(c, _):
        F = factor(c)
        return c + pseudo_inverse(F.T @ F).solve(jnp.asarray(B) * (1 + c[0]))[:2], None

    return jax.lax.scan(step, x, None, length=2)[0] @ WEIGHTS[:2]


def unrolled(x):
    for _ in range(2):
        F = factor(x)
        gram = jnp.linalg.inv(F @ F.T)
        x = x + (F.T @ (gram @ (gram @ (F @ B))) * (1 + x[0]))[:2]
    return x @ WEIGHTS[:2]


def solved_by_gram(x):
    F = factor(x)  # F* (F F*)^-2 F b, for F of full rank
    gram = jnp.linalg.inv(F @ F.T)
    return WEIGHTS @ (F.T @ (gram @ (gram @ (F @ B)))) * (1 + x[0])


def unreached_by_gram(x):
    F = factor(x)
    return WEIGHTS @ (B - F.T @ jnp.linalg.solve(F @ F.T, F @ B)) * (1 + x[0])


@pytest.mark.parametrize(
    ("function", "plain"), [(solved, solved_by_gram), (unreached, unreached_by_gram), (in_a_loop, unrolled)]
)
def test_values_and_derivatives_of_both_orders(function, plain):
    x = jnp.array([0.2, -0.3])
    modes = (jax.jacfwd, jax.jacrev)

    def all_of(f):
        twice = [outer(inner(f)) for outer in modes for inner in modes]
        return lambda x: (f(x), [mode(f)(x) for mode in modes], [g(x) for g in twice])

    found, expected = jax.jit(all_of(function))(x), jax.jit(all_of(plain))(x)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-10)


def test_batches_axes_and_dependent_rows():
    """Batches of batches of what has a rule of its own; a projector from dependent axes; solves of rank two."""
    rows = jnp.asarray(np.random.default_rng(1).normal(size=(4, 3, 2, 5)))
    grams = jnp.einsum("...ki,...kj->...ij", rows, rows)

    def whole(A):
        inverse = pseudo_inverse(A)
        return inverse.inverse(), inverse.null()

    pinv = np.linalg.pinv(grams, hermitian=True)
    for found, expected in zip(jax.vmap(jax.vmap(whole))(grams), (pinv, np.eye(5) - pinv @ grams), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-10 * np.abs(expected).max())
    within = pseudo_inverse(grams[0, 0], basis=jnp.linalg.qr(jnp.concatenate([rows[0, 0], FACTOR[:2]]).T)[0])
    np.testing.assert_allclose(within.inverse(), np.linalg.pinv(grams[0, 0]), atol=1e-10)

    axes = jnp.concatenate([rows[0, 0], rows[0, 0, :1] - 2 * rows[0, 0, 1:]])
    np.testing.assert_allclose(complement(axes), np.eye(5) - np.linalg.pinv(axes) @ axes, atol=1e-13)
    plane = jnp.concatenate([axes, axes])  # more axes than directions, of which two are new; and of which all are
    np.testing.assert_allclose(complement(plane), np.eye(5) - np.linalg.pinv(axes) @ axes, atol=1e-13)
    assert not complement(jnp.concatenate([plane, rows[1].reshape(-1, 5)])).any()
    np.testing.assert_allclose(axes.T @ components(axes, jnp.asarray(B)), np.linalg.pinv(axes) @ axes @ B, atol=1e-12)
