"""From a description to a `Multibody`: order the tree, merge what is fixed, stack the arrays."""

from __future__ import annotations

import dataclasses
import heapq

import jax
import numpy as np

from jaxsoa.model.description import JointDescription, LinkDescription, ModelError, RobotDescription
from jaxsoa.model.joints import JOINT_KINDS
from jaxsoa.model.magnitudes import check_arrays, check_what_vanished
from jaxsoa.model.multibody import Limits, Multibody, RestSprings
from jaxsoa.model.topology import Topology
from jaxsoa.model.validation import validate_description

FRICTION_VELOCITY = 1e-2
"""Default velocity (rad/s or m/s) at which smooth Coulomb friction reaches tanh(1) of its value."""


def assemble(
    description: RobotDescription,
    *,
    floating_base: bool = False,
    gravity=(0.0, 0.0, -9.81),
    validate: str = "warn",
) -> Multibody:
    """The arrays of a described robot. Links on fixed joints are merged into the link that carries them.

    With `floating_base` the root link itself moves, on a free joint named `floating_base`.
    """
    if floating_base:
        description = _with_floating_base(description)
    description = validate_description(description, validate)
    joints_from: dict[str, list[JointDescription]] = {}
    for joint in description.joints:
        joints_from.setdefault(joint.parent, []).append(joint)
    children = {joint.child for joint in description.joints}
    (root,) = [link.name for link in description.links if link.name not in children]
    links = {link.name: link for link in description.links}

    moving: list[JointDescription] = []
    parents: list[int] = []
    bodies: list[list[tuple[np.ndarray, np.ndarray, LinkDescription]]] = []
    on_base: list[tuple[np.ndarray, np.ndarray, LinkDescription]] = []  # moves once the robot is mounted on another
    placements: list[tuple[np.ndarray, np.ndarray]] = []  # joint frame in the parent moving link (or base)
    frames: dict[str, tuple[int, np.ndarray, np.ndarray]] = {}

    # Moving joints are numbered in the file's order, each after its parent; what is fixed is merged at once.
    file_order = {joint.name: number for number, joint in enumerate(description.joints)}
    ready: list[tuple[int, int, np.ndarray, np.ndarray]] = []

    def attach(name: str, carrier: int) -> None:
        welded = [(name, np.eye(3), np.zeros(3))]
        while welded:
            link, R, p = welded.pop()
            frames[link] = (carrier, R, p)
            (bodies[carrier] if carrier >= 0 else on_base).append((R, p, links[link]))
            for joint in reversed(joints_from.get(link, [])):
                joint_R, joint_p = R @ np.asarray(joint.rotation), R @ np.asarray(joint.position) + p
                if JOINT_KINDS[joint.kind].nv == 0:  # fixed
                    welded.append((joint.child, joint_R, joint_p))
                else:
                    heapq.heappush(ready, (file_order[joint.name], carrier, joint_R, joint_p))

    attach(root, -1)
    while ready:
        number, carrier, joint_R, joint_p = heapq.heappop(ready)
        joint = description.joints[number]
        moving.append(joint)
        parents.append(carrier)
        placements.append((joint_R, joint_p))
        bodies.append([])
        attach(joint.child, len(moving) - 1)

    if not moving:
        raise ModelError(f"{description.source}: robot {description.name!r} has no movable joint.")
    for frame in description.frames:
        if frame.link not in frames:
            raise ModelError(f"{description.source}: frame {frame.name!r} is on link {frame.link!r}, which is missing.")
        if frame.name in frames:
            raise ModelError(f"{description.source}: frame {frame.name!r} has the name of a link or another frame.")
        carrier, R, p = frames[frame.link]
        frames[frame.name] = (carrier, R @ frame.rotation, R @ frame.position + p)

    mimics = tuple((j.name, *j.mimic) for j in moving if j.mimic is not None)
    topology = Topology(
        description.name,
        parents,
        [joint.kind for joint in moving],
        [joint.child for joint in moving],
        [joint.name for joint in moving],
        list(frames),
        [carrier for carrier, _, _ in frames.values()],
        mimics,
    )
    mass, com, inertia = zip(*(_merge(parts) for parts in bodies), strict=True)
    base_mass, base_com, base_inertia = _merge(on_base)

    def per_dof(field: str) -> np.ndarray:
        values = []
        for joint in moving:
            nv = JOINT_KINDS[joint.kind].nv
            value = np.asarray(getattr(joint, field), float)
            if value.ndim > 1 or (value.ndim == 1 and value.shape != (nv,)):
                raise ModelError(
                    f"{description.source}: joint {joint.name!r} ({joint.kind}) needs one {field} or {nv}, "
                    f"got {getattr(joint, field)!r}."
                )
            values.append(np.broadcast_to(value, (nv,)))
        return np.concatenate(values)

    def array(x) -> np.ndarray:
        return np.asarray(x, float)

    stiffness = per_dof("stiffness")
    rest = np.concatenate([_rest(joint, description.source) for joint in moving])

    gravity = np.asarray(gravity, float)
    if gravity.shape != (3,) or not np.isfinite(gravity).all():
        raise ModelError(f"Gravity must be three finite numbers, got {gravity!r}.")
    limits = ("lower", "upper", "velocity", "effort")
    given: dict[str, np.ndarray] = dict(
        joint_rotation=array([R for R, _ in placements]),
        joint_position=array([p for _, p in placements]),
        axis=array([joint.axis for joint in moving]),
        axis2=array([joint.axis2 for joint in moving]),
        pitch=array([joint.pitch for joint in moving]),
        mass=array(mass),
        com=array(com),
        inertia=array(inertia),
        armature=array(per_dof("armature")),
        damping=array(per_dof("damping")),
        friction=array(per_dof("friction")),
        friction_velocity=array(FRICTION_VELOCITY),
        **{f"limits.{field}": array(per_dof(field)) for field in limits},
        gravity=array(gravity),
        base_rotation=array(np.eye(3)),
        base_position=array(np.zeros(3)),
        frame_rotation=array([R for _, R, _ in frames.values()]),
        frame_position=array([p for _, _, p in frames.values()]),
        base_mass=array(base_mass),
        base_com=array(base_com),
        base_inertia=array(base_inertia),
    )
    if stiffness.any():
        given |= {"stiffness": array(stiffness), "rest": array(rest)}
    with np.errstate(over="ignore", under="ignore"):
        dtype = jax.dtypes.canonicalize_dtype(float)
        arrays = {key: value.astype(dtype) for key, value in given.items()}
    check_arrays(description.source, topology, arrays)
    check_what_vanished(description.source, topology, given, arrays)
    # `jnp.asarray` compiles a program for every shape; this one may share memory with NumPy's arrays, which are new.
    leaves = {key: jax.device_put(value) for key, value in arrays.items()}
    ranges = Limits(**{field: leaves.pop(f"limits.{field}") for field in limits})
    springs = RestSprings(leaves.pop("stiffness"), leaves.pop("rest")) if stiffness.any() else None
    return Multibody(topology=topology, limits=ranges, springs=springs, **leaves)


def _rest(joint: JointDescription, source: str) -> np.ndarray:
    """Where a joint's springs do not pull (nq,): neutral unless it says so."""
    neutral = np.array(JOINT_KINDS[joint.kind].neutral())
    if joint.rest is None:
        return neutral
    rest = np.atleast_1d(np.asarray(joint.rest, float))
    if rest.shape != neutral.shape or not np.isfinite(rest).all():
        raise ModelError(
            f"{source}: the rest position of joint {joint.name!r} ({joint.kind}) must be {len(neutral)} finite "
            f"numbers, got {joint.rest!r}."
        )
    return rest


def _with_floating_base(description: RobotDescription) -> RobotDescription:
    children = {joint.child for joint in description.joints}
    roots = [link.name for link in description.links if link.name not in children]
    if len(roots) != 1:
        return description  # validation reports it
    world = "world" if all(link.name != "world" for link in description.links) else "floating_base_world"
    free = JointDescription("floating_base", "free", world, roots[0])
    # Files made for a fixed base often hold a fixed joint of this name; it is merged, so it can give the name up.
    joints = [
        dataclasses.replace(j, name="floating_base_fixed") if j.name == free.name and JOINT_KINDS[j.kind].nv == 0 else j
        for j in description.joints
    ]
    return dataclasses.replace(description, links=(LinkDescription(world), *description.links), joints=(free, *joints))


def _merge(parts: list[tuple[np.ndarray, np.ndarray, LinkDescription]]) -> tuple[float, np.ndarray, np.ndarray]:
    """Mass, centre of mass and inertia about it of bodies welded together, in the axes of the carrying link."""
    mass = sum(link.mass for _, _, link in parts)
    positions = [R @ np.asarray(link.com) + p for R, p, link in parts]
    if mass > 0:
        com = sum(link.mass * c for (_, _, link), c in zip(parts, positions, strict=True)) / mass
    else:
        com = np.zeros(3)
    inertia = np.zeros((3, 3))
    for (R, _, link), c in zip(parts, positions, strict=True):
        d = c - com
        inertia += R @ np.asarray(link.inertia) @ R.T + link.mass * (d @ d * np.eye(3) - np.outer(d, d))
    return float(mass), np.asarray(com), inertia
