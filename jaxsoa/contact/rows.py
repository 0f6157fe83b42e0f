"""The rows of the contact problem at a configuration: gaps, normals, Jacobian, and the Delassus matrix.

Three rows per contact: the velocity, in world axes, of the robot's point relative to the surface's, J v. The Delassus
matrix G = J M^-1 J* is a product of one half: with M^-1 = (I - H psi K)* D^-1 (I - H psi K) (JPL 88-11, theorem 4.1),

    G = E* D^-1 E,   E = (I - H psi K) J*:

one inward sweep with a column per row of J, and a product.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from jaxsoa.closed_chain.constraints import Constraint
from jaxsoa.closed_chain.loops import loop_rows_at_rest
from jaxsoa.contact.scene import Pair, Scene
from jaxsoa.dynamics.articulated import Factors, whiten
from jaxsoa.dynamics.kinematics import Kinematics, kinematics
from jaxsoa.eager import compiled
from jaxsoa.indexing import take_rows
from jaxsoa.model.multibody import Multibody
from jaxsoa.spatial import ops


class Touching(NamedTuple):
    """Contacts that may happen, world axes: gaps, normals away from the surface, and where they touch."""

    gaps: Float[Array, " c"]
    normals: Float[Array, "c 3"]
    positions: Float[Array, "c 3"]  # from the base's origin


def touching(robot: Multibody, scene: Scene, kin: Kinematics, pairs: tuple[Pair, ...]) -> Touching:
    """Distance and normal of every pair: a sphere touches a surface at its centre's nearest point."""
    topology, points = robot.topology, scene.points
    dtype = kin.position.dtype
    numbers = np.array([topology.frame_number(frame) for frame in points.frames])
    links = np.array([topology.frame_links[k] for k in numbers])
    frame_R, frame_p = take_rows(robot.frame_rotation, numbers), take_rows(robot.frame_position, numbers)

    def placed(x):
        own = frame_p + jax.vmap(ops.matvec)(frame_R, x.astype(dtype))
        return take_rows(kin.position, links) + jax.vmap(ops.matvec)(take_rows(kin.rotation, links), own)

    centers = placed(points.positions)
    ends = None if points.ends is None else placed(points.ends)
    radii = points.radii.astype(dtype)
    gaps, normals, positions = [], [], []
    for number, surface in enumerate(scene.surfaces):
        which = np.array([pair.point for pair in pairs if pair.surface == number], int)
        if not which.size:
            continue
        at = centers[which]
        if surface.frame is None:
            R, p = jnp.eye(3, dtype=dtype), -robot.base_position.astype(dtype)
        else:
            R, p = _pose(robot, kin, surface.frame)

        def seen(x, R=R, p=p):
            return ops.matvec_t(R, x - p)

        if ends is not None:
            part = jax.vmap(lambda a, b, s=surface, seen=seen: s.nearest(seen(a), seen(b)))(at, ends[which])
            at = at + part[:, None] * (ends[which] - at)
        gap, normal = jax.vmap(lambda x, s=surface, seen=seen: s.distance(seen(x)))(at)
        normal = jax.vmap(lambda n, R=R: ops.matvec(R, n))(normal)
        gaps.append(gap - radii[which])
        normals.append(normal)
        positions.append(at - radii[which][:, None] * normal)
    return Touching(jnp.concatenate(gaps), jnp.concatenate(normals), jnp.concatenate(positions))


def _pose(robot: Multibody, kin: Kinematics, frame: str) -> tuple[Array, Array]:
    """Rotation and position, from the base's origin, of a frame."""
    number = robot.topology.frame_number(frame)
    link = robot.topology.frame_links[number]
    R = robot.base_rotation if link < 0 else kin.rotation[link]
    p = jnp.zeros_like(kin.position[0]) if link < 0 else kin.position[link]
    return ops.matmul(R, robot.frame_rotation[number]), p + ops.matvec(R, robot.frame_position[number])


def contact_jacobian(
    robot: Multibody, kin: Kinematics, positions: Array, pairs: tuple[Pair, ...]
) -> Float[Array, "c 3 nv"]:
    """Relative velocity of the touching bodies at each contact by v, world axes."""
    topology = robot.topology
    arm = positions[:, None] - take_rows(kin.position, topology.dof_link)
    w, v = kin.axes[:, :3], kin.axes[:, 3:]
    columns = v + jnp.cross(w[None], arm)  # (c, nv, 3)
    support = topology.link_support
    sign = np.array([_moves(support, p.link) - _moves(support, p.other) for p in pairs])[:, topology.dof_link]
    return jnp.swapaxes(columns * sign[:, :, None].astype(columns.dtype), 1, 2)


def _moves(support: np.ndarray, link: int) -> np.ndarray:
    """Which links' joints move a link, as numbers."""
    return support[link].astype(float) if link >= 0 else np.zeros(support.shape[0])


class Rows(NamedTuple):
    """All rows: contacts (three each), joint limits (one each), loops. `gaps` and `errors` are positions."""

    jacobian: Float[Array, "n nv"]
    normals: Float[Array, "c 3"]
    gaps: Float[Array, " c"]
    limit_gaps: Float[Array, " k"]
    errors: Float[Array, " e"]


def rows_at(
    robot: Multibody, scene: Scene, q: Array, pairs: tuple[Pair, ...], loops: Sequence[Constraint] = ()
) -> Rows:
    """Rows at a checked configuration."""
    kin = kinematics(robot, q)
    touch = touching(robot, scene, kin, pairs)
    J = [contact_jacobian(robot, kin, touch.positions, pairs).reshape(-1, robot.nv)]
    limit_rows, limit_gaps = limit_rows_at(robot, q, scene.limited(robot))
    J.append(limit_rows.astype(J[0].dtype))
    errors = jnp.zeros(0, J[0].dtype)
    if loops:
        found = loop_rows_at_rest(robot, loops, q)
        J.append(found.jacobian)
        errors = found.error
    return Rows(jnp.concatenate(J), touch.normals, touch.gaps, limit_gaps, errors)


#: A joint without a limit is this far from it (rad or m): never in one step.
FAR = 1e6


def limit_rows_at(robot: Multibody, q: Array, dofs: np.ndarray) -> tuple[Float[Array, "k nv"], Float[Array, " k"]]:
    """One row per limited degree of freedom, towards the inside from the nearer limit, and the way to that limit."""
    if not dofs.size:
        return jnp.zeros((0, robot.nv), q.dtype), jnp.zeros(0, q.dtype)
    where = np.full(robot.nv, -1)
    for group in robot.topology.groups:
        if group.joint.nq == group.joint.nv:
            where[group.v_index] = group.q_index
    position = take_rows(q, where[dofs])
    lower, upper = robot.limits.lower[dofs].astype(q.dtype), robot.limits.upper[dofs].astype(q.dtype)
    has_lower, has_upper = jnp.isfinite(lower), jnp.isfinite(upper)
    below = jnp.where(has_lower, position - jnp.where(has_lower, lower, 0), FAR)
    above = jnp.where(has_upper, jnp.where(has_upper, upper, 0) - position, FAR)
    low = below <= above
    inside = jnp.where(low, 1, -1).astype(q.dtype)
    return inside[:, None] * np.eye(robot.nv)[dofs].astype(q.dtype), jnp.where(low, below, above)


def delassus(robot: Multibody, factors: Factors, jacobian: Float[Array, "n nv"]) -> Float[Array, "n n"]:
    """G = J M^-1 J* by one inward sweep: E* D^-1 E with E = (I - H psi K) J*."""
    E = jax.vmap(lambda row: whiten(robot, factors.tree, factors.gain, row))(jacobian)
    return (E * factors.pivot_inverse) @ E.T


@compiled
def gaps(robot: Multibody, scene: Scene, q: Shaped[Array, " nq"]) -> Float[Array, " c"]:
    """Distance of every contact that may happen at q; negative where bodies overlap.

    >>> floor, feet = soa.contact.Plane(height=-2.0), soa.contact.Points("tip", radii=[0.05])  # m
    >>> print(soa.contact.gaps(robot, soa.contact.Scene(feet, floor, 0.5), q).round(3))  # m
    [0.015]
    """
    q = robot.check_q(q)
    return touching(robot, scene, kinematics(robot, q), scene.pairs(robot)).gaps
