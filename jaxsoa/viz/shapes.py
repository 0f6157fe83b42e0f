"""What a robot looks like when nobody says: rods from joint to joint, and a mark for each joint's freedom.

A rod is as thick as its link's mass makes a bar of the density of water, within limits that keep small and large
robots readable.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from jaxsoa.model.joints import Joint, on_host
from jaxsoa.model.multibody import Multibody
from jaxsoa.viz.meshes import Mesh, along, box, capsule, cylinder, sphere

Color = tuple[int, int, int]

LINK_COLORS: tuple[Color, ...] = ((242, 142, 43), (78, 121, 167))
JOINT_COLOR: Color = (70, 76, 84)
BASE_COLOR: Color = (150, 155, 162)
DENSITY = 1000.0
LEAST_DENSITY = 300.0


@dataclasses.dataclass(frozen=True)
class Shape:
    """A coloured triangle mesh fixed to a link (-1: the base): vertices (n, 3) in link axes, faces (m, 3)."""

    link: int
    mesh: Mesh
    color: Color = BASE_COLOR
    smooth: bool = True


@dataclasses.dataclass(frozen=True)
class _Skeleton:
    """The model's geometry on the host: where rods end, per link (-1: base), in link axes."""

    ends: dict[int, list[np.ndarray]]
    reach: float


def robot_size(robot: Multibody) -> float:
    """The longest way from the base to a link or frame, a length by which everything drawn is scaled."""
    return _skeleton(robot).reach


def _skeleton(robot: Multibody) -> _Skeleton:
    topology = robot.topology
    offsets = np.asarray(robot.joint_position, float)
    ends: dict[int, list[np.ndarray]] = {k: [] for k in range(-1, robot.n_links)}
    for link, parent in enumerate(topology.parents):
        ends[parent].append(offsets[link])
    tiny = 1e-6 * max(float(np.abs(offsets).max()), 1.0)
    frames = np.asarray(robot.frame_position, float)
    for link in range(robot.n_links):
        if ends[link]:
            continue
        # A last link ends at its farthest frame (a tool point), or, being a rod, as far again as its centre of mass.
        candidates = [p for p, carrier in zip(frames, topology.frame_links, strict=True) if carrier == link]
        candidates = [p for p in candidates if np.linalg.norm(p) > tiny]
        ends[link].append(max(candidates, key=np.linalg.norm) if candidates else 2 * np.asarray(robot.com[link], float))
    distance = [0.0] * robot.n_links
    for link, parent in enumerate(topology.parents):
        if topology.joints[link].position is None:
            distance[link] = float(np.linalg.norm(offsets[link])) + (distance[parent] if parent >= 0 else 0.0)
    reach = max(distance[k] + max(float(np.linalg.norm(e)) for e in ends[k]) for k in range(robot.n_links))
    return _Skeleton({k: [e for e in own if np.linalg.norm(e) > tiny] for k, own in ends.items()}, max(reach, 1e-3))


def primitive_shapes(robot: Multibody) -> tuple[Shape, ...]:
    """Shapes for every link of any model, made from its geometry and masses alone.

    >>> print(len(soa.viz.primitive_shapes(robot)) > 2)
    True
    """
    skeleton, topology = _skeleton(robot), robot.topology
    reach = skeleton.reach
    depth: list[int] = []
    for parent in topology.parents:
        depth.append(0 if parent < 0 else depth[parent] + 1)
    shapes = []
    if all(topology.joints[k].position is None for k, parent in enumerate(topology.parents) if parent < 0):
        plate = cylinder(0.075 * reach, 0.03 * reach).moved(np.eye(3), np.array([0, 0, -0.015 * reach]))
        shapes.append(Shape(-1, plate, BASE_COLOR))
        shapes += [Shape(-1, capsule(np.zeros(3), end, 0.03 * reach), BASE_COLOR) for end in skeleton.ends[-1]]
    for link in range(robot.n_links):
        color = LINK_COLORS[depth[link] % len(LINK_COLORS)]
        ends = skeleton.ends[link]
        radius = _radius(float(robot.mass[link]), ends, reach)
        body = _inertia_box(robot, link, reach) if topology.joints[link].position is not None else None
        if body is not None:
            shapes.append(Shape(link, body, color))
        elif not ends:
            shapes.append(Shape(link, sphere(1.2 * radius), color))
        shapes += [Shape(link, capsule(np.zeros(3), end, radius), color) for end in ends]
        axes = (np.asarray(robot.axis[link], float), np.asarray(robot.axis2[link], float))
        shapes += [Shape(link, mark, JOINT_COLOR) for mark in _joint_marks(topology.joints[link], axes, radius)]
    return tuple(shapes)


def _radius(mass: float, ends: list[np.ndarray], reach: float) -> float:
    lengths = [float(np.linalg.norm(end)) for end in ends] or [0.1 * reach]
    thick = np.sqrt(max(mass, 0.0) / (np.pi * DENSITY * sum(lengths)))
    return float(np.clip(thick, 0.012 * reach, max(0.012 * reach, min(0.04 * reach, 0.3 * max(lengths)))))


def _inertia_box(robot: Multibody, link: int, reach: float) -> Mesh | None:
    """The uniform box that has the link's mass and moments of inertia, not lighter than `LEAST_DENSITY`.

    None where no box has them.
    """
    mass = float(robot.mass[link])
    moments, axes = np.linalg.eigh(np.asarray(robot.inertia[link], float))
    squares = 6 * (moments.sum() - 2 * moments) / mass if mass > 0 else np.zeros(3)
    if not np.isfinite(squares).all() or squares.max() <= 0:
        return None
    size = np.maximum(np.sqrt(np.maximum(squares, 0)), 0.02 * reach)
    size *= min(1.0, (mass / (LEAST_DENSITY * size.prod())) ** (1 / 3))
    axes = axes * np.sign(np.linalg.det(axes))
    return box(size).moved(axes, np.asarray(robot.com[link], float))


def _joint_marks(joint: Joint, axes: tuple[np.ndarray, np.ndarray], radius: float) -> list[Mesh]:
    """A drum about an axis that turns, a rail along one that slides, a ball for three turns, a plate for two slides."""
    if joint.position is not None:
        return []
    q = np.zeros(joint.nq)
    if joint.quaternion is not None:
        q[joint.quaternion] = (1, 0, 0, 0)
    screws = on_host(joint, *axes, 0.0, q)[2]
    turns = [screw[:3] for screw in screws if screw[:3].any()]
    slides = [screw[3:] for screw in screws if not screw[:3].any()]
    if len(turns) == 3:
        marks = [(sphere(1.5 * radius), turns[0])]
    elif len(slides) == 2:
        marks = [(box((6 * radius, 6 * radius, 0.6 * radius)), np.cross(*slides))]
    else:
        turn, rail = cylinder(1.15 * radius, 2.8 * radius), box((1.2 * radius, 1.2 * radius, 8 * radius))
        marks = [(rail, axis) for axis in slides] + [(turn, axis) for axis in turns]
    return [mesh.moved(along(axis), np.zeros(3)) for mesh, axis in marks]
