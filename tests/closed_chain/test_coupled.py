"""Mimic joints coupled: the view against dense NumPy and constraint embedding, rollouts against their own coupling."""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsoa as soa
from jaxsoa import closed_chain as cc, contact

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


# --- beside what else a step has to satisfy, each against the same steps in minimal coordinates -----------------------

DT, TAU = 0.005, jnp.array([0.3, 0.1, -0.2, 0.05])
Y, RATES = jnp.array([0.4, -0.7]), jnp.array([0.5, 1.1])


def reduced(robot, y, rates):
    """A* M A and A* (TAU - bias), dense."""
    q, v = A @ y + B, A @ rates
    M, h = soa.mass_matrix(robot, q), soa.inverse_dynamics(robot, q, v, jnp.zeros(4))
    return A.T @ M @ A, A.T @ (TAU - h)


def both(robot, advance, steps, rates=RATES, **options):
    """States of a coupled rollout, and of the steps `advance(t, y, rates)`; in independent coordinates."""

    @jax.jit
    def run(y, rates):
        q, v = A @ y + B, A @ rates
        ours = soa.rollout(robot, q, v, jnp.tile(TAU, (steps, 1)), DT, **options)

        def on(state, k):
            state = advance(k * DT, *state)
            return state, state

        return ours, jax.lax.scan(on, (y, rates), jnp.arange(steps))[1]

    ours, (y, rates) = run(Y, rates)
    np.testing.assert_allclose(ours.q, ours.q[:, np.array([0, 3])] @ A.T + B, atol=1e-12)
    np.testing.assert_allclose(ours.v, ours.v[:, np.array([0, 3])] @ A.T, atol=1e-11)
    return ours.q[:, np.array([0, 3])], ours.v[:, np.array([0, 3])], y, rates


def test_coupled_beside_a_prescribed_joint():
    robot = gripper()

    def given(t):
        return 0.4 * jnp.cos(3 * t)

    def advance(t, y, rates):
        M, force = reduced(robot, y, rates)
        a = jnp.stack([given(t), (force[1] - M[1, 0] * given(t)) / M[1, 1]])
        return y + DT * (rates + DT * a), rates + DT * a

    mask = jnp.array([True, False, False, False])
    prescribed = lambda t, q, v: (mask, jnp.where(mask, given(t), 0.0))  # noqa: E731
    q, v, y, rates = both(robot, advance, 15, prescribed=prescribed)
    np.testing.assert_allclose(q, y, atol=1e-12)
    np.testing.assert_allclose(v, rates, atol=1e-11)


@pytest.mark.slow
def test_coupled_beside_a_contact():
    robot = gripper()
    height = -0.1
    ground = contact.Plane((0, 0, 1), height)
    scene = contact.Scene(contact.Points("swing", positions=[(0.3, 0, 0.1)]), ground, friction=0.0)

    def above(y):
        R, p = soa.frame_pose(robot, A @ y + B, "swing")
        return (p + R @ jnp.array([0.3, 0, 0.1]))[2] - height

    def advance(t, y, rates):
        M, force = reduced(robot, y, rates)
        free = rates + DT * jnp.linalg.solve(M, force)
        gap, n = jax.value_and_grad(above)(y)
        allowed = jnp.where(gap > 0, gap / DT, jnp.maximum(0.2 * gap / DT, -1))
        push = jnp.maximum(0, -(n @ free + allowed) / (n @ jnp.linalg.solve(M, n)))
        rates = free + jnp.linalg.solve(M, n) * push
        return y + DT * rates, rates

    q, v, y, rates = both(robot, advance, 40, contact=scene)
    touched = jax.vmap(above)(y)
    assert touched[0] > 0.01 and touched.min() < 1e-4  # it falls, and it lands
    np.testing.assert_allclose(q, y, atol=1e-8)
    np.testing.assert_allclose(v, rates, atol=1e-6)


@pytest.mark.slow
def test_coupled_beside_a_loop():
    robot = gripper()
    point = jnp.array([0.3, 0, 0.1])

    def tip(y):
        R, p = soa.frame_pose(robot, A @ y + B, "swing")
        return p + R @ point

    anchor = tip(Y) + jnp.array([0.1, 0.0, 0.4])
    rod = cc.distance("base", "swing", float(jnp.sqrt(0.17)), point_a=anchor, point_b=point)

    def gap(y):
        return jnp.sum((tip(y) - anchor) ** 2) / 2

    def acceleration(y, rates):
        M, force = reduced(robot, y, rates)
        n, bend = jax.grad(gap)(y), jax.hessian(gap)(y)
        f = -(n @ jnp.linalg.solve(M, force) + rates @ bend @ rates) / (n @ jnp.linalg.solve(M, n))
        return jnp.linalg.solve(M, force + n * f)

    def advance(t, y, rates):  # the classical method
        stages, dy, dv = [], 0.0 * rates, 0.0 * rates
        for node in (0, 0.5, 0.5, 1):
            dy, dv = rates + DT * node * dv, acceleration(y + DT * node * dy, rates + DT * node * dv)
            stages.append((dy, dv))
        return tuple(x + DT / 6 * (a + 2 * b + 2 * c + d) for x, a, b, c, d in zip((y, rates), *stages, strict=True))

    n = jax.grad(gap)(Y)
    start = RATES - n * (n @ RATES) / (n @ n)
    q, v, y, rates = both(robot, advance, 20, start, loops=rod, integrator="rk4")
    np.testing.assert_allclose(q, y, atol=1e-8)  # fourth order, and one of them is projected after every step
    np.testing.assert_allclose(v, rates, atol=1e-6)


@pytest.mark.slow
def test_coupled_in_the_variational_step():
    """p0 = M(y1) w, y1 = y0 + dt w, p1 = p0 + dt (dL/dy(y1, w) + tau), by Newton's method and automatic derivatives."""
    robot = gripper().frictionless()

    def mass(y):
        return A.T @ soa.mass_matrix(robot, A @ y + B) @ A

    def lagrangian(y, w):
        return w @ mass(y) @ w / 2 - soa.potential_energy(robot, A @ y + B)

    def advance(t, y, rates):
        before = mass(y) @ rates

        def unmet(w):
            return mass(y + DT * w) @ w - before

        def newton(w, _):
            return w - jnp.linalg.solve(jax.jacfwd(unmet)(w), unmet(w)), None

        w = jax.lax.scan(newton, rates, None, length=6)[0]
        y = y + DT * w
        after = before + DT * (jax.grad(lagrangian)(y, w) + A.T @ TAU)
        return y, jnp.linalg.solve(mass(y), after)

    q, v, y, rates = both(robot, advance, 20, integrator="variational_euler")
    np.testing.assert_allclose(q, y, atol=1e-9)  # the step's fixed-point iterations are four
    np.testing.assert_allclose(v, rates, atol=1e-7)
