"""Ready-made robots: textbook mechanisms, two arms with published parameters, and random trees for testing.

Each public function returns a `Multibody`; the private `_describe_*` function beside it says,
in plain NumPy, what the robot is made of. Unless said otherwise links are numbered from the base (`link1`, moved by
`joint1`), the root link is `base`, and gravity is the default of the model, 9.81 m/s^2 along -z.
"""

from jaxsoa.exports import exported
from jaxsoa.models.mechanisms import (
    cart_pole as cart_pole,
    chain as chain,
    dual_arm as dual_arm,
    pendulum as pendulum,
    planar_arm as planar_arm,
)
from jaxsoa.models.published import puma560 as puma560, stanford_arm as stanford_arm
from jaxsoa.models.random_trees import random_tree as random_tree
from jaxsoa.models.rods import (
    Section as Section,
    circle as circle,
    rectangle as rectangle,
    rod as rod,
)

__all__ = exported(globals())  # pyright: ignore[reportUnsupportedDunderAll]


def __dir__() -> list[str]:
    return __all__
