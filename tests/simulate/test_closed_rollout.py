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


@pytest.mark.slow
def test_a_force_that_does_not_change_is_given_as_an_array():
    """On a slider: m a = F - m g, in a rollout and in a step; as a function of the state the same."""
    builder = soa.Builder("slider").link("block", joint="prismatic", axis=(0, 0, 1), mass=2.0, inertia=np.eye(3))
    robot, push = builder.build(), jnp.array([[0.3, 0, 0, 0, 0, 5.0]])

    @jax.jit
    def run(push):
        options = {"steps": 20, "integrator": "rk4"}
        ends = [
            soa.rollout(robot, jnp.zeros(1), jnp.ones(1), None, 0.01, f_ext=f, **options)
            for f in (push, lambda robot, q, v: push)
        ]
        return ends, soa.step(robot, jnp.zeros(1), jnp.ones(1), jnp.zeros(1), 0.01, integrator="rk4", f_ext=push)

    ends, first = run(push)
    t = 0.01 * np.arange(1, 21)
    for states in ends:
        assert_allclose(states.q[:, 0], t + (2.5 - 9.81) * t**2 / 2, atol=1e-14)
    assert_allclose(first.q, ends[0].q[0], atol=1e-15)


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
    start, s, back, states, errors, energy = jax.jit(partial(jax.lax.map, run))(jnp.stack([nothing, cranks, every]))
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


def test_loops_that_contradict_each_other_are_named_with_their_rank():
    """Two rods of different lengths between the same points; inside jit the answer is finite, with what is left."""
    robot = soa.models.planar_arm(2)
    rods = tuple(cc.distance("base", "tip", length) for length in (0.6, 0.8))
    q, v = jnp.array([0.3, 1.2]), jnp.array([0.5, -0.4])
    with pytest.raises(ValueError, match=r"'base' - 'tip': .*, 'base' - 'tip': .*leaves 0\.\d+.* 1 of the constraints"):
        soa.rollout(robot, q, v, None, 1e-2, steps=2, loops=rods)
    # At rest at one length the rods ask for one acceleration, with stabilization for two.
    find = jax.jit(lambda q: cc.loop_forward_dynamics(robot, rods, q, v, jnp.zeros(2), stabilization=(5.0, 5.0)))
    s = find(q)
    assert np.isfinite(s.a).all() and np.isfinite(s.forces).all()
    assert int(s.rank) == 1 and float(s.residual) > 0.1
    motion = jax.jit(lambda q: soa.rollout(robot, q, v, None, 1e-2, steps=3, loops=rods))(q)
    assert np.isfinite(motion.q).all() and np.isfinite(motion.v).all()


@pytest.mark.slow
def test_mechanisms_in_adaptive_solvers_and_on_devices():
    """Against Runge-Kutta with fixed steps: a solver with steps of its own, and a batch over the devices there are.

    Let go, and with a crank driven.
    """
    pytest.importorskip("diffrax")
    robot, loops, q = five_bar()
    v, crank = jnp.zeros(4), soa.prescribed_mask(robot, ["left1_joint"])
    masks, given = jnp.stack([jnp.zeros(4, bool), crank]), 2.0 * crank

    @jax.jit
    def run(q):
        def one(mask):
            moving = {"loops": loops, "prescribed": (mask, given)}
            options = {"integrator": "rk4"} | moving
            fixed = soa.rollout(robot, q, v, None, 1e-3, steps=100, every=50, **options)
            stepped = jax.lax.scan(
                lambda x, _: (soa.step(robot, *x, jnp.zeros(4), 1e-3, **options), None),
                soa.State(q, v),
                None,
                length=50,
            )[0]
            return fixed, stepped

        def adaptive(**options):
            times = jnp.array([0.0, 0.05, 0.1])
            return soa.simulate.solve_adaptively(
                robot, q, v, None, times, rtol=1e-10, atol=1e-10, loops=loops, **options
            )

        fallen, driven = adaptive(), adaptive(prescribed=(crank, given))
        errors = jax.vmap(lambda q: cc.loop_errors(robot, loops, q))(fallen.q)
        many = soa.sharded_rollout(
            robot, jnp.stack([q, q]), jnp.stack([v, v]), None, 1e-3, steps=100, every=50, integrator="rk4",
            loops=loops, prescribed=(crank, given),
        )  # fmt: skip
        return jax.lax.map(one, masks), (fallen, driven), errors, many

    (fixed, stepped), solved, errors, many = run(q)
    for k, states in enumerate(solved):
        assert_allclose(states.q[1:], fixed.q[k], atol=1e-8)
        assert_allclose(states.v[1:], fixed.v[k], atol=1e-7)
    assert_allclose(stepped.q, fixed.q[:, 0], atol=1e-12)
    assert np.abs(errors).max() < 1e-10
    assert_allclose(many.q[1], fixed.q[1], atol=1e-12)
    assert_allclose((fixed.q[1] - q)[:, crank][:, 0], [0.05**2, 0.1**2], atol=1e-12)
    assert np.abs(fixed.q[1] - fixed.q[0]).max() > 1e-2


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
def test_one_arm_is_driven_and_the_other_follows_with_the_object():
    """All joints of the first arm as prescribed, then let go: what it holds goes along, contacts stay closed."""
    system, q, pose = cc.mechanisms.two_arm_grasp((cc.Rigid(), cc.Point()))
    v, drive = (jnp.zeros(7), jnp.zeros(7)), (jnp.linspace(-1.0, 1.0, 7), jnp.zeros(7))
    dt, steps = 2e-3, 60

    def prescribed(t, motion):
        return ([jnp.full(7, t < 0.1 - dt / 2), None], drive)

    @jax.jit
    def run(q):
        motion = soa.simulate.grasp_rollout(system, q, v, pose, None, dt, steps=steps, prescribed=prescribed)

        def look(motion):
            state = cc.grasp_state(
                system, motion.q, motion.v, motion.object_pose, object_velocity=motion.object_velocity
            )
            tip = soa.frame_pose(system.arms[0].robot, motion.q[0], system.arms[0].frame)[0]
            return state.position_error, state.velocity_error, motion.object_pose[0].T @ tip

        return motion, jax.vmap(look)(motion)

    motion, (gap, slip, turn) = run(q)
    t = dt * np.arange(1, 51)[:, None]
    assert_allclose(motion.q[0][:50], q[0] + drive[0] * t**2 / 2, atol=1e-12)
    assert_allclose(motion.v[0][:50], drive[0] * t, atol=1e-12)
    assert np.abs(np.diff(motion.v[0][50:], axis=0)[0] / dt - drive[0]).max() > 1  # let go, it falls
    # One Newton step a time step leaves the square of Runge-Kutta's error.
    assert np.abs(gap).max() < 1e-12 and np.abs(slip).max() < 1e-11
    assert_allclose(turn, np.broadcast_to(turn[0], turn.shape), atol=1e-10)  # rigidly held
    assert np.linalg.norm(motion.object_pose[1][49] - pose[1]) > 1e-3


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


def box_in_halves(hinged):
    """On a free joint: half a box with a frame at its end, and the other half, turning on it or fixed to it."""
    b = soa.Builder("box in halves")
    half = {"mass": 1.0, "inertia": np.diag([0.01, 0.015, 0.015])}
    b.link("left", joint="free", com=(-0.1, 0, 0), **half)
    b.link("right", joint="revolute" if hinged else "fixed", parent="left", axis=(0, 1, 0), com=(0.1, 0, 0), **half)
    for side, x in (("left", -0.2), ("right", 0.2)):
        b.frame(f"{side}_end", link=side, position=(x, 0, 0))
    return b.build()


@pytest.mark.slow
def test_two_hands_of_one_robot_hold_an_articulated_object():
    """A rigid box as the grasp of two robots has it; one that folds at a hinge is carried, its contacts closed."""
    body = cc.RigidBody(2.0, (0, 0, 0), np.diag([0.02, 0.05, 0.05]))
    system, q, pose = cc.mechanisms.two_arm_grasp((cc.Point(), cc.Point()))
    system = cc.GraspSystem(system.arms, body)
    first, second = (arm.robot for arm in system.arms)
    R = first.base_rotation.T
    world = R, -R @ first.base_position  # seen from the first robot's base; a robot that is attached keeps its own
    base, names = f"a/{first.frame_names[0]}", ["a/", "b/", "box/"]
    loops = (cc.ball("box/left_end", "a/tip"), cc.ball("box/right_end", "b/tip"))
    trees = [
        soa.merge([first, second, box_in_halves(hinged)], [(base, *world)] * 2, prefixes=names)
        for hinged in (False, True)
    ]
    rng = np.random.default_rng(0)
    tau = tuple(jnp.asarray(rng.normal(size=7)) for _ in range(2))
    torque = [jnp.concatenate([*tau, jnp.zeros(tree.nv - 14)]) for tree in trees]
    start = jnp.concatenate([*q, jnp.array([1.0, 0, 0, 0]), pose[1]])
    wanted = [jnp.asarray(rng.normal(size=tree.nv)) for tree in trees]

    @jax.jit
    def rigid(q_tree, q):
        v = cc.project_velocity(trees[0], loops, q_tree, wanted[0])
        one = cc.loop_forward_dynamics(trees[0], loops, q_tree, v, torque[0])
        arms = (v[:7], v[7:14])
        return one.a, cc.grasp_forward_dynamics(system, q, arms, tau, pose, object_velocity=v[14:])

    one, two = rigid(start, q)
    assert_close(one[:14], jnp.concatenate(two.a), 1e-10, "arms")

    @jax.jit
    def carried(q):
        tree = trees[1]
        v = cc.project_velocity(tree, loops, q, 0.3 * wanted[1])
        motion = soa.rollout(
            tree, q, v, jnp.broadcast_to(torque[1], (100, tree.nv)), 2e-3, integrator="rk4", loops=loops
        )

        def look(x, rates):
            work = jnp.sum(torque[1][:14] * (x[:14] - q[:14]))
            return total_energy(tree, x, rates) - work, cc.loop_errors(tree, loops, x)

        return motion, jax.vmap(look)(*motion)

    motion, (energy, gaps) = carried(jnp.append(start, 0.0))
    assert np.abs(gaps).max() < 1e-11
    assert np.ptp(energy) < 1e-6  # of some 10 J: the error of Runge-Kutta
    assert np.abs(motion.q[-1, -1]) > 0.05  # it folds
