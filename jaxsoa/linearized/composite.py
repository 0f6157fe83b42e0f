"""Composite quantities for the linearized models, added up tip to base (Algorithm 2, step 2; eq. 3.7-3.8).

Per link, about its origin: the inertia R(k) of everything outboard, the force f(k), and the velocity-dependent
R-ring(k), the sum of the links' matrices B = 2 M-ring of eq. 2.8. B maps a motion H* to

    V x* M H* - M [V, H*] + H* x* M V  =  2 (w x (J - tr J / 2) h + m c x (h x v),  h x p),    p = m v + w x m c

(V = (w, v), H* = (h, .)): it sees only the angular part h of H*. So R-ring is a 3x3 matrix and the momentum p.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from jaxsoa.spatial import ops, pairs
from jaxsoa.spatial.inertia import RigidInertia
from jaxsoa.spatial.pairs import Spatial, Vector


class Ring(NamedTuple):
    """A linear map from an angular vector h to a force: (block h, h x force)."""

    block: ops.Matrix
    force: Vector

    def times(self, h: Vector) -> Spatial:
        return ops.matvec(self.block, h), ops.cross(h, self.force)

    def transpose_times(self, x: Spatial) -> Vector:
        """The angular vector that the transposed map makes of a motion."""
        return pairs.plus(ops.matvec_t(self.block, x[0]), pairs.cross(self.force, x[1]))

    def shifted(self, r: Vector) -> Ring:
        """About the point from which the present one lies at r: the moment gains r x (h x force)."""
        block = self.block - ops.outer(self.force, r) + ops.identity_times(ops.dot(r, self.force))
        return Ring(block, self.force)


def gyroscopic_ring(body: RigidInertia, velocity: Spatial) -> Ring:
    """B of one link."""
    w, v = velocity
    reduced = body.rotation - ops.identity_times(jnp.trace(body.rotation, axis1=-2, axis2=-1) / 2)
    # m c x (h x v) = h (m c . v) - v (m c . h)
    c = body.first_moment
    block = ops.cross_columns(w, reduced) - ops.outer(v, c) + ops.identity_times(ops.dot(c, v))
    return Ring(2 * block, 2 * (ops.scale(body.mass, v) + ops.cross(w, c)))


def force_ring(f_ext: Spatial) -> Ring:
    """How an external force differs from one that turns with its link: h -> (h x moment, h x force)."""
    moment, force = f_ext
    return Ring(-ops.skew(moment), force)


class Composite(NamedTuple):
    """Sums over everything outboard, about one point."""

    body: RigidInertia
    ring: Ring
    ring_ext: Ring | None

    def shifted(self, r: Vector) -> Composite:
        ext = None if self.ring_ext is None else self.ring_ext.shifted(r)
        return Composite(self.body.shifted(r), self.ring.shifted(r), ext)
