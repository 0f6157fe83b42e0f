"""Rotations against the matrix exponential by its series; near the identity; derivatives where formulas fail."""

from __future__ import annotations

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

from jaxsoa.spatial import rotation


def skew(a):
    return np.array([[0, -a[2], a[1]], [a[2], 0, -a[0]], [-a[1], a[0], 0]])


def expm(A: np.ndarray) -> np.ndarray:
    """Matrix exponential by scaling, Taylor series and squaring."""
    squarings = max(0, int(np.ceil(np.log2(max(np.abs(A).sum(), 1e-300)))) + 4)
    A = A / 2.0**squarings
    total, term = np.eye(len(A)), np.eye(len(A))
    for k in range(1, 22):
        term = term @ A / k
        total = total + term
    for _ in range(squarings):
        total = total @ total
    return total


def twist(w, v):
    return np.block([[skew(w), np.reshape(v, (3, 1))], [np.zeros((1, 4))]])


# Lengths on both sides of every switch from series to formula, and at nothing at all.
LENGTHS = [0.0, 1e-12, 1e-9, 1e-6, 1e-4, 1.9e-3, 0.0316, 0.0317, 0.0632, 0.0633, 0.099, 0.101, 0.5, 1.0, 3.0, 3.14]
vectors = st.builds(
    lambda seed, length: length * np.linalg.qr(np.random.default_rng(seed).normal(size=(3, 3)))[0][0],
    st.integers(0, 10**6),
    st.sampled_from(LENGTHS),
)

to_matrix = jax.jit(rotation.from_quaternion)
exponential = jax.jit(rotation.exponential)
logarithm = jax.jit(rotation.logarithm)
multiply = jax.jit(rotation.multiply)
screw_translation = jax.jit(rotation.screw_translation)
screw_velocity = jax.jit(rotation.screw_velocity)
to_quaternion = jax.jit(rotation.to_quaternion)
from_axis_angle = jax.jit(rotation.from_axis_angle)


@settings(max_examples=150)
@given(vectors)
def test_exponential_is_the_matrix_exponential_of_the_rotation_vector(w):
    np.testing.assert_allclose(to_matrix(exponential(w)), expm(skew(w)), atol=2e-15)


@settings(max_examples=150)
@given(vectors)
def test_logarithm_inverts_the_exponential(w):
    np.testing.assert_allclose(logarithm(exponential(w)), w, rtol=1e-13, atol=1e-300)
    np.testing.assert_allclose(logarithm(-exponential(w)), w, rtol=1e-13, atol=1e-300)  # q and -q are one rotation


@settings(max_examples=100)
@given(st.integers(0, 10**6), st.floats(-7, 7))
def test_axis_angle_is_the_matrix_exponential(seed, angle):
    axis = np.random.default_rng(seed).normal(size=3)
    axis /= np.linalg.norm(axis)
    np.testing.assert_allclose(from_axis_angle(axis, angle), expm(angle * skew(axis)), atol=1e-14)


@settings(max_examples=100)
@given(vectors, vectors)
def test_quaternion_product_composes_rotations(a, b):
    p, q = exponential(a), exponential(b)
    np.testing.assert_allclose(to_matrix(multiply(p, q)), to_matrix(p) @ to_matrix(q), atol=1e-14)
    np.testing.assert_allclose(multiply(p, rotation.conjugate(p)), [1, 0, 0, 0], atol=1e-14)


@settings(max_examples=150)
@given(vectors, st.integers(0, 10**6))
def test_screw_translation_is_the_exponential_of_se3(w, seed):
    v = np.random.default_rng(seed).normal(size=3)
    p = screw_translation(w, v)
    np.testing.assert_allclose(p, expm(twist(w, v))[:3, 3], atol=1e-14)
    np.testing.assert_allclose(screw_velocity(w, p), v, atol=1e-12)


@settings(max_examples=100)
@given(vectors)
def test_quaternion_of_a_matrix(w):
    R = expm(skew(w))
    q = to_quaternion(R)
    assert q[0] >= 0
    np.testing.assert_allclose(np.linalg.norm(q), 1, atol=1e-15)
    np.testing.assert_allclose(to_matrix(q), R, atol=1e-14)


@pytest.mark.parametrize("axis", np.eye(3))
def test_quaternion_of_half_turns(axis):
    """Trace -1: the branch by the trace alone would divide by zero."""
    R = 2 * np.outer(axis, axis) - np.eye(3)
    np.testing.assert_allclose(to_matrix(to_quaternion(R)), R, atol=1e-15)


def test_normalize_and_its_singularity():
    np.testing.assert_allclose(rotation.normalize(jnp.array([2.0, 0, 0, 0])), [1, 0, 0, 0])
    assert np.isnan(rotation.normalize(jnp.zeros(4))).all()


def central_jacobian(f, x, h=1e-5):
    columns = []
    for e in np.eye(len(x)):
        columns.append((8 * (f(x + h * e) - f(x - h * e)) - (f(x + 2 * h * e) - f(x - 2 * h * e))) / (12 * h))
    return np.stack(columns, axis=-1)


FUNCTIONS = {
    "exponential": (rotation.exponential, np.zeros(3)),
    "logarithm": (rotation.logarithm, np.array([1.0, 0, 0, 0])),
    "log of exp": (lambda w: rotation.logarithm(rotation.exponential(w)), np.zeros(3)),
    "screw translation": (lambda x: rotation.screw_translation(x[:3], x[3:]), np.array([0, 0, 0, 0.3, -0.5, 0.7])),
    "screw velocity": (lambda x: rotation.screw_velocity(x[:3], x[3:]), np.array([0, 0, 0, 0.3, -0.5, 0.7])),
    "axis angle": (lambda x: rotation.from_axis_angle(jnp.array([0.6, 0, 0.8]), x[0]).ravel(), np.zeros(1)),
    "to quaternion": (
        lambda w: rotation.to_quaternion(rotation.from_quaternion(rotation.exponential(w))), np.zeros(3),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives_at_zero_are_finite_and_right(name):
    f, x = FUNCTIONS[name]
    every = jax.jit(lambda x: (f(x), jax.jacfwd(f)(x), jax.jacrev(f)(x), jax.jacfwd(jax.jacrev(f))(x)))
    _, first, reverse, second = every(x)
    np.testing.assert_allclose(first, central_jacobian(lambda x: every(x)[0], x), atol=1e-9)
    np.testing.assert_allclose(reverse, first, atol=1e-14)
    np.testing.assert_allclose(second, central_jacobian(lambda x: every(x)[1], x, 1e-3), atol=1e-7)
    if name == "log of exp":
        np.testing.assert_allclose(first, np.eye(3), atol=1e-15)
        np.testing.assert_allclose(second, np.zeros((3, 3, 3)), atol=1e-15)


def test_float32_stays_float32():
    w, v, q = jnp.ones(3, jnp.float32) * 0.1, jnp.ones(3, jnp.float32), jnp.array([1, 0, 0, 0], jnp.float32)
    calls = [
        (rotation.exponential, w),
        (rotation.logarithm, q),
        (rotation.screw_translation, w, v),
        (rotation.screw_velocity, w, v),
        (rotation.from_quaternion, q),
        (rotation.to_quaternion, jnp.eye(3, dtype=jnp.float32)),
        (rotation.from_axis_angle, w, w[0]),
        (rotation.multiply, q, q),
    ]
    for f, *arguments in calls:
        assert jax.eval_shape(f, *arguments).dtype == jnp.float32
