"""A humanoid on the corners of its soles, standing and stepping: what each foot carries, against Pinocchio's solver.

Four corners of a rigid sole are redundant: the equations leave open how they share their load. What they carry together
is determined while the soles hold, and is compared: the force and the moment on each foot. (A sole that slips, as the
foot does for a moment when its load leaves it, has friction by corners, and so more than one answer.)
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.example_robots import EXAMPLE_ROBOTS
from helpers.pinocchio_bridge import PinocchioTwin
from pinocchio_contacts import impulses_by_pinocchio

import jaxsoa as soa
from jaxsoa import contact

DT = 2e-3
CORNERS = np.array([(x, y, 0.0) for x in (-0.1, 0.1) for y in (-0.06, 0.06)])
SOLES = ("left_sole_link", "right_sole_link")


def _bent(robot, left: float, right: float):
    """Legs bent by angles of the knees, soles level."""
    q = robot.neutral()
    for side, knee in (("left", left), ("right", right)):
        for number, part in ((3, -0.5), (4, 1.0), (5, -0.5)):
            q = q.at[robot.q_index(f"leg_{side}_{number}_joint")].set(part * knee)
    return q


def _motion(robot, scene, steps: int):
    """On both feet, then the left one is lifted and put down again; (time, q, v, tau, step) of every step."""
    start = _bent(robot, 0.6, 0.6)
    start = start.at[6].add(-jnp.min(contact.gaps(robot, scene, start)))
    weight = jnp.sum(robot.mass) * 9.81

    def torque(t, q, v):
        """Computed torque towards the reference; the weight is carried by the feet that are meant to be down."""
        lifted = jnp.where((t > 0.1) & (t < 0.3), jnp.sin(jnp.pi * (t - 0.1) / 0.2) ** 2, 0.0)
        reference = _bent(robot, 0.6 + 0.4 * lifted, 0.6)
        a = (-400 * robot.difference(reference, q) - 40 * v).at[:6].set(0)
        tau = soa.inverse_dynamics(robot, q, v, a)
        share = jnp.array([0.5 * (1 - lifted), 0.5 + 0.5 * lifted])
        for part, sole in zip(share, SOLES, strict=True):
            tau = tau - part * weight * soa.jacobian(robot, q, sole)[5]
        return tau.at[:6].set(0)

    def one(state, t):
        tau = torque(t, *state)
        s = contact.step(robot, scene, *state, tau, DT)
        return (s.q, s.v), (*state, tau, s.impulses, s.gaps, s.residual)

    times = DT * jnp.arange(steps)
    return jax.jit(lambda q: jax.lax.scan(one, (q, jnp.zeros(robot.nv)), times)[1])(start)


def _wrenches(robot, q, impulses):
    """Force and moment (2, 6) on each foot, the moment about its sole's origin."""
    found = []
    for number, sole in enumerate(SOLES):
        R, _ = soa.frame_pose(robot, q, sole)
        mine = impulses[4 * number : 4 * number + 4]
        found.append(np.concatenate([mine.sum(axis=0), np.cross(CORNERS @ np.asarray(R).T, mine).sum(axis=0)]))
    return np.array(found)


@pytest.mark.slow
def test_feet_carry_what_pinocchio_says():
    twin = PinocchioTwin(EXAMPLE_ROBOTS["talos_reduced.urdf"], floating_base=True)
    robot = twin.robot
    points = contact.Points([sole for sole in SOLES for _ in CORNERS], np.tile(CORNERS, (2, 1)))
    scene = contact.Scene(points, contact.Plane(), 0.6)
    q, v, tau, impulses, gaps, residual = (np.asarray(x) for x in _motion(robot, scene, 200))
    weight = float(jnp.sum(robot.mass)) * 9.81 * DT
    assert residual.max() < 1e-9
    feet_down = (impulses[:, :, 2].reshape(-1, 2, 4).max(axis=2) > 1e-6 * weight).sum(axis=1)
    assert feet_down[:10].tolist() == [2] * 10 and feet_down[-1] == 2
    seen = set()
    for k in (0, 30, 60, 72, 88, 96, 112, 128, 136, 152, 160, 199):
        expected = impulses_by_pinocchio(twin, scene, q[k], v[k], tau[k], gaps[k], DT)
        difference = _wrenches(robot, q[k], impulses[k]) - _wrenches(robot, q[k], expected)
        assert np.abs(difference).max() < 1e-8 * weight, k
        seen.add(int(feet_down[k]))
    assert seen >= {1, 2}
