"""Triangle meshes of simple bodies, in plain NumPy: vertices (n, 3) and faces (m, 3), counterclockwise from outside.

Vertices are repeated along sharp edges, so that averaging the normals of neighbouring faces keeps the edge.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Mesh(NamedTuple):
    """Triangles: `vertices` (n, 3) and `faces` (m, 3), indices of vertices, counterclockwise from outside."""

    vertices: np.ndarray
    faces: np.ndarray

    def moved(self, rotation: np.ndarray, position: np.ndarray) -> Mesh:
        """The same mesh, turned and then shifted."""
        return Mesh(self.vertices @ np.asarray(rotation).T + position, self.faces)


def join(meshes: Sequence[Mesh]) -> Mesh:
    """Several meshes as one."""
    starts = np.cumsum([0, *(len(mesh.vertices) for mesh in meshes)])
    faces = [mesh.faces + start for mesh, start in zip(meshes, starts, strict=False)]
    return Mesh(np.concatenate([mesh.vertices for mesh in meshes]), np.concatenate(faces))


def box(size: Sequence[float] | np.ndarray) -> Mesh:
    """A box of three edge lengths, centred at the origin."""
    vertices, faces = [], []
    for axis in range(3):
        for sign in (-1.0, 1.0):
            one, two = (axis + 1) % 3, (axis + 2) % 3
            corner = np.zeros((4, 3))
            corner[:, axis] = sign
            corner[:, one], corner[:, two] = [-1, 1, 1, -1], [-1, -1, 1, 1]
            start = len(vertices)
            vertices.extend(corner)
            order = (0, 1, 2, 3) if sign > 0 else (3, 2, 1, 0)
            a, b, c, d = (start + k for k in order)
            faces += [(a, b, c), (a, c, d)]
    return Mesh(np.array(vertices) * np.asarray(size, float) / 2, np.array(faces))


def revolved(profile: Sequence[tuple[float, float]], segments: int = 16) -> Mesh:
    """The surface swept by a profile of (radius, height) points, from low to high, turning about z."""
    radius, height = np.array(profile, float).T
    angle = np.arange(segments) * 2 * np.pi / segments
    ring = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    rows = radius[:, None, None] * ring
    vertices = np.concatenate([rows, np.broadcast_to(height[:, None, None], (*rows.shape[:2], 1))], axis=2)
    faces = []
    for row in range(len(profile) - 1):
        if np.allclose(profile[row], profile[row + 1]):
            continue  # a sharp edge: the ring is there twice
        low, high = row * segments, (row + 1) * segments
        for k in range(segments):
            following = (k + 1) % segments
            if radius[row] > 0:
                faces.append((low + k, low + following, high + following))
            if radius[row + 1] > 0:
                faces.append((low + k, high + following, high + k))
    return Mesh(vertices.reshape(-1, 3), np.array(faces))


def cylinder(radius: float, length: float, segments: int = 24) -> Mesh:
    """A closed cylinder about z, centred at the origin."""
    half = length / 2
    profile = [(0, -half), (radius, -half), (radius, -half), (radius, half), (radius, half), (0, half)]
    return revolved(profile, segments)


def sphere(radius: float, segments: int = 20) -> Mesh:
    angle = np.linspace(-np.pi / 2, np.pi / 2, segments // 2 + 1)
    return revolved([(radius * max(np.cos(t), 0.0), radius * np.sin(t)) for t in angle], segments)


def capsule(start: np.ndarray, end: np.ndarray, radius: float, segments: int = 16) -> Mesh:
    """A rod with round ends, whose axis runs from `start` to `end`."""
    start, end = np.asarray(start, float), np.asarray(end, float)
    length = float(np.linalg.norm(end - start))
    angle = np.linspace(0, np.pi / 2, segments // 4 + 1)
    upper = [(radius * max(np.cos(t), 0.0), length + radius * np.sin(t)) for t in angle]
    # Rings along the rod keep triangles small, which is what drawing from far to near needs.
    rings = max(1, round(length / (3 * radius))) if radius > 0 else 1
    middle = [(radius, length * k / rings) for k in range(1, rings)]
    lower = [(r, length - h) for r, h in reversed(upper)]
    profile = [(max(r, 0.0), h) for r, h in [*lower, *middle, *upper]]
    profile[0], profile[-1] = (0.0, profile[0][1]), (0.0, profile[-1][1])
    return revolved(profile, segments).moved(along(end - start), start)


def arrow(start: np.ndarray, vector: np.ndarray, radius: float) -> Mesh:
    """A shaft with a conical head from `start` to `start + vector`."""
    length = float(np.linalg.norm(vector))
    head = min(5 * radius, 0.5 * length)
    neck = length - head
    profile = [(0, 0), (radius, 0), (radius, 0), (radius, neck), (radius, neck)]
    profile += [(2.4 * radius, neck), (2.4 * radius, neck), (0, length)]
    return revolved(profile, 12).moved(along(vector), np.asarray(start, float))


def along(direction: np.ndarray) -> np.ndarray:
    """A rotation (3, 3) that takes z to the given direction; the identity for the zero vector."""
    direction = np.asarray(direction, float)
    length = np.linalg.norm(direction)
    if length == 0:
        return np.eye(3)
    z = direction / length
    helper = np.eye(3)[np.argmin(np.abs(z))]
    x = np.cross(helper, z)
    x /= np.linalg.norm(x)
    return np.stack([x, np.cross(z, x), z], axis=1)
