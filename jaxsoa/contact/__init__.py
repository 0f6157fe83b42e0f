"""Contact with the ground and between simple bodies, enforced and differentiable by everything.

    from jaxsoa import contact
    points = contact.Points(["foot"], radii=[0.02])
    scene = contact.Scene(points, contact.Plane(), friction=0.8)
    s = contact.step(robot, scene, q, v, tau, dt)

Friction cones are those that JPL 88-11, Part II, asks to be verified; here they hold.
"""

from jaxsoa.contact.compliant import Compliant as Compliant
from jaxsoa.contact.rows import gaps as gaps
from jaxsoa.contact.scene import Points as Points, Scene as Scene
from jaxsoa.contact.shapes import points_of as points_of
from jaxsoa.contact.solver import Cones as Cones, Settings as Settings, Solution as Solution, solve as solve
from jaxsoa.contact.stepping import Step as Step, step as step
from jaxsoa.contact.surfaces import (
    Ball as Ball,
    Box as Box,
    Capsule as Capsule,
    HeightField as HeightField,
    Plane as Plane,
    Surface as Surface,
)
from jaxsoa.exports import exported

__all__ = exported(globals())  # pyright: ignore[reportUnsupportedDunderAll]


def __dir__() -> list[str]:
    return __all__
