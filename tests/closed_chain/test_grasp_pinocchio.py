"""Two real arms close a loop through an object: against Pinocchio's constrained forward dynamics, gravity on."""

import importlib.metadata
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pinocchio as pin
import pytest
from closed_chain_cases import body, rotation, shift
from numpy.testing import assert_allclose

import jaxsoa as soa
from jaxsoa import closed_chain as cc


def urdf(name: str) -> str:
    # By the installed file list: its import name and share folder differ between installations.
    (path,) = [f for f in importlib.metadata.files("example-robot-data") or () if str(f).endswith(name)]
    return str(path.locate())


ARMS = (("ur_description/urdf/ur5_robot.urdf", "tool0"), ("panda_description/urdf/panda.urdf", "panda_link8"))


class Scene:
    """UR5 and Panda holding an object, as a GraspSystem and as one Pinocchio model with the object on a free joint."""

    def __init__(self, contact):
        rng = np.random.default_rng(5)
        self.R, self.p = rotation(rng), rng.normal(size=3)
        self.velocity = rng.normal(scale=0.5, size=6)
        self.body = body(rng)
        self.model = pin.Model()
        arms, self.q, self.v, self.tau, self.points = [], [], [], [], []
        for path, frame in ARMS:
            with warnings.catch_warnings():  # Panda's fingers mimic; here, as in Pinocchio, they are free
                warnings.simplefilter("ignore", soa.ModelWarning)
                robot = soa.load_urdf(urdf(path), validate="off").frictionless()
            q = np.asarray(robot.random(jax.random.key(3)))
            point, base = rng.normal(scale=0.2, size=3), rotation(rng)
            tip = np.asarray(soa.frame_pose(robot.with_base(base, np.zeros(3)), q, frame)[1])
            place = self.p + self.R @ point - tip
            robot = robot.with_base(base, place)
            J = np.asarray(soa.jacobian(robot, q, frame))
            rows = slice(3, 6) if isinstance(contact, cc.Point) else slice(0, 6)
            wanted = (shift(self.R @ point) @ self.velocity)[rows]
            v = np.linalg.pinv(J[rows]) @ (wanted - J[rows] @ (z := rng.normal(size=robot.nv))) + z
            arms.append(cc.Arm(robot, frame, point, contact))
            self.q.append(q)
            self.v.append(v)
            self.tau.append(rng.normal(size=robot.nv))
            self.points.append(point)
            self.model = pin.appendModel(self.model, pin.buildModelFromUrdf(urdf(path)), 0, pin.SE3(base, place))
        joint = self.model.addJoint(0, pin.JointModelFreeFlyer(), pin.SE3.Identity(), "object")
        m, c, I = (np.asarray(x) for x in (self.body.mass, self.body.com, self.body.inertia))
        self.model.appendBodyToJoint(joint, pin.Inertia(float(m), c, I), pin.SE3.Identity())
        self.system = cc.GraspSystem(arms, self.body)

    def solve_by_pinocchio(self, kind):
        model, data = self.model, self.model.createData()
        quaternion = pin.Quaternion(self.R).coeffs()  # x, y, z, w
        q = np.concatenate([*self.q, self.p, quaternion])
        twist = np.concatenate([self.R.T @ self.velocity[3:], self.R.T @ self.velocity[:3]])
        v = np.concatenate([*self.v, twist])
        tau = np.concatenate([*self.tau, np.zeros(6)])
        pin.forwardKinematics(model, data, q, v)
        pin.updateFramePlacements(model, data)
        constraints = pin.StdVec_RigidConstraintModel()
        held = model.getJointId("object")
        for (_, frame), point in zip(ARMS, self.points, strict=True):
            at = model.frames[model.getFrameId(frame)]
            place = pin.SE3(self.R, self.p).inverse() * data.oMf[model.getFrameId(frame)]
            assert_allclose(place.translation, point, atol=1e-12)
            constraints.append(
                pin.RigidConstraintModel(
                    kind, model, at.parentJoint, at.placement, held, place, pin.ReferenceFrame.LOCAL
                )
            )
        datas = pin.StdVec_RigidConstraintData()
        for constraint in constraints:
            datas.append(constraint.createData())
        pin.initConstraintDynamics(model, data, constraints, datas)
        settings = pin.ProximalSettings(1e-13, 0.0, 1)
        a = np.array(pin.constraintDynamics(model, data, q, v, tau, constraints, datas, settings))
        w, u = twist[3:], twist[:3]
        joints, of_body = a[:-6], a[-6:]
        linear = self.R @ (of_body[:3] + np.cross(w, u))  # Pinocchio's is spatial, in body axes
        return joints, np.concatenate([self.R @ of_body[3:], linear])


@pytest.mark.parametrize(
    ("contact", "kind"),
    [(cc.Rigid(), pin.ContactType.CONTACT_6D), (cc.Point(), pin.ContactType.CONTACT_3D)],
    ids=["6D", "3D"],
)
def test_two_real_arms_holding_an_object(contact, kind):
    scene = Scene(contact)
    s = jax.jit(cc.grasp_forward_dynamics)(
        scene.system, scene.q, scene.v, scene.tau, (scene.R, scene.p), object_velocity=jnp.asarray(scene.velocity)
    )
    joints, of_object = scene.solve_by_pinocchio(kind)
    assert_allclose(np.concatenate(s.a), joints, rtol=1e-8, atol=1e-8 * np.abs(joints).max())
    assert_allclose(s.object_acceleration, of_object, rtol=1e-8, atol=1e-8 * np.abs(of_object).max())
