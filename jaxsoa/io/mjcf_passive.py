"""Passive forces of a compiled MuJoCo model: springs, tendons, the surrounding medium, gravity compensation."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxsoa.io._mujoco import body_names, joint_names, require_mujoco
from jaxsoa.io.convert import MujocoMap
from jaxsoa.io.mjcf import disabled
from jaxsoa.io.mjcf_devices import mounted, readable_tendons
from jaxsoa.model.multibody import Multibody
from jaxsoa.simulate import sensors as sensing
from jaxsoa.simulate.springs import Springs
from jaxsoa.simulate.surroundings import Bodies, Fluid, GravityCompensation
from jaxsoa.simulate.tendons import TendonLimits, stacked_tendons


def springs(robot: Multibody, model: Any) -> Springs:
    """Springs of hinges, slides and balls (unless the robot has them itself), springs and dampers of tendons."""
    theirs, joints = MujocoMap(robot, model), joint_names(model)
    rest = theirs.q_from(np.asarray(model.qpos_spring))
    stiffness = np.zeros(robot.nv)
    sprung, damped = not disabled(model, "SPRING"), not disabled(model, "DAMPER")
    if robot.springs is None and sprung:
        for k in np.flatnonzero(np.asarray(model.jnt_stiffness) != 0):
            if int(model.jnt_type[k]) != 0:
                stiffness[robot.v_index(joints[k])] = model.jnt_stiffness[k]
    tendons = readable_tendons(model)
    chosen = np.array(list(tendons), int)
    arrays = (sprung * model.tendon_stiffness, damped * model.tendon_damping, model.tendon_lengthspring)
    numbers = (np.asarray(x)[chosen] for x in arrays)
    k, at, *of_tendons = (jnp.asarray(x, robot.dtype) for x in (stiffness, rest, *numbers))
    return Springs(k, at, stacked_tendons(robot, list(tendons.values())), *of_tendons)


def tendon_limits(robot: Multibody, model: Any) -> TendonLimits | None:
    """What holds tendons within their range, if any has one."""
    tendons = {k: one for k, one in readable_tendons(model).items() if model.tendon_limited[k]}
    if not tendons or disabled(model, "LIMIT") or disabled(model, "CONSTRAINT"):
        return None
    ends = jnp.asarray(np.asarray(model.tendon_range)[np.array(list(tendons))], robot.dtype)
    return TendonLimits(stacked_tendons(robot, list(tendons.values())), ends)


# The surrounding medium ------------------------------------------------------------------------------------------


def ellipsoids(model: Any) -> np.ndarray:
    """(nbody,) which bodies have geoms with a fluid model of their own, which nothing here reads."""
    alone = np.asarray(getattr(model, "geom_fluid", np.zeros(model.ngeom))).reshape(model.ngeom, -1)
    found = np.zeros(model.nbody, bool)
    found[np.asarray(model.geom_bodyid)[(alone[:, :1] != 0).any(axis=1)]] = True
    return found


def _nothing_passive(model: Any) -> bool:
    """Without springs and dampers MuJoCo computes no passive forces at all."""
    return disabled(model, "SPRING") and disabled(model, "DAMPER")


def _bodies(robot: Multibody, model: Any, numbers: np.ndarray) -> Bodies:
    """Inertial frames of bodies that move."""
    mounts = [mounted(robot, model, require_mujoco().mjtObj.mjOBJ_BODY, int(k)) for k in numbers]
    rotation = jnp.asarray(np.array([np.asarray(at.rotation) for at in mounts]), robot.dtype)
    position = jnp.asarray(np.array([np.asarray(at.position) for at in mounts]), robot.dtype)
    return Bodies(tuple(at.link for at in mounts), rotation, position)


def _moving(robot: Multibody, model: Any) -> np.ndarray:
    """(nbody,) bodies with a mass, on links."""
    carriers = [sensing.mount(robot, name).link for name in body_names(model)]
    return (np.array(carriers) >= 0) & (np.asarray(model.body_mass) > 1e-15)


def fluid(robot: Multibody, model: Any) -> Fluid | None:
    """The resistance of the medium, if there is one."""
    option = model.opt
    numbers = np.flatnonzero(_moving(robot, model) & ~ellipsoids(model))
    if not (option.density > 0 or option.viscosity > 0) or not len(numbers) or _nothing_passive(model):
        return None
    principal = np.asarray(model.body_inertia)[numbers]
    squares = 6 * np.maximum(principal.sum(axis=1, keepdims=True) - 2 * principal, 1e-15)
    sizes = np.sqrt(squares / np.asarray(model.body_mass)[numbers, None])
    arrays = (jnp.asarray(np.array(x), robot.dtype) for x in (sizes, option.density, option.viscosity, option.wind))
    return Fluid(_bodies(robot, model, numbers), *arrays)


def gravity_compensation(robot: Multibody, model: Any) -> GravityCompensation | None:
    """What holds bodies against gravity, if anything does."""
    numbers = np.flatnonzero(_moving(robot, model) & (np.asarray(model.body_gravcomp) != 0))
    if not len(numbers) or _nothing_passive(model):
        return None
    masses = (np.asarray(model.body_mass) * np.asarray(model.body_gravcomp))[numbers]
    return GravityCompensation(_bodies(robot, model, numbers), jnp.asarray(masses, robot.dtype))
