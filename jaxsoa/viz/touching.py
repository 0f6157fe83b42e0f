"""Contact made visible: surfaces and points of a scene as shapes, and arrows for forces where bodies touch."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxsoa.contact.rows import touching
from jaxsoa.contact.scene import Scene
from jaxsoa.contact.surfaces import Ball, Box, Capsule, HeightField, Plane, Surface
from jaxsoa.dynamics.kinematics import kinematics
from jaxsoa.model.multibody import Multibody
from jaxsoa.viz.meshes import Mesh, along, box, capsule, sphere
from jaxsoa.viz.scene import FORCE_COLOR, Arrow
from jaxsoa.viz.shapes import Color, Shape, robot_size

POINT_COLOR: Color = (44, 160, 44)
GROUND_COLOR: Color = (196, 188, 168)


class Contacts(NamedTuple):
    """Where pairs of a scene touch over a motion, world axes, and what their bodies feel."""

    shapes: tuple[Shape, ...]
    positions: np.ndarray  # (times, c, 3)
    forces: np.ndarray  # (times, c, 3), on the point's body

    def arrows(self, time: int, size: float) -> list[Arrow]:
        """At one time; the largest force of the motion is 0.35 of the robot's size."""
        largest = np.linalg.norm(self.forces, axis=-1).max(initial=0.0)
        if largest == 0:
            return []
        pairs = zip(self.positions[time], self.forces[time], strict=True)
        return [Arrow(p, 0.35 * size * f / largest, FORCE_COLOR) for p, f in pairs if f @ f > 1e-6 * largest**2]


def as_contacts(robot: Multibody, scene: Scene | None, forces, q: np.ndarray) -> Contacts | None:
    """What to draw of a scene and of forces (c, 3) or (times, c, 3), such as `impulses / dt`, over q (times, nq)."""
    if scene is None:
        if forces is not None:
            raise ValueError("contact_forces need the scene whose contacts they belong to: contact=scene.")
        return None
    pairs = scene.pairs(robot)

    def positions(q):
        return touching(robot, scene, kinematics(robot, q), pairs).positions + robot.base_position

    places = np.asarray(jax.jit(jax.vmap(positions))(jnp.asarray(q, robot.dtype)), float)
    forces = np.zeros((len(pairs), 3)) if forces is None else np.asarray(forces, float)
    if forces.shape not in ((len(pairs), 3), places.shape):
        needed = f"({len(pairs)}, 3) or {places.shape}"
        raise ValueError(f"contact_forces must have shape {needed}, one per contact of the scene, got {forces.shape}.")
    if not np.isfinite(forces).all():
        raise ValueError("Cannot draw contact forces that hold NaN or infinity.")
    return Contacts(scene_shapes(robot, scene), places, np.broadcast_to(forces, places.shape))


def scene_shapes(robot: Multibody, scene: Scene) -> tuple[Shape, ...]:
    """Contact points on their links, and surfaces but the plane z = 0, which every picture shows as a grid."""
    size, topology, points = robot_size(robot), robot.topology, scene.points
    shapes = []
    ends = points.positions if points.ends is None else points.ends
    data = (np.asarray(x, float) for x in (points.positions, ends, points.radii))
    for frame, start, end, radius in zip(points.frames, *data, strict=True):
        radius = max(float(radius), 0.012 * size)
        mesh = sphere(radius).moved(np.eye(3), start) if (start == end).all() else capsule(start, end, radius)
        shapes.append(_on_frame(robot, topology.frame_number(frame), mesh, POINT_COLOR))
    for surface in scene.surfaces:
        mesh = _mesh(surface, size)
        if mesh is not None and surface.frame is not None:
            shapes.append(_on_frame(robot, topology.frame_number(surface.frame), mesh, GROUND_COLOR))
        elif mesh is not None:  # in the world, as seen from the base
            R, p = np.asarray(robot.base_rotation, float), np.asarray(robot.base_position, float)
            shapes.append(Shape(-1, mesh.moved(R.T, -R.T @ p), GROUND_COLOR, smooth=False))
    return tuple(shapes)


def _on_frame(robot: Multibody, number: int, mesh: Mesh, color: Color) -> Shape:
    R, p = (np.asarray(x[number], float) for x in (robot.frame_rotation, robot.frame_position))
    return Shape(robot.topology.frame_links[number], mesh.moved(R, p), color)


def _mesh(surface: Surface, size: float) -> Mesh | None:
    match surface:
        case Plane():
            n = np.asarray(surface.normal, float) / np.linalg.norm(surface.normal)
            height = float(surface.height)
            if surface.frame is None and height == 0 and np.allclose(n, [0, 0, 1]):
                return None
            x = np.linspace(-1, 1, 9) * 1.2 * size
            return _grid(x, x, np.zeros((9, 9))).moved(along(n), height * n)
        case HeightField():
            heights, (x0, y0) = np.asarray(surface.heights, float), np.asarray(surface.origin, float)
            x, y = (
                start + float(surface.spacing) * np.arange(k)
                for start, k in ((x0, len(heights)), (y0, heights.shape[1]))
            )
            return _grid(x, y, heights)
        case Ball():
            return sphere(float(surface.radius)).moved(np.eye(3), np.asarray(surface.center, float))
        case Capsule():
            start, end = np.asarray(surface.start, float), np.asarray(surface.end, float)
            return capsule(start, end, float(surface.radius))
        case Box():
            return box(np.asarray(surface.size, float)).moved(np.eye(3), np.asarray(surface.center, float))
    return None  # a surface of the user's own


def _grid(x: np.ndarray, y: np.ndarray, heights: np.ndarray) -> Mesh:
    """The graph of heights (len(x), len(y)) as triangles."""
    vertices = np.stack([*np.meshgrid(x, y, indexing="ij"), heights], axis=-1).reshape(-1, 3)
    corner = (np.arange(len(x) - 1)[:, None] * len(y) + np.arange(len(y) - 1)).ravel()
    a, b, c, d = corner, corner + len(y), corner + len(y) + 1, corner + 1
    return Mesh(vertices, np.concatenate([np.stack([a, b, c], axis=1), np.stack([a, c, d], axis=1)]))
