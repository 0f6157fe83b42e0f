"""Robot files to `Multibody`."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxsoa.closed_chain.constraints import Constraint
from jaxsoa.io import mjcf_devices as devices, mjcf_passive
from jaxsoa.io._mujoco import body_names, compile_mjcf
from jaxsoa.io.mjcf import describe_mjcf, gravity, left_out, refuse_unsupported
from jaxsoa.io.mjcf_constraints import mjcf_constraints
from jaxsoa.io.mjcf_devices import Keyframe
from jaxsoa.io.urdf import read_urdf
from jaxsoa.model.assemble import assemble
from jaxsoa.model.description import ModelError, abbreviated
from jaxsoa.model.joints import JOINT_KINDS
from jaxsoa.model.multibody import Multibody
from jaxsoa.model.validation import ModelWarning
from jaxsoa.simulate.actuators import Actuators, actuator_set
from jaxsoa.simulate.sensors import Sensors, sensor_set
from jaxsoa.simulate.springs import Springs
from jaxsoa.simulate.surroundings import Fluid, GravityCompensation
from jaxsoa.simulate.tendons import TendonLimits


def load_urdf(source: str | os.PathLike[str], *, floating_base: bool = False, validate: str = "warn") -> Multibody:
    """Read a URDF file (a path, or the XML text itself).

    With `floating_base` the root link moves on a free joint named `floating_base`. `validate` says what unphysical
    inertias get: "warn" (default), "strict" (a `ModelError`) or "off". Broken models are a `ModelError` always.
    Meshes are never opened.

    Mimic joints follow their targets in time (`step`, `rollout`, `linearize_step`, `optimize.robot_problem`), in
    `inverse_kinematics` and on the command line. In every other open-chain function they are joints of their own:
    `closed_chain.coupled` is the robot with fewer degrees of freedom, with functions of its own, and
    `closed_chain.mimic_couplings` gives the constraints that tie them. Such a file loads with a warning that names
    them, and is an error under "strict".

    >>> soa.save_urdf(robot, "robot.urdf")
    >>> print(soa.load_urdf("robot.urdf"))
    Multibody('pendulum': 2 links, nq=2, nv=2, 4 frames)
    """
    description = read_urdf(source, validate=validate)
    mimics = [joint.name for joint in description.joints if joint.mimic is not None and JOINT_KINDS[joint.kind].nv]
    if mimics:
        message = (
            f"{description.source}: joints {abbreviated(mimics)} mimic others. Open-chain dynamics leaves them free "
            "(steps, rollouts and plans couple them); use jaxsoa.closed_chain.coupled(robot), or the constraints of "
            "jaxsoa.closed_chain.mimic_couplings(robot)."
        )
        if validate == "strict":
            raise ModelError(message)
        warnings.warn(message, ModelWarning, stacklevel=2)
    # The reader has reported what the policy asks for; assembling checks the structure again, silently.
    return assemble(description, floating_base=floating_base, validate="off")


def load_mjcf(source: Any, *, assets: Mapping[str, bytes] | None = None, validate: str = "warn") -> Multibody:
    """Read an MJCF model with MuJoCo's own compiler (`pip install "jaxsoa[mjcf]"`).

    `source` is a path, XML text (with `assets`, the files it refers to by name), or a compiled `mujoco.MjModel`.
    `validate` is as for `load_urdf`.

    Hinge, slide, ball and free joints become continuous or revolute (with a range), prismatic, spherical and free ones,
    in MuJoCo's order; q is MuJoCo's qpos but for the order within a free joint (`jaxsoa.io.convert.MujocoMap`). A body
    with several joints is several links, all but the last massless. Every body and every site is a frame. Inertias,
    armature, damping, springs and gravity are MuJoCo's; `frictionloss` becomes smooth Coulomb friction.

    What a tree of rigid links leaves out is listed in one `ModelWarning`, by name. Of that, `load_mjcf_actuators`,
    `load_mjcf_passive`, `load_mjcf_sensors`, `load_mjcf_keyframes` and `load_mjcf_constraints` read what belongs to
    simulations of it, from the same file. A free joint with armature
    along its translations, and a model in which nothing moves, are a `ModelError`.

    >>> geom = "<geom size='0.1' pos='0 0 -1' contype='0' conaffinity='0'/>"
    >>> world = f"<worldbody><body><joint name='hinge' axis='0 1 0'/>{geom}</body></worldbody>"
    >>> robot = soa.load_mjcf(f"<mujoco>{world}</mujoco>")
    >>> print(robot)
    Multibody('MuJoCo Model': 1 links, nq=1, nv=1, 2 frames)
    """
    model, name = compile_mjcf(source, assets)
    refuse_unsupported(model, name)
    robot = assemble(describe_mjcf(model, name), gravity=gravity(model), validate=validate)
    ignored = left_out(model)
    if ignored:
        warnings.warn(f"{name}: not part of the robot: {'; '.join(ignored)}.", ModelWarning, stacklevel=2)
    return robot


def load_mjcf_constraints(
    robot: Multibody, source: Any, *, assets: Mapping[str, bytes] | None = None
) -> tuple[Constraint, ...]:
    """The active equality constraints of the MJCF model that `robot` was loaded from, for `jaxsoa.closed_chain`.

        robot = soa.load_mjcf("gripper.xml")
        loops = soa.load_mjcf_constraints(robot, "gripper.xml")
        closed_chain.loop_forward_dynamics(robot, loops, q, v, tau)

    `connect` becomes a ball joint, `weld` a weld, `joint` a coupling, as does a linear equality of fixed tendons; in
    the file's order. MuJoCo's are soft (solref, solimp), these are exact. Others are a `ModelError`, never dropped.

    >>> geom = "<geom size='0.1' pos='0 1 0' contype='0' conaffinity='0'/>"
    >>> bodies = "".join(f"<body><joint name='{name}'/>{geom}</body>" for name in "ab")
    >>> tie = "<equality><joint joint1='a' joint2='b'/></equality>"
    >>> robot = soa.load_mjcf(f"<mujoco><worldbody>{bodies}</worldbody></mujoco>")
    >>> print(len(soa.load_mjcf_constraints(robot, f"<mujoco><worldbody>{bodies}</worldbody>{tie}</mujoco>")))
    1
    """
    model, name = compile_mjcf(source, assets)
    return mjcf_constraints(robot, model, name)


def load_mjcf_actuators(robot: Multibody, source: Any, *, assets: Mapping[str, bytes] | None = None) -> Actuators:
    """The actuators of the MJCF model that `robot` was loaded from, for `rollout(actuators=...)`.

    Motors, position and velocity servos, dampers and general actuators with fixed or affine gain and bias, on hinges,
    slides, tendons that do not wrap and sites; with gears, ranges, and first-order or integrating activation. Others
    (muscles, slider-cranks, ball joints, ...) are named in a `ModelWarning`; commands are for those that were read.

    >>> geom = "<geom size='0.1' pos='0 0 -1' contype='0' conaffinity='0'/>"
    >>> world = f"<worldbody><body><joint name='hinge' axis='0 1 0'/>{geom}</body></worldbody>"
    >>> robot = soa.load_mjcf(f"<mujoco>{world}</mujoco>")
    >>> motor = "<actuator><motor name='drive' joint='hinge' gear='5'/></actuator>"
    >>> print(soa.load_mjcf_actuators(robot, f"<mujoco>{world}{motor}</mujoco>").names)
    ('drive',)
    """
    model, name = compile_mjcf(source, assets)
    _warn_of(name, "actuators", devices.unsupported_actuators(model))
    ranges = devices.joint_torque_range(robot, model)
    return actuator_set(robot, devices.describe_actuators(model), joint_range=ranges)


def load_mjcf_sensors(robot: Multibody, source: Any, *, assets: Mapping[str, bytes] | None = None) -> Sensors:
    """The sensors of the MJCF model that `robot` was loaded from; those without a counterpart (touch, range finders,
    ...) are named in a `ModelWarning`. Noise is not added: see `simulate.InertialNoise`.

    >>> geom = "<geom size='0.1' pos='0 0 -1' contype='0' conaffinity='0'/>"
    >>> world = f"<worldbody><body><joint name='hinge' axis='0 1 0'/>{geom}</body></worldbody>"
    >>> robot = soa.load_mjcf(f"<mujoco>{world}</mujoco>")
    >>> angle = "<sensor><jointpos name='angle' joint='hinge'/></sensor>"
    >>> sensors = soa.load_mjcf_sensors(robot, f"<mujoco>{world}{angle}</mujoco>")
    >>> print(sensors(robot, jnp.array([0.3]), jnp.zeros(1)))
    {'angle': Array([0.3], dtype=float64)}
    """
    model, name = compile_mjcf(source, assets)
    _warn_of(name, "sensors", devices.unsupported_sensors(model))
    return sensor_set(devices.describe_sensors(robot, model))


def load_mjcf_springs(robot: Multibody, source: Any, *, assets: Mapping[str, bytes] | None = None) -> Springs:
    """Springs and dampers of tendons, and of joints if the robot has none, for `rollout(passive=...)`.

    Tendons run along joints, or straight from site to site, over pulleys; those that wrap around geoms are named when
    the robot is loaded. `simulate.TendonLimits` are for their ranges.

    >>> geom = "<geom size='0.1' pos='0 0 -1' contype='0' conaffinity='0'/>"
    >>> world = f"<worldbody><body><joint name='hinge' axis='0 1 0' stiffness='3'/>{geom}</body></worldbody>"
    >>> robot = soa.load_mjcf(f"<mujoco>{world.replace(' stiffness', ' armature')}</mujoco>")
    >>> print(soa.load_mjcf_springs(robot, f"<mujoco>{world}</mujoco>").stiffness)
    [3.]
    """
    return mjcf_passive.springs(robot, compile_mjcf(source, assets)[0])


def load_mjcf_passive(
    robot: Multibody, source: Any, *, assets: Mapping[str, bytes] | None = None
) -> tuple[Springs | Fluid | GravityCompensation | TendonLimits, ...]:
    """All passive forces of the MJCF model that `robot` was loaded from, for `rollout(passive=...)`.

    Springs and tendons (`load_mjcf_springs`), the resistance of the medium by MuJoCo's model of inertia boxes, gravity
    compensation, and `simulate.TendonLimits` for tendons with a range. Bodies whose geoms have a fluid model of their
    own (ellipsoids) are named in a `ModelWarning`.

    >>> ball = "<body><freejoint/><geom size='0.1' contype='0' conaffinity='0'/></body>"
    >>> robot = soa.load_mjcf(f"<mujoco><worldbody>{ball}</worldbody></mujoco>")
    >>> honey = f"<mujoco><option viscosity='10'/><worldbody>{ball}</worldbody></mujoco>"
    >>> print([type(force).__name__ for force in soa.load_mjcf_passive(robot, honey)])
    ['Springs', 'Fluid']
    """
    model, name = compile_mjcf(source, assets)
    if model.opt.density > 0 or model.opt.viscosity > 0:
        bodies, alone = body_names(model), mjcf_passive.ellipsoids(model)
        _warn_of(name, "fluid models", [f"{bodies[k]}: ellipsoids" for k in np.flatnonzero(alone)])
    readers = (
        mjcf_passive.springs,
        mjcf_passive.fluid,
        mjcf_passive.gravity_compensation,
        mjcf_passive.tendon_limits,
    )
    parts = [reader(robot, model) for reader in readers]
    return tuple(part for part in parts if part is not None)


def load_mjcf_keyframes(
    robot: Multibody, source: Any, *, assets: Mapping[str, bytes] | None = None
) -> dict[str, Keyframe]:
    """The named states of the MJCF model that `robot` was loaded from, in our coordinates.

    >>> geom = "<geom size='0.1' pos='0 0 -1' contype='0' conaffinity='0'/>"
    >>> world = f"<worldbody><body><joint name='hinge' axis='0 1 0'/>{geom}</body></worldbody>"
    >>> robot = soa.load_mjcf(f"<mujoco>{world}</mujoco>")
    >>> up = "<keyframe><key name='up' qpos='3.14'/></keyframe>"
    >>> print(soa.load_mjcf_keyframes(robot, f"<mujoco>{world}{up}</mujoco>")["up"].q)
    [3.14]
    """
    return devices.keyframes(robot, compile_mjcf(source, assets)[0])


def _warn_of(source: str, what: str, faults: list[str]) -> None:
    if faults:
        message = f"{source}: {what} without a counterpart here: {abbreviated(faults)}."
        warnings.warn(message, ModelWarning, stacklevel=3)
