"""The MJCF models of dm_control, gymnasium and mujoco, and many robots as one forest.

Compile time does not depend on the number of links but on the number of different trees: so the robots to compare are
planted beside each other in one `Multibody`, which is compiled once; each is then an independent block of it.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import warnings
from pathlib import Path

import mujoco
import numpy as np

import jaxsoa as soa
from jaxsoa.io._mujoco import compile_mjcf
from jaxsoa.io.mjcf import describe_mjcf
from jaxsoa.model.assemble import assemble
from jaxsoa.model.description import LinkDescription, RobotDescription

PACKAGES = ("dm_control", "gymnasium", "mujoco")


def mjcf_files() -> dict[str, Path]:
    """Every XML file of the three packages that is installed, by its path inside its package.

    Not those of mujoco-mjx, which installs itself into mujoco's folder: among its test data are a model with four
    slides in space, singular, and a ball 3e-9 m off its body's origin, which MuJoCo takes for centred.
    """
    files = {}
    for package in PACKAGES:
        found = importlib.util.find_spec(package)
        for root in found.submodule_search_locations if found and found.submodule_search_locations else ():
            files |= {f"{package}/{p.relative_to(root).as_posix()}": p for p in sorted(Path(root).rglob("*.xml"))}
    return {name: path for name, path in files.items() if not name.startswith("mujoco/mjx/")}


MJCF_FILES = mjcf_files()


def load_quietly(path: Path) -> soa.Multibody:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", soa.ModelWarning)
        return soa.load_mjcf(path)


def compile_quietly(path: Path) -> mujoco.MjModel:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", soa.ModelWarning)
        return compile_mjcf(path)[0]


def smooth(model: mujoco.MjModel) -> mujoco.MjModel:
    """The same compiled model without what a tree of rigid links leaves out."""
    bits = mujoco.mjtDisableBit
    model.opt.disableflags |= bits.mjDSBL_CONSTRAINT | bits.mjDSBL_SPRING | bits.mjDSBL_ACTUATION
    model.opt.disableflags &= ~bits.mjDSBL_GRAVITY.value
    model.opt.density = model.opt.viscosity = 0
    model.body_gravcomp[:] = 0
    model.tendon_damping[:] = 0
    model.tendon_armature[:] = 0
    return model


def plant(descriptions: dict[str, RobotDescription], gravity=(0.0, 0.0, -9.81)) -> soa.Multibody:
    """Robots beside each other: one `Multibody` whose links, joints and frames have `name|` in front."""
    links, joints, frames = [LinkDescription("world")], [], []
    for name, robot in descriptions.items():
        children = {joint.child for joint in robot.joints}
        (root,) = [link.name for link in robot.links if link.name not in children]
        renamed = {link.name: f"{name}|{link.name}" for link in robot.links} | {root: "world"}
        links += [dataclasses.replace(x, name=renamed[x.name]) for x in robot.links if x.name != root]
        for joint in robot.joints:
            ends = dict(parent=renamed[joint.parent], child=renamed[joint.child])
            joints.append(dataclasses.replace(joint, name=f"{name}|{joint.name}", mimic=None, **ends))
        frames += [dataclasses.replace(x, name=f"{name}|{x.name}", link=renamed[x.link]) for x in robot.frames]
    forest = RobotDescription("forest", tuple(links), tuple(joints), tuple(frames))
    return assemble(forest, gravity=gravity, validate="off")


class Forest:
    """Robots of MuJoCo beside each other, and the models that they come from."""

    def __init__(self, paths: dict[str, Path], gravity: tuple[float, float, float]):
        self.models: dict[str, mujoco.MjModel] = {}
        self.robots: dict[str, soa.Multibody] = {}
        descriptions = {}
        for name, path in paths.items():
            model = smooth(compile_quietly(path))
            model.opt.gravity[:] = gravity
            self.models[name], self.robots[name] = model, load_quietly(path)
            descriptions[name] = describe_mjcf(model, name)
        self.robot = plant(descriptions, gravity)
        self.robot = self.robot.replace(friction=np.zeros(self.robot.nv))  # a constraint in MuJoCo, and off
        starts = np.cumsum([0, *(robot.nq for robot in self.robots.values())])
        self.q_slices = dict(zip(paths, map(slice, starts[:-1], starts[1:]), strict=True))
        starts = np.cumsum([0, *(robot.nv for robot in self.robots.values())])
        self.v_slices = dict(zip(paths, map(slice, starts[:-1], starts[1:]), strict=True))
        assert self.robot.joint_names == tuple(f"{n}|{j}" for n, r in self.robots.items() for j in r.joint_names)
