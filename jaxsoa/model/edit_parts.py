"""What editing a model is made of: arrays on the host or traced, poses, bodies, models taken apart and put together."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array

from jaxsoa.model.description import ModelError
from jaxsoa.model.multibody import Multibody
from jaxsoa.model.topology import Topology

_FIELDS = tuple(field.name for field in dataclasses.fields(Multibody))


def _present(*names: str) -> tuple[str, ...]:
    return tuple(name for name in names if name in _FIELDS)


PER_LINK = _present("joint_rotation", "joint_position", "axis", "axis2", "pitch", "mass", "com", "inertia")
PER_DOF = _present("armature", "damping", "friction", "limits")
PER_FRAME = _present("frame_rotation", "frame_position")

Pose = tuple[Array, Array]
Body = tuple[Array, Array, Array]  # mass, centre of mass, inertia about it


def on_host(tree: Any) -> Any:
    """Concrete numbers as NumPy arrays: a hundred small operations of NumPy take less time than one compilation."""
    return jax.tree.map(lambda x: x if isinstance(x, Tracer) else np.asarray(x), tree)


def array_module(*arrays: Any) -> Any:
    """The array module that can hold all of these."""
    return np if all(isinstance(x, np.ndarray | np.generic) for x in arrays) else jnp


def stack(arrays: Sequence[Array]) -> Array:
    return array_module(*arrays).stack(arrays)


def concatenate(arrays: Sequence[Array]) -> Array:
    return array_module(*arrays).concatenate(arrays)


def finished(topology: Topology, leaves: dict[str, Any]) -> Multibody:
    return Multibody(topology=topology, **jax.tree.map(jnp.asarray, leaves))


def compose(a: Pose, b: Pose) -> Pose:
    return a[0] @ b[0], a[0] @ b[1] + a[1]


def identity(robot: Multibody) -> Any:
    return np.eye(3, dtype=robot.dtype), np.zeros(3, robot.dtype)


def leaves(robot: Multibody) -> dict[str, Any]:
    return {name: getattr(robot, name) for name in _FIELDS if name != "topology"}


def changed_topology(old: Topology, **changes) -> Topology:
    fields = ("name", "parents", "kinds", "link_names", "joint_names", "frame_names", "frame_links", "mimics")
    return Topology(**({field: getattr(old, field) for field in fields} | changes))


def moved(pose: Pose, body: Body) -> Body:
    R, p = pose
    mass, com, inertia = body
    return mass, R @ com + p, R @ inertia @ R.T


def joined(bodies: Sequence[Body]) -> Body:
    """Bodies welded together, all in the same axes: masses add, inertias by Steiner's theorem."""
    mass = sum((m for m, _, _ in bodies[1:]), bodies[0][0])
    moment = sum((m * c for m, c, _ in bodies[1:]), bodies[0][0] * bodies[0][1])
    com = moment / array_module(mass).where(mass > 0, mass, 1).astype(moment.dtype)
    inertia = 0 * bodies[0][2]
    for m, c, own in bodies:
        d = c - com
        inertia = inertia + own + m * (d @ d * np.eye(3, dtype=d.dtype) - array_module(d).outer(d, d))
    return mass, com, inertia


def body_of(robot: Multibody, link: int) -> Body:
    if link < 0:
        return robot.base_mass, robot.base_com, robot.base_inertia
    return robot.mass[link], robot.com[link], robot.inertia[link]


def checked_array(robot: Multibody, value, shape: tuple[int, ...], what: str) -> Array:
    value = jnp.asarray(value, robot.dtype) if isinstance(value, Tracer) else np.asarray(value, robot.dtype)
    if value.shape != shape:
        raise ModelError(f"{what} must have shape {shape}, got {value.shape}.")
    if not isinstance(value, Tracer) and not np.isfinite(value).all():
        raise ModelError(f"{what} must be finite, got {np.asarray(value).tolist()}.")
    return value  # pyright: ignore[reportReturnType]


def checked_pose(robot: Multibody, rotation, position, what: str) -> Pose:
    R = checked_array(robot, np.eye(3) if rotation is None else rotation, (3, 3), f"The rotation of {what}")
    if not isinstance(R, Tracer):
        turned = np.asarray(R, float)
        if not np.allclose(turned @ turned.T, np.eye(3), atol=1e-5) or np.linalg.det(turned) < 0:
            raise ModelError(f"The rotation of {what} is no rotation matrix: {turned.tolist()}.")
    return R, checked_array(robot, position, (3,), f"The position of {what}")
