"""Real robots against Pinocchio: arms, quadrupeds, humanoids, a hand; fixed and floating base; float64 and float32."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.compare import random_states, relative_error
from helpers.example_robots import EXAMPLE_ROBOTS

import jaxsoa as soa

pytest.importorskip("pinocchio")
pytestmark = pytest.mark.skipif(not EXAMPLE_ROBOTS, reason="example-robot-data is not installed")

from helpers.pinocchio_bridge import PinocchioTwin  # noqa: E402

STATES = 5

# file: (floating base, frames whose Jacobians are compared: a link, and one on a fixed joint or far out)
ROBOTS = {
    # arms
    "panda.urdf": (False, ("panda_link4", "panda_hand")),
    "ur5_robot.urdf": (False, ("forearm_link", "tool0")),
    "kinova.urdf": (False, ("j2s6s200_link_3", "j2s6s200_end_effector")),  # continuous joints
    "xarm7.urdf": (False, ("link3", "link7")),
    "z1.urdf": (False, ("link02", "link06")),
    # quadrupeds
    "go2.urdf": (True, ("base", "FL_foot")),
    "solo12.urdf": (True, ("base_link", "HR_FOOT")),
    "a1.urdf": (True, ("trunk", "RL_foot")),
    # humanoids and two arms
    "g1_29dof_rev_1_0.urdf": (True, ("torso_link", "left_rubber_hand")),
    "talos_reduced.urdf": (True, ("torso_2_link", "left_sole_link")),
    "simple_humanoid.urdf": (True, ("torso", "l_wrist")),
    "baxter.urdf": (False, ("head", "left_gripper")),
    "tiago_pro.urdf": (False, ("torso_lift_link", "arm_left_7_link")),
}
MORE_ROBOTS = {
    "panda.urdf floating": (True, ("panda_link0", "panda_hand")),
    "go2.urdf fixed": (False, ("base", "FL_foot")),
    "b1.urdf": (True, ("trunk", "RL_foot")),
    "b1-z1.urdf": (True, ("trunk", "RL_foot")),
    "icub_reduced.urdf": (True, ("chest",)),
    "allegro_right_hand.urdf": (False, ("palm_link",)),
    "talos_full_v2.urdf": (True, ("torso_2_link",)),
    "pr2.urdf": (False, ("torso_lift_link",)),
    "human.urdf": (True, ()),
    "centauro.urdf": (True, ()),
    "tiago.urdf": (False, ()),
    "anymal-kinova.urdf": (True, ()),
}


@cache
def twin(name: str, floating_base: bool) -> PinocchioTwin:
    return PinocchioTwin(EXAMPLE_ROBOTS[name.split()[0]], floating_base=floating_base)


def everything(robot, q, v, a, f_ext, tau, frames):
    """What is compared, from public functions only."""
    out = {
        "inverse dynamics": soa.inverse_dynamics(robot, q, v, a, f_ext),
        "bias force": soa.bias_force(robot, q, v),
        "forward dynamics": soa.forward_dynamics(robot, q, v, tau, f_ext),
        "mass matrix": soa.mass_matrix(robot, q),
        "centre of mass": soa.center_of_mass(robot, q),
        "kinetic energy": soa.kinetic_energy(robot, q, v),
        "potential energy": soa.potential_energy(robot, q),
        "momentum": soa.momentum(robot, q, v),
    }
    for name in frames:
        out[f"jacobian of {name}"] = soa.jacobian(robot, q, name)
        out[f"J'v of {name}"] = soa.jacobian_bias(robot, q, v, name)
        out[f"rotation of {name}"], out[f"position of {name}"] = soa.frame_pose(robot, q, name)
    return out


SINGLE = {
    "forward dynamics": 6e-6,  # condition numbers of the mass matrices, up to 1e4, and of their links one by one
    "potential energy": 5e-5,  # kinova's links nearly balance about the origin of heights
    "J'v": 2e-6,
}
"""Relative errors allowed in float32 where they may exceed SINGLE_PRECISION, by the beginning of the name."""
SINGLE_PRECISION = 1e-6


def allowed_in_float32(key: str) -> float:
    return next((bound for name, bound in SINGLE.items() if key.startswith(name)), SINGLE_PRECISION)


def compare(name: str, floating_base: bool, frames: tuple[str, ...], dtype, allowed: Callable[[str], float]) -> None:
    pair = twin(name, floating_base)
    robot = pair.robot.astype(dtype)
    assert set(frames) <= set(robot.frame_names), sorted(robot.frame_names)
    states = [np.asarray(x) for x in random_states(pair.robot, 7, STATES)]
    random_torque = np.random.default_rng(8).normal(size=states[1].shape)
    if dtype == jnp.float32:  # both get the numbers that float32 can hold
        states = [x.astype(np.float32).astype(float) for x in states]
        random_torque = random_torque.astype(np.float32).astype(float)
    expected = [pair.expected(*state, frames, tau) for *state, tau in zip(*states, random_torque, strict=True)]
    batched = jax.jit(jax.vmap(everything, in_axes=(None, 0, 0, 0, 0, 0, None)), static_argnums=6)
    actual = batched(robot, *(jnp.asarray(x, dtype) for x in (*states, random_torque)), frames)
    errors = {}
    for key, value in actual.items():
        assert value.dtype == dtype, f"{key} came as {value.dtype}"
        errors[key] = max(relative_error(value[k], expected[k][key]) for k in range(STATES))

    # Torques that nearly balance gravity: accelerations of order one are left of torques a hundred times what light
    # links need, so rounding the torques alone moves the accelerations by more than any tolerance on them. What can be
    # asked is that the accelerations belong to torques this close: Pinocchio turns them back.
    q, v, _, f_ext = states
    balancing = np.stack([pair.inverse_dynamics(*state) for state in zip(*states, strict=True)])
    balancing = balancing.astype(dtype).astype(float)
    found = batched(robot, *(jnp.asarray(x, dtype) for x in (*states, balancing)), frames)["forward dynamics"]
    again = [pair.inverse_dynamics(q[k], v[k], np.asarray(found[k], float), f_ext[k]) for k in range(STATES)]
    errors["torque residual of forward dynamics"] = max(map(relative_error, again, balancing))
    worst = max(errors, key=lambda key: errors[key])
    print(f"{name}: worst relative error {errors[worst]:.1e} ({worst})")
    assert all(error <= allowed(key) for key, error in errors.items()), errors


def in_default_run(*names: str):
    """All robots as parameters; those not named are slow (compiling for one robot takes some ten seconds)."""
    assert set(names) <= ROBOTS.keys()
    return [pytest.param(name, marks=() if name in names else pytest.mark.slow) for name in ROBOTS]


@pytest.mark.parametrize("name", in_default_run("panda.urdf", "go2.urdf"))
def test_real_robots_in_float64(name: str):
    compare(name, *ROBOTS[name], jnp.float64, lambda key: 1e-10)


@pytest.mark.parametrize("name", in_default_run("ur5_robot.urdf"))
def test_real_robots_in_float32(name: str):
    """The oracle gets the same rounded state and torques, so that only our own rounding is seen."""
    compare(name, *ROBOTS[name], jnp.float32, allowed_in_float32)


@pytest.mark.slow
@pytest.mark.parametrize("name", MORE_ROBOTS)
def test_more_robots_in_float64(name: str):
    compare(name, *MORE_ROBOTS[name], jnp.float64, lambda key: 1e-10)


def test_base_pose_and_gravity_against_pinocchio():
    """A tilted base equals turned gravity: M is unchanged, the weight follows the turn."""
    pair = twin("panda.urdf", False)
    c, s = np.cos(0.7), np.sin(0.7)
    turn = np.array([[1, 0, 0], [0, c, -s], [0, s, c]])
    placed = pair.robot.with_base(turn, jnp.array([0.3, -0.2, 0.5]))
    q, v, a, _ = (x[0] for x in random_states(pair.robot, 3, 1))
    pair.model.gravity.linear = turn.T @ np.array([0, 0, -9.81])
    try:
        expected = pair.expected(q, v, a, np.zeros((pair.robot.n_links, 6)), ("panda_hand",))
    finally:
        pair.model.gravity.linear = np.array([0, 0, -9.81])
    assert relative_error(jax.jit(soa.inverse_dynamics)(placed, q, v, a), expected["inverse dynamics"]) < 1e-10
    R, p = jax.jit(soa.frame_pose, static_argnums=2)(placed, q, "panda_hand")
    assert relative_error(R, turn @ expected["rotation of panda_hand"]) < 1e-12
    assert relative_error(p, turn @ expected["position of panda_hand"] + [0.3, -0.2, 0.5]) < 1e-12
    com = jax.jit(soa.center_of_mass)(placed, q)
    assert relative_error(com, turn @ expected["centre of mass"] + [0.3, -0.2, 0.5]) < 1e-12
