"""A quadruped on its feet: forces against Pinocchio's contact solver, and ten seconds of standing still."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contact_cases import PLACES
from helpers.example_robots import EXAMPLE_ROBOTS
from helpers.pinocchio_bridge import PinocchioTwin
from pinocchio_contacts import impulses_by_pinocchio

from jaxsoa import contact

FEET = ("FL_FOOT", "FR_FOOT", "HL_FOOT", "HR_FOOT")
DT = 2e-3


@pytest.fixture(scope="module")
def twin():
    return PinocchioTwin(EXAMPLE_ROBOTS["solo12.urdf"], floating_base=True)


def _standing(robot, scene):
    """Legs bent, all feet on the ground; q, and a PD law that holds it."""
    q = robot.neutral()
    for leg in ("FL", "FR", "HL", "HR"):
        bend = 0.8 if leg[0] == "F" else -0.8
        q = q.at[robot.q_index(f"{leg}_HFE")].set(bend).at[robot.q_index(f"{leg}_KFE")].set(-2 * bend)
    q = q.at[6].add(-jnp.min(contact.gaps(robot, scene, q)))

    def hold(q_now, v):
        return jnp.where(jnp.arange(robot.nv) < 6, 0, -20 * robot.difference(q, q_now) - 0.3 * v)

    return q, hold


@pytest.mark.parametrize("law", ["coulomb", pytest.param("convex", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_impulses_equal_pinocchios(twin, law):
    robot = twin.robot
    scene = contact.Scene(contact.Points(FEET), contact.Plane(), 0.6, law=law)
    q0, hold = _standing(robot, scene)
    step = jax.jit(lambda q, v, tau: contact.step(robot, scene, q, v, tau, DT))
    pushes = {"stands": (0, 0, 0), "pushed": (0.1, 0.5, 0), "lands": (0, 0.3, -0.5), "hops": (0.2, 0, 0.4)}
    modes = set()
    for name, push in pushes.items():
        v = jnp.zeros(robot.nv).at[3:6].set(jnp.asarray(push, float))
        q = q0.at[6].add(1e-4 if name == "lands" else 0.0)
        v = v.at[6:].set(0.2 * jnp.sin(jnp.arange(robot.nv - 6.0))) if name != "stands" else v
        tau = hold(q, v)
        s = step(q, v, tau)
        assert float(s.residual) < 1e-10, name
        expected = impulses_by_pinocchio(twin, scene, q, v, tau, np.asarray(s.gaps), DT)
        assert np.asarray(s.impulses) == pytest.approx(expected, abs=1e-8 * max(np.abs(expected).max(), DT)), name
        pressed = expected[:, 2] > 1e-9
        slope = np.hypot(*expected.T[:2]) / np.where(pressed, 0.6 * expected[:, 2], 1)
        modes |= {
            ("breaks" if not p else "slides" if r > 1 - 1e-6 else "sticks") for p, r in zip(pressed, slope, strict=True)
        }
    assert modes >= {"breaks", "slides"}  # what sticks is in test_table.py, on a slope


@pytest.mark.slow
def test_stepping_feet_carry_what_pinocchio_says(twin):
    """Marching on the spot, diagonal legs together: at every mixture of feet on the ground, in the air and landing."""
    robot = twin.robot
    scene = contact.Scene(contact.Points(FEET), contact.Plane(), 0.6)
    q0, _ = _standing(robot, scene)
    legs = ("FL", "FR", "HL", "HR")
    hips, knees = ([robot.q_index(f"{leg}_{part}").start for leg in legs] for part in ("HFE", "KFE"))
    bend = jnp.array([1.0, 1.0, -1.0, -1.0])

    def one(state, t):
        q, v = state
        lift = 0.5 * jnp.maximum(jnp.sin(2 * jnp.pi * t / 0.2 + jnp.array([0.0, jnp.pi, jnp.pi, 0.0])), 0)
        goal = q0.at[jnp.array(hips)].add(bend * lift).at[jnp.array(knees)].add(-2 * bend * lift)
        tau = jnp.where(jnp.arange(robot.nv) < 6, 0, -20 * robot.difference(goal, q) - 0.3 * v)
        s = contact.step(robot, scene, q, v, tau, DT)
        return (s.q, s.v), (q, v, tau, s.impulses, s.gaps, s.residual)

    run = jax.jit(lambda: jax.lax.scan(one, (q0, jnp.zeros(robot.nv)), DT * jnp.arange(200.0))[1])
    q, v, tau, impulses, gaps, residual = (np.asarray(x) for x in run())
    assert residual.max() < 1e-9
    weight = float(jnp.sum(robot.mass)) * 9.81 * DT
    down = (impulses[:, :, 2] > 1e-6 * weight).sum(axis=1)
    seen = set()
    for k in range(3, 200, 9):
        expected = impulses_by_pinocchio(twin, scene, q[k], v[k], tau[k], gaps[k], DT)
        assert impulses[k] == pytest.approx(expected, abs=1e-8 * max(weight, np.abs(expected).max())), k
        seen.add(int(down[k]))
    assert 2 in seen and len(seen) > 1


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
def test_ten_seconds_of_standing_still(twin, place):
    place = PLACES[place]
    robot = place.moved(twin.robot)
    scene = contact.Scene(contact.Points(FEET), place.plane(), 0.6)
    q0, hold = _standing(robot, scene)

    def one(state, _):
        s = contact.step(robot, scene, *state, hold(*state), 5e-3)
        return (s.q, s.v), (s.q, s.v, s.residual, jnp.sum(s.impulses, axis=0))

    q, v, residual, impulse = (
        np.asarray(x) for x in jax.jit(lambda: jax.lax.scan(one, (q0, jnp.zeros(robot.nv)), length=2400)[1])()
    )
    weight = float(jnp.sum(robot.mass)) * 9.81
    assert residual.max() < 1e-10
    far = 1 if place.rounding == 1 else 100
    assert impulse[-1] / 5e-3 == pytest.approx(weight * place.rotation[:, 2], rel=1e-10 * far, abs=1e-10 * far * weight)
    settled = slice(400, None)  # ten seconds after the first two
    assert np.abs(q[settled] - q[400]).max() < 1e-6
    assert np.abs(v[settled]).max() < 1e-8
