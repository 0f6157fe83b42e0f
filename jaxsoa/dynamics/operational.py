"""Operational space: how link frames respond to forces on them.

compliance = J M^-1 J* = B* psi* H* D^-1 H psi B (overview, 5.5), inertia its inverse. For m frames the compliance is a
(6m, 6m) matrix. Each frame's force makes one inward sweep and one outward sweep, so the cost is O(N m) plus O(m^2).
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

from jaxsoa.dynamics.articulated import ArticulatedBody, carry_force, carry_motion, smooth, smoothed, whiten
from jaxsoa.dynamics.kinematics import Kinematics, frame_axes, frame_placement, kinematics
from jaxsoa.dynamics.mass import articulated, constant_factors, costate_covariances
from jaxsoa.dynamics.motion import differentiable_solve
from jaxsoa.eager import compiled
from jaxsoa.model.multibody import Multibody


def _names(frames: str | Sequence[str]) -> tuple[str, ...]:
    return (frames,) if isinstance(frames, str) else tuple(frames)


@compiled(kernel=True)
def operational_space_compliance(
    robot: Multibody, q: Shaped[Array, " nq"], frames: str | Sequence[str]
) -> Float[Array, "six_m six_m"]:
    """J M^-1 J* of one frame (6, 6) or of several stacked (6m, 6m); angular rows first in each block.

    Units: rad; rad/s^2 and m/s^2 per N m and N.

    >>> Omega = soa.operational_space_compliance(robot, q, "tip")
    >>> print(f"{Omega[3, 3]:.3f}")  # m/s^2 of the tip along x per N along x
    3.029
    """
    q = robot.check_q(q)
    return _compliance(robot, q, _names(frames))


@compiled
def operational_space_inertia(
    robot: Multibody, q: Shaped[Array, " nq"], frames: str | Sequence[str]
) -> Float[Array, "six_m six_m"]:
    """Lambda = (J M^-1 J*)^-1, the inertia felt at the frames. Singular where J has not full row rank.

    Units: rad; kg m^2, kg m and kg.

    >>> arm = soa.models.chain(6)
    >>> print(soa.operational_space_inertia(arm, 0.4 * jnp.arange(1.0, 7), "tip").shape)
    (6, 6)
    """
    return jnp.linalg.inv(operational_space_compliance(robot, q, frames))


def _compliance(robot: Multibody, q: Array, frames: tuple[str, ...]) -> Array:
    """J M^-1 J*, differentiated as the product it is: neither rule enters the Riccati sweep."""

    @jax.custom_jvp
    def compliance(robot, q):
        kin, body = articulated(robot, q)
        return compliance_by_sweeps(robot, kin, body, frames)

    def product(robot, q):
        kin, factors = kinematics(robot, q), constant_factors(robot, q)
        J = jnp.concatenate([frame_axes(robot, kin, frame) for frame in frames])
        return J @ jax.vmap(lambda row: differentiable_solve(robot, q, factors, row), out_axes=1)(J)

    @compliance.defjvp
    def jvp(primals, tangents):
        return compliance(*primals), jax.jvp(product, primals, tangents)[1]

    return compliance(robot, q)


def compliance_by_sweeps(
    robot: Multibody, kin: Kinematics, body: ArticulatedBody, frames: tuple[str, ...]
) -> Float[Array, "six_m six_m"]:
    """B* psi* H* D^-1 H psi B by an inward and an outward sweep that carry one column per force component.

    Inward: z = psi B f gathers the effect of unit forces at the frames; outward: lambda = psi* H* D^-1 H z is the
    acceleration they give. A single frame on a chain needs only the outward recursion for Lambda-; see
    `tip_compliance`.
    """
    topology, tree = robot.topology, body.tree
    columns = 6 * len(frames)
    source = jnp.zeros((topology.nv, 6, columns), tree.axes.dtype)
    arms, nodes = [], []
    for number, frame in enumerate(frames):
        _, point, link = frame_placement(robot, kin, frame)
        node = -1 if link < 0 else topology.v_slices[link].stop - 1
        arm = point - (kin.position[link] if link >= 0 else 0)
        unit = jax.vmap(lambda f, arm=arm: carry_force(arm, f), in_axes=1, out_axes=1)(jnp.eye(6, dtype=source.dtype))
        if node >= 0:
            source = source.at[node, :, 6 * number : 6 * number + 6].add(unit)
        arms.append(arm)
        nodes.append(node)

    def response(force):
        e = whiten(robot, tree, body.gain, jnp.zeros(topology.nv, force.dtype), -force)
        return smoothed(robot, tree, body.gain, e / body.pivot)[1]

    lam = jax.vmap(response, in_axes=-1, out_axes=-1)(source)
    zero = jnp.zeros((6, columns), source.dtype)
    rows = []
    for arm, node in zip(arms, nodes, strict=True):
        at_link = lam[node] if node >= 0 else zero
        rows.append(jax.vmap(lambda m, arm=arm: carry_motion(arm, m), in_axes=1, out_axes=1)(at_link))
    return jnp.concatenate(rows)


@compiled(kernel=True)
def tip_compliance(robot: Multibody, q: Shaped[Array, " nq"], frame: str) -> Float[Array, "6 6"]:
    """The same for one frame by the papers' single recursion, base to tip (overview, application 2):

    Omega(k) = psi*(k+1, k) Omega(k+1) psi(k+1, k) + H* D^-1 H, then carried to the frame.

    Units: rad; rad/s^2 and m/s^2 per N m and N.

    >>> Omega = soa.tip_compliance(robot, q, "tip")
    >>> print(f"{Omega[3, 3]:.3f}")  # m/s^2 of the tip along x per N along x
    3.029
    """
    kin, body = articulated(robot, robot.check_q(q))
    _, omega = costate_covariances(robot, body)
    _, point, link = frame_placement(robot, kin, frame)
    if link < 0:
        return jnp.zeros((6, 6), body.gain.dtype)
    shift = jax.vmap(lambda row: carry_motion(point - kin.position[link], row))
    return shift(shift(omega[robot.topology.v_slices[link].stop - 1]).T)


@compiled
def tip_force_accelerations(
    robot: Multibody, q: Shaped[Array, " nq"], frame: str, force: Shaped[Array, "6"]
) -> Float[Array, " nv"]:
    """Joint accelerations due to a spatial force (moment, force; world axes) that a frame exerts on its surroundings.

    -(I - H psi K)* D^-1 H psi B f: the correction to free accelerations (overview, application 1, eq. 5.3).

    Units: rad, N m and N; rad/s^2.

    >>> force = jnp.array([0, 0, 0, 10.0, 0, 0])  # the tip pushes with 10 N along x
    >>> print(soa.tip_force_accelerations(robot, q, "tip", force).round(3))
    [-4.423 39.638]
    """
    kin, body = articulated(robot, robot.check_q(q))
    force = robot.convert(force, "force")
    if force.shape != (6,):
        raise ValueError(f"force must have shape (6,): moment, then force; got {force.shape}.")
    topology, tree = robot.topology, body.tree
    _, point, link = frame_placement(robot, kin, frame)
    source = jnp.zeros((topology.nv, 6), tree.axes.dtype)
    if link >= 0:
        source = source.at[topology.v_slices[link].stop - 1].set(carry_force(point - kin.position[link], force))

    e = whiten(robot, tree, body.gain, jnp.zeros(topology.nv, source.dtype), source)
    return smooth(robot, tree, body.gain, e / body.pivot)
