"""An elastic rod or cable as a robot: see `model.rods` for what it is made of."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array

from jaxsoa.model.builder import Builder
from jaxsoa.model.multibody import Multibody
from jaxsoa.model.rods import Section as Section, circle as circle, rectangle as rectangle, rod_pieces


def rod(
    length: float | Array,
    segments: int,
    section: Section,
    *,
    E: float | Array,
    G: float | Array,
    density: float | Array,
    damping: float | Array = 0.0,
    axial: bool = False,
) -> Multibody:
    """A rod along x, clamped at x = 0, of Young's modulus E, shear modulus G and density. Frame `tip` ends it.

    `section`: `circle(radius)` or `rectangle(width, height)`. `damping` is a time: each spring is accompanied by a
    damper of damping times its stiffness (Kelvin-Voigt). Every number but `segments` may be traced: stiffness, damping,
    masses and places are leaves of the model. Joints are balls at the middle of each piece; with `axial` each has a
    slider too, and the rod stretches.

    >>> steel = soa.models.rod(1.0, 4, soa.models.circle(0.005), E=2e11, G=8e10, density=7800.0)  # m; Pa, Pa, kg/m^3
    >>> print(steel.n_links, steel.mass.sum().round(3))  # kg
    4 0.536
    """
    values = (length, tuple(section), E, G, density, damping)
    pieces = rod_pieces(length, segments, section, E, G, density, damping)
    if not any(isinstance(x, Tracer) for x in jax.tree.leaves(values)):
        return _built(length, segments, section, E, G, density, damping, axial)
    # The tree of a rod of other numbers, and then these.
    robot = _built(1.0, segments, Section(1.0, 1.0, 1.0, 1.0), 1.0, 1.0, 1.0, 1.0, axial)
    step = 1 + axial
    own = np.arange(step - 1, robot.n_links, step)  # the links with mass; sliders come before them
    h = length / segments
    stiffness = jnp.tile(jnp.concatenate([jnp.atleast_1d(pieces.stretching)[: step - 1], pieces.stiffness]), segments)
    tip = robot.topology.frame_number("tip")
    return robot.replace(
        joint_position=robot.joint_position.at[own - (step - 1), 0].set(pieces.position),
        mass=robot.mass.at[own].set(pieces.mass[1:]),
        com=robot.com.at[own, 0].set(pieces.com[1:]),
        inertia=robot.inertia.at[own].set(jax.vmap(jnp.diag)(pieces.inertia[1:])),
        base_mass=pieces.mass[0],
        base_com=robot.base_com.at[0].set(pieces.com[0]),
        base_inertia=jnp.diag(pieces.inertia[0]),
        frame_position=robot.frame_position.at[tip, 0].set(h / 2),
        stiffness=stiffness,
        damping=damping * stiffness,
    )


def _built(length: Any, segments: int, section: Section, E, G, density, damping, axial: bool) -> Multibody:
    builder = Builder("rod")
    builder.rod(
        "rod", length=length, segments=segments, section=section, E=E, G=G, density=density, damping=damping,
        axial=axial, tip="tip",
    )  # fmt: skip
    return builder.build(validate="off")
