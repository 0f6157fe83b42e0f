"""What a fit found, and how far to trust it.

With residuals r of unit variance (weighted) and a Gaussian prior of precision Q, theta has the covariance (J* J + Q)^-1
times the variance of the weighted residuals; a function f of theta has df cov df* (to first order). Directions that the
data says nothing about and no prior holds have infinite variance: whatever depends on them gets `inf`, while what does
not (base parameters) stays finite.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxsoa.identify.parameters import Candidate, Parameters
from jaxsoa.identify.residuals import residual_rms
from jaxsoa.linearized.base_parameters import BaseParameters, base_parameters
from jaxsoa.linearized.regressor import inertial_parameters
from jaxsoa.model.multibody import Multibody

RANK_TOLERANCE = 1e-10
"""An eigenvalue of the scaled information matrix below this fraction of the largest counts as no information."""


class Estimate(NamedTuple):
    """Numbers with their standard deviations and covariance (in the order of the raveled value)."""

    value: np.ndarray
    std: np.ndarray
    covariance: np.ndarray


class Uncertainty(NamedTuple):
    """Covariance of theta where the data speaks, and a basis of where it does not."""

    covariance: np.ndarray  # (p, p)
    silent: np.ndarray  # (p, k), orthonormal after division by `scale`
    scale: np.ndarray  # (p,)

    def of(self, jacobian: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Standard deviations and covariance of a function of theta with this Jacobian (m, p)."""
        covariance = jacobian @ self.covariance @ jacobian.T
        scaled = jacobian * self.scale
        unseen = np.linalg.norm(scaled @ self.silent, axis=1) > 1e-5 * np.linalg.norm(scaled, axis=1)
        std = np.sqrt(np.maximum(np.diag(covariance), 0))
        return np.where(unseen, np.inf, std), covariance


def uncertainty(information: np.ndarray, variance: float) -> Uncertainty:
    """From J* W J + Q and the variance of the weighted residuals."""
    diagonal = np.diag(information)
    scale = 1 / np.sqrt(np.where(diagonal > 0, diagonal, 1))
    values, vectors = np.linalg.eigh(information * scale[:, None] * scale)
    heard = values > RANK_TOLERANCE * max(values[-1], 1e-300)
    V = vectors[:, heard] * scale[:, None]
    return Uncertainty(variance * (V / values[heard]) @ V.T, vectors[:, ~heard], scale)


@dataclasses.dataclass(frozen=True, eq=False)
class Fit:
    """The result of `fit`: `robot` is the fitted model, `offset` its torque offsets."""

    robot: Multibody
    offset: Array
    theta: np.ndarray
    parameters: Parameters
    channels: tuple[str, ...]
    rms_before: np.ndarray  # (channels,) of the a-priori model
    rms_after: np.ndarray
    weights: np.ndarray  # (channels,) what residuals were multiplied with
    uncertainty: Uncertainty
    history: np.ndarray  # the cost, iteration by iteration
    iterations: int
    converged: bool
    problem_options: dict[str, Any]
    scene: Any = None  # the fitted contact.Scene, where one was given

    def __repr__(self) -> str:
        """A summary: the numbers themselves are hundreds of lines."""
        return f"Fit of {self.robot.name!r}:\n{self.report()}"

    @property
    def covariance(self) -> np.ndarray:
        """Covariance of theta, without the directions that nothing determines."""
        return self.uncertainty.covariance

    @property
    def std(self) -> dict[str, float]:
        """Standard deviation of every coordinate, by name."""
        std, _ = self.uncertainty.of(np.eye(self.parameters.size))
        return dict(zip(self.parameters.names, map(float, std), strict=True))

    def estimate(self, function: Callable[[Candidate], Array]) -> Estimate:
        """Value and uncertainty of any function of the fitted model: `fit.estimate(lambda c: c.robot.mass)`."""

        def flat(theta):
            return function(self.parameters.decode(theta)).reshape(-1)

        value = np.asarray(function(Candidate(self.robot, self.offset, self.scene)))
        J = np.asarray(jax.jit(jax.jacfwd(flat))(self.theta))
        std, covariance = self.uncertainty.of(J)
        return Estimate(value, std.reshape(value.shape), covariance)

    def leaf(self, name: str) -> Estimate:
        """A leaf of the model or scene (or "offset") with standard deviations; zero where it was not free."""
        return self.estimate(lambda c: c.leaf(name))

    def base_parameters(self, base: BaseParameters | None = None) -> Estimate:
        """The combinations of inertial parameters that torques determine, with their standard deviations."""
        base = base_parameters(self.parameters.prior.robot) if base is None else base
        grouping = jnp.asarray(base.grouping)
        return self.estimate(lambda c: grouping @ inertial_parameters(c.robot))

    def rms(self, data: Any) -> np.ndarray:
        """Residuals of the fitted model on other data of the same kind."""
        return residual_rms(self.robot, data, self.offset, contact=self.scene, **self.problem_options)

    def report(self) -> str:
        """Residuals before and after, channel by channel, for people."""
        width = max(len(name) for name in self.channels)
        rows = [f"{'':{width}}  rms before  rms after"]
        for name, before, after in zip(self.channels, self.rms_before, self.rms_after, strict=True):
            rows.append(f"{name:{width}}  {before:10.4g} {after:10.4g}")
        state = "converged" if self.converged else "stopped"
        rows.append(f"{state} after {self.iterations} iterations, {self.parameters.size} parameters")
        return "\n".join(rows)
