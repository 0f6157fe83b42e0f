"""Motions that tell parameters apart: periodic Fourier series, designed for the condition number of the regressor.

q(t) = center + sum over k of [s_k sin(k w t) - c_k cos(k w t)] / (k w), w = 2 pi / period (Swevers, Ganseman, Tukel, De
Schutter & Van Brussel, "Optimal robot excitation and identification", IEEE T-RA 13(5), 1997): velocities and
accelerations are exact, and a record of whole periods can be averaged. Designed trajectories start and end at rest, and
keep the limits at all times: a trigonometric polynomial of degree K that stays below x at N > 2 K equidistant times
stays below x / cos(pi K / N) everywhere (Ehlich & Zeller, Math. Z. 86, 1964), and amplitudes are scaled accordingly.
"""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxsoa.linearized.base_parameters import BaseParameters, base_parameters
from jaxsoa.linearized.regressor import regressor
from jaxsoa.model.multibody import Multibody
from jaxsoa.simulate.progress import ProgressBar

SAMPLES_PER_HARMONIC = 20
"""Times per period and harmonic at which limits are looked at and the regressor is evaluated."""


class Motion(NamedTuple):
    q: Float[Array, "times nv"]
    v: Float[Array, "times nv"]
    a: Float[Array, "times nv"]


class FourierTrajectory(eqx.Module):
    """A periodic motion of joints whose coordinates add."""

    center: Float[Array, " nv"]
    sine: Float[Array, "nv harmonics"]  # amplitudes of velocity
    cosine: Float[Array, "nv harmonics"]
    period: float

    def __call__(self, time: Float[Array, " times"]) -> Motion:
        """Positions, velocities and accelerations at the given times."""
        k = 2 * jnp.pi / self.period * jnp.arange(1, self.sine.shape[1] + 1)
        phase = jnp.asarray(time)[:, None] * k
        s, c = jnp.sin(phase), jnp.cos(phase)
        q = self.center + (s / k) @ self.sine.T - (c / k) @ self.cosine.T
        v = c @ self.sine.T + s @ self.cosine.T
        a = (c * k) @ self.cosine.T - (s * k) @ self.sine.T
        return Motion(q, v, a)


class Excitation(NamedTuple):
    """A designed trajectory, the condition number of its regressor, and that of every iteration."""

    trajectory: FourierTrajectory
    condition: float
    history: np.ndarray


class _Bounds(NamedTuple):
    lower: Array
    upper: Array
    velocity: Array
    acceleration: Array


class _Shape(NamedTuple):
    """What the optimizer moves: any numbers give a trajectory inside the limits."""

    center: Array  # (nv,)
    size: Array  # (nv,)
    sine: Array  # (nv, harmonics)
    cosine: Array


def _bounds(robot: Multibody, margin: float, acceleration) -> _Bounds:
    limits = robot.limits
    # A joint without limits turns by half a turn to either side.
    lower = jnp.where(jnp.isfinite(limits.lower), limits.lower, -jnp.pi)
    upper = jnp.where(jnp.isfinite(limits.upper), limits.upper, jnp.pi)
    middle, half = (lower + upper) / 2, (upper - lower) / 2 * margin
    fastest = jnp.broadcast_to(jnp.asarray(acceleration, robot.dtype), (robot.nv,))

    def finite(x: Array) -> Array:  # what is never reached still needs a derivative, and infinity has none
        return jnp.where(jnp.isfinite(x), margin * x, 1e9)

    return _Bounds(middle - half, middle + half, finite(limits.velocity), finite(fastest))


def _trajectory(shape: _Shape, bounds: _Bounds, period: float) -> FourierTrajectory:
    harmonics = shape.sine.shape[1]
    k = jnp.arange(1, harmonics + 1)
    # At rest at t = 0: velocity sum(s) and acceleration w sum(k c) vanish.
    sine = shape.sine - jnp.mean(shape.sine, axis=1, keepdims=True)
    cosine = shape.cosine - k * (shape.cosine @ k / jnp.sum(k * k))[:, None]
    middle, half = (bounds.lower + bounds.upper) / 2, (bounds.upper - bounds.lower) / 2
    center = middle + half / 2 * jnp.tanh(shape.center)
    room = half - jnp.abs(center - middle)
    number = SAMPLES_PER_HARMONIC * harmonics
    unit = FourierTrajectory(jnp.zeros_like(center), sine, cosine, period)
    motion = unit(jnp.arange(number) * (period / number))
    between = np.cos(np.pi * harmonics / number)  # what may happen between the samples
    peaks = [jnp.max(jnp.abs(x), axis=0) / between + 1e-12 for x in motion]
    allowed = [room, bounds.velocity, bounds.acceleration]
    scale = jnp.min(jnp.stack([a / p for a, p in zip(allowed, peaks, strict=True)]), axis=0)
    scale = (scale * jax.nn.sigmoid(shape.size))[:, None]
    return FourierTrajectory(center, sine * scale, cosine * scale, period)


def _check(robot: Multibody, harmonics: int) -> None:
    if robot.nq != robot.nv:
        raise ValueError(f"{robot.name!r} has quaternions in q; Fourier trajectories need coordinates that add.")
    if harmonics < 2:
        raise ValueError(f"A trajectory that starts at rest needs at least 2 harmonics, got {harmonics}.")


def _random_shape(robot: Multibody, harmonics: int, seed: int) -> _Shape:
    key_s, key_c, key_m = jax.random.split(jax.random.key(seed), 3)
    size = (robot.nv, harmonics)
    return _Shape(
        jax.random.normal(key_m, (robot.nv,), robot.dtype) / 2,
        jnp.full(robot.nv, 2.0, robot.dtype),
        jax.random.normal(key_s, size, robot.dtype),
        jax.random.normal(key_c, size, robot.dtype),
    )


def random_trajectory(
    robot: Multibody,
    *,
    period: float = 10.0,
    harmonics: int = 5,
    acceleration=np.inf,
    margin: float = 0.9,
    seed: int = 0,
) -> FourierTrajectory:
    """Where `design` starts from: random coefficients, within the same limits.

    >>> swing = soa.identify.random_trajectory(robot, period=2.0)  # s
    >>> print(swing(jnp.linspace(0, 2, 50)).q.shape)  # rad
    (50, 2)
    """
    _check(robot, harmonics)
    return _trajectory(_random_shape(robot, harmonics, seed), _bounds(robot, margin, acceleration), period)


def _log_condition(robot: Multibody, base: BaseParameters, weights: Array, motion: Motion) -> Array:
    Y = jax.vmap(regressor, in_axes=(None, 0, 0, 0))(robot, *motion)[:, :, base.independent]
    W = (Y * weights[:, None]).reshape(-1, base.rank)
    eigenvalues = jnp.linalg.eigvalsh(W.T @ W)
    return (jnp.log(eigenvalues[-1]) - jnp.log(jnp.maximum(eigenvalues[0], 1e-14 * eigenvalues[-1]))) / 2


def condition_number(
    robot: Multibody, motion: Motion, *, weights=None, base: BaseParameters | None = None
) -> Float[Array, ""]:
    """Condition number of the base regressor stacked over a motion, its rows multiplied by `weights` (nv,).

    >>> swing = soa.identify.random_trajectory(robot, period=2.0)(jnp.linspace(0, 2, 50))  # s
    >>> print(soa.identify.condition_number(robot, swing) > 1)
    True
    """
    base = base_parameters(robot) if base is None else base
    weights = jnp.ones(robot.nv) if weights is None else jnp.asarray(weights)
    return jnp.exp(_log_condition(robot, base, weights, motion))


def design(
    robot: Multibody,
    *,
    period: float = 10.0,
    harmonics: int = 5,
    acceleration=np.inf,
    margin: float = 0.9,
    weights=None,
    iterations: int = 200,
    learning_rate: float = 0.05,
    seed: int = 0,
    base: BaseParameters | None = None,
    progress: bool = True,
) -> Excitation:
    """A periodic trajectory within the robot's limits whose base regressor is well conditioned.

    Position and velocity limits are the robot's (half a turn where it has none), times `margin`; `acceleration` adds
    one more. `weights` (nv,) are one over the torque noise of each joint. Adam, from random coefficients.

    >>> found = soa.identify.design(robot, period=2.0, harmonics=2, iterations=2, progress=False)  # s
    >>> print(found.condition <= found.history[0])
    True
    """
    _check(robot, harmonics)
    import optax  # heavy, and needed by nothing else here

    base = base_parameters(robot) if base is None else base
    weights = jnp.ones(robot.nv) if weights is None else jnp.asarray(weights)
    bounds = _bounds(robot, margin, acceleration)
    times = jnp.arange(SAMPLES_PER_HARMONIC * harmonics) * (period / (SAMPLES_PER_HARMONIC * harmonics))

    def cost(shape):
        return _log_condition(robot, base, weights, _trajectory(shape, bounds, period)(times))

    shape = _random_shape(robot, harmonics, seed)
    optimizer = optax.adam(learning_rate)

    @jax.jit
    def step(shape, state):
        value, gradient = jax.value_and_grad(cost)(shape)
        updates, state = optimizer.update(gradient, state)
        return optax.apply_updates(shape, updates), state, value

    state, best, history = optimizer.init(shape), (np.inf, shape), []
    bar = ProgressBar(iterations, "designing a trajectory")
    for number in range(iterations):
        before = shape
        shape, state, value = step(shape, state)
        history.append(float(np.exp(value)))
        if history[-1] < best[0]:
            best = (history[-1], before)
        if progress:
            bar.update(number + 1)
    return Excitation(_trajectory(best[1], bounds, period), best[0], np.asarray(history))
