"""Which numbers of a model are free, in coordinates whose every value is a physical model.

The coordinates theta (one flat vector) are zero at the a-priori model, so that distance from it is |theta|:

| block | coordinates per row | meaning |
| --- | --- | --- |
| inertial | 10 per link | log-Cholesky of the pseudo-inertia: mass, com and inertia together |
| inertia | 6 per link | log-Cholesky of the second moment about the centre of mass; mass and com stay |
| mass, damping, friction, armature, stiffness | 1 per link or degree of freedom | logarithm of the ratio |
| friction_velocity | 1 | the same |
| axis, axis2 | 2 per joint | tangent directions, radians |
| gravity_direction | 2 | the same; the magnitude stays |
| joint_rotation, base_rotation, frame_rotation | 3 | rotation vector in the frame's own axes |
| contact_friction, compliance | as the scene's leaf | logarithm of the ratio |
| restitution | as the scene's leaf | its logit, less that at the start |
| com, joint_position, pitch, gravity, base_position, frame_position, rest, offset | as the leaf | the difference |

`offset` is a constant torque per degree of freedom: no leaf of the model, but what a sensor adds. Damping, friction,
armature, stiffness and what a scene lacks start at `POSITIVE_START`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxsoa.identify._pseudo_inertia import consistency
from jaxsoa.identify.blocks import BLOCK_MAKERS, CHOLESKY, SCALED, SCENE, Block, Candidate
from jaxsoa.model.multibody import Multibody

Free = str | Sequence[str] | Mapping[str, Any] | Callable[[Any], Any]


BLOCKS = tuple(BLOCK_MAKERS)
"""What can be free, by name."""

_LINEAR = {*CHOLESKY, *SCALED, "com", "offset", "gravity", "gravity_direction"}
_COLUMNS = {3: "xyz", 2: "12"}


# --- the choice -------------------------------------------------------------------------------------------------------


def chosen(free: Free) -> dict[str, Any]:
    """The user's choice as block name to selection (None for everything).

    `free` is a name, a sequence of names, a mapping from names to selections, or a function of a model that returns
    the leaves (as for `equinox.tree_at`): `lambda robot: (robot.mass, robot.damping)`.
    """
    if callable(free):
        picked = free(SimpleNamespace(**{name: name for name in BLOCKS}))
        free = (picked,) if isinstance(picked, str) else tuple(picked)
    if isinstance(free, str):
        free = (free,)
    choice = dict(free) if isinstance(free, Mapping) else dict.fromkeys(free)
    for name in choice:
        if name not in BLOCK_MAKERS:
            raise ValueError(f"{name!r} cannot be a free parameter; choose among {', '.join(BLOCKS)}.")
    if not choice:
        raise ValueError("No parameter is free: name at least one block.")
    for both in (("inertial", "mass"), ("inertial", "com"), ("inertial", "inertia"), ("gravity", "gravity_direction")):
        if all(name in choice for name in both):
            raise ValueError(f"{both[0]!r} and {both[1]!r} move the same leaves; choose one of them.")
    return choice


def _row_names(robot: Multibody, rows: str) -> list[str]:
    if rows == "dof":
        joints = [robot.joint_names[k] for k in robot.topology.dof_link]
        return [f"{j}.{joints[:k].count(j)}" if joints.count(j) > 1 else j for k, j in enumerate(joints)]
    return list({"link": robot.link_names, "frame": robot.frame_names, "": ("",)}[rows])


def _mask(robot: Multibody, name: str, block: Block, selection: Any) -> np.ndarray:
    """Which coordinates of a block are free: from None, names of links or joints, or booleans."""
    mask = np.zeros(block.shape, bool)
    if selection is None:
        return ~mask
    names = [selection] if isinstance(selection, str) else selection
    if not isinstance(names, np.ndarray | jax.Array) and all(isinstance(n, str) for n in names):
        if not block.rows:
            raise ValueError(f"{name!r} has no rows to select by name; give None or booleans of shape {block.shape}.")
        if block.rows == "dof":
            row_of = [robot.joint_names[k] for k in robot.topology.dof_link]
        else:
            row_of = _row_names(robot, block.rows)
        known = set(row_of)
        if block.rows == "link":  # a joint and the link it moves are one row
            joint_row = dict(zip(robot.joint_names, robot.link_names, strict=True))
            names = [joint_row.get(n, n) for n in names]
        for n in names:
            if n not in known:
                raise ValueError(f"{name!r}: robot {robot.name!r} has no {n!r}; it has {', '.join(row_of)}.")
        mask[[k for k, n in enumerate(row_of) if n in names]] = True
        return mask
    booleans = np.asarray(names)
    if booleans.dtype != bool or booleans.shape not in (block.shape, block.shape[:1]):
        raise ValueError(
            f"The selection of {name!r} must be names or booleans of shape {block.shape} or {block.shape[:1]}, "
            f"got {booleans.dtype} of shape {booleans.shape}."
        )
    if name in ("inertial", "inertia") and booleans.shape == block.shape:
        raise ValueError(f"{name!r} is chosen link by link: give names or booleans of shape {block.shape[:1]}.")
    return np.broadcast_to(booleans.reshape(booleans.shape + (1,) * (mask.ndim - booleans.ndim)), block.shape).copy()


@dataclasses.dataclass(frozen=True, eq=False)
class Parameters:
    """Coordinates of the free numbers of a model about `prior`; see the module for what they are."""

    prior: Candidate
    blocks: dict[str, Block]
    masks: dict[str, np.ndarray]

    @staticmethod
    def of(robot: Multibody, free: Free, offset: Array | None = None, scene: Any = None) -> Parameters:
        """The free parameters of a robot (and a scene); `free` as in `chosen`. They are zero at what is given."""
        offset = jnp.zeros(robot.nv, robot.dtype) if offset is None else robot.check_v(offset, "offset")
        prior, blocks, masks = Candidate(robot, offset, scene), {}, {}
        for name, selection in chosen(free).items():
            if name in SCENE and scene is None:
                raise ValueError(f"{name!r} is a number of a contact.Scene: give one as `contact`.")
            make, rows = BLOCK_MAKERS[name]
            blocks[name] = make(prior, name, rows)
            masks[name] = _mask(robot, name, blocks[name], selection)
            if name in ("inertial", "inertia"):
                _require_physical(robot, masks[name].any(axis=1))
        return Parameters(prior, blocks, masks)

    @property
    def size(self) -> int:
        """How many numbers are free."""
        return sum(int(mask.sum()) for mask in self.masks.values())

    @property
    def slices(self) -> dict[str, slice]:
        """Where each block stands in theta."""
        ends = np.cumsum([0, *(int(mask.sum()) for mask in self.masks.values())])
        return {name: slice(int(a), int(b)) for name, a, b in zip(self.masks, ends[:-1], ends[1:], strict=True)}

    @property
    def names(self) -> list[str]:
        """One name per coordinate."""
        names = []
        for name, mask in self.masks.items():
            rows = _row_names(self.prior.robot, self.blocks[name].rows)
            for index in np.argwhere(mask):
                row = rows[index[0]] if self.blocks[name].rows else ""
                column = index[-1] if mask.ndim > (1 if self.blocks[name].rows else 0) else None
                letters = _COLUMNS.get(mask.shape[-1], "0123456789") if mask.ndim else ""
                names.append(name + (f"[{row}]" if row else "") + (f".{letters[column]}" if column is not None else ""))
        return names

    @property
    def linear(self) -> bool:
        """Whether torques are linear in what is free (or in its products): inertias, friction, offsets and gravity."""
        return set(self.blocks) <= _LINEAR

    def decode(self, theta: Float[Array, " p"]) -> Candidate:
        """The model at theta."""
        theta = jnp.asarray(theta)
        if theta.shape != (self.size,):
            raise ValueError(f"theta must have shape ({self.size},), got {theta.shape}.")
        leaves: dict[str, Array] = {}
        for name, where in self.slices.items():
            block, mask = self.blocks[name], self.masks[name]
            flat = jnp.zeros(mask.size, theta.dtype).at[np.flatnonzero(mask)].set(theta[where])
            coordinates = flat.reshape(mask.shape)
            # A row that is not free at all keeps its value to the last bit (and a friction of zero stays zero).
            free = np.asarray(mask) if block.elementwise else mask.any(axis=-1)
            for leaf, value in zip(block.leaves, block.decode(coordinates), strict=True):
                old = self.prior.leaf(leaf)
                pick = free.reshape(free.shape + (1,) * (value.ndim - free.ndim))
                leaves[leaf] = jnp.where(pick, value, old)
        return self.prior.with_leaves(leaves)

    @property
    def bounded(self) -> np.ndarray:
        """Which coordinates are logarithms of something that must stay positive (p,)."""
        marks = np.zeros(self.size, bool)
        for name, where in self.slices.items():
            if name in SCALED:
                marks[where] = True
            elif name in CHOLESKY:
                size = CHOLESKY[name]
                diagonal = np.arange(size * (size + 1) // 2) < size
                marks[where] = np.tile(diagonal, (where.stop - where.start) // len(diagonal))
        return marks

    def encode(self, robot: Multibody, offset: Array | None = None, scene: Any = None) -> Float[Array, " p"]:
        """theta of a model that differs from the prior in free numbers only: the inverse of `decode`."""
        offset = self.prior.offset if offset is None else robot.check_v(offset, "offset")
        candidate = Candidate(robot, offset, self.prior.scene if scene is None else scene)
        parts = [(block.encode(candidate).reshape(-1), self.masks[name]) for name, block in self.blocks.items()]
        return jnp.concatenate([part[np.flatnonzero(mask)] for part, mask in parts])


def _require_physical(robot: Multibody, links: np.ndarray) -> None:
    margin = np.asarray(consistency(robot))
    bad = [robot.link_names[k] for k in np.flatnonzero(links & ~(margin > 0))]
    if bad:
        raise ValueError(
            f"Links {', '.join(bad)} of {robot.name!r} have no positive definite pseudo-inertia (massless, a point, a "
            "line, or unphysical), so they have no log-Cholesky coordinates: use soa.identify.make_physical(robot)."
        )
