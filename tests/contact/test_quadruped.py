"""A quadruped on its feet: forces against Pinocchio's contact solver, and ten seconds of standing still."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pinocchio as pin
import pytest
from helpers.example_robots import EXAMPLE_ROBOTS
from helpers.pinocchio_bridge import PinocchioTwin

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


def _by_pinocchio(twin, q, v, tau, gaps, friction, law):
    """Impulses of Pinocchio's ADMM for the problem put together from Pinocchio's own matrices."""
    model, data = twin.model, twin.data
    q, v, tau = twin.q(q), twin.v(np.asarray(v)), twin.v(np.asarray(tau))
    free = v + DT * pin.aba(model, data, q, v, tau)
    world = pin.ReferenceFrame.LOCAL_WORLD_ALIGNED
    J = np.concatenate([pin.computeFrameJacobian(model, data, q, twin.frame(f), world)[:3] for f in FEET])
    M = pin.crba(model, data, q)
    M = np.triu(M) + np.triu(M, 1).T
    G = J @ np.linalg.solve(M, J.T)
    g = J @ free
    g[2::3] += np.where(gaps > 0, gaps, 0.2 * gaps) / DT
    models, datas = pin.StdVec_ConstraintModel(), pin.StdVec_ConstraintData()
    for _ in FEET:
        one = pin.PointContactConstraintModel(model, 1)
        one.setFriction(friction)
        one = pin.ConstraintModel(one)
        models.append(one)
        datas.append(one.createData())
    settings = pin.ADMMSolverSettings()
    settings.max_iterations = 20000
    for name in ("absolute_complementarity_tol", "absolute_feasibility_tol", "relative_complementarity_tol"):
        setattr(settings, name, 1e-13)
    settings.relative_feasibility_tol = 1e-13
    settings.solve_ncp = law == "coulomb"
    solver, result = pin.ADMMConstraintSolver(len(g)), pin.ADMMSolverResult()
    solver.solve(pin.DelassusOperatorDense(G), g, models, datas, settings, result)
    return np.asarray(result.retrieveConstraintImpulses()).reshape(-1, 3)


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
        expected = _by_pinocchio(twin, q, v, tau, np.asarray(s.gaps), 0.6, law)
        assert np.asarray(s.impulses) == pytest.approx(expected, abs=1e-8 * max(np.abs(expected).max(), DT)), name
        pressed = expected[:, 2] > 1e-9
        slope = np.hypot(*expected.T[:2]) / np.where(pressed, 0.6 * expected[:, 2], 1)
        modes |= {
            ("breaks" if not p else "slides" if r > 1 - 1e-6 else "sticks") for p, r in zip(pressed, slope, strict=True)
        }
    assert modes >= {"breaks", "slides"}  # what sticks is in test_table.py, on a slope


@pytest.mark.slow
def test_ten_seconds_of_standing_still(twin):
    robot = twin.robot
    scene = contact.Scene(contact.Points(FEET), contact.Plane(), 0.6)
    q0, hold = _standing(robot, scene)

    def one(state, _):
        s = contact.step(robot, scene, *state, hold(*state), 5e-3)
        return (s.q, s.v), (s.q, s.v, s.residual, jnp.sum(s.impulses, axis=0))

    q, v, residual, impulse = (
        np.asarray(x) for x in jax.jit(lambda: jax.lax.scan(one, (q0, jnp.zeros(robot.nv)), length=2400)[1])()
    )
    weight = float(jnp.sum(robot.mass)) * 9.81
    assert residual.max() < 1e-10
    assert impulse[-1] / 5e-3 == pytest.approx([0, 0, weight], rel=1e-10, abs=1e-10 * weight)
    settled = slice(400, None)  # ten seconds after the first two
    assert np.abs(q[settled] - q[400]).max() < 1e-6
    assert np.abs(v[settled]).max() < 1e-8
