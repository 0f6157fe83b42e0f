"""Rollouts of mechanisms, of grasps, with prescribed joints and with forces at frames."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.compare import assert_close
from numpy.testing import assert_allclose

import jaxsoa as soa
from jaxsoa import closed_chain as cc


def total_energy(robot, q, v):
    return soa.kinetic_energy(robot, q, v) + soa.potential_energy(robot, q)


def test_forces_at_frames_are_their_jacobians_transposed():
    robot, _, q = cc.mechanisms.stewart()
    rng = np.random.default_rng(1)
    v, a = rng.normal(size=robot.nv), rng.normal(size=robot.nv)
    names = ["socket1", "head1", "piston1", "head5"]  # two on one link, and the link itself
    wrenches = {name: rng.normal(size=6) for name in names}

    @jax.jit
    def compare(q):
        by_links = soa.inverse_dynamics(robot, q, v, a, soa.external_forces(robot, q, wrenches))
        by_jacobians = sum(soa.jacobian(robot, q, name).T @ f for name, f in wrenches.items())
        return by_links, soa.inverse_dynamics(robot, q, v, a) - by_jacobians

    assert_close(*compare(q), 1e-12)
    with pytest.raises(ValueError, match="moment, then force"):
        soa.external_forces(robot, q, {names[0]: jnp.zeros(3)})
    with pytest.raises(KeyError):
        soa.external_forces(robot, q, {"nowhere": jnp.zeros(6)})


def test_an_external_force_follows_the_state_and_a_prescribed_joint_its_acceleration():
    """A spring at the tip of a pendulum keeps energy; the prescribed first joint turns as t^2 / 2."""
    robot = soa.models.chain(3)
    anchor, stiffness = jnp.array([0.3, 0.2, 0.5]), 4.0

    def spring(robot, q, v):
        _, p = soa.frame_pose(robot, q, "tip")
        return soa.external_forces(robot, q, {"tip": jnp.concatenate([jnp.zeros(3), stiffness * (anchor - p)])})

    def energy(q, v):
        _, p = soa.frame_pose(robot, q, "tip")
        return total_energy(robot, q, v) + stiffness / 2 * jnp.sum((p - anchor) ** 2)

    q, v = jnp.array([0.3, -0.8, 0.5]), jnp.array([0.5, -0.2, 0.4])

    @jax.jit
    def run(q, v):
        free = soa.rollout(robot, q, v, None, 2e-3, steps=200, integrator="rk4", f_ext=spring)
        mask, a = jnp.arange(3) == 0, jnp.array([0.7, 0.0, 0.0])
        driven = soa.rollout(robot, q, v, None, 2e-3, steps=200, integrator="rk4", f_ext=spring, prescribed=(mask, a))
        released = soa.rollout(
            robot, q, v, None, 2e-3, steps=200, integrator="rk4", f_ext=spring,
            prescribed=lambda t, q, v: (mask & (t < 0.1), jnp.zeros(3)),
        )  # fmt: skip
        rows = jnp.broadcast_to(mask, (200, 3)) & (jnp.arange(200) < 50)[:, None]
        same = soa.rollout(robot, q, v, None, 2e-3, steps=200, integrator="rk4", f_ext=spring, prescribed=rows)
        return jax.vmap(energy)(*free), driven, released, same

    kept, driven, released, same = run(q, v)
    assert np.ptp(kept) < 1e-8  # of about 5 J that go to and fro
    t = 2e-3 * np.arange(1, 201)
    assert_allclose(driven.q[:, 0], q[0] + v[0] * t + 0.35 * t**2, atol=1e-12)
    assert_allclose(released.v[:50, 0], v[0], atol=1e-14)  # held at its velocity, then let go
    assert abs(float(released.v[-1, 0] - v[0])) > 1e-2
    assert_allclose(released.q, same.q, atol=1e-14)


def five_bar():
    robot, loops, q = cc.mechanisms.five_bar()
    return robot, loops, jax.jit(lambda q: cc.close_loops(robot, loops, q))(q)


def test_a_mechanism_stays_closed_keeps_its_energy_and_can_be_driven():
    """A five-bar that falls, and one whose two cranks are prescribed; what contradicts the loop is reported."""
    robot, loops, q = five_bar()
    cranks = soa.prescribed_mask(robot, ["left1_joint", "right1_joint"])
    nothing, every = jnp.zeros(4, bool), jnp.ones(4, bool)
    a, wished = jnp.array([1.0, 0.0, -0.5, 0.0]), jnp.array([0.3, 0.0, -0.2, 0.0])

    def run(mask):
        v = cc.project_velocity(robot, loops, q, wished, prescribed=mask)
        s = cc.loop_forward_dynamics(robot, loops, q, v, jnp.zeros(4), a=a, prescribed=mask)
        back = cc.loop_forward_dynamics(robot, loops, q, v, s.tau, prescribed=nothing)  # the torques found do the same
        states = soa.rollout(robot, q, v, None, 5e-3, steps=120, integrator="rk4", loops=loops, prescribed=(mask, a))
        errors = jax.vmap(lambda q, v: (cc.loop_errors(robot, loops, q), cc.loop_jacobian(robot, loops, q) @ v))
        return v, s, back.a, states, errors(*states), jax.vmap(lambda q, v: total_energy(robot, q, v))(*states)

    v = wished
    start, s, back, states, errors, energy = jax.jit(partial(jax.lax.map, run))(
        jnp.stack([nothing, cranks, every])
    )
    for error in errors:
        assert np.abs(error[:2]).max() < 1e-12
    assert float(jnp.max(jnp.abs(states.v[0]))) > 1  # it did fall
    assert np.ptp(energy[0]) < 1e-5  # of 18 J: the error of Runge-Kutta with this step, 5e-8 with 2e-3
    assert np.ptp(energy[1]) > 1e-2
    assert_allclose(start[1][cranks], v[cranks])
    assert_allclose(s.a[1][cranks], a[cranks], atol=1e-12)
    assert_allclose(back[1], s.a[1], atol=1e-9)
    t = 5e-3 * 120
    assert_allclose(states.q[1, -1][cranks], (q + v * t + a * t**2 / 2)[cranks], atol=1e-12)
    assert np.isfinite(s.a).all()
    assert float(jnp.max(s.residual[:2])) < 1e-10 and float(s.residual[2]) > 0.1


def test_a_start_that_is_open_or_nonsense_is_refused():
    robot, loops, q = five_bar()
    with pytest.raises(ValueError, match=r"not closed.*'left_tip' - 'right_tip'"):
        soa.rollout(robot, q + 0.1, jnp.zeros(4), None, 1e-2, steps=2, loops=loops)
    with pytest.raises(ValueError, match=r"prescribed must have shape"):
        soa.rollout(robot, q, jnp.zeros(4), None, 1e-2, steps=2, prescribed=jnp.ones(3, bool))
    with pytest.raises(ValueError, match="prescribed must be bool"):
        soa.step(robot, q, jnp.zeros(4), jnp.zeros(4), 1e-2, prescribed=jnp.ones(4))
    with pytest.raises(soa.ModelError, match=r"'left_tip' and 'left2' .* fixed to link 'left2'"):
        soa.rollout(robot, q, jnp.zeros(4), None, 1e-2, steps=2, loops=cc.weld("left_tip", "left2"))
    with pytest.raises(ValueError, match=r"cannot follow the prescribed joints left1_joint.* 0 independent"):
        every, a = jnp.ones(4, bool), jnp.array([1.0, 0.0, 0.0, 0.0])
        soa.rollout(robot, q, jnp.zeros(4), None, 1e-2, steps=2, loops=loops, prescribed=(every, a))
    with pytest.raises(ValueError, match="f_ext must have shape"):
        soa.rollout(robot, q, jnp.zeros(4), None, 1e-2, steps=2, f_ext=jnp.zeros((2, 6)))


@pytest.mark.slow
def test_two_arms_carry_an_object_by_point_contacts():
    grasp = cc.mechanisms.two_arm_grasp((cc.Point(), cc.Point()))
    system, q, pose = grasp
    rng = np.random.default_rng(0)
    v = tuple(jnp.zeros(arm.robot.nv) for arm in system.arms)
    tau = tuple(jnp.asarray(rng.normal(size=arm.robot.nv)) for arm in system.arms)
    spin = jnp.array([0.5, 0, 0, 0, 0, 0.0])  # about the line through the contacts, which nothing drives

    @jax.jit
    def run(q, tau):
        torques = tuple(jnp.broadcast_to(x, (100, len(x))) for x in tau)
        return soa.simulate.grasp_rollout(system, q, v, pose, torques, 2e-3, object_velocity=spin)

    @jax.jit
    def energy(motion):
        state = cc.grasp_state(system, motion.q, motion.v, motion.object_pose, object_velocity=motion.object_velocity)
        arms = sum(total_energy(arm.robot, q, v) for arm, q, v in zip(system.arms, motion.q, motion.v, strict=True))
        R, p = motion.object_pose
        w, u = motion.object_velocity[:3], motion.object_velocity[3:]
        own = (system.body.mass * u @ u + w @ R @ system.body.inertia @ R.T @ w) / 2
        height = -system.body.mass * system.gravity @ p
        work = -sum(t @ (q - q0) for t, q, q0 in zip(tau, motion.q, grasp.q, strict=True))
        return arms + own + height + work, state.position_error, state.velocity_error

    motion = run(q, tau)
    total, gap, slip = jax.vmap(energy)(motion)
    assert np.abs(gap).max() < 1e-12 and np.abs(slip).max() < 1e-11
    assert np.ptp(total) < 1e-7 and float(jnp.max(jnp.abs(motion.v[0]))) > 1
    with pytest.raises(ValueError, match="not closed"):
        soa.simulate.grasp_rollout(system, tuple(x + 0.1 for x in q), v, pose, None, 1e-2, steps=1)


@pytest.mark.slow
def test_a_stewart_platform_for_ten_seconds():
    """Sprung legs, let go: energy within 1e-6 of the largest kinetic energy, loop errors below 1e-9.

    What drifts is the error of Runge-Kutta: 9e-6 with 2 ms, 32 times less with half the step.
    """
    robot, loops, q = cc.mechanisms.stewart()
    q = jax.jit(lambda q: cc.close_loops(robot, loops, q))(q)
    at = np.array([robot.v_index(f"leg{k}").start for k in range(6)])
    robot = robot.replace(stiffness=jnp.zeros(robot.nv).at[at].set(2000.0), rest=q)

    @jax.jit
    def run(q):
        def look(sample):
            kinetic = soa.kinetic_energy(robot, sample.q, sample.v)
            return kinetic, kinetic + soa.potential_energy(robot, sample.q), cc.loop_errors(robot, loops, sample.q)

        start = jnp.zeros(robot.nv)
        options = {"steps": 10_000, "integrator": "rk4", "record": look, "every": 20}
        return soa.rollout(robot, q, start, None, 1e-3, loops=loops, **options)

    kinetic, energy, errors = run(q)
    assert float(jnp.max(jnp.abs(errors))) < 1e-9
    assert np.abs(energy - energy[0]).max() < 1e-6 * float(jnp.max(kinetic))
