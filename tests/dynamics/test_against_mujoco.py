"""MuJoCo as a second independent oracle: real robots with damping, armature added, and ball and free joints."""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.compare import assert_close, random_states
from helpers.example_robots import EXAMPLE_ROBOTS

import jaxsoa as soa

pytest.importorskip("mujoco")

from helpers.mujoco_bridge import MujocoTwin, stripped_urdf

STATES = 4
ROBOTS = {
    "panda.urdf": False,
    "z1.urdf": False,
    "go2.urdf": True,
    "ur5_robot.urdf": False,
    "kinova.urdf": False,
    "solo12.urdf": True,
    "a1.urdf": True,
    "simple_humanoid.urdf": True,
    "baxter.urdf": False,
    "talos_reduced.urdf": True,
    "xarm7.urdf": False,
    "ur10_robot.urdf": False,
    "solo.urdf": True,
    "talos_left_arm.urdf": False,
}
IN_DEFAULT_RUN = ("z1.urdf",)


@jax.jit
@jax.vmap
def ours(arguments):
    robot, q, v, a, tau, f_ext = arguments
    tip = robot.link_names[deepest(robot)]
    return (
        soa.inverse_dynamics(robot, q, v, a, f_ext),
        soa.forward_dynamics(robot, q, v, tau, f_ext),
        soa.mass_matrix(robot, q),
        soa.jacobian(robot, q, tip),
        soa.jacobian_bias(robot, q, v, tip),
    )


def deepest(robot: soa.Multibody) -> int:
    """The link that the largest number of links carry."""
    return int(np.argmax(robot.topology.link_support.sum(axis=1)))


def compare(twin: MujocoTwin, tolerance: float = 1e-10) -> None:
    robot = twin.robot
    q, v, a, f_ext = random_states(robot, 11, STATES)
    torque = np.stack([twin.inverse_dynamics(*state) for state in zip(q, v, a, f_ext, strict=True)])
    # Another torque for forward dynamics: its answer must not be an echo of the question.
    tau = jnp.asarray(0.5 * torque)
    motion = np.stack([twin.forward_dynamics(*state) for state in zip(q, v, tau, f_ext, strict=True)])
    mass = np.stack([twin.mass_matrix(x) for x in q])
    jacobians = [twin.jacobian(x, y, deepest(robot)) for x, y in zip(q, v, strict=True)]
    stacked = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (STATES, *leaf.shape)), robot)
    actual = ours((stacked, q, v, a, tau, f_ext))
    for k in range(STATES):
        assert_close(actual[0][k], torque[k], tolerance, "inverse dynamics")
        assert_close(actual[1][k], motion[k], tolerance, "forward dynamics")
        assert_close(actual[2][k], mass[k], tolerance, "mass matrix")
        assert_close(actual[3][k], jacobians[k][0], tolerance, "Jacobian of the tip")
        assert_close(actual[4][k], jacobians[k][1], tolerance, "J'v of the tip")


@pytest.mark.skipif(not EXAMPLE_ROBOTS, reason="example-robot-data is not installed")
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in IN_DEFAULT_RUN else pytest.mark.slow) for n in ROBOTS]
)
def test_real_robots_with_armature_and_damping(name: str):
    path, floating_base = EXAMPLE_ROBOTS[name], ROBOTS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", soa.ModelWarning)
        robot = soa.load_urdf(path, floating_base=floating_base, validate="off")
    robot = robot.replace(friction=jnp.zeros(robot.nv))  # MuJoCo's dry friction is a constraint, not a smooth force
    twin = MujocoTwin(robot, stripped_urdf(path, floating_base=floating_base))
    rng = np.random.default_rng(0)
    armature, damping = rng.uniform(0.01, 0.3, robot.nv), np.asarray(robot.damping) + rng.uniform(0, 0.5, robot.nv)
    if floating_base:
        armature[:6] = damping[:6] = 0
    for joint, name in zip(twin.joints, robot.joint_names, strict=True):
        np.testing.assert_allclose(twin.model.dof_damping[joint.dofadr[0]], robot.damping[robot.v_index(name)][0])
        twin.model.dof_armature[joint.dofadr[0] : joint.dofadr[0] + len(armature[robot.v_index(name)])] = armature[
            robot.v_index(name)
        ]
        twin.model.dof_damping[joint.dofadr[0] : joint.dofadr[0] + len(damping[robot.v_index(name)])] = damping[
            robot.v_index(name)
        ]
    twin.robot = robot.replace(armature=armature, damping=damping)
    compare(twin)


MJCF = """
<mujoco>
  <compiler angle="radian" boundmass="0" boundinertia="0"/>
  <worldbody>
    <body name="hull" pos="0 0 0">
      <freejoint name="hull_joint"/>
      <inertial pos="0.1 -0.05 0.02" mass="3" fullinertia="0.05 0.06 0.07 0.004 -0.003 0.002"/>
      <body name="arm" pos="0.2 0.1 -0.1" quat="0.8 0 0.6 0">
        <joint name="arm_joint" type="ball" armature="0.07" damping="0.3"/>
        <inertial pos="0 0.1 0.15" mass="1.2" fullinertia="0.02 0.03 0.025 0.001 0.002 -0.003"/>
        <body name="slider" pos="0 0.05 0.3">
          <joint name="slider_joint" type="slide" axis="0.6 0 0.8" armature="0.4" damping="1.5"/>
          <inertial pos="0.05 0 0" mass="0.7" fullinertia="0.01 0.012 0.009 0 0.001 0"/>
          <body name="hand" pos="0.1 0 0.1" quat="0 0.6 0.8 0">
            <joint name="hand_joint" type="hinge" axis="0 0.8 -0.6" armature="0.02" damping="0.1"/>
            <inertial pos="0 0 0.2" mass="0.5" fullinertia="0.004 0.005 0.003 0 0 0.0005"/>
          </body>
        </body>
      </body>
      <body name="tail" pos="-0.3 0 0">
        <joint name="tail_joint" type="hinge" axis="0 1 0" damping="0.2"/>
        <inertial pos="-0.1 0 0" mass="0.4" fullinertia="0.002 0.004 0.003 0 0 0"/>
      </body>
    </body>
  </worldbody>
</mujoco>
"""


def built() -> soa.Multibody:
    def symmetric(xx, yy, zz, xy, xz, yz):
        return [[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]

    def rotation(w, x, y, z):
        return np.array(
            [
                [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
                [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
                [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
            ]
        )

    builder = soa.Builder("contraption")
    builder.link(
        "hull", joint="free", joint_name="hull_joint", mass=3, com=(0.1, -0.05, 0.02),
        inertia=symmetric(0.05, 0.06, 0.07, 0.004, -0.003, 0.002),
    )  # fmt: skip
    builder.link(
        "arm", parent="hull", joint="spherical", joint_name="arm_joint", position=(0.2, 0.1, -0.1),
        rotation=rotation(0.8, 0, 0.6, 0), mass=1.2, com=(0, 0.1, 0.15),
        inertia=symmetric(0.02, 0.03, 0.025, 0.001, 0.002, -0.003), armature=0.07, damping=0.3,
    )  # fmt: skip
    builder.link(
        "slider", parent="arm", joint="prismatic", joint_name="slider_joint", position=(0, 0.05, 0.3),
        axis=(0.6, 0, 0.8), mass=0.7, com=(0.05, 0, 0), inertia=symmetric(0.01, 0.012, 0.009, 0, 0.001, 0),
        armature=0.4, damping=1.5,
    )  # fmt: skip
    builder.link(
        "hand", parent="slider", joint="revolute", joint_name="hand_joint", position=(0.1, 0, 0.1),
        rotation=rotation(0, 0.6, 0.8, 0), axis=(0, 0.8, -0.6), mass=0.5, com=(0, 0, 0.2),
        inertia=symmetric(0.004, 0.005, 0.003, 0, 0, 0.0005), armature=0.02, damping=0.1,
    )  # fmt: skip
    builder.link(
        "tail", parent="hull", joint="continuous", joint_name="tail_joint", position=(-0.3, 0, 0),
        axis=(0, 1, 0), mass=0.4, com=(-0.1, 0, 0), inertia=symmetric(0.002, 0.004, 0.003, 0, 0, 0), damping=0.2,
    )  # fmt: skip
    return builder.build()


def test_free_ball_slide_and_hinge_with_armature_and_damping():
    compare(MujocoTwin(built(), MJCF))
