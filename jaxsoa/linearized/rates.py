"""How the joint axes move: the paper's H-dot and H-double-dot, for joints of any number of degrees of freedom.

Turning degree j by a small angle carries everything outboard of it along H*(j). So at a link k outboard of j, with
[x, y] the cross product of motions (linearization paper, Appendix A.2; there for one-degree revolute joints),

    dV(k)/dq(j) = [H*, V(k)] + rate(j)                          dV(k)/dv(j) = H*(j)
    dA(k)/dq(j) = [H*, A(k)] + [rate(j), V(k)] + second(j)      dA(k)/dv(j) = [H*, V(k)] + rate(j) + spin(j)

    rate(j) = [U(j), H*]     second(j) = [A(j), H*] + [U(j), rate(j)]     spin(j) = dH*(j)/dt

where U(j), A(j) are the velocity and acceleration of what carries degree j, A differentiated at a point fixed in
space. In a joint of several degrees two cases occur. If each degree turns those after it (universal, planar,
cylindrical) a joint is a chain of one-degree joints and `spin` is `rate`. If the rates are in the child's axes
(spherical, free), every degree turns the axes of all, and U and A are those of the parent link.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxsoa.indexing import take_rows
from jaxsoa.model.multibody import Multibody
from jaxsoa.model.topology import Topology
from jaxsoa.spatial import pairs
from jaxsoa.spatial.pairs import Spatial


@cache
def axis_support(topology: Topology) -> np.ndarray:
    """(nv, nv) bool: [i, j] is true where moving degree j turns or shifts the axis of degree i (or j is i)."""
    support = topology.dof_support.copy()
    for joint, dofs in zip(topology.joints, topology.v_slices, strict=True):
        if not joint.rates_in_child_axes:
            support[dofs, dofs] = np.tril(support[dofs, dofs])
    return support


def dof_links(topology: Topology) -> np.ndarray | None:
    """The link of each degree of freedom; None where the two lists are the same."""
    return None if topology.single_dof else topology.dof_link


def joint_sums(robot: Multibody, x: Spatial, *, outboard: bool) -> Spatial:
    """Sums within each joint, per degree: over the degrees strictly outboard of it, or inboard of it and itself.

    Where the rates are in the child's axes the degrees have no order, and both are the sum over all.
    """

    def sums(component: Array) -> Array:
        parts = []
        for group in robot.topology.groups:
            xs = take_rows(component, group.v_index)
            if group.joint.rates_in_child_axes:
                parts.append(jnp.broadcast_to(jnp.sum(xs, axis=1, keepdims=True), xs.shape))
            elif group.joint.nv == 1:
                parts.append(jnp.zeros_like(xs) if outboard else xs)
            else:
                inclusive = jnp.cumsum(xs, axis=1)
                parts.append(inclusive[:, -1:] - inclusive if outboard else inclusive)
        return robot.join_dofs(parts)

    return jax.tree.map(sums, x)


class AxisRates(NamedTuple):
    """Per degree of freedom, at the link's origin, world axes."""

    axis: Spatial  # H*
    rate: Spatial
    spin: Spatial
    second: Spatial


def axis_rates(
    robot: Multibody, axis: Spatial, velocity: Spatial, acceleration: Spatial, v: Array, a: Array
) -> AxisRates:
    """`axis` per degree of freedom; `velocity` and `acceleration` (at a point fixed in space) per link."""
    links = dof_links(robot.topology)
    U, A = pairs.take(velocity, links), pairs.take(acceleration, links)
    if links is None:
        rate = spin = pairs.cross_motion(U, axis)
    else:
        whole = np.repeat([j.rates_in_child_axes for j in robot.topology.joints], [j.nv for j in robot.topology.joints])
        keep = jnp.asarray(whole)[:, None]
        link_velocity = U
        U = pairs.subtract(U, joint_sums(robot, pairs.scale(v, axis), outboard=True))
        own = jax.tree.map(lambda x, y: jnp.where(keep, x, y), link_velocity, U)
        spin = pairs.cross_motion(own, axis)
        source = pairs.add(pairs.scale(a, axis), pairs.scale(v, spin))
        A = pairs.subtract(A, joint_sums(robot, source, outboard=True))
        rate = pairs.cross_motion(U, axis)
    return AxisRates(axis, rate, spin, pairs.add(pairs.cross_motion(A, axis), pairs.cross_motion(U, rate)))
