"""Spatial inertias in three 3x3 blocks, and the two moves the Riccati sweep makes with them.

A spatial inertia is [[rotation, coupling], [coupling.T, translation]]: it maps a spatial acceleration (w', v') at a
point to the spatial force (moment, force) about that point. For a rigid body: J about the point, m skew(c), m I.
Whatever leads (links) broadcasts, as in `ops`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from jaxsoa.spatial import ops
from jaxsoa.spatial.ops import Matrix, Vector


class SpatialInertia(NamedTuple):
    rotation: Matrix
    coupling: Matrix
    translation: Matrix

    def times(self, w: Vector, v: Vector | None) -> tuple[Vector, Vector]:
        """Inertia times a motion vector (w, v); v may be None for zero."""
        moment, force = ops.matvec(self.rotation, w), ops.matvec_t(self.coupling, w)
        if v is None:
            return moment, force
        return moment + ops.matvec(self.coupling, v), force + ops.matvec(self.translation, v)

    def minus_outer(self, uw: Vector, uv: Vector, gw: Vector, gv: Vector) -> SpatialInertia:
        """P - u g^T: the measurement update P - P H* D^-1 H P, with u = P H* and g = u / D."""
        return SpatialInertia(
            self.rotation - ops.outer(uw, gw),
            self.coupling - ops.outer(uw, gv),
            self.translation - ops.outer(uv, gv),
        )

    def shifted(self, offset: Vector) -> SpatialInertia:
        """phi P phi*: the inertia seen at a point from which the present one lies at `offset`."""
        coupling = self.coupling + ops.cross_columns(offset, self.translation)
        # offset~ coupling^T and (offset~ coupling'^T)^T
        turned = ops.transpose(ops.cross_rows(offset, self.coupling)) + ops.cross_rows(offset, coupling)
        return SpatialInertia(self.rotation + turned, coupling, self.translation)

    def plus_rigid_body(self, body: RigidInertia) -> SpatialInertia:
        return SpatialInertia(
            self.rotation + body.rotation,
            self.coupling + ops.skew(body.first_moment),
            self.translation + ops.identity_times(body.mass),
        )

    def balanced(self) -> SpatialInertia:
        """The same, exactly symmetric.

        The Riccati recursion does not damp what rounding leaves of an antisymmetric part: carried along, it would cost
        a chain of 1,000 links two digits.
        """
        return SpatialInertia(ops.symmetric(self.rotation), self.coupling, ops.symmetric(self.translation))

    def matrix(self):
        """The 6x6 matrix."""
        join = ops.library(self.rotation).concatenate
        top = join([self.rotation, self.coupling], axis=-1)
        return join([top, join([ops.transpose(self.coupling), self.translation], axis=-1)], axis=-2)

    @staticmethod
    def from_matrix(m) -> SpatialInertia:
        return SpatialInertia(m[..., :3, :3], m[..., :3, 3:], m[..., 3:, 3:])


class RigidInertia(NamedTuple):
    """A rigid body's inertia about the link origin, world axes: J, m c and m."""

    rotation: Matrix
    first_moment: Vector
    mass: Any

    def spatial(self) -> SpatialInertia:
        return SpatialInertia(self.rotation, ops.skew(self.first_moment), ops.identity_times(self.mass))

    def times(self, w: Vector, v: Vector | None) -> tuple[Vector, Vector]:
        """Inertia times a motion vector: (J w + m c x v, m v - m c x w); v may be None for zero."""
        moment, force = ops.matvec(self.rotation, w), ops.cross(w, self.first_moment)
        if v is None:
            return moment, force
        return moment + ops.cross(self.first_moment, v), force + ops.scale(self.mass, v)

    def plus(self, other: RigidInertia) -> RigidInertia:
        return RigidInertia(*(a + b for a, b in zip(self, other, strict=True)))

    def shifted(self, r: Vector) -> RigidInertia:
        """phi M phi*: about the point from which the present one lies at r."""
        s = self.first_moment + ops.scale(self.mass / 2, r)
        J = self.rotation + ops.identity_times(2 * ops.dot(r, s)) - ops.outer(s, r) - ops.outer(r, s)
        return RigidInertia(J, self.first_moment + ops.scale(self.mass, r), self.mass)

    def gyroscopic(self, w: Vector) -> tuple[Vector, Vector]:
        """The bias force b(k) for inertial-frame accelerations: (w x J w, w x (w x m c)) (JPL 88-11, 2.31)."""
        return ops.cross(w, ops.matvec(self.rotation, w)), ops.cross(w, ops.cross(w, self.first_moment))


def rigid_inertia(R, mass, com, inertia) -> RigidInertia:
    """World-axes inertia about the link origin of a link with rotation R (inertia given about its centre of mass)."""
    c = ops.matvec(R, com)
    J = ops.matmul_t(ops.matmul(R, inertia), R)
    J = J + ops.identity_times(mass * ops.dot(c, c)) - ops.outer(ops.scale(mass, c), c)
    return RigidInertia(J, ops.scale(mass, c), mass)
