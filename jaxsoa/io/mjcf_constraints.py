"""The equality constraints of a compiled MuJoCo model, as the loops and couplings of `jaxsoa.closed_chain`."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxsoa.closed_chain.constraints import Constraint
from jaxsoa.closed_chain.equality import Equality, equality_constraints
from jaxsoa.convert import MujocoMap
from jaxsoa.io._mujoco import body_names, joint_names, require_mujoco
from jaxsoa.io.mjcf import site_names
from jaxsoa.model.description import ModelError, abbreviated
from jaxsoa.model.multibody import Multibody


def mjcf_equalities(model: Any, source: str) -> tuple[Equality, ...]:
    """The active equality constraints as plain records, in the file's order; a `ModelError` names what has no like."""
    mujoco = require_mujoco()
    kinds, objects = mujoco.mjtEq, mujoco.mjtObj
    records, unknown = [], []
    for k in np.flatnonzero(model.eq_active0):
        kind, first, second = int(model.eq_type[k]), int(model.eq_obj1id[k]), int(model.eq_obj2id[k])
        data = tuple(float(x) for x in model.eq_data[k])
        at_sites = int(model.eq_objtype[k]) == objects.mjOBJ_SITE
        names = site_names(model) if at_sites else body_names(model)
        if kind == kinds.mjEQ_CONNECT:
            records.append(Equality("connect", names[first], names[second], None if at_sites else data[:3]))
        elif kind == kinds.mjEQ_WELD:
            pose = (0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0) if at_sites else data[3:10]
            records.append(Equality("weld", names[first], names[second], pose))
        elif kind == kinds.mjEQ_JOINT:
            joints = joint_names(model)
            records.append(Equality("joint", joints[first], joints[second] if second >= 0 else None, data[:5]))
        else:
            unknown.append(f"{model.equality(k).name or f'number {k}'} ({kinds(kind).name[5:].lower()})")
    if unknown:
        raise ModelError(
            f"{source}: equality constraints without a counterpart here: {abbreviated(unknown)}. Connect, weld and "
            "joint equalities become constraints; make the others inactive."
        )
    return tuple(records)


def mjcf_constraints(robot: Multibody, model: Any, source: str) -> tuple[Constraint, ...]:
    """`mjcf_equalities` as constraints of the robot that was read from the same model."""
    reference = MujocoMap(robot, model).q_from(np.asarray(model.qpos0))
    return equality_constraints(robot, mjcf_equalities(model, source), reference=reference)
