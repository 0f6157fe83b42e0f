"""Real robots, fixed and floating base, against Pinocchio's computeRNEADerivatives and computeABADerivatives."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from helpers.compare import random_states, relative_error
from helpers.example_robots import EXAMPLE_ROBOTS

import jaxsoa as soa
from jaxsoa.linearized.conventional import conventional_linearization, conventional_perturbation

pytest.importorskip("pinocchio")
pytestmark = [
    pytest.mark.slow,  # test_models.py compares the same algorithms with automatic differentiation on smaller robots
    pytest.mark.skipif(not EXAMPLE_ROBOTS, reason="example-robot-data is not installed"),
]

from linearized_oracle import pinocchio_matrices, twin_without_armature  # noqa: E402

ROBOTS = {  # file: does its base float?
    "panda.urdf": False,
    "double_pendulum.urdf": False,
    "ur5_robot.urdf": False,
    "kinova.urdf": False,
    "z1.urdf": False,
    "baxter.urdf": False,
    "solo12.urdf": True,
    "a1.urdf": True,
    "go2.urdf": True,
    "simple_humanoid.urdf": True,
}


def algorithms(robot, q, v, tau, dq, dv, da, dtau):
    """Algorithms 1 to 6 at one state, and the accelerations there."""
    a = soa.forward_dynamics(robot, q, v, tau)
    return a, (
        soa.inverse_dynamics_perturbation(robot, q, v, a, dq, dv, da),
        soa.linearize_inverse_dynamics(robot, q, v, a),
        conventional_perturbation(robot, q, v, tau, dq, dv, dtau),
        conventional_linearization(robot, q, v, tau),
        soa.forward_dynamics_perturbation(robot, q, v, tau, dq, dv, dtau),
        soa.linearize_forward_dynamics(robot, q, v, tau),
    )


@pytest.mark.parametrize("name, floating", ROBOTS.items())
def test_all_six_algorithms(name, floating):
    twin = twin_without_armature(EXAMPLE_ROBOTS[name], floating_base=floating)
    q, v, tau, _ = random_states(twin.robot, 11, 2)
    directions = np.random.default_rng(12).normal(size=(4, *v.shape))
    together = jax.jit(jax.vmap(algorithms, in_axes=(None, *(0,) * 7)))
    a, answers = jax.tree.map(np.asarray, together(twin.robot, q, v, 10 * tau, *directions))
    worst = np.zeros(6)
    for k, (dq, dv, da, dtau) in enumerate(directions.swapaxes(0, 1)):
        expected = pinocchio_matrices(twin, q[k], v[k], a[k], 10 * tau[k])
        inverse, forward = expected[:3], expected[3:]
        d_torque = sum(matrix @ d for matrix, d in zip(inverse, (dq, dv, da), strict=True))
        d_acceleration = sum(matrix @ d for matrix, d in zip(forward, (dq, dv, dtau), strict=True))
        expected = ([d_torque], inverse, [d_acceleration], forward, [d_acceleration], forward)
        for number, (answer, matrices) in enumerate(zip(answers, expected, strict=True)):
            for x, y in zip(jax.tree.leaves(answer), matrices, strict=True):
                worst[number] = max(worst[number], relative_error(x[k], y))
    assert (worst <= 1e-8).all(), f"relative errors of Algorithms 1 to 6: {worst}"
