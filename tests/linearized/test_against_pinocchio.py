"""Real robots, fixed and floating base, against Pinocchio's computeRNEADerivatives and computeABADerivatives."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from helpers.compare import random_states, relative_error
from helpers.example_robots import EXAMPLE_ROBOTS

import jaxsoa as soa

pin = pytest.importorskip("pinocchio")
pytestmark = pytest.mark.skipif(not EXAMPLE_ROBOTS, reason="example-robot-data is not installed")

from helpers.pinocchio_bridge import PinocchioTwin  # noqa: E402

FAST = {"panda.urdf": False}
SLOW = {
    "ur5_robot.urdf": False,
    "kinova.urdf": False,
    "z1.urdf": False,
    "solo12.urdf": True,
    "a1.urdf": True,
    "go2.urdf": True,
    "double_pendulum.urdf": False,
    "simple_humanoid.urdf": True,
    "baxter.urdf": False,
    "talos_reduced.urdf": True,
    "hyq_no_sensors.urdf": True,
    "tiago.urdf": False,
}


def pinocchio_matrices(twin, q, v, a, tau):
    """(dtau/dq, dtau/dv, M, da/dq, da/dv, M^-1) in our order of degrees of freedom."""
    back = np.ix_(twin.to_pin, twin.to_pin)
    q, v, a, tau = twin.q(q), twin.v(v), twin.v(a), twin.v(tau)
    inverse = [np.array(x) for x in pin.computeRNEADerivatives(twin.model, twin.data, q, v, a)]  # views: copy
    mass = np.triu(inverse[2]) + np.triu(inverse[2], 1).T
    forward = [np.array(x) for x in pin.computeABADerivatives(twin.model, twin.data, q, v, tau)]
    minv = np.triu(forward[2]) + np.triu(forward[2], 1).T
    return [x[back] for x in (inverse[0], inverse[1], mass, forward[0], forward[1], minv)]


@pytest.mark.parametrize(
    "name, floating",
    [*FAST.items(), *(pytest.param(*item, marks=pytest.mark.exhaustive) for item in SLOW.items())],
)
def test_both_models(name, floating):
    if name not in EXAMPLE_ROBOTS:
        pytest.skip(f"example-robot-data has no {name}")
    twin = PinocchioTwin(EXAMPLE_ROBOTS[name], floating_base=floating)
    robot = twin.robot
    twin.model.armature[:] = 0  # set alike on both sides: Pinocchio reads none from a URDF
    robot = robot.replace(armature=0 * robot.armature)
    q, v, a, _ = random_states(robot, 11, 3)
    tau = 10 * a
    def both(robot, q, v, a, tau):
        return soa.linearize_inverse_dynamics(robot, q, v, a), soa.linearize_forward_dynamics(robot, q, v, tau)

    ours = jax.jit(jax.vmap(both, in_axes=(None, 0, 0, 0, 0)))(robot, q, v, a, tau)
    ours = [np.asarray(x) for x in jax.tree.leaves(ours)]
    worst = 0.0
    for k in range(len(q)):
        for x, y in zip(ours, pinocchio_matrices(twin, q[k], v[k], a[k], tau[k]), strict=True):
            worst = max(worst, relative_error(x[k], y))
    print(f"{name}: nv {robot.nv}, relative error {worst:.1e}")
    assert worst <= 1e-8
