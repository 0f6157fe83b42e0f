"""Each joint kind: its axes are the derivative of its pose, its drift that of its axes; moving along and back."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsoa.model.joints import JOINT_KINDS, JointGeometry

MOVING = {name: joint for name, joint in JOINT_KINDS.items() if joint.nv}


def a_case(joint, seed: int):
    rng = np.random.default_rng(seed)
    axes = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    geometry = JointGeometry(jnp.asarray(axes[0]), jnp.asarray(axes[1]), jnp.asarray(0.3))
    q = joint.random(jax.random.key(seed), jnp.float64)
    return geometry, q, jnp.asarray(rng.uniform(-1.5, 1.5, joint.nv))


def motion(joint, geometry, q, v):
    """Pose, body velocity, and the derivatives along q(t) of pose and of the velocity in joint-frame axes."""

    def pose(t):
        return joint.transform(geometry, joint.integrate(q, t * v))

    def velocity_in_joint_frame(t):
        moved = joint.integrate(q, t * v)
        R, _ = joint.transform(geometry, moved)
        s = v @ joint.subspace(geometry, moved)
        return jnp.concatenate([R @ s[:3], R @ s[3:]])

    (R, p), (dR, dp) = jax.jvp(pose, (0.0,), (1.0,))
    _, acceleration = jax.jvp(velocity_in_joint_frame, (0.0,), (1.0,))
    return R, p, dR, dp, v @ joint.subspace(geometry, q), acceleration, joint.bias(geometry, q, v)


@pytest.mark.parametrize("kind", MOVING)
def test_axes_and_drift_are_derivatives_along_the_motion(kind):
    joint = MOVING[kind]
    compiled = jax.jit(lambda geometry, q, v: motion(joint, geometry, q, v))
    for seed in range(4):
        geometry, q, v = a_case(joint, seed)
        R, _, dR, dp, s, acceleration, bias = (np.asarray(x) for x in compiled(geometry, q, v))
        np.testing.assert_allclose(R @ R.T, np.eye(3), atol=1e-14)
        np.testing.assert_allclose(np.linalg.det(R), 1, atol=1e-13)
        turning = R.T @ dR  # skew of the angular velocity in child axes
        np.testing.assert_allclose(s[:3], [turning[2, 1], turning[0, 2], turning[1, 0]], atol=1e-13)
        np.testing.assert_allclose(s[3:], R.T @ dp, atol=1e-13)
        np.testing.assert_allclose(np.concatenate([R @ bias[:3], R @ bias[3:]]), acceleration, atol=1e-12)
        assert joint.has_bias or not bias.any()
        assert not joint.angular_only or not np.any(np.asarray(joint.subspace(geometry, q))[:, 3:])


@pytest.mark.parametrize("kind", MOVING)
def test_integrate_and_difference(kind):
    joint = MOVING[kind]

    @jax.jit
    def everything(q, v):
        there = joint.integrate(q, v)
        halfway = joint.integrate(joint.integrate(q, 0.5 * v), 0.5 * v)
        at_zero = jax.jacfwd(lambda dv: joint.difference(q, joint.integrate(q, dv)))(jnp.zeros(joint.nv))
        return there, halfway, joint.difference(q, there), at_zero, joint.normalize(3 * there)

    for seed in range(4):
        _, q, v = a_case(joint, seed)
        there, halfway, back, at_zero, normalized = everything(q, v)
        np.testing.assert_allclose(back, v, atol=1e-13)
        np.testing.assert_allclose(halfway, there, atol=1e-13)  # exact for a constant velocity
        np.testing.assert_allclose(at_zero, np.eye(joint.nv), atol=1e-14)
        if joint.nq != joint.nv:
            np.testing.assert_allclose(np.linalg.norm(there[:4]), 1, atol=1e-15)
            np.testing.assert_allclose(normalized[:4], there[:4], atol=1e-15)


@pytest.mark.parametrize("kind", MOVING)
def test_neutral_is_the_identity_pose(kind):
    joint = MOVING[kind]
    geometry, _, _ = a_case(joint, 0)
    q = jnp.asarray(joint.neutral())
    assert q.shape == (joint.nq,)
    R, p = joint.transform(geometry, q)
    np.testing.assert_array_equal(R, np.eye(3))
    np.testing.assert_array_equal(p, np.zeros(3))


def test_kinds_have_the_published_degrees_and_names():
    expected = {
        "revolute": (1, 1), "continuous": (1, 1), "prismatic": (1, 1), "helical": (1, 1), "universal": (2, 2),
        "cylindrical": (2, 2), "planar": (3, 3), "spherical": (4, 3), "free": (7, 6), "fixed": (0, 0),
    }  # fmt: skip
    assert {name: (joint.nq, joint.nv) for name, joint in JOINT_KINDS.items()} == expected
    assert all(len(joint.coordinates) == joint.nv for joint in JOINT_KINDS.values())


def test_a_screw_advances_by_its_pitch_and_a_planar_joint_moves_in_its_plane():
    geometry = JointGeometry(jnp.array([0.0, 0, 1]), jnp.array([1.0, 0, 0]), jnp.asarray(0.25))
    R, p = MOVING["helical"].transform(geometry, jnp.array([2.0]))
    np.testing.assert_allclose(p, [0, 0, 0.5])
    R, p = MOVING["planar"].transform(geometry, jnp.array([3.0, 4.0, np.pi / 2]))
    np.testing.assert_allclose(p, [3, 4, 0])
    np.testing.assert_allclose(R @ jnp.array([1.0, 0, 0]), [0, 1, 0], atol=1e-15)
    R, p = MOVING["cylindrical"].transform(geometry, jnp.array([np.pi / 2, 0.7]))
    np.testing.assert_allclose(p, [0, 0, 0.7])
    np.testing.assert_allclose(R @ jnp.array([1.0, 0, 0]), [0, 1, 0], atol=1e-15)
