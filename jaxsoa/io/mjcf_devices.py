"""Actuators, tendons, sensors and keyframes of a compiled MuJoCo model, in the language of `jaxsoa.simulate`.

What has no counterpart is never dropped in silence: `unsupported_actuators` and `unsupported_sensors` name it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxsoa.io._mujoco import body_names, joint_names, require_mujoco
from jaxsoa.io.convert import MujocoMap
from jaxsoa.io.mjcf import disabled, site_names
from jaxsoa.model.multibody import Multibody
from jaxsoa.simulate import sensors as sensing
from jaxsoa.simulate.actuators import ActuatorDescription
from jaxsoa.simulate.tendons import TendonDescription, stacked_tendons
from jaxsoa.spatial.rotation import from_quaternion

_DYNAMICS = {"NONE": "none", "INTEGRATOR": "integrator", "FILTER": "filter", "FILTEREXACT": "filterexact"}
_FRAME_SENSORS = {
    "FRAMEPOS": "position",
    "FRAMEQUAT": "quaternion",
    "FRAMEXAXIS": "x_axis",
    "FRAMEYAXIS": "y_axis",
    "FRAMEZAXIS": "z_axis",
    "FRAMELINVEL": "linear_velocity",
    "FRAMEANGVEL": "angular_velocity",
    "FRAMELINACC": "linear_acceleration",
    "FRAMEANGACC": "angular_acceleration",
    "GYRO": "gyro",
    "VELOCIMETER": "velocimeter",
    "ACCELEROMETER": "accelerometer",
}
_SUBTREE_SENSORS = {
    "SUBTREECOM": "center_of_mass",
    "SUBTREELINVEL": "linear_velocity",
    "SUBTREEANGMOM": "angular_momentum",
}


def _member(enumeration: str, value: int, prefix: str) -> str:
    return getattr(require_mujoco(), enumeration)(int(value)).name.removeprefix(prefix).lstrip("_")


def _name(model: Any, kind: str, number: int) -> str:
    return getattr(model, kind)(number).name or f"{kind}{number}"


def fixed_tendon(model: Any, number: int) -> dict[str, float] | None:
    """Coefficients by joint name of a fixed tendon of hinges and slides; None for one that is routed in space."""
    start, count = int(model.tendon_adr[number]), int(model.tendon_num[number])
    joints, coefficients = joint_names(model), {}
    for k in range(start, start + count):
        if _member("mjtWrap", model.wrap_type[k], "mjWRAP_") != "JOINT":
            return None
        name = joints[int(model.wrap_objid[k])]
        coefficients[name] = coefficients.get(name, 0.0) + float(model.wrap_prm[k])
    return coefficients


def describe_tendon(model: Any, number: int) -> TendonDescription | None:
    """A fixed tendon, or one that runs straight from site to site; None where it wraps around a geom."""
    name, joints = _name(model, "tendon", number), fixed_tendon(model, number)
    if joints is not None:
        return TendonDescription(name, joints)
    start, count, sites = int(model.tendon_adr[number]), int(model.tendon_num[number]), site_names(model)
    path: list[str | float] = []
    for k in range(start, start + count):
        kind = _member("mjtWrap", model.wrap_type[k], "mjWRAP_")
        if kind not in ("SITE", "PULLEY"):
            return None
        path.append(sites[int(model.wrap_objid[k])] if kind == "SITE" else float(model.wrap_prm[k]))
    return TendonDescription(name, path=tuple(path))


def readable_tendons(model: Any) -> dict[int, TendonDescription]:
    """By number in the model: all that `describe_tendon` knows."""
    found = {k: describe_tendon(model, k) for k in range(model.ntendon)}
    return {k: one for k, one in found.items() if one is not None}


# Actuators -------------------------------------------------------------------------------------------------------


def _switched_off(model: Any, k: int) -> bool:
    """All actuators are, or the group of this one is: a bit for each of 31 groups."""
    group, off = int(model.actuator_group[k]), int(getattr(model.opt, "disableactuator", 0))
    return disabled(model, "ACTUATION") or (0 <= group < 31 and bool(off >> group & 1))


def actuator_fault(model: Any, k: int) -> str | None:
    """Why an actuator has no counterpart, or None."""
    transmission = _member("mjtTrn", model.actuator_trntype[k], "mjTRN_")
    target = int(model.actuator_trnid[k][0])
    if _switched_off(model, k):
        return "switched off by an option of the file"
    dynamics = _member("mjtDyn", model.actuator_dyntype[k], "mjDYN_")
    gain = _member("mjtGain", model.actuator_gaintype[k], "mjGAIN_")
    bias = _member("mjtBias", model.actuator_biastype[k], "mjBIAS_")
    if dynamics not in _DYNAMICS or gain not in ("FIXED", "AFFINE") or bias not in ("NONE", "AFFINE"):
        return f"dynamics {dynamics.lower()}, gain {gain.lower()}, bias {bias.lower()}"
    for what in ("delay", "damping", "armature"):  # newer versions of MuJoCo have them
        values = getattr(model, f"actuator_{what}", None)
        if values is not None and np.any(np.asarray(values).reshape(len(model.actuator_trntype), -1)[k]):
            return what
    if transmission in ("JOINT", "JOINTINPARENT"):
        return None if int(model.jnt_type[target]) in (2, 3) else "on a ball or free joint"
    if transmission == "TENDON":
        return None if describe_tendon(model, target) is not None else "on a tendon that wraps around a geom"
    if transmission == "SITE":
        return None if int(model.actuator_trnid[k][1]) < 0 else "at a site with a reference site"
    return f"transmission {transmission.lower()}"


def unsupported_actuators(model: Any) -> list[str]:
    """The actuators that cannot be read, each with the reason."""
    faults = [(k, actuator_fault(model, k)) for k in range(len(model.actuator_trntype))]
    return [f"{_name(model, 'actuator', k)}: {fault}" for k, fault in faults if fault]


def describe_actuators(model: Any) -> list[ActuatorDescription]:
    """The actuators that have a counterpart, in the file's order."""
    numbers = [k for k in range(len(model.actuator_trntype)) if actuator_fault(model, k) is None]
    return [_describe_actuator(model, k) for k in numbers]


def _describe_actuator(model: Any, k: int) -> ActuatorDescription:
    transmission = _member("mjtTrn", model.actuator_trntype[k], "mjTRN_")
    target, gear = int(model.actuator_trnid[k][0]), np.asarray(model.actuator_gear[k], float)
    joints: dict[str, float] = {}
    site, path = None, ()
    if transmission == "TENDON":
        tendon = describe_tendon(model, target)
        assert tendon is not None  # or `actuator_fault` says so
        joints, path = {joint: gear[0] * c for joint, c in tendon.joints.items()}, tuple(tendon.path)
    elif transmission == "SITE":
        site = (site_names(model)[target], (*map(float, gear[3:]), *map(float, gear[:3])))
    else:
        joints = {joint_names(model)[target]: gear[0]}

    def limits(limited, ends) -> tuple[float, float]:
        return (float(ends[0]), float(ends[1])) if limited else (-np.inf, np.inf)

    affine_gain = _member("mjtGain", model.actuator_gaintype[k], "mjGAIN_") == "AFFINE"
    affine_bias = _member("mjtBias", model.actuator_biastype[k], "mjBIAS_") == "AFFINE"
    gain, bias = (np.asarray(x[k][:3], float) for x in (model.actuator_gainprm, model.actuator_biasprm))
    control = int(model.actuator_ctrladr[k]) if hasattr(model, "actuator_ctrladr") else k
    clipped = np.asarray(model.actuator_ctrllimited).ravel()[control] and not disabled(model, "CLAMPCTRL")
    return ActuatorDescription(
        _name(model, "actuator", k),
        joints,
        tuple(float(x) for x in (gain if affine_gain else [gain[0], 0, 0])),  # pyright: ignore[reportArgumentType]
        tuple(float(x) for x in (bias if affine_bias else [0, 0, 0])),  # pyright: ignore[reportArgumentType]
        dynamics=_DYNAMICS[_member("mjtDyn", model.actuator_dyntype[k], "mjDYN_")],
        time_constant=float(model.actuator_dynprm[k][0]),
        control_range=limits(clipped, np.asarray(model.actuator_ctrlrange).reshape(-1, 2)[control]),
        force_range=limits(model.actuator_forcelimited[k], model.actuator_forcerange[k]),
        activation_range=limits(model.actuator_actlimited[k], model.actuator_actrange[k]),
        early=bool(model.actuator_actearly[k]),
        site=site,
        path=path,
        path_gear=float(gear[0]),
    )


def joint_torque_range(robot: Multibody, model: Any) -> np.ndarray:
    """(nv, 2) limits of what actuators together exert on a joint."""
    ends = np.tile([-np.inf, np.inf], (robot.nv, 1))
    for k, name in enumerate(joint_names(model)):
        if model.jnt_actfrclimited[k]:
            ends[robot.v_index(name)] = model.jnt_actfrcrange[k]
    return ends


# Keyframes -------------------------------------------------------------------------------------------------------


class Keyframe(NamedTuple):
    """A state that the file names: q (nq,), v (nv,), the command (nu,) and the activations as MuJoCo orders them."""

    time: float
    q: Array
    v: Array
    command: Array
    activation: Array


def keyframes(robot: Multibody, model: Any) -> dict[str, Keyframe]:
    """By name; `key0` and so on for those without one."""
    theirs, found = MujocoMap(robot, model), {}
    for k in range(model.nkey):
        q = theirs.q_from(np.asarray(model.key_qpos[k]))
        v = theirs.v_from(np.asarray(model.key_qvel[k]), q)
        arrays = (q, v, model.key_ctrl[k], model.key_act[k])
        found[_name(model, "key", k)] = Keyframe(float(model.key_time[k]), *(jnp.asarray(x) for x in arrays))
    return found


# Sensors ---------------------------------------------------------------------------------------------------------


def sensor_fault(model: Any, k: int) -> str | None:
    """Why a sensor has no counterpart, or None."""
    kind = _member("mjtSensor", model.sensor_type[k], "mjSENS_")
    readable = {*_FRAME_SENSORS, *_SUBTREE_SENSORS, "FORCE", "TORQUE", "JOINTPOS", "JOINTVEL", "BALLQUAT", "BALLANGVEL"}
    if kind in ("TENDONPOS", "TENDONVEL"):
        wraps = describe_tendon(model, int(model.sensor_objid[k])) is None
        return "of a tendon that wraps around a geom" if wraps else None
    if kind in ("ACTUATORPOS", "ACTUATORVEL"):
        number = int(model.sensor_objid[k])
        fault = actuator_fault(model, number)
        at_site = _member("mjtTrn", model.actuator_trntype[number], "mjTRN_") == "SITE"
        return fault or ("of an actuator at a site" if at_site else None)
    if kind not in readable:
        return kind.lower()
    for field in ("sensor_delay", "sensor_interval"):
        values = getattr(model, field, None)
        if values is not None and np.any(np.asarray(values).reshape(model.nsensor, -1)[k]):
            return field.removeprefix("sensor_")
    return None


def unsupported_sensors(model: Any) -> list[str]:
    """The sensors that cannot be read, each with the reason."""
    faults = [(k, sensor_fault(model, k)) for k in range(model.nsensor)]
    return [f"{_name(model, 'sensor', k)}: {fault}" for k, fault in faults if fault]


def describe_sensors(robot: Multibody, model: Any) -> list[Any]:
    """The sensors that have a counterpart, in the file's order."""
    found = []
    for k in range(model.nsensor):
        if sensor_fault(model, k) is None:
            sensor = _sensor(robot, model, k)
            cutoff = float(model.sensor_cutoff[k])
            found.append(sensing.Limited(sensor, jnp.asarray(cutoff)) if cutoff > 0 else sensor)
    return found


def _sensor(robot: Multibody, model: Any, k: int) -> Any:
    name, kind = _name(model, "sensor", k), _member("mjtSensor", model.sensor_type[k], "mjSENS_")
    number = int(model.sensor_objid[k])
    if kind in ("JOINTPOS", "BALLQUAT"):
        return sensing.JointPosition(name, joint_names(model)[number])
    if kind in ("JOINTVEL", "BALLANGVEL"):
        return sensing.JointVelocity(name, joint_names(model)[number])
    if kind in ("TENDONPOS", "TENDONVEL"):
        return _tendon_sensor(robot, name, describe_tendon(model, number), kind == "TENDONVEL")
    if kind in ("ACTUATORPOS", "ACTUATORVEL"):
        one = _describe_actuator(model, number)
        pulled = TendonDescription(one.name, one.joints, one.path, one.path_gear)
        return _tendon_sensor(robot, name, pulled, kind == "ACTUATORVEL")
    if kind in _SUBTREE_SENSORS:
        return sensing.SubtreeSensor(name, _SUBTREE_SENSORS[kind], _body_part(robot, model, number))
    at = mounted(robot, model, int(model.sensor_objtype[k]), number)
    if kind in ("FORCE", "TORQUE"):
        return sensing.ForceSensor(name, kind.lower(), at, _body_part(robot, model, int(model.site_bodyid[number])))
    reference = int(model.sensor_refid[k])
    seen_from = None if reference < 0 else mounted(robot, model, int(model.sensor_reftype[k]), reference)
    return sensing.FrameSensor(name, _FRAME_SENSORS[kind], at, seen_from)


def _tendon_sensor(robot: Multibody, name: str, tendon: TendonDescription | None, of_rate: bool) -> Any:
    assert tendon is not None  # or `sensor_fault` says so
    return sensing.TendonSensor(name, of_rate, stacked_tendons(robot, [tendon]))


def mounted(robot: Multibody, model: Any, kind: int, number: int) -> sensing.Mount:
    """Where MuJoCo's sites, bodies (their inertial frames), body frames, geoms and cameras are fixed."""
    what = _member("mjtObj", kind, "mjOBJ_")
    if what == "XBODY":
        return sensing.mount(robot, body_names(model)[number])
    body, position, quaternion = {
        "SITE": ("site_bodyid", "site_pos", "site_quat"),
        "BODY": (None, "body_ipos", "body_iquat"),
        "GEOM": ("geom_bodyid", "geom_pos", "geom_quat"),
        "CAMERA": ("cam_bodyid", "cam_pos", "cam_quat"),
    }[what]
    owner = number if body is None else int(getattr(model, body)[number])
    carrier = sensing.mount(robot, body_names(model)[owner])
    R, p = _matrix(getattr(model, quaternion)[number]), np.asarray(getattr(model, position)[number])
    place = carrier.rotation @ R, carrier.rotation @ p + carrier.position
    return sensing.Mount(carrier.link, *(jnp.asarray(x, robot.dtype) for x in place))


def _body_part(robot: Multibody, model: Any, body: int) -> sensing.RigidPart:
    """A body with what is welded to it further out, and the links beyond."""
    names, parents = body_names(model), np.asarray(model.body_parentid)
    inside = {body}
    for k in range(body + 1, model.nbody):
        if int(parents[k]) in inside:
            inside.add(k)
    link = robot.topology.frame_links[robot.topology.frame_number(names[body])]
    mass, moment, parts = 0.0, np.zeros(3), []
    below, welded = set(), set()
    for k in sorted(inside):
        carrier = sensing.mount(robot, names[k])
        if carrier.link != link:
            below.add(carrier.link)
            continue
        welded.add(k)
        R, p = np.asarray(carrier.rotation), np.asarray(carrier.position)
        m, c = float(model.body_mass[k]), R @ np.asarray(model.body_ipos[k]) + p
        turn = R @ _matrix(model.body_iquat[k])
        parts.append((m, c, turn @ np.diag(model.body_inertia[k]) @ turn.T))
        mass, moment = mass + m, moment + m * c
    com = moment / mass if mass > 0 else moment
    inertia = sum((I + m * ((c - com) @ (c - com) * np.eye(3) - np.outer(c - com, c - com)) for m, c, I in parts))
    support = robot.topology.link_support
    # A body with several joints has massless links of its own before the one that carries it.
    below |= {j for k in below for j in range(robot.n_links) if support[k, j] and (link < 0 or support[j, link])}
    below -= {link}
    children = []
    for k in sorted(below):
        if robot.topology.parents[k] not in below:
            children.append(k)
    arrays = (jnp.asarray(x, robot.dtype) for x in (mass, com, inertia))
    return sensing.RigidPart(link, tuple(sorted(below)), tuple(children), *arrays)


def _matrix(quaternion: np.ndarray) -> np.ndarray:
    quaternion = np.asarray(quaternion, float)
    return np.array(from_quaternion(tuple(quaternion / np.linalg.norm(quaternion))))
