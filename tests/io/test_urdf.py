"""Good files become exactly the right numbers: by hand on small ones, against Pinocchio on the robots people have."""

import warnings
from pathlib import Path

import numpy as np
import pytest
from helpers.example_robots import EXAMPLE_ROBOTS
from numpy.testing import assert_allclose, assert_array_equal

from jaxsoa.io import read_urdf
from jaxsoa.model.description import ModelError
from jaxsoa.model.validation import ModelWarning

BODY = '<inertial><mass value="2"/><inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/></inertial>'


def two_links(joint: str, *, joint_type: str = "revolute", inertial: str = BODY) -> str:
    """XML text of links a and b, joined by a joint j with the given content."""
    return f"""
    <robot name="two">
      <link name="a"/>
      <link name="b">{inertial}</link>
      <joint name="j" type="{joint_type}"><parent link="a"/><child link="b"/>{joint}</joint>
    </robot>"""


def test_everything_that_a_file_says():
    robot = read_urdf(
        """<?xml version="1.0" encoding="utf-8"?>
        <robot name="arm" xmlns:xacro="http://www.ros.org/wiki/xacro">
          <material name="blue"><color rgba="0 0 1 1"/></material>
          <link name="base"><visual><geometry><mesh filename="../../etc/passwd"/></geometry></visual></link>
          <link name="tip">
            <inertial>
              <origin xyz="0.1 -.2 3e-1" rpy="0 0 1.5707963267948966"/>
              <mass value=" 1.5 "/>
              <inertia ixx="1" ixy="0.1" ixz="0.2" iyy="2" iyz="0.3" izz="2.5"/>
            </inertial>
          </link>
          <joint name="hinge" type="revolute">
            <origin xyz="1 2 3" rpy="0.1 0.2 0.3"/>
            <parent link="base"/><child link="tip"/>
            <axis xyz="0 3 4"/>
            <limit lower="-1" upper="2" effort="30" velocity="inf"/>
            <dynamics damping="0.7" friction="0.3"/>
          </joint>
          <transmission name="t"><joint name="hinge"/></transmission>
          <gazebo reference="tip"><mu1>0.2</mu1></gazebo>
        </robot>"""
    )
    assert (robot.name, robot.source) == ("arm", "<XML text>")
    base, tip = robot.links
    assert (base.name, base.mass) == ("base", 0.0)
    assert_array_equal(base.inertia, np.zeros((3, 3)))
    assert (tip.name, tip.mass) == ("tip", 1.5)
    assert_array_equal(tip.com, [0.1, -0.2, 0.3])
    # A quarter turn about z takes the inertial x axis to link y, and its y axis to link -x.
    assert_allclose(tip.inertia, [[2, -0.1, -0.3], [-0.1, 1, 0.2], [-0.3, 0.2, 2.5]], atol=1e-15)
    (joint,) = robot.joints
    assert (joint.name, joint.kind, joint.parent, joint.child) == ("hinge", "revolute", "base", "tip")
    assert_array_equal(joint.position, [1, 2, 3])
    assert_allclose(joint.rotation, turn("z", 0.3) @ turn("y", 0.2) @ turn("x", 0.1), atol=1e-15)
    assert_allclose(joint.axis, [0, 0.6, 0.8], rtol=1e-15)
    assert (joint.lower, joint.upper, joint.effort, joint.velocity) == (-1, 2, 30, np.inf)
    assert (joint.damping, joint.friction, joint.armature, joint.mimic) == (0.7, 0.3, 0, None)


def turn(axis: str, angle: float) -> np.ndarray:
    c, s = np.cos(angle), np.sin(angle)
    return {
        "x": np.array([[1, 0, 0], [0, c, -s], [0, s, c]]),
        "y": np.array([[c, 0, s], [0, 1, 0], [-s, 0, c]]),
        "z": np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]]),
    }[axis]


def test_defaults():
    (joint,) = read_urdf(two_links("", joint_type="continuous")).joints
    assert_array_equal(joint.axis, [1, 0, 0])
    assert_array_equal(joint.rotation, np.eye(3))
    assert_array_equal(joint.position, np.zeros(3))
    assert (joint.lower, joint.upper, joint.effort, joint.velocity) == (-np.inf, np.inf, np.inf, np.inf)
    assert (joint.damping, joint.friction) == (0, 0)


def test_a_continuous_joint_has_no_range_even_if_the_file_gives_one():
    (joint,) = read_urdf(two_links('<limit lower="-1" upper="1" effort="5"/>', joint_type="continuous")).joints
    assert (joint.lower, joint.upper, joint.effort) == (-np.inf, np.inf, 5)


def test_limits_without_a_range_are_zero_as_the_specification_says():
    with pytest.warns(ModelWarning, match=r"range from 0 to 0: j\."):
        (joint,) = read_urdf(two_links('<limit effort="1" velocity="1"/>')).joints
    assert (joint.lower, joint.upper) == (0, 0)


def test_mimic_is_kept_and_defaults_to_equality():
    for attributes, expected in (('multiplier="-2" offset="0.5"', ("k", -2, 0.5)), ("", ("k", 1, 0))):
        joint = f'<mimic joint="k" {attributes}/>'
        xml = two_links(joint, joint_type="continuous").replace(
            "</robot>",
            f'<link name="c">{BODY}</link>'
            '<joint name="k" type="continuous"><parent link="b"/><child link="c"/></joint></robot>',
        )
        assert read_urdf(xml).joints[0].mimic == expected


def test_leftovers_on_a_fixed_joint_mean_nothing():
    leftovers = '<axis xyz="0 0 0"/><mimic joint="gone"/><limit lower="1" upper="-1"/>'
    (joint,) = read_urdf(two_links(leftovers, joint_type="fixed")).joints
    assert (joint.kind, joint.mimic) == ("fixed", None)


def test_a_default_namespace_changes_nothing():
    xml = two_links("", joint_type="continuous").replace("<robot", '<robot xmlns="http://www.ros.org"')
    assert [link.mass for link in read_urdf(xml).links] == [0, 2]


def test_path_and_text_are_the_same_robot(tmp_path: Path):
    xml = two_links('<axis xyz="0 0 1"/>', joint_type="continuous")
    path = tmp_path / "two.urdf"
    for content in (xml.strip().encode(), b"\xef\xbb\xbf" + xml.strip().encode(), xml.strip().encode("utf-16")):
        path.write_bytes(content)
        for source in (path, str(path)):
            robot = read_urdf(source)
            assert (robot.name, robot.source) == ("two", str(path))
            assert_array_equal(robot.joints[0].axis, read_urdf(xml).joints[0].axis)


# The robots people have --------------------------------------------------------------------------------------------


REFUSED = {
    "ur3.urdf": "has no <link>",  # the file is an empty <robot>
    "alex_psyonic_hands.urdf": "joint 'Left_index_q2' mimics 'index_q1', which does not exist",
    "romeo.urdf": "moves only links without mass and inertia",  # every finger is massless
    "romeo_laas_small.urdf": "joint 'r_gripper_joint' moves only links without mass and inertia",
}


@pytest.mark.skipif(not EXAMPLE_ROBOTS, reason="example-robot-data is not installed")
def test_the_whole_collection_is_there():
    assert len(EXAMPLE_ROBOTS) == 69
    assert REFUSED.keys() < EXAMPLE_ROBOTS.keys()


@pytest.mark.parametrize("name", [name for name in EXAMPLE_ROBOTS if name in REFUSED])
def test_robots_refused_for_a_reason(name: str):
    with pytest.raises(ModelError) as caught, warnings.catch_warnings():
        warnings.simplefilter("ignore", ModelWarning)
        read_urdf(EXAMPLE_ROBOTS[name])
    assert REFUSED[name] in str(caught.value)
    assert str(EXAMPLE_ROBOTS[name]) in str(caught.value)


@pytest.mark.parametrize("name", [name for name in EXAMPLE_ROBOTS if name not in REFUSED])
def test_robots_equal_those_of_pinocchio(name: str):
    pin = pytest.importorskip("pinocchio")
    robot = read_urdf(EXAMPLE_ROBOTS[name], validate="off") if name not in ZERO_RANGE else read_with_warning(name)
    model = pin.buildModelFromUrdf(str(EXAMPLE_ROBOTS[name]))
    data = model.createData()
    pin.computeJointJacobians(model, data, pin.neutral(model))
    pin.updateFramePlacements(model, data)

    # Pinocchio lumps what fixed joints hold together, so inertias are compared as such lumps, about the joint's frame.
    placement, lumped = {}, np.zeros((model.njoints, 6, 6))
    for link in robot.links:
        frame_id = model.getFrameId(link.name, pin.FrameType.BODY)
        frame = model.frames[frame_id]
        placement[link.name] = data.oMf[frame_id]
        force = frame.placement.toDualActionMatrix()
        C, mass = pin.skew(link.com), link.mass
        own = np.block([[mass * np.eye(3), -mass * C], [mass * C, link.inertia - mass * C @ C]])
        lumped[frame.parentJoint] += force @ own @ force.T
    for inertia, expected in zip(lumped, model.inertias, strict=True):
        assert_allclose(inertia, expected.matrix(), atol=1e-13 * max(1.0, np.abs(inertia).max()))

    assert sum(joint.kind != "fixed" for joint in robot.joints) == model.nv
    for joint in robot.joints:
        relative = placement[joint.parent].actInv(placement[joint.child])
        assert_allclose(joint.position, relative.translation, atol=1e-13)
        assert_allclose(joint.rotation, relative.rotation, atol=1e-13)
        if joint.kind == "fixed":
            continue
        joint_id = model.getJointId(joint.name)
        v, q = model.joints[joint_id].idx_v, model.joints[joint_id].idx_q
        column = pin.getJointJacobian(model, data, joint_id, pin.ReferenceFrame.LOCAL)[:, v]
        expected = {"revolute": (0, 1), "continuous": (0, 1), "prismatic": (1, 0)}[joint.kind]
        assert_allclose(column, np.kron(expected, joint.axis), atol=1e-13)
        assert joint.damping == model.damping[v]
        assert joint.friction == model.upperDryFrictionLimit[v]
        assert joint.effort == model.upperEffortLimit[v]
        assert joint.velocity == model.upperVelocityLimit[v]
        if joint.kind != "continuous":
            assert (joint.lower, joint.upper) == (model.lowerPositionLimit[q], model.upperPositionLimit[q])


ZERO_RANGE = ("centauro.urdf", "quadruped.urdf")


def read_with_warning(name: str):
    with pytest.warns(ModelWarning, match="range from 0 to 0"):
        return read_urdf(EXAMPLE_ROBOTS[name], validate="off")
