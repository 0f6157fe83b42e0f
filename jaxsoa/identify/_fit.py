"""Fit a model to data: the most probable model, given Gaussian noise and a Gaussian prior about the a-priori one.

Minimizes  cost(theta) = sum of squares of (weights * residual) / 2 + sum of divergence(theta) / prior²  in the
coordinates of `Parameters`, by Gauss-Newton (`gauss_newton.py`) or by any optimizer of optax. The divergence is
exp(t) - 1 - t for logarithms of what must stay positive (so that of a pseudo-inertia is its log-det divergence from the
a-priori one) and t² / 2 otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxsoa.identify.gauss_newton import Outcome, gauss_newton
from jaxsoa.identify.parameters import CHOLESKY, Candidate, Free, Parameters
from jaxsoa.identify.residuals import Problem, Residual, in_chunks, problem, rms
from jaxsoa.identify.result import Fit, uncertainty
from jaxsoa.identify.straight_steps import divergences
from jaxsoa.model.multibody import Multibody
from jaxsoa.simulate.progress import ProgressBar

REWEIGHTINGS = 4
"""How often weights are estimated from residuals and the fit repeated from where it stood."""
SMALLEST_NOISE = 1e-9
"""Estimated noise is at least this fraction of a channel's a-priori residual, so that perfect data can be fitted."""

Prior = Mapping[str, Any] | float | None


class _Normal(NamedTuple):
    """The problem to second order at one theta: weighted cost, gradient and Gauss-Newton matrix, without the prior."""

    cost: Array
    gradient: Array
    matrix: Array
    squares: Array  # (channels,) unweighted


class _Functions(NamedTuple):
    normal: Callable[..., _Normal]  # (theta, weights, samples)
    cost: Callable[..., Array]


def _functions(parameters: Parameters, what: Problem, chunk: int) -> _Functions:
    def residual(theta, sample):
        return what.residual(parameters.decode(theta), sample)

    def normal(theta, weights, samples):
        def one(sample):
            r = residual(theta, sample)
            J = jax.jacfwd(residual)(theta, sample)
            Jw, rw = J * weights[:, None], r * weights
            gradient = jnp.einsum("rcp,rc->p", Jw, rw)
            return _Normal(jnp.sum(rw * rw) / 2, gradient, jnp.einsum("rcp,rcs->ps", Jw, Jw), jnp.sum(r * r, axis=0))

        return in_chunks(one, samples, chunk)

    def cost(theta, weights, samples):
        return in_chunks(lambda sample: jnp.sum((residual(theta, sample) * weights) ** 2) / 2, samples, chunk)

    return _Functions(jax.jit(normal), jax.jit(cost))


def prior_precision(parameters: Parameters, prior: Prior) -> np.ndarray:
    """1 / prior² per coordinate; zero where there is none."""
    precision = np.zeros(parameters.size)
    if prior is None:
        return precision
    given = dict.fromkeys(parameters.blocks, prior) if not isinstance(prior, Mapping) else dict(prior)
    for name, deviation in given.items():
        if name not in parameters.blocks:
            raise ValueError(f"prior names {name!r}, which is not free; free are {', '.join(parameters.blocks)}.")
        deviation = np.asarray(deviation, float)
        if not (deviation > 0).all():
            raise ValueError(f"prior of {name!r} must be positive standard deviations, got {deviation}.")
        shape = parameters.masks[name].shape
        if name in CHOLESKY:  # the prior of a link is one number, so that it does not depend on the link's axes
            if deviation.shape not in ((), shape[:1]):
                raise ValueError(f"prior of {name!r} must be one number or one per link, got shape {deviation.shape}.")
            deviation = deviation[..., None]
        full = np.broadcast_to(deviation, shape)
        precision[parameters.slices[name]] = 1 / full[parameters.masks[name]] ** 2
    return precision


def _check_data(data: Any) -> None:
    arrays = [np.asarray(x) for x in jax.tree.leaves(data) if np.ndim(x)]
    if any(x.size == 0 for x in arrays):
        raise ValueError("The data holds no samples.")
    if arrays and not any(x.any() for x in arrays):
        raise ValueError("The data is all zeros: nothing moved and no torque was measured, so nothing can be fitted.")


def fit(
    robot: Multibody,
    data: Any,
    free: Free = ("inertial", "damping", "friction", "offset"),
    *,
    prior: Prior = None,
    weights: Any = None,
    method: Any = "gauss-newton",
    iterations: int = 100,
    tolerance: float = 1e-8,
    residual: Residual | None = None,
    integrator: str = "semi_implicit_euler",
    loops: Any = (),
    prescribed: Any = None,
    contact: Any = None,
    offset: Array | None = None,
    start: Array | None = None,
    chunk: int = 256,
    progress: bool = True,
) -> Fit:
    """The model nearest to data, starting from `robot`, with every link physically consistent.

    `data`: `TorqueData` (inverse dynamics against measured torques, those of mimic joints added to the joints that they
    follow), `TrajectoryData` (simulated against recorded motion), or anything with a leading sample axis together with
    `residual(candidate, sample) -> (rows, channels)`.
    `free`: what may change: names of blocks, a mapping from them to links, joints or booleans, or a function that picks
    leaves (`parameters.chosen`).
    `prior`: standard deviation of the coordinates about the a-priori model, one number or one per block (numbers or
    arrays); for "inertial" 0.3 means about thirty per cent. Without one, what the data does not determine stays about
    where it was.
    `weights` (channels,): one over the noise of each channel. If None they are estimated: equal at first, then one over
    the residual's RMS, and again.
    `method`: "gauss-newton", or an optax optimizer, say `optax.adam(1e-2)` or `optax.lbfgs()`.
    `iterations` and `tolerance`: the most iterations (of each reweighting), and the relative decrease of the cost below
    which a fit has converged. `offset`, `start`: a-priori torque offsets, and theta to start from. `loops`,
    `prescribed`: of a mechanism whose recorded motion is simulated, as in `rollout`. `contact`: the `contact.Scene` of
    that motion; "contact_friction", "restitution" and "compliance" of it can be free, and `fit.scene` has them then.

    Where the torques are linear in all that is free, the data is compressed first and an iteration costs the same for
    any number of samples.

    >>> motion = [jnp.stack([x, 2 * x, -x]) for x in (q, v, q)]  # q, v, a: three samples
    >>> data = soa.identify.TorqueData(*motion, jax.vmap(lambda *x: soa.inverse_dynamics(robot, *x))(*motion))
    >>> found = soa.identify.fit(robot.replace(mass=1.1 * robot.mass), data, ["inertial"], progress=False)
    >>> print(soa.identify.residual_rms(found.robot, data).round(9))  # N m
    [0. 0.]
    """
    if isinstance(method, str) and method != "gauss-newton":
        raise ValueError(f"Unknown method {method!r}; choose 'gauss-newton' or pass an optax optimizer.")
    _check_data(data)
    parameters = Parameters.of(robot, free, offset, contact)
    closed = {"loops": loops, "prescribed": prescribed}
    what = problem(robot, data, residual=residual, integrator=integrator, parameters=parameters, **closed)
    functions = _functions(parameters, what, chunk)
    precision = prior_precision(parameters, prior)
    before = rms(parameters.prior, what, chunk)
    theta = np.zeros(parameters.size) if start is None else np.array(start, float)
    if theta.shape != (parameters.size,):
        raise ValueError(f"start must have shape ({parameters.size},), got {theta.shape}.")
    w = np.ones(len(what.channels)) if weights is None else np.asarray(weights, float)
    if w.shape != (len(what.channels),) or not (w >= 0).all() or not w.any():
        raise ValueError(f"weights must be {len(what.channels)} non-negative numbers, got {w!r}.")

    history: list[float] = []
    used, converged = 0, False
    rounds = REWEIGHTINGS if weights is None else 1
    freedom = max(1.0, what.count - parameters.size / len(what.channels))
    bar = ProgressBar(rounds * iterations, f"fitting {parameters.size} parameters")
    for number in range(rounds):

        def report(done, number=number):
            if progress:
                bar.update(number * iterations + done)

        if number == 0 and weights is None:  # the scale of equal weights decides how strong the prior is
            w = w / max(float(np.sqrt(np.mean(before**2))), 1e-300)
        if method == "gauss-newton":
            normal = partial(functions.normal, weights=jnp.asarray(w), samples=what.samples)
            outcome = gauss_newton(normal, parameters, theta, precision, iterations, tolerance, report)
        else:
            cost = partial(functions.cost, weights=jnp.asarray(w), samples=what.samples)
            outcome = _optax(cost, method, parameters, theta, precision, iterations, tolerance, report)
        theta, costs, converged = outcome
        history += costs
        used += len(costs) - 1
        if weights is None:
            squares = functions.normal(jnp.asarray(theta), jnp.asarray(w), what.samples).squares
            after = np.sqrt(np.asarray(squares) / freedom)
            fresh = 1 / np.maximum(after, SMALLEST_NOISE * np.maximum(before, 1e-12 + SMALLEST_NOISE * before.max()))
            done = bool(np.all(np.abs(fresh / w - 1) < 1e-3))
            w = fresh
            if done:
                break
    if progress:
        bar.update(rounds * iterations)

    at_end = functions.normal(jnp.asarray(theta), jnp.asarray(w), what.samples)
    curvature = precision * np.where(parameters.bounded, np.exp(np.where(parameters.bounded, theta, 0)), 1)
    degrees = max(1.0, np.count_nonzero(w) * what.count - parameters.size)
    variance = 1.0 if weights is None else 2 * float(at_end.cost) / degrees
    candidate: Candidate = jax.jit(parameters.decode)(jnp.asarray(theta))
    return Fit(
        robot=candidate.robot,
        offset=candidate.offset,
        scene=candidate.scene,
        theta=theta,
        parameters=parameters,
        channels=what.channels,
        rms_before=before,
        rms_after=np.sqrt(np.asarray(at_end.squares) / what.count),
        weights=w,
        uncertainty=uncertainty(np.asarray(at_end.matrix) + np.diag(curvature), variance),
        history=np.asarray(history),
        iterations=used,
        converged=converged,
        problem_options={"residual": residual, "integrator": integrator, **closed},
    )


def _optax(data_cost, method, parameters, theta, precision, iterations, tolerance, report) -> Outcome:
    """Any first-order optimizer on the full data; those that search along a line get the cost as well."""
    import optax  # heavy, and needed by nothing else here

    optimizer = optax.with_extra_args_support(method)
    bounded = parameters.bounded
    # Scaled to about one, so that step sizes and tolerances mean the same for every data set.
    scale = 1 / (float(data_cost(jnp.asarray(theta))) + 1e-300)

    def cost(theta):
        return scale * (data_cost(theta) + jnp.sum(precision * divergences(theta, bounded)))

    @jax.jit
    def step(theta, state):
        value, gradient = jax.value_and_grad(cost)(theta)
        updates, state = optimizer.update(gradient, state, theta, value=value, grad=gradient, value_fn=cost)
        return optax.apply_updates(theta, updates), state, value

    x = jnp.asarray(theta)
    state, costs, best, converged = optimizer.init(x), [], (np.inf, x), False
    for number in range(iterations):
        before = x
        x, state, value = step(x, state)
        costs.append(float(value) / scale)
        if costs[-1] < best[0]:
            best = (costs[-1], before)
        report(number + 1)
        if number and (converged := abs(costs[-2] - costs[-1]) <= tolerance * abs(costs[-1])):
            break
    costs.append(float(cost(x)) / scale)
    if costs[-1] < best[0]:
        best = (costs[-1], x)
    return Outcome(np.asarray(best[1], float), costs, converged)
