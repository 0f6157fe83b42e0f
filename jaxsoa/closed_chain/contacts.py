"""How an arm holds the object: which relative motions a contact leaves free (JPL 88-11, Part II, Appendix A).

A contact carries `axes` (k, 6): rows of H(0), the directions (angular, linear) of the object's velocity relative to the
arm's tip that are free, in the object's axes, at the contact point:  V-(0) = V+(0) + H*(0) W(0)  (a.6).
What is not free is held from both sides; whether a one-sided contact really could is reported by `friction_report`.
"""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxsoa.closed_chain.algebra import is_concrete
from jaxsoa.indexing import owned
from jaxsoa.model.description import ModelError
from jaxsoa.spatial import ops


class Contact(eqx.Module):
    """Free axes (k, 6) in the object's frame; for one-sided contacts the normal into the object and what friction
    can hold: `friction` (Coulomb coefficient) and `torsion` (greatest moment about the normal per normal force, m).
    """

    axes: Float[Array, "k 6"]
    normal: Float[Array, "3"] | None = None
    friction: Float[Array, ""] | None = None
    torsion: Float[Array, ""] | None = None
    slides: bool = eqx.field(static=True, default=False)
    turns: int = eqx.field(static=True, default=0)  # independent rotations among the axes

    @property
    def freedom(self) -> int:
        """Number of free axes."""
        return self.axes.shape[0]

    @property
    def name(self) -> str:
        """What messages call it."""
        return type(self).__name__


def _unit(name: str, vector) -> Array:
    vector = jnp.asarray(owned(vector), float)
    if vector.shape != (3,):
        raise ModelError(f"{name} must be a vector of three numbers, got shape {vector.shape}.")
    if is_concrete(vector) and not (np.isfinite(vector).all() and np.any(np.asarray(vector) != 0)):
        raise ModelError(f"{name} must be finite and not zero, got {np.asarray(vector).tolist()}.")
    return vector / jnp.sqrt(ops.dot(vector, vector))


def _coefficient(name: str, value) -> Array | None:
    if value is None:
        return None
    value = jnp.asarray(owned(value), float)
    if value.shape != () or (is_concrete(value) and not float(value) >= 0):
        raise ModelError(f"{name} must be one number that is not negative, got {value}.")
    return value


def tangents(normal: Float[Array, "3"]) -> Float[Array, "2 3"]:
    """Two unit vectors that span the plane normal to a unit vector."""
    least = jnp.eye(3, dtype=normal.dtype)[jnp.argmin(jnp.abs(normal))]
    first = ops.cross(normal, least)
    first = first / jnp.sqrt(ops.dot(first, first))
    return jnp.stack([first, ops.cross(normal, first)])


def _turning(axes: Array) -> Array:
    """Rotations about the rows of `axes`, as spatial directions."""
    return jnp.concatenate([axes, jnp.zeros_like(axes)], axis=1)


def _independent(rows: np.ndarray) -> bool:
    return bool(np.isfinite(rows).all()) and np.linalg.matrix_rank(rows) == len(rows)


class Rigid(Contact):
    """Nothing is free: the grasp of the report's main part."""

    def __init__(self):
        self.axes = jnp.zeros((0, 6))


class Hinge(Contact):
    """One free rotation, about `axis` (object axes): a revolute pair, or an edge contact with friction (case 1)."""

    def __init__(self, axis, *, normal=None, friction=None):
        self.axes, self.turns = _turning(_unit("The axis of a hinge contact", axis)[None]), 1
        self.normal = None if normal is None else _unit("The normal of a contact", normal)
        self.friction = _coefficient("friction", friction)


class SoftFinger(Contact):
    """Free to roll about any axis in the tangent plane, held about `normal` by torsional friction (case 3)."""

    def __init__(self, normal, *, friction=None, torsion=None):
        self.normal = _unit("The normal of a soft finger", normal)
        self.axes, self.turns = _turning(tangents(self.normal)), 2
        self.friction = _coefficient("friction", friction)
        self.torsion = _coefficient("torsion", torsion)


class Point(Contact):
    """All rotations free: a ball in its socket, or a point contact with friction (case 2)."""

    def __init__(self, *, normal=None, friction=None):
        self.axes, self.turns = jnp.eye(3, 6), 3
        self.normal = None if normal is None else _unit("The normal of a contact", normal)
        self.friction = _coefficient("friction", friction)


class Custom(Contact):
    """Any free axes: (k, 3) rotation axes or (k, 6) spatial directions (angular, linear), object frame.

    With linear parts the arm's tip slides on the object; forces then act where the tip is.
    """

    def __init__(self, axes, *, normal=None, friction=None, torsion=None):
        axes = jnp.asarray(owned(axes), float)
        if axes.ndim != 2 or axes.shape[1] not in (3, 6):
            raise ModelError(
                f"The axes of a custom contact must be (k, 3) rotations or (k, 6) spatial directions, got {axes.shape}."
            )
        if is_concrete(axes) and not _independent(np.asarray(axes)):
            raise ModelError(
                f"The {axes.shape[0]} axes of a custom contact must be finite and linearly independent, "
                f"got {np.asarray(axes).tolist()}."
            )
        self.slides = axes.shape[1] == 6
        self.axes = axes if self.slides else _turning(axes)
        known = is_concrete(axes)
        self.turns = int(np.linalg.matrix_rank(np.asarray(axes)[:, :3])) if known else min(3, axes.shape[0])
        self.normal = None if normal is None else _unit("The normal of a contact", normal)
        self.friction = _coefficient("friction", friction)
        self.torsion = _coefficient("torsion", torsion)
