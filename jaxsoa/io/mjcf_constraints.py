"""The equality constraints of a compiled MuJoCo model, as the loops and couplings of `jaxsoa.closed_chain`.

An equality of fixed tendons, L1 - L1(0) = c0 + c1 (L2 - L2(0)) with lengths L = sum of coefficients times q, is linear
in the joints that they run over: a `Coupling` of one of them to the others.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxsoa.closed_chain.constraints import Constraint, Coupling
from jaxsoa.closed_chain.equality import Equality, equality_constraints
from jaxsoa.io._mujoco import body_names, joint_names, require_mujoco
from jaxsoa.io.convert import MujocoMap
from jaxsoa.io.mjcf import site_names
from jaxsoa.io.mjcf_devices import fixed_tendon
from jaxsoa.model.description import ModelError, abbreviated
from jaxsoa.model.multibody import Multibody


def mjcf_equalities(model: Any, source: str) -> tuple[Equality | Coupling, ...]:
    """The active equality constraints in the file's order, as plain records, those of tendons as couplings.

    A `ModelError` names what has no like.
    """
    mujoco = require_mujoco()
    kinds, objects = mujoco.mjtEq, mujoco.mjtObj
    found, unknown = [], []
    for k in np.flatnonzero(model.eq_active0):
        kind, first, second = int(model.eq_type[k]), int(model.eq_obj1id[k]), int(model.eq_obj2id[k])
        data = tuple(float(x) for x in model.eq_data[k])
        at_sites = int(model.eq_objtype[k]) == objects.mjOBJ_SITE
        names = site_names(model) if at_sites else body_names(model)
        if kind == kinds.mjEQ_CONNECT:
            found.append(Equality("connect", names[first], names[second], None if at_sites else data[:3]))
        elif kind == kinds.mjEQ_WELD:
            pose = (0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0) if at_sites else data[3:10]
            found.append(Equality("weld", names[first], names[second], pose))
        elif kind == kinds.mjEQ_JOINT:
            joints = joint_names(model)
            found.append(Equality("joint", joints[first], joints[second] if second >= 0 else None, data[:5]))
        elif kind == kinds.mjEQ_TENDON and (coupling := _of_tendons(model, first, second, data)) is not None:
            found.append(coupling)
        else:
            unknown.append(f"{model.equality(k).name or f'number {k}'} ({kinds(kind).name[5:].lower()})")
    if unknown:
        raise ModelError(
            f"{source}: equality constraints without a counterpart here: {abbreviated(unknown)}. Connect, weld and "
            "joint equalities and linear ones of fixed tendons become constraints; make the others inactive."
        )
    return tuple(found)


def _of_tendons(model: Any, first: int, second: int, data: tuple[float, ...]) -> Coupling | None:
    """What an equality of one tendon, or of two, is for the joints under them; None where it is not linear."""
    coefficients, rest = fixed_tendon(model, first), float(model.tendon_length0[first]) + data[0]
    if coefficients is None:
        return None
    if second >= 0:
        others = fixed_tendon(model, second)
        if others is None or any(data[2:5]):
            return None
        rest -= data[1] * float(model.tendon_length0[second])
        for joint, c in others.items():
            coefficients[joint] = coefficients.get(joint, 0.0) - data[1] * c
    coefficients = {joint: c for joint, c in coefficients.items() if c}
    if not coefficients:
        return None
    joint = max(coefficients, key=lambda name: abs(coefficients[name]))
    scale = coefficients.pop(joint)
    return Coupling(joint, None, offset=rest / scale, others={name: -c / scale for name, c in coefficients.items()})


def mjcf_constraints(robot: Multibody, model: Any, source: str) -> tuple[Constraint, ...]:
    """`mjcf_equalities` as constraints of the robot that was read from the same model."""
    reference = MujocoMap(robot, model).q_from(np.asarray(model.qpos0))
    found = mjcf_equalities(model, source)
    records = [one for one in found if isinstance(one, Equality)]
    made = iter(equality_constraints(robot, records, reference=reference))
    return tuple(next(made) if isinstance(one, Equality) else one for one in found)
