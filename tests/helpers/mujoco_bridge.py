"""The same robot in jaxsoa and in MuJoCo; `jaxsoa.io.convert` goes from one's coordinates to the other's.

MuJoCo's velocities are T(q) v, and its accelerations T(q) a + T'(q) v.
"""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import mujoco
import numpy as np

import jaxsoa as soa


def stripped_urdf(path: Path, *, floating_base: bool) -> str:
    """The dynamics of a URDF in a form MuJoCo reads: no geometry, inertias as they are, the base joint written out."""
    root = ElementTree.parse(path).getroot()
    for link in root.iter("link"):
        for tag in ("visual", "collision"):
            for element in link.findall(tag):
                link.remove(element)
    for tag in ("gazebo", "transmission", "material", "mujoco"):
        for element in root.findall(tag):
            root.remove(element)
    for joint in root.iter("joint"):
        for element in joint.findall("mimic"):
            joint.remove(element)
    extension = ElementTree.SubElement(root, "mujoco")
    options = dict(fusestatic="true", balanceinertia="false", boundmass="0", boundinertia="0", inertiafromgeom="false")
    ElementTree.SubElement(extension, "compiler", options)
    if floating_base:
        children = {joint.find("child").get("link") for joint in root.iter("joint")}  # pyright: ignore
        (base,) = [link.get("name") for link in root.iter("link") if link.get("name") not in children]
        ElementTree.SubElement(root, "link", name="the_world")
        joint = ElementTree.SubElement(root, "joint", name="floating_base", type="floating")
        ElementTree.SubElement(joint, "parent", link="the_world")
        ElementTree.SubElement(joint, "child", link=str(base))
    return ElementTree.tostring(root, encoding="unicode")


class MujocoTwin:
    def __init__(self, robot: soa.Multibody, xml: str):
        self.robot = robot
        self.model = mujoco.MjModel.from_xml_string(xml)
        flag = mujoco.mjtDisableBit
        self.model.opt.disableflags |= flag.mjDSBL_CONTACT | flag.mjDSBL_LIMIT | flag.mjDSBL_FRICTIONLOSS
        self.data = mujoco.MjData(self.model)
        self.map = soa.convert.MujocoMap(robot, self.model)
        self.joints = [self.model.joint(name) for name in robot.joint_names]
        self.bodies = [int(self.model.jnt_bodyid[joint.id]) for joint in self.joints]
        assert self.model.nv == robot.nv

    def _place(self, q, v, a=None):
        """Write the state; returns T with MuJoCo's velocity = T v, and the drift T' v."""
        q, v = np.asarray(q), np.asarray(v)
        self.data.qpos[:] = self.map.q_to(q)
        self.data.qvel[:] = self.map.v_to(v, q)
        if a is not None:
            self.data.qacc[:] = self.map.a_to(np.asarray(a), q, v)
        return self.map.velocity_matrix(q), self.map.a_to(np.zeros(self.robot.nv), q, v)

    def _external(self, f_ext) -> np.ndarray:
        """Generalized force, in MuJoCo's coordinates, of our f_ext (about link origins)."""
        total = np.zeros(self.model.nv)
        for body, f in zip(self.bodies, np.asarray(f_ext), strict=True):
            origin = self.data.xpos[body]
            mujoco.mj_applyFT(self.model, self.data, f[3:].copy(), f[:3].copy(), origin.copy(), body, total)
        return total

    def inverse_dynamics(self, q, v, a, f_ext) -> np.ndarray:
        T, _ = self._place(q, v, a)
        mujoco.mj_inverse(self.model, self.data)
        return T.T @ (self.data.qfrc_inverse - self._external(f_ext))

    def forward_dynamics(self, q, v, tau, f_ext) -> np.ndarray:
        T, drift = self._place(q, v)
        mujoco.mj_kinematics(self.model, self.data)
        mujoco.mj_comPos(self.model, self.data)
        self.data.qfrc_applied[:] = np.linalg.solve(T.T, np.asarray(tau)) + self._external(f_ext)
        mujoco.mj_forward(self.model, self.data)
        self.data.qfrc_applied[:] = 0
        return np.linalg.solve(T, self.data.qacc - drift)

    def mass_matrix(self, q) -> np.ndarray:
        T, _ = self._place(q, np.zeros(self.robot.nv))
        mujoco.mj_forward(self.model, self.data)
        M = np.zeros((self.model.nv, self.model.nv))
        try:
            mujoco.mj_fullM(self.model, self.data, M)  # the order of arguments changed with MuJoCo 3.4
        except TypeError:
            mujoco.mj_fullM(self.model, M, self.data.qM)
        return T.T @ M @ T

    def jacobian(self, q, v, link: int) -> tuple[np.ndarray, np.ndarray]:
        """J (6, nv) of a link's origin, angular first, and J' v: the acceleration that it has at zero a."""
        T, drift = self._place(q, v)
        mujoco.mj_forward(self.model, self.data)
        body = self.bodies[link]
        J, rate = np.zeros((2, 2, 3, self.model.nv))
        for function, (linear, angular) in ((mujoco.mj_jac, J), (mujoco.mj_jacDot, rate)):
            function(self.model, self.data, linear, angular, self.data.xpos[body], body)
        J, rate = (soa.convert.angular_first(x.reshape(6, -1)) for x in (J, rate))
        return J @ T, rate @ self.data.qvel + J @ drift
