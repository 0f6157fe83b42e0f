"""Elastic rods and cables as links on ball joints with springs: the smallest real flexible body.

A rod of length L is cut into n pieces of length h = L / n. The bending and twist of each piece are gathered in a ball
joint at its middle, with stiffness E I / h about the section's two axes and G J / h about the rod's own: the midpoint
rule for the strain energy, so that deflections converge with h^2. A cantilever under a tip force F deflects by
F L^3 / 3EI (1 - 1 / 4n^2). With `axial` a slider in each joint stretches, with stiffness E A / h. Shear is left out.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from jaxsoa.model.description import ModelError


class Section(NamedTuple):
    """Of a rod along x: area, second moments of area about y and z, torsion constant; numbers or arrays ()."""

    area: float | Array
    I_y: float | Array
    I_z: float | Array
    J: float | Array


def circle(radius: float | Float[Array, ""]) -> Section:
    """A full circle of one radius, a number or an array ().

    >>> print(f"{soa.models.circle(0.01).area:.6f}")  # m^2
    0.000314
    """
    _positive("The radius", radius)
    moment = np.pi * radius**4 / 4
    return Section(np.pi * radius**2, moment, moment, 2 * moment)


def rectangle(width: float | Float[Array, ""], height: float | Float[Array, ""]) -> Section:
    """`width` along y, `height` along z, numbers or arrays (); torsion by Saint-Venant's series to 0.01 %.

    >>> print(f"{soa.models.rectangle(0.02, 0.01).area:.6f}")  # m^2
    0.000200
    """
    _positive("The width", width)
    _positive("The height", height)
    xp: Any = jnp if isinstance(width, Tracer) or isinstance(height, Tracer) else np
    a, b = xp.maximum(width, height), xp.minimum(width, height)
    odd = np.arange(1, 20, 2)
    series = xp.sum(xp.tanh(odd * np.pi * a / (2 * b)) / odd**5)
    torsion = a * b**3 * (1 / 3 - 64 * b / (np.pi**5 * a) * series)
    return Section(width * height, width * height**3 / 12, height * width**3 / 12, torsion)


def _positive(name: str, value: Any) -> None:
    if not isinstance(value, Tracer) and not (np.isfinite(value) and float(value) > 0):
        raise ModelError(f"{name} of a rod must be positive and finite, got {value}.")


class Pieces(NamedTuple):
    """The numbers of a rod's links: half a piece welded to what carries the rod, n - 1 whole ones, half a piece."""

    position: Any  # (n,), of each joint along the link before
    mass: Any  # (n + 1,)
    com: Any  # (n + 1,), along x
    inertia: Any  # (n + 1, 3), principal, about the centre of mass
    stiffness: Any  # (3,), of each ball joint: twist, bending about y and about z
    stretching: Any  # of each slider


def rod_pieces(length, segments: int, section: Section, E, G, density, damping: Any = 0.0) -> Pieces:
    """What a rod is made of; all but the number of segments may be traced."""
    if isinstance(segments, bool) or segments != int(segments) or segments < 1:
        raise ModelError(f"A rod needs at least one segment, got {segments}.")
    values = {"length": length, "density": density, "E": E, "G": G, **section._asdict()}
    for name, value in values.items():
        _positive(name, value)
    if not isinstance(damping, Tracer) and not (np.isfinite(damping) and float(damping) >= 0):
        raise ModelError(f"The damping of a rod must be finite and not negative, got {damping}.")
    xp: Any = jnp if any(isinstance(x, Tracer) for x in (*values.values(), damping)) else np
    h = length / segments
    parts = np.ones(segments + 1)
    parts[[0, -1]] = 0.5
    size = parts * h
    mass = density * section.area * size
    slender, zero = mass * size**2 / 12, np.zeros(segments + 1)
    own = xp.stack([xp.asarray(x, float) for x in (section.I_y + section.I_z, section.I_y, section.I_z)])
    inertia = density * size[:, None] * own + xp.stack([zero, slender, slender], axis=1)
    stiffness = xp.stack([xp.asarray(x / h, float) for x in (G * section.J, E * section.I_y, E * section.I_z)])
    position = h * np.where(np.arange(segments) == 0, 0.5, 1.0)
    return Pieces(position, mass, size / 2, inertia, stiffness, E * section.area / h)
