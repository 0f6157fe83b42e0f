"""Is this description a robot? Structure and physics, whoever wrote it: a file, the builder or code.

Faults that make the dynamics undefined are a `ModelError`. Link inertias that no rigid body can have are a matter of
policy, since many robots in daily use contain some: "warn", "strict" (a `ModelError`) or "off".
"""

from __future__ import annotations

import dataclasses
import difflib
import warnings
from collections import Counter
from collections.abc import Callable, Iterable

import numpy as np

from jaxsoa.model.description import (
    JointDescription,
    LinkDescription,
    ModelError,
    RobotDescription,
    abbreviated,
    is_plain,
    plain,
)
from jaxsoa.model.joints import JOINT_KINDS
from jaxsoa.model.magnitudes import check_moments, largest
from jaxsoa.model.singular import check_mass_matrix, principal_moments


class ModelWarning(UserWarning):
    """A model that can be simulated but is probably not what its author meant."""

    def __init__(self, message: object = ""):
        super().__init__(plain(str(message)))


#: Documented limits: moving links and others together, and characters in a name.
MAX_LINKS = 10_000
MAX_NAME = 1_000

POLICIES = ("warn", "strict", "off")

#: Files round their numbers: a principal moment may miss a bound by this fraction of the largest one.
_INERTIA_TOLERANCE = 1e-6
#: Rotations given in single precision still count as rotations.
_ROTATION_TOLERANCE = 1e-5


def validate_description(
    description: RobotDescription, policy: str = "warn", *, resolution: float = 0.0
) -> RobotDescription:
    """The same description with every axis of unit length, or a `ModelError`.

    `resolution` is that of the type from which the numbers come, where it is coarse: rotations and inertias are then
    what they claim within a few times that.

    `policy` concerns inertias that no rigid body has: not positive semidefinite, violating the triangle inequality of
    principal moments, or non-zero without mass. Each of the three gives at most one `ModelWarning` per model.
    """
    if policy not in POLICIES:
        raise ValueError(f"The validation policy must be one of {', '.join(POLICIES)}, but it is {policy!r}.")
    _check_names(description)
    rounding = 8 * resolution
    for joint in description.joints:
        _check_joint(joint, f"{description.source}: joint {joint.name!r}", rounding)
    outward = _joints_outward(description)
    leaders = _mimic_leaders(description)
    for link in description.links:
        _check_link(link, f"{description.source}: link {link.name!r}", rounding)
    placed = np.array([joint.position for joint in description.joints], float).reshape(-1, 3)
    numbers = zip(*((link.mass, link.com, link.inertia) for link in description.links), strict=True)
    mass, com, inertia = (np.array(x, float) for x in numbers)
    check_moments(description.source, mass, placed, com, inertia, np.float64)
    for frame in description.frames:
        check_placement(frame.rotation, frame.position, f"{description.source}: frame {frame.name!r}", rounding)
    check_inertias(description, policy, rounding)
    units = {joint.name: _with_unit_axes(joint) for joint in description.joints}
    check_mass_matrix(description, [units[joint.name] for joint in outward], leaders)
    return dataclasses.replace(description, joints=tuple(units.values()))


def _check_names(description: RobotDescription) -> None:
    source = description.source
    if not description.links:
        raise ModelError(f"{source}: the robot has no links; at least one is needed.")
    if len(description.links) > MAX_LINKS + 1:  # and a base
        raise ModelError(f"{source}: the robot has {len(description.links)} links; the limit is {MAX_LINKS}.")
    if any(not is_plain(character) for character in description.name) or len(description.name) > MAX_NAME:
        raise ModelError(f"{source}: {_bad_name(description.name, 'the robot')}")
    for what in ("link", "joint", "frame"):
        for thing in getattr(description, f"{what}s"):
            name = thing.name
            if not isinstance(name, str) or len(name) > MAX_NAME or not all(map(is_plain, name)):
                raise ModelError(f"{source}: {_bad_name(name, what)}")
    link_names = [link.name for link in description.links]
    _refuse_duplicates(link_names, "link", source)
    _refuse_duplicates([joint.name for joint in description.joints], "joint", source)
    _refuse_duplicates(link_names + [frame.name for frame in description.frames], "link or frame", source)
    known = set(link_names)
    for joint in description.joints:
        for role, link in (("parent", joint.parent), ("child", joint.child)):
            if link not in known:
                message = f"{source}: joint {joint.name!r} names the {role} link {link!r}, which does not exist"
                raise ModelError(f"{message}.{_did_you_mean(link, known)}")
    for frame in description.frames:
        if frame.link not in known:
            message = f"{source}: frame {frame.name!r} is fixed to link {frame.link!r}, which does not exist"
            raise ModelError(f"{message}.{_did_you_mean(frame.link, known)}")


def _bad_name(name: object, what: str) -> str:
    if not isinstance(name, str):
        return f"the name of a {what} is {name!r}, not a string."
    if len(name) > MAX_NAME:
        return f"the name of {what} {name[:80]!r}... has {len(name)} characters; the limit is {MAX_NAME}."
    return f"the name of {what} {name!r} holds control characters, which do things to terminals."


def _refuse_duplicates(names: Iterable[str], what: str, source: str) -> None:
    repeated = [repr(name) for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise ModelError(f"{source}: each {what} needs a name of its own; repeated: {abbreviated(repeated)}.")


def _did_you_mean(name: str, known: Iterable[str]) -> str:
    if len(name) > 100:
        return ""  # matching is quadratic in the length of a name
    close = difflib.get_close_matches(name, list(known), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def _joints_outward(description: RobotDescription) -> list[JointDescription]:
    """All joints, each after the one that carries it; a `ModelError` unless the links are one tree."""
    source = description.source
    joint_to: dict[str, JointDescription] = {}
    children: dict[str, list[JointDescription]] = {link.name: [] for link in description.links}
    for joint in description.joints:
        if joint.child in joint_to:
            raise ModelError(
                f"{source}: link {joint.child!r} is the child of two joints, {joint_to[joint.child].name!r} and "
                f"{joint.name!r}. A model is a tree: keep one of them, and close the loop with a loop constraint "
                "(`closed_chain.Loop`)."
            )
        joint_to[joint.child] = joint
        children[joint.parent].append(joint)

    roots = [link.name for link in description.links if link.name not in joint_to]
    outward = [joint for root in roots for joint in children[root]]
    for joint in outward:  # the list grows while it is walked: breadth first, without recursion
        outward.extend(children[joint.child])
    if len(outward) < len(description.joints):
        reached = {joint.name for joint in outward}
        link = next(joint.child for joint in description.joints if joint.name not in reached)
        cycle = _cycle(link, lambda name: joint_to[name].parent)[::-1]
        raise ModelError(
            f"{source}: links form a cycle: {_arrows(cycle)}. A model is a tree with one root: remove "
            "one joint, and close the loop with a loop constraint (`closed_chain.Loop`)."
        )
    if len(roots) > 1:
        raise ModelError(
            f"{source}: the links are not connected: {len(roots)} of them have no parent "
            f"({abbreviated([repr(root) for root in roots])}). Join all but one of them to the robot."
        )
    return outward


def _arrows(cycle: list[str], limit: int = 10) -> str:
    shown = cycle if len(cycle) <= limit else [*cycle[: limit - 1], f"... ({len(cycle) - limit} more)", cycle[-1]]
    return " -> ".join(name if name.startswith("... (") else repr(name) for name in shown)


def _cycle(start: str, successor: Callable[[str], str]) -> list[str]:
    """The cycle that `start` leads to, with its first name repeated at the end."""
    path: dict[str, int] = {}
    name = start
    while name not in path:
        path[name] = len(path)
        name = successor(name)
    return [*list(path)[path[name] :], name]


def _mimic_leaders(description: RobotDescription) -> dict[str, str]:
    """For each joint the one whose coordinate it follows, at the end of a chain of mimics: usually itself."""
    joints = {joint.name: joint for joint in description.joints}
    target_of: dict[str, str] = {}
    followers: dict[str, list[str]] = {name: [] for name in joints}
    for joint in description.joints:
        if joint.mimic is None:
            continue
        target, multiplier, offset = joint.mimic
        where = f"{description.source}: joint {joint.name!r} mimics {target!r}"
        if target not in joints:
            raise ModelError(f"{where}, which does not exist.{_did_you_mean(target, joints)}")
        for partner in (joint, joints[target]):
            if JOINT_KINDS[partner.kind].nv != 1:
                raise ModelError(f"{where}, but {partner.name!r} is {partner.kind}: both need one degree of freedom.")
        _array(multiplier, (), f"{where}: the multiplier")
        _array(offset, (), f"{where}: the offset")
        target_of[joint.name] = target
        followers[target].append(joint.name)

    leaders = {name: name for name in joints if name not in target_of}
    queue = list(leaders)
    for name in queue:  # the list grows while it is walked
        leaders.update((follower, leaders[name]) for follower in followers[name])
        queue.extend(followers[name])
    if len(leaders) < len(joints):
        cycle = _cycle(next(name for name in joints if name not in leaders), target_of.__getitem__)
        raise ModelError(f"{description.source}: joints mimic one another: {_arrows(cycle)}.")
    return leaders


# Numbers of one joint or link -----------------------------------------------------------------------------------


def _check_joint(joint: JointDescription, where: str, rounding: float) -> None:
    if joint.kind not in JOINT_KINDS:
        raise ModelError(f"{where} is of unknown kind {joint.kind!r}; those supported are {', '.join(JOINT_KINDS)}.")
    check_placement(joint.rotation, joint.position, where, rounding)
    if JOINT_KINDS[joint.kind].reads_axis:
        axis = _array(joint.axis, (3,), f"{where}: the axis")
        if np.linalg.norm(axis) < 1e-12:
            raise ModelError(f"{where}: the axis {_shown(axis)} is zero; a direction is needed.")
        if JOINT_KINDS[joint.kind].reads_axis2:
            second = _array(joint.axis2, (3,), f"{where}: the second axis")
            if np.linalg.norm(np.cross(axis, second)) <= 1e-6 * np.linalg.norm(axis) * np.linalg.norm(second):
                raise ModelError(f"{where}: the second axis {_shown(second)} is zero or parallel to {_shown(axis)}.")
    _array(joint.pitch, (), f"{where}: the pitch")

    for what in ("armature", "damping", "friction", "stiffness"):
        value = _per_degree(joint, what, where)
        if not ((value <= largest(float)).all() and (value >= 0).all()):
            raise ModelError(f"{where}: the {what} {_shown(value)} must be finite and not negative.")
    for what in ("effort", "velocity"):
        value = _per_degree(joint, what, where)
        if not (value >= 0).all():
            raise ModelError(f"{where}: the {what} limit {_shown(value)} must not be negative.")
    lower, upper = _per_degree(joint, "lower", where), _per_degree(joint, "upper", where)
    if not ((lower <= upper) & (lower < np.inf) & (upper > -np.inf)).all():
        raise ModelError(f"{where}: the lower limit {_shown(lower)} is above the upper limit {_shown(upper)}.")


def _per_degree(joint: JointDescription, what: str, where: str) -> np.ndarray:
    """A value given once for the joint or once per degree of freedom, as an array of length nv; may be infinite."""
    degrees = JOINT_KINDS[joint.kind].nv
    value = _floats(getattr(joint, what), f"{where}: the {what}")
    if value.ndim != 0 and value.shape != (degrees,):
        raise ModelError(
            f"{where}: the {what} has shape {value.shape}; a {joint.kind} joint takes one number or {degrees} of them."
        )
    return np.broadcast_to(value, (max(degrees, 1),))


def _check_link(link: LinkDescription, where: str, rounding: float) -> None:
    mass = _array(link.mass, (), f"{where}: the mass")
    if mass < 0:
        raise ModelError(f"{where}: the mass {float(mass)} is negative.")
    _array(link.com, (3,), f"{where}: the centre of mass")
    inertia = _array(link.inertia, (3, 3), f"{where}: the inertia")
    if np.abs(inertia - inertia.T).max() > max(_INERTIA_TOLERANCE, rounding) * np.abs(inertia).max():
        raise ModelError(f"{where}: the inertia {_shown(inertia)} is not symmetric.")


def check_placement(rotation: np.ndarray, position: np.ndarray, where: str, rounding: float = 0.0) -> None:
    """A `ModelError` unless it is a rotation matrix and a finite position."""
    _array(position, (3,), f"{where}: the position")
    rotation = _array(rotation, (3, 3), f"{where}: the rotation")
    error = np.abs(rotation @ rotation.T - np.eye(3)).max() if np.abs(rotation).max() < 2 else np.inf
    if error > max(_ROTATION_TOLERANCE, rounding) or np.linalg.det(rotation) < 0:
        raise ModelError(f"{where}: the rotation {_shown(rotation)} is not a rotation matrix.")


def _floats(value: object, what: str) -> np.ndarray:
    try:
        return np.asarray(value, dtype=float)
    except (TypeError, ValueError) as error:
        raise ModelError(f"{what} is {repr(value)[:200]}, which is not a number or an array of numbers.") from error


def _array(value: object, shape: tuple[int, ...], what: str) -> np.ndarray:
    array = _floats(value, what)
    if array.shape != shape:
        raise ModelError(f"{what} has shape {array.shape}; {shape} is needed.")
    if not np.isfinite(array).all():
        raise ModelError(f"{what} {_shown(array)} is not finite.")
    if (np.abs(array) > largest(float)).any():
        raise ModelError(f"{what} {_shown(array)} is too large; at most {largest(float):.3g}.")
    return array


def _shown(array: np.ndarray) -> str:
    return str(array.tolist())[:400]


def _with_unit_axes(joint: JointDescription) -> JointDescription:
    kind = JOINT_KINDS[joint.kind]
    read = {"axis": kind.reads_axis, "axis2": kind.reads_axis2}
    return dataclasses.replace(joint, **{field: _unit(getattr(joint, field)) for field in read if read[field]})


def _unit(vector: np.ndarray) -> np.ndarray:
    vector = np.asarray(vector, dtype=float)
    return vector / np.linalg.norm(vector)


# Inertias -------------------------------------------------------------------------------------------------------


def check_inertias(description: RobotDescription, policy: str, rounding: float = 0.0) -> None:
    """What is a matter of policy."""
    if policy == "off":
        return
    moments = principal_moments(description.links)
    size = np.abs(moments).max(axis=1)
    nothing = 1e-12 * size.max()  # exporters write 1e-20 where they mean zero
    tolerance = np.maximum(max(_INERTIA_TOLERANCE, rounding) * size, nothing)
    massless = np.array([link.mass for link in description.links]) == 0
    indefinite = moments[:, 0] < -tolerance
    skewed = ~indefinite & (moments[:, 0] + moments[:, 1] < moments[:, 2] - tolerance)
    weightless = massless & (size > nothing)
    for faulty, fault in (
        (indefinite, "inertia that is not positive semidefinite (link: eigenvalues)"),
        (skewed, "inertia that violates the triangle inequality (link: principal moments)"),
        (weightless, "inertia without mass (link: principal moments)"),
    ):
        if not faulty.any():
            continue
        details = [
            f"{description.links[k].name!r}: ({', '.join(f'{moment:.4g}' for moment in moments[k])})"
            for k in np.flatnonzero(faulty)
        ]
        message = f"{description.source}: no rigid body has {fault}: {abbreviated(details)}."
        if policy == "strict":
            raise ModelError(message)
        warnings.warn(message, ModelWarning, stacklevel=4)
