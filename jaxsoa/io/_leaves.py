"""The leaves of one concrete model, by name, for those who write files."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
from jax.core import Tracer

from jaxsoa.model.description import ModelError
from jaxsoa.model.multibody import Limits, Multibody
from jaxsoa.model.topology import Topology

LIMITS = tuple(field.name for field in dataclasses.fields(Limits))
_OTHERS = ("topology", "limits", "springs")
_LEAVES = tuple(field.name for field in dataclasses.fields(Multibody) if field.name not in _OTHERS)
#: Of a model with springs; a file without them is of one that has none.
SPRINGS = ("stiffness", "rest")


#: Leaves that files written before them lack; they are zero then.
LATER = ("base_mass", "base_com", "base_inertia")


def leaves_of(robot: Multibody) -> dict[str, np.ndarray]:
    """Every leaf on the host, the limits as `limits.lower` and so on; a `ModelError` unless it is one model."""
    if not isinstance(robot, Multibody):
        raise ModelError(f"Only a Multibody can be saved, not a {type(robot).__name__}.")
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(robot)):
        raise ModelError(f"Robot {robot.name!r} is being traced: save it outside jit and vmap.")
    limits = {f"limits.{field}": getattr(robot.limits, field) for field in LIMITS}
    leaves = {key: np.asarray(x) for key, x in ({key: getattr(robot, key) for key in _LEAVES} | limits).items()}
    if robot.springs is not None:
        leaves |= {key: np.asarray(getattr(robot, key)) for key in SPRINGS}
    expected = leaf_shapes(robot.topology)
    for key, array in leaves.items():
        if array.shape != expected[key]:
            raise ModelError(
                f"{key} of robot {robot.name!r} has shape {array.shape}, not {expected[key]}: a batch of models is "
                "saved one at a time."
            )
    return leaves


def leaf_shapes(topology: Topology) -> dict[str, tuple[int, ...]]:
    """The shape of every leaf of a model with this topology."""
    n, nv, f = topology.n_links, topology.nv, len(topology.frame_names)
    return {
        "joint_rotation": (n, 3, 3),
        "joint_position": (n, 3),
        "axis": (n, 3),
        "axis2": (n, 3),
        "pitch": (n,),
        "mass": (n,),
        "com": (n, 3),
        "inertia": (n, 3, 3),
        "armature": (nv,),
        "damping": (nv,),
        "friction": (nv,),
        "stiffness": (nv,),
        "rest": (topology.nq,),
        "friction_velocity": (),
        "gravity": (3,),
        "base_rotation": (3, 3),
        "base_position": (3,),
        "frame_rotation": (f, 3, 3),
        "frame_position": (f, 3),
        "base_mass": (),
        "base_com": (3,),
        "base_inertia": (3, 3),
        **{f"limits.{field}": (nv,) for field in LIMITS},
    }
