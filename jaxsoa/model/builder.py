"""Build a robot in code, link by link, or from stacked arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jaxsoa.model.assemble import assemble
from jaxsoa.model.description import (
    FrameDescription,
    JointDescription,
    LinkDescription,
    ModelError,
    RobotDescription,
)
from jaxsoa.model.multibody import Multibody
from jaxsoa.model.rods import Section, rod_pieces


class Builder:
    """Describe a robot one link at a time, then `build()` it.

    builder = Builder("pendulum")
    builder.link("rod", joint="revolute", axis=(0, 1, 0), mass=1.0, com=(0, 0, -0.5))
    builder.link("bob", joint="revolute", parent="rod", position=(0, 0, -1), axis=(0, 1, 0), mass=0.5)
    builder.frame("tip", link="bob", position=(0, 0, -1))
    robot = builder.build()
    """

    def __init__(self, name: str = "robot", *, root: str = "base"):
        self.name = name
        self.root = root
        self._links: list[LinkDescription] = [LinkDescription(root)]
        self._joints: list[JointDescription] = []
        self._frames: list[FrameDescription] = []

    def link(
        self,
        name: str,
        *,
        joint: str,
        parent: str | None = None,
        joint_name: str | None = None,
        rotation=None,
        position=(0.0, 0.0, 0.0),
        axis=(0.0, 0.0, 1.0),
        axis2=(1.0, 0.0, 0.0),
        pitch: float = 0.0,
        mass: float = 0.0,
        com=(0.0, 0.0, 0.0),
        inertia=None,
        **per_degree,
    ) -> Builder:
        """Add a link on a joint of the given kind.

        `rotation` and `position` place the joint in the parent's frame; `inertia` (3, 3) is about `com`, link axes;
        further keywords are per degree of freedom: armature, damping, friction, stiffness (of a
        spring, whose `rest` is one number per coordinate), lower, upper, effort, velocity.
        """
        inertia = np.zeros((3, 3)) if inertia is None else np.array(inertia, float)
        self._links.append(LinkDescription(name, float(mass), np.array(com, float), inertia))
        rotation = np.eye(3) if rotation is None else np.array(rotation, float)
        self._joints.append(
            JointDescription(
                joint_name or f"{name}_joint",
                joint,
                self.root if parent is None else parent,
                name,
                rotation,
                np.array(position, float),
                np.array(axis, float),
                np.array(axis2, float),
                pitch,
                **per_degree,
            )
        )
        return self

    def rod(
        self,
        name: str,
        *,
        length: float,
        segments: int,
        section: Section,
        E: float,
        G: float,
        density: float,
        damping: float = 0.0,
        axial: bool = False,
        parent: str | None = None,
        rotation=None,
        position=(0.0, 0.0, 0.0),
        tip: str | None = None,
    ) -> Builder:
        """Add an elastic rod along x of its root's frame, which `rotation` and `position` place in the parent's.

        Links are `name1`, ...; `name_root` is welded to the parent; the frame at the end is `name_tip` unless `tip`
        names it. The rest as in `models.rod`; a rod may carry further links and be carried by any.
        """
        pieces = rod_pieces(length, segments, section, E, G, density, damping)
        inner, *links = zip(pieces.mass, pieces.com, pieces.inertia, strict=True)

        def body(piece) -> dict:
            return {"mass": piece[0], "com": (piece[1], 0.0, 0.0), "inertia": np.diag(piece[2])}

        parent, place = self.root if parent is None else parent, (0.0, 0.0, 0.0)
        self.link(f"{name}_root", joint="fixed", parent=parent, rotation=rotation, position=position, **body(inner))
        parent = f"{name}_root"
        for k, (link, x) in enumerate(zip(links, pieces.position, strict=True), start=1):
            place = (x, 0.0, 0.0)
            if axial:
                pull = pieces.stretching
                self.link(
                    f"{name}_slide{k}", joint="prismatic", parent=parent, position=place, axis=(1, 0, 0),
                    stiffness=pull, damping=damping * pull,
                )  # fmt: skip
                parent, place = f"{name}_slide{k}", (0.0, 0.0, 0.0)
            springs = {"stiffness": tuple(pieces.stiffness), "damping": tuple(damping * pieces.stiffness)}
            self.link(f"{name}{k}", joint="spherical", parent=parent, position=place, **springs, **body(link))
            parent = f"{name}{k}"
        return self.frame(tip or f"{name}_tip", link=parent, position=(length / segments / 2, 0.0, 0.0))

    def frame(self, name: str, *, link: str | None = None, rotation=None, position=(0.0, 0.0, 0.0)) -> Builder:
        """Add a named frame fixed to a link (to the root when none is named)."""
        rotation = np.eye(3) if rotation is None else np.array(rotation, float)
        self._frames.append(FrameDescription(name, link or self.root, rotation, np.array(position, float)))
        return self

    def describe(self) -> RobotDescription:
        """What has been added so far, as plain data."""
        return RobotDescription(self.name, tuple(self._links), tuple(self._joints), tuple(self._frames))

    def build(self, *, gravity=(0.0, 0.0, -9.81), validate: str = "warn") -> Multibody:
        """The finished robot. `validate`: "warn" of doubtful inertias, "strict" to refuse them, "off"."""
        return assemble(self.describe(), gravity=gravity, validate=validate)


def from_arrays(
    parents: Sequence[int],
    kinds: Sequence[str] | str,
    *,
    position: np.ndarray,
    axis: np.ndarray,
    mass: np.ndarray,
    com: np.ndarray,
    inertia: np.ndarray,
    rotation: np.ndarray | None = None,
    axis2: np.ndarray | None = None,
    pitch: np.ndarray | None = None,
    names: Sequence[str] | None = None,
    name: str = "robot",
    gravity=(0.0, 0.0, -9.81),
    validate: str = "warn",
) -> Multibody:
    """A `Multibody` from arrays stacked over links: `parents` (-1 for the base) and one row per link elsewhere.

    `kinds` is one joint kind for all or one per link; `inertia` (n, 3, 3) is about the centres of mass.

    >>> zero = np.zeros((1, 3))
    >>> cart = soa.from_arrays(
    ...     [-1], "prismatic", position=zero, axis=[[1.0, 0, 0]], mass=[2.0], com=zero, inertia=np.eye(3)[None]
    ... )
    >>> print(soa.mass_matrix(cart, jnp.zeros(1)))  # kg
    [[2.]]
    """
    n = len(parents)
    kinds = [kinds] * n if isinstance(kinds, str) else list(kinds)
    names = [f"link{k}" for k in range(n)] if names is None else list(names)
    shapes = {"position": (n, 3), "axis": (n, 3), "mass": (n,), "com": (n, 3), "inertia": (n, 3, 3)}
    given = {"position": position, "axis": axis, "mass": mass, "com": com, "inertia": inertia}
    optional = {"rotation": (rotation, (n, 3, 3)), "axis2": (axis2, (n, 3)), "pitch": (pitch, (n,))}
    for key, (value, shape) in optional.items():
        if value is not None:
            given[key], shapes[key] = value, shape
    for key, value in given.items():
        if np.shape(value) != shapes[key]:
            raise ModelError(f"{key} must have shape {shapes[key]} for {n} links, got {np.shape(value)}.")
    if len(kinds) != n or len(names) != n:
        raise ModelError(f"{n} parents need {n} kinds and names, got {len(kinds)} and {len(names)}.")
    builder = Builder(name)
    for k, parent in enumerate(parents):
        if not -1 <= parent < k:
            raise ModelError(f"Links must come after their parents: link {k} ({names[k]!r}) has parent {parent}.")
        rows = {key: np.asarray(value)[k] for key, value in given.items()}
        builder.link(names[k], joint=kinds[k], parent=None if parent < 0 else names[parent], **rows)
    return builder.build(gravity=gravity, validate=validate)
