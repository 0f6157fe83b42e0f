"""The free joint of a floating base: six measurement updates of one 6x6 matrix.

Its degrees of freedom act at one point with nothing between them, so the Riccati recursion over them (see
`articulated`) is an elimination, one variable after another, from the inertia of the whole robot as its base link feels
it. Written with matrices instead of components it is a few loops, where the sweeps of the other links in another shape
would be as many again, to compile and to run; and those links are left with joints that mostly just turn.

The bias acceleration of the joint is counted to that of the base, like gravity: the inward sweep need not know it.
A batch may trail every array.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxsoa.batching import floating_type
from jaxsoa.model.topology import Topology
from jaxsoa.spatial import ops
from jaxsoa.spatial.inertia import SpatialInertia
from jaxsoa.sweeps import gather, scatter


class Drive(NamedTuple):
    """What drives the degrees of freedom: torques less friction, and where motion is prescribed (or None) the
    acceleration, zero elsewhere, and the mask."""

    effort: Array
    given: Array | None
    prescribed: Array | None

    def part(self, dofs: slice) -> Drive:
        return Drive(self.effort[dofs], *(None if x is None else x[dofs] for x in self[1:]))


class Elimination(NamedTuple):
    """What the inward sweep over the six degrees of freedom leaves for the outward one."""

    gain: Float[Array, "6 6 ..."]  # G(k), one row per degree of freedom
    nu: Float[Array, "6 ..."]
    pivot_inverse: Float[Array, "6 ..."]
    reaction: tuple | None  # (u, H z) where motions are prescribed: what the torques there are made of


def inertia_matrix(inertia: SpatialInertia) -> Float[Array, "6 6 ..."]:
    """The 6x6 matrix of an inertia in either form."""
    rotation, coupling, translation = (_array(block) for block in inertia)
    top = jnp.concatenate([rotation, coupling], axis=1)
    return jnp.concatenate([top, jnp.concatenate([jnp.swapaxes(coupling, 0, 1), translation], axis=1)])


def spatial_vector(w: Any, v: Any) -> Float[Array, "6 ..."]:
    """(w, v), each in either form, as one array."""
    return jnp.concatenate([_array(w), _array(v)])


def halves(x: Array, split: bool) -> tuple[Any, Any]:
    """The inverse of `spatial_vector`, packed or in components."""
    return (tuple(x[:3]), tuple(x[3:])) if split else (x[:3], x[3:])


def _array(x: Any) -> Array:
    if not ops.in_components(x):
        return x
    return jnp.stack(jnp.broadcast_arrays(*(_array(part) for part in x)))


def _dot(a: Array, b: Array) -> Array:
    """Sum of a[i] b[i] over six, spelled out: as a sum it would be a loop of its own."""
    terms = [a[i] * b[i] for i in range(6)]
    return sum(terms[1:], terms[0])


def eliminate(topology: Topology, P: Array, z: Array, axes: Array, armature: Array, drive: Drive) -> Elimination:
    """Inward, outermost degree of freedom first: the filter of `motion`, with P and z at the base link's origin."""

    def step(outboard, x):
        P, z = outboard
        h, armature, (effort, given, mask) = x
        u = _dot(P, h)  # P H*, as P is symmetric
        z = z if given is None else z + given * u
        D = _dot(h, u) + armature
        inverse = 1 / D if mask is None else jnp.where(mask, 0, 1 / jnp.where(mask, 1, D))
        gain, projected = inverse * u, _dot(h, z)
        nu = (effort - projected) * inverse
        reaction = None if mask is None else (u, projected)
        return (P - u[:, None] * gain, z + nu * u), Elimination(gain, nu, inverse, reaction)

    xs = (axes, armature, drive)
    return gather(topology.dof_plan, step, _of_one_type((P, z), xs), xs)[1]


def release(topology: Topology, found: Elimination, axes: Array, given: Array | None, base: Array) -> tuple:
    """Outward from the acceleration `base`: accelerations, prescribed torques (or None), and that of the base link.

    `given` holds the prescribed accelerations, zero where they are free, or is None.
    """

    def step(parent, x):
        gain, nu, _, reaction = x[0]
        h, given = x[1:]
        a = nu - _dot(gain, parent)
        felt = None if reaction is None else _dot(reaction[0], parent) + reaction[1]
        link = parent + (a if given is None else a + given) * h
        return link, (a, felt, link)

    xs = (found, axes, given)
    a, felt, link = scatter(topology.dof_plan, step, _of_one_type(base, xs), xs)
    return a, felt, link[-1]


def _of_one_type(carry: Any, xs: Any) -> Any:
    """What a sweep over xs carries, in the type that its results have."""
    dtype = floating_type(carry, xs)
    return jax.tree.map(lambda x: x.astype(dtype), carry)
