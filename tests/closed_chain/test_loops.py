"""Loops in trees: against a dense NumPy solution of the constrained equations, and what every kind of joint must do."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from closed_chain_cases import bias_force, jacobian, mass_matrix, slope_at_zero
from helpers.example_robots import EXAMPLE_ROBOTS
from numpy.testing import assert_allclose

import jaxsoa as soa
from jaxsoa import closed_chain as cc

dynamics = jax.jit(cc.loop_forward_dynamics)
loop_jacobian = jax.jit(cc.loop_jacobian)
loop_errors = jax.jit(cc.loop_errors)

KINDS = {  # with the number of directions held
    "weld": (cc.weld, (), 6),
    "hinge": (cc.hinge, ((1, 2, 0),), 5),
    "ball": (cc.ball, (), 3),
    "slider": (cc.slider, ((0, 1, 1),), 5),
    "cylinder": (cc.cylinder, ((0, 1, 1),), 4),
    "screw": (cc.screw, ((0, 1, 1), 0.1), 5),
    "planar": (cc.planar, ((1, 1, 1),), 3),
    "distance": (cc.distance, (), 1),
    "custom": (cc.Loop, ([[1, 0, 0, 0, 0, 0], [0, 1, 0, 0.1, 0, 0.2]],), 4),
}
LOOPS = {kind: make(f"{kind}_a", f"{kind}_b", *arguments) for kind, (make, arguments, _) in KINDS.items()}


@cache
def pairs() -> soa.Multibody:
    """Two free bodies for every kind of loop, which alone ties them: all kinds in one compiled program."""
    rng = np.random.default_rng(7)
    builder = soa.Builder("pairs")
    for kind in KINDS:
        for side in "ab":
            mass, com, inertia = rng.uniform(1, 2), rng.normal(scale=0.1, size=3), np.diag(rng.uniform(0.2, 0.3, 3))
            builder.link(f"{kind}_{side}", joint="free", mass=mass, com=com, inertia=inertia)
    return builder.build()


def degrees(kind: str, side: str) -> slice:
    return pairs().v_index(f"{kind}_{side}_joint")


@pytest.mark.slow
def test_every_kind_of_loop():
    """Newton's law with the reported forces, no power of those forces, and relative rates that stay zero."""
    robot, loops = pairs(), tuple(LOOPS.values())
    rng = np.random.default_rng(0)
    q = robot.random(1)
    v, tau, J = rng.normal(size=robot.nv), rng.normal(size=robot.nv), np.asarray(loop_jacobian(robot, loops, q))
    v = v - np.linalg.pinv(J) @ (J @ v)
    s = dynamics(robot, loops, q, v, tau)
    assert int(s.rank) == sum(held for *_, held in KINDS.values())
    # The force acts on b, and its opposite at the same point of a.
    poses = jax.jit(soa.forward_kinematics)(robot, q)
    of_loops = np.zeros(robot.nv)
    for f, kind in zip(np.asarray(s.forces), KINDS, strict=True):
        assert np.linalg.norm(f) > 1e-3
        a, b = (robot.link_names.index(f"{kind}_{side}") for side in "ab")
        arm = np.asarray(poses.position[b] - poses.position[a])
        at_a = np.concatenate([f[:3] + np.cross(arm, f[3:]), f[3:]])
        for side, link, force in (("a", a, -at_a), ("b", b, f)):  # a free joint's rates are in body axes
            R = np.asarray(poses.rotation[link])
            of_loops[degrees(kind, side)] = np.concatenate([R.T @ force[:3], R.T @ force[3:]])
        both = [*range(*degrees(kind, "a").indices(robot.nv)), *range(*degrees(kind, "b").indices(robot.nv))]
        assert_allclose(of_loops[both] @ v[both], 0, atol=1e-9)
    assert_allclose(jax.jit(soa.inverse_dynamics)(robot, q, v, s.a), tau + of_loops, rtol=1e-9, atol=1e-9)

    # The rates of the constraints, differentiated along the motion.
    def rate(t):
        q_t = robot.integrate(q, t * v + t * t / 2 * s.a)
        return loop_jacobian(robot, loops, q_t) @ (v + t * s.a)

    assert_allclose(slope_at_zero(rate), 0, atol=1e-7 * np.abs(s.a).max())


def test_loops_can_be_closed_and_errors_move_as_the_jacobian_says():
    robot = pairs()
    # The custom axes do not commute, so no surface of poses belongs to them and no position error can exist.
    loops = tuple(loop for kind, loop in LOOPS.items() if kind != "custom")
    rng = np.random.default_rng(1)
    guess = robot.integrate(robot.neutral(), rng.normal(scale=0.5, size=robot.nv))
    closed = jax.jit(cc.close_loops_report)(robot, loops, guess)
    assert_allclose(closed.error, 0, atol=1e-9)
    assert_allclose(loop_errors(robot, loops, closed.q), 0, atol=1e-9)
    direction = rng.normal(size=robot.nv)
    moved = slope_at_zero(lambda h: loop_errors(robot, loops, robot.integrate(closed.q, h * direction)))
    assert_allclose(moved, loop_jacobian(robot, loops, closed.q) @ direction, atol=1e-6)


@cache
def robot() -> soa.Multibody:
    return soa.models.dual_arm()


def state(loops, seed: int = 0):
    """A random configuration with a velocity that the loops allow."""
    rng = np.random.default_rng(seed)
    q = rng.uniform(-1, 1, robot().nq)
    v, J = rng.normal(size=robot().nv), np.asarray(loop_jacobian(robot(), loops, q))
    return q, v - np.linalg.pinv(J) @ (J @ v), rng.normal(size=robot().nv)


def test_several_loops_and_couplings_together():
    loops = (
        cc.ball("left_hand", "right_hand"),
        cc.Coupling("left_elbow_pitch", "right_elbow_pitch", -1.5, 0.2, (0.3,)),
        cc.distance("left_elbow_pitch_link", "torso"),
        cc.Coupling("torso_yaw", None, offset=0.1),
    )
    q, v, tau = state(loops)
    s = dynamics(robot(), loops, q, v, tau)
    assert (s.forces.shape, s.torques.shape, int(s.rank)) == ((2, 6), (2,), 6)
    left, right = robot().v_index("left_elbow_pitch").start, robot().v_index("right_elbow_pitch").start
    slope = -1.5 + 0.6 * q[right]
    assert_allclose(s.a[left], slope * s.a[right] + 0.6 * v[right] ** 2, rtol=1e-9)
    assert_allclose(s.a[robot().v_index("torso_yaw")], 0, atol=1e-10)
    # The dense KKT system in NumPy, from the Jacobian and the finite-differenced bias.
    J = np.asarray(loop_jacobian(robot(), loops, q))
    bias = slope_at_zero(lambda t: loop_jacobian(robot(), loops, q + t * v) @ v)
    M, C = np.asarray(mass_matrix(robot(), q)), np.asarray(bias_force(robot(), q, v))
    K = np.block([[M, J.T], [J, np.zeros((len(J), len(J)))]])
    x = np.linalg.lstsq(K, np.concatenate([tau - C, -bias]), rcond=1e-10)[0]
    assert_allclose(s.a, x[: robot().nv], rtol=1e-7, atol=1e-7)


def test_the_single_loop_of_the_overview():
    """Two arms cut at a point: Lambda_c of (5.11) and the same motion as a weld in one tree."""
    first, second = soa.models.chain(7), soa.models.chain(8).with_base(np.eye(3), np.array([0.3, -0.2, 0.1]))
    rng = np.random.default_rng(3)
    q = tuple(rng.uniform(-1, 1, n) for n in (7, 8))
    tau = tuple(rng.normal(size=n) for n in (7, 8))
    frames = ((first, "tip"), (second, "tip"))
    J = [np.asarray(jacobian(r, x, f)) for (r, f), x in zip(frames, q, strict=True)]
    v = [rng.normal(size=7)]
    v.append(np.linalg.pinv(J[1]) @ (J[0] @ v[0]))
    # Frame names are static, so close over the arms.
    s = jax.jit(lambda q, v, tau: cc.cut_chain_dynamics(frames, q, v, tau))(q, tuple(v), tau)
    M = [np.asarray(mass_matrix(r, x)) for (r, _), x in zip(frames, q, strict=True)]
    compliance = sum(j @ np.linalg.solve(m, j.T) for j, m in zip(J, M, strict=True))
    assert_allclose(s.effective_inertia @ compliance, np.eye(6), atol=1e-8)
    bias_acceleration = jax.jit(soa.jacobian_bias, static_argnums=3)
    tips = [j @ a + bias_acceleration(r, x, u, f) for j, a, (r, f), x, u in zip(J, s.a, frames, q, v, strict=True)]
    assert_allclose(tips[0], tips[1], atol=1e-9)
    for sign, j, m, (r, _), x, u, t, a in zip((1, -1), J, M, frames, q, v, tau, s.a, strict=True):
        assert_allclose(m @ a + bias_force(r, x, u), t + sign * j.T @ s.force, rtol=1e-9, atol=1e-9)


# --- redundant and singular ---------------------------------------------------------------------------------------


def test_a_planar_four_bar_in_space_has_redundant_constraints():
    """Five rows close the hinge, two of them independent; the force is the least one, as lstsq finds it."""
    robot, loops, guess = cc.mechanisms.four_bar()
    q = np.asarray(jax.jit(cc.close_loops)(robot, loops, guess))
    assert_allclose(loop_errors(robot, loops, q), 0, atol=1e-10)
    J = np.asarray(loop_jacobian(robot, loops, q))
    v = np.linalg.svd(J)[2][-1] * 2
    tau = np.array([0.3, -0.2, 0.5])
    s = dynamics(robot, loops, q, v, tau)
    assert int(s.rank) == 2
    M, C = np.asarray(mass_matrix(robot, q)), np.asarray(bias_force(robot, q, v))
    bias = slope_at_zero(lambda t: loop_jacobian(robot, loops, q + t * v) @ v)
    M_inv = np.linalg.inv(M)
    f = -np.linalg.pinv(J @ M_inv @ J.T, rcond=1e-10) @ (J @ M_inv @ (tau - C) + bias)
    assert_allclose(s.a, M_inv @ (tau - C + J.T @ f), rtol=1e-8)
    assert_allclose(np.linalg.norm(s.forces), np.linalg.norm(f), rtol=1e-8)  # only turned into world axes
    # In the plane, so nothing presses sideways.
    assert_allclose(s.forces[0, [0, 2, 4]], 0, atol=1e-9)


@pytest.mark.slow
def test_loops_that_hold_nothing_that_could_move_change_nothing():
    """Across the plane of a planar linkage, turned in space; on a floating body whose arms are all prescribed."""
    rng = np.random.default_rng(0)
    robot, _, _ = cc.mechanisms.five_bar()
    turn = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    robot = robot.with_base(turn * np.sign(np.linalg.det(turn)), np.zeros(3))
    across = (cc.Loop("left_tip", "right_tip", np.delete(np.eye(6), 4, 0)),)
    rod = (cc.distance("left1", "left2"),)  # along the first arm
    v, tau, d = jnp.asarray(rng.normal(size=(3, 4)))

    body = soa.models.random_tree(3, 6, ("revolute",), floating_base=True)
    tips = [name for name in body.link_names if body.link_names.index(name) not in body.topology.parents]
    held = (cc.weld(tips[0], tips[-1]),)
    arms = jnp.arange(body.nv) >= 6
    nv = body.nv
    v_body, tau_body = jnp.asarray(rng.normal(size=(2, nv)))
    q_body = body.integrate(body.neutral(), 0.5 * jnp.asarray(rng.normal(size=nv)))

    @jax.jit
    def everything(q):
        def with_loops(q, loops):
            return cc.loop_forward_dynamics(robot, loops, q, v, tau)

        def moved(function):
            return jax.jvp(function, (q,), (d,))

        free = moved(lambda q: soa.forward_dynamics(robot, q, v, tau))
        looped = [moved(lambda q, loops=loops: with_loops(q, loops).a) for loops in (across, rod)]
        ranks = [with_loops(q, loops).rank for loops in (across, rod)]
        driven = soa.hybrid_dynamics(body, q_body, v_body, v_body, tau_body, arms)
        s = cc.loop_forward_dynamics(body, held, q_body, v_body, tau_body, a=v_body, prescribed=arms)
        return free, looped, ranks, driven, s

    free, looped, ranks, driven, s = everything(jnp.asarray(rng.normal(size=4)))
    for one in looped:
        for x, y in zip(one, free, strict=True):
            assert_allclose(x, y, rtol=1e-12, atol=1e-10)
    assert [int(x) for x in ranks] == [0, 0] and int(s.rank) == 0
    assert_allclose(s.a, driven[0], rtol=1e-12, atol=1e-12)
    assert_allclose(s.tau, driven[1], rtol=1e-10, atol=1e-10)
    assert float(s.residual) > 0.1  # the prescribed arms contradict the weld, and it is said


@pytest.mark.slow
def test_a_stretched_five_bar_is_singular_and_still_finite():
    """Both arms straight along one line: force along it does not move the cut to first order."""
    robot, loops, _ = cc.mechanisms.five_bar()
    q = np.array([0.0, 0.0, np.pi, 0.0])  # tips do not even meet; the constraint rows are what matters
    straight = np.array([0.0, 0.0, 0.0, 0.0])
    s = dynamics(robot, loops, straight, np.zeros(4), np.ones(4))
    assert int(s.rank) == 1
    gradient = jax.jit(jax.grad(lambda q, v, tau: jnp.sum(cc.loop_forward_dynamics(robot, loops, q, v, tau).a ** 2)))
    for x in (q, straight):
        assert np.isfinite(gradient(x, np.zeros(4), np.ones(4))).all()


@pytest.mark.slow
def test_gradients_of_redundant_loops_equal_finite_differences():
    """By torque, velocity, configuration and mass, of accelerations and of the least forces."""
    robot, loops, guess = cc.mechanisms.four_bar()
    q = jax.jit(cc.close_loops)(robot, loops, guess)
    v = jnp.asarray(np.linalg.svd(np.asarray(loop_jacobian(robot, loops, q)))[2][-1] * 2)
    tau = jnp.array([0.3, -0.2, 0.5])

    def outputs(q, v, tau, mass):
        s = cc.loop_forward_dynamics(robot.replace(mass=mass), loops, q, v, tau)
        return jnp.concatenate([s.a, s.forces.ravel()])

    x = (q, v, tau, robot.mass)
    f, jvp = jax.jit(outputs), jax.jit(lambda x, t: jax.jvp(outputs, x, t)[1])
    back = jax.jit(lambda x, c: jax.vjp(outputs, *x)[1](c))
    rng = np.random.default_rng(0)
    for i in range(4):
        t = [jnp.zeros_like(leaf) for leaf in x]
        t[i] = jnp.asarray(rng.normal(size=x[i].shape))
        differences = slope_at_zero(lambda h, t=t: f(*(a + h * b for a, b in zip(x, t, strict=True))))
        got = np.asarray(jvp(x, tuple(t)))
        assert_allclose(got, differences, atol=1e-6 * np.abs(differences).max())
        c = jnp.asarray(rng.normal(size=got.shape))
        assert_allclose(jnp.sum(back(x, c)[i] * t[i]), c @ got, rtol=1e-8)


# --- mimic joints -------------------------------------------------------------------------------------------------


def test_mimic_joints_of_a_file_become_couplings():
    with pytest.warns(soa.ModelWarning, match="mimic_couplings"):
        panda = soa.load_urdf(EXAMPLE_ROBOTS["panda.urdf"], validate="off")
    (coupling,) = loops = cc.mimic_couplings(panda)
    assert (coupling.joint, coupling.target) == ("panda_finger_joint2", "panda_finger_joint1")
    q = panda.random(jax.random.key(0))
    q = jax.jit(cc.close_loops, static_argnames="hold")(panda, loops, q, hold=("panda_finger_joint1",))
    assert_allclose(q[-1], q[-2], atol=1e-12)
    v = jnp.ones(panda.nv)
    tau = jnp.zeros(panda.nv).at[-2].set(3.0)
    s = dynamics(panda, loops, q, v, tau)
    assert_allclose(s.a[-1], s.a[-2], rtol=1e-10)
    free = jax.jit(soa.forward_dynamics)(panda, q, v, tau)
    assert abs(free[-1] - free[-2]) > 1  # without the coupling they part
    assert_allclose(loop_errors(panda, loops, q), 0, atol=1e-12)


# --- inverse dynamics ---------------------------------------------------------------------------------------------


def test_inverse_dynamics_of_a_four_bar_with_a_motor_on_its_crank():
    robot, loops, guess = cc.mechanisms.four_bar()
    q = jax.jit(cc.close_loops)(robot, loops, guess)
    v = jnp.asarray(np.linalg.svd(np.asarray(loop_jacobian(robot, loops, q)))[2][-1])
    tau = jnp.array([2.0, 0.0, 0.0])
    s = dynamics(robot, loops, q, v, tau)
    inverse = jax.jit(
        lambda *x: [cc.loop_inverse_dynamics(robot, loops, *x, m) for m in (["left1_joint"], jnp.zeros(3, bool))]
    )
    t, none = inverse(q, v, s.a)
    assert_allclose(t.tau, tau, rtol=1e-9, atol=1e-9)
    assert_allclose(t.forces, s.forces, rtol=1e-8, atol=1e-8)
    assert_allclose(t.residual, 0, atol=1e-9)
    # Without any motor the motion is impossible, and the residual says so.
    assert none.residual > 0.1


def test_with_motors_to_spare_the_least_forces_or_torques_are_taken():
    robot, loops, guess = cc.mechanisms.five_bar()
    q = jax.jit(cc.close_loops)(robot, loops, guess)
    v = jnp.zeros(4)
    tau = jnp.array([1.0, 0.0, 0.5, 0.0])
    s = dynamics(robot, loops, q, v, tau)
    everywhere = jnp.ones(4, bool)

    @jax.jit
    def all_three(q, v, a, forces):
        options = ({}, {"least": "torques"}, {"preferred": forces})
        return [cc.loop_inverse_dynamics(robot, loops, q, v, a, everywhere, **chosen) for chosen in options]

    by_forces, by_torques, wished = all_three(q, v, s.a, s.forces)
    assert_allclose(by_forces.forces, 0, atol=1e-12)
    assert_allclose(by_forces.tau, jax.jit(soa.inverse_dynamics)(robot, q, v, s.a), rtol=1e-10)
    assert np.linalg.norm(by_torques.tau) < np.linalg.norm(by_forces.tau)
    J = np.asarray(loop_jacobian(robot, loops, q))
    # Least: no loop force could take any more torque away.
    assert_allclose(J @ by_torques.tau, 0, atol=1e-9)
    for t in (by_forces, by_torques):
        assert_allclose(dynamics(robot, loops, q, v, t.tau).a, s.a, rtol=1e-8, atol=1e-8)
    assert_allclose(wished.tau, tau, rtol=1e-8, atol=1e-8)


# --- bad inputs ---------------------------------------------------------------------------------------------------


def test_bad_loops_are_refused():
    q = jnp.zeros(robot().nq)
    with pytest.raises(KeyError, match="left_hand"):
        cc.loop_forward_dynamics(robot(), (cc.weld("left_hnd", "right_hand"),), q, q, q)
    with pytest.raises(KeyError, match="no joint named"):
        cc.loop_forward_dynamics(robot(), (cc.Coupling("elbow", "torso_yaw"),), q, q, q)
    with pytest.raises(TypeError, match="Loop, Distance or Coupling"):
        cc.loop_forward_dynamics(robot(), ("left_hand",), q, q, q)
    with pytest.raises(soa.ModelError, match="independent"):
        cc.Loop("left_hand", "right_hand", [[1, 0, 0, 0, 0, 0], [2, 0, 0, 0, 0, 0]])
    with pytest.raises(soa.ModelError, match="itself"):
        cc.Coupling("torso_yaw", "torso_yaw")
    with pytest.raises(soa.ModelError, match="not all zero"):
        cc.hinge("left_hand", "right_hand", (0, 0, 0))
    with pytest.raises(soa.ModelError, match="positive"):
        cc.distance("left_hand", "right_hand", -1.0)
    floating = soa.models.random_tree(1, 3, ("revolute",), floating_base=True)
    with pytest.raises(soa.ModelError, match="one degree of freedom"):
        cc.loop_jacobian(floating, (cc.Coupling("floating_base", "joint1"),), floating.neutral())
    with pytest.raises(ValueError, match="actuated"):
        cc.loop_inverse_dynamics(robot(), cc.weld("left_hand", "right_hand"), q, q, q, jnp.ones(robot().nv))
