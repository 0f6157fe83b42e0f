"""Mimic joints coupled: the view against dense NumPy and constraint embedding, rollouts against their own coupling."""

from __future__ import annotations

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.mimicking import A, B, gripper

import jaxsoa as soa
from jaxsoa import closed_chain as cc, contact, optimize


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


def test_the_view_linearizes_and_measures_as_the_dense_reduction():
    robot = gripper()
    view = cc.coupled(robot)
    y, rates, tau = jnp.array([0.4, -0.7]), jnp.array([0.5, 1.1]), jnp.array([2.0, -1.0])

    @jax.jit
    def both(y, rates, tau):
        q, v = A @ y + B, A @ rates
        energies = view.kinetic_energy(y, rates) + view.potential_energy(y)
        measured = (energies, view.center_of_mass(y), view.bias_force(y, rates))
        zero = jnp.zeros(4)
        others = (soa.kinetic_energy(robot, q, v) + soa.potential_energy(robot, q), soa.center_of_mass(robot, q))
        linearized = view.linearize_forward_dynamics(y, rates, tau)
        return linearized, measured, (*others, A.T @ soa.inverse_dynamics(robot, q, v, zero))

    linearized, measured, others = both(y, rates, tau)
    dense = dense_derivatives()(y, rates, tau)[1]
    for found, expected in zip((*linearized, *measured), (*dense, *others), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(view.difference(y, view.integrate(y, rates)), rates, rtol=1e-14)
    np.testing.assert_array_equal(view.reduce_forces(view.expand_forces(tau)), tau)
    assert view.random(jax.random.key(0)).shape == (2,)


def _dense(robot, y, rates, tau):
    q, v = A @ y + B, A @ rates
    M, h = soa.mass_matrix(robot, q), soa.inverse_dynamics(robot, q, v, jnp.zeros(4))
    return jnp.linalg.solve(A.T @ M @ A, tau - A.T @ h)


@cache
def dense_derivatives():
    """A compiled function of (y, rates, tau): the accelerations, and their derivatives by each."""
    robot = gripper()

    def both(*x):
        return _dense(robot, *x), jax.jacfwd(lambda *x: _dense(robot, *x), (0, 1, 2))(*x)

    return jax.jit(both)


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


DT, TAU = 0.005, jnp.array([0.3, 0.1, -0.2, 0.05])


def test_steps_and_their_matrices_are_those_of_the_dense_reduction():
    """Of semi-implicit Euler, y+ = y + dt y'+ with y'+ = y' + dt a(y, y', tau)."""
    robot, dt = gripper(), 0.01
    y, rates = np.array([0.3, 0.1]), np.array([0.5, -0.4])
    plan = optimize.robot_problem(robot, horizon=2, dt=dt, running_cost=lambda x, u: u @ u)

    @jax.jit
    def found(y, rates):
        q, v = A @ y + B, A @ rates
        steps = [soa.step(robot, q, v, TAU, dt, **options) for options in ({}, {"mimics": "free"})]
        return *steps, plan.dynamics.step(soa.State(q, v), TAU), soa.linearize_step(robot, q, v, TAU, dt)

    after, free, planned, (left, right) = found(y, rates)
    a, (by_y, by_rates, by_tau) = dense_derivatives()(y, rates, A.T @ TAU)
    np.testing.assert_allclose(after.v, A @ (rates + dt * a), atol=1e-13)
    np.testing.assert_allclose(after.q, A @ (y + dt * (rates + dt * a)) + B, atol=1e-13)
    np.testing.assert_allclose(planned, after, atol=1e-14)
    low = np.concatenate([dt * by_y, np.eye(2) + dt * by_rates], axis=1)
    by_state = np.concatenate([dt * low + np.eye(2, 4), low])
    both = np.kron(np.eye(2), A)  # (dy, dy') to (dq, dv)
    np.testing.assert_allclose(left @ both, both @ by_state, atol=1e-12)
    np.testing.assert_allclose(right, both @ np.concatenate([dt * dt * by_tau, dt * by_tau]) @ A.T, atol=1e-12)
    assert float(jnp.abs(free.q - after.q).max()) > 1e-5


@pytest.mark.slow
def test_plans_are_those_of_rollouts():
    robot, dt = gripper(), 0.01
    q, v = A @ np.array([0.3, 0.1]) + B, A @ np.array([0.5, -0.4])
    effort = optimize.LeastSquares(lambda x, u: jnp.concatenate([x.q - q, 0.1 * u]))
    problem = optimize.robot_problem(robot, horizon=15, dt=dt, running_cost=effort)

    @jax.jit
    def found(q, v):
        plan = optimize.ilqr(problem, soa.State(q, v), max_iterations=8)
        matrices = problem.dynamics.linearize(soa.State(q, v), TAU), soa.linearize_step(robot, q, v, TAU, dt)
        return plan, soa.rollout(robot, q, v, plan.controls, dt), list(zip(*matrices, strict=True))

    plan, run, matrices = found(q, v)
    np.testing.assert_allclose(plan.states.q[1:], run.q, atol=1e-12)
    np.testing.assert_allclose(plan.states.q, plan.states.q[:, [0, 3]] @ A.T + B, atol=1e-12)
    assert bool(plan.converged)
    for planned, step in matrices:
        np.testing.assert_allclose(planned, step, atol=1e-13)


# --- beside what else a step has to satisfy, each against the same steps in minimal coordinates -----------------------

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
    # The contact solver may stop at 1e-9 m/s, step after step.
    np.testing.assert_allclose(q, y, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(v, rates, rtol=1e-7, atol=1e-9)


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
    # Two discretizations of fourth order, one projected after every step: at 6 rad/s and 5 ms their errors differ by
    # 2e-8 rad and 6e-7 rad/s.
    np.testing.assert_allclose(q, y, atol=3e-8)
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
