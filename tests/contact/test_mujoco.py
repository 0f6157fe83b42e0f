"""The convex law against MuJoCo's, from its own efc quantities, by its CG solver on dense matrices (the sparse
factorization of Newton's is wrong in one release, and PGS stops short in some of these states)."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import jax
import mujoco
import numpy as np
import pytest

from jaxsoa import contact

XML = """<mujoco><option cone="elliptic" impratio="1" timestep="0.002" tolerance="0" iterations="20000" jacobian="dense"/>
<worldbody><geom type="plane" size="5 5 1" friction="0.6"/>
<body pos="0 0 0.299"><freejoint/><geom type="box" size="0.2 0.15 0.05" mass="3" friction="0.6"/>
 <body pos="0.2 0.15 0"><joint axis="0 1 0"/><geom type="capsule" fromto="0 0 0 0.1 0 -0.25" size="0.05" mass="0.5" friction="0.6"/></body>
 <body pos="0.2 -0.15 0"><joint axis="0 1 0"/><geom type="capsule" fromto="0 0 0 0.1 0 -0.25" size="0.05" mass="0.5" friction="0.6"/></body>
 <body pos="-0.2 0.15 0"><joint axis="0 1 0"/><geom type="capsule" fromto="0 0 0 -0.1 0 -0.25" size="0.05" mass="0.5" friction="0.6"/></body>
 <body pos="-0.2 -0.15 0"><joint axis="0 1 0"/><geom type="capsule" fromto="0 0 0 -0.1 0 -0.25" size="0.05" mass="0.5" friction="0.6"/></body>
</body></worldbody></mujoco>"""  # noqa: E501


def test_the_convex_law_is_mujocos():
    """The least of lambda* (A + R) lambda / 2 + lambda* (J a0 - aref) over the cones."""
    model = mujoco.MjModel.from_xml_string(XML)  # pyright: ignore[reportAttributeAccessIssue]
    model.opt.solver = mujoco.mjtSolver.mjSOL_CG  # pyright: ignore[reportAttributeAccessIssue]
    solve = jax.jit(lambda mu, G, g: contact.solve(contact.Cones(np.tile([1.0, 0, 0], (4, 1)), mu, law="convex"), G, g))
    modes = set()
    for push in ((0, 0, 0), (1.5, 0.3, -0.2), (0.2, 0.1, 0), (0, -2.0, 0.3)):
        data = mujoco.MjData(model)  # pyright: ignore[reportAttributeAccessIssue]
        data.qvel[:3] = push
        data.qvel[6:] = [0.5, -0.5, 0.3, 0.1]
        mujoco.mj_forward(model, data)  # pyright: ignore[reportAttributeAccessIssue]
        assert data.ncon == 4 and data.nefc == 12
        J, M = np.array(data.efc_J).reshape(12, -1), np.zeros((model.nv, model.nv))
        mujoco.mj_fullM(model, data, M)  # pyright: ignore[reportAttributeAccessIssue]
        G = J @ np.linalg.solve(M, J.T) + np.diag(data.efc_R)
        g = J @ data.qacc_smooth - data.efc_aref
        found = solve(np.full(4, 0.6), G, g)
        assert float(found.residual) < 1e-9
        scale = np.abs(found.impulse).max()
        assert np.asarray(found.impulse) == pytest.approx(np.array(data.efc_force), abs=1e-11 * scale), push
        normal, *tangential = np.asarray(found.impulse).reshape(-1, 3).T
        slope = np.hypot(*tangential) / np.where(normal > 0, 0.6 * normal, 1)
        modes |= set(np.where(normal < 1e-9, "breaks", np.where(slope > 1 - 1e-6, "slides", "sticks")))
    assert modes >= {"slides", "sticks"}


def _from(package: str, file: str) -> mujoco.MjModel:  # pyright: ignore[reportAttributeAccessIssue]
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        pytest.skip(f"{package} is not installed")
    return mujoco.MjModel.from_xml_path(str(Path(spec.origin).parent / file))  # pyright: ignore[reportAttributeAccessIssue]


def _lowered(model, rng, speed: float):
    """A random pose near the first one and a velocity, lowered until two contacts press; (data)."""
    data = mujoco.MjData(model)  # pyright: ignore[reportAttributeAccessIssue]
    data.qpos[7:] += 0.02 * rng.normal(size=model.nq - 7)
    data.qvel[:] = speed * rng.normal(size=model.nv)
    data.qvel[0] += 3 * speed
    for _ in range(400):
        mujoco.mj_forward(model, data)  # pyright: ignore[reportAttributeAccessIssue]
        if (data.contact.dist < -1e-3).sum() >= 2:
            return data
        data.qpos[2] -= 5e-3
    raise AssertionError("it does not reach the ground")


@pytest.mark.slow
@pytest.mark.parametrize(
    "package, file, limits, seen",
    [
        ("dm_control", "suite/humanoid.xml", False, {"slides", "sticks"}),
        ("gymnasium", "envs/mujoco/assets/humanoid.xml", False, {"sticks"}),
        ("gymnasium", "envs/mujoco/assets/ant.xml", True, {"slides", "sticks"}),
    ],
)
def test_humanoids_and_an_ant_of_the_benchmarks(package, file, limits, seen):
    """Up to ten contacts, and joints at their limits in the same problem."""
    model, rng, modes, limited = _from(package, file), np.random.default_rng(0), set(), 0
    model.opt.cone, model.opt.impratio = mujoco.mjtCone.mjCONE_ELLIPTIC, 1  # pyright: ignore[reportAttributeAccessIssue]
    model.opt.jacobian = mujoco.mjtJacobian.mjJAC_DENSE  # pyright: ignore[reportAttributeAccessIssue]
    model.opt.solver = mujoco.mjtSolver.mjSOL_CG  # pyright: ignore[reportAttributeAccessIssue]
    model.opt.tolerance, model.opt.iterations = 0, 20000
    for speed in (0.0, 0.3, 1.0):
        data = _lowered(model, rng, speed)
        touching = [c for c in data.contact if c.efc_address >= 0]
        assert touching and {c.dim for c in touching} <= {1, 3}  # one-sided rows without friction, cones
        cones = [c for c in touching if c.dim == 3]
        order = [c.efc_address + k for c in cones for k in range(3)]
        at_limits = [k for k in range(data.nefc) if data.efc_type[k] == mujoco.mjtConstraint.mjCNSTR_LIMIT_JOINT]  # pyright: ignore[reportAttributeAccessIssue]
        one_sided = [c.efc_address for c in touching if c.dim == 1] + at_limits
        order, limited = order + one_sided, limited + len(at_limits)
        assert sorted(order) == list(range(data.nefc))
        J, M = np.array(data.efc_J).reshape(data.nefc, -1)[order], np.zeros((model.nv, model.nv))
        mujoco.mj_fullM(model, data, M)  # pyright: ignore[reportAttributeAccessIssue]
        G = J @ np.linalg.solve(M, J.T) + np.diag(np.array(data.efc_R)[order])
        g = J @ data.qacc_smooth - np.array(data.efc_aref)[order]
        mu = np.array([c.friction[0] for c in cones])
        normals = np.tile([1.0, 0, 0], (len(cones), 1))
        found = contact.solve(contact.Cones(normals, mu, one_sided=len(one_sided), law="convex"), G, g)
        impulse, expected = np.asarray(found.impulse), np.array(data.efc_force)[order]
        assert float(found.residual) < 1e-9
        assert impulse == pytest.approx(expected, abs=1e-10 * np.abs(expected).max()), speed
        normal, *tangential = expected[: 3 * len(cones)].reshape(-1, 3).T
        slope = np.hypot(*tangential) / np.where(normal > 0, mu * normal, 1)
        modes |= set(np.where(normal < 1e-9, "breaks", np.where(slope > 1 - 1e-6, "slides", "sticks")))
    assert modes >= seen
    assert limited or not limits
