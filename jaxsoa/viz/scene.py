"""Shapes in the world: poses of a motion, arrows for forces, axes of frames."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxsoa.dynamics.kinematics import forward_kinematics
from jaxsoa.model.multibody import Multibody
from jaxsoa.viz.meshes import Mesh, arrow
from jaxsoa.viz.shapes import Color, Shape, primitive_shapes, robot_size
from jaxsoa.viz.visuals import urdf_shapes

FORCE_COLOR: Color = (214, 39, 40)
MOMENT_COLOR: Color = (148, 80, 189)
AXIS_COLORS: tuple[Color, ...] = ((220, 50, 47), (60, 160, 60), (40, 90, 220))

Shapes = Sequence[Shape] | str | os.PathLike[str] | None


class Poses(NamedTuple):
    """World poses over time. Row -1 of the links is the base, so that a shape's `link` is always an index."""

    rotation: np.ndarray  # (times, n_links + 1, 3, 3)
    position: np.ndarray  # (times, n_links + 1, 3)


class Body(NamedTuple):
    """A coloured mesh in world axes."""

    mesh: Mesh
    color: Color
    smooth: bool = True


_kinematics = jax.jit(jax.vmap(forward_kinematics, in_axes=(None, 0)))


def as_motion(robot: Multibody, q) -> np.ndarray:
    """q (nq,) or (times, nq), or None for the neutral configuration, as finite (times, nq)."""
    q = np.asarray(robot.neutral() if q is None else q)
    if q.shape[-1:] != (robot.nq,) or q.ndim not in (1, 2) or not len(q):
        raise ValueError(f"q must have shape (nq,) = ({robot.nq},) or (times, {robot.nq}) to be drawn, got {q.shape}.")
    if not np.isfinite(q).all():
        raise ValueError("Cannot draw a motion that holds NaN or infinity.")
    return np.atleast_2d(q)


def poses(robot: Multibody, q: np.ndarray) -> Poses:
    """World poses of all links and the base for q (times, nq)."""
    links = _kinematics(robot, jnp.asarray(q))
    R, p = np.asarray(links.rotation, float), np.asarray(links.position, float)
    base_R = np.broadcast_to(np.asarray(robot.base_rotation, float), (len(R), 1, 3, 3))
    base_p = np.broadcast_to(np.asarray(robot.base_position, float), (len(R), 1, 3))
    return Poses(np.concatenate([R, base_R], axis=1), np.concatenate([p, base_p], axis=1))


def as_shapes(robot: Multibody, shapes: Shapes) -> tuple[Shape, ...]:
    """Shapes themselves, those of a URDF file (a path), or primitive ones (None)."""
    if shapes is None:
        return primitive_shapes(robot)
    if isinstance(shapes, str | os.PathLike):
        return urdf_shapes(robot, shapes)
    return tuple(shapes)


def as_forces(robot: Multibody, forces, times: int) -> np.ndarray | None:
    """Forces (n_links, 6) or (times, n_links, 6), moment then force as `f_ext`, as (times, n_links, 6); None stays."""
    if forces is None:
        return None
    forces = np.asarray(forces, float)
    if forces.shape not in ((robot.n_links, 6), (times, robot.n_links, 6)):
        needed = f"({robot.n_links}, 6) or ({times}, {robot.n_links}, 6)"
        raise ValueError(f"forces must have shape {needed}, as f_ext and one per time drawn, got {forces.shape}.")
    if not np.isfinite(forces).all():
        raise ValueError("Cannot draw forces that hold NaN or infinity.")
    return np.broadcast_to(forces, (times, robot.n_links, 6))


class Arrow(NamedTuple):
    start: np.ndarray
    vector: np.ndarray
    color: Color


def force_arrows(forces: np.ndarray, positions: np.ndarray, size: float, largest: np.ndarray) -> list[Arrow]:
    """Arrows at the links' origins for one time: forces (n, 6), positions (n, 3).

    Forces are red and moments violet, each scaled so that the largest of the motion, `largest` = (moment, force), is
    0.35 of the robot's size.
    """
    arrows = []
    for half, color in ((slice(3, 6), FORCE_COLOR), (slice(0, 3), MOMENT_COLOR)):
        biggest = largest[1 if half.start == 3 else 0]
        for start, vector in zip(positions, forces[:, half], strict=False):
            if biggest > 0 and np.linalg.norm(vector) > 1e-3 * biggest:
                arrows.append(Arrow(start, 0.35 * size * vector / biggest, color))
    return arrows


def largest_forces(forces: np.ndarray) -> np.ndarray:
    """(largest moment, largest force) of forces (times, n, 6)."""
    halves = np.linalg.norm(forces.reshape(-1, 2, 3), axis=2)
    return halves.max(axis=0, initial=0.0)


def bodies_at(
    robot: Multibody,
    shapes: Sequence[Shape],
    where: Poses,
    time: int,
    *,
    forces: np.ndarray | None = None,
    frames: bool = False,
    arrows: Sequence[Arrow] = (),
) -> list[Body]:
    """Everything to draw at one time, in world axes; `arrows` besides those of the forces."""
    R, p = where.rotation[time], where.position[time]
    bodies = [Body(shape.mesh.moved(R[shape.link], p[shape.link]), shape.color, shape.smooth) for shape in shapes]
    size = robot_size(robot)
    if frames:
        for link in range(robot.n_links):
            bodies += [
                Body(arrow(p[link], 0.12 * size * R[link][:, axis], 0.005 * size), color)
                for axis, color in enumerate(AXIS_COLORS)
            ]
    if forces is not None:
        arrows = [*arrows, *force_arrows(forces[time], p, size, largest_forces(forces))]
    if arrows:
        bodies += [Body(arrow(a.start, a.vector, 0.01 * size), a.color) for a in arrows]
    return bodies
