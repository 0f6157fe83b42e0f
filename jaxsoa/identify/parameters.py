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
| com, joint_position, pitch, gravity, base_position, frame_position, rest, offset | as the leaf | the difference |

`offset` is a constant torque per degree of freedom: no leaf of the model, but what a sensor adds. Damping, friction,
armature and stiffness that the a-priori model lacks start at `POSITIVE_START`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxsoa.identify._pseudo_inertia import (
    consistency,
    coordinate_factor,
    density_moment,
    from_pseudo_inertia,
    inertia_of_moment,
    link_pseudo_inertias,
    log_cholesky,
)
from jaxsoa.model.multibody import Multibody
from jaxsoa.spatial import rotation

POSITIVE_START = 1e-2
"""Where damping, friction and armature start if the a-priori model has none (in their units)."""

_MAY_VANISH = ("damping", "friction", "armature", "stiffness")
SCALED = ("mass", *_MAY_VANISH)
"""Blocks of positive numbers in which torques are linear."""
CHOLESKY = {"inertial": 4, "inertia": 3}
"""Blocks of log-Cholesky coordinates, and the size of the matrix behind them."""

Free = str | Sequence[str] | Mapping[str, Any] | Callable[[Any], Any]


class Candidate(NamedTuple):
    """A model and the torque offsets that come with it."""

    robot: Multibody
    offset: Float[Array, " nv"]


class _Block(NamedTuple):
    """Free numbers of one kind. `shape` is that of the coordinates of all rows; `rows` says what a row belongs to."""

    shape: tuple[int, ...]
    rows: str  # "link", "dof", "frame" or "" for none
    leaves: tuple[str, ...]
    decode: Callable[[Array], tuple[Array, ...]]  # coordinates to leaves
    encode: Callable[[Candidate], Array]
    elementwise: bool = True  # each coordinate makes one number of the leaf, and not a row of them


# --- blocks -----------------------------------------------------------------------------------------------------------


def _additive(prior: Candidate, leaf: str, rows: str) -> _Block:
    def value(candidate: Candidate) -> Array:
        return candidate.offset if leaf == "offset" else getattr(candidate.robot, leaf)

    start = value(prior)
    return _Block(start.shape, rows, (leaf,), lambda t: (start + t,), lambda c: value(c) - start)


def _logarithmic(prior: Candidate, leaf: str, rows: str) -> _Block:
    start = getattr(prior.robot, leaf)
    if leaf in _MAY_VANISH:
        start = jnp.where(start > 0, start, POSITIVE_START)
    elif bool(np.any(np.asarray(start) <= 0)):
        raise ValueError(f"{leaf} of {prior.robot.name!r} must be positive to be a free parameter, it is {start}.")

    def encode(candidate: Candidate) -> Array:
        ratio = getattr(candidate.robot, leaf) / start
        return jnp.log(jnp.maximum(ratio, 1e-12))  # zero itself is infinitely far away

    return _Block(start.shape, rows, (leaf,), lambda t: (start * jnp.exp(t),), encode)


def _rest(prior: Candidate, leaf: str, rows: str) -> _Block:
    """The springs' rest configuration, along tangents of it."""
    robot = prior.robot
    start = robot.rest
    return _Block(
        (robot.nv,),
        rows,
        ("rest",),
        lambda t: (robot.integrate(start, t),),
        lambda c: robot.difference(start, c.robot.rest),
        elementwise=False,
    )


def _tangents(direction: np.ndarray) -> np.ndarray:
    """Two unit vectors across each direction: (..., 3) to (..., 3, 2)."""
    helper = np.where(np.abs(direction[..., :1]) < 0.9, np.eye(3)[0], np.eye(3)[1])
    first = np.cross(direction, helper)
    first /= np.linalg.norm(first, axis=-1, keepdims=True)
    return np.stack([first, np.cross(direction, first)], axis=-1)


def _direction(prior: Candidate, leaf: str, rows: str) -> _Block:
    start = getattr(prior.robot, leaf)
    length = jnp.linalg.norm(start, axis=-1, keepdims=True)
    if bool(np.any(np.asarray(length) == 0)):
        raise ValueError(f"{leaf} of {prior.robot.name!r} has no direction: {start}.")
    unit = start / length
    across = jnp.asarray(_tangents(np.asarray(unit)))

    def decode(t: Array) -> tuple[Array]:
        moved = unit + jnp.einsum("...ij,...j->...i", across, t)
        return (length * moved / jnp.sqrt(jnp.sum(moved * moved, axis=-1, keepdims=True)),)

    def encode(candidate: Candidate) -> Array:
        x = getattr(candidate.robot, leaf)
        along = jnp.sum(x * unit, axis=-1, keepdims=True)
        return jnp.einsum("...ij,...i->...j", across, x / along)

    return _Block((*start.shape[:-1], 2), rows, (leaf,), decode, encode, elementwise=False)


def _rotation(prior: Candidate, leaf: str, rows: str) -> _Block:
    start = getattr(prior.robot, leaf)
    flat = start.reshape(-1, 3, 3)

    def turn(R: Array, w: Array) -> Array:
        return R @ rotation.from_quaternion(rotation.exponential(w))

    def turned_by(R: Array, other: Array) -> Array:
        return rotation.logarithm(rotation.to_quaternion(R.T @ other))

    return _Block(
        (*start.shape[:-2], 3),
        rows,
        (leaf,),
        lambda t: (jax.vmap(turn)(flat, t.reshape(-1, 3)).reshape(start.shape),),
        lambda c: jax.vmap(turned_by)(flat, getattr(c.robot, leaf).reshape(-1, 3, 3)).reshape(*start.shape[:-2], 3),
        elementwise=False,
    )


def _from_coordinates(factors: np.ndarray, t: Array) -> Array:
    """Matrices with log-Cholesky coordinates t (n, c) about those with the given Cholesky factors."""

    def one(L, x):
        L = L @ coordinate_factor(x, L.shape[-1])
        return L @ L.T

    return jax.vmap(one)(jnp.asarray(factors), t)


def _factors(P: Array) -> np.ndarray:
    """Cholesky factors, once and on the host; of the identity where there are none (the link cannot be free then)."""
    definite = np.linalg.eigvalsh(P)[:, 0] > 0
    return np.linalg.cholesky(np.where(definite[:, None, None], P, np.eye(P.shape[-1])))


def _inertial(prior: Candidate, name: str, rows: str) -> _Block:
    P = link_pseudo_inertias(prior.robot)
    factors = _factors(P)
    return _Block(
        (prior.robot.n_links, 10),
        rows,
        ("mass", "com", "inertia"),
        lambda t: from_pseudo_inertia(_from_coordinates(factors, t)),
        lambda c: jax.vmap(log_cholesky)(link_pseudo_inertias(c.robot), P),
        elementwise=False,
    )


def _rotational(prior: Candidate, name: str, rows: str) -> _Block:
    S = density_moment(prior.robot.inertia)
    factors = _factors(S)
    return _Block(
        (prior.robot.n_links, 6),
        rows,
        ("inertia",),
        lambda t: (inertia_of_moment(_from_coordinates(factors, t)),),
        lambda c: jax.vmap(log_cholesky)(density_moment(c.robot.inertia), S),
        elementwise=False,
    )


_BLOCKS: dict[str, tuple[Callable[[Candidate, str, str], _Block], str]] = {
    "inertial": (_inertial, "link"),
    "inertia": (_rotational, "link"),
    "mass": (_logarithmic, "link"),
    "com": (_additive, "link"),
    "damping": (_logarithmic, "dof"),
    "friction": (_logarithmic, "dof"),
    "armature": (_logarithmic, "dof"),
    "stiffness": (_logarithmic, "dof"),
    "rest": (_rest, "dof"),
    "offset": (_additive, "dof"),
    "friction_velocity": (_logarithmic, ""),
    "axis": (_direction, "link"),
    "axis2": (_direction, "link"),
    "pitch": (_additive, "link"),
    "joint_position": (_additive, "link"),
    "joint_rotation": (_rotation, "link"),
    "gravity": (_additive, ""),
    "gravity_direction": (lambda prior, name, rows: _direction(prior, "gravity", rows), ""),
    "base_rotation": (_rotation, ""),
    "base_position": (_additive, ""),
    "frame_rotation": (_rotation, "frame"),
    "frame_position": (_additive, "frame"),
}

BLOCKS = tuple(_BLOCKS)
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
        if name not in _BLOCKS:
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


def _mask(robot: Multibody, name: str, block: _Block, selection: Any) -> np.ndarray:
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
    blocks: dict[str, _Block]
    masks: dict[str, np.ndarray]

    @staticmethod
    def of(robot: Multibody, free: Free, offset: Array | None = None) -> Parameters:
        """The free parameters of a robot; `free` as in `chosen`. They are zero at the robot and `offset`."""
        offset = jnp.zeros(robot.nv, robot.dtype) if offset is None else robot.check_v(offset, "offset")
        prior, blocks, masks = Candidate(robot, offset), {}, {}
        for name, selection in chosen(free).items():
            make, rows = _BLOCKS[name]
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
                old = self.prior.offset if leaf == "offset" else getattr(self.prior.robot, leaf)
                pick = free.reshape(free.shape + (1,) * (value.ndim - free.ndim))
                leaves[leaf] = jnp.where(pick, value, old)
        offset = leaves.pop("offset", self.prior.offset)
        return Candidate(self.prior.robot.replace(**leaves) if leaves else self.prior.robot, offset)

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

    def encode(self, robot: Multibody, offset: Array | None = None) -> Float[Array, " p"]:
        """theta of a model that differs from the prior in free numbers only: the inverse of `decode`."""
        candidate = Candidate(robot, self.prior.offset if offset is None else robot.check_v(offset, "offset"))
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
