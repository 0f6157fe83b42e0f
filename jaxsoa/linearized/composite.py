"""Composite quantities for the linearized inverse model, by one inward sweep (Algorithm 2, step 2; eq. 3.7-3.8).

Per link, about its origin: the inertia R(k) of everything outboard, the force f(k), and the velocity-dependent
R-ring(k), the sum of the links' matrices B = 2 M-ring of eq. 2.8. B maps a motion H* to

    V x* M H* - M [V, H*] + H* x* M V  =  2 (w x (J - tr J / 2) h + m c x (h x v),  h x p),    p = m v + w x m c

(V = (w, v), H* = (h, .)): it sees only the angular part h of H*. So R-ring is a 3x3 matrix and the momentum p.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxsoa.linearized import spatial_components as sc
from jaxsoa.linearized.spatial_components import Spatial, Vector
from jaxsoa.model.multibody import Multibody
from jaxsoa.spatial import ops
from jaxsoa.sweeps import gather


class Rigid(NamedTuple):
    """Inertia of one rigid body about a point, in components: mass, m c, and J as (xx, yy, zz, xy, xz, yz)."""

    mass: Any
    moment: Vector
    inertia: tuple

    def rotate(self, w: Vector) -> Vector:
        xx, yy, zz, xy, xz, yz = self.inertia
        return (
            xx * w[0] + xy * w[1] + xz * w[2],
            xy * w[0] + yy * w[1] + yz * w[2],
            xz * w[0] + yz * w[1] + zz * w[2],
        )

    def times(self, x: Spatial) -> Spatial:
        w, v = x
        moment = ops.add(self.rotate(w), ops.cross(self.moment, v))
        return moment, ops.add(ops.scale(self.mass, v), ops.cross(w, self.moment))

    def shifted(self, r: Vector) -> Rigid:
        """phi M phi*: about the point from which the present one lies at r."""
        s = ops.add(self.moment, ops.scale(self.mass / 2, r))
        d = 2 * ops.dot(r, s)
        xx, yy, zz, xy, xz, yz = self.inertia
        inertia = (
            xx + d - 2 * s[0] * r[0],
            yy + d - 2 * s[1] * r[1],
            zz + d - 2 * s[2] * r[2],
            xy - s[0] * r[1] - s[1] * r[0],
            xz - s[0] * r[2] - s[2] * r[0],
            yz - s[1] * r[2] - s[2] * r[1],
        )
        return Rigid(self.mass, ops.add(self.moment, ops.scale(self.mass, r)), inertia)


class Ring(NamedTuple):
    """A linear map from an angular vector h to a force: (block h, force x h negated), that is (block h, h x force)."""

    block: tuple  # 3x3, rows
    force: Vector

    def times(self, h: Vector) -> Spatial:
        return ops.matvec(self.block, h), ops.cross(h, self.force)

    def transpose_times(self, x: Spatial) -> Vector:
        """The angular vector that the transposed map makes of a motion."""
        return ops.add(ops.matvec_t(self.block, x[0]), ops.cross(self.force, x[1]))

    def shifted(self, r: Vector) -> Ring:
        """About the point from which the present one lies at r: the moment gains r x (h x force)."""
        d, f = ops.dot(r, self.force), self.force
        block = tuple(
            tuple(self.block[i][j] - f[i] * r[j] + (d if i == j else 0) for j in range(3)) for i in range(3)
        )
        return Ring(block, f)


def gyroscopic_ring(body: Rigid, velocity: Spatial) -> Ring:
    """B of one link."""
    w, v = velocity
    xx, yy, zz, xy, xz, yz = body.inertia
    half = (xx + yy + zz) / 2
    reduced = ((xx - half, xy, xz), (xy, yy - half, yz), (xz, yz, zz - half))
    turned = ops.cross_columns(w, reduced)
    # m c x (h x v) = h (m c . v) - v (m c . h)
    c, d = body.moment, ops.dot(body.moment, v)
    block = tuple(
        tuple(2 * (turned[i][j] - v[i] * c[j] + (d if i == j else 0)) for j in range(3)) for i in range(3)
    )
    momentum = ops.add(ops.scale(body.mass, v), ops.cross(w, c))
    return Ring(block, ops.scale(2, momentum))


def force_ring(f_ext: Spatial) -> Ring:
    """How an external force differs from one that turns with its link: h -> (h x moment, h x force)."""
    (x, y, z), force = f_ext
    zero = x * 0
    return Ring(((zero, z, -y), (-z, zero, x), (y, -x, zero)), force)


class Composite(NamedTuple):
    """Sums over everything outboard, per link, about its origin, in components."""

    body: Rigid
    ring: Ring
    force: Spatial
    ring_ext: Ring | None


def composite(
    robot: Multibody, offset: Array, body: Rigid, velocity: Spatial, net: Spatial, f_ext: Array | None
) -> Composite:
    """One inward sweep. `net` is the force each link needs (Newton-Euler), external forces already subtracted."""
    own = Composite(
        body, gyroscopic_ring(body, velocity), net, None if f_ext is None else force_ring(sc.split(f_ext))
    )

    def step(children, x):
        own, r = x
        total = jax.tree.map(jnp.add, children, own)
        up = Composite(
            total.body.shifted(r),
            total.ring.shifted(r),
            sc.carry_force(r, total.force),
            None if total.ring_ext is None else total.ring_ext.shifted(r),
        )
        return up, total

    zero = jax.tree.map(lambda x: jnp.zeros(x.shape[1:], x.dtype), own)
    return gather(robot.topology.link_plan, step, zero, (own, sc.vector(offset)))[1]



def take_links(outboard: Composite, links: np.ndarray | None) -> Composite:
    """Per degree of freedom, of the link it moves."""
    return outboard if links is None else jax.tree.map(lambda x: x[links], outboard)
