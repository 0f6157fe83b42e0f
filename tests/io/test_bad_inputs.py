"""Bad inputs, case by case: what is refused, what is warned about, what is accepted, and what the message says."""

import dataclasses
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from jaxsoa.io import _xml, read_urdf, urdf
from jaxsoa.model.description import (
    FrameDescription,
    JointDescription,
    LinkDescription,
    ModelError,
    RobotDescription,
)
from jaxsoa.model.validation import ModelWarning, validate_description


def inertial(mass="1", diagonal=("1", "1", "1"), origin="", off_diagonal="0") -> str:
    xx, yy, zz = diagonal
    tensor = f'<inertia ixx="{xx}" iyy="{yy}" izz="{zz}" ixy="{off_diagonal}" ixz="0" iyz="0"/>'
    return f'<inertial>{origin}<mass value="{mass}"/>{tensor}</inertial>'


def link(name: str, content: str = "") -> str:
    return f'<link name="{name}">{content or inertial()}</link>'


def joint(name: str, parent: str, child: str, kind: str = "continuous", content: str = "") -> str:
    return f'<joint name="{name}" type="{kind}"><parent link="{parent}"/><child link="{child}"/>{content}</joint>'


def robot(*elements: str) -> str:
    return f'<robot name="r">{"".join(elements)}</robot>'


def one_joint(kind: str = "continuous", content: str = "", child: str = "") -> str:
    return robot(link("a"), link("b", child), joint("j", "a", "b", kind, content))


MASSLESS = inertial("0", ("0", "0", "0"))

#: id, XML text, and what the message must contain: the element and the offending value.
REFUSED = [
    ("row-01", one_joint(child=inertial("-2.5")), ["link 'b'", "-2.5", "negative"]),
    ("row-02-mass", one_joint(child=inertial("nan")), ["link 'b'", "'nan'", "not a finite number"]),
    ("row-02-overflow", one_joint(child=inertial("1e999")), ["link 'b'", "'1e999'", "too large"]),
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
    ("row-26-nesting", "<robot>" + "<a>" * 200 + "</a>" * 200 + "</robot>", ["nested deeper", "100"]),
    ("row-26-joints", robot(link("a"), joint("j", "a", "b") * 10_001), ["10001 joints", "10000"]),
    ("row-26-links", robot(link("a") * 10_001), ["10001 links", "10000"]),
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


@pytest.mark.parametrize(
    ("content", "fragments"),
    [
        pytest.param(b"", ["line 1", "empty"], id="row-22-empty"),
        pytest.param(b"  \n ", ["line 1", "empty"], id="row-22-blank"),
        pytest.param(b"solid cube\nfacet", ["line 1", "malformed"], id="row-22-not-xml"),
        pytest.param(b"\x89PNG\r\n\x00\x00", ["line 1", "malformed"], id="row-22-binary"),
        pytest.param(b'<robot>\n<link name="\xff"/></robot>', ["line 2", "malformed"], id="row-22-bad-bytes"),
        pytest.param(b'<?xml version="1.0" encoding="klingon"?><robot/>', ["encoding"], id="row-22-unknown-encoding"),
        pytest.param(b'<?xml version="1.0" encoding="utf-32"?><robot/>', ["robot.urdf"], id="row-22-other-encoding"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, content: bytes, fragments: list[str]):
    path = tmp_path / "robot.urdf"
    path.write_bytes(content)
    with pytest.raises(ModelError) as caught:
        read_urdf(path)
    for fragment in [str(path), *fragments]:
        assert fragment in str(caught.value)


@pytest.mark.parametrize(
    "source", ["no/such/file.urdf", Path("no/such/file.urdf"), "not a file " * 1000, "a\0b", b"<robot/>", None, 3]
)
def test_sources_that_cannot_be_read(source):
    with pytest.raises(ModelError, match=r"cannot be read|must be a path or XML text") as caught:
        read_urdf(source)
    assert len(str(caught.value)) < 500


def test_a_directory_is_not_a_robot(tmp_path: Path):
    with pytest.raises(ModelError, match="cannot be read"):
        read_urdf(tmp_path)


def test_row_24_entities_are_refused_before_expansion():
    """Ten levels of ten would be ten thousand million words."""
    levels = "".join(f'<!ENTITY e{k + 1} "{f"&e{k};" * 10}">' for k in range(10))
    start = time.perf_counter()
    with pytest.raises(ModelError, match="entities are refused"):
        read_urdf(f'<!DOCTYPE r [<!ENTITY e0 "word">{levels}]><robot name="&e10;"/>')
    assert time.perf_counter() - start < 1.0


def test_row_26_limits_are_documented_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert (_xml.MAX_BYTES, _xml.MAX_DEPTH, _xml.MAX_ELEMENTS, urdf.MAX_LINKS) == (64 * 2**20, 100, 1_000_000, 10_000)
    path = tmp_path / "big.urdf"
    path.write_text(robot(link("a")))
    read_urdf(path)
    monkeypatch.setattr(_xml, "MAX_ELEMENTS", 3)
    with pytest.raises(ModelError, match="more than the limit of 3 elements"):
        read_urdf(path)
    monkeypatch.setattr(_xml, "MAX_BYTES", 50)
    for source in (path, path.read_text()):
        with pytest.raises(ModelError, match="larger than the limit of 50 bytes"):
            read_urdf(source)


def test_row_26_the_largest_robot_allowed_is_read_quickly():
    """A chain of 10,000 links, half of them massless, so that the mass matrix is examined too."""
    links = [link(f"l{k}", inertial() if k % 2 else MASSLESS) for k in range(urdf.MAX_LINKS)]
    axes = ('<axis xyz="1 0 0"/>', '<axis xyz="0 1 0"/><origin xyz="1 0 0"/>')
    joints = [joint(f"j{k}", f"l{k}", f"l{k + 1}", content=axes[k % 2]) for k in range(urdf.MAX_LINKS - 1)]
    start = time.perf_counter()
    assert len(read_urdf(robot(*links, *joints)).links) == urdf.MAX_LINKS
    assert time.perf_counter() - start < 20.0


# Descriptions that no file wrote -----------------------------------------------------------------------------------

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
