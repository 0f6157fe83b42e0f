"""Descriptions that no file wrote: what validation refuses, and what it returns."""

import dataclasses

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from jaxsoa.model.description import (
    FrameDescription,
    JointDescription,
    LinkDescription,
    ModelError,
    RobotDescription,
)
from jaxsoa.model.validation import validate_description

BODY = LinkDescription("b", 1.0, np.zeros(3), np.eye(3))
HINGE = JointDescription("j", "revolute", "a", "b")


def described(body: LinkDescription = BODY, hinge: JointDescription = HINGE, frames=()) -> RobotDescription:
    return RobotDescription("r", (LinkDescription("a"), body), (hinge,), tuple(frames))


def with_body(**changes) -> RobotDescription:
    return described(body=dataclasses.replace(BODY, **changes))


def with_hinge(**changes) -> RobotDescription:
    return described(hinge=dataclasses.replace(HINGE, **changes))


@pytest.mark.parametrize(
    ("description", "message"),
    [
        pytest.param(with_body(mass=-1.0), "link 'b': the mass -1.0 is negative", id="row-01"),
        pytest.param(with_body(mass=np.nan), "link 'b': the mass nan is not finite", id="row-02-mass"),
        pytest.param(with_body(com=np.array([0, np.inf, 0])), "link 'b': the centre of mass", id="row-02-com"),
        pytest.param(with_body(inertia=np.full((3, 3), np.nan)), "link 'b': the inertia", id="row-02-inertia"),
        pytest.param(with_hinge(axis=np.array([np.nan, 0, 0])), "joint 'j': the axis", id="row-02-axis"),
        pytest.param(with_hinge(position=np.array([np.nan, 0, 0])), "joint 'j': the position", id="row-02-origin"),
        pytest.param(with_hinge(kind="helical", pitch=np.inf), "joint 'j': the pitch", id="row-02-pitch"),
        pytest.param(with_body(mass="heavy"), "link 'b': the mass is 'heavy', which is not a number", id="row-03"),
        pytest.param(RobotDescription("r", (), ()), "no links", id="row-23"),
        pytest.param(
            with_hinge(kind="hinge"), "unknown kind 'hinge'; those supported are revolute, .*free", id="row-14"
        ),
        pytest.param(with_hinge(child="c"), "joint 'j' names the child link 'c', which does not exist", id="row-15"),
        pytest.param(with_hinge(kind="universal", axis2=np.array([2.0, 0, 0])), "parallel to", id="row-16-universal"),
        pytest.param(with_hinge(kind="planar", axis2=np.zeros(3)), "is zero or parallel", id="row-16-planar"),
        pytest.param(with_body(com=np.zeros(2)), r"the centre of mass has shape \(2,\)", id="row-17-com"),
        pytest.param(with_hinge(rotation=np.eye(4)), r"the rotation has shape \(4, 4\)", id="row-17-rotation"),
        pytest.param(with_hinge(rotation=2 * np.eye(3)), "is not a rotation matrix", id="scaled-rotation"),
        pytest.param(with_hinge(rotation=-np.eye(3)), "is not a rotation matrix", id="reflection"),
        pytest.param(with_body(inertia=np.triu(np.ones((3, 3)))), "is not symmetric", id="asymmetric-inertia"),
        pytest.param(with_hinge(lower=1.0, upper=-1.0), "lower limit .* is above the upper limit", id="row-18"),
        pytest.param(with_hinge(lower=np.nan), "lower limit", id="row-18-nan"),
        pytest.param(with_hinge(lower=np.inf), "lower limit", id="row-18-inf"),
        pytest.param(with_hinge(mimic=("j", 1.0, 0.0)), "mimic one another: 'j' -> 'j'", id="row-20"),
        pytest.param(with_hinge(armature=-1e-3), "the armature .* not negative", id="row-35-armature"),
        pytest.param(with_hinge(damping=(1.0, 2.0)), r"the damping has shape \(2,\); a revolute", id="row-35-shape"),
        pytest.param(with_hinge(friction=np.inf), "the friction .* must be finite", id="row-35-friction"),
        pytest.param(with_hinge(effort=-1.0), "the effort limit", id="row-35-effort"),
        pytest.param(described(frames=[FrameDescription("f", "c")]), "fixed to link 'c'", id="frame-on-nothing"),
        pytest.param(described(frames=[FrameDescription("b", "a")]), "each link or frame", id="frame-named-as-link"),
    ],
)
def test_descriptions_refused(description: RobotDescription, message: str):
    for policy in ("warn", "strict", "off"):
        with pytest.raises(ModelError, match=message):
            validate_description(description, policy)


@pytest.mark.parametrize(
    ("kind", "refused"),
    [
        ("revolute", False),  # the rod's zero moment is about z, the hinge turns about x
        ("continuous", False),
        ("prismatic", False),
        ("helical", False),
        ("universal", False),
        ("cylindrical", False),
        ("planar", False),
        ("fixed", False),
        ("spherical", True),
        ("free", True),
    ],
)
def test_row_07_every_direction_of_motion_needs_inertia(kind: str, refused: bool):
    """An infinitely thin rod along z does not resist turning about z."""
    rod = dataclasses.replace(BODY, inertia=np.diag([1.0, 1.0, 0.0]))
    description = described(rod, dataclasses.replace(HINGE, kind=kind))
    if refused:
        with pytest.raises(ModelError, match="joint 'j' can move without moving any inertia"):
            validate_description(description)
        description = described(rod, dataclasses.replace(HINGE, kind=kind, armature=0.1))
    assert validate_description(description).joints[0].kind == kind


def test_row_07_armature_stands_in_for_mass():
    massless = LinkDescription("b")
    with pytest.raises(ModelError, match="singular"):
        validate_description(described(massless))
    validate_description(described(massless, dataclasses.replace(HINGE, armature=1e-4)))


def test_row_16_validation_returns_unit_axes_and_leaves_its_argument_alone():
    hinge = dataclasses.replace(HINGE, kind="universal", axis=np.array([0.0, 0, 5]), axis2=np.array([3.0, 0, 4]))
    (joint,) = validate_description(described(hinge=hinge)).joints
    assert_array_equal(joint.axis, [0, 0, 1])
    assert_allclose(joint.axis2, [0.6, 0, 0.8])
    assert_array_equal(hinge.axis, [0, 0, 5])
    assert joint.position is hinge.position
