"""Steps that are straight lines in the space where torques are linear, in the coordinates of `Parameters`.

About P = L L* a step is L (I + D) L*, D symmetric with |D| = |delta|; about a positive number x it is x (1 + delta);
other coordinates are added to. The log-det divergence from the a-priori matrix has simple derivatives along such steps:
with P = L0 U U* L0*, those of tr(U (I + D) U*) - log det(I + D). All NumPy, on the host.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from jaxsoa.identify.parameters import CHOLESKY, SCALED, Parameters


def divergences(theta, bounded: np.ndarray):
    """Distance from the a-priori model, by coordinate: exp(t) - 1 - t for bounded ones, t² / 2 for the others."""
    xp = np if isinstance(theta, np.ndarray) else jnp
    t = xp.where(bounded, theta, 0)
    return xp.where(bounded, xp.expm1(t) - t, theta**2 / 2)


class _Triangle:
    """Log-Cholesky coordinates of k by k matrices, many at once (rows, c)."""

    def __init__(self, size: int):
        self.size, self.below = size, np.tril_indices(size, -1)
        count = size * (size + 1) // 2
        self.basis = np.zeros((count, size, size))  # D per unit of delta
        for k in range(size):
            self.basis[k, k, k] = 1
        for k, (i, j) in enumerate(zip(*self.below, strict=True), start=size):
            self.basis[k, i, j] = self.basis[k, j, i] = 1 / np.sqrt(2)

    def factor(self, x: np.ndarray) -> np.ndarray:
        U = np.zeros((len(x), self.size, self.size))
        diagonal = np.arange(self.size)
        U[:, diagonal, diagonal] = np.exp(x[:, : self.size] / 2)
        U[:, self.below[0], self.below[1]] = x[:, self.size :] / np.sqrt(2)
        return U

    def coordinates(self, U: np.ndarray) -> np.ndarray:
        diagonal = np.diagonal(U, axis1=-2, axis2=-1)
        return np.concatenate([2 * np.log(diagonal), np.sqrt(2) * U[..., self.below[0], self.below[1]]], axis=-1)

    def symmetric(self, delta: np.ndarray) -> np.ndarray:
        return np.einsum("nc,cij->nij", delta, self.basis)

    def move(self, x: np.ndarray, delta: np.ndarray) -> np.ndarray:
        return self.coordinates(self.factor(x) @ np.linalg.cholesky(np.eye(self.size) + self.symmetric(delta)))

    def tangents(self, x: np.ndarray) -> np.ndarray:
        """(rows, c, c): the factor of I + D is I + the lower half of D, its diagonal halved, to first order."""
        half = np.tril(self.basis) - np.einsum("cii->ci", self.basis)[:, :, None] * np.eye(self.size) / 2
        U = self.factor(x)
        dU = np.einsum("nij,cjk->ncik", U, half)
        log = 2 * np.einsum("ncii->nci", dU) / np.einsum("nii->ni", U)[:, None]
        columns = np.concatenate([log, np.sqrt(2) * dU[..., self.below[0], self.below[1]]], axis=-1)
        return columns.swapaxes(1, 2)

    def pull(self, x: np.ndarray) -> np.ndarray:
        """Gradient (rows, c) of tr(U (I + D) U*): the components of U* U."""
        U = self.factor(x)
        return np.einsum("nij,cji->nc", U.swapaxes(1, 2) @ U, self.basis)


class StraightSteps:
    """Moves theta, and knows the prior to second order along a move."""

    def __init__(self, parameters: Parameters):
        self.slices, self.size = parameters.slices, parameters.size
        self.bounded = parameters.bounded
        self.has_border = np.zeros(self.size, bool)  # coordinates of what must stay positive (definite)
        for name, where in self.slices.items():
            self.has_border[where] = name in SCALED or name in CHOLESKY
        self.triangles = {name: _Triangle(CHOLESKY[name]) for name in self.slices if name in CHOLESKY}

    def _rows(self, x: np.ndarray, name: str) -> np.ndarray:
        return x[self.slices[name]].reshape(-1, len(self.triangles[name].basis))

    def move(self, theta: np.ndarray, delta: np.ndarray) -> np.ndarray:
        moved = theta + delta
        for name, where in self.slices.items():
            if name in SCALED:
                moved[where] = theta[where] + np.log1p(delta[where])
            elif name in self.triangles:
                moved[where] = self.triangles[name].move(self._rows(theta, name), self._rows(delta, name)).ravel()
        return moved

    def tangents(self, theta: np.ndarray) -> np.ndarray:
        """The derivative of `move` by delta at zero (p, p)."""
        T = np.eye(self.size)
        for name, triangle in self.triangles.items():
            start = self.slices[name].start
            for block in triangle.tangents(self._rows(theta, name)):
                stop = start + len(block)
                T[start:stop, start:stop] = block
                start = stop
        return T

    def longest(self, delta: np.ndarray) -> float:
        """The largest factor of delta for which `move` stays physical."""
        least = 0.0
        for name, where in self.slices.items():
            if name in SCALED:
                least = min(least, delta[where].min(initial=0.0))
            elif name in self.triangles:
                D = self.triangles[name].symmetric(self._rows(delta, name))
                least = min(least, np.linalg.eigvalsh(D).min(initial=0.0))
        return -1 / least if least < 0 else np.inf

    def penalty(
        self, theta: np.ndarray, precision: np.ndarray, pull: np.ndarray | None = None
    ) -> tuple[float, np.ndarray, np.ndarray]:
        """Value, gradient and (diagonal) second derivative of the divergence along a move from theta.

        `precision` (p,) is constant over a link's coordinates. With `pull` (p,) in the place of the precision for what
        draws towards the a-priori model, tr(U (I + D) U*) or x, the precision weighs the barrier alone, - log det and
        - log: the least is then not there but where matrices and numbers are precision / pull times as large.
        """
        pull = precision if pull is None else pull
        t = np.where(self.bounded, theta, 0)
        value = np.where(self.bounded, pull * np.expm1(t) - precision * t, pull * theta**2 / 2)
        gradient = pull * theta
        for name, where in self.slices.items():
            if name in SCALED:
                gradient[where] = pull[where] * np.exp(theta[where]) - precision[where]
            elif name in self.triangles:
                triangle = self.triangles[name]
                unit = np.arange(len(triangle.basis)) < triangle.size  # gradient of log det(I + D)
                drawn = self._rows(pull, name) * triangle.pull(self._rows(theta, name))
                gradient[where] = (drawn - self._rows(precision, name) * unit).ravel()
        return float(np.sum(value)), gradient, np.where(self.has_border, precision, pull)
