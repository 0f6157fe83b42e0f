"""Coordinates of Pinocchio and MuJoCo from and to ours: there and back, and against both libraries."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import jaxsoa as soa
from jaxsoa import convert

I = np.diag([0.1, 0.12, 0.15])


def tree(kinds: list[str], name: str = "tree") -> soa.Multibody:
    builder = soa.Builder(name)
    parent = None
    for k, kind in enumerate(kinds):
        builder.link(
            f"l{k}", joint=kind, joint_name=f"j{k}", parent=parent, position=(0.1 * k, 0.2, 0.3), axis=(0, 0, 1),
            axis2=(1, 0, 0), mass=1 + k, com=(0.1, -0.2, 0.05), inertia=I,
        )  # fmt: skip
        parent = f"l{k}"
    return builder.build()


def state(robot: soa.Multibody, seed: int = 0):
    rng = np.random.default_rng(seed)
    q = np.asarray(robot.random(seed))
    return q, rng.normal(size=robot.nv), rng.normal(size=robot.nv), rng.normal(size=robot.nv)


# --- Pinocchio -------------------------------------------------------------------------------------------------------

PIN_KINDS = ["free", "continuous", "spherical", "prismatic", "planar", "revolute"]


def pinocchio_twin():
    """The same chain built in Pinocchio, its joints added in the same places."""
    pin = pytest.importorskip("pinocchio")
    robot, model = tree(PIN_KINDS), pin.Model()
    kinds = {
        "free": pin.JointModelFreeFlyer(),
        "continuous": pin.JointModelRUBZ(),
        "spherical": pin.JointModelSpherical(),
        "prismatic": pin.JointModelPZ(),
        "planar": pin.JointModelPlanar(),
        "revolute": pin.JointModelRZ(),
    }
    parent = 0
    for k, kind in enumerate(PIN_KINDS):
        place = pin.SE3(np.eye(3), np.array([0.1 * k, 0.2, 0.3]))
        parent = model.addJoint(parent, kinds[kind], place, f"j{k}")
        model.appendBodyToJoint(parent, pin.Inertia(1.0 + k, np.array([0.1, -0.2, 0.05]), I), pin.SE3.Identity())
    return pin, robot, model


def test_pinocchio_moves_as_we_do():
    """Inverse dynamics of one library in the coordinates of the other: positions, rates, accelerations, torques."""
    pin, robot, model = pinocchio_twin()
    theirs = convert.PinocchioMap(robot, model)
    assert (theirs.nq, theirs.nv) == (model.nq, model.nv) == (robot.nq + 2, robot.nv)
    inverse = jax.jit(soa.inverse_dynamics)
    for seed in range(3):
        q, v, a, _ = state(robot, seed)
        torque = pin.rnea(model, model.createData(), theirs.q_to(q), theirs.v_to(v, q), theirs.a_to(a, q, v))
        expected = np.asarray(inverse(robot, q, v, a))
        assert_allclose(theirs.tau_from(torque, q), expected, atol=1e-10 * np.abs(expected).max())
        assert_allclose(theirs.tau_to(expected, q), torque, atol=1e-10 * np.abs(expected).max())


def test_pinocchio_jacobians():
    pin, robot, model = pinocchio_twin()
    theirs, data = convert.PinocchioMap(robot, model), model.createData()
    q, *_ = state(robot)
    J = np.asarray(jax.jit(lambda q: soa.jacobian(robot, q, "l5"))(q)) @ theirs.velocity_matrix(q).T
    pin.computeJointJacobians(model, data, theirs.q_to(q))
    number, frame = model.getJointId("j5"), pin.ReferenceFrame
    R, p = data.oMi[number].rotation, data.oMi[number].translation
    expected = {ref: pin.getJointJacobian(model, data, number, ref) for ref in (frame.LOCAL, frame.WORLD)}
    aligned = pin.getJointJacobian(model, data, number, frame.LOCAL_WORLD_ALIGNED)
    assert_allclose(convert.linear_first(J), aligned, atol=1e-12)
    assert_allclose(convert.angular_first(aligned), J, atol=1e-12)
    assert_allclose(convert.linear_first(convert.world_to_local(J, R)), expected[frame.LOCAL], atol=1e-12)
    assert_allclose(convert.linear_first(convert.motion_at(J, -p)), expected[frame.WORLD], atol=1e-12)
    force = np.arange(1.0, 7.0)
    at_world_origin = pin.SE3(np.eye(3), p).act(pin.Force(convert.linear_first(force))).vector
    assert_allclose(convert.linear_first(convert.force_at(force, -p)), at_world_origin, atol=1e-12)


def test_pinocchio_models_of_other_robots_are_refused():
    pin, robot, model = pinocchio_twin()
    with pytest.raises(ValueError, match="has nv = 15, but robot 'tree' has nv = 1"):
        convert.PinocchioMap(tree(["revolute"]), model)
    with pytest.raises(ValueError, match="no joint 'other'; pass names="):
        convert.PinocchioMap(robot, model, names={"j1": "other"})
    with pytest.raises(ValueError, match="'j0' is free here"):
        convert.PinocchioMap(robot, model, names={"j0": "j2"})
    one = pin.Model()
    one.addJoint(0, pin.JointModelPlanar(), pin.SE3.Identity(), "j0")
    other = soa.Builder().link("l", joint="planar", joint_name="j0", axis=(0, 1, 0), mass=1, inertia=I).build()
    with pytest.raises(ValueError, match="not in its xy plane"):
        convert.PinocchioMap(other, one)


def test_the_free_joint_of_pinocchio_is_called_root_joint():
    pin = pytest.importorskip("pinocchio")
    body = '<inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>'
    xml = f'<robot name="r"><link name="a">{body}</link></robot>'
    theirs = convert.PinocchioMap(
        soa.load_urdf(xml, floating_base=True), pin.buildModelFromXML(xml, pin.JointModelFreeFlyer())
    )
    assert_array_equal(theirs.q_to([0.5, 0.1, 0.2, 0.3, 1, 2, 3]), [1, 2, 3, 0.1, 0.2, 0.3, 0.5])
    assert_array_equal(theirs.v_to([1, 2, 3, 4, 5, 6], [1, 0, 0, 0, 0, 0, 0]), [4, 5, 6, 1, 2, 3])


# --- MuJoCo ----------------------------------------------------------------------------------------------------------

MUJOCO_KINDS = {"free": "free", "continuous": "hinge", "spherical": "ball", "prismatic": "slide"}


def mujoco_twin():
    """The same chain in MJCF, with the other joints in reverse order behind the first body in a second chain."""
    mujoco = pytest.importorskip("mujoco")
    xml, close = "", ""
    kinds = ["free", "continuous", "spherical", "prismatic", "continuous"]
    for k, kind in enumerate(kinds):
        joint = f'<joint name="m{k}" type="{MUJOCO_KINDS[kind]}" axis="0 0 1"/>'
        inertial = f'<inertial pos="0.1 -0.2 0.05" mass="{1 + k}" diaginertia="0.1 0.12 0.15"/>'
        xml += f'<body name="l{k}" pos="{0.1 * k} 0.2 0.3">{joint}{inertial}'
        close += "</body>"
    model = mujoco.MjModel.from_xml_string(f"<mujoco><worldbody>{xml}{close}</worldbody></mujoco>")
    builder = soa.Builder("tree")  # a free joint of MuJoCo is absolute
    for k, kind in enumerate(kinds):
        builder.link(
            f"l{k}", joint=kind, joint_name=f"j{k}", parent=f"l{k - 1}" if k else None, mass=1 + k, inertia=I,
            position=(0.1 * k, 0.2, 0.3) if k else (0, 0, 0), axis=(0, 0, 1), com=(0.1, -0.2, 0.05),
        )  # fmt: skip
    return mujoco, builder.build(), model, {f"j{k}": f"m{k}" for k in range(5)}


def test_mujoco_moves_as_we_do():
    mujoco, robot, model, names = mujoco_twin()
    theirs, data = convert.MujocoMap(robot, model, names), mujoco.MjData(model)
    inverse = jax.jit(soa.inverse_dynamics)
    for seed in range(3):
        q, v, a, _ = state(robot, seed)
        data.qpos[:], data.qvel[:], data.qacc[:] = theirs.q_to(q), theirs.v_to(v, q), theirs.a_to(a, q, v)
        mujoco.mj_inverse(model, data)
        expected = np.asarray(inverse(robot, q, v, a))
        assert_allclose(theirs.tau_from(data.qfrc_inverse, q), expected, atol=1e-10 * np.abs(expected).max())


def test_mujoco_jacobians_and_forces():
    mujoco, robot, model, names = mujoco_twin()
    theirs, data = convert.MujocoMap(robot, model, names), mujoco.MjData(model)
    q, *_ = state(robot)
    data.qpos[:] = theirs.q_to(q)
    mujoco.mj_forward(model, data)
    J = np.asarray(jax.jit(lambda q: soa.jacobian(robot, q, "l4"))(q))
    jacp, jacr = np.zeros((2, 3, model.nv))
    mujoco.mj_jac(model, data, jacp, jacr, data.xpos[5], 5)
    assert_allclose(convert.linear_first(J) @ theirs.velocity_matrix(q).T, np.vstack([jacp, jacr]), atol=1e-12)
    # A force about the link's origin as MuJoCo wants it: force first, about the centre of mass.
    f = np.array([0.3, -0.2, 0.5, 1.0, 2.0, -1.5])
    moved = convert.linear_first(convert.force_at(f, data.xipos[5] - data.xpos[5]))
    data.xfrc_applied[5] = moved
    mujoco.mj_forward(model, data)
    generalized = np.zeros(model.nv)
    mujoco.mj_applyFT(model, data, moved[:3], moved[3:], data.xipos[5], 5, generalized)
    assert_allclose(theirs.tau_from(generalized, q), J.T @ f, atol=1e-12)


def test_mujoco_models_of_other_robots_are_refused():
    _, robot, model, names = mujoco_twin()
    with pytest.raises(ValueError, match="has nv = 12, but robot 'tree' has nv = 1"):
        convert.MujocoMap(tree(["revolute"]), model)
    with pytest.raises(ValueError, match="no joint 'j0'; pass names="):
        convert.MujocoMap(robot, model)
    with pytest.raises(ValueError, match="'j0' is free here and spherical in MuJoCo"):
        convert.MujocoMap(robot, model, names | {"j0": "m2"})


# --- both ------------------------------------------------------------------------------------------------------------


def maps():
    _, robot, model = pinocchio_twin()
    yield convert.PinocchioMap(robot, model)
    _, robot, model, names = mujoco_twin()
    yield convert.MujocoMap(robot, model, names)


@pytest.mark.parametrize("which", [0, 1], ids=["Pinocchio", "MuJoCo"])
def test_there_and_back(which: int):
    theirs = list(maps())[which]
    q, v, a, tau = state(theirs.robot, 5)
    T = theirs.velocity_matrix(q)
    assert_allclose(T @ T.T, np.eye(theirs.nv), atol=1e-14)
    assert_allclose(theirs.q_from(theirs.q_to(q)), q, atol=1e-14)
    assert_allclose(theirs.v_from(theirs.v_to(v, q), q), v, atol=1e-14)
    assert_allclose(theirs.a_from(theirs.a_to(a, q, v), q, v), a, atol=1e-13)
    assert_allclose(theirs.tau_from(theirs.tau_to(tau, q), q), tau, atol=1e-14)
    assert_allclose(theirs.tau_to(tau, q) @ theirs.v_to(v, q), tau @ v, rtol=1e-12)  # the same power
    # The accelerations are the rates of the velocities, along the motion.
    h = 1e-6
    ahead, behind = (np.asarray(theirs.robot.integrate(q, s * h * v)) for s in (1, -1))
    rate = (theirs.v_to(v + h * a, ahead) - theirs.v_to(v - h * a, behind)) / (2 * h)
    assert_allclose(theirs.a_to(a, q, v), rate, atol=1e-8)


@pytest.mark.parametrize("which", [0, 1], ids=["Pinocchio", "MuJoCo"])
def test_numpy_stays_numpy_and_jax_stays_jax(which: int):
    theirs = list(maps())[which]
    q, v, a, tau = state(theirs.robot, 6)

    def everything(q, v, a, tau):
        x = theirs.q_to(q), theirs.v_to(v, q), theirs.a_to(a, q, v), theirs.tau_to(tau, q)
        return *x, theirs.q_from(x[0]), theirs.v_from(x[1], q), theirs.a_from(x[2], q, v), theirs.tau_from(x[3], q)

    plain = everything(q, v, a, tau)
    batch = jax.jit(jax.vmap(everything))(*(jnp.stack([x, 2 * x]) for x in (q, v, a, tau)))
    for x, y in zip(plain, batch, strict=True):
        assert type(x) is np.ndarray
        assert x.dtype == np.float64
        assert isinstance(y, jax.Array)
        assert_allclose(y[0], x, atol=1e-12)
    lists = theirs.q_to(q.tolist())
    assert type(lists) is np.ndarray
    assert_array_equal(lists, plain[0])
    assert theirs.q_to(q.astype(np.float32)).dtype == np.float32


@pytest.mark.parametrize("which", [0, 1], ids=["Pinocchio", "MuJoCo"])
def test_wrong_shapes_name_the_argument(which: int):
    theirs = list(maps())[which]
    q, v, a, _ = state(theirs.robot)
    for call, name in (
        (lambda: theirs.q_to(q[:-1]), "q"),
        (lambda: theirs.q_from(np.zeros(3)), "q"),
        (lambda: theirs.v_to(v[:-1], q), "v"),
        (lambda: theirs.v_to(v, v[:-1]), "q"),
        (lambda: theirs.a_from(a[None], q, v), "a"),
        (lambda: theirs.tau_to(3.0, q), "tau"),
    ):
        with pytest.raises(ValueError, match=rf"{name} must have shape \("):
            call()


def test_spatial_vectors():
    x = np.arange(6.0)
    assert_array_equal(convert.linear_first(x), [3, 4, 5, 0, 1, 2])
    assert_array_equal(convert.angular_first(convert.linear_first(x)), x)
    J = np.arange(12.0).reshape(2, 6)
    assert_array_equal(convert.linear_first(J, axis=1)[0], [3, 4, 5, 0, 1, 2])
    R = np.array([[0, -1.0, 0], [1, 0, 0], [0, 0, 1]])
    assert_array_equal(convert.world_to_local(x, R), [1, 0, 2, 4, -3, 5])
    assert_array_equal(convert.local_to_world(convert.world_to_local(J.T, R), R), J.T)
    # Turning about z, the point at x moves along y; a force along y at x is a moment about z here.
    assert_array_equal(convert.motion_at([0, 0, 1, 0, 0, 0], [2, 0, 0]), [0, 0, 1, 0, 2, 0])
    assert_array_equal(convert.force_at([0, 0, 0, 0, 1, 0], [-2, 0, 0]), [0, 0, 2, 0, 1, 0])
    # Power does not depend on the point.
    rng = np.random.default_rng(0)
    v, f, d = rng.normal(size=6), rng.normal(size=6), rng.normal(size=3)
    assert_allclose(convert.motion_at(v, d) @ convert.force_at(f, d), v @ f)
    for call in (
        lambda: convert.linear_first(np.zeros(5)),
        lambda: convert.linear_first(np.zeros((6, 2)), axis=1),
        lambda: convert.linear_first(1.0),
        lambda: convert.world_to_local(np.zeros(7), R),
        lambda: convert.world_to_local(x, np.eye(2)),
        lambda: convert.motion_at(x, np.zeros(2)),
    ):
        with pytest.raises(ValueError, match="must"):
            call()


def test_importing_jaxsoa_imports_neither():
    import subprocess
    import sys

    code = "import sys, jaxsoa; print(sorted({'mujoco', 'pinocchio', 'dm_control', 'gymnasium'} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert run.stdout.strip() == "[]"
