"""`Multibody` to URDF: everything that URDF can say, exactly; a `ModelError` or a warning for the rest.

Numbers are written with the digits that bring the same double back. URDF has no universal and cylindrical joints: they
become two joints with a massless link between them, with the same coordinates in the same order. Planar joints whose x
direction is not the one that `read_urdf` would choose, or whose damping differs between directions, become two
prismatic joints and a continuous one.
"""

from __future__ import annotations

import dataclasses
import math
import os
import re
import warnings
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

import jax
import numpy as np

from jaxsoa.io._leaves import leaves_of
from jaxsoa.io._names import unique
from jaxsoa.io.urdf import NO_LIMIT, planar_x
from jaxsoa.model.assemble import FRICTION_VELOCITY
from jaxsoa.model.description import ModelError, abbreviated
from jaxsoa.model.joints import JOINT_KINDS
from jaxsoa.model.multibody import Multibody
from jaxsoa.model.validation import POLICIES, ModelWarning

#: Characters that XML 1.0 cannot hold, and those that make a name invisible to other tools.
_BAD_NAME = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|^\\s*$")


def save_urdf(robot: Multibody, path: str | os.PathLike[str], *, validate: str = "warn") -> None:
    """Write a robot as a URDF file that `load_urdf` reads back to the same dynamics.

    Links, joints, inertias, damping, friction, limits, mimics and frames are written; frames as massless links on fixed
    joints. URDF has no place for gravity, armature, springs and the velocity scale of friction: where they differ from
    what a loaded file gets, `validate` says what happens: "warn" (a `ModelWarning`), "strict" (a `ModelError`), "off".
    Spherical and helical joints, and a free joint whose damping differs between directions, are a `ModelError`.

    What is fixed to the base was merged into it when the robot was made, so the base link is written without mass; a
    file meant to be read with `floating_base=True` is best saved from a robot that was. No meshes are written.

    >>> soa.save_urdf(robot, "robot.urdf")
    >>> print(soa.load_urdf("robot.urdf").frame_names)
    ('base', 'link1', 'link2', 'tip')
    """
    text = urdf_text(robot, validate=validate)
    Path(path).write_text(text, encoding="utf-8")


def urdf_text(robot: Multibody, *, validate: str = "warn") -> str:
    """The file that `save_urdf` writes."""
    if validate not in POLICIES:
        raise ValueError(f"The validation policy must be one of {', '.join(POLICIES)}, but it is {validate!r}.")
    leaves_of(robot)  # refuses what is not one model
    _report_what_is_lost(robot, validate)
    root = _Exporter(robot).robot_element()
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def _report_what_is_lost(robot: Multibody, validate: str) -> None:
    lost = []
    if not np.array_equal(robot.gravity, np.array([0.0, 0.0, -9.81], robot.dtype)):
        lost.append(f"gravity {np.asarray(robot.gravity).tolist()}")
    owners = [robot.joint_names[robot.topology.dof_link[k]] for k in np.flatnonzero(robot.armature)]
    if owners:
        lost.append(f"armature of joints {abbreviated(list(dict.fromkeys(owners)))}")
    if np.any(robot.stiffness):
        sprung = [robot.joint_names[robot.topology.dof_link[k]] for k in np.flatnonzero(robot.stiffness)]
        lost.append(f"springs of joints {abbreviated(list(dict.fromkeys(sprung)))}")
    if np.any(robot.friction) and not np.isclose(robot.friction_velocity, FRICTION_VELOCITY):
        lost.append(f"friction velocity {float(robot.friction_velocity)}")
    for name, kind, dofs in zip(robot.joint_names, robot.topology.kinds, robot.topology.v_slices, strict=True):
        lower, upper, *others = (np.asarray(x)[dofs] for x in jax.tree.leaves(robot.limits))
        floats = JOINT_KINDS[kind].position is not None
        if floats and (np.isfinite([lower, upper]).any() or not all(_uniform(x) for x in others)):
            lost.append(f"limits of joint {name}")
    if lost and validate != "off":
        message = f"URDF has no place for the following of robot {robot.name!r}: {'; '.join(lost)}."
        if validate == "strict":
            raise ModelError(message)
        warnings.warn(message, ModelWarning, stacklevel=4)


@dataclasses.dataclass(frozen=True)
class _Single:
    """One joint of the file: a piece of a joint of the robot, with the degrees of freedom that are its own."""

    name: str
    kind: str
    axis: np.ndarray
    dofs: slice


class _Exporter:
    def __init__(self, robot: Multibody):
        # Doubles hold every other type exactly.
        self.robot = jax.tree.map(lambda leaf: np.asarray(leaf, dtype=np.float64), robot)
        topology = robot.topology
        for name in (robot.name or "robot", *robot.link_names, *robot.joint_names, *robot.frame_names):
            if _BAD_NAME.search(name):
                raise ModelError(f"Robot {robot.name!r}: {name!r} cannot be a name in an XML file.")
        self.links = {*robot.link_names, *robot.frame_names}
        self.joints = set(robot.joint_names)
        self.mimics = {joint: (target, ratio, offset) for joint, target, ratio, offset in topology.mimics}
        self.base = self._base_frame()

    def robot_element(self) -> Element:
        robot, topology = self.robot, self.robot.topology
        root = Element("robot", name=robot.name)
        base = self.base
        if not _is_identity(robot.base_rotation, robot.base_position):
            world = unique("world", self.links)
            SubElement(root, "link", name=world)
            placement = unique(f"{base}_placement", self.joints)
            self._fixed(root, placement, world, base, robot.base_rotation, robot.base_position)
        SubElement(root, "link", name=base)
        for link in range(robot.n_links):
            parent = topology.parents[link]
            self._moving(root, link, base if parent < 0 else robot.link_names[parent])
        for number, name in enumerate(robot.frame_names):
            carrier = topology.frame_links[number]
            owner = base if carrier < 0 else robot.link_names[carrier]
            if name == owner:
                continue
            SubElement(root, "link", name=name)
            fixed = unique(f"{name}_fixed", self.joints)
            self._fixed(root, fixed, owner, name, robot.frame_rotation[number], robot.frame_position[number])
        return root

    def _base_frame(self) -> str:
        """The frame that is the base itself, or a name for it."""
        robot = self.robot
        for number, (name, carrier) in enumerate(zip(robot.frame_names, robot.topology.frame_links, strict=True)):
            if carrier < 0 and _is_identity(robot.frame_rotation[number], robot.frame_position[number]):
                return name
        return unique("base", self.links)

    # --- joints --------------------------------------------------------------------------------------------------

    def _moving(self, root: Element, link: int, parent: str) -> None:
        """A link and what moves it: as many joints of the file as it takes, with massless links between them."""
        robot = self.robot
        singles = self._singles(link)
        rotation, position = robot.joint_rotation[link], robot.joint_position[link]
        for k, single in enumerate(singles):
            last = k == len(singles) - 1
            child = robot.link_names[link] if last else unique(f"{robot.link_names[link]}_{k + 1}", self.links)
            element = SubElement(root, "link", name=child)
            if last:
                self._inertial(element, link)
            joint = SubElement(root, "joint", name=single.name, type=JOINT_KINDS[single.kind].urdf or "")
            self._placement(joint, parent, child, rotation, position)
            if JOINT_KINDS[single.kind].reads_axis:
                SubElement(joint, "axis", xyz=_words(single.axis))
            self._limit(joint, single)
            self._dynamics(joint, single)
            if single.name in self.mimics:
                target, multiplier, offset = self.mimics[single.name]
                SubElement(joint, "mimic", joint=target, multiplier=_word(multiplier), offset=_word(offset))
            parent, rotation, position = child, np.eye(3), np.zeros(3)

    def _singles(self, link: int) -> list[_Single]:
        robot = self.robot
        name, kind, dofs = robot.joint_names[link], robot.topology.kinds[link], robot.topology.v_slices[link]
        axis, axis2 = _unit(robot.axis[link]), _unit(robot.axis2[link])
        joint = JOINT_KINDS[kind]
        parts = joint.parts(axis, axis2)
        if parts and not (joint.urdf is not None and self._plain(axis, parts[0][1], dofs)):
            names = [unique(f"{name}_{k}", self.joints) for k in range(1, len(parts))] + [name]
            singles = []
            for k, (part_name, (part_kind, part_axis)) in enumerate(zip(names, parts, strict=True)):
                dof = dofs.start + k
                singles.append(_Single(part_name, self._with_range(part_kind, dof), part_axis, slice(dof, dof + 1)))
            return singles
        if joint.urdf is None:
            raise ModelError(f"Joint {name!r} of robot {robot.name!r} is {kind}, which URDF cannot say.")
        single = _Single(name, self._with_range(kind, dofs.start), axis, dofs)
        if not (_uniform(robot.damping[dofs]) and _uniform(robot.friction[dofs])):
            raise ModelError(
                f"Joint {name!r} of robot {robot.name!r} is {kind} with damping or friction that differs between its "
                "directions; URDF has one number for all of them."
            )
        return [single]

    def _plain(self, axis: np.ndarray, x: np.ndarray, dofs: slice) -> bool:
        """Whether `read_urdf` gives a planar joint of this normal back as it is."""
        robot, limits = self.robot, self.robot.limits
        alike = all(
            _uniform(values[dofs]) for values in (robot.damping, robot.friction, limits.effort, limits.velocity)
        )
        unlimited = not (np.isfinite(limits.lower[dofs]).any() or np.isfinite(limits.upper[dofs]).any())
        return alike and unlimited and np.allclose(planar_x(axis), x, rtol=0, atol=1e-15)

    def _with_range(self, kind: str, dof: int) -> str:
        """A hinge without a range is what URDF calls continuous, and one with a range revolute."""
        limits, joint = self.robot.limits, JOINT_KINDS[kind]
        limited = bool(np.isfinite(limits.lower[dof]) or np.isfinite(limits.upper[dof]))
        alike = (k for k, other in JOINT_KINDS.items() if other.motion == joint.motion and other.has_range == limited)
        return next(alike, kind)

    def _limit(self, joint: Element, single: _Single) -> None:
        limits, dof = self.robot.limits, single.dofs.start
        effort, velocity = limits.effort[dof], limits.velocity[dof]
        words = {}
        if JOINT_KINDS[single.kind].has_range:
            words = {"lower": _word(_bounded(limits.lower[dof])), "upper": _word(_bounded(limits.upper[dof]))}
        if words or np.isfinite(effort) or np.isfinite(velocity):
            # Most readers insist on both, and on finite numbers.
            words |= {"effort": _word(_bounded(effort)), "velocity": _word(_bounded(velocity))}
            SubElement(joint, "limit", words)

    def _dynamics(self, joint: Element, single: _Single) -> None:
        damping, friction = self.robot.damping[single.dofs.start], self.robot.friction[single.dofs.start]
        if damping or friction:
            SubElement(joint, "dynamics", damping=_word(damping), friction=_word(friction))

    def _fixed(self, root: Element, name: str, parent: str, child: str, rotation, position) -> None:
        joint = SubElement(root, "joint", name=name, type="fixed")
        self._placement(joint, parent, child, rotation, position)

    @staticmethod
    def _placement(joint: Element, parent: str, child: str, rotation, position) -> None:
        SubElement(joint, "origin", xyz=_words(position), rpy=_words(_roll_pitch_yaw(rotation)))
        SubElement(joint, "parent", link=parent)
        SubElement(joint, "child", link=child)

    def _inertial(self, element: Element, link: int) -> None:
        mass, com, inertia = (x[link] for x in (self.robot.mass, self.robot.com, self.robot.inertia))
        if mass == 0 and not inertia.any():
            return
        inertial = SubElement(element, "inertial")
        SubElement(inertial, "origin", xyz=_words(com), rpy="0 0 0")
        SubElement(inertial, "mass", value=_word(mass))
        pairs = (("ixx", 0, 0), ("ixy", 0, 1), ("ixz", 0, 2), ("iyy", 1, 1), ("iyz", 1, 2), ("izz", 2, 2))
        symmetric = (inertia + inertia.T) / 2
        SubElement(inertial, "inertia", {key: _word(symmetric[i, j]) for key, i, j in pairs})


# Numbers ---------------------------------------------------------------------------------------------------------


def _word(x: float) -> str:
    """The shortest decimal that reads back as the same double."""
    text = repr(float(x))
    return text.removesuffix(".0")


def _words(vector) -> str:
    return " ".join(_word(x) for x in vector)


def _bounded(x: float) -> float:
    return math.copysign(NO_LIMIT, x) if math.isinf(x) else x


def _uniform(values: np.ndarray) -> bool:
    return bool((values == values[0]).all())


def _is_identity(rotation: np.ndarray, position: np.ndarray) -> bool:
    return np.array_equal(rotation, np.eye(3)) and not position.any()


def _unit(vector: np.ndarray) -> np.ndarray:
    return vector / np.linalg.norm(vector)


def _roll_pitch_yaw(R: np.ndarray) -> tuple[float, float, float]:
    """Angles with Rz(yaw) Ry(pitch) Rx(roll) = R, accurate also where pitch is a right angle.

    There roll and yaw are not determined by the entries that vanish; so yaw is read from R Rx(roll)*, whose entries
    hold whatever roll was chosen.
    """
    roll = math.atan2(R[2, 1], R[2, 2])
    pitch = math.atan2(-R[2, 0], math.hypot(R[0, 0], R[1, 0]))
    s, c = math.sin(roll), math.cos(roll)
    yaw = math.atan2(s * R[0, 2] - c * R[0, 1], c * R[1, 1] - s * R[1, 2])
    return roll, pitch, yaw
