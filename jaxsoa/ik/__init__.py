"""Inverse kinematics: configurations for poses, positions and directions of frames; one step of it; manipulability."""

from jaxsoa.exports import exported
from jaxsoa.ik.differential import (
    differential_inverse_kinematics as differential_inverse_kinematics,
    manipulability as manipulability,
)
from jaxsoa.ik.solve import (
    InverseKinematics as InverseKinematics,
    inverse_kinematics as inverse_kinematics,
)
from jaxsoa.ik.tasks import (
    Direction as Direction,
    Pose as Pose,
    Position as Position,
)

__all__ = exported(globals())  # pyright: ignore[reportUnsupportedDunderAll]


def __dir__() -> list[str]:
    return __all__
