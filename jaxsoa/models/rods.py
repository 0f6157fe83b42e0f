"""Elastic rods and cables as links on ball joints with springs: the smallest real flexible body.

A rod of length L is cut into n pieces of length h = L / n. The bending and twist of each piece are gathered in a ball
joint at its middle, with stiffness E I / h about the section's two axes and G J / h about the rod's own: the midpoint
rule for the strain energy, so that deflections converge with h^2. A cantilever under a tip force F deflects by
F L^3 / 3EI (1 - 1 / 4n^2).
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from jaxsoa.dynamics.springs import JointSprings
from jaxsoa.model.builder import Builder
from jaxsoa.model.description import ModelError
from jaxsoa.model.multibody import Multibody


class Section(NamedTuple):
    """Of a rod along x: area, second moments of area about y and z, torsion constant; numbers or arrays ()."""

    area: float | Array
    I_y: float | Array
    I_z: float | Array
    J: float | Array


def _positive(name: str, value) -> None:
    if not isinstance(value, Tracer) and not (np.isfinite(value) and float(value) > 0):
        raise ModelError(f"{name} of a rod must be positive and finite, got {value}.")


def circle(radius: float | Float[Array, ""]) -> Section:
    """A full circle of one radius, a number or an array ().

    >>> print(f"{soa.models.circle(0.01).area:.6f}")  # m^2
    0.000314
    """
    _positive("The radius", radius)
    moment = np.pi * radius**4 / 4
    return Section(np.pi * radius**2, moment, moment, 2 * moment)


def rectangle(width: float, height: float) -> Section:
    """`width` along y, `height` along z, two numbers; torsion by Saint-Venant's series to 0.01 %.

    >>> print(f"{soa.models.rectangle(0.02, 0.01).area:.6f}")  # m^2
    0.000200
    """
    _positive("The width", width)
    _positive("The height", height)
    a, b = max(width, height), min(width, height)
    odd = np.arange(1, 20, 2)
    series = float(np.sum(np.tanh(odd * np.pi * a / (2 * b)) / odd**5))
    torsion = a * b**3 * (1 / 3 - 64 * b / (np.pi**5 * a) * series)
    return Section(width * height, width * height**3 / 12, height * width**3 / 12, torsion)


class Rod(NamedTuple):
    """A rod: its links, and the springs to hand to `rollout(passive=rod.springs)`. Frame `tip` is at its end."""

    robot: Multibody
    springs: JointSprings


def rod(
    length: float,
    segments: int,
    section: Section,
    *,
    E,
    G,
    density: float,
    damping: float | Array = 0.0,
) -> Rod:
    """A rod along x, clamped at x = 0, of Young's modulus E, shear modulus G and density; SI units.

    `section`: `circle(radius)` or `rectangle(width, height)`. `damping` is a time: each spring is accompanied by a
    damper of damping times its stiffness (Kelvin-Voigt). E, G and the damping may be traced: they only enter the
    springs, whose stiffness (nv,) is a leaf. Every joint is a ball; stretch and shear are left out.
    """
    if segments < 1:
        raise ModelError(f"A rod needs at least one segment, got {segments}.")
    values = {"length": length, "density": density, "E": E, "G": G, **section._asdict()}
    for name, value in values.items():
        _positive(name, value)
    if isinstance(section.area, Tracer):
        raise ModelError("The section of a rod makes its masses, which cannot be traced; change them by robot.replace.")
    h = length / segments
    area, I_y, I_z = (float(x) for x in section[:3])
    builder = Builder("rod")
    parent, place = None, h / 2
    for k in range(segments):
        size = h if k < segments - 1 else h / 2  # the last link is the outer half of the last piece
        mass = density * area * size
        slender = mass * size**2 / 12
        turning = np.diag([I_y + I_z, I_y, I_z]) * density * size
        inertia = turning + np.diag([0, slender, slender])
        name = f"piece{k + 1}"
        position, com = (place, 0.0, 0.0), (size / 2, 0.0, 0.0)
        builder.link(name, joint="spherical", parent=parent, position=position, mass=mass, com=com, inertia=inertia)
        parent, place = name, h
    builder.frame("tip", link=parent, position=(h / 2, 0.0, 0.0))
    robot = builder.build(validate="off")
    about = jnp.stack([jnp.asarray(x, robot.dtype) / h for x in (G * section.J, E * section.I_y, E * section.I_z)])
    stiffness = jnp.tile(about, segments)
    return Rod(robot, JointSprings(stiffness, robot.neutral(), damping * stiffness))
