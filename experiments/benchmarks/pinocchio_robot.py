"""A robot in Pinocchio: the reference of all answers, and the functions that its worker times. Always float64."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pinocchio as pin
from cases import ROLLOUT_DT, ROLLOUT_STEPS
from coordinates import arrange
from operations import joint_part

STACK = 2**30
"""Bytes for Pinocchio's URDF reader, which calls itself from link to link: a chain of 4096 needs more than a thread's
usual stack and would take the process down."""

MOST_DATA = 2**33
"""Bytes; the system would end a process that asks for many times its memory, and the run with it."""


def _read(urdf: str, floating: bool) -> pin.Model:
    usual = threading.stack_size(STACK)
    try:
        with ThreadPoolExecutor(1) as reader:
            base = (pin.JointModelFreeFlyer(),) if floating else ()
            return reader.submit(pin.buildModelFromUrdf, urdf, *base).result()
    finally:
        threading.stack_size(usual)


class PinocchioRobot:
    def __init__(self, urdf: str, floating: bool, joints: Sequence[str]):
        self.model = _read(urdf, floating)
        if 8 * 6 * self.model.nv**3 > MOST_DATA:
            raise MemoryError(f"Pinocchio's data hold a tensor of 6 nv^3 numbers, too much for nv = {self.model.nv}")
        self.model.armature[:] = 0
        self.data = self.model.createData()
        self.floating, self.joints = floating, list(joints)
        self.order = [name for name in self.model.names[1:] if name in set(joints)]
        self.base = 6 if floating else 0

    def arrange(self, states: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return arrange(states, "pinocchio", self.floating, self.joints, self.order)

    def inverse_dynamics(self, q, v, a):
        return pin.rnea(self.model, self.data, q, v, a)

    def forward_dynamics(self, q, v, tau):
        return pin.aba(self.model, self.data, q, v, tau)

    def mass_matrix(self, q):
        return _symmetric(pin.crba(self.model, self.data, q))

    def linearization(self, q, v, tau):
        pin.computeABADerivatives(self.model, self.data, q, v, tau)
        return self.data.ddq_dq.copy(), self.data.ddq_dv.copy(), _symmetric(self.data.Minv)

    def perturbation(self, q, v, tau, a):
        by_q, by_v, by_tau = self.linearization(q, v, tau)
        return by_q @ v + by_v @ a + by_tau @ tau

    def gradient(self, q, v, tau):
        """Of the sum of squares of the joints' accelerations, from Jacobians: Pinocchio has no reverse mode."""
        matrices = self.linearization(q, v, tau)
        a = 2 * self.data.ddq
        a[: self.base] = 0
        return tuple(a @ matrix for matrix in matrices)

    def rollout(self, q, v):
        """The last q of semi-implicit Euler steps."""
        model, data, none = self.model, self.data, np.zeros(self.model.nv)
        for _ in range(ROLLOUT_STEPS):
            v = v + ROLLOUT_DT * pin.aba(model, data, q, v, none)
            q = pin.integrate(model, q, ROLLOUT_DT * v)
        return q

    scan = rollout

    def joint_part(self, operation: str, results: list) -> np.ndarray:
        """Of a list of answers of single states."""
        if isinstance(results[0], tuple):
            batched = tuple(np.array(x) for x in zip(*results, strict=True))
        else:
            batched = np.array(results)
        base_q = 7 if self.floating else 0
        return joint_part(operation, batched, base_q, self.base, self.joints, self.order)


def _symmetric(upper: np.ndarray) -> np.ndarray:
    return np.triu(upper) + np.triu(upper, 1).T
