"""The same robot in jaxsoa and in Pinocchio; `jaxsoa.io.convert` goes from one's coordinates to the other's."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pinocchio as pin

import jaxsoa as soa


class PinocchioTwin:
    def __init__(self, path: Path, *, floating_base: bool):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", soa.ModelWarning)  # joints without a range, and the like
            robot = soa.load_urdf(path, floating_base=floating_base, validate="off")
        self.robot = robot.frictionless()
        root = (pin.JointModelFreeFlyer(),) if floating_base else ()
        self.model = pin.buildModelFromUrdf(str(path), *root)
        self.data = self.model.createData()
        names = ["root_joint" if name == "floating_base" else name for name in robot.joint_names]
        self.joint_ids = [self.model.getJointId(name) for name in names]
        assert sorted(self.joint_ids) == list(range(1, self.model.njoints))
        self.map = soa.convert.PinocchioMap(robot, self.model)
        # to_pin[i]: where entry i of our v stands in Pinocchio's.
        self.to_pin = self.map.velocity_matrix(np.asarray(robot.neutral())).argmax(axis=0)

    def q(self, q: np.ndarray) -> np.ndarray:
        return self.map.q_to(np.asarray(q))

    def v(self, v: np.ndarray) -> np.ndarray:
        out = np.empty(self.model.nv)
        out[self.to_pin] = v
        return out

    def forces(self, q: np.ndarray, f_ext: np.ndarray):
        """Our f_ext as Pinocchio wants it: per joint, in the joint's own axes."""
        pin.forwardKinematics(self.model, self.data, self.q(q))
        forces = [pin.Force.Zero() for _ in range(self.model.njoints)]
        for joint_id, f in zip(self.joint_ids, np.asarray(f_ext), strict=True):
            local = soa.convert.world_to_local(f, self.data.oMi[joint_id].rotation)
            forces[joint_id] = pin.Force(soa.convert.linear_first(local))
        return forces

    def frame(self, name: str) -> int:
        assert self.model.existFrame(name, pin.FrameType.BODY)
        return self.model.getFrameId(name, pin.FrameType.BODY)

    def inverse_dynamics(self, q, v, a, f_ext) -> np.ndarray:
        forces = self.forces(q, f_ext)
        return pin.rnea(self.model, self.data, self.q(q), self.v(v), self.v(a), forces)[self.to_pin]

    def expected(self, q, v, a, f_ext, frames: tuple[str, ...], tau=None) -> dict[str, np.ndarray]:
        """Everything at one state. `tau` (default: Pinocchio's own inverse dynamics of a) drives forward dynamics."""
        model, data, back = self.model, self.data, self.to_pin
        forces = self.forces(q, f_ext)
        q, v, a = self.q(q), self.v(v), self.v(a)
        world = pin.ReferenceFrame.LOCAL_WORLD_ALIGNED
        out: dict[str, np.ndarray] = {}
        torque = pin.rnea(model, data, q, v, a, forces)
        out["inverse dynamics"] = torque[back]
        out["bias force"] = pin.nonLinearEffects(model, data, q, v)[back]
        out["forward dynamics"] = pin.aba(model, data, q, v, torque if tau is None else self.v(tau), forces)[back]
        upper = pin.crba(model, data, q)
        out["mass matrix"] = (np.triu(upper) + np.triu(upper, 1).T)[np.ix_(back, back)]
        com = pin.centerOfMass(model, data, q).copy()
        out["centre of mass"] = com
        out["kinetic energy"] = np.array(pin.computeKineticEnergy(model, data, q, v))
        out["potential energy"] = np.array(pin.computePotentialEnergy(model, data, q))
        central = pin.computeCentroidalMomentum(model, data, q, v)
        out["momentum"] = np.concatenate([central.angular + np.cross(com, central.linear), central.linear])
        for name in frames:
            number = self.frame(name)
            J = pin.computeFrameJacobian(model, data, q, number, world)[:, back]
            out[f"jacobian of {name}"] = soa.convert.angular_first(J)
            pin.forwardKinematics(model, data, q, v, 0 * v)
            pin.updateFramePlacements(model, data)
            drift = pin.getFrameClassicalAcceleration(model, data, number, world)
            out[f"J'v of {name}"] = np.concatenate([drift.angular, drift.linear])
            out[f"rotation of {name}"] = data.oMf[number].rotation.copy()
            out[f"position of {name}"] = data.oMf[number].translation.copy()
        return out
