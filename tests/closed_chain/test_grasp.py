"""Grasps: all methods against a dense NumPy solution, the limits they must meet, derivatives, batches, bad inputs."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from closed_chain_cases import Case, arm, dense_solution, frame_pose, jacobian, slope_at_zero
from numpy.testing import assert_allclose

import jaxsoa as soa
from jaxsoa import closed_chain as cc
from jaxsoa.closed_chain.grasp_dynamics import complete
from jaxsoa.closed_chain.grasp_methods import METHODS
from jaxsoa.closed_chain.grasp_problem import grasp_problem


@cache
def solver(method: str, open_chain: str | None = None):
    return jax.jit(partial(cc.grasp_forward_dynamics, method=method, open_chain=open_chain))


def assert_equals_dense(s: cc.GraspAcceleration, reference, tolerance: float = 1e-9):
    a, forces, of_object, rates = reference

    def close(x, y):
        assert_allclose(x, y, rtol=tolerance, atol=tolerance * np.abs(y).max())

    close(np.concatenate(s.a), np.concatenate(a))
    close(s.contact_forces, forces)
    close(s.object_acceleration, of_object)
    if sum(map(len, rates)):
        close(np.concatenate(s.contact_accelerations), np.concatenate(rates))


@cache
def three_arms() -> tuple[Case, tuple]:
    case = Case(1, (7, 7, 7), ("rigid", "soft", "slides"))
    return case, dense_solution(case)


def by_all_methods(case: Case, methods) -> dict[str, cc.GraspAcceleration]:
    """In one program, which shares the arms' kinematics."""

    @jax.jit
    def solutions(q, v, tau, rates):
        problem = grasp_problem(case.system, q, v, tau, case.pose, contact_rates=rates)
        return {method: complete(problem, *METHODS[method](problem)) for method in methods}

    return solutions(case.q, case.v, case.tau, case.rates)


def test_methods_equal_the_dense_system():
    case, reference = three_arms()
    for s in by_all_methods(case, OF_THREE_ARMS).values():
        assert_equals_dense(s, reference)
        assert int(s.rank) == 18 - 4


OF_THREE_ARMS = ("auto", "general", "rank6")  # in the default run; the others in the slow one
SYSTEMS = {  # one, three and six arms by all methods; arms of one length compile together
    "3 arms": ((7, 7, 7), ("rigid", "soft", "slides"), [m for m in METHODS if m not in OF_THREE_ARMS]),
    "1 arm": ((8,), ("hinge",), METHODS),
    "2 arms": ((10, 10), ("point", "soft"), ("analytic", "general", "rccfd2", "rank6")),
    "4 arms": ((6, 6, 6, 6), ("hinge", "turns", "rigid", "slides"), ("dense", "rccfd1", "rccfd3", "auto")),
    "5 arms": ((9, 9, 9, 9, 9), ("soft", "soft", "point", "hinge", "rigid"), ("dense", "rccfd2", "rank6")),
    "6 arms": ((6, 6, 6, 10, 10, 10), ("rigid", "hinge", "soft", "point", "turns", "slides"), METHODS),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SYSTEMS)
def test_any_number_of_arms_and_kinds_of_contact(name):
    sizes, kinds, methods = SYSTEMS[name]
    case = Case(11, sizes, kinds)
    reference = dense_solution(case)
    for s in by_all_methods(case, methods).values():
        assert_equals_dense(s, reference)
        assert int(s.rank) == 6 * len(sizes) - sum(map(len, case.rates))


@pytest.mark.slow
def test_prescribed_joints_of_arms_that_hold_an_object():
    """Against the dense system with those rows replaced; the torques found do the same; contradictions are told."""
    case = Case(1, (7, 7, 7), ("rigid", "soft", "slides"))
    rng = np.random.default_rng(5)
    masks = [jnp.asarray([True, False, True] + 4 * [False]), None, jnp.asarray(6 * [False] + [True])]
    given = [jnp.asarray(rng.normal(size=7)) for _ in range(3)]
    flat = np.concatenate([np.zeros(7, bool) if m is None else np.asarray(m) for m in masks])
    reference = dense_solution(case, flat, np.concatenate(given))
    everything = [jnp.ones(7, bool)] * 3

    @jax.jit
    def solve(q, v, tau, rates):
        def by(method, tau, masks):
            return cc.grasp_forward_dynamics(
                case.system, q, v, tau, case.pose, contact_rates=rates, a=given, prescribed=masks, method=method
            )

        auto, rank6 = (by(method, tau, masks) for method in ("auto", "rank6"))
        return auto, rank6, by("auto", auto.tau, None), by("auto", tau, everything)

    auto, rank6, back, every = solve(case.q, case.v, case.tau, case.rates)
    for s in (auto, rank6, back):
        assert_equals_dense(s, reference)
        assert float(s.residual) < 1e-9
    assert_allclose(np.concatenate(auto.a)[flat], np.concatenate(given)[flat], rtol=1e-14)
    assert_allclose(auto.tau[1], case.tau[1])
    assert np.isfinite(np.concatenate(every.a)).all() and float(every.residual) > 0.1
    with pytest.raises(ValueError, match="auto and rank6 only, not by 'dense'"):
        cc.grasp_forward_dynamics(*case.arguments, prescribed=masks, method="dense")
    with pytest.raises(ValueError, match="prescribed must be bool of shape"):
        cc.grasp_forward_dynamics(*case.arguments, prescribed=[jnp.ones(6, bool), None, None])


@pytest.mark.slow
def test_the_general_algorithm_runs_on_any_open_chain_solver():
    case = Case(3, (6,), ("soft",))
    reference = dense_solution(case)
    solve = partial(cc.grasp_forward_dynamics, case.system, method="general")

    @jax.jit
    def by_all_solvers(q, v, tau, rates):
        return [
            solve(q, v, tau, case.pose, contact_rates=rates, open_chain=open_chain)
            for open_chain in ("fd1", "fd2", "fd3", "fd4", "kalman", "crb", "parallel")
        ]

    for s in by_all_solvers(case.q, case.v, case.tau, case.rates):
        assert_equals_dense(s, reference)


def test_velocities_follow_from_joint_data():
    case, _ = three_arms()
    state = jax.jit(cc.grasp_state)
    for options in ({"contact_rates": case.rates}, {"object_velocity": jnp.asarray(case.velocity)}, {}):
        s = state(case.system, case.q, case.v, case.pose, **options)
        assert_allclose(s.object_velocity, case.velocity, rtol=1e-10, atol=1e-10)
        assert_allclose(np.concatenate(s.contact_rates), np.concatenate(case.rates), rtol=1e-10, atol=1e-10)
        assert_allclose(s.position_error, 0, atol=1e-12)
        assert_allclose(s.velocity_error, 0, atol=1e-12)


def test_inconsistent_velocities_are_reported():
    case, _ = three_arms()
    off = [case.v[0].at[2].add(0.1), *case.v[1:]]
    s = jax.jit(cc.grasp_state)(case.system, case.q, off, case.pose)
    assert np.abs(s.velocity_error).max() > 1e-3


@pytest.mark.slow
def test_positions_are_checked_and_can_be_closed():
    case, _ = three_arms()
    assert_allclose(cc.check_grasp(case.system, case.q, case.pose), 0, atol=1e-12)
    away = [q + 0.05 for q in case.q]
    with pytest.raises(ValueError, match=r"not closed.*arm 0.*arm 1.*close_grasp"):
        cc.check_grasp(case.system, away, case.pose)
    # Orientations as they were: contacts hold the ones they find.
    poses = [frame_pose(a.robot, q, a.frame) for a, q in zip(case.system.arms, case.q, strict=True)]
    turns = [case.R.T @ np.asarray(R) for R, _ in poses]
    closed = jax.jit(cc.close_grasp)(case.system, away, case.pose, rotations=turns)
    assert_allclose(closed.error, 0, atol=1e-9)
    # The third contact slides, so only the first two have to be where they were.
    first_two = cc.GraspSystem(case.system.arms[:2], case.system.body)
    cc.check_grasp(first_two, closed.q[:2], case.pose)
    R = np.asarray(frame_pose(case.system.arms[0].robot, closed.q[0], case.system.arms[0].frame)[0])
    assert_allclose(case.R.T @ R, turns[0], atol=1e-8)


# --- limits -------------------------------------------------------------------------------------------------------


def test_with_all_axes_free_arms_and_object_are_free():
    case, _ = three_arms()
    arms = [cc.Arm(a.robot, a.frame, a.point, cc.Custom(np.eye(6))) for a in case.system.arms]
    system = cc.GraspSystem(arms, case.system.body)
    s = solver("auto")(system, case.q, case.v, case.tau, case.pose, object_velocity=jnp.asarray(case.velocity))
    forward = jax.jit(soa.forward_dynamics)
    for a, got, q, v, tau in zip(arms, s.a, case.q, case.v, case.tau, strict=True):
        assert_allclose(got, forward(a.robot, q, v, tau), rtol=1e-10, atol=1e-10)
    assert_allclose(s.contact_forces, 0, atol=1e-12)
    assert int(s.rank) == 0
    # Euler's equations of a free rigid body, at its centre of mass.
    w, I = case.velocity[:3], case.R @ np.asarray(system.body.inertia) @ case.R.T
    c = case.R @ np.asarray(system.body.com)
    turn = np.linalg.solve(I, -np.cross(w, I @ w))
    assert_allclose(s.object_acceleration[:3], turn, rtol=1e-10, atol=1e-10)
    at_origin = np.asarray(system.gravity) - np.cross(turn, c) - np.cross(w, np.cross(w, c))
    assert_allclose(s.object_acceleration[3:], at_origin, rtol=1e-10, atol=1e-10)


def test_a_very_heavy_object_holds_the_tips_still():
    case = Case(1, (7, 7), ("rigid", "rigid"))
    heavy = cc.RigidBody(1e12, (0, 0, 0), 1e12 * np.eye(3))
    system = cc.GraspSystem(case.system.arms, heavy, gravity=(0, 0, 0))
    still = [jnp.zeros_like(v) for v in case.v]
    s = solver("auto")(system, case.q, still, case.tau, case.pose)
    assert_allclose(s.object_acceleration, 0, atol=1e-9)
    for a, q, acceleration in zip(system.arms, case.q, s.a, strict=True):
        assert_allclose(jacobian(a.robot, q, a.frame) @ acceleration, 0, atol=1e-8)


def test_one_rigid_grasp_is_the_open_chain_with_the_object_welded_on():
    case = Case(1, (7,), ("rigid",))
    (held,) = case.system.arms
    robot, body = held.robot, case.system.body
    # The object's frame seen from the last link, which is the holding frame.
    R, p = (np.asarray(x) for x in frame_pose(robot, case.q[0], held.frame))
    turn, place = R.T @ case.R, R.T @ (case.p - p)
    m1, m2 = float(robot.mass[-1]), float(body.mass)
    c1, c2 = np.asarray(robot.com[-1]), place + turn @ np.asarray(body.com)
    c = (m1 * c1 + m2 * c2) / (m1 + m2)

    def about(m, I, d):
        return I + m * (d @ d * np.eye(3) - np.outer(d, d))

    inertia = about(m1, np.asarray(robot.inertia[-1]), c1 - c)
    inertia = inertia + about(m2, turn @ np.asarray(body.inertia) @ turn.T, c2 - c)
    welded = robot.replace(
        mass=robot.mass.at[-1].set(m1 + m2), com=robot.com.at[-1].set(c), inertia=robot.inertia.at[-1].set(inertia)
    )
    expected = jax.jit(soa.forward_dynamics)(welded, case.q[0], case.v[0], case.tau[0])
    for method in ("auto", "rank6"):
        s = solver(method)(*case.arguments)
        assert_allclose(s.a[0], expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())


@pytest.mark.parametrize("method", ["auto", pytest.param("rank6", marks=pytest.mark.slow)])
def test_arms_at_a_singularity_give_a_finite_answer_with_its_rank(method):
    # Straight planar arms in space: most directions of each tip are out of reach.
    robot = soa.models.planar_arm(3)
    other = robot.with_base(np.eye(3), np.array([3.0, 0, 0]))
    flip = np.diag([-1.0, -1.0, 1.0])
    other = other.with_base(flip, np.array([3.0, 0, 0]))
    body = cc.RigidBody(1.0, (0, 0, 0), 0.1 * np.eye(3))
    system = cc.GraspSystem([cc.Arm(robot, "tip"), cc.Arm(other, "tip")], body)
    q, still = [jnp.zeros(3)] * 2, [jnp.zeros(3)] * 2
    pose = (jnp.eye(3), jnp.array([1.5, 0, 0]))
    tau = [jnp.array([0.0, 1.0, 0.0]), jnp.array([0.5, 0.0, -0.3])]
    s = solver(method)(system, q, still, tau, pose)
    # Together the arms can move the object in the plane only across their line and about z: 2 rates of 6 unknown
    # forces per arm; each tip has 2 independent directions, the object adds its own 6.
    assert int(s.rank) == 8
    for leaf in jax.tree.leaves(s):
        assert np.isfinite(leaf).all()
    tips = [jacobian(a.robot, x, a.frame) @ y for a, x, y in zip(system.arms, q, s.a, strict=True)]
    assert_allclose(tips[0], s.object_acceleration, atol=1e-9)
    assert_allclose(tips[1], s.object_acceleration, atol=1e-9)
    assert_allclose(jnp.sum(s.contact_forces, axis=0)[5], 9.81, rtol=1e-9)  # the arms carry it

    def total(tau):
        s = cc.grasp_forward_dynamics(system, q, still, tau, pose, method=method)
        return jnp.sum(s.object_acceleration) + jnp.sum(s.contact_forces**2)

    assert all(np.isfinite(g).all() for g in jax.jit(jax.grad(total))(tau))


def test_arms_of_few_joints_with_contact_freedom():
    """Arms of two and three joints, at rest: Omega is singular, contact forces are determined in part only."""
    case = Case(4, (2, 3), ("point", "soft"))
    system, q, tau = case.system, case.q, case.tau
    still, rates = [jnp.zeros_like(v) for v in case.v], [jnp.zeros_like(w) for w in case.rates]
    methods = ("analytic", "dense")

    @jax.jit
    def solutions(q, v, tau, rates):
        problem = grasp_problem(system, q, v, tau, case.pose, contact_rates=rates)
        masses = [soa.mass_matrix(arm.robot, x) for arm, x in zip(system.arms, q, strict=True)]
        gap = problem.state.held, problem.A, problem.compliance, problem.jacobians
        return {method: complete(problem, *METHODS[method](problem)) for method in methods}, masses, gap

    found, masses, (N, A, compliance, jacobians) = solutions(q, still, tau, rates)
    responses = [np.asarray(J) @ np.linalg.solve(M, np.asarray(J).T) for J, M in zip(jacobians, masses, strict=True)]
    zero, A = np.zeros((6, 6)), np.concatenate(A)
    held = np.block([[N[0], zero], [zero, N[1]]])
    omega = np.block([[responses[0], zero], [zero, responses[1]]]) + A @ compliance @ A.T
    rank = np.linalg.matrix_rank(held @ omega @ held, tol=1e-9)
    assert np.linalg.matrix_rank(omega, tol=1e-9) < 12
    for name, s in found.items():
        assert int(s.rank) == rank, name
        for x, y in zip(jax.tree.leaves(s), jax.tree.leaves(found["dense"]), strict=True):
            assert_allclose(x, y, rtol=1e-9, atol=1e-9 * (1 + np.abs(y).max()), err_msg=name)
        tips = [J @ a for J, a in zip(jacobians, s.a, strict=True)]
        apart = held @ (np.concatenate(tips) - A @ s.object_acceleration)
        assert_allclose(apart, 0, atol=1e-9 * np.abs(tips).max(), err_msg=name)  # what is held moves together


@pytest.mark.slow
def test_short_arms_by_every_method():
    """Three arms of three joints with a soft finger, a hinge and a point, at rest: Omega has full rank among 12 rows.

    J is not of full row rank, so no formula may ask for the inverse of an arm's own compliance.
    """
    case = Case(1, (3, 3, 3), ("soft", "hinge", "point"))
    case.v, case.velocity = [jnp.zeros_like(v) for v in case.v], np.zeros(6)
    case.rates = [jnp.zeros_like(w) for w in case.rates]
    reference = dense_solution(case)
    for name, s in by_all_methods(case, METHODS).items():
        assert int(s.rank) == 12, name
        assert_equals_dense(s, reference)


# --- derivatives and batches --------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("method", ["auto", "rank6"])
def test_derivatives_equal_finite_differences(method):
    """By torques, state, object pose and every inertia, of accelerations and contact forces together."""
    case = Case(2, (7, 7), ("rigid", "soft"))

    def outputs(x):
        tau, v, dq, inertias, body = x
        arms = [
            cc.Arm(a.robot.replace(mass=mass, com=com, inertia=inertia), a.frame, a.point, a.contact)
            for a, (mass, com, inertia) in zip(case.system.arms, inertias, strict=True)
        ]
        system = cc.GraspSystem(arms, body)
        q = [a.robot.integrate(q, d) for a, q, d in zip(arms, case.q, dq, strict=True)]
        s = cc.grasp_forward_dynamics(system, q, v, tau, case.pose, method=method)
        return jnp.concatenate([*s.a, s.contact_forces.ravel(), s.object_acceleration, *s.contact_accelerations])

    zero = [jnp.zeros_like(v) for v in case.v]
    inertias = [(a.robot.mass, a.robot.com, a.robot.inertia) for a in case.system.arms]
    x = (case.tau, case.v, zero, inertias, case.system.body)
    leaves, structure = jax.tree.flatten(x)
    rng = np.random.default_rng(0)
    f = jax.jit(outputs)
    jvp = jax.jit(lambda x, t: jax.jvp(outputs, (x,), (t,))[1])
    vjp = jax.jit(lambda x, c: jax.vjp(outputs, x)[1](c)[0])
    cotangent = jnp.asarray(rng.normal(size=f(x).shape))
    back = jax.tree.leaves(vjp(x, cotangent))
    for i, leaf in enumerate(leaves):
        t = [jnp.zeros_like(other) for other in leaves]
        direction = rng.normal(size=leaf.shape)
        if leaf.shape[-2:] == (3, 3):
            direction = 0.1 * (direction + np.swapaxes(direction, -1, -2))  # stays well within what is physical
        t[i] = jnp.asarray(direction)
        tangent = jax.tree.unflatten(structure, t)
        differences = slope_at_zero(lambda h, t=tangent: f(jax.tree.map(lambda a, b: a + h * b, x, t)))
        got = np.asarray(jvp(x, tangent))
        assert_allclose(got, differences, rtol=1e-6, atol=1e-6 * np.abs(differences).max())
        assert_allclose(np.sum(np.asarray(back[i]) * direction), np.dot(cotangent, got), rtol=1e-8, atol=1e-8)


def test_a_thousand_states_at_once():
    """Different torques and speeds; a NaN stays in its own state."""
    case, _ = three_arms()
    rng = np.random.default_rng(0)
    speed = rng.normal(size=1000)
    taus = [jnp.asarray(t + rng.normal(size=(1000, len(t)))) for t in case.tau]
    rates = [speed[:, None] * w for w in case.rates]
    vs = [speed[:, None] * v for v in case.v]
    batched = jax.jit(
        jax.vmap(lambda v, tau, W: cc.grasp_forward_dynamics(case.system, case.q, v, tau, case.pose, contact_rates=W))
    )
    s = batched(vs, taus, rates)
    assert s.contact_forces.shape == (1000, 3, 6)
    for i in (0, 617):
        v, tau, W = ([x[i] for x in xs] for xs in (vs, taus, rates))
        one = solver("auto")(case.system, case.q, v, tau, case.pose, contact_rates=W)
        assert_allclose(s.contact_forces[i], one.contact_forces, rtol=1e-9, atol=1e-9)
        assert_allclose(s.a[1][i], one.a[1], rtol=1e-9, atol=1e-9)
    taus[0] = taus[0].at[3, 0].set(jnp.nan)
    spoiled = np.asarray(batched(vs, taus, rates).contact_forces)
    assert np.isnan(spoiled[3]).any()
    assert_allclose(np.delete(spoiled, 3, 0), np.delete(s.contact_forces, 3, 0), rtol=1e-12, atol=1e-12)


# --- inverse dynamics ---------------------------------------------------------------------------------------------


def test_inverse_dynamics_is_the_inverse():
    case, _ = three_arms()
    s = solver("auto")(*case.arguments, contact_rates=case.rates)
    inverse = jax.jit(cc.grasp_inverse_dynamics)
    none = jnp.zeros_like(s.contact_forces)
    t = inverse(case.system, case.q, case.v, s.a, case.pose, contact_rates=case.rates, squeeze=none)
    assert_allclose(t.residual, 0, atol=1e-9)
    # The same motion, though not the same torques: internal forces differ.
    again = solver("auto")(case.system, case.q, case.v, t.tau, case.pose, contact_rates=case.rates)
    a = np.concatenate(s.a)
    assert_allclose(np.concatenate(again.a), a, rtol=1e-8, atol=1e-8 * np.abs(a).max())
    assert_allclose(again.contact_forces, t.contact_forces, rtol=1e-7, atol=1e-7)
    assert np.linalg.norm(t.contact_forces) < np.linalg.norm(s.contact_forces)
    # The very forces of the forward solution, asked for as a wish, give the very torques back.
    same = inverse(case.system, case.q, case.v, s.a, case.pose, contact_rates=case.rates, squeeze=s.contact_forces)
    assert_allclose(np.concatenate(same.tau), np.concatenate(case.tau), rtol=1e-8, atol=1e-8)


def test_a_squeeze_presses_without_moving_the_object():
    case = Case(2, (7, 7), ("rigid", "rigid"))
    inverse = jax.jit(cc.grasp_inverse_dynamics)
    still = [jnp.zeros_like(v) for v in case.v]
    plain = inverse(case.system, case.q, case.v, still, case.pose, squeeze=0.0)
    pressed = inverse(case.system, case.q, case.v, still, case.pose, squeeze=20.0)
    extra = np.asarray(pressed.contact_forces - plain.contact_forces)
    points = [case.R @ np.asarray(a.point) for a in case.system.arms]
    line = (points[1] - points[0]) / np.linalg.norm(points[1] - points[0])
    assert_allclose(extra[0, 3:], 20 * line, atol=1e-8)
    assert_allclose(extra[1, 3:], -20 * line, atol=1e-8)
    assert_allclose(extra[:, :3], 0, atol=1e-8)


# --- bad inputs ---------------------------------------------------------------------------------------------------


def test_bad_systems_are_refused():
    robot = soa.models.planar_arm(3)
    body = cc.RigidBody(1.0, (0, 0, 0), np.eye(3))
    with pytest.raises(KeyError, match="tip"):
        cc.Arm(robot, "tipp")
    with pytest.raises(soa.ModelError, match="fixed to the base"):
        cc.Arm(robot, "base")
    with pytest.raises(soa.ModelError, match="positive, finite mass"):
        cc.RigidBody(0.0, (0, 0, 0), np.eye(3))
    with pytest.raises(soa.ModelError, match="principal moments"):
        cc.RigidBody(1.0, (0, 0, 0), np.diag([1.0, 1.0, 0.0]))
    with pytest.raises(soa.ModelError, match="linearly independent"):
        cc.Custom([[1.0, 0, 0], [2.0, 0, 0]])
    with pytest.raises(soa.ModelError, match="not zero"):
        cc.Hinge((0, 0, 0))
    with pytest.raises(soa.ModelError, match="at least one arm"):
        cc.GraspSystem([], body)
    system = cc.GraspSystem([cc.Arm(robot, "tip")], body)
    q = [jnp.zeros(3)]
    with pytest.raises(ValueError, match="one array per arm"):
        cc.grasp_forward_dynamics(system, jnp.zeros((1, 3)), q, q, (jnp.eye(3), jnp.zeros(3)))
    with pytest.raises(ValueError, match="object_pose"):
        cc.grasp_forward_dynamics(system, q, q, q, jnp.eye(4))
    with pytest.raises(ValueError, match="Unknown method"):
        cc.grasp_forward_dynamics(system, q, q, q, (jnp.eye(3), jnp.zeros(3)), method="fast")
    with pytest.raises(ValueError, match="contact_rates"):
        cc.grasp_forward_dynamics(system, q, q, q, (jnp.eye(3), jnp.zeros(3)), contact_rates=[jnp.zeros(2)])


@pytest.mark.slow
def test_arms_on_a_moving_base():
    """A floating robot (its base on a free joint) and a fixed one hold the object together."""
    floating = soa.models.random_tree(9, 5, ("revolute",), shape="chain", floating_base=True)
    case = Case(4, (10, 7), ("rigid", "point"), robots=[floating, arm(5, 7)])
    assert case.system.arms[0].robot.nq == case.system.arms[0].robot.nv + 1
    assert_equals_dense(solver("auto")(*case.arguments, contact_rates=case.rates), dense_solution(case))
