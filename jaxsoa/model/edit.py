"""Robots from robots: joined, reduced, cut, renamed, with payloads and frames. Nothing here knows a robot file.

The structure (names, tree) is edited on the host; every number goes through JAX, so a payload's mass or the angle of a
locked joint may be traced: the edited robot is differentiable by it. Each function takes a model and returns a new one.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Shaped

from jaxsoa.model import edit_parts as parts
from jaxsoa.model.description import ModelError, abbreviated
from jaxsoa.model.joints import JointGeometry
from jaxsoa.model.multibody import Multibody, RestSprings

# --- one link or frame more ---------------------------------------------------------------------------------------


def with_frame(robot: Multibody, name: str, parent: str, rotation=None, position=(0.0, 0.0, 0.0)) -> Multibody:
    """The robot with one more frame: `rotation` (3, 3) and `position` (3,) seen from the frame `parent`."""
    topology, robot = robot.topology, parts.on_host(robot)
    row = topology.frame_number(parent)
    if name in robot.frame_names:
        raise ModelError(f"Robot {robot.name!r} already has a frame named {name!r}.")
    place = (robot.frame_rotation[row], robot.frame_position[row])
    R, p = parts.compose(place, parts.checked_pose(robot, rotation, position, f"frame {name!r}"))
    names, links = (*robot.frame_names, name), (*topology.frame_links, topology.frame_links[row])
    leaves = parts.leaves(robot) | {
        "frame_rotation": parts.concatenate([robot.frame_rotation, R[None]]),
        "frame_position": parts.concatenate([robot.frame_position, p[None]]),
    }
    return parts.finished(parts.changed_topology(topology, frame_names=names, frame_links=links), leaves)


def with_payload(robot: Multibody, frame: str, mass, com=(0.0, 0.0, 0.0), inertia=None) -> Multibody:
    """The robot with a rigid body fixed to a frame: its inertia (3, 3) is about `com`, both in the frame's axes."""
    robot = parts.on_host(robot)
    row = robot.topology.frame_number(frame)
    link = robot.topology.frame_links[row]
    mass = parts.checked_array(robot, mass, (), "A payload's mass")
    if not isinstance(mass, Tracer) and mass < 0:
        raise ModelError(f"A payload's mass must not be negative, got {float(mass)}.")
    com = parts.checked_array(robot, com, (3,), "A payload's centre of mass")
    inertia = parts.checked_array(
        robot, np.zeros((3, 3)) if inertia is None else inertia, (3, 3), "A payload's inertia"
    )
    load = parts.moved((robot.frame_rotation[row], robot.frame_position[row]), (mass, com, inertia))
    return parts.finished(
        robot.topology, parts.leaves(robot) | _with_body(parts.leaves(robot), link, [parts.body_of(robot, link), load])
    )


def _with_body(leaves: dict[str, Any], link: int, bodies: Sequence[parts.Body]) -> dict[str, Any]:
    """The leaves that change when the body of a link (or of the base) is these bodies welded together."""
    names, values = ("mass", "com", "inertia"), parts.joined(bodies)
    if link < 0:
        return {f"base_{name}": value for name, value in zip(names, values, strict=True)}
    rows = {name: list(leaves[name]) for name in names}
    for name, value in zip(names, values, strict=True):
        rows[name][link] = value
    return {name: parts.stack(rows[name]) for name in names}


def rename(
    robot: Multibody, names: Mapping[str, str] | None = None, *, prefix: str = "", name: str | None = None
) -> Multibody:
    """The robot with joints, links and frames renamed (each by its old name), all with a prefix, or as a whole."""
    topology, names = robot.topology, dict(names or {})
    for old in names:
        if old not in topology.joint_names and old not in topology.frame_names:
            known = (*topology.joint_names, *topology.frame_names)
            near = difflib.get_close_matches(old, known, n=3, cutoff=0.4) or known
            raise KeyError(
                f"Robot {robot.name!r} has no joint, link or frame named {old!r}. It has {abbreviated(near)}."
            )

    def new(old: str) -> str:
        return prefix + names.get(old, old)

    joints, frames = [new(n) for n in topology.joint_names], [new(n) for n in topology.frame_names]
    for what, listed in (("joints", joints), ("frames", frames)):
        twice = sorted({n for n in listed if listed.count(n) > 1})
        if twice:
            raise ModelError(f"Renaming gives two {what} of robot {robot.name!r} the name {abbreviated(twice)}.")
    mimics = [(new(joint), new(target), *numbers) for joint, target, *numbers in topology.mimics]
    changed = parts.changed_topology(
        topology,
        name=topology.name if name is None else name,
        link_names=[new(n) for n in topology.link_names],
        joint_names=joints,
        frame_names=frames,
        mimics=mimics,
    )
    return Multibody(topology=changed, **parts.leaves(robot))


# --- fewer joints -------------------------------------------------------------------------------------------------


def lock(robot: Multibody, joints: Sequence[str] | str, q: Shaped[Array, " nq"] | None = None) -> Multibody:
    """The reduced robot whose named joints stay as they are in q (default: neutral); inertias are folded in.

    Links on locked joints remain as frames. A joint that mimics a locked one must be locked with it.
    """
    topology = robot.topology
    joints = (joints,) if isinstance(joints, str) else tuple(joints)
    locked = {topology.joint_number(name) for name in joints}
    held = parts.on_host(robot.neutral() if q is None else robot.check_q(q))
    robot = parts.on_host(robot)
    _check_inside_limits(robot, sorted(locked), held)
    for joint, target, *_ in topology.mimics:
        if target in joints and joint not in joints:
            raise ModelError(f"Joint {joint!r} mimics {target!r}: lock both of them, or neither.")
    kept = [k for k in range(robot.n_links) if k not in locked]
    if not kept:
        raise ModelError(f"Every joint of robot {robot.name!r} would be locked: nothing would move.")
    number = {old: new for new, old in enumerate(kept)}

    # Where every old link is now: the moving link (or base) that carries it, and its pose there.
    carrier: dict[int, int] = {-1: -1}
    pose: dict[int, parts.Pose] = {-1: parts.identity(robot)}
    placements: dict[int, parts.Pose] = {}
    members: dict[int, list[parts.Body]] = {-1: [parts.body_of(robot, -1)]} | {new: [] for new in number.values()}
    for k, parent in enumerate(topology.parents):
        placed = parts.compose(pose[parent], (robot.joint_rotation[k], robot.joint_position[k]))
        if k in locked:
            carrier[k], pose[k] = carrier[parent], parts.compose(placed, _joint_pose(robot, k, held))
        else:
            carrier[k], pose[k], placements[k] = number[k], parts.identity(robot), placed
        members[carrier[k]].append(parts.moved(pose[k], parts.body_of(robot, k)))
    parents = [carrier[topology.parents[k]] for k in kept]
    return _selected(robot, kept, parents, placements, members, carrier, pose)


def _joint_pose(robot: Multibody, link: int, q: Array) -> parts.Pose:
    unit = [jnp.asarray(x[link] / (x[link] @ x[link]) ** 0.5) for x in (robot.axis, robot.axis2)]
    geometry = JointGeometry(unit[0], unit[1], jnp.asarray(robot.pitch[link]))
    return parts.on_host(robot.joint_of(link).transform(geometry, jnp.asarray(q[robot.topology.q_slices[link]])))


def _check_inside_limits(robot: Multibody, links: Sequence[int], q: Array) -> None:
    if isinstance(q, Tracer) or isinstance(robot.limits.lower, Tracer):
        return
    lower, upper, values = (np.asarray(x, float) for x in (robot.limits.lower, robot.limits.upper, q))
    for k in links:
        if robot.joint_of(k).nq != robot.joint_of(k).nv:
            continue
        x, dofs = values[robot.topology.q_slices[k]], robot.topology.v_slices[k]
        slack = 1e-6 * (1 + np.abs(x))  # files round their limits
        if (x < lower[dofs] - slack).any() or (x > upper[dofs] + slack).any():
            raise ModelError(
                f"Joint {robot.joint_names[k]!r} would be locked at {x.tolist()}, outside its limits "
                f"{lower[dofs].tolist()} to {upper[dofs].tolist()}."
            )


def subtree(robot: Multibody, root: str, tips: Sequence[str] | str | None = None) -> Multibody:
    """What hangs on the link that carries the frame `root`, with that link as its fixed base.

    With `tips` only the chains from there to these frames remain. The new base stands at the world's origin, unless it
    is the old one.
    """
    topology, robot = robot.topology, parts.on_host(robot)
    base = topology.frame_links[topology.frame_number(root)]
    support = topology.link_support
    below = [k for k in range(robot.n_links) if k != base and (base < 0 or support[k, base])]
    if tips is not None:
        tips = (tips,) if isinstance(tips, str) else tuple(tips)
        ends = [topology.frame_links[topology.frame_number(tip)] for tip in tips]
        for tip, end in zip(tips, ends, strict=True):
            if end != base and end not in below:
                raise ModelError(f"Frame {tip!r} does not hang on {root!r}: it cannot be a tip of that subtree.")
        below = [k for k in below if any(end >= 0 and support[end, k] for end in ends)]
    if not below:
        raise ModelError(f"No joint moves anything beyond {root!r} of robot {robot.name!r}: the subtree is empty.")
    number = {base: -1} | {old: new for new, old in enumerate(below)}
    for joint, target, *_ in topology.mimics:
        pair = [topology.joint_number(name) in below for name in (joint, target)]
        if pair == [True, False]:
            raise ModelError(f"Joint {joint!r} mimics {target!r}, which is not in the subtree of {root!r}.")
    placements = {k: (robot.joint_rotation[k], robot.joint_position[k]) for k in below}
    members = {new: [parts.body_of(robot, old)] for old, new in number.items()}
    same = {old: parts.identity(robot) for old in number}
    cut = _selected(robot, below, [number[topology.parents[k]] for k in below], placements, members, number, same)
    return cut if base < 0 else cut.with_base(*parts.identity(cut))


def _selected(
    robot: Multibody,
    kept: Sequence[int],
    parents: Sequence[int],
    placements: Mapping[int, parts.Pose],
    members: Mapping[int, Sequence[parts.Body]],
    carrier: Mapping[int, int],
    pose: Mapping[int, parts.Pose],
) -> Multibody:
    """The robot of some links: their new parents and joint placements, their bodies, where every old link went."""
    topology = robot.topology
    links = np.array(kept)
    dofs = np.concatenate([np.arange(topology.nv)[topology.v_slices[k]] for k in kept])
    coordinates = np.concatenate([np.arange(topology.nq)[topology.q_slices[k]] for k in kept])
    rows = [row for row, link in enumerate(topology.frame_links) if link in carrier]
    frames = [
        parts.compose(pose[topology.frame_links[row]], (robot.frame_rotation[row], robot.frame_position[row]))
        for row in rows
    ]
    names = {topology.joint_names[k] for k in kept}
    changed = parts.changed_topology(
        topology,
        parents=parents,
        kinds=[topology.kinds[k] for k in kept],
        link_names=[topology.link_names[k] for k in kept],
        joint_names=[topology.joint_names[k] for k in kept],
        frame_names=[topology.frame_names[row] for row in rows],
        frame_links=[carrier[topology.frame_links[row]] for row in rows],
        mimics=[mimic for mimic in topology.mimics if mimic[0] in names and mimic[1] in names],
    )
    leaves = parts.leaves(robot)
    for field in parts.PER_LINK:
        leaves[field] = leaves[field][links]
    for field in parts.PER_DOF:
        leaves[field] = jax.tree.map(lambda x: x[dofs], leaves[field])
    if robot.springs is not None:
        leaves["springs"] = RestSprings(robot.springs.stiffness[dofs], robot.springs.rest[coordinates])
    bodies = [parts.joined(members[new]) for new in range(len(kept))]
    base = parts.joined(members[-1])
    leaves |= {
        "joint_rotation": parts.stack([placements[k][0] for k in kept]),
        "joint_position": parts.stack([placements[k][1] for k in kept]),
        **{name: parts.stack([body[i] for body in bodies]) for i, name in enumerate(("mass", "com", "inertia"))},
        **dict(zip(("base_mass", "base_com", "base_inertia"), base, strict=True)),
        "frame_rotation": parts.stack([R for R, _ in frames]),
        "frame_position": parts.stack([p for _, p in frames]),
    }
    return parts.finished(changed, leaves)


# --- several robots -----------------------------------------------------------------------------------------------


def merge(
    robots: Sequence[Multibody],
    attachments: Sequence[str | tuple],
    *,
    prefixes: Sequence[str] | None = None,
    name: str | None = None,
) -> Multibody:
    """Several robots as one tree, in their order: an arm on a mobile base, a gripper on the arm.

        soa.merge([base, arm, gripper], ["plate", ("arm/tool", R, p)], prefixes=["", "arm/", "gripper/"])

    Each robot after the first hangs on a frame of one before it: `attachments` holds that frame's name (with its
    prefix), or (name, rotation, position) of the new robot's base seen from it. The base's own inertia becomes part of
    the link that it is fixed to. Gravity and the base's place are those of the first robot; where another robot has a
    place of its own (`with_base`), that is kept as its place on the frame.

    >>> four = soa.merge([robot, robot], ["upper/tip"], prefixes=["upper/", "lower/"])
    >>> print(four.link_names)
    ('upper/link1', 'upper/link2', 'lower/link1', 'lower/link2')
    """
    robots = list(robots)
    if not robots or not all(isinstance(robot, Multibody) for robot in robots):
        raise ModelError("merge takes a list of at least one Multibody.")
    if isinstance(attachments, str) or len(attachments) != len(robots) - 1:
        raise ModelError(f"{len(robots)} robots need {len(robots) - 1} attachments, got {attachments!r}.")
    if prefixes is not None and (isinstance(prefixes, str) or len(prefixes) != len(robots)):
        raise ModelError(f"{len(robots)} robots need {len(robots)} prefixes, got {prefixes!r}.")
    if prefixes is not None:
        robots = [rename(robot, prefix=prefix) for robot, prefix in zip(robots, prefixes, strict=True)]
    whole = robots[0]
    for robot, attachment in zip(robots[1:], attachments, strict=True):
        whole = _attached(whole, robot, attachment)
    return rename(whole, name="+".join(robot.name for robot in robots) if name is None else name)


def _attached(trunk: Multibody, branch: Multibody, attachment: str | tuple) -> Multibody:
    frame, *placement = (attachment,) if isinstance(attachment, str) else attachment
    if not isinstance(frame, str) or len(placement) not in (0, 2):
        raise ModelError(f"An attachment is a frame's name or (name, rotation, position), got {attachment!r}.")
    for what in ("joint_names", "frame_names"):
        both = sorted(set(getattr(trunk, what)) & set(getattr(branch, what)))
        if both:
            raise ModelError(
                f"{what[:-6].capitalize()}s {abbreviated(both)} are in {trunk.name!r} and in {branch.name!r}: "
                'give prefixes, for example prefixes=["", "second/"].'
            )
    if _concrete_difference(trunk.friction_velocity, branch.friction_velocity):
        raise ModelError(
            f"{trunk.name!r} and {branch.name!r} have different friction velocities; a robot has one: set them alike "
            "with replace(friction_velocity=...) first."
        )
    trunk, branch = parts.on_host((trunk, branch))
    row = trunk.topology.frame_number(frame)
    link = trunk.topology.frame_links[row]
    place = (trunk.frame_rotation[row], trunk.frame_position[row])
    if placement:
        place = parts.compose(place, parts.checked_pose(trunk, placement[0], placement[1], f"robot {branch.name!r}"))
    place = parts.compose(place, (branch.base_rotation, branch.base_position))
    bodies = [parts.body_of(trunk, link), parts.moved(place, parts.body_of(branch, -1))]

    first = trunk.n_links
    a, b = trunk.topology, branch.topology
    topology = parts.changed_topology(
        a,
        parents=[*a.parents, *(link if parent < 0 else parent + first for parent in b.parents)],
        frame_links=[*a.frame_links, *(link if carrier < 0 else carrier + first for carrier in b.frame_links)],
        **{key: (*getattr(a, key), *getattr(b, key)) for key in ("kinds", "link_names", "joint_names", "frame_names")},
        mimics=(*a.mimics, *b.mimics),
    )

    def carried(R: Array, p: Array, fixed: np.ndarray) -> parts.Pose:
        """Poses seen from the trunk where they were seen from the branch's base."""
        xp = parts.array_module(R, p, *place)
        moved = place[0] @ R, p @ place[0].T + place[1]
        return xp.where(fixed[:, None, None], moved[0], R), xp.where(fixed[:, None], moved[1], p)

    joints = carried(branch.joint_rotation, branch.joint_position, np.array(b.parents) < 0)
    frames = carried(branch.frame_rotation, branch.frame_position, np.array(b.frame_links) < 0)
    added = parts.leaves(branch) | dict(zip(("joint_rotation", "joint_position"), joints, strict=True))
    added |= dict(zip(("frame_rotation", "frame_position"), frames, strict=True))
    leaves = parts.leaves(trunk)
    if trunk.springs is not None or branch.springs is not None:
        for part in (leaves, added):
            of = trunk if part is leaves else branch
            part["springs"] = RestSprings(of.stiffness, of.rest)
        leaves["springs"] = jax.tree.map(
            lambda x, y: parts.concatenate([jnp.asarray(x), jnp.asarray(y, x.dtype)]),
            leaves["springs"],
            added["springs"],
        )
    for field in (*parts.PER_LINK, *parts.PER_DOF, *parts.PER_FRAME):
        joined = jax.tree.map(lambda x, y: parts.concatenate([x, y.astype(x.dtype)]), leaves[field], added[field])
        leaves[field] = joined
    return parts.finished(topology, leaves | _with_body(leaves, link, bodies))


def _concrete_difference(x: Array, y: Array) -> bool:
    return not isinstance(x, Tracer) and not isinstance(y, Tracer) and not np.allclose(x, y, rtol=1e-6)
