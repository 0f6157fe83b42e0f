"""URDF to a `RobotDescription`: strict, on the host, and silent about nothing that changes the dynamics.

Only what moves a robot is read: `<link>` with its `<inertial>`, and `<joint>`. Visuals, collisions, materials,
transmissions and simulator extensions are skipped, and no mesh is ever opened.

Limits: `MAX_LINKS` links and as many joints, `MAX_NAME` characters in a name, numbers up to `MAX_NUMBER`, and
those of `jaxsoa.io._xml` on size, nesting and element count.
"""

from __future__ import annotations

import math
import os
import re
import sys
import warnings
from xml.etree.ElementTree import Element

import numpy as np

from jaxsoa.io._xml import read_xml
from jaxsoa.model.description import JointDescription, LinkDescription, ModelError, RobotDescription, abbreviated
from jaxsoa.model.joints import JOINT_KINDS
from jaxsoa.model.validation import MAX_LINKS, ModelWarning, validate_description

#: Characters in a name. Those in circulation have fewer than a hundred.
MAX_NAME = 250

#: Masses, lengths and the like beyond this are refused: their products would overflow, in single precision at once.
MAX_NUMBER = 1e30

#: A limit of this size is none. Most readers of URDF insist on finite limits, so `save_urdf` writes it for infinity.
NO_LIMIT = sys.float_info.max

#: URDF joint types and what the description calls them.
_KINDS = {joint.urdf: name for name, joint in JOINT_KINDS.items() if joint.urdf is not None}
_TYPES_WITH_RANGE = tuple(joint.urdf for joint in JOINT_KINDS.values() if joint.urdf is not None and joint.has_range)

#: A plain decimal number. Python's float() would also take "nan", "1_000" and the digits of other scripts.
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


def read_urdf(source: str | os.PathLike[str], *, validate: str = "warn") -> RobotDescription:
    """The robot that a URDF file describes.

    `source` is a path, or XML text (a string that starts with `<`). `validate` says what happens to link inertias
    that no rigid body can have: "warn" loads them with one `ModelWarning` per kind of fault, "strict" refuses them,
    "off" loads them silently. Every other fault is a `ModelError` whatever `validate` says.

    Defaults are those of the URDF specification: an axis of (1, 0, 0), no mass without `<inertial>`, rotations
    R = Rz(yaw) Ry(pitch) Rx(roll). The normal of a planar joint is its axis; the in-plane x direction, which URDF
    leaves open, is the joint frame's x axis projected on the plane (its y axis when the normal is near x).
    """
    root, file = read_xml(source, {"link": MAX_LINKS, "joint": MAX_LINKS})
    _drop_namespace(root, file)
    if root.tag != "robot":
        raise ModelError(f"{file}: the root element is <{root.tag[:80]}>, but a URDF file starts with <robot>.")
    link_elements, joint_elements = root.findall("link"), root.findall("joint")
    if not link_elements:
        raise ModelError(f"{file}: the robot has no <link>; at least one is needed.")

    description = RobotDescription(
        name=root.get("name", ""),
        links=tuple(_link(element, file) for element in link_elements),
        joints=tuple(_joint(element, file) for element in joint_elements),
        source=file,
    )
    description = validate_description(description, validate)
    _warn_about_missing_ranges(joint_elements, file)
    return description


def _drop_namespace(root: Element, file: str) -> None:
    """Make tags plain words, and refuse unexpanded macros: skipping them as unknown would return half a robot."""
    namespace, brace, _ = root.tag.rpartition("}")
    for element in root.iter():
        element_namespace, _, tag = element.tag.rpartition("}")
        if "xacro" in element_namespace:
            raise ModelError(f"{file}: <xacro:{tag}> has not been expanded; run `xacro` on the file first.")
        element.tag = element.tag.removeprefix(namespace + brace)


def _warn_about_missing_ranges(joint_elements: list[Element], file: str) -> None:
    unlimited, zero_range = [], []
    for element in joint_elements:
        if element.get("type") in _TYPES_WITH_RANGE:
            limit = element.find("limit")
            if limit is None:
                unlimited.append(element.get("name", ""))
            elif "lower" not in limit.attrib and "upper" not in limit.attrib:
                zero_range.append(element.get("name", ""))
    if unlimited:
        message = f"{file}: joints without <limit> are taken as unlimited: {abbreviated(unlimited)}."
        warnings.warn(message, ModelWarning, stacklevel=3)
    if zero_range:
        message = f"{file}: joints whose <limit> has neither lower nor upper get URDF's default, the range from 0 to 0"
        warnings.warn(f"{message}: {abbreviated(zero_range)}.", ModelWarning, stacklevel=3)


# Links and joints -----------------------------------------------------------------------------------------------


def _link(element: Element, file: str) -> LinkDescription:
    name = _required_attribute(element, "name", file)
    where = f"{file}: link {name!r}"
    inertial = _child(element, "inertial", where)
    if inertial is None:
        return LinkDescription(name)
    rotation, com = _origin(inertial, where)
    mass = _required_number(_required_child(inertial, "mass", where), "value", where)
    tensor = _required_child(inertial, "inertia", where)
    xx, yy, zz, xy, xz, yz = (
        _required_number(tensor, attribute, where) for attribute in ("ixx", "iyy", "izz", "ixy", "ixz", "iyz")
    )
    inertia = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
    return LinkDescription(name, mass, com, rotation @ inertia @ rotation.T)


def _joint(element: Element, file: str) -> JointDescription:
    name = _required_attribute(element, "name", file)
    where = f"{file}: joint {name!r}"
    urdf_type = element.get("type", "")
    if urdf_type not in _KINDS:
        fault = f"is of unknown type {urdf_type[:80]!r}" if urdf_type else "has no type"
        raise ModelError(f"{where} {fault}; the types of URDF are {', '.join(_KINDS)}.")
    kind = _KINDS[urdf_type]
    rotation, position = _origin(element, where)
    parent = _required_attribute(_required_child(element, "parent", where), "link", where)
    child = _required_attribute(_required_child(element, "child", where), "link", where)
    if JOINT_KINDS[kind].nv == 0:
        # Exporters leave axes, limits, dynamics and mimics on joints they froze: none of it has a meaning there.
        return JointDescription(name, kind, parent, child, rotation, position)

    axis, axis2 = _axes(element, kind, where)
    dynamics, limit = _child(element, "dynamics", where), _child(element, "limit", where)
    lower, upper = -math.inf, math.inf
    if limit is not None and JOINT_KINDS[kind].has_range:
        lower = _limit_number(limit, "lower", 0.0, where)
        upper = _limit_number(limit, "upper", 0.0, where)
    return JointDescription(
        name,
        kind,
        parent,
        child,
        rotation,
        position,
        axis,
        axis2,
        damping=_number(dynamics, "damping", 0.0, where),
        friction=_number(dynamics, "friction", 0.0, where),
        lower=lower,
        upper=upper,
        effort=_limit_number(limit, "effort", math.inf, where),
        velocity=_limit_number(limit, "velocity", math.inf, where),
        mimic=_mimic(element, where),
    )


def _axes(element: Element, kind: str, where: str) -> tuple[np.ndarray, np.ndarray]:
    """The unit axis, and for a planar joint the in-plane x direction."""
    x, y = np.array([1.0, 0.0, 0.0]), np.array([0.0, 1.0, 0.0])
    if not JOINT_KINDS[kind].reads_axis:
        return x, y
    axis_element = _child(element, "axis", where)
    axis = x if axis_element is None else _vector(axis_element, "xyz", x, where)
    length = np.linalg.norm(axis)
    if not JOINT_KINDS[kind].reads_axis2 or not 0.0 < length < math.inf:
        return axis, y  # validation normalizes the axis, or refuses it
    normal = axis / length
    return normal, planar_x(normal)


def planar_x(normal: np.ndarray) -> np.ndarray:
    """The in-plane x direction of a planar joint with this unit normal, which URDF leaves open."""
    reference = np.array([0.0, 1.0, 0.0]) if abs(normal[0]) > 0.9 else np.array([1.0, 0.0, 0.0])
    in_plane = reference - normal * (normal @ reference)
    return in_plane / np.linalg.norm(in_plane)


def _mimic(element: Element, where: str) -> tuple[str, float, float] | None:
    mimic = _child(element, "mimic", where)
    if mimic is None:
        return None
    target = _required_attribute(mimic, "joint", where)
    return target, _number(mimic, "multiplier", 1.0, where), _number(mimic, "offset", 0.0, where)


def _origin(element: Element, where: str) -> tuple[np.ndarray, np.ndarray]:
    """Rotation R = Rz(yaw) Ry(pitch) Rx(roll) and position of `<origin>`; the identity where there is none."""
    origin = _child(element, "origin", where)
    if origin is None:
        return np.eye(3), np.zeros(3)
    roll, pitch, yaw = _vector(origin, "rpy", np.zeros(3), where)
    (sr, cr), (sp, cp), (sy, cy) = ((math.sin(angle), math.cos(angle)) for angle in (roll, pitch, yaw))
    rotation = np.array(
        [
            [cy * cp, cy * sp * sr - sy * cr, cy * sp * cr + sy * sr],
            [sy * cp, sy * sp * sr + cy * cr, sy * sp * cr - cy * sr],
            [-sp, cp * sr, cp * cr],
        ]
    )
    return rotation, _vector(origin, "xyz", np.zeros(3), where)


# Elements, attributes and numbers -------------------------------------------------------------------------------


def _child(element: Element, tag: str, where: str) -> Element | None:
    children = element.findall(tag)
    if len(children) > 1:
        raise ModelError(f"{where} has {len(children)} <{tag}> elements in <{element.tag}>; at most one can count.")
    return children[0] if children else None


def _required_child(element: Element, tag: str, where: str) -> Element:
    child = _child(element, tag, where)
    if child is None:
        raise ModelError(f"{where}: <{element.tag}> has no <{tag}>, which URDF requires.")
    return child


def _required_attribute(element: Element, attribute: str, where: str) -> str:
    value = element.get(attribute, "")
    if not value.strip():
        raise ModelError(f"{where}: a <{element.tag}> has no {attribute}, which URDF requires.")
    if len(value) > MAX_NAME:
        raise ModelError(f"{_place(element, attribute, where)} has {len(value)} characters; the limit is {MAX_NAME}.")
    return value


def _required_number(element: Element, attribute: str, where: str) -> float:
    return _parse(_required_attribute(element, attribute, where), element, attribute, where)


def _number(element: Element | None, attribute: str, default: float, where: str, *, infinite: bool = False) -> float:
    text = None if element is None else element.get(attribute)
    return default if element is None or text is None else _parse(text, element, attribute, where, infinite=infinite)


def _limit_number(element: Element | None, attribute: str, default: float, where: str) -> float:
    value = _number(element, attribute, default, where, infinite=True)
    return math.copysign(math.inf, value) if abs(value) == NO_LIMIT else value


def _length(element: Element, attribute: str, where: str) -> float:
    """An attribute of a shape: radius or length."""
    try:
        value = float(element.get(attribute, ""))
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise ModelError(f"{where}: the {attribute} of <{element.tag}> is {element.get(attribute)!r}, not a length.")
    return value


def _vector(element: Element, attribute: str, default: np.ndarray, where: str) -> np.ndarray:
    text = element.get(attribute)
    if text is None:
        return default
    words = text.split()
    if len(words) != 3 and "$" not in text:  # an unexpanded macro is better explained as such
        raise ModelError(f"{_place(element, attribute, where)} has {len(words)} numbers; three are needed.")
    return np.array([_parse(word, element, attribute, where) for word in words])


def _parse(word: str, element: Element, attribute: str, where: str, *, infinite: bool = False) -> float:
    """The number that `word` is; infinity only where it says that there is no limit."""
    word = word.strip()
    if infinite and word.lower().lstrip("+-") in ("inf", "infinity"):
        return float(word)
    if not _DECIMAL.fullmatch(word):
        hint = "write it as 1.5 or 1.5e-3"
        if "${" in word or "$(" in word:
            hint = "this looks like xacro, run `xacro` on the file first"
        elif "," in word:
            hint = "the decimal separator is a point"
        raise ModelError(f"{_place(element, attribute, where)}: {word[:80]!r} is not a finite number; {hint}.")
    value = float(word)
    if not math.isfinite(value) or (abs(value) > MAX_NUMBER and not infinite):
        raise ModelError(f"{_place(element, attribute, where)}: {word[:80]!r} is too large; at most {MAX_NUMBER:g}.")
    return value


def _place(element: Element, attribute: str, where: str) -> str:
    return f"{where}: <{element.tag} {attribute}={element.get(attribute, '')[:80]!r}>"
