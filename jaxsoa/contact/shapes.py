"""Contact points from the collision shapes of a URDF or MJCF file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxsoa.contact.scene import Points
from jaxsoa.io._mujoco import body_names, compile_mjcf
from jaxsoa.io._xml import read_xml
from jaxsoa.io.urdf import _drop_namespace, _length, _origin, _vector
from jaxsoa.model.description import ModelError
from jaxsoa.model.multibody import Multibody

RIM = 8
"""Points on each rim of a cylinder."""

Found = tuple[np.ndarray, np.ndarray]  # positions (k, 3) and radii (k,), in the shape's own axes


def points_of(robot: Multibody, source: Any, frames: str | Sequence[str] | None = None) -> Points:
    """Points of the collision shapes in the file (or XML text, or `mujoco.MjModel`) that the robot was loaded from.

    A sphere gives its centre with its radius, a capsule both ends with its radius, a box its corners, a cylinder eight
    points on each rim. `frames` names the links to look at (None: all that move). Meshes are refused: name the links
    without them, or give points of your own by `contact.Points`.

    >>> ball = "<body><freejoint/><geom size='0.1'/></body>"
    >>> text = f"<mujoco><option><flag contact='disable'/></option><worldbody>{ball}</worldbody></mujoco>"
    >>> print(soa.contact.points_of(soa.load_mjcf(text), text).radii)  # m
    [0.1]
    """
    wanted = None if frames is None else ({frames} if isinstance(frames, str) else set(frames))
    for name in wanted or ():
        robot.topology.frame_number(name)  # raises with close matches
    shapes = _mjcf_shapes(source) if _is_mjcf(source) else _urdf_shapes(source)
    names: list[str] = []
    positions, radii = [np.zeros((0, 3))], [np.zeros(0)]
    for name, where, R, p, shape in shapes:
        if wanted is not None and name not in wanted:
            continue
        if name not in robot.frame_names:
            raise ModelError(f"{where}: robot {robot.name!r} has no link {name!r}; was it loaded from this file?")
        if robot.topology.frame_links[robot.frame_names.index(name)] < 0:
            continue  # what cannot move touches nothing by itself
        if isinstance(shape, str):
            raise ModelError(
                f"{where}: a collision shape of {name!r} is a {shape}, from which no contact points are taken. Name "
                "the links to use by `frames`, or place points by contact.Points."
            )
        at, radius = shape
        names += [name] * len(at)
        positions.append(at @ R.T + p)
        radii.append(radius)
    if not names:
        raise ModelError(
            f"No collision shapes on moving links{'' if wanted is None else f' {sorted(wanted)}'} were found."
        )
    return Points(names, np.concatenate(positions), np.concatenate(radii))


def _is_mjcf(source: Any) -> bool:
    if hasattr(source, "ngeom"):
        return True
    if isinstance(source, str) and "<mujoco" in source:
        return True
    path = Path(os.fspath(source)) if not (isinstance(source, str) and "<" in source) else None
    return path is not None and path.suffix.lower() == ".xml" and "<mujoco" in path.read_text(encoding="utf-8")


def _urdf_shapes(source: Any):
    root, file = read_xml(source)
    _drop_namespace(root, file)
    for element in root.findall("link"):
        name = element.get("name", "")
        where = f"{file}: link {name!r}"
        for collision in element.findall("collision"):
            R, p = _origin(collision, where)
            geometry = collision.find("geometry")
            body = None if geometry is None or not len(geometry) else geometry[0]
            if body is None:
                raise ModelError(f"{where} has a <collision> without a shape.")

            match body.tag:
                case "sphere":
                    shape = _sphere(_length(body, "radius", where))
                case "box":
                    shape = _box(_vector(body, "size", np.ones(3), where) / 2)
                case "cylinder":
                    shape = _cylinder(_length(body, "radius", where), _length(body, "length", where) / 2)
                case "capsule":
                    shape = _capsule(_length(body, "radius", where), _length(body, "length", where) / 2)
                case other:
                    shape = other
            yield name, where, R, p, shape


def _mjcf_shapes(source: Any):
    model, file = compile_mjcf(source, None)
    import mujoco

    kinds, names = mujoco.mjtGeom, body_names(model)  # pyright: ignore[reportAttributeAccessIssue]
    for geom in range(model.ngeom):
        body = int(model.geom_bodyid[geom])
        if body == 0 or not (model.geom_contype[geom] or model.geom_conaffinity[geom]):
            continue
        size, matrix = np.array(model.geom_size[geom]), np.zeros(9)
        mujoco.mju_quat2Mat(matrix, model.geom_quat[geom])  # pyright: ignore[reportAttributeAccessIssue]
        match model.geom_type[geom]:
            case kinds.mjGEOM_SPHERE:
                shape = _sphere(size[0])
            case kinds.mjGEOM_BOX:
                shape = _box(size)
            case kinds.mjGEOM_CYLINDER:
                shape = _cylinder(size[0], size[1])
            case kinds.mjGEOM_CAPSULE:
                shape = _capsule(size[0], size[1])
            case other:
                shape = kinds(other).name.removeprefix("mjGEOM_").lower()
        yield names[body], f"{file}: body {names[body]!r}", matrix.reshape(3, 3), np.array(model.geom_pos[geom]), shape


def _sphere(radius: float) -> Found:
    return np.zeros((1, 3)), np.array([radius])


def _box(half: np.ndarray) -> Found:
    signs = np.array([(x, y, z) for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)])
    return signs * half, np.zeros(8)


def _cylinder(radius: float, half: float) -> Found:
    angle = np.arange(RIM) * 2 * np.pi / RIM
    rim = np.stack([radius * np.cos(angle), radius * np.sin(angle), np.zeros(RIM)], axis=1)
    up = np.array([0, 0, half])
    return np.concatenate([rim - up, rim + up]), np.zeros(2 * RIM)


def _capsule(radius: float, half: float) -> Found:
    return np.array([[0, 0, -half], [0, 0, half]]), np.full(2, radius)
