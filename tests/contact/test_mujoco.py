"""The convex law against MuJoCo's, from its own efc quantities, by its CG solver on dense matrices (the sparse
factorization of Newton's is wrong in one release, and PGS stops short in some of these states)."""

from __future__ import annotations

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
        assert np.asarray(found.impulse) == pytest.approx(np.array(data.efc_force), abs=1e-6 * scale), push
        normal, *tangential = np.asarray(found.impulse).reshape(-1, 3).T
        slope = np.hypot(*tangential) / np.where(normal > 0, 0.6 * normal, 1)
        modes |= set(np.where(normal < 1e-9, "breaks", np.where(slope > 1 - 1e-6, "slides", "sticks")))
    assert modes >= {"slides", "sticks"}
