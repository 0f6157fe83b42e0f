"""The Riccati sweep: articulated-body inertias, and the sweeps that use the factors it leaves behind.

Everything here runs over single degrees of freedom (see `Topology`), so D is a number and G a 6-vector per degree.
Per degree k, outboard to inboard (JPL 88-11, 4.4-4.6; JPL 86-48, 8.4-8.9; DARTS 7):

    P = M + sum over children of phi P+ phi*     D = H P H* + armature     G = P H* / D     P+ = P - G D G*

The armature is the measurement noise of the Kalman filter this is. A degree of freedom whose motion is prescribed
makes no measurement: G = 0 and P+ = P (DARTS 7, hybrid dynamics).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxsoa.dynamics.kinematics import Kinematics
from jaxsoa.indexing import take_rows_or_zeros
from jaxsoa.model.multibody import Multibody
from jaxsoa.spatial import ops, pairs
from jaxsoa.spatial.inertia import RigidInertia, SpatialInertia
from jaxsoa.sweeps import gather, scatter


class DofTree(NamedTuple):
    """Geometry of the tree of single degrees of freedom: axes H* and the offset from the degree inboard."""

    axes: Float[Array, "nv 6"]
    offset: Float[Array, "nv 3"]


class Factors(NamedTuple):
    """What one needs to apply (I - H psi K)* D^-1 (I - H psi K), the inverse of the mass matrix."""

    tree: DofTree
    gain: Float[Array, "nv 6"]  # G(k); zero where the motion is prescribed
    pivot_inverse: Float[Array, " nv"]  # 1 / D(k); zero where prescribed


class ArticulatedBody(NamedTuple):
    """The full outcome of the Riccati sweep: P and D beside the factors."""

    tree: DofTree
    inertia: SpatialInertia  # P(k), per degree of freedom
    pivot: Float[Array, " nv"]  # D(k)
    gain: Float[Array, "nv 6"]  # G(k)

    @property
    def factors(self) -> Factors:
        return Factors(self.tree, self.gain, 1 / self.pivot)


def on_first(robot: Multibody, x: Array) -> Array:
    """A per-link array per degree of freedom: the link's value on its innermost degree, zero on the others."""
    return _spread(robot, x, robot.topology.dof_is_first)


def on_last(robot: Multibody, x: Array) -> Array:
    """The same on the outermost degree, which carries the link."""
    return _spread(robot, x, robot.topology.dof_is_last)


def _spread(robot: Multibody, x: Array, where: np.ndarray) -> Array:
    if robot.topology.single_dof:
        return x
    return take_rows_or_zeros(x, np.where(where, robot.topology.dof_link, -1))


def dof_tree(robot: Multibody, kin: Kinematics) -> DofTree:
    return DofTree(kin.axes, on_first(robot, kin.offset))


def dof_inertias(robot: Multibody, inertias: RigidInertia) -> RigidInertia:
    return RigidInertia(*(on_last(robot, x) for x in inertias))


class RiccatiStep(NamedTuple):
    inertia: SpatialInertia  # P
    force_per_rate: tuple  # u = P H*: (moment, force)
    pivot: Array  # D, or one where prescribed
    pivot_inverse: Array  # 1/D, or zero where prescribed
    gain: tuple  # G: (moment, force)


def riccati_step(children: SpatialInertia, body: RigidInertia, h_w, h_v, armature, prescribed=None) -> RiccatiStep:
    """One degree of freedom: P, D and G from the sum over its children."""
    P = children.balanced().plus_rigid_body(body)
    u_w, u_v = P.times(h_w, h_v)
    D = ops.dot(h_w, u_w) + armature
    D = D if h_v is None else D + ops.dot(h_v, u_v)
    if prescribed is None:
        inverse = 1 / D
    else:
        D = jnp.where(prescribed, 1, D)
        inverse = jnp.where(prescribed, 0, 1 / D)
    return RiccatiStep(P, (u_w, u_v), D, inverse, (ops.scale(inverse, u_w), ops.scale(inverse, u_v)))


def updated(step: RiccatiStep) -> SpatialInertia:
    """P+ = P - G D G*."""
    return step.inertia.minus_outer(*step.force_per_rate, *step.gain)


def no_inertia(dtype) -> SpatialInertia:
    """What the sweep begins with at the tips."""
    zero = jnp.zeros((3, 3), dtype)
    return SpatialInertia(zero, zero, zero)


def articulated_body(
    robot: Multibody, kin: Kinematics, inertias: RigidInertia, prescribed: Array | None = None
) -> ArticulatedBody:
    """P, D and G of every degree of freedom by one inward sweep."""
    tree = dof_tree(robot, kin)

    def step(children, x):
        body, h, offset, armature, mask = x
        r = riccati_step(children, body, h[:3], h[3:], armature, mask)
        return updated(r).shifted(offset), (r.inertia, r.pivot, jnp.concatenate(r.gain))

    xs = (dof_inertias(robot, inertias), tree.axes, tree.offset, robot.armature, prescribed)
    _, (P, D, G) = gather(robot.topology.dof_plan, step, no_inertia(jnp.result_type(kin.axes, robot.mass)), xs)
    return ArticulatedBody(tree, P, D, G)


# --- sweeps with the factors --------------------------------------------------------------------------------------
# E_phi carries a force inboard and E_phi* a motion outboard; E_psi = E_phi (I - G H). With them
#   whiten      e = (I - H psi K) x          inward:  z = sum of phi (z + G e),  e = x - H z
#   unwhiten    x = (I + H phi K) e          inward:  the same with e given
#   smooth      y = (I - H psi K)* n         outward: y = n - G* l+,  l = l+ + H* y
#   color       n = (I + H phi K)* y         outward: the same with y given
# (JPL 88-11, 4.13, 4.15 and 4.22.)


def carry_force(offset, f):
    """phi f for one link: a force at a point, seen at the point from which it lies at `offset`."""
    return pairs.flat(*pairs.carry_force(offset, pairs.halves(f)))


def carry_motion(offset, m):
    """phi* m: a motion at a point, seen at the point that lies at `offset` from it on the same body."""
    return pairs.flat(*pairs.carry_motion(offset, pairs.halves(m)))


def _inner(h, x):
    return jnp.sum(h * x, axis=-1)


def whiten(
    robot: Multibody, tree: DofTree, gain: Array, x: Array, force: Array | None = None, passed: Array | None = None
) -> Array:
    """(I - H psi K) x, by one inward sweep; less H psi force and H psi~ passed, where given.

    `force` (nv, 6) acts on each degree of freedom; `passed` (nv, 6) joins what it passes on inboard.
    """

    def step(z, inputs):
        h, g, offset, x, force, passed = inputs
        z = z if force is None else z + force
        e = x - _inner(h, z)
        z = z + g * e
        return carry_force(offset, z if passed is None else z + passed), e

    zero = jnp.zeros(6, jnp.result_type(tree.axes, x))
    return gather(robot.topology.dof_plan, step, zero, (*_tree(tree, gain), x, force, passed))[1]


def unwhiten(robot: Multibody, tree: DofTree, gain: Array, e: Array) -> Array:
    """(I + H phi K) e, by one inward sweep."""

    def step(z, inputs):
        h, g, offset, e = inputs
        return carry_force(offset, z + g * e), e + _inner(h, z)

    zero = jnp.zeros(6, jnp.result_type(tree.axes, e))
    return gather(robot.topology.dof_plan, step, zero, (*_tree(tree, gain), e))[1]


def smoothed(robot: Multibody, tree: DofTree, gain: Array, n: Array, bias: Array | None = None) -> tuple[Array, Array]:
    """(I - H psi K)* n and the co-states lambda = psi* H* n (nv, 6), by one outward sweep.

    With bias accelerations (nv, 6) they are those of the motion that these join.
    """

    def step(parent, inputs):
        h, g, offset, n, bias = inputs
        l = carry_motion(offset, parent)
        l = l if bias is None else l + bias
        y = n - _inner(g, l)
        l = l + h * y
        return l, (y, l)

    zero = jnp.zeros(6, jnp.result_type(tree.axes, n))
    return scatter(robot.topology.dof_plan, step, zero, (*_tree(tree, gain), n, bias))


def smooth(robot: Multibody, tree: DofTree, gain: Array, n: Array) -> Array:
    """(I - H psi K)* n, by one outward sweep."""
    return smoothed(robot, tree, gain, n)[0]


def color(robot: Multibody, tree: DofTree, gain: Array, y: Array) -> Array:
    """(I + H phi K)* y, by one outward sweep."""

    def step(parent, inputs):
        h, g, offset, y = inputs
        l = carry_motion(offset, parent)
        return l + h * y, y + _inner(g, l)

    zero = jnp.zeros(6, jnp.result_type(tree.axes, y))
    return scatter(robot.topology.dof_plan, step, zero, (*_tree(tree, gain), y))


def _tree(tree: DofTree, gain: Array):
    return tree.axes, gain, tree.offset


def solve_with_factors(robot: Multibody, factors: Factors, x: Array) -> Array:
    """(I - H psi K)* D^-1 (I - H psi K) x: the mass matrix solved for x in two sweeps (JPL 88-11, Theorem 4.1)."""
    e = whiten(robot, factors.tree, factors.gain, x)
    return smooth(robot, factors.tree, factors.gain, factors.pivot_inverse * e)


def free_only(x: Array, prescribed: Array | None) -> Array:
    return x if prescribed is None else jnp.where(prescribed, 0, x)


def vmap_columns(f):
    """Apply a function of vectors to the columns of a matrix."""
    return jax.vmap(f, in_axes=1, out_axes=1)
