"""Two real arms close a loop through an object: against Pinocchio's constrained forward dynamics, gravity on."""

import importlib.metadata
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pinocchio as pin
import pytest
from closed_chain_cases import body, frame_pose, jacobian, rotation, shift
from numpy.testing import assert_allclose

import jaxsoa as soa
from jaxsoa import closed_chain as cc


def urdf(name: str, package: str = "example-robot-data") -> str:
    # By the installed file list: its import name and share folder differ between installations.
    try:
        files = importlib.metadata.files(package) or ()
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"{name} comes with {package}, which is not installed")
    (path,) = [f for f in files if str(f).endswith(name)]
    return str(path.locate())


UR5 = ("ur_description/urdf/ur5_robot.urdf", "tool0")
PANDA = ("panda_description/urdf/panda.urdf", "panda_link8")
IIWA = ("assets/iiwa/iiwa14.urdf", "iiwa_link_7", "frax")


class Scene:
    """Two arms holding an object, as a GraspSystem and as one Pinocchio model with the object on a free joint."""

    def __init__(self, pair, contact):
        self.pair = pair
        rng = np.random.default_rng(5)
        self.R, self.p = rotation(rng), rng.normal(size=3)
        self.velocity = rng.normal(scale=0.5, size=6)
        self.body = body(rng)
        self.model = pin.Model()
        arms, self.q, self.v, self.tau, self.points = [], [], [], [], []
        for path, frame, *package in pair:
            with warnings.catch_warnings():  # Panda's fingers mimic; here, as in Pinocchio, they are free
                warnings.simplefilter("ignore", soa.ModelWarning)
                robot = soa.load_urdf(urdf(path, *package), validate="off").frictionless()
            q = np.asarray(robot.random(jax.random.key(3)))
            point, base = rng.normal(scale=0.2, size=3), rotation(rng)
            tip = np.asarray(frame_pose(robot.with_base(base, np.zeros(3)), q, frame)[1])
            place = self.p + self.R @ point - tip
            robot = robot.with_base(base, place)
            J = np.asarray(jacobian(robot, q, frame))
            rows = slice(3, 6) if isinstance(contact, cc.Point) else slice(0, 6)
            wanted = (shift(self.R @ point) @ self.velocity)[rows]
            v = np.linalg.pinv(J[rows]) @ (wanted - J[rows] @ (z := rng.normal(size=robot.nv))) + z
            arms.append(cc.Arm(robot, frame, point, contact))
            self.q.append(q)
            self.v.append(v)
            self.tau.append(rng.normal(size=robot.nv))
            self.points.append(point)
            model = pin.buildModelFromUrdf(urdf(path, *package))
            self.model = pin.appendModel(self.model, model, 0, pin.SE3(base, place))
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
        for (_, frame, *_), point in zip(self.pair, self.points, strict=True):
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
        # Without the proximal term (mu = 0) one factorization solves the constrained equations exactly.
        settings = pin.ProximalSettings(1e-13, 0.0, 1)
        a = np.array(pin.constraintDynamics(model, data, q, v, tau, constraints, datas, settings))
        # Pinocchio's force acts on the arm, in its frame's axes; ours on the object, in the world's.
        forces = []
        for (_, frame, *_), at in zip(self.pair, datas, strict=True):
            R, f = data.oMf[model.getFrameId(frame)].rotation, at.contact_force
            forces.append(-np.concatenate([R @ f.angular, R @ f.linear]))
        w, u = twist[3:], twist[:3]
        joints, of_body = a[:-6], a[-6:]
        linear = self.R @ (of_body[:3] + np.cross(w, u))  # Pinocchio's is spatial, in body axes
        return joints, np.concatenate([self.R @ of_body[3:], linear]), np.array(forces)


SIX, THREE = pin.ContactType.CONTACT_6D, pin.ContactType.CONTACT_3D


@pytest.mark.parametrize(
    ("pair", "contact", "kind"),
    [
        pytest.param((UR5, PANDA), cc.Rigid(), SIX, id="UR5 and Panda, 6-D"),
        pytest.param((UR5, PANDA), cc.Point(), THREE, id="UR5 and Panda, 3-D"),
        pytest.param((UR5, IIWA), cc.Rigid(), SIX, id="UR5 and iiwa, 6-D", marks=pytest.mark.slow),
    ],
)
def test_two_real_arms_holding_an_object(pair, contact, kind):
    scene = Scene(pair, contact)
    s = jax.jit(cc.grasp_forward_dynamics)(
        scene.system, scene.q, scene.v, scene.tau, (scene.R, scene.p), object_velocity=jnp.asarray(scene.velocity)
    )
    ours = np.concatenate(s.a), s.object_acceleration, s.contact_forces
    for got, expected in zip(ours, scene.solve_by_pinocchio(kind), strict=True):
        assert_allclose(got, expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())
