"""Tendons: strings along joints, whose length is a weighted sum of coordinates, and strings from frame to frame.

    l = c . q  +  sum over spans of |p_b - p_a| / divisor,      l' = J v

A span runs straight between two frames; a pulley divides what follows it, since there the string runs several times.
The set is what springs, limits, actuators and sensors of tendons are made of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from jaxsoa.closed_chain.algebra import safe_norm
from jaxsoa.dynamics.kinematics import frame_axes, frame_placement, kinematics
from jaxsoa.dynamics.mass import mass_matrix
from jaxsoa.model.multibody import Multibody
from jaxsoa.simulate.joint_limits import FREQUENCY, SAMPLES, WIDTH, ramp, slope, stored


class TendonDescription(NamedTuple):
    """One tendon: coefficients by joint name, or a path of frames in the order in which it runs through them.

    A number in a path is a pulley: the string ends there, and what follows counts divided by that number.
    """

    name: str
    joints: Mapping[str, float] = {}  # read only
    path: Sequence[str | float] = ()
    gear: float = 1.0  # by which the path's length counts


class Tendons(eqx.Module):
    """Several tendons of a robot. Made by `tendon_set(robot, descriptions)`; called with (robot, q)."""

    names: tuple[str, ...] = eqx.field(static=True)
    spans: tuple[tuple[int, str, str], ...] = eqx.field(static=True)  # the tendon's row, and where a span is fixed
    coordinates: Float[Array, "t nq"]  # coefficients c, by coordinate
    rates: Float[Array, "t nv"]  # the same, by rate
    parts: Float[Array, " s"]  # by which each span's length counts: 1 / divisor

    def __call__(self, robot: Multibody, q: Array) -> tuple[Float[Array, " t"], Float[Array, "t nv"]]:
        """Lengths l and moment arms J, with l' = J v: a pull f in the tendons is the torque -J* f."""
        length, moment = self.coordinates @ q, self.rates
        if not self.spans:
            return length, moment
        kin = kinematics(robot, q)
        ends = {frame for _, *pair in self.spans for frame in pair}
        place = {frame: frame_placement(robot, kin, frame)[1] for frame in sorted(ends)}
        axes = {frame: frame_axes(robot, kin, frame)[3:] for frame in sorted(ends)}
        for k, (row, start, end) in enumerate(self.spans):
            across = place[end] - place[start]
            size = safe_norm(across)
            along = across / jnp.where(size > 0, size, 1)  # at length zero it pulls nowhere
            length = length.at[row].add(self.parts[k] * size)
            moment = moment.at[row].add(self.parts[k] * (along @ (axes[end] - axes[start])))
        return length, moment

    def on_links(self, robot: Multibody, q: Array, pull: Array) -> Float[Array, "n_links 6"]:
        """What tendons that pull with f (t,) do to the links on which spans end, as an `f_ext`.

        Its torque is -J* f, but for what runs along joints. Sensors of forces between bodies need it.
        """
        kin = kinematics(robot, q)
        wrenches = jnp.zeros((robot.n_links, 6), kin.axes.dtype)
        for k, (row, *pair) in enumerate(self.spans):
            (_, a, first), (_, b, second) = (frame_placement(robot, kin, frame) for frame in pair)
            across = b - a
            size = safe_norm(across)
            force = pull[row] * self.parts[k] * across / jnp.where(size > 0, size, 1)
            for link, point, pulled in ((first, a, force), (second, b, -force)):
                if link >= 0:
                    moment = jnp.cross(point - kin.position[link], pulled)
                    wrenches = wrenches.at[link].add(jnp.concatenate([moment, pulled]))
        return wrenches


def tendon_set(robot: Multibody, descriptions: Sequence[TendonDescription]) -> Tendons:
    """Tendons of a robot: joints and frames are looked up, numbers stacked.

    >>> string = soa.simulate.TendonDescription("string", path=("base", "tip"))
    >>> length, moment = soa.simulate.tendon_set(robot, [string])(robot, q)
    >>> print(length.round(3), (moment @ v).round(3))  # m, m/s
    [1.938] [0.049]
    """
    names = [one.name for one in descriptions]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"Two tendons are called {twice[0]!r}.")
    for one in descriptions:
        if not one.joints and not one.path:
            raise ValueError(f"Tendon {one.name!r} has neither joints nor a path.")
    return stacked_tendons(robot, descriptions)


def stacked_tendons(robot: Multibody, descriptions: Sequence[TendonDescription], what: str = "Tendon") -> Tendons:
    """The set without looking at it as a whole; `what` calls one of them in errors."""
    names = tuple(one.name for one in descriptions)
    coordinates, rates = np.zeros((len(names), robot.nq)), np.zeros((len(names), robot.nv))
    spans: list[tuple[int, str, str]] = []
    parts: list[float] = []
    for row, one in enumerate(descriptions):
        for joint, coefficient in one.joints.items():
            at_q, at_v = robot.q_index(joint), robot.v_index(joint)
            if at_v.stop - at_v.start != 1:
                raise ValueError(f"{what} {one.name!r} needs joints of one degree of freedom; {joint!r} has more.")
            coordinates[row, at_q], rates[row, at_v] = coefficient, coefficient
        for pair, part in _spans(robot, one, what):
            spans.append((row, *pair))
            parts.append(part)
    arrays = (jnp.asarray(x, robot.dtype) for x in (coordinates, rates, parts))
    return Tendons(names, tuple(spans), *arrays)


def _spans(robot: Multibody, one: TendonDescription, what: str) -> list[tuple[tuple[str, str], float]]:
    """Pairs of frames between which a tendon runs, and by which part each counts."""
    found, part, strand = [], one.gear, []
    for stop in (*one.path, 1.0):  # as if there were a pulley at the end
        if isinstance(stop, str):
            robot.topology.frame_number(stop)  # a KeyError with suggestions
            strand.append(stop)
            continue
        if stop <= 0:
            raise ValueError(f"{what} {one.name!r}: a pulley divides by a positive number, got {stop}.")
        if len(strand) == 1:
            raise ValueError(f"{what} {one.name!r} runs from {strand[0]!r} to nowhere: name two frames or more.")
        found += [(pair, part) for pair in pairwise(strand)]
        part, strand = one.gear / stop, []
    return found


class TendonLimits(eqx.Module):
    """A passive force that holds tendons within their range of length: what keeps a string from stretching.

    The force is that of `JointLimits`, along the tendon, with the way beyond the range in metres (or the unit of its
    coefficients). Without a `stiffness` it is chosen for the robot and the step, as there.

    >>> string = soa.simulate.tendon_set(robot, [soa.simulate.TendonDescription("string", path=("base", "tip"))])
    >>> taut = soa.simulate.TendonLimits(string, jnp.array([[0.0, 1.9]]), stiffness=1e3, damping=0.0)
    >>> print(taut(robot, q, v).round(2))  # 1.938 m long: it pulls back, N m
    [-0.   -8.12]
    """

    tendons: Tendons
    range: Float[Array, "t 2"]
    stiffness: Float[Array, "*t"] | float | None = None
    damping: Float[Array, "*t"] | float | None = None
    width: Float[Array, "*t"] | float = WIDTH

    def for_step(self, robot: Multibody, dt: float | Array) -> TendonLimits:
        """With a stiffness: its own, or one that gives each tendon's end the frequency that `JointLimits` have.

        As there, derivatives by the robot take it as given.
        """
        if self.stiffness is not None:
            return self
        inertia, rate = least_inertia_pulled(robot, self.tendons), jnp.minimum(FREQUENCY, 0.2 / dt)
        damping = 2 * rate * inertia if self.damping is None else self.damping
        return TendonLimits(self.tendons, self.range, rate**2 * inertia, damping, self.width)

    def __call__(self, robot: Multibody, q: Array, v: Array) -> Float[Array, " nv"]:
        """Generalized force in the state (q, v)."""
        if self.stiffness is None:
            raise ValueError("TendonLimits without a stiffness need a step: use for_step(robot, dt).")
        length, moment = self.tendons(robot, q)
        below, above = self._beyond(length)
        damping = (0.0 if self.damping is None else self.damping) * (moment @ v)
        pull = self.stiffness * ramp(above, self.width) + damping * slope(above, self.width)
        push = self.stiffness * ramp(below, self.width) - damping * slope(below, self.width)
        return -moment.T @ (pull - push)

    def energy(self, robot: Multibody, q: Array) -> Float[Array, ""]:
        """What the ends of the ranges have stored."""
        below, above = self._beyond(self.tendons(robot, q)[0])
        stiffness = 0.0 if self.stiffness is None else self.stiffness
        return jnp.sum(stiffness * (stored(below, self.width) + stored(above, self.width)))

    def _beyond(self, length: Array) -> tuple[Array, Array]:
        """How far below and above; -1 where there is no end. Infinities do not meet a derivative."""
        ends = jnp.where(jnp.isfinite(self.range), self.range, 0)
        past = jnp.stack([ends[:, 0] - length, length - ends[:, 1]], axis=1)
        past = jnp.where(jnp.isfinite(self.range), past, -1)
        return past[:, 0], past[:, 1]


@jax.jit
def least_inertia_pulled(robot: Multibody, tendons: Tendons) -> Float[Array, " t"]:
    """What pulls at each tendon feel, 1 / (J M^-1 J*): the least of some configurations."""

    def compliance(q: Array) -> Array:
        moment = tendons(robot, q)[1]
        return jnp.sum(moment * jnp.linalg.solve(mass_matrix(robot, q), moment.T).T, axis=1)

    q = jax.vmap(robot.random)(jax.random.split(jax.random.key(0), SAMPLES))
    most = jnp.max(jax.vmap(compliance)(q), axis=0)
    return lax.stop_gradient(jnp.where(most > 0, 1 / jnp.where(most > 0, most, 1), 0))
