"""Real MJCF models move as MuJoCo says."""

from __future__ import annotations

import sys

import jax
import numpy as np
import pytest
from helpers.compare import assert_close
from numpy.testing import assert_allclose, assert_array_equal

import jaxsoa as soa

mujoco = pytest.importorskip("mujoco")

from mjcf_collection import MJCF_FILES, Forest, load_quietly  # noqa: E402

#: The joint kinds and the oddities: free, ball, slide and hinge joints, several joints in a body, anchors, references.
SMALL = [
    "mujoco/testdata/model.xml",
    "dm_control/mujoco/testing/assets/model_with_ball_joints.xml",
    "dm_control/suite/fish.xml",
    "dm_control/suite/finger.xml",
    "gymnasium/envs/mujoco/assets/ant.xml",
    "gymnasium/envs/mujoco/assets/walker2d.xml",
    "gymnasium/envs/mujoco/assets/humanoid.xml",
    "gymnasium/envs/mujoco/assets/reacher.xml",
]

#: Test data of dm_control that include files which are not there.
BROKEN = {
    "dm_control/mjcf/test_assets/model_with_invalid_filenames.xml",
    "dm_control/mujoco/testing/assets/model_with_assets.xml",
}

# labmaze, which dm_control needs, has no wheels for Python 3.13 and later: there the models of the others are compared.
MISSING = {name.split("/")[0] for name in SMALL if name not in MJCF_FILES}
EXCUSED = {"dm_control"} if sys.version_info >= (3, 13) else set()
with_the_packages = pytest.mark.skipif(not MISSING <= EXCUSED, reason=f"not installed: {', '.join(sorted(MISSING))}")


def random_q(robot: soa.Multibody, rng: np.random.Generator) -> np.ndarray:
    parts = []
    for joint in robot.topology.joints:
        q = rng.uniform(-2, 2, joint.nq)
        if joint.nq != joint.nv:
            q[:4] /= np.linalg.norm(q[:4])
        parts.append(q)
    return np.concatenate(parts)


@jax.jit
def everything(robot, q, v, a, tau):
    return (
        soa.inverse_dynamics(robot, q, v, a),
        soa.forward_dynamics(robot, q, v, tau),
        soa.mass_matrix(robot, q),
        soa.forward_kinematics(robot, q),
    )


def compare_with_mujoco(forest: Forest, tolerance: float) -> dict[str, float]:
    """Inverse and forward dynamics, mass matrix and poses of every robot; the largest relative error of each."""
    rng = np.random.default_rng(4)
    robot = forest.robot
    q, v, a = random_q(robot, rng), rng.normal(size=robot.nv), rng.normal(size=robot.nv)
    twins, expected, tau = {}, {}, np.zeros(robot.nv)
    for name, model in forest.models.items():
        twin = soa.convert.MujocoMap(forest.robots[name], model)
        data = mujoco.MjData(model)
        at, dofs = q[forest.q_slices[name]], forest.v_slices[name]
        data.qpos[:] = twin.q_to(at)
        data.qvel[:] = twin.v_to(v[dofs], at)
        data.qacc[:] = twin.a_to(a[dofs], at, v[dofs])
        mujoco.mj_inverse(model, data)
        expected[name] = twin.tau_from(data.qfrc_inverse, at)
        # Another torque for forward dynamics, with noise: its answer must not be an echo of the question.
        tau[dofs] = expected[name] * rng.uniform(0.5, 1.5, len(expected[name]))
        twins[name] = twin, data, at, dofs
    torque, motion, mass, poses = everything(robot, q, v, a, tau)
    errors = {}
    for name, (twin, data, at, dofs) in twins.items():
        model = forest.models[name]
        assert_close(torque[dofs], expected[name], tolerance, f"{name}: inverse dynamics")
        data.qfrc_applied[:] = twin.tau_to(tau[dofs], at)
        mujoco.mj_forward(model, data)
        acceleration = twin.a_from(data.qacc, at, v[dofs])
        assert_close(motion[dofs], acceleration, tolerance, f"{name}: forward dynamics")
        M = np.zeros((model.nv, model.nv))
        mujoco.mj_fullM(model, data, M)
        T = twin.velocity_matrix(at)
        assert_close(mass[dofs, dofs], T.T @ M @ T, tolerance, f"{name}: mass matrix")
        compare_frames(forest, name, poses, data)
        compare_leaves(forest, name)
        scale = np.abs(acceleration).max()
        errors[name] = float(np.abs(motion[dofs] - acceleration).max() / scale)
    return errors


def compare_frames(forest: Forest, name: str, poses: soa.LinkPoses, data) -> None:
    """Every body and every site is a frame, where MuJoCo has it."""
    robot, model, topology = forest.robot, forest.models[name], forest.robot.topology
    rotation, position = np.asarray(poses.rotation), np.asarray(poses.position)
    places = [(model.body(k).name, data.xpos[k], data.xmat[k]) for k in range(1, model.nbody)]
    bodies = {model.body(k).name for k in range(model.nbody)}
    for k in range(model.nsite):
        site = model.site(k).name
        places.append((f"site:{site}" if site in bodies else site, data.site_xpos[k], data.site_xmat[k]))
    for frame, p, R in places:
        if not frame:
            continue  # called by its number
        number = topology.frame_number(f"{name}|{frame}")
        link = topology.frame_links[number]
        own_R, own_p = np.asarray(robot.frame_rotation[number]), np.asarray(robot.frame_position[number])
        if link >= 0:
            own_R, own_p = rotation[link] @ own_R, rotation[link] @ own_p + position[link]
        assert_allclose(own_p, p, atol=1e-11, err_msg=frame)
        assert_allclose(own_R, R.reshape(3, 3), atol=1e-12, err_msg=frame)


def compare_leaves(forest: Forest, name: str) -> None:
    """The robot in the forest is the one that `load_mjcf` gives."""
    single, forested = forest.robots[name], forest.robot
    links = [forested.topology.joint_number(f"{name}|{joint}") for joint in single.joint_names]
    for leaf in ("joint_rotation", "joint_position", "axis", "mass", "com", "inertia"):
        assert_array_equal(np.asarray(getattr(forested, leaf))[links], getattr(single, leaf))
    for leaf in ("armature", "damping"):
        assert_array_equal(np.asarray(getattr(forested, leaf))[forest.v_slices[name]], getattr(single, leaf))


@with_the_packages
def test_smooth_dynamics_equal_mujocos():
    paths = {name: MJCF_FILES[name] for name in SMALL if name in MJCF_FILES}
    compare_with_mujoco(Forest(paths, (0.3, -0.2, -9.81)), 1e-10)


@pytest.mark.slow
@with_the_packages
def test_smooth_dynamics_of_all_models_equal_mujocos(capsys):
    paths, refused = {}, {}
    for name, path in MJCF_FILES.items():
        try:
            load_quietly(path)
            paths[name] = path
        except soa.ModelError as error:
            refused[name] = str(error)
    # What is refused is no robot (scenery, pieces to include), or is broken: it includes what its package does not
    # have, or MuJoCo itself refuses it. No robot of the suites is.
    reasons = ("has no joint", "MuJoCo cannot compile", "starts with <mujoco>")
    for name, reason in refused.items():
        assert any(x in reason for x in reasons) or (name in BROKEN and "No such file" in reason), (name, reason)
        suites = name.startswith(("dm_control/suite/", "gymnasium/"))
        assert not suites or "has no joint" in reason, (name, reason)
    assert len(paths) >= (10 if "dm_control" in MISSING else 50)
    errors = compare_with_mujoco(Forest(paths, (0.3, -0.2, -9.81)), 1e-9)
    with capsys.disabled():
        print(f"\n{len(MJCF_FILES)} XML files: {len(paths)} robots equal MuJoCo's, {len(refused)} files are no robots;")
        worst = max(errors, key=errors.__getitem__)
        print(f"largest relative error of forward dynamics {errors[worst]:.1e} ({worst})")
