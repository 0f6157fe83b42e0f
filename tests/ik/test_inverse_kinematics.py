"""Inverse kinematics: targets met within limits, derivatives by finite differences, the step against SciPy."""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from helpers.example_robots import EXAMPLE_ROBOTS
from helpers.mimicking import A, B, gripper

import jaxsoa as soa
from jaxsoa import closed_chain as cc, eager
from jaxsoa.ik import Direction, Position


def arm() -> soa.Multibody:
    """Three joints in a plane, half a metre each, with limits; what they reach is known."""
    builder = soa.Builder("arm")
    parent = None
    for name in ("upper", "lower", "hand"):
        x = (0.5, 0, 0) if parent else (0, 0, 0)
        builder.link(
            name, joint="revolute", parent=parent, axis=(0, 0, 1), position=x, mass=1.0, com=(0.25, 0, 0),
            inertia=np.eye(3) * 0.01, lower=-2.5, upper=2.5, velocity=2.0,
        )  # fmt: skip
        parent = name
    return builder.frame("tip", link="hand", position=(0.5, 0, 0)).build()


def test_random_poses_of_an_arm_are_found_within_its_limits():
    robot = soa.models.puma560()
    frame = robot.frame_names[-1]

    @jax.jit
    def solve(keys):
        def one(key):
            R, p = soa.frame_pose(robot, robot.random(key), frame)
            found = soa.inverse_kinematics(robot, robot.neutral(), frame, (R, p))
            again_R, again_p = soa.frame_pose(robot, found.q, frame)
            return found, jnp.max(jnp.abs(again_R - R)), jnp.max(jnp.abs(again_p - p))

        return jax.vmap(one)(keys)

    found, turn, shift = solve(jax.random.split(jax.random.key(0), 40))
    good = np.asarray(found.success)
    assert good.mean() >= 0.95
    assert np.asarray(turn)[good].max() < 2e-6 and np.asarray(shift)[good].max() < 2e-6
    assert (found.q >= robot.limits.lower).all() and (found.q <= robot.limits.upper).all()
    assert np.isfinite(found.residual).all() and (np.asarray(found.residual)[~good] > 1e-6).all()


def test_the_solution_is_that_of_pinocchios_closed_loop_inverse_kinematics():
    """Its example's iteration q <- q - dt J^-1 log(T^-1 T_goal), for a six-joint arm, which has one solution nearby."""
    pin = pytest.importorskip("pinocchio")
    if "ur5_robot.urdf" not in EXAMPLE_ROBOTS:
        pytest.skip("example-robot-data is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", soa.ModelWarning)
        robot = soa.load_urdf(EXAMPLE_ROBOTS["ur5_robot.urdf"], validate="off")
    model = pin.buildModelFromUrdf(str(EXAMPLE_ROBOTS["ur5_robot.urdf"]))
    data, frame = model.createData(), model.getFrameId("tool0")
    q0 = np.array([0.3, -1.2, 1.4, -0.6, 0.5, 0.2])
    goals = q0 + np.random.default_rng(0).uniform(-0.3, 0.3, (3, 6))
    places, solutions = [], []
    for goal in goals:
        pin.framesForwardKinematics(model, data, goal)
        target = data.oMf[frame].copy()
        places.append((target.rotation.copy(), target.translation.copy()))
        q = q0.copy()
        for _ in range(60):
            pin.framesForwardKinematics(model, data, q)
            error = pin.log(data.oMf[frame].actInv(target)).vector
            J = -pin.Jlog6(target.actInv(data.oMf[frame])) @ pin.computeFrameJacobian(model, data, q, frame)
            q = pin.integrate(model, q, -0.7 * np.linalg.solve(J, error))
        assert np.linalg.norm(error) < 1e-12
        solutions.append(q)
    R, p = (np.stack(x) for x in zip(*places, strict=True))
    solve = jax.jit(jax.vmap(lambda R, p: soa.inverse_kinematics(robot, q0, "tool0", (R, p), seeds=1)))
    found = solve(R, p)
    assert found.success.all()
    np.testing.assert_allclose(found.q, solutions, atol=1e-8)  # where ours stops: 1e-9 m and rad, over the arm's gain


def test_calls_outside_of_jit_are_one_program():
    robot = arm()
    q0 = jnp.array([0.1, 0.4, 0.3])
    twist = jnp.array([0, 0, 0.1, 0.2, 0.1, 0])
    before, programs = len(eager._programs.found), set()
    for x in (0.6, 0.8):
        found = soa.inverse_kinematics(robot, q0, ["tip"], [Position((x, 0.7, 0.0))], seeds=1)
        soa.differential_inverse_kinematics(robot, q0, ["tip"], [x * twist], 0.1)
        assert bool(found.success)
        programs.add(len(eager._programs.found))
    assert programs == {before + 2}
    with pytest.raises(ValueError, match="must be finite"):
        soa.inverse_kinematics(robot, q0, "tip", jnp.array([0.1, jnp.nan, 0.0]))


def test_targets_of_every_kind_and_targets_out_of_reach():
    robot = arm()
    q0 = jnp.array([0.1, 0.4, 0.3])

    @jax.jit
    def solve(point):
        aim = [Position(point), Direction((1, 0, 0), (0, 2, 0))]
        both = soa.inverse_kinematics(robot, q0, ["tip", "hand"], aim, seeds=6)
        far = soa.inverse_kinematics(robot, q0, "tip", 3 * point, seeds=1)
        return both, far

    both, far = solve(jnp.array([0.6, 0.7, 0.0]))
    assert bool(both.success) and both.residual < 1e-6
    np.testing.assert_allclose(jnp.sum(both.q), np.pi / 2, atol=1e-6)
    # 1.5 m of arm towards a point at 2.766 m: the rest is missing.
    assert not bool(far.success)
    np.testing.assert_allclose(far.residual, 3 * np.hypot(0.6, 0.7) - 1.5, rtol=1e-6)
    np.testing.assert_allclose(far.q[1:], 0, atol=1e-2)


@pytest.mark.slow
def test_loops_and_the_centre_of_mass():
    robot = arm()
    q0 = jnp.array([0.1, 0.4, 0.3])
    pin = cc.ball("base", "lower", point_a=(0.3, 0.4, 0.0))  # holds the elbow

    @jax.jit
    def solve(center):
        found = soa.inverse_kinematics(robot, q0, [], [], center_of_mass=center, loops=[pin], seeds=6)
        return found, soa.center_of_mass(robot, found.q), soa.frame_pose(robot, found.q, "lower")[1]

    wanted = soa.center_of_mass(robot, jnp.array([np.arctan2(4, 3), -0.8, -0.5]))
    found, center, elbow = solve(wanted)
    assert bool(found.success)
    np.testing.assert_allclose(center, wanted, atol=1e-6)
    np.testing.assert_allclose(elbow, [0.3, 0.4, 0], atol=1e-6)


def test_derivatives_are_those_of_the_solution():
    robot = arm()
    q0, point = jnp.array([0.3, 0.6, 0.4]), jnp.array([0.7, 0.6, 0.0])

    def solve(point, length):
        model = robot.replace(frame_position=robot.frame_position.at[-1, 0].set(length))
        aim = [Position(point), Direction((1, 0, 0), (1, 2, 0))]
        return soa.inverse_kinematics(model, q0, ["tip", "tip"], aim, seeds=1).q

    value = jax.jit(solve)
    J_point, J_length = jax.jit(jax.jacfwd(solve, (0, 1)))(point, 0.5)
    h = 1e-5
    for k in range(2):
        e = h * jnp.eye(3)[k]
        difference = (value(point + e, 0.5) - value(point - e, 0.5)) / (2 * h)
        np.testing.assert_allclose(J_point[:, k], difference, atol=1e-8)  # of central differences with this step
    difference = (value(point, 0.5 + h) - value(point, 0.5 - h)) / (2 * h)
    np.testing.assert_allclose(J_length, difference, atol=1e-8)
    assert float(jnp.abs(J_length).max()) > 0.1


@pytest.mark.slow
def test_derivatives_of_a_compromise_with_a_rest_posture():
    robot = arm()
    q0, point, rest = jnp.array([0.3, 0.6, 0.4]), jnp.array([0.7, 0.6, 0.0]), jnp.array([0.1, 0.2, 0.3])

    def solve(point):
        return soa.inverse_kinematics(robot, q0, "tip", point, rest=rest, rest_weight=0.01, seeds=1).q

    value, h = jax.jit(solve), 1e-3
    J = jax.jit(jax.jacfwd(solve))(point)
    for k in range(2):
        e = h * jnp.eye(3)[k]
        difference = (value(point + e) - value(point - e)) / (2 * h)
        # A minimum is known to the square root of rounding, 1e-8, over h; and h squared.
        np.testing.assert_allclose(J[:, k], difference, atol=3e-5)
    reverse = jax.jit(jax.grad(lambda point: jnp.sum(solve(point) ** 2)))(point)
    np.testing.assert_allclose(reverse, 2 * value(point) @ J, atol=1e-9)


def test_one_step_equals_scipys_bounded_least_squares():
    robot = arm()
    q, dt = jnp.array([0.3, 2.45, 0.4]), 0.1
    twist = jnp.array([0, 0, 3.0, 0.5, 1.0, 0])
    v = jax.jit(lambda q: soa.differential_inverse_kinematics(robot, q, "tip", twist, dt, damping=1e-4))(q)
    J = np.asarray(jax.jit(lambda q: soa.jacobian(robot, q, "tip"))(q))
    rows = np.concatenate([J, 1e-2 * np.eye(3)])
    high = np.minimum(2.0, (2.5 - np.asarray(q)) / dt)
    low = np.maximum(-2.0, (-2.5 - np.asarray(q)) / dt)
    expected = scipy.optimize.lsq_linear(rows, np.r_[twist, np.zeros(3)], (low, high), tol=1e-14).x
    np.testing.assert_allclose(v, expected, atol=1e-8)
    assert (np.asarray(v) == high).any()  # the limit matters here
    measure = np.sqrt(np.linalg.det((J @ J.T)[3:5, 3:5]))
    planar = soa.manipulability(robot, q, "tip", rows="linear")
    assert float(planar) == 0 and measure > 0.1  # nothing moves out of the plane
    puma = soa.models.puma560()
    q = jnp.linspace(0.2, 1.0, 6)
    J = np.asarray(soa.jacobian(puma, q, puma.frame_names[-1]))
    np.testing.assert_allclose(soa.manipulability(puma, q, puma.frame_names[-1]), abs(np.linalg.det(J)), rtol=1e-9)


def test_mimics_follow_unless_they_are_free():
    robot = gripper()
    point = soa.frame_pose(robot, A @ np.array([0.5, -0.8]) + B, "swing")[1]

    @jax.jit
    def both(point):
        q0 = jnp.asarray(A @ np.array([0.2, 0.1]) + B)
        coupled, free = (
            soa.inverse_kinematics(robot, q0, "swing", point, mimics=mimics, seeds=1) for mimics in ("coupled", "free")
        )
        return coupled, free, soa.frame_pose(robot, coupled.q, "swing")[1]

    coupled, free, reached = both(point)
    assert bool(coupled.success) and bool(free.success)
    np.testing.assert_allclose(reached, point, atol=2e-6)
    np.testing.assert_allclose(coupled.q, A @ coupled.q[np.array([0, 3])] + B, atol=1e-14)
    assert np.abs(free.q - (A @ free.q[np.array([0, 3])] + B)).max() > 1e-3


@pytest.mark.slow
def test_fingers_that_mimic_follow():
    if "panda.urdf" not in EXAMPLE_ROBOTS:
        pytest.skip("example-robot-data is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", soa.ModelWarning)
        robot = soa.load_urdf(EXAMPLE_ROBOTS["panda.urdf"], validate="off")
    q0 = robot.q_from({"panda_joint4": -1.5, "panda_joint6": 1.5})
    goal = robot.q_from({"panda_joint1": 0.4, "panda_joint4": -2, "panda_joint6": 1, "panda_finger_joint1": 0.03})
    target = soa.frame_pose(robot, goal, "panda_rightfinger")
    found = jax.jit(lambda: soa.inverse_kinematics(robot, q0, "panda_rightfinger", target, seeds=8))()
    assert bool(found.success)
    assert float(found.q[-1]) == float(found.q[-2]) and 0 <= float(found.q[-1]) <= 0.04


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((["tip"], []), "1 frames need 1 targets"),
        (("tap", jnp.zeros(3)), "no frame named 'tap'"),
        (("tip", jnp.zeros(4)), "Batch with jax.vmap"),
        (("tip", (jnp.eye(4), jnp.zeros(3))), "rotation has shape"),
        (([], []), "needs a frame"),
        (("tip", (2 * jnp.eye(3), jnp.zeros(3))), "no rotation matrix"),
        (("tip", jnp.array([0.1, jnp.nan, 0.0])), "position of the target of frame 'tip' must be finite"),
        (("tip", Direction((0, 0, 0), (1, 0, 0))), "axis of the target of frame 'tip' must not be zero"),
    ],
)
def test_what_is_not_a_problem_is_refused(arguments, words):
    with pytest.raises((ValueError, KeyError), match=words):
        soa.inverse_kinematics(arm(), jnp.zeros(3), *arguments)
