"""Gauss-Newton with straight steps and Levenberg-Marquardt damping.

Least squares alone often wants an unphysical link, so the physical optimum lies at (or, with a prior, near) the border
of what is physical, where logarithmic coordinates run away to minus infinity and Gauss-Newton in them crawls. The steps
here are straight in pseudo-inertias, friction and mass (`straight_steps.py`): there the torques are linear, the prior
is a self-concordant convex function, and a fit of inertias and friction is a convex problem that Newton's method solves
in tens of iterations. Where the user gives no prior, a vanishing one takes its place: it keeps away from the border and
leaves what the data does not determine at the a-priori model.

At first the vanishing prior keeps away from the border more than it holds to the a-priori model, so that links become
larger than they were: a step may move the centre of mass by about the radius of gyration, and a light link would have a
long way to where a payload puts it.
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
LARGER, LARGER_SHARE = 1e4, 1e-5
"""How many times larger the vanishing prior would have what is free, down to which share."""
CENTRED = 0.5
"""The vanishing prior shrinks once Newton's step promises at most this fraction of its precision: then the step is
short as the barrier measures, and full steps are safe. Shrinking it earlier leads to a wrong place of the border, where
steps are short however far the optimum is."""
ROUNDING = 1e-14
"""Relative change of the cost that may be rounding."""
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

    def share(value, data_cost):
        return value * data_cost / len(theta)

    def evaluate(theta, vanishing):
        data = normal(jnp.asarray(theta))
        T = steps.tangents(theta)
        pull = vanishing / LARGER if vanishing > share(LARGER_SHARE, float(data.cost)) else vanishing
        weights = (np.where(held, x, precision) for x in (vanishing, pull))
        value, gradient, curvature = steps.penalty(theta, *weights)
        matrix = T.T @ np.asarray(data.matrix) @ T + np.diag(curvature)
        return float(data.cost), float(data.cost) + value, T.T @ np.asarray(data.gradient) + gradient, matrix

    data_cost = float(normal(jnp.asarray(theta)).cost)
    if not np.isfinite(data_cost):
        raise ValueError("The residual of the starting model is not finite; check the data and the model.")
    vanishing = share(FIRST_SHARE, data_cost) if held.any() else 0.0
    data_cost, cost, gradient, matrix = evaluate(theta, vanishing)
    costs, damping, growth, converged = [data_cost], 1e-9, 4.0, False
    for number in range(iterations):
        full, promise = _newton_step(matrix, gradient, damping)
        step = full * min(1.0, TO_THE_BORDER * steps.longest(full))
        expected = -(gradient @ step) - step @ matrix @ step / 2
        moved = steps.move(theta, step)
        trial = evaluate(moved, vanishing)
        settled = promise <= max(tolerance, ROUNDING) * cost
        centred = promise <= CENTRED * vanishing
        if np.isfinite(trial[1]) and trial[1] < cost:
            gain = (cost - trial[1]) / max(expected, 1e-300)
            theta, (data_cost, cost, gradient, matrix) = moved, trial
            damping, growth = (max(damping / 5, 1e-13), 4.0) if gain > 0.5 else (damping, 4.0)
        elif not settled:
            damping, growth = damping * growth, 2 * growth
        costs.append(data_cost)
        report(number + 1)
        least = share(LAST_SHARE, data_cost)
        if data_cost <= PERFECT * costs[0] or (settled and vanishing <= 2 * least):
            converged = True
            break
        if damping > 1e12:
            break
        if vanishing > 2 * least and (settled or centred):
            vanishing = max(SHRINKS * vanishing, least)
            data_cost, cost, gradient, matrix = evaluate(theta, vanishing)
    return Outcome(theta, costs, converged)


def _newton_step(matrix: np.ndarray, gradient: np.ndarray, damping: float) -> tuple[np.ndarray, float]:
    """The damped step, and how far the model of the cost falls by the one that is not damped."""
    diagonal = np.diag(matrix)
    scale = 1 / np.sqrt(np.maximum(diagonal, 1e-14 * max(diagonal.max(), 1e-300)))
    scaled, slope = matrix * scale[:, None] * scale, scale * gradient
    eye = np.eye(len(slope))
    whole = np.linalg.solve(scaled + min(damping, 1e-9) * eye, slope)
    return -scale * np.linalg.solve(scaled + damping * eye, slope), float(slope @ whole) / 2
