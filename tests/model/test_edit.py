"""Edited models: merged, locked and loaded robots against Pinocchio; the rest against their own definitions."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.example_robots import EXAMPLE_ROBOTS

import jaxsoa as soa

pin = pytest.importorskip("pinocchio")

TURN = np.array([[0.0, -1, 0], [1, 0, 0], [0, 0, 1]])


def loaded(name: str, **options) -> tuple[soa.Multibody, Any]:
    if name not in EXAMPLE_ROBOTS:
        pytest.skip("example-robot-data is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", soa.ModelWarning)
        robot = soa.load_urdf(EXAMPLE_ROBOTS[name], validate="off", **options)
    return robot.frictionless(), pin.buildModelFromUrdf(str(EXAMPLE_ROBOTS[name]))


@jax.jit
def answers(robot, q, v, a):
    return soa.mass_matrix(robot, q), soa.inverse_dynamics(robot, q, v, a), soa.center_of_mass(robot, q)


@jax.jit
def draw(robot, number):
    return robot.random(jax.random.key(number))


@functools.partial(jax.jit, static_argnums=2)
def pose(robot, q, frame):
    return soa.frame_pose(robot, q, frame)


def assert_same(robot: soa.Multibody, model):
    """Joint placements, inertias and frames of the two models, joint by joint: all that dynamics depends on."""
    for k, name in enumerate(robot.joint_names):
        number = model.getJointId(name)
        place, body = model.jointPlacements[number], model.inertias[number]
        parent = robot.topology.parents[k]
        assert model.names[model.parents[number]] == ("universe" if parent < 0 else robot.joint_names[parent])
        np.testing.assert_allclose(robot.joint_rotation[k], place.rotation, atol=1e-14)
        np.testing.assert_allclose(robot.joint_position[k], place.translation, atol=1e-14)
        np.testing.assert_allclose(robot.mass[k], body.mass, rtol=1e-14)
        np.testing.assert_allclose(robot.com[k], body.lever, atol=1e-13)
        np.testing.assert_allclose(robot.inertia[k], body.inertia, atol=1e-13)
    names = {frame.name for frame in model.frames}
    for row, name in enumerate(robot.frame_names):
        if name not in names:
            continue
        frame, link = model.frames[model.getFrameId(name, pin.FrameType.BODY)], robot.topology.frame_links[row]
        assert model.names[frame.parentJoint] == ("universe" if link < 0 else robot.joint_names[link])
        np.testing.assert_allclose(robot.frame_position[row], frame.placement.translation, atol=1e-14)
        np.testing.assert_allclose(robot.frame_rotation[row], frame.placement.rotation, atol=1e-14)


def test_a_hand_merged_onto_an_arm_equals_pinocchios_append_model():
    (arm, arm_pin), (hand, hand_pin) = loaded("ur5_robot.urdf"), loaded("allegro_left_hand.urdf")
    place = (0.1, -0.2, 0.3)
    both = soa.merge([arm, hand], [("tool0", TURN, place)])
    model = pin.appendModel(arm_pin, hand_pin, arm_pin.getFrameId("tool0"), pin.SE3(TURN, np.array(place)))
    assert both.joint_names == (*arm.joint_names, *hand.joint_names) and both.nv == model.nv
    assert float(hand.base_mass) > 0.1  # the palm: fixed in the hand's own file, carried by the arm now
    np.testing.assert_allclose(both.mass.sum(), arm.mass.sum() + hand.mass.sum() + hand.base_mass, rtol=1e-14)
    assert_same(both, model)
    # And in motion.
    q, v = np.asarray(draw(both, 3)), np.linspace(-1, 1, both.nv)
    theirs = soa.convert.PinocchioMap(both, model)
    expected = pin.rnea(model, model.createData(), theirs.q_to(q), theirs.v_to(v, q), 0 * v)
    tau = jax.jit(soa.inverse_dynamics)(both, q, v, 0 * v)
    np.testing.assert_allclose(theirs.tau_to(np.asarray(tau), q), expected, atol=1e-11 * np.abs(expected).max())


def test_locked_joints_equal_pinocchios_reduced_model():
    robot, model = loaded("baxter.urdf")
    joints = [n for n in robot.joint_names if n.startswith(("left_s", "head", "l_g", "right_w1"))]
    q = draw(robot, 1)
    reduced = robot.lock(joints, q)
    q_pin = soa.convert.PinocchioMap(robot, model).q_to(np.asarray(q))
    theirs = pin.buildReducedModel(model, [model.getJointId(name) for name in joints], q_pin)
    assert reduced.nv == robot.nv - len(joints) == theirs.nv and set(reduced.frame_names) == set(robot.frame_names)
    assert_same(reduced, theirs)
    total = robot.mass.sum() + robot.base_mass
    np.testing.assert_allclose(reduced.mass.sum() + reduced.base_mass, total, rtol=1e-13)


def mixed() -> soa.Multibody:
    builder = soa.Builder("mixed", root="ground")
    inertia = np.diag([0.02, 0.03, 0.04])
    body = {"mass": 1.3, "com": (0.1, 0, 0.2), "inertia": inertia}
    builder.link("cart", joint="prismatic", axis=(1, 0, 0), lower=-0.2, upper=0.6, damping=0.3, **body)
    builder.link("ball", parent="cart", joint="spherical", joint_name="hip", position=(0, 0.3, 0.1), **body)
    builder.link("arm", parent="ball", joint="universal", position=(0.2, 0, 0), axis=(0, 1, 0), **body)
    builder.link("tool", parent="arm", joint="revolute", position=(0.2, 0.1, 0), axis=(0, 0, 1), armature=0.1, **body)
    builder.link("tail", parent="cart", joint="cylindrical", position=(0, -0.4, 0), axis=(0, 0, 1), **body)
    return builder.frame("grip", link="tool", position=(0.1, 0, 0), rotation=TURN).build()


def test_locking_any_kind_of_joint_leaves_the_block_of_the_mass_matrix():
    robot = mixed()
    q = draw(robot, 0)
    reduced = robot.lock(["hip", "tail_joint"], q)
    left = [d for name in reduced.joint_names for d in range(robot.nv)[robot.v_index(name)]]
    q_left = jnp.concatenate([q[robot.q_index(name)] for name in reduced.joint_names])
    v = jnp.zeros(robot.nv).at[np.array(left)].set(jnp.arange(1.0, len(left) + 1))
    M, tau, com = answers(robot, q, v, 0 * v)
    M_left, tau_left, com_left = answers(reduced, q_left, v[np.array(left)], 0 * v[np.array(left)])
    np.testing.assert_allclose(M_left, M[np.ix_(left, left)], atol=1e-13)
    np.testing.assert_allclose(tau_left, tau[np.array(left)], atol=1e-12)
    np.testing.assert_allclose(com_left, com, atol=1e-14)


def test_a_payload_equals_a_welded_link_and_can_be_differentiated():
    inertia = np.array([[0.02, 0.001, 0], [0.001, 0.03, 0], [0, 0, 0.04]])
    builder = soa.Builder("one")
    builder.link("rod", joint="revolute", axis=(0, 1, 0), mass=1.0, com=(0, 0, -0.5), inertia=np.eye(3) * 0.1)
    builder.frame("tip", link="rod", rotation=TURN, position=(0, 0.1, -1))
    light = builder.build()
    builder.link(
        "load", parent="rod", joint="fixed", rotation=TURN, position=(0, 0.1, -1), mass=2.0, com=(0.1, 0.2, 0.3),
        inertia=inertia,
    )  # fmt: skip
    welded = builder.build()
    loaded = light.with_payload("tip", 2.0, (0.1, 0.2, 0.3), inertia)
    for leaf in ("mass", "com", "inertia"):
        np.testing.assert_allclose(getattr(loaded, leaf), getattr(welded, leaf), atol=1e-15)

    @jax.jit
    def moment(mass):  # about the joint; linear in the mass
        robot = light.with_payload("tip", mass, (0.1, 0.2, 0.3))
        return (robot.mass[0] * robot.com[0] @ jnp.ones(3)), robot.mass[0]

    slope = (moment(2.5)[0] - moment(1.5)[0]) / 1.0
    np.testing.assert_allclose(jax.jacfwd(moment)(2.0), (slope, 1.0), rtol=1e-12)


def test_frames_subtrees_and_names():
    robot = mixed()
    q = draw(robot, 2)
    longer = robot.with_frame("needle", "grip", TURN, (0, 0, 0.5))
    R, p = pose(robot, q, "grip")
    R_needle, p_needle = pose(longer, q, "needle")
    np.testing.assert_allclose(R_needle, R @ TURN, atol=1e-14)
    np.testing.assert_allclose(p_needle, R @ jnp.array([0, 0, 0.5]) + p, atol=1e-14)

    part = robot.subtree("ball", tips="grip")
    assert part.joint_names == ("arm_joint", "tool_joint") and "cart" not in part.frame_names
    assert float(part.base_mass) == float(robot.mass[1])
    q_part = jnp.concatenate([q[robot.q_index(name)] for name in part.joint_names])
    R0, p0 = pose(robot, q, "ball")
    np.testing.assert_allclose(pose(part, q_part, "grip")[1], R0.T @ (p - p0), atol=1e-14)
    assert robot.subtree("ground", tips=["tail"]).joint_names == ("cart_joint", "tail_joint")

    other = robot.rename({"hip": "ankle", "grip": "hand"}, prefix="r/")
    assert "r/ankle" in other.joint_names and "r/hand" in other.frame_names and "r/cart" in other.link_names
    np.testing.assert_array_equal(pose(other, q, "r/hand")[1], p)


@pytest.mark.slow
def test_parts_merge_into_the_robot_they_were_cut_from():
    robot = mixed()
    q = draw(robot, 5)
    arm, rest = robot.subtree("ball"), robot.subtree("ground", tips=["ball", "tail"])
    # The ball's own body is the base of one part and a link of the other: once is enough.
    arm = arm.replace(base_mass=0.0, base_inertia=np.zeros((3, 3))).rename({"ball": "socket"})
    whole = soa.merge([rest, arm], ["ball"])
    again = jnp.concatenate([q[robot.q_index(name)] for name in whole.joint_names])
    order = [d for name in whole.joint_names for d in range(robot.nv)[robot.v_index(name)]]
    zero = jnp.zeros(robot.nv)
    M, tau, com = answers(robot, q, zero, zero)
    M2, tau2, com2 = answers(whole, again, zero, zero)
    np.testing.assert_allclose(M2, M[np.ix_(order, order)], atol=1e-13)
    np.testing.assert_allclose(tau2, tau[np.array(order)], atol=1e-12)
    np.testing.assert_allclose(com2, com, atol=1e-13)


def test_values_and_limits_by_name():
    robot = mixed()
    q = draw(robot, 6)
    np.testing.assert_allclose(robot.q_from(robot.describe(q)), q, rtol=1e-15, atol=1e-15)
    made = robot.q_from({"tool_joint": 0.3, "hip": (0, 2.0, 0, 0)})
    np.testing.assert_array_equal(made[robot.q_index("hip")], [0, 1, 0, 0])
    assert float(made[robot.q_index("tool_joint")][0]) == 0.3 and float(made[0]) == 0
    limits = robot.joint_limits("cart_joint")
    assert (limits.lower, limits.upper, limits.effort) == (-0.2, 0.6, np.inf)
    text = str(robot.table())
    assert "cart_joint  prismatic" in text and "-0.2" in text and len(text.splitlines()) == 2 + robot.n_links
    assert robot.table()._repr_html_().count("<tr>") == 1 + robot.n_links


def test_mimics_follow_in_q_from():
    robot, _ = loaded("panda.urdf")
    q = robot.q_from({"panda_finger_joint1": 0.03})
    np.testing.assert_allclose(q[-2:], [0.03, 0.03])
    with pytest.raises(soa.ModelError, match=r"panda_finger_joint2.*mimics.*lock both"):
        robot.lock("panda_finger_joint1")
    assert robot.lock(["panda_finger_joint1", "panda_finger_joint2"]).topology.mimics == ()


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda r: r.with_frame("grip", "tool"), ["already has a frame named 'grip'"]),
        (lambda r: r.with_frame("new", "grap"), ["no frame named 'grap'", "grip"]),
        (lambda r: r.with_frame("new", "grip", np.eye(3) * 2), ["no rotation matrix"]),
        (lambda r: r.with_payload("grip", -1.0), ["negative"]),
        (lambda r: r.with_payload("grip", 1.0, (0, 0)), ["shape (3,)", "(2,)"]),
        (lambda r: r.lock("hup"), ["no joint named 'hup'", "hip"]),
        (lambda r: r.lock("cart_joint", r.q_from({"cart_joint": 2.0})), ["'cart_joint'", "2.0", "outside its limits"]),
        (lambda r: r.lock(r.joint_names), ["nothing would move"]),
        (lambda r: r.subtree("grip"), ["'grip'", "empty"]),
        (lambda r: r.subtree("ball", tips="tail"), ["'tail' does not hang on 'ball'"]),
        (lambda r: r.rename({"cart_joynt": "x"}), ["'cart_joynt'", "cart_joint"]),
        (lambda r: r.rename({"hip": "cart_joint"}), ["two joints", "cart_joint"]),
        (lambda r: r.q_from({"hip": 1.0}), ["'hip' has 4 coordinates"]),
        (lambda r: r.q_from({"hep": 1.0}), ["no joint named 'hep'", "hip"]),
        (lambda r: soa.merge([r, r], ["grip"]), ["Joints", "arm_joint", "prefixes"]),
        (lambda r: soa.merge([r, r], ["a/grop"], prefixes=["a/", "b/"]), ["no frame named 'a/grop'", "a/grip"]),
        (lambda r: soa.merge([r, r], []), ["2 robots need 1 attachments"]),
        (lambda r: soa.merge([r, r], ["grip"], prefixes=["a/"]), ["2 robots need 2 prefixes"]),
        (lambda r: soa.merge([r, r], [("a/grip", TURN)], prefixes=["a/", "b/"]), ["(name, rotation, position)"]),
    ],
)
def test_bad_edits_say_what_was_expected(edit, words):
    with pytest.raises((soa.ModelError, KeyError, ValueError)) as error:
        edit(mixed())
    for word in words:
        assert word in str(error.value)
