"""Parts that several ready-made robots are put together from."""

from __future__ import annotations

import numpy as np

from jaxsoa.model.description import LinkDescription

X = np.array([1.0, 0.0, 0.0])
Y = np.array([0.0, 1.0, 0.0])
Z = np.array([0.0, 0.0, 1.0])
BASE = LinkDescription("base")


def rod(name: str, end: np.ndarray, mass: float, radius: float = 0.02) -> LinkDescription:
    """A uniform solid cylinder from the link's origin to `end`."""
    length = float(np.linalg.norm(end))
    along = np.outer(end, end) / length**2
    across = np.eye(3) - along
    inertia = mass * (radius**2 / 2 * along + (length**2 / 12 + radius**2 / 4) * across)
    return LinkDescription(name, mass, end / 2, inertia)


def rotation_about_x(angle: float) -> np.ndarray:
    c, s = np.cos(angle), np.sin(angle)
    return np.array([[1.0, 0.0, 0.0], [0.0, c, -s], [0.0, s, c]])


def require_links(name: str, n: int) -> None:
    if n < 1:
        raise ValueError(f"{name}: the number of links must be at least 1; got {n}.")
