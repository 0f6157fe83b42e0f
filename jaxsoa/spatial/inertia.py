"""Spatial inertias in three 3x3 blocks, and the two moves the Riccati sweep makes with them.

A spatial inertia is [[rotation, coupling], [coupling.T, translation]]: it maps a spatial acceleration (w', v') at a
point to the spatial force (moment, force) about that point. For a rigid body: J about the point, m skew(c), m I.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp

from jaxsoa.spatial import ops
from jaxsoa.spatial.ops import Vector


class SpatialInertia(NamedTuple):
    rotation: Any
    coupling: Any
    translation: Any

    def times(self, w: Vector, v: Vector | None) -> tuple[Vector, Vector]:
        """Inertia times a motion vector (w, v); v may be None for zero."""
        moment, force = ops.matvec(self.rotation, w), ops.matvec_t(self.coupling, w)
        if v is None:
            return moment, force
        return ops.add(moment, ops.matvec(self.coupling, v)), ops.add(force, ops.matvec(self.translation, v))

    def minus_outer(self, uw: Vector, uv: Vector, gw: Vector, gv: Vector) -> SpatialInertia:
        """P - u g^T: the measurement update P - P H* D^-1 H P, with u = P H* and g = u / D."""
        return SpatialInertia(
            ops.add(self.rotation, ops.negative(ops.outer(uw, gw))),
            ops.add(self.coupling, ops.negative(ops.outer(uw, gv))),
            ops.add(self.translation, ops.negative(ops.outer(uv, gv))),
        )

    def shifted(self, offset: Vector) -> SpatialInertia:
        """phi P phi*: the inertia seen at a point from which the present one lies at `offset`."""
        coupling = ops.add(self.coupling, ops.cross_columns(offset, self.translation))
        rotation = ops.add(
            self.rotation,
            ops.transpose(ops.cross_rows(offset, self.coupling)),  # offset~ coupling^T
            ops.cross_rows(offset, coupling),  # (offset~ coupling'^T)^T
        )
        return SpatialInertia(rotation, coupling, self.translation)

    def plus_rigid_body(self, body: RigidInertia) -> SpatialInertia:
        return SpatialInertia(
            ops.add(self.rotation, body.rotation),
            ops.add(self.coupling, ops.skew(body.first_moment)),
            ops.add(self.translation, ops.identity_times(body.mass, body.first_moment)),
        )

    def compact(self) -> tuple:
        """What a sweep carries of the inertia: in components its 21 distinct numbers."""
        return ops.upper(self.rotation), self.coupling, ops.upper(self.translation)

    @staticmethod
    def expanded(compact: tuple) -> SpatialInertia:
        """The inertia of `compact`, exactly symmetric.

        The Riccati recursion does not damp what rounding leaves of an antisymmetric part: carried along, it would cost
        a chain of 1,000 links two digits.
        """
        rotation, coupling, translation = compact
        return SpatialInertia(ops.symmetric(rotation), coupling, ops.symmetric(translation))

    def matrix(self):
        """The 6x6 matrix (packed form only)."""
        top = jnp.concatenate([self.rotation, self.coupling], axis=-1)
        bottom = jnp.concatenate([jnp.swapaxes(self.coupling, -1, -2), self.translation], axis=-1)
        return jnp.concatenate([top, bottom], axis=-2)

    @staticmethod
    def from_matrix(m) -> SpatialInertia:
        return SpatialInertia(m[..., :3, :3], m[..., :3, 3:], m[..., 3:, 3:])


class RigidInertia(NamedTuple):
    """A rigid body's inertia about the link origin, world axes: J, m c and m."""

    rotation: Any
    first_moment: Any
    mass: Any

    def spatial(self) -> SpatialInertia:
        return SpatialInertia(
            self.rotation, ops.skew(self.first_moment), ops.identity_times(self.mass, self.first_moment)
        )

    def times(self, w: Vector, v: Vector | None) -> tuple[Vector, Vector]:
        """Inertia times a motion vector: (J w + m c x v, m v - m c x w); v may be None for zero."""
        if v is None:
            return ops.matvec(self.rotation, w), ops.cross(w, self.first_moment)
        moment = ops.add(ops.matvec(self.rotation, w), ops.cross(self.first_moment, v))
        force = ops.add(ops.scale(self.mass, v), ops.cross(w, self.first_moment))
        return moment, force

    def plus(self, other: RigidInertia) -> RigidInertia:
        return RigidInertia(*(ops.add(a, b) for a, b in zip(self, other, strict=True)))

    def shifted(self, r: Vector) -> RigidInertia:
        """phi M phi*: about the point from which the present one lies at r."""
        s = ops.add(self.first_moment, ops.scale(self.mass / 2, r))
        J = ops.add(
            self.rotation,
            ops.identity_times(2 * ops.dot(r, s), r),
            ops.negative(ops.outer(s, r)),
            ops.negative(ops.outer(r, s)),
        )
        return RigidInertia(J, ops.add(self.first_moment, ops.scale(self.mass, r)), self.mass)

    def gyroscopic(self, w: Vector) -> tuple[Vector, Vector]:
        """The bias force b(k) for inertial-frame accelerations: (w x J w, w x (w x m c)) (JPL 88-11, 2.31)."""
        return ops.cross(w, ops.matvec(self.rotation, w)), ops.cross(w, ops.cross(w, self.first_moment))


def rigid_inertia(R, mass, com, inertia) -> RigidInertia:
    """World-axes inertia about the link origin of a link with rotation R (inertia given about its centre of mass)."""
    c = ops.matvec(R, com)
    J = ops.matmul_t(ops.matmul(R, inertia), R)
    J = ops.add(J, ops.identity_times(mass * ops.dot(c, c), c), ops.negative(ops.outer(ops.scale(mass, c), c)))
    return RigidInertia(J, ops.scale(mass, c), mass)
