"""Inertias in blocks against 6x6 matrices: phi, products, the measurement update, rigid bodies."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jaxsoa.spatial import ops
from jaxsoa.spatial.inertia import SpatialInertia, rigid_inertia

rng = np.random.default_rng(1)


def skew(a):
    return np.array([[0, -a[2], a[1]], [a[2], 0, -a[0]], [-a[1], a[0], 0]])


def phi(offset):
    """Forces (moment, force) at a point, seen from the point it lies at `offset` from."""
    return np.block([[np.eye(3), skew(offset)], [np.zeros((3, 3)), np.eye(3)]])


def random_inertia():
    A = rng.normal(size=(6, 6))
    return A @ A.T


def packed(m):
    return SpatialInertia.from_matrix(jnp.asarray(m))


def matrix(P: SpatialInertia) -> np.ndarray:
    return np.array(SpatialInertia(*(jnp.asarray(block) for block in P)).matrix())


def test_matrix_round_trip():
    m = random_inertia()
    np.testing.assert_array_equal(packed(m).matrix(), m)


def test_times():
    inertia, vector = packed, jnp.asarray
    m, x = random_inertia(), rng.normal(size=6)
    moment, force = inertia(m).times(vector(x[:3]), vector(x[3:]))
    np.testing.assert_allclose(np.concatenate([moment, force]), m @ x, rtol=1e-13)


def test_shifted_is_phi_p_phi_transposed():
    inertia, vector = packed, jnp.asarray
    m, offset = random_inertia(), rng.normal(size=3)
    expected = phi(offset) @ m @ phi(offset).T
    np.testing.assert_allclose(matrix(inertia(m).shifted(vector(offset))), expected, rtol=1e-12, atol=1e-12)


def test_minus_outer():
    inertia, vector = packed, jnp.asarray
    m, u = random_inertia(), rng.normal(size=6)
    g = u / 2.5
    result = inertia(m).minus_outer(vector(u[:3]), vector(u[3:]), vector(g[:3]), vector(g[3:]))
    np.testing.assert_allclose(matrix(result), m - np.outer(u, g), rtol=1e-13, atol=1e-13)


def rigid_body(R, mass, com, inertia):
    """The 6x6 inertia about the origin from first principles: the body's own, carried from its centre of mass."""
    own = np.block([[R @ inertia @ R.T, np.zeros((3, 3))], [np.zeros((3, 3)), mass * np.eye(3)]])
    return phi(R @ com) @ own @ phi(R @ com).T


def a_body():
    R = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    J = rng.normal(size=(3, 3))
    return R, 2.3, rng.normal(size=3), J @ J.T


def test_rigid_inertia_is_the_parallel_axis_theorem():
    body = a_body()
    rigid = rigid_inertia(*(jnp.asarray(x) for x in body))
    np.testing.assert_allclose(rigid.spatial().matrix(), rigid_body(*body), rtol=1e-12, atol=1e-12)


def test_rigid_times_and_plus_rigid_body():
    body, x, m = a_body(), rng.normal(size=6), random_inertia()
    rigid = rigid_inertia(*(jnp.asarray(x) for x in body))
    expected = rigid_body(*body)
    moment, force = rigid.times(jnp.asarray(x[:3]), jnp.asarray(x[3:]))
    np.testing.assert_allclose(np.concatenate([moment, force]), expected @ x, rtol=1e-12)
    np.testing.assert_allclose(packed(m).plus_rigid_body(rigid).matrix(), m + expected, rtol=1e-12)


def test_gyroscopic_force_is_the_rate_of_momentum_of_a_body_turning_steadily():
    """d/dt of the momentum about a point at rest, the body spinning with constant w about it."""
    R, mass, com, inertia = (jnp.asarray(x) for x in a_body())
    w = jnp.asarray(rng.normal(size=3))

    def momentum(t):
        turned = (jnp.eye(3) + t * ops.skew(w)) @ R  # to first order
        return jnp.concatenate(rigid_inertia(turned, mass, com, inertia).times(w, jnp.zeros(3)))

    rate = jax.jvp(momentum, (0.0,), (1.0,))[1]
    b = jnp.concatenate(rigid_inertia(R, mass, com, inertia).gyroscopic(w))
    np.testing.assert_allclose(b, rate, rtol=1e-12, atol=1e-12)


def test_stacks_of_inertias_are_those_of_each():
    bodies, offsets = [a_body() for _ in range(3)], rng.normal(size=(3, 3))
    stacked = rigid_inertia(*(jnp.stack([jnp.asarray(body[k]) for body in bodies]) for k in range(4)))
    shifted = stacked.shifted(jnp.asarray(offsets)).spatial().matrix()
    for k, body in enumerate(bodies):
        expected = phi(offsets[k]) @ rigid_body(*body) @ phi(offsets[k]).T
        np.testing.assert_allclose(shifted[k], expected, rtol=1e-11, atol=1e-11)


def test_balanced_inertias_are_symmetric():
    m = rng.normal(size=(6, 6))
    balanced = packed(m).balanced()
    np.testing.assert_array_equal(balanced.rotation, balanced.rotation.T)
    np.testing.assert_allclose(balanced.translation, (m[3:, 3:] + m[3:, 3:].T) / 2, rtol=1e-15)
