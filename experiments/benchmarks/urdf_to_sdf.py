"""A stripped URDF (links, inertias, joints) as SDF: joints are placed in their parent links, links in their joints."""

from __future__ import annotations

from xml.etree.ElementTree import Element, SubElement, tostring

from defusedxml import ElementTree


def sdf_text(urdf: str, floating: bool) -> str:
    robot = ElementTree.parse(urdf).getroot()
    sdf = Element("sdf", version="1.10")
    model = SubElement(sdf, "model", name=str(robot.get("name")))
    joint_of = {joint.find("child").get("link"): joint for joint in robot.findall("joint")}
    for link in robot.findall("link"):
        new = SubElement(model, "link", name=str(link.get("name")))
        above = joint_of.get(link.get("name"))
        if above is not None:
            SubElement(new, "pose", relative_to=str(above.get("name"))).text = "0 0 0 0 0 0"
        else:
            root = str(link.get("name"))
        _inertial(new, link.find("inertial"))
    for joint in robot.findall("joint"):
        new = SubElement(model, "joint", name=str(joint.get("name")), type=str(joint.get("type")))
        origin = joint.find("origin")
        parent = joint.find("parent").get("link")
        SubElement(new, "pose", relative_to=parent).text = f"{origin.get('xyz')} {origin.get('rpy')}"
        SubElement(new, "parent").text = parent
        SubElement(new, "child").text = joint.find("child").get("link")
        _axis(new, joint.find("axis").get("xyz"))
    if not floating:
        hold = SubElement(model, "joint", name="hold_base", type="fixed")
        SubElement(hold, "parent").text, SubElement(hold, "child").text = "world", root
        _axis(hold, "0 0 1")
    return tostring(sdf, encoding="unicode")


def _axis(joint: Element, xyz: str) -> None:
    """Fixed joints have one too: JaxSim asks for it."""
    axis = SubElement(joint, "axis")
    SubElement(axis, "xyz").text = xyz
    limit = SubElement(axis, "limit")
    SubElement(limit, "lower").text, SubElement(limit, "upper").text = "-1e16", "1e16"


def _inertial(link: Element, inertial: Element | None) -> None:
    new = SubElement(link, "inertial")
    if inertial is None:
        SubElement(new, "mass").text = "0.0"
        values = dict.fromkeys(("ixx", "ixy", "ixz", "iyy", "iyz", "izz"), "0.0")
    else:
        origin = inertial.find("origin")
        SubElement(new, "pose").text = f"{origin.get('xyz')} {origin.get('rpy')}"
        SubElement(new, "mass").text = inertial.find("mass").get("value")
        values = inertial.find("inertia").attrib
    matrix = SubElement(new, "inertia")
    for key, value in values.items():
        SubElement(matrix, key).text = value
