"""Coordinates of one kind of free number each: from a candidate's leaf to coordinates about it, and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxsoa.identify._pseudo_inertia import (
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
SCENE = {"contact_friction": "friction", "restitution": "restitution", "compliance": "compliance"}
"""Blocks that are leaves of the scene of contacts, and their names there."""

CHOLESKY = {"inertial": 4, "inertia": 3}
"""Blocks of log-Cholesky coordinates, and the size of the matrix behind them."""


class Candidate(NamedTuple):
    """A model, the torque offsets that come with it, and what it touches (a `contact.Scene`) if that matters."""

    robot: Multibody
    offset: Float[Array, " nv"]
    scene: Any = None

    def leaf(self, name: str) -> Array:
        """A leaf of the model or of the scene, or the offset."""
        if name in SCENE:
            return getattr(self.scene, SCENE[name])
        return self.offset if name == "offset" else getattr(self.robot, name)

    def with_leaves(self, leaves: dict[str, Array]) -> Candidate:
        """The same with these leaves in their places."""
        own = {name: x for name, x in leaves.items() if name not in SCENE and name != "offset"}
        touched = {SCENE[name]: x for name, x in leaves.items() if name in SCENE}
        robot = self.robot.replace(**own) if own else self.robot
        scene = self.scene.replace(**touched) if touched else self.scene
        return Candidate(robot, leaves.get("offset", self.offset), scene)


class Block(NamedTuple):
    """Free numbers of one kind. `shape` is that of the coordinates of all rows; `rows` says what a row belongs to."""

    shape: tuple[int, ...]
    rows: str  # "link", "dof", "frame" or "" for none
    leaves: tuple[str, ...]
    decode: Callable[[Array], tuple[Array, ...]]  # coordinates to leaves
    encode: Callable[[Candidate], Array]
    elementwise: bool = True  # each coordinate makes one number of the leaf, and not a row of them


# --- blocks -----------------------------------------------------------------------------------------------------------


def _additive(prior: Candidate, leaf: str, rows: str) -> Block:
    start = prior.leaf(leaf)
    return Block(start.shape, rows, (leaf,), lambda t: (start + t,), lambda c: c.leaf(leaf) - start)


def _logarithmic(prior: Candidate, leaf: str, rows: str) -> Block:
    start = prior.leaf(leaf)
    if leaf in (*_MAY_VANISH, *SCENE):
        start = jnp.where(start > 0, start, POSITIVE_START)
    elif bool(np.any(np.asarray(start) <= 0)):
        raise ValueError(f"{leaf} of {prior.robot.name!r} must be positive to be a free parameter, it is {start}.")

    def encode(candidate: Candidate) -> Array:
        ratio = candidate.leaf(leaf) / start
        return jnp.log(jnp.maximum(ratio, 1e-12))  # zero itself is infinitely far away

    return Block(start.shape, rows, (leaf,), lambda t: (start * jnp.exp(t),), encode)


def _fraction(prior: Candidate, leaf: str, rows: str) -> Block:
    """Numbers between zero and one, by their logits; one that is zero or one starts just inside."""
    start = jnp.clip(prior.leaf(leaf), POSITIVE_START, 1 - POSITIVE_START)
    at = jax.scipy.special.logit(start)

    def encode(candidate: Candidate) -> Array:
        return jax.scipy.special.logit(jnp.clip(candidate.leaf(leaf), 1e-12, 1 - 1e-12)) - at

    return Block(start.shape, rows, (leaf,), lambda t: (jax.scipy.special.expit(at + t),), encode)


def _rest(prior: Candidate, leaf: str, rows: str) -> Block:
    """The springs' rest configuration, along tangents of it."""
    robot = prior.robot
    start = robot.rest
    return Block(
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


def _direction(prior: Candidate, leaf: str, rows: str) -> Block:
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

    return Block((*start.shape[:-1], 2), rows, (leaf,), decode, encode, elementwise=False)


def _rotation(prior: Candidate, leaf: str, rows: str) -> Block:
    start = getattr(prior.robot, leaf)
    flat = start.reshape(-1, 3, 3)

    def turn(R: Array, w: Array) -> Array:
        return R @ rotation.from_quaternion(rotation.exponential(w))

    def turned_by(R: Array, other: Array) -> Array:
        return rotation.logarithm(rotation.to_quaternion(R.T @ other))

    return Block(
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


def _inertial(prior: Candidate, name: str, rows: str) -> Block:
    P = link_pseudo_inertias(prior.robot)
    factors = _factors(P)
    return Block(
        (prior.robot.n_links, 10),
        rows,
        ("mass", "com", "inertia"),
        lambda t: from_pseudo_inertia(_from_coordinates(factors, t)),
        lambda c: jax.vmap(log_cholesky)(link_pseudo_inertias(c.robot), P),
        elementwise=False,
    )


def _rotational(prior: Candidate, name: str, rows: str) -> Block:
    S = density_moment(prior.robot.inertia)
    factors = _factors(S)
    return Block(
        (prior.robot.n_links, 6),
        rows,
        ("inertia",),
        lambda t: (inertia_of_moment(_from_coordinates(factors, t)),),
        lambda c: jax.vmap(log_cholesky)(density_moment(c.robot.inertia), S),
        elementwise=False,
    )


BLOCK_MAKERS: dict[str, tuple[Callable[[Candidate, str, str], Block], str]] = {
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
    "contact_friction": (_logarithmic, ""),
    "restitution": (_fraction, ""),
    "compliance": (_logarithmic, ""),
}
