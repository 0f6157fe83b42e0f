"""Composite quantities for the linearized models, added up tip to base (Algorithm 2, step 2; eq. 3.7-3.8).

Per link, about its origin: the inertia R(k) of everything outboard, the force f(k), and the velocity-dependent
R-ring(k), the sum of the links' matrices B = 2 M-ring of eq. 2.8. B maps a motion H* to

    V x* M H* - M [V, H*] + H* x* M V  =  2 (w x (J - tr J / 2) h + m c x (h x v),  h x p),    p = m v + w x m c

(V = (w, v), H* = (h, .)): it sees only the angular part h of H*. So R-ring is a 3x3 matrix and the momentum p.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from jaxsoa.linearized import spatial_components as sc
from jaxsoa.linearized.spatial_components import Spatial, Vector
from jaxsoa.spatial import ops
from jaxsoa.spatial.inertia import RigidInertia


class Rigid(NamedTuple):
    """Inertia of one rigid body about a point, in components: mass, m c, and J as (xx, xy, xz, yy, yz, zz)."""

    mass: Any
    moment: Vector
    inertia: tuple

    @staticmethod
    def of(body: RigidInertia) -> Rigid:
        return Rigid(body.mass, body.first_moment, ops.upper(body.rotation))

    def full(self) -> RigidInertia:
        return RigidInertia(ops.symmetric(self.inertia), self.moment, self.mass)

    def rotate(self, w: Vector) -> Vector:
        return ops.matvec(ops.symmetric(self.inertia), w)

    def times(self, x: Spatial) -> Spatial:
        w, v = x
        moment = sc.plus(self.rotate(w), sc.cross(self.moment, v))
        return moment, sc.plus(None if v is None else ops.scale(self.mass, v), ops.cross(w, self.moment))

    def gyroscopic(self, w: Vector) -> Spatial:
        """The bias force (w x J w, w x (w x m c)) of JPL 88-11 (2.31)."""
        return ops.cross(w, self.rotate(w)), ops.cross(w, ops.cross(w, self.moment))

    def shifted(self, r: Vector) -> Rigid:
        """phi M phi*: about the point from which the present one lies at r."""
        return Rigid.of(self.full().shifted(r))


class Ring(NamedTuple):
    """A linear map from an angular vector h to a force: (block h, h x force)."""

    block: tuple  # 3x3, rows
    force: Vector

    def times(self, h: Vector) -> Spatial:
        return ops.matvec(self.block, h), ops.cross(h, self.force)

    def transpose_times(self, x: Spatial) -> Vector:
        """The angular vector that the transposed map makes of a motion."""
        return sc.plus(ops.matvec_t(self.block, x[0]), sc.cross(self.force, x[1]))

    def shifted(self, r: Vector) -> Ring:
        """About the point from which the present one lies at r: the moment gains r x (h x force)."""
        d, f = ops.dot(r, self.force), self.force
        block = tuple(
            tuple(self.block[i][j] - f[i] * r[j] + (d if i == j else 0.0) for j in range(3)) for i in range(3)
        )
        return Ring(block, f)


def gyroscopic_ring(body: Rigid, velocity: Spatial) -> Ring:
    """B of one link."""
    w, v = velocity
    xx, xy, xz, yy, yz, zz = body.inertia
    half = (xx + yy + zz) / 2
    reduced = ((xx - half, xy, xz), (xy, yy - half, yz), (xz, yz, zz - half))
    turned = ops.cross_columns(w, reduced)
    # m c x (h x v) = h (m c . v) - v (m c . h)
    c, d = body.moment, ops.dot(body.moment, v)
    block = tuple(
        tuple(2 * (turned[i][j] - v[i] * c[j] + (d if i == j else 0.0)) for j in range(3)) for i in range(3)
    )
    momentum = ops.add(ops.scale(body.mass, v), ops.cross(w, c))
    return Ring(block, ops.scale(2, momentum))


def force_ring(f_ext: Spatial) -> Ring:
    """How an external force differs from one that turns with its link: h -> (h x moment, h x force)."""
    (x, y, z), force = f_ext
    zero = x * 0
    return Ring(((zero, z, -y), (-z, zero, x), (y, -x, zero)), force)


class Composite(NamedTuple):
    """Sums over everything outboard, about one point, in components."""

    body: Rigid
    ring: Ring
    ring_ext: Ring | None

    def shifted(self, r: Vector) -> Composite:
        ext = None if self.ring_ext is None else self.ring_ext.shifted(r)
        return Composite(self.body.shifted(r), self.ring.shifted(r), ext)
