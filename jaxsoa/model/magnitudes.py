"""Numbers that a floating-point type can compute with: checked before and after a model gets its type.

What a robot's file holds becomes products of masses and squares of lengths, and their squares again. So a number beyond
the square root of what a type holds is refused, and so are masses and lengths whose moments of inertia are beyond it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from jaxsoa.model.description import JointDescription, LinkDescription, ModelError, RobotDescription
from jaxsoa.model.singular import check_mass_matrix
from jaxsoa.model.topology import Topology


def largest(dtype) -> float:
    """The largest number of a model of this type (1e154 in double precision, 1e19 in single)."""
    wider = np.promote_types(dtype, np.float32)
    return float(min(np.finfo(dtype).max, np.sqrt(np.finfo(wider).max)))


def check_moments(source: str, mass, position, com, inertia, dtype) -> None:
    """Refuse a robot whose moment of inertia, stretched out, is too large for the type."""
    with np.errstate(over="ignore", invalid="ignore"):
        reach = np.linalg.norm(position, axis=-1).sum() + np.linalg.norm(com, axis=-1).max(initial=0.0)
        moment = float(np.sum(mass) * reach**2 + np.abs(inertia).sum())
    if not moment <= largest(np.float64 if dtype == np.float16 else dtype):
        raise ModelError(
            f"{source}: masses of {float(np.sum(mass)):g} and lengths of {float(reach):g} in all make moments of "
            f"inertia of up to {moment:g}, too large for {np.dtype(dtype).name}."
        )


def check_arrays(source: str, topology: Topology, arrays: Mapping[str, np.ndarray]) -> None:
    """Every leaf of a model by its name, in the type that it gets: numbers that it can compute with, of right signs."""
    for key, array in arrays.items():
        limit, most = key.startswith("limits."), largest(array.dtype)
        bad = np.isnan(array) if limit else ~(np.abs(array) <= most)
        if bad.any():
            where, value = _where(topology, key, bad), float(array[bad][0])
            more = f" (at most {most:.3g} in {array.dtype.name})" if np.isfinite(value) or array.dtype != float else ""
            raise ModelError(f"{source}: {key} holds numbers that are not finite or too large: {value:g}{where}{more}.")
        if key in NOT_NEGATIVE and (array < 0).any():
            raise ModelError(
                f"{source}: {key} holds a negative number ({array.min()}){_where(topology, key, array < 0)}."
            )
    lower, upper = arrays["limits.lower"], arrays["limits.upper"]
    crossed = ~((lower <= upper) & (lower < np.inf) & (upper > -np.inf))
    if crossed.any():
        ends = f"{lower[crossed][0]:g} is above the upper limit {upper[crossed][0]:g}"
        raise ModelError(f"{source}: the lower limit {ends}{_where(topology, 'limits.lower', crossed)}.")
    slow = arrays["friction_velocity"]
    if not slow >= np.finfo(slow.dtype).tiny:
        raise ModelError(f"{source}: friction_velocity is {float(slow):g}, but must be positive.")
    mass, position, com, inertia = (arrays[key] for key in ("mass", "joint_position", "com", "inertia"))
    check_moments(source, mass, position, com, inertia, mass.dtype)


NOT_NEGATIVE = ("mass", "base_mass", "armature", "damping", "friction", "stiffness", "limits.effort", "limits.velocity")


def check_what_vanished(
    source: str, topology: Topology, given: Mapping[str, np.ndarray], arrays: Mapping[str, np.ndarray]
) -> None:
    """Refuse a robot that has a singular mass matrix only because masses and inertias are nothing in their type.

    `given` are the arrays before they got it. Compiled programs take less than the smallest normal number for zero.
    """

    def vanish(key: str) -> bool:
        before, after = np.asarray(given[key]), arrays[key]
        if key == "inertia":
            before, after = (np.diagonal(x, axis1=-2, axis2=-1) for x in (before, after))
        return bool(((before != 0) & (np.abs(after) < np.finfo(after.dtype).tiny)).any())

    if not any(vanish(key) for key in ("mass", "inertia", "armature")):
        return
    description = description_of(source, topology, arrays)
    leaders = {joint.name: joint.name for joint in description.joints}
    for joint in description.joints:
        if joint.mimic is not None:
            leaders[joint.name] = joint.mimic[0]
    for name in leaders:
        for _ in leaders:  # to the end of a chain of mimics
            if leaders[leaders[name]] == leaders[name]:
                break
            leaders[name] = leaders[leaders[name]]
    check_mass_matrix(description, description.joints, leaders)


def description_of(source: str, topology: Topology, arrays: Mapping[str, np.ndarray]) -> RobotDescription:
    """A model's arrays as the description that would give them; what is too small for the type is zero."""

    def flushed(key: str) -> np.ndarray:
        array = arrays[key]
        return np.where(np.abs(array) < np.finfo(array.dtype).tiny, 0, array).astype(float)

    names = topology.link_names
    base = "base"
    while base in names:
        base += "_"
    mimics = {joint: (target, a, b) for joint, target, a, b in topology.mimics}
    values = {key: flushed(key) for key in ("mass", "com", "inertia", "armature", "damping", "friction")}
    plain = {key: np.asarray(arrays[key], float) for key in ("joint_rotation", "joint_position", "axis", "axis2")}
    pitch = np.asarray(arrays["pitch"], float)
    limits = {key: np.asarray(arrays[f"limits.{key}"], float) for key in ("lower", "upper", "velocity", "effort")}
    joints = []
    for k, (name, kind, parent) in enumerate(zip(topology.joint_names, topology.kinds, topology.parents, strict=True)):
        dofs = topology.v_slices[k]
        joints.append(
            JointDescription(
                name,
                kind,
                base if parent < 0 else names[parent],
                names[k],
                rotation=plain["joint_rotation"][k],
                position=plain["joint_position"][k],
                axis=plain["axis"][k],
                axis2=plain["axis2"][k],
                pitch=float(pitch[k]),
                armature=values["armature"][dofs].tolist(),
                damping=values["damping"][dofs].tolist(),
                friction=values["friction"][dofs].tolist(),
                mimic=mimics.get(name),
                **{key: x[dofs].tolist() for key, x in limits.items()},
            )
        )
    links = [
        LinkDescription(name, float(values["mass"][k]), values["com"][k], values["inertia"][k])
        for k, name in enumerate(names)
    ]
    fixed = LinkDescription(
        base,
        *(np.asarray(arrays[f"base_{key}"], float) for key in ("mass", "com", "inertia")),  # pyright: ignore[reportArgumentType]
    )
    return RobotDescription(topology.name, (fixed, *links), tuple(joints), source=source)


def _where(topology: Topology, key: str, bad: np.ndarray) -> str:
    """Of which link or joint, in brackets."""
    first = int(np.argwhere(bad)[0][0]) if bad.ndim else -1
    names: Sequence[str] = topology.link_names
    if first < 0 or key.startswith("base") or key in ("gravity", "rest"):
        return ""
    if key.startswith("frame"):
        return f" (frame {topology.frame_names[first]!r})"
    if key in ("armature", "damping", "friction", "stiffness") or key.startswith("limits."):
        return f" (joint {topology.joint_names[int(topology.dof_link[first])]!r})"
    return f" (link {names[first]!r})"
