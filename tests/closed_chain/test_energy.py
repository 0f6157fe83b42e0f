"""Closed chains in motion: energy and constraints over ten seconds, projections and stabilization."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from closed_chain_cases import slope_at_zero
from numpy.testing import assert_allclose

import jaxsoa as soa
from jaxsoa import closed_chain as cc


def total_energy(robot, q, v):
    return soa.kinetic_energy(robot, q, v) + soa.potential_energy(robot, q)


@pytest.mark.slow
@pytest.mark.parametrize(("make", "dt"), [(cc.mechanisms.four_bar, 2e-3), (cc.mechanisms.five_bar, 1e-3)])
def test_mechanisms_fall_for_ten_seconds(make, dt):
    """Runge-Kutta 4 from rest; the five-bar's arms whip through stretched positions. (Stewart's platform for as long is
    in tests/simulate/test_closed_rollout.py.)"""
    robot, loops, guess = make()

    @jax.jit
    def run(guess):
        def look(s):
            errors = cc.loop_errors(robot, loops, s.q), cc.loop_jacobian(robot, loops, s.q) @ s.v
            return soa.kinetic_energy(robot, s.q, s.v), total_energy(robot, s.q, s.v), errors

        q, v = cc.close_loops(robot, loops, guess), jnp.zeros(robot.nv)
        options = {"steps": round(10 / dt), "integrator": "rk4", "loops": loops, "record": look, "every": 10}
        return soa.rollout(robot, q, v, None, dt, **options)

    kinetic, total, errors = run(guess)
    assert kinetic.max() > 0.1
    assert np.ptp(total) < 1e-6 * kinetic.max()
    for error in errors:
        assert np.abs(error).max() < 1e-8


@pytest.mark.slow
def test_two_sprung_arms_and_what_they_hold_swing_for_ten_seconds():
    """The springs keep the grasp inside its workspace; energy of arms, springs and object."""
    system, q, pose = cc.mechanisms.two_arm_grasp()
    sprung = [arm.robot.replace(stiffness=jnp.full(7, 40.0), rest=q) for arm, q in zip(system.arms, q, strict=True)]
    arms = [cc.Arm(robot, arm.frame, arm.point, arm.contact) for arm, robot in zip(system.arms, sprung, strict=True)]
    system = cc.GraspSystem(arms, system.body)

    @jax.jit
    def run(q):
        def look(s):
            (R, p), V, body = s.object_pose, s.object_velocity, system.body  # a box whose centre of mass is its origin
            kinetic = (body.mass * V[3:] @ V[3:] + V[:3] @ R @ body.inertia @ R.T @ V[:3]) / 2
            kinetic += sum(soa.kinetic_energy(*x) for x in zip(sprung, s.q, s.v, strict=True))
            potential = sum(soa.potential_energy(*x) for x in zip(sprung, s.q, strict=True))
            state = cc.grasp_state(system, s.q, s.v, s.object_pose, object_velocity=V)
            errors = state.position_error, state.velocity_error
            return kinetic, kinetic + potential - body.mass * system.gravity @ p, errors

        still = [jnp.zeros(7)] * 2
        return soa.simulate.grasp_rollout(system, q, still, pose, None, 2e-3, steps=5_000, record=look)

    kinetic, total, errors = run(q)
    assert kinetic.max() > 0.1
    assert np.abs(total - total[0]).max() < 1e-6 * kinetic.max()
    for error in errors:
        assert np.abs(error).max() < 1e-8


@cache
def four_bar():
    """Robot, loops and a closed configuration."""
    robot, loops, guess = cc.mechanisms.four_bar()
    return robot, loops, jax.jit(cc.close_loops)(robot, loops, guess)


def assert_derivatives_equal_differences(f, *x, tolerance: float = 1e-6):
    """Forward along one random direction in all arguments together, and reverse against forward."""
    rng = np.random.default_rng(0)
    t = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape)), x)
    compiled = jax.jit(f)
    differences = slope_at_zero(lambda h: compiled(*jax.tree.map(lambda a, b: a + h * b, x, t)))
    tangent = jax.jit(lambda x, t: jax.jvp(f, x, t)[1])(x, t)
    assert_allclose(tangent, differences, atol=tolerance * np.abs(differences).max())
    c = jnp.asarray(rng.normal(size=differences.shape))
    back = jax.jit(lambda x, c: jax.vjp(f, *x)[1](c))(x, c)
    inner = sum(jnp.vdot(a, b) for a, b in zip(jax.tree.leaves(back), jax.tree.leaves(t), strict=True))
    assert_allclose(inner, jnp.vdot(c, tangent), rtol=1e-8)


@pytest.mark.slow
def test_projection_brings_a_four_bar_back_and_never_adds_energy():
    robot, loops, q = four_bar()
    rng = np.random.default_rng(0)
    v = rng.normal(size=3)
    back, slowed = jax.jit(cc.project)(robot, loops, q + 1e-4 * rng.normal(size=3), v)
    assert_allclose(jax.jit(cc.loop_errors)(robot, loops, back), 0, atol=1e-12)
    assert_allclose(jax.jit(cc.loop_jacobian)(robot, loops, back) @ slowed, 0, atol=1e-12)
    energy = jax.jit(soa.kinetic_energy)
    assert energy(robot, back, slowed) < energy(robot, back, v)
    assert_derivatives_equal_differences(
        lambda q, v: jnp.concatenate(cc.project(robot, loops, q, v)), q + 1e-4, jnp.asarray(v)
    )


@pytest.mark.slow
def test_stabilization_makes_errors_decay():
    """Baumgarte: error'' = -2 damping error' - frequency^2 error, along the constraint."""
    robot, loops, q = four_bar()
    q, v, tau = q + jnp.array([1e-4, 0, 0]), jnp.array([1e-3, 0, 0]), jnp.zeros(3)

    def motion(q, v):
        return cc.loop_forward_dynamics(robot, loops, q, v, tau, stabilization=(10.0, 20.0)).a

    J, e = jax.jit(cc.loop_jacobian)(robot, loops, q), jax.jit(cc.loop_errors)(robot, loops, q)
    wanted = -20 * J @ v - 400 * e
    # Up to the squares of the small error and rate.
    assert_allclose(J @ jax.jit(motion)(q, v), wanted, atol=1e-3 * float(jnp.abs(wanted).max()))
    assert_derivatives_equal_differences(motion, q, v)


@pytest.mark.slow
def test_arms_are_projected_onto_the_object():
    """Positions, orientations and velocities come back to those of the object; differentiable."""
    system, q, pose = cc.mechanisms.two_arm_grasp([cc.Rigid(), cc.SoftFinger((-1, 0, 0))])
    rotations = jax.jit(lambda: cc.grasp_rotations(system, q, pose))()
    rng = np.random.default_rng(0)
    moving = jnp.asarray(rng.normal(size=6))

    def projected(q, v, V):
        return cc.project_grasp(system, q, v, pose, V, rotations)

    off = tuple(x + 1e-4 * rng.normal(size=7) for x in q), tuple(jnp.asarray(rng.normal(size=7)) for _ in q)
    back = jax.jit(projected)(*off, moving)
    state = jax.jit(lambda q, v: cc.grasp_state(system, q, v, pose, object_velocity=moving))(*back)
    assert_allclose(state.position_error, 0, atol=1e-12)
    assert_allclose(state.velocity_error, 0, atol=1e-11)
    turned = jax.jit(lambda q: cc.grasp_rotations(system, q, pose))(back[0])
    assert_allclose(turned[0], rotations[0], atol=1e-12)
    assert not np.allclose(turned[1], rotations[1], atol=1e-7)  # free to roll
    assert_derivatives_equal_differences(
        lambda q, v, V: jnp.concatenate(jax.tree.leaves(projected(q, v, V))), *off, moving
    )
