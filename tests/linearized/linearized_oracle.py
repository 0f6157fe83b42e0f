"""Pinocchio's derivatives of the dynamics, in our coordinates."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pinocchio as pin
from helpers.pinocchio_bridge import PinocchioTwin


def twin_without_armature(path: Path, *, floating_base: bool) -> PinocchioTwin:
    """The same robot on both sides without armature: Pinocchio reads none from a URDF."""
    twin = PinocchioTwin(path, floating_base=floating_base)
    twin.model.armature[:] = 0
    twin.robot = twin.robot.replace(armature=0 * twin.robot.armature)
    return twin


def pinocchio_matrices(twin: PinocchioTwin, q, v, a, tau) -> list[np.ndarray]:
    """dtau/dq, dtau/dv, M (at a) and da/dq, da/dv, M^-1 (at tau), in our order of degrees of freedom."""
    back = np.ix_(twin.to_pin, twin.to_pin)
    q, v, a, tau = twin.q(q), twin.v(v), twin.v(a), twin.v(tau)
    inverse = [np.array(x) for x in pin.computeRNEADerivatives(twin.model, twin.data, q, v, a)]  # views: copy
    mass = np.triu(inverse[2]) + np.triu(inverse[2], 1).T
    forward = [np.array(x) for x in pin.computeABADerivatives(twin.model, twin.data, q, v, tau)]
    minv = np.triu(forward[2]) + np.triu(forward[2], 1).T
    return [x[back] for x in (inverse[0], inverse[1], mass, forward[0], forward[1], minv)]
