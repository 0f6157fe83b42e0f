"""Mimic joints as a linear map: q = A y + b and v = A y', with y the coordinates of the joints that mimic nobody.

The numbers of a URDF file's <mimic> elements are part of the topology, so A and b are constants.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from jaxsoa.model.multibody import Multibody

MODES = ("coupled", "free")


class MimicMap(NamedTuple):
    """v = A y' (nv, ny), q = B y + b (nq, my); `joints` are those that mimic nobody."""

    joints: tuple[str, ...]
    v_columns: np.ndarray  # (ny,) where the independent rates stand in v
    q_columns: np.ndarray  # (my,) where the independent coordinates stand in q
    A: np.ndarray
    B: np.ndarray
    b: np.ndarray


def mimic_map(robot: Multibody) -> MimicMap:
    """How all joints follow the independent ones; chains of mimics are followed to their end."""
    topology = robot.topology
    follows = {joint: (target, ratio, offset) for joint, target, ratio, offset in topology.mimics}
    joints = tuple(name for name in robot.joint_names if name not in follows)
    v_columns = np.array([d for name in joints for d in range(robot.nv)[robot.v_index(name)]], int)
    q_columns = np.array([d for name in joints for d in range(robot.nq)[robot.q_index(name)]], int)
    A, B, b = np.zeros((robot.nv, len(v_columns))), np.zeros((robot.nq, len(q_columns))), np.zeros(robot.nq)
    A[v_columns, np.arange(len(v_columns))] = 1
    B[q_columns, np.arange(len(q_columns))] = 1
    for name in follows:
        target, ratio, offset = follows[name]
        while target in follows:
            target, inner, shift = follows[target]
            ratio, offset = ratio * inner, offset + ratio * shift
        A[robot.v_index(name)] = ratio * A[robot.v_index(target)]
        B[robot.q_index(name)] = ratio * B[robot.q_index(target)]
        b[robot.q_index(name)] = offset
    return MimicMap(joints, v_columns, q_columns, A, B, b)


def follow_mimics(
    robot: Multibody, q: Shaped[Array, " nq"], v: Shaped[Array, " nv"]
) -> tuple[Float[Array, " nq"], Float[Array, " nv"]]:
    """q and v with every mimic joint where its target puts it; the others are left as they are."""
    if not robot.topology.mimics:
        return q, v
    to = mimic_map(robot)
    q, v = jnp.asarray(q), jnp.asarray(v)
    return (
        jnp.asarray(to.B, q.dtype) @ q[to.q_columns] + jnp.asarray(to.b, q.dtype),
        jnp.asarray(to.A, v.dtype) @ v[to.v_columns],
    )


def check_mimics(mimics: str) -> str:
    """One of the two ways to treat mimic joints."""
    if mimics not in MODES:
        raise ValueError(f'mimics must be "coupled" or "free", got {mimics!r}.')
    return mimics
