"""The same robot in jaxsoa and in Pinocchio, and the way from one's coordinates to the other's.

Joints are matched by name. Where the two differ: the free joint (here quaternion w x y z, then position, velocity
angular first; there position, then quaternion x y z w, velocity linear first), continuous joints (here one angle;
there cosine and sine), and spatial vectors (here angular first; there linear first).
"""

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
        # to_pin[i]: where entry i of our v stands in Pinocchio's.
        index = []
        for joint_id, kind in zip(self.joint_ids, robot.topology.kinds, strict=True):
            start = self.model.joints[joint_id].idx_v
            order = (3, 4, 5, 0, 1, 2) if kind == "free" else range(self.model.joints[joint_id].nv)
            index += [start + k for k in order]
        self.to_pin = np.array(index)

    def q(self, q: np.ndarray) -> np.ndarray:
        out = np.full(self.model.nq, np.nan)
        for name, joint_id, kind in zip(self.robot.joint_names, self.joint_ids, self.robot.topology.kinds, strict=True):
            ours, joint = np.asarray(q)[self.robot.q_index(name)], self.model.joints[joint_id]
            if kind == "free":
                ours = np.concatenate([ours[4:], ours[1:4], ours[:1]])
            elif joint.nq == 2:
                ours = np.array([np.cos(ours[0]), np.sin(ours[0])])
            out[joint.idx_q : joint.idx_q + joint.nq] = ours
        assert np.isfinite(out).all()
        return out

    def v(self, v: np.ndarray) -> np.ndarray:
        out = np.empty(self.model.nv)
        out[self.to_pin] = v
        return out

    def forces(self, q: np.ndarray, f_ext: np.ndarray):
        """Our f_ext as Pinocchio wants it: per joint, in the joint's own axes."""
        pin.forwardKinematics(self.model, self.data, self.q(q))
        forces = [pin.Force.Zero() for _ in range(self.model.njoints)]
        for joint_id, f in zip(self.joint_ids, np.asarray(f_ext), strict=True):
            turn = self.data.oMi[joint_id].rotation.T
            forces[joint_id] = pin.Force(turn @ f[3:], turn @ f[:3])
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
            out[f"jacobian of {name}"] = np.concatenate([J[3:], J[:3]])
            pin.forwardKinematics(model, data, q, v, 0 * v)
            pin.updateFramePlacements(model, data)
            drift = pin.getFrameClassicalAcceleration(model, data, number, world)
            out[f"J'v of {name}"] = np.concatenate([drift.angular, drift.linear])
            out[f"rotation of {name}"] = data.oMf[number].rotation.copy()
            out[f"position of {name}"] = data.oMf[number].translation.copy()
        return out
