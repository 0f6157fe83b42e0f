"""Bad inputs, case by case: what is refused, what is warned about, what is accepted, and what the message says."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from urdf_text import MASSLESS, inertial, joint, link, one_joint, robot

import jaxsoa as soa
from jaxsoa import closed_chain as cc
from jaxsoa.io import read_urdf
from jaxsoa.model.description import (
    ModelError,
)
from jaxsoa.model.validation import ModelWarning

#: id, XML text, and what the message must contain: the element and the offending value.
REFUSED = [
    ("row-01", one_joint(child=inertial("-2.5")), ["link 'b'", "-2.5", "negative"]),
    ("row-02-mass", one_joint(child=inertial("nan")), ["link 'b'", "'nan'", "not a finite number"]),
    ("row-02-overflow", one_joint(child=inertial("1e999")), ["link 'b'", "'1e999'", "too large"]),
    ("row-02-huge", one_joint(child=inertial("1e31")), ["link 'b'", "'1e31'", "too large; at most 1e+30"]),
    ("row-02-huge-origin", one_joint(content='<origin xyz="0 -1e200 0"/>'), ["joint 'j'", "'-1e200'", "too large"]),
    ("row-02-inertia", one_joint(child=inertial(diagonal=("1", "inf", "1"))), ["link 'b'", "iyy", "'inf'"]),
    ("row-02-com", one_joint(child=inertial(origin='<origin xyz="0 NaN 0"/>')), ["link 'b'", "xyz", "'NaN'"]),
    ("row-02-origin", one_joint(content='<origin xyz="0 0 -inf"/>'), ["joint 'j'", "<origin xyz", "'-inf'"]),
    ("row-02-axis", one_joint(content='<axis xyz="nan 0 0"/>'), ["joint 'j'", "<axis xyz", "'nan'"]),
    ("row-02-damping", one_joint(content='<dynamics damping="inf"/>'), ["joint 'j'", "<dynamics damping", "'inf'"]),
    ("row-03-word", one_joint(child=inertial("abc")), ["link 'b'", "<mass value='abc'>", "not a finite number"]),
    ("row-03-comma", one_joint(child=inertial("1,5")), ["link 'b'", "'1,5'", "separator is a point"]),
    ("row-03-xacro", one_joint(child=inertial("${m}")), ["link 'b'", "'${m}'", "xacro"]),
    ("row-03-xacro-vector", one_joint(content='<origin xyz="${a + b}"/>'), ["joint 'j'", "${a", "xacro"]),
    ("row-03-underscore", one_joint(child=inertial("1_000")), ["'1_000'"]),
    ("row-03-other-digits", one_joint(child=inertial("١")), ["'١'"]),
    ("row-03-hexadecimal", one_joint(child=inertial("0x10")), ["'0x10'"]),
    ("row-03-empty", one_joint(child=inertial("")), ["link 'b'", "<mass> has no value"]),
    ("row-03-macro-element", robot(link("a"), '<x:macro xmlns:x="http://www.ros.org/wiki/xacro"/>'), ["<xacro:macro>"]),
    ("row-07", one_joint(child=MASSLESS), ["joint 'j'", "without mass and inertia ('b')", "singular", "armature"]),
    (
        "row-07-beyond-fixed-joints",
        robot(link("a"), link("b", MASSLESS), link("c", MASSLESS), joint("j", "a", "b"), joint("f", "b", "c", "fixed")),
        ["joint 'j'", "('b', 'c')", "singular"],
    ),
    (
        "row-07-point-mass-on-the-axis",
        one_joint(child=inertial("1", ("0", "0", "0"), '<origin xyz="0.3 0 0"/>')),
        ["joint 'j'", "'b'", "without moving any inertia"],
    ),
    (
        "row-08-two-joints-on-one-axis",
        robot(link("a"), link("b", MASSLESS), link("c"), joint("j", "a", "b"), joint("k", "b", "c")),
        ["joint 'j'", "without moving any inertia", "singular"],
    ),
    (
        "row-08-four-joints-about-one-point",
        robot(
            *(link(name, MASSLESS) for name in "abcd"),
            link("e"),
            joint("j", "a", "b", content='<axis xyz="1 2 3"/>'),
            joint("k", "b", "c"),
            joint("l", "c", "d", content='<axis xyz="0 1 0"/>'),
            joint("m", "d", "e", content='<axis xyz="0.1 0 1"/>'),
        ),
        ["joint 'j'", "without moving any inertia", "singular"],
    ),
    (
        "row-08-massless-link-before-a-floating-one",
        robot(link("a"), link("b", MASSLESS), link("c"), joint("j", "a", "b"), joint("k", "b", "c", "floating")),
        ["joint 'j'", "without moving any inertia", "singular"],
    ),
    ("row-10", robot(link("a"), link("b"), link("c"), joint("j", "a", "b")), ["not connected", "'a', 'c'"]),
    (
        "row-11",
        robot(link("a"), link("b"), link("c"), joint("j", "a", "b"), joint("k", "b", "c"), joint("l", "c", "a")),
        ["cycle", "'a'", "'b'", "'c'", "loop constraint"],
    ),
    ("row-11-self", robot(link("a"), joint("j", "a", "a")), ["cycle", "'a' -> 'a'"]),
    (
        "row-11-beside-a-root",
        robot(link("a"), link("b"), link("c"), joint("k", "b", "c"), joint("l", "c", "b")),
        ["cycle", "'b' -> 'c'"],
    ),
    (
        "row-12",
        robot(link("a"), link("b"), link("c"), joint("j", "a", "b"), joint("k", "a", "c"), joint("l", "c", "b")),
        ["link 'b'", "'j' and 'l'", "loop constraint"],
    ),
    ("row-13-link", robot(link("a"), link("b"), link("b"), joint("j", "a", "b")), ["each link", "'b'"]),
    (
        "row-13-joint",
        robot(link("a"), link("b"), link("c"), joint("j", "a", "b"), joint("j", "a", "c")),
        ["each joint", "'j'"],
    ),
    ("row-13-no-name", robot("<link/>"), ["<link> has no name"]),
    ("row-14-unknown", one_joint("spring"), ["joint 'j'", "'spring'", "revolute, continuous, prismatic, planar"]),
    ("row-14-missing", one_joint().replace('type="continuous"', ""), ["joint 'j' has no type", "revolute"]),
    ("row-15-child", robot(link("arm"), joint("j", "arm", "bb")), ["joint 'j'", "child link 'bb'", "not exist"]),
    (
        "row-15-parent",
        robot(link("upper_arm"), link("b"), joint("j", "uper_arm", "b")),
        ["joint 'j'", "parent link 'uper_arm'", "mean 'upper_arm'?"],
    ),
    ("row-15-no-child", one_joint().replace('<child link="b"/>', ""), ["joint 'j'", "no <child>"]),
    ("row-16", one_joint(content='<axis xyz="0 0 0"/>'), ["joint 'j'", "[0.0, 0.0, 0.0]", "zero"]),
    ("row-17-axis", one_joint(content='<axis xyz="0 1"/>'), ["joint 'j'", "<axis xyz='0 1'>", "2 numbers"]),
    ("row-17-origin", one_joint(content='<origin rpy="0 0 0 1"/>'), ["joint 'j'", "4 numbers"]),
    ("row-17-blank", one_joint(content='<origin xyz=" "/>'), ["joint 'j'", "0 numbers"]),
    (
        "row-17-scalar",
        one_joint("revolute", '<limit lower="0 1" upper="2"/>'),
        ["joint 'j'", "<limit lower='0 1'>", "not a finite number"],
    ),
    ("row-18", one_joint("revolute", '<limit lower="2" upper="1"/>'), ["joint 'j'", "2.0", "above", "1.0"]),
    (
        "row-19-target",
        robot(
            link("a"),
            link("b"),
            link("c"),
            joint("j", "a", "b", "floating"),
            joint("k", "b", "c", content='<mimic joint="j"/>'),
        ),
        ["'k' mimics 'j'", "'j' is free"],
    ),
    (
        "row-19-own",
        robot(
            link("a"), link("b"), link("c"), joint("j", "a", "b"), joint("k", "b", "c", "planar", '<mimic joint="j"/>')
        ),
        ["'k' mimics 'j'", "'k' is planar"],
    ),
    ("row-20-unknown", one_joint(content='<mimic joint="q"/>'), ["joint 'j' mimics 'q'", "does not exist"]),
    ("row-20-itself", one_joint(content='<mimic joint="j"/>'), ["mimic one another", "'j' -> 'j'"]),
    (
        "row-20-cycle",
        robot(
            link("a"),
            link("b"),
            link("c"),
            joint("j", "a", "b", content='<mimic joint="k"/>'),
            joint("k", "b", "c", content='<mimic joint="j"/>'),
        ),
        ["mimic one another", "'j' -> 'k' -> 'j'"],
    ),
    ("row-20-number", one_joint(content='<mimic joint="j" multiplier="x"/>'), ["joint 'j'", "<mimic multiplier='x'>"]),
    ("row-22-truncated", robot(link("a"))[:-20], ["line 1", "malformed"]),
    ("row-22-two-roots", "<robot/>\n<robot/>", ["line 2", "malformed", "junk after document element"]),
    ("row-22-mismatched", '<robot>\n<link name="a">\n</robot>', ["line 3", "mismatched tag"]),
    ("row-22-leading-lines", '\n\n<robot>\n<link name="a">\n</robot>', ["line 5", "mismatched tag"]),
    ("row-22-lone-surrogate", robot(link("\ud800")), ["cannot be decoded"]),
    ("row-22-empty-text", "", ["empty"]),
    ("row-23-root", "<mujoco/>", ["<mujoco>", "<robot>"]),
    ("row-23-no-links", robot(), ["no <link>"]),
    ("row-24-dtd", "<!DOCTYPE robot>" + robot(link("a")), ["<!DOCTYPE", "DTDForbidden"]),
    ("row-24-entity", '<!DOCTYPE r [<!ENTITY m "5">]>' + one_joint(child=inertial("&m;")), ["entities are refused"]),
    (
        "row-24-external",
        '<!DOCTYPE r [<!ENTITY m SYSTEM "file:///etc/hostname">]><robot>&m;</robot>',
        ["entities are refused"],
    ),
    ("row-24-undeclared", "<robot>&m;</robot>", ["line 1", "undefined entity"]),
    ("row-26-name", robot(link("a" * 251)), ["251 characters", "250"]),
    ("row-26-nesting", "<robot>" + "<a>" * 200 + "</a>" * 200 + "</robot>", ["nested deeper", "100"]),
    ("row-26-joints", robot(link("a"), joint("j", "a", "b") * 10_001), ["more joints", "limit of 10000"]),
    ("row-26-links", robot(link("a") * 10_001), ["more links", "limit of 10000"]),
    ("row-35-damping", one_joint(content='<dynamics damping="-1"/>'), ["joint 'j'", "damping [-1.0]", "negative"]),
    ("row-35-friction", one_joint(content='<dynamics friction="-1"/>'), ["joint 'j'", "friction [-1.0]", "negative"]),
    ("ambiguous-inertial", one_joint(child=inertial() + inertial("2")), ["link 'b'", "2 <inertial>"]),
    ("no-inertia", one_joint(child='<inertial><mass value="1"/></inertial>'), ["link 'b'", "no <inertia>"]),
    ("half-an-inertia", one_joint(child=inertial().replace('iyz="0"', "")), ["link 'b'", "<inertia> has no iyz"]),
]


@pytest.mark.parametrize(("xml", "fragments"), [pytest.param(*case[1:], id=case[0]) for case in REFUSED])
@pytest.mark.parametrize("policy", ["warn", "strict", "off"])
def test_refused(xml: str, fragments: list[str], policy: str):
    with pytest.raises(ModelError) as caught:
        read_urdf(xml, validate=policy)
    for fragment in fragments:
        assert fragment in str(caught.value)


#: id, XML text, and what the one warning must contain; "strict" turns it into an error, "off" into silence.
MATTERS_OF_POLICY = [
    ("row-04", one_joint(child=inertial(off_diagonal="2")), ["positive semidefinite", "'b': (-1, 1, 3)"]),
    ("row-05", one_joint(child=inertial(diagonal=("1", "2", "5"))), ["triangle inequality", "'b': (1, 2, 5)"]),
    ("row-09", one_joint(child=inertial(mass="0")), ["without mass", "'b': (1, 1, 1)"]),
]


@pytest.mark.parametrize(("xml", "fragments"), [pytest.param(*case[1:], id=case[0]) for case in MATTERS_OF_POLICY])
def test_matters_of_policy(xml: str, fragments: list[str]):
    with pytest.warns(ModelWarning) as record:
        loaded = read_urdf(xml)
    with pytest.raises(ModelError) as caught:
        read_urdf(xml, validate="strict")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        silent = read_urdf(xml, validate="off")
    assert len(record) == 1
    for message in (str(record[0].message), str(caught.value)):
        for fragment in fragments:
            assert fragment in message
    assert_array_equal(loaded.links[1].inertia, silent.links[1].inertia)  # loaded as written, not repaired


def test_one_warning_per_kind_of_fault_however_many_links():
    bad = [link(f"b{k}", inertial(diagonal=("1", "1", "9"))) for k in range(15)]
    joints = [joint(f"j{k}", "a", f"b{k}") for k in range(15)]
    with pytest.warns(ModelWarning) as record:
        read_urdf(robot(link("a"), *bad, *joints))
    assert len(record) == 1
    assert "'b0'" in str(record[0].message)
    assert "and 5 more" in str(record[0].message)


def test_bounds_that_are_met_exactly_are_no_fault():
    """A thin plate meets the triangle inequality with equality, a thin rod has a zero moment."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for diagonal in (("0.1", "0.2", "0.3"), ("0", "1", "1"), ("1", "0.9999999999", "2")):
            read_urdf(
                one_joint("prismatic", '<limit lower="0" upper="1"/>', inertial(diagonal=diagonal)), validate="strict"
            )


def test_unknown_policy():
    with pytest.raises(ValueError, match="'lenient'"):
        read_urdf(robot(link("a")), validate="lenient")


#: id and XML text of what is loaded without a word.
ACCEPTED = [
    (
        "row-06",
        robot(link("a"), link("b"), link("tool", MASSLESS), joint("j", "a", "b"), joint("f", "b", "tool", "fixed")),
    ),
    (
        "row-08",  # a gimbal of massless rings
        robot(
            link("a"),
            link("b", MASSLESS),
            link("c", MASSLESS),
            link("d"),
            joint("j", "a", "b", content='<axis xyz="1 0 0"/>'),
            joint("k", "b", "c", content='<axis xyz="0 1 0"/>'),
            joint("l", "c", "d", content='<axis xyz="0 0 1"/>'),
        ),
    ),
    (
        "row-08-gimbal-lock",  # singular at the neutral configuration only
        robot(
            link("a"),
            link("b", MASSLESS),
            link("c", MASSLESS),
            link("d"),
            joint("j", "a", "b", content='<axis xyz="0 0 1"/>'),
            joint("k", "b", "c", content='<axis xyz="0 1 0"/>'),
            joint("l", "c", "d", content='<axis xyz="0 0 1"/>'),
        ),
    ),
    ("row-08-point-mass-on-a-massless-rod", one_joint(child=inertial("1", ("0", "0", "0"), '<origin xyz="0 0 1"/>'))),
    (
        "row-19-massless-follower",  # moves with its leader, which has inertia
        robot(
            link("a"),
            link("b"),
            link("c", MASSLESS),
            joint("j", "a", "b"),
            joint("k", "b", "c", content='<mimic joint="j"/>'),
        ),
    ),
    (
        "row-25",
        robot(
            '<link name="a">'
            + "".join(
                f'<visual><geometry><mesh filename="{path}"/></geometry></visual>'
                for path in ("../../secret.stl", "/etc/passwd", "http://example.invalid/x.stl")
            )
            + "</link>"
        ),
    ),
]


@pytest.mark.parametrize("xml", [pytest.param(xml, id=row) for row, xml in ACCEPTED])
def test_accepted(xml: str):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_urdf(xml, validate="strict").links


def test_row_16_axes_are_normalized():
    assert_allclose(read_urdf(one_joint(content='<axis xyz="0 -3e-5 4e-5"/>')).joints[0].axis, [0, -0.6, 0.8])


@pytest.mark.parametrize("kind", ["revolute", "prismatic"])
def test_row_18_no_limit_is_unlimited_with_a_warning(kind: str):
    with pytest.warns(ModelWarning, match=r"unlimited: j\."):
        loaded = read_urdf(one_joint(kind))
    assert (loaded.joints[0].lower, loaded.joints[0].upper) == (-np.inf, np.inf)


@pytest.mark.parametrize("normal", [(0, 0, 1), (0, 1, 0), (1, 0, 0), (1, 2, -3)])
def test_row_21_planar_keeps_its_normal(normal: tuple[float, float, float]):
    xyz = " ".join(map(str, normal))
    (planar,) = read_urdf(one_joint("planar", f'<axis xyz="{xyz}"/>')).joints
    assert planar.kind == "planar"
    assert_allclose(planar.axis, np.array(normal) / np.linalg.norm(normal))
    assert_allclose([planar.axis @ planar.axis2, planar.axis2 @ planar.axis2], [0, 1], atol=1e-15)
    if normal == (0, 0, 1):
        assert_array_equal(planar.axis2, [1, 0, 0])


def test_row_21_floating_is_free():
    (free,) = read_urdf(one_joint("floating", '<axis xyz="0 0 0"/><dynamics damping="2"/>')).joints
    assert (free.kind, free.damping) == ("free", 2.0)


def test_row_19_mimics_are_named_when_a_robot_is_made():
    """Open-chain dynamics leaves them free: never silently."""
    xml = robot(
        link("a"), link("b"), link("c"), joint("j", "a", "b"), joint("k", "b", "c", content='<mimic joint="j"/>')
    )
    with pytest.warns(ModelWarning, match=r"joints k mimic others.*mimic_couplings"):
        loaded = soa.load_urdf(xml)
    assert loaded.topology.mimics == (("k", "j", 1.0, 0.0),)
    with pytest.raises(ModelError, match="joints k mimic others"):
        soa.load_urdf(xml, validate="strict")


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        pytest.param(
            lambda arm: cc.GraspSystem((cc.Arm(arm, "hnad", (0, 0, 0)),), cc.RigidBody(1.0, inertia=np.eye(3))),
            (KeyError, ModelError),
            "hnad",
            id="row-36-frame",
        ),
        pytest.param(
            lambda arm: cc.RigidBody(0.0, inertia=np.eye(3)), ModelError, "positive, finite mass", id="row-36-mass"
        ),
    ],
)
def test_row_36_grasps_that_cannot_be(make, error, message: str):
    """An arm at a singularity gives a finite answer with its rank: closed_chain/test_grasp.py."""
    with pytest.raises(error, match=message):
        make(soa.models.planar_arm(2))
