"""Mimic joints coupled: the view against dense NumPy and constraint embedding, rollouts against their own coupling."""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsoa as soa
from jaxsoa import closed_chain as cc

INERTIA = (
    '<inertial><origin xyz="0.1 0.02 -0.03"/><mass value="1.5"/>'
    '<inertia ixx=".02" iyy=".03" izz=".025" ixy="0" ixz="0" iyz="0"/></inertial>'
)


def gripper() -> soa.Multibody:
    """An arm of one joint, two fingers that mimic it through a chain of mimics, and a free pendulum between."""
    names = ("base", "arm", "left", "right", "swing")
    text = "".join(f'<link name="{n}">{INERTIA if n != "base" else ""}</link>' for n in names)
    joints = [
        ("shoulder", "base", "arm", ""),
        ("left", "arm", "left", '<mimic joint="shoulder" multiplier="-0.5" offset="0.2"/>'),
        ("right", "arm", "right", '<mimic joint="left" multiplier="-2" offset="0.1"/>'),
        ("swing", "right", "swing", ""),
    ]
    for name, parent, child, mimic in joints:
        text += (
            f'<joint name="{name}" type="revolute"><parent link="{parent}"/><child link="{child}"/><axis xyz="0 1 0"/>'
            f'<origin xyz="0.2 0.1 0.05"/><limit lower="-3" upper="3" effort="9" velocity="9"/>'
            f'<dynamics damping="0.1"/>{mimic}</joint>'
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", soa.ModelWarning)
        return soa.load_urdf(f'<robot name="gripper">{text}</robot>')


A = np.array([[1, 0], [-0.5, 0], [1, 0], [0, 1.0]])
B = np.array([0, 0.2, -0.4 + 0.1, 0])


def test_the_view_equals_the_dense_reduction():
    robot = gripper()
    view = cc.coupled(robot)
    assert view.joint_names == ("shoulder", "swing") and (view.nq, view.nv) == (2, 2)
    y, rates, tau = jnp.array([0.4, -0.7]), jnp.array([0.5, 1.1]), jnp.array([2.0, -1.0])
    np.testing.assert_allclose(view.expand(y), A @ np.asarray(y) + B, atol=1e-15)

    @jax.jit
    def answers(y, rates):
        q, v = A @ y + B, A @ rates
        M, h = soa.mass_matrix(robot, q), soa.inverse_dynamics(robot, q, v, jnp.zeros(4))
        return view.forward_dynamics(y, rates, tau), jnp.linalg.solve(A.T @ M @ A, tau - A.T @ h)

    a, dense = answers(y, rates)
    np.testing.assert_allclose(a, dense, rtol=1e-12)


@pytest.mark.slow
def test_derivatives_of_the_view_equal_those_of_the_dense_reduction():
    robot = gripper()
    view = cc.coupled(robot)
    y, rates, tau = jnp.array([0.4, -0.7]), jnp.array([0.5, 1.1]), jnp.array([2.0, -1.0])
    gradient = jax.jit(jax.grad(lambda y: view.forward_dynamics(y, rates, tau)[1]))(y)
    other = jax.jit(jax.grad(lambda y: _dense(robot, y, rates, tau)[1]))(y)
    np.testing.assert_allclose(gradient, other, rtol=1e-10)


def _dense(robot, y, rates, tau):
    q, v = A @ y + B, A @ rates
    M, h = soa.mass_matrix(robot, q), soa.inverse_dynamics(robot, q, v, jnp.zeros(4))
    return jnp.linalg.solve(A.T @ M @ A, tau - A.T @ h)


def test_rollouts_couple_mimics_unless_told_otherwise():
    robot = gripper()
    q, v = jnp.array([0.3, 0.0, 0.0, 0.1]), jnp.array([0.5, 0.0, 0.0, -0.4])
    tau = jnp.tile(jnp.array([0.3, 0.1, -0.2, 0.05]), (20, 1))

    @jax.jit
    def both(q, v):
        coupled = soa.rollout(robot, q, v, tau, 0.01)
        free = soa.rollout(robot, q, v, tau, 0.01, mimics="free")
        return coupled, free

    @jax.jit
    def dense(y, rates):  # the same steps in minimal coordinates
        def advance(state, _):
            y, rates = state
            rates = rates + 0.01 * _dense(robot, y, rates, A.T @ tau[0])
            return (y + 0.01 * rates, rates), y + 0.01 * rates

        return jax.lax.scan(advance, (y, rates), length=20)[1]

    coupled, free = both(q, v)
    y = dense(q[np.array([0, 3])], v[np.array([0, 3])])
    np.testing.assert_allclose(coupled.q, y @ A.T + B, atol=1e-12)
    np.testing.assert_allclose(coupled.v @ np.array([0.5, 1, 0, 0]), 0, atol=1e-13)
    assert np.abs(np.asarray(free.q[:, 1] - (0.2 - 0.5 * free.q[:, 0]))).max() > 0.01
    with pytest.raises(ValueError, match='mimics must be "coupled" or "free"'):
        soa.rollout(robot, q, v, tau, 0.01, mimics="none")
