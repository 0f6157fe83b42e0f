"""The robots, as one URDF file each that every contender reads, and the states, in NumPy.

Geometry, damping, friction and transmissions are taken out of the files, so that all libraries compute the same smooth
dynamics, and continuous joints become revolute ones, because Pinocchio stores the former as (cosine, sine).
"""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path
from xml.etree.ElementTree import Element, SubElement

import numpy as np
from defusedxml import ElementTree

WORLD = "world"


@dataclass(frozen=True)
class Robot:
    name: str
    urdf: str  # path
    floating: bool
    joints: tuple[str, ...]  # names in the file's order: the order of all states and answers


def make_robot(name: str, folder: Path) -> Robot:
    """Write the robot's file into the folder. FileNotFoundError says what to install where a source is missing."""
    path = folder / f"{name}.urdf"
    if name.startswith("chain-"):
        import jaxsoa as soa  # here, so that workers need not import it

        soa.save_urdf(soa.models.chain(int(name.split("-")[1])), path, validate="off")
        root = ElementTree.parse(path).getroot()
    else:
        root = ElementTree.parse(_source(name)).getroot()
    joints = _strip(root)
    path.write_text(ElementTree.tostring(root, encoding="unicode"), encoding="utf-8")
    return Robot(name, str(path), name in ("quadruped", "humanoid"), joints)


def _source(name: str) -> Path:
    if name == "quadruped":
        inside = Path("cmeel.prefix/share/example-robot-data/robots/go2_description/urdf/go2.urdf")
        for folder in sys.path:
            if (Path(folder) / inside).is_file():
                return Path(folder) / inside
        raise FileNotFoundError("the quadruped (Unitree Go2) is a file of example-robot-data, which is not installed")
    inside = {"arm": Path("iiwa/iiwa14.urdf"), "humanoid": Path("unitree_g1/g1_29dof_rev_1_0.urdf")}[name]
    frax = importlib.util.find_spec("frax")
    if frax is None or not frax.submodule_search_locations:
        raise FileNotFoundError(f"the {name} ({inside.name}) is a file of frax, which is not installed")
    return Path(frax.submodule_search_locations[0]) / "assets" / inside


def _strip(root: Element) -> tuple[str, ...]:
    """Leave links, inertias and joints; the names of the moving joints."""
    for child in list(root):
        if child.tag not in ("link", "joint"):
            root.remove(child)
    for link in root.iter("link"):
        for child in list(link):
            if child.tag != "inertial" or float(child.find("mass").get("value")) == 0:  # MuJoCo refuses zeros
                link.remove(child)
    names = []
    for joint in root.findall("joint"):
        for child in list(joint):
            if child.tag not in ("origin", "parent", "child", "axis", "limit"):
                joint.remove(child)
        if joint.get("type") == "continuous":
            joint.set("type", "revolute")
            for limit in joint.findall("limit"):
                joint.remove(limit)
            SubElement(joint, "limit", lower="-1e3", upper="1e3", effort="1e3", velocity="1e3")
        if joint.find("axis") is None:
            SubElement(joint, "axis", xyz="1 0 0")
        if joint.get("type") != "fixed":
            names.append(str(joint.get("name")))
    for element in [*root.iter("inertial"), *root.findall("joint")]:  # defaults written out: not all readers know them
        origin = element.find("origin")
        if origin is None:
            origin = SubElement(element, "origin")
        for key in ("xyz", "rpy"):
            origin.set(key, " ".join(origin.get(key, "0 0 0").split()))
    return tuple(names)


def with_world(urdf: str, joint_type: str) -> str:
    """The file's text with its root hung from a link `world`, for readers that learn from there how the base moves."""
    root = ElementTree.parse(urdf).getroot()
    children = {joint.find("child").get("link") for joint in root.findall("joint")}
    (base,) = [link.get("name") for link in root.findall("link") if link.get("name") not in children]
    if base != WORLD:
        root.insert(0, Element("link", name=WORLD))
        joint = SubElement(root, "joint", name="floating_base", type=joint_type)
        SubElement(joint, "origin", xyz="0 0 0", rpy="0 0 0")
        SubElement(joint, "parent", link=WORLD)
        SubElement(joint, "child", link=base)
    return ElementTree.tostring(root, encoding="unicode")


def make_states(robot: Robot, batch: int, *, slow: bool = False) -> dict[str, np.ndarray]:
    """Random states of joints and base; the first ones are the same for every batch size.

    The base: `quaternion` (w, x, y, z) and `position`, then velocity and acceleration in body axes, `angular`,
    `linear`, `angular_rate`, `linear_rate` (time derivatives of the components). No force acts on it, so the joints'
    answers are the same in whatever coordinates a library keeps its base. `slow`: gentle and without torques, for
    rollouts.
    """
    rng = np.random.default_rng(0)
    n = len(robot.joints)
    entries = rng.uniform(-1, 1, (batch, 4 * n + 19))  # row by row, hence the same first ones
    split = np.split(entries, np.cumsum([n, n, n, n, 4, 3, 3, 3, 3]), axis=1)
    keys = ("q", "v", "tau", "a", "quaternion", "position", "angular", "linear", "angular_rate", "linear_rate")
    states = dict(zip(keys, split, strict=True))
    states["quaternion"] /= np.linalg.norm(states["quaternion"], axis=1, keepdims=True)
    if slow:
        states["tau"] = np.zeros_like(states["tau"])
        for key in ("v", "angular", "linear"):
            states[key] = 0.1 * states[key]
    return states
