"""Gauss-Newton with straight steps and Levenberg-Marquardt damping.

Least squares alone often wants an unphysical link, so the physical optimum lies at (or, with a prior, near) the border
of what is physical, where logarithmic coordinates run away to minus infinity and Gauss-Newton in them crawls. The steps
here are straight in pseudo-inertias, friction and mass (`straight_steps.py`): there the torques are linear, the prior
is a self-concordant convex function, and a fit of inertias and friction is a convex problem that Newton's method solves
in tens of iterations. Where the user gives no prior, a vanishing one takes its place: it keeps away from the border and
leaves what the data does not determine at the a-priori model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxsoa.identify.parameters import Parameters
from jaxsoa.identify.straight_steps import StraightSteps

TO_THE_BORDER = 0.9
"""How far towards the border of what is physical one step may go."""
FIRST_SHARE, LAST_SHARE, SHRINKS = 1e-1, 1e-9, 0.1
"""Precision of the vanishing prior, as a share of the cost per coordinate: first, last, and from one to the next."""
PERFECT = 1e-22
"""A cost below this fraction of the first is zero to rounding."""


class Outcome(NamedTuple):
    theta: np.ndarray
    costs: list[float]
    converged: bool


def gauss_newton(
    normal: Callable,
    parameters: Parameters,
    theta: np.ndarray,
    precision: np.ndarray,
    iterations: int,
    tolerance: float,
    report: Callable[[int], None],
) -> Outcome:
    """Minimize from theta. `normal(theta)` gives cost, gradient and Gauss-Newton matrix of the data."""
    steps = StraightSteps(parameters)
    held = steps.has_border & (precision == 0)

    def evaluate(theta, vanishing):
        data = normal(jnp.asarray(theta))
        T = steps.tangents(theta)
        value, gradient, curvature = steps.penalty(theta, np.where(held, vanishing, precision))
        matrix = T.T @ np.asarray(data.matrix) @ T + np.diag(curvature)
        return float(data.cost), float(data.cost) + value, T.T @ np.asarray(data.gradient) + gradient, matrix

    share = FIRST_SHARE if held.any() else LAST_SHARE
    data_cost = float(normal(jnp.asarray(theta)).cost)
    if not np.isfinite(data_cost):
        raise ValueError("The residual of the starting model is not finite; check the data and the model.")
    vanishing = share * data_cost / len(theta)
    data_cost, cost, gradient, matrix = evaluate(theta, vanishing)
    costs, damping, growth, converged = [data_cost], 1e-9, 4.0, False
    for number in range(iterations):
        diagonal = np.diag(matrix)
        scale = 1 / np.sqrt(np.maximum(diagonal, 1e-14 * max(diagonal.max(), 1e-300)))
        scaled = matrix * scale[:, None] * scale + damping * np.eye(len(theta))
        step = -scale * np.linalg.solve(scaled, scale * gradient)
        step = step * min(1.0, TO_THE_BORDER * steps.longest(step))
        expected = -(gradient @ step) - step @ matrix @ step / 2
        moved = steps.move(theta, step)
        trial = evaluate(moved, vanishing)
        settled = expected <= max(tolerance, 1e-14) * cost
        if np.isfinite(trial[1]) and trial[1] < cost:
            gain = (cost - trial[1]) / max(expected, 1e-300)
            settled = settled or cost - trial[1] <= tolerance * cost
            theta, (data_cost, cost, gradient, matrix) = moved, trial
            damping, growth = (max(damping / 5, 1e-13), 4.0) if gain > 0.5 else (damping, 4.0)
        elif not settled:
            damping, growth = damping * growth, 2 * growth
            settled = damping > 1e12
        costs.append(data_cost)
        report(number + 1)
        if data_cost <= PERFECT * costs[0] or (settled and share <= LAST_SHARE):
            converged = True
            break
        if share > LAST_SHARE and (settled or expected <= 1e-1 * cost):
            share = max(share * SHRINKS, LAST_SHARE)
            vanishing = min(vanishing, share * data_cost / len(theta))
            data_cost, cost, gradient, matrix = evaluate(theta, vanishing)
    return Outcome(theta, costs, converged)
