"""The coordinates that inverse kinematics moves: independent joints, inside their limits."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxsoa.model.mimics import mimic_map
from jaxsoa.model.multibody import Multibody


class Coordinates(NamedTuple):
    """Static: which rates are searched for, and which of them are plain coordinates that a limit can hold."""

    A: np.ndarray  # (nv, ny) all rates from the searched ones
    B: np.ndarray  # (nq, my) all coordinates from the independent ones
    b: np.ndarray
    q_columns: np.ndarray  # (my,) independent entries of q
    plain: np.ndarray  # (ny,) bool: the rate moves one coordinate by addition
    place: np.ndarray  # (ny,) where that coordinate stands in q (0 where there is none)


def coordinates(robot: Multibody, mimics: str) -> Coordinates:
    """Of a robot whose mimic joints are "coupled" or "free"."""
    topology = robot.topology
    plain, place = np.zeros(robot.nv, bool), np.zeros(robot.nv, int)
    for joint, at_q, at_v in zip(topology.joints, topology.q_slices, topology.v_slices, strict=True):
        if joint.nq == joint.nv:
            plain[at_v], place[at_v] = True, np.arange(at_q.start, at_q.stop)
    if mimics == "free" or not topology.mimics:
        eye = np.eye(robot.nv), np.eye(robot.nq), np.zeros(robot.nq), np.arange(robot.nq)
        return Coordinates(*eye, plain, place)
    to = mimic_map(robot)
    return Coordinates(to.A, to.B, to.b, to.q_columns, plain[to.v_columns], place[to.v_columns])


def bounds(robot: Multibody, to: Coordinates, limited: bool) -> tuple[Float[Array, " ny"], Float[Array, " ny"]]:
    """Limits of the searched coordinates (those of joints that mimic them included); infinite for rotations."""
    ny = to.A.shape[1]
    dtype = robot.dtype
    if not limited:
        return jnp.full(ny, -jnp.inf, dtype), jnp.full(ny, jnp.inf, dtype)
    lower, upper = jnp.full(ny, -jnp.inf, dtype), jnp.full(ny, jnp.inf, dtype)
    offsets = np.zeros(robot.nv)
    for joint, at_q, at_v in zip(robot.topology.joints, robot.topology.q_slices, robot.topology.v_slices, strict=True):
        if joint.nq == joint.nv:
            offsets[at_v] = to.b[at_q]
    for dof, column in zip(*np.nonzero(to.A), strict=True):
        if not to.plain[column]:
            continue
        ratio, offset = float(to.A[dof, column]), float(offsets[dof])
        ends = [(x[dof] - offset) / ratio for x in (robot.limits.lower, robot.limits.upper)]
        low, high = ends if ratio > 0 else ends[::-1]
        lower, upper = lower.at[column].max(low), upper.at[column].min(high)
    return lower, upper


def clip_step(to: Coordinates, q: Array, step: Array, lower: Array, upper: Array) -> Array:
    """The step shortened, coordinate by coordinate, so that no limit is passed."""
    now = q[to.place]
    return jnp.where(to.plain, jnp.clip(step, lower - now, upper - now), step)


def held(to: Coordinates, q: Array, gradient: Array, lower: Array, upper: Array) -> Bool[Array, " ny"]:
    """Coordinates at a limit that a descent would pass."""
    now = q[to.place]
    return jnp.asarray(to.plain) & (((now <= lower) & (gradient > 0)) | ((now >= upper) & (gradient < 0)))


def inside(to: Coordinates, q: Array, lower: Array, upper: Array) -> Array:
    """q (nq,) with every limited coordinate at or between its limits, mimic joints where they belong."""
    index = to.place[to.plain]
    q = q.at[index].set(jnp.clip(q[index], lower[to.plain], upper[to.plain]))
    return jnp.asarray(to.B, q.dtype) @ q[to.q_columns] + jnp.asarray(to.b, q.dtype)
