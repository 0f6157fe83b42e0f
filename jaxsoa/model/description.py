"""What a robot file says, before it becomes arrays: links, joints and frames by name.

Readers (`jaxsoa.io`), the builder and the ready-made models all speak this language; `assemble` in
`jaxsoa.model.assemble` turns a description into a `Multibody`. Everything here is plain NumPy on the host.
"""

from __future__ import annotations

import dataclasses
import unicodedata
from collections.abc import Sequence

import numpy as np

#: Characters in a message: names and values of a hostile file stand in it.
MAX_MESSAGE = 2000

#: They turn the direction of the text around them, so that it says something else than it seems to.
_TURNING = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


def is_plain(character: str) -> bool:
    """Whether a terminal shows it and does nothing else: no controls, line ends, lone surrogates, turned text."""
    return unicodedata.category(character) not in ("Cc", "Cs", "Zl", "Zp") and character not in _TURNING


def plain(text: str, limit: int = MAX_MESSAGE) -> str:
    """Text that is safe to print: what is not plain as Python writes it, but for line ends; the middle of too much
    left out."""
    if len(text) > limit:
        text = f"{text[: limit - 200]} [... {len(text) - limit + 100} characters ...] {text[-100:]}"
    if text.isprintable():
        return text
    return "".join(c if c == "\n" or is_plain(c) else c.encode("unicode_escape").decode() for c in text)


class ModelError(ValueError):
    """A model that cannot be built: the message names the file or element and the offending value."""

    def __init__(self, message: object = ""):
        super().__init__(plain(str(message)))


@dataclasses.dataclass(frozen=True)
class LinkDescription:
    """One rigid body. `inertia` (3, 3) is about the centre of mass `com`, both in link axes."""

    name: str
    mass: float = 0.0
    com: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(3))
    inertia: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros((3, 3)))


@dataclasses.dataclass(frozen=True)
class JointDescription:
    """A joint from link `parent` to link `child`.

    `rotation` (3, 3) and `position` (3,) place the joint frame (which is the child link's frame at the neutral
    configuration) in the parent link's frame. `axis` is a unit vector in the joint frame; `axis2` is the second axis
    of a universal joint, or the in-plane x direction of a planar one. `pitch` is metres per radian of a helical joint.
    The per-degree values (`armature`, `damping`, `friction`, `stiffness`, limits) are scalars, or sequences of the
    joint's nv; `rest`, where a spring does not pull, is one of its nq (None: neutral).
    A `mimic` is (joint, multiplier, offset): q = multiplier * q[joint] + offset.
    """

    name: str
    kind: str
    parent: str
    child: str
    rotation: np.ndarray = dataclasses.field(default_factory=lambda: np.eye(3))
    position: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(3))
    axis: np.ndarray = dataclasses.field(default_factory=lambda: np.array([1.0, 0.0, 0.0]))
    axis2: np.ndarray = dataclasses.field(default_factory=lambda: np.array([0.0, 1.0, 0.0]))
    pitch: float = 0.0
    armature: float | Sequence[float] = 0.0
    damping: float | Sequence[float] = 0.0
    friction: float | Sequence[float] = 0.0
    stiffness: float | Sequence[float] = 0.0
    rest: float | Sequence[float] | None = None
    lower: float | Sequence[float] = -np.inf
    upper: float | Sequence[float] = np.inf
    effort: float | Sequence[float] = np.inf
    velocity: float | Sequence[float] = np.inf
    mimic: tuple[str, float, float] | None = None


@dataclasses.dataclass(frozen=True)
class FrameDescription:
    """A named frame fixed to a link, beside those the links themselves give (a sensor, a tool point)."""

    name: str
    link: str
    rotation: np.ndarray = dataclasses.field(default_factory=lambda: np.eye(3))
    position: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(3))


@dataclasses.dataclass(frozen=True)
class RobotDescription:
    """A whole robot: a tree of links joined by joints, in the model file's order."""

    name: str
    links: tuple[LinkDescription, ...]
    joints: tuple[JointDescription, ...]
    frames: tuple[FrameDescription, ...] = ()
    source: str = "<code>"


def abbreviated(items: Sequence[str], limit: int = 10) -> str:
    """The items with commas between them; only the first ten of a long list."""
    text = ", ".join(items[:limit])
    return text if len(items) <= limit else f"{text} and {len(items) - limit} more"
