"""MJCF by MuJoCo's compiler: what a file says arrives, and what is left out or refused is named."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import jaxsoa as soa
from jaxsoa import closed_chain as cc

mujoco = pytest.importorskip("mujoco")


# --- what a file says ----------------------------------------------------------------------------------------------

BODY = '<inertial pos="0.1 0.2 0.3" mass="2" quat="0.5 0.5 0.5 0.5" diaginertia="1 2 2.5"/>'


def mjcf(bodies: str, rest: str = "", options: str = "") -> str:
    compiler = '<compiler angle="radian" boundmass="0" boundinertia="0"/>'
    return f'<mujoco model="m">{compiler}{options}<worldbody>{bodies}</worldbody>{rest}</mujoco>'


def one(joints: str, inertial: str = BODY) -> str:
    return f'<body name="b" pos="1 2 3">{joints}{inertial}</body>'


def load_silently(xml, **options) -> soa.Multibody:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return soa.load_mjcf(xml, **options)


def test_one_hinge():
    joint = (
        '<joint name="j" axis="0 3 4" armature="0.1" damping="0.2" frictionloss="0.3" range="-1 2" limited="true" '
        'actuatorfrcrange="-3 4" actuatorfrclimited="true"/>'
    )
    robot = load_silently(mjcf(one(joint), options='<option gravity="1 2 3"/>'))
    assert (robot.name, robot.link_names, robot.joint_names) == ("m", ("b",), ("j",))
    assert robot.frame_names == ("world", "b")
    assert robot.topology.kinds == ("revolute",)
    assert_allclose(robot.axis, [[0, 0.6, 0.8]])
    assert_allclose(robot.joint_position, [[1, 2, 3]])
    assert_allclose(robot.com, [[0.1, 0.2, 0.3]])
    # The quaternion turns x to y to z: the principal moments about inertial x, y, z are about body y, z, x.
    assert_allclose(robot.inertia, [np.diag([2.5, 1, 2])], atol=1e-12)
    assert (float(robot.mass[0]), float(robot.armature[0]), float(robot.damping[0])) == (2, 0.1, 0.2)
    assert float(robot.friction[0]) == 0.3
    limits = robot.limits
    assert [float(x[0]) for x in (limits.lower, limits.upper, limits.effort)] == [-1, 2, 4]
    assert_array_equal(robot.gravity, [1, 2, 3])


def test_an_unlimited_hinge_is_continuous_and_the_other_kinds():
    bodies = "".join(
        f'<body name="{kind}"><joint name="{kind}_joint" type="{kind}"/>{BODY}</body>'
        for kind in ("hinge", "slide", "ball", "free")
    )
    robot = load_silently(mjcf(bodies))
    assert robot.topology.kinds == ("continuous", "prismatic", "spherical", "free")


def test_several_joints_in_a_body_are_links_in_a_row():
    joints = (
        '<joint name="x" type="slide" axis="1 0 0"/><joint name="y" type="slide" axis="0 1 0"/><joint name="turn"/>'
    )
    robot = load_silently(mjcf(one(joints)))
    assert robot.link_names == ("b:x", "b:y", "b")
    assert_array_equal(robot.mass, [0, 0, 2])
    assert robot.topology.parents == (-1, 0, 1)


def test_a_body_that_turns_about_an_anchor_is_a_frame():
    robot = load_silently(mjcf(one('<joint name="j" pos="0.5 0 0"/>')))
    assert robot.link_names == ("b:j",)
    assert robot.frame_names == ("world", "b:j", "b")
    assert_allclose(robot.joint_position, [[1.5, 2, 3]])
    assert_allclose(robot.frame_position[2], [-0.5, 0, 0])
    assert_allclose(robot.com, [[-0.4, 0.2, 0.3]])


def test_coordinates_have_mujocos_reference():
    xml = mjcf(
        '<body name="a" quat="0.8 0 0.6 0"><joint name="h" axis="1 2 3" ref="0.7"/>' + BODY
        + '<body name="b"><joint name="s" type="slide" axis="3 2 1" ref="0.4"/>' + BODY + "</body></body>"
    )  # fmt: skip
    robot, model = load_silently(xml), mujoco.MjModel.from_xml_string(xml)
    data = mujoco.MjData(model)
    data.qpos[:] = q = np.array([0.3, -0.2])
    mujoco.mj_kinematics(model, data)
    poses = jax.jit(soa.forward_kinematics)(robot, q)
    assert_allclose(poses.position, data.xpos[1:], atol=1e-14)
    assert_allclose(poses.rotation, data.xmat[1:].reshape(-1, 3, 3), atol=1e-14)


def test_names_where_the_file_gives_none():
    xml = mjcf(
        f'<body><joint/><joint axis="1 0 0"/>{BODY}<body name="body1"><joint/>{BODY}</body><site pos="1 0 0"/></body>'
    )
    robot = load_silently(xml)
    assert robot.joint_names == ("body1__joint1", "body1__joint2", "body1_joint")
    assert robot.link_names == ("body1_:body1__joint1", "body1_", "body1")
    assert robot.frame_names[-1] == "site0"
    twin = soa.convert.MujocoMap(robot, mujoco.MjModel.from_xml_string(xml))
    assert_array_equal(twin.q_to([1.0, 2.0, 3.0]), [1, 2, 3])


def test_a_site_with_the_name_of_a_body():
    robot = load_silently(mjcf(one("<joint/><site name='b' pos='0 0 1'/><site name='tip' pos='0 1 0'/>")))
    assert robot.frame_names == ("world", "b", "site:b", "tip")
    assert_array_equal(robot.frame_position[2:], [[0, 0, 1], [0, 1, 0]])


@pytest.mark.parametrize(
    ("flag", "leaf"),
    [("gravity", "gravity"), ("damper", "damping"), ("frictionloss", "friction"), ("constraint", "friction")],
)
def test_what_the_file_switches_off_is_off(flag: str, leaf: str):
    joint = '<joint damping="1" frictionloss="1"/>'
    on = load_silently(mjcf(one(joint)))
    off = load_silently(mjcf(one(joint), options=f'<option><flag {flag}="disable"/></option>'))
    for other in ("gravity", "damping", "friction"):
        assert np.any(getattr(on, other))
        assert np.any(getattr(off, other)) == (other != leaf)


def test_a_compiled_model_and_text_with_assets(tmp_path: Path):
    inner = mjcf(one('<joint name="j"/>'))
    (tmp_path / "inner.xml").write_text(inner)
    outer = '<mujoco><include file="inner.xml"/></mujoco>'
    (tmp_path / "outer.xml").write_text(outer)
    sources = [
        load_silently(tmp_path / "outer.xml"),
        load_silently(str(tmp_path / "outer.xml")),
        load_silently(outer, assets={"inner.xml": inner.encode()}),
        load_silently(mujoco.MjModel.from_xml_string(inner)),
    ]
    for robot in sources:
        assert robot.joint_names == ("j",)
        assert_array_equal(robot.mass, [2])


# --- what is left out ----------------------------------------------------------------------------------------------


def test_what_is_left_out_is_listed_in_one_warning():
    bodies = one(
        '<joint name="j" stiffness="3"/><geom name="g" size="0.1"/><site name="s"/>'
        f'<body name="c" gravcomp="1"><joint name="k"/>{BODY}</body>'
    )
    bodies += f'<body name="m" mocap="true">{BODY}</body>'
    bodies += f'<body name="socket"><joint name="ball" type="ball" range="0 1" limited="true"/>{BODY}</body>'
    rest = (
        '<tendon><fixed name="t"><joint joint="j" coef="1"/></fixed></tendon>'
        '<actuator><motor name="act" joint="j"/></actuator>'
        '<equality><joint name="eq" joint1="j" joint2="k"/><joint joint1="k" active="false"/></equality>'
    )
    with pytest.warns(soa.ModelWarning) as record:
        robot = soa.load_mjcf(mjcf(bodies, rest, '<option density="1.2"/>'))
    assert robot.joint_names == ("j", "k", "ball")
    assert robot.stiffness.tolist() == [3, 0, 0, 0, 0]
    assert len(record) == 1
    message = str(record[0].message)
    for fragment in (
        "contacts of geoms (1)", "load_mjcf_actuators reads (act)", "tendons, which load_mjcf_passive", "(t)",
        "load_mjcf_constraints",
        "(eq)", "load_mjcf_passive reads (c)", "mocap bodies", "(m)", "ranges of ball joints (ball)",
        "surrounding fluid",
    ):  # fmt: skip
        assert fragment in message
    assert record[0].filename == __file__


def test_nothing_left_out_is_no_warning():
    load_silently(mjcf(one('<joint name="j"/><geom size="0.1" contype="0" conaffinity="0"/>')))


# --- what is refused -----------------------------------------------------------------------------------------------

URDF = '<robot name="r"><link name="a"/></robot>'


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (URDF, "root element is <robot>.*load_urdf"),
        ("<sdf/>", "root element is <sdf>"),
        ("<mujoco>", "line 1: the XML is malformed"),
        ('<!DOCTYPE m [<!ENTITY e "x">]><mujoco/>', "entities are refused"),
        ("", "empty string"),
        ("no/such/file.xml", "cannot be read"),
        (None, "must be a path or XML text"),
        ("<mujoco/>", "no joint"),
        (mjcf(one("")), "no joint"),
        ("<mujoco><wrong/></mujoco>", "MuJoCo cannot compile it .*wrong"),
        (mjcf(one('<joint name="j" type="spring"/>')), "MuJoCo cannot compile it"),
        (mjcf(one('<joint name="j"/>', "")), "MuJoCo cannot compile it .*mass and inertia"),
        (mjcf(one('<joint name="f" type="free" armature="1"/>')), "free joint 'f' has armature along its translations"),
        ("<mujoco><include file='nothing.xml'/></mujoco>", r"nothing\.xml' cannot be read"),
    ],
)
def test_refused(source, message: str):
    with pytest.raises(soa.ModelError, match=message):
        soa.load_mjcf(source)


def test_assets_belong_to_text(tmp_path: Path):
    (tmp_path / "x.xml").write_text(mjcf(one("<joint/>")))
    for source in (tmp_path / "x.xml", mujoco.MjModel.from_xml_path(str(tmp_path / "x.xml"))):
        with pytest.raises(soa.ModelError, match="assets belong to XML text"):
            soa.load_mjcf(source, assets={})


def test_unphysical_inertias_follow_the_policy():
    xml = mjcf(one("<joint/>", '<inertial pos="0 0 0" mass="1" diaginertia="1 1 9"/>'))
    model = mujoco.MjModel.from_xml_string(mjcf(one("<joint/>")))
    model.body_inertia[1] = [1, 1, 9]  # MuJoCo's compiler refuses it in a file
    with pytest.raises(soa.ModelError, match="MuJoCo cannot compile"):
        soa.load_mjcf(xml)
    with pytest.warns(soa.ModelWarning, match="triangle inequality"):
        soa.load_mjcf(model)
    with pytest.raises(soa.ModelError, match="triangle inequality"):
        soa.load_mjcf(model, validate="strict")
    assert load_silently(model, validate="off").n_links == 1


def test_without_mujoco_the_message_names_the_extra(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "mujoco", None)
    with pytest.raises(ImportError, match=r"jaxsoa\[mjcf\]"):
        soa.load_mjcf("<mujoco/>")


# --- equality constraints ------------------------------------------------------------------------------------------

LINK = '<inertial pos="0 0 0.2" mass="1" diaginertia="0.1 0.1 0.05"/>'
BENCH = mjcf(
    f"""<body name="a" pos="0 0 1"><joint name="ja" axis="0 1 0" ref="0.2"/>{LINK}
          <body name="b" pos="0 0 0.4"><joint name="jb" type="ball"/>{LINK}<site name="sb" pos="0.1 0 0.2"/>
            <body name="c" pos="0 0.1 0.4"><joint name="jc" axis="1 0 0"/>{LINK}</body></body></body>
        <body name="d" pos="0.5 0 1"><freejoint name="jd"/>{LINK}
          <site name="sd" pos="-0.1 0.2 0" quat="0.8 0 0.6 0"/></body>
        <body name="e" pos="1 0 1"><joint name="je" type="slide" axis="0 0 1" ref="-0.3"/>{LINK}</body>""",
    """<equality>
         <connect body1="c" body2="d" anchor="0.1 0.2 0.3"/>
         <connect body1="c" anchor="0 0 0.3"/>
         <weld body1="b" body2="e"/>
         <weld body1="d" body2="e" relpose="0.1 0.2 0.3 0.8 0.6 0 0"/>
         <connect site1="sb" site2="sd"/>
         <weld site1="sd" site2="sb"/>
         <joint joint1="ja" joint2="je" polycoef="0.1 0.5 0.3 -0.2 0.1"/>
         <joint joint1="jc" polycoef="0.4 1 0 0 0"/>
         <connect body1="a" body2="e" anchor="0 0 0" active="false"/>
       </equality>""",
)


def satisfied(model, number: int):
    """MuJoCo's data at a configuration that satisfies one equality alone, found by Newton's method with its rows."""
    model.eq_active0[:] = np.arange(model.neq) == number
    data = mujoco.MjData(model)
    rng = np.random.default_rng(number)
    mujoco.mj_integratePos(model, data.qpos, rng.normal(size=model.nv), 0.3)
    for _ in range(20):
        mujoco.mj_forward(model, data)
        J, error = data.efc_J.reshape(-1, model.nv)[: data.nefc], data.efc_pos[: data.nefc].copy()
        if np.abs(error).max() < 1e-13:
            return data, J.copy()
        mujoco.mj_integratePos(model, data.qpos, -np.linalg.pinv(J, rcond=1e-8) @ error, 1.0)
    raise AssertionError(f"equality {number} cannot be satisfied")


def test_equalities_constrain_what_mujocos_do():
    """Where MuJoCo says that one is satisfied, so do we, and both hold the same directions of motion."""
    with pytest.warns(soa.ModelWarning, match="equality constraints"):
        robot = soa.load_mjcf(BENCH)
    loops = soa.load_mjcf_constraints(robot, BENCH)
    assert [type(loop).__name__ for loop in loops] == ["Loop"] * 6 + ["Coupling"] * 2
    model = mujoco.MjModel.from_xml_string(BENCH)
    model.opt.jacobian = mujoco.mjtJacobian.mjJAC_DENSE
    twin = soa.convert.MujocoMap(robot, model)
    rows_and_errors = jax.jit(lambda q: (cc.loop_jacobian(robot, loops, q), cc.loop_errors(robot, loops, q)))
    for number, rank in enumerate([3, 3, 5, 6, 3, 6, 1, 1]):
        data, theirs = satisfied(model, number)
        q = twin.q_from(data.qpos)
        ours, errors = (np.asarray(x) for x in rows_and_errors(q))
        own = slice(6 * number, 6 * number + 6) if number < 6 else slice(30 + number, 31 + number)
        assert_allclose(errors[own], 0, atol=1e-10)
        assert np.abs(np.delete(errors, own)).max() > 1e-3  # the others are not satisfied: this is a test
        theirs = theirs @ twin.velocity_matrix(q)
        for rows in (theirs, ours[own], np.vstack([ours[own], theirs])):
            assert np.linalg.matrix_rank(rows, tol=1e-8) == rank


def test_equalities_without_a_counterpart_are_refused():
    xml = mjcf(
        one('<joint name="j"/>'),
        '<tendon><fixed name="t"><joint joint="j" coef="1"/></fixed><fixed name="u"><joint joint="j" coef="2"/></fixed>'
        '</tendon><equality><tendon name="te" tendon1="t" tendon2="u" polycoef="0 1 2"/></equality>',
    )
    with pytest.warns(soa.ModelWarning, match="tendons"):
        robot = soa.load_mjcf(xml)
    with pytest.raises(soa.ModelError, match=r"te \(tendon\)"):
        soa.load_mjcf_constraints(robot, xml)


def test_no_equalities_are_no_constraints():
    xml = mjcf(one('<joint name="j"/>'))
    assert soa.load_mjcf_constraints(load_silently(xml), xml) == ()


def test_what_mujoco_warns_of_is_a_warning_and_no_file(tmp_path, monkeypatch):
    """Left alone, MuJoCo writes MUJOCO_LOG.TXT into the working directory."""
    monkeypatch.chdir(tmp_path)
    body = '<worldbody><body><joint/><geom size=".1" contype="0" conaffinity="0"/></body></worldbody>'
    with pytest.warns(soa.ModelWarning, match="settotalmass"):
        robot = soa.load_mjcf(f'<mujoco><compiler settotalmass="5"/>{body}</mujoco>')
    np.testing.assert_allclose(robot.mass, [5.0])
    assert not list(tmp_path.iterdir()) and mujoco.get_mju_user_warning() is None
