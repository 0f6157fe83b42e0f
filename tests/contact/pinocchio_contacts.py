"""Impulses of a contact problem by Pinocchio's ADMM, put together from Pinocchio's own matrices."""

from __future__ import annotations

import numpy as np
import pinocchio as pin

from jaxsoa import contact


def contact_jacobian(twin, q, scene: contact.Scene) -> np.ndarray:
    """Velocities (3 m, nv) of a scene's points, world axes, in Pinocchio's coordinates."""
    model, data = twin.model, twin.data
    world = pin.ReferenceFrame.LOCAL_WORLD_ALIGNED
    rows = []
    for frame, p in zip(scene.points.frames, np.asarray(scene.points.positions), strict=True):
        number = twin.frame(frame)
        J = pin.computeFrameJacobian(model, data, q, number, world)
        pin.updateFramePlacement(model, data, number)
        rows.append(J[:3] - pin.skew(data.oMf[number].rotation @ p) @ J[3:])
    return np.concatenate(rows)


FAR = 0.01
"""Points that are higher (m) are left out: within a step they meet nothing, and Pinocchio's solver stops far from
solved where such large numbers belong to the problem."""


def impulses_by_pinocchio(
    twin, scene: contact.Scene, q, v, tau, gaps: np.ndarray, dt: float, tolerance: float = 1e-13
) -> np.ndarray:
    """Impulses (m, 3) on points over the plane z = 0, by the law and friction of the scene."""
    model, data = twin.model, twin.data
    near, impulses = gaps < FAR, np.zeros((len(gaps), 3))
    if not near.any():
        return impulses
    q, v, tau = twin.q(q), twin.v(np.asarray(v)), twin.v(np.asarray(tau))
    free = v + dt * pin.aba(model, data, q, v, tau)
    J = contact_jacobian(twin, q, scene)[np.repeat(near, 3)]
    M = pin.crba(model, data, q)
    M = np.triu(M) + np.triu(M, 1).T
    G = J @ np.linalg.solve(M, J.T)
    g = J @ free
    g[2::3] += (np.where(gaps > 0, gaps, float(scene.recovery) * gaps) / dt)[near]
    models, datas = pin.StdVec_ConstraintModel(), pin.StdVec_ConstraintData()
    for _ in range(near.sum()):
        one = pin.PointContactConstraintModel(model, 1)
        one.setFriction(float(scene.friction))
        one = pin.ConstraintModel(one)
        models.append(one)
        datas.append(one.createData())
    settings = pin.ADMMSolverSettings()
    settings.max_iterations = 20000 if tolerance < 1e-12 else 2000
    for name in ("absolute_complementarity_tol", "absolute_feasibility_tol", "relative_complementarity_tol"):
        setattr(settings, name, tolerance)
    settings.relative_feasibility_tol = tolerance
    settings.solve_ncp = scene.law == "coulomb"
    solver, result = pin.ADMMConstraintSolver(len(g)), pin.ADMMSolverResult()
    solver.solve(pin.DelassusOperatorDense(G), g, models, datas, settings, result)
    impulses[near] = np.asarray(result.retrieveConstraintImpulses()).reshape(-1, 3)
    return impulses
