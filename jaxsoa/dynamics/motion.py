"""Forward and hybrid dynamics in three sweeps, with derivatives that never enter the Riccati recursion.

`solve_motion` finds the accelerations of the free degrees of freedom and the torques of the prescribed ones; forward
dynamics is the case where none is prescribed. Outward: poses, velocities, biases. Inward: the Riccati sweep with the
filter z. Outward: accelerations (DARTS 7, the boxed algorithm; its hybrid form for prescribed motion).

Derivatives (forward, reverse, any order): along any tangent of state, inputs or model,
    da = M^-1 [dtau - dID(q, v, a)],
with inverse dynamics differentiated at fixed a and M^-1 applied by the factors at hand, in two sweeps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from jaxsoa.dynamics.articulated import (
    DofTree,
    Factors,
    free_only,
    no_inertia,
    on_first,
    on_last,
    riccati_step,
    solve_with_factors,
    updated,
)
from jaxsoa.dynamics.inverse import accelerations, newton_euler, project, sum_outboard
from jaxsoa.dynamics.kinematics import carried, joint_rates, kinematics, link_inertias, spatial_rows
from jaxsoa.dynamics.linear_maps import linear_zeros
from jaxsoa.dynamics.newton_euler import Bodies, dissipation, gravity_upward, link_biases, moving_bodies
from jaxsoa.dynamics.springs import unsprung
from jaxsoa.dynamics.tangents import Varying, perturbed_motion
from jaxsoa.kernels import door, is_zero, ruled
from jaxsoa.mesh_axes import varying_like
from jaxsoa.model.multibody import Multibody
from jaxsoa.spatial import ops, pairs
from jaxsoa.spatial.inertia import SpatialInertia
from jaxsoa.spatial.pairs import Spatial
from jaxsoa.sweeps import gather, scatter


class Drive(NamedTuple):
    """What drives the degrees of freedom: torques less friction, and where motion is prescribed (or None) the
    acceleration, zero elsewhere, and the mask."""

    effort: Array
    given: Array | None
    prescribed: Array | None


class Filtered(NamedTuple):
    """What the inward sweep leaves for the outward one, per degree of freedom."""

    inertia: SpatialInertia  # P
    force_per_rate: tuple  # u = P H*
    gain: tuple
    nu: Array
    pivot_inverse: Array
    reaction: tuple | None  # where motion is prescribed: u and H z
    axes: tuple
    offset: Array
    bias: tuple


def on(where: Callable, robot: Multibody, tree: Any) -> Any:
    """Every per-link array of a tree per degree of freedom (`on_first`, `on_last`)."""
    return jax.tree.map(lambda x: where(robot, x), tree)


def filtered_inward(robot: Multibody, bodies: Bodies, f_ext: Array | None, drive: Drive) -> Filtered:
    """The Riccati sweep with the filter z (JPL 88-11, 5.13-5.15; DARTS 7)."""
    force, body = on(on_last, robot, (link_biases(bodies.inertias, bodies.angular, f_ext), bodies.inertias))
    bias, offset = on(on_first, robot, (bodies.bias, bodies.offset))
    if drive.given is not None:
        bias = pairs.add(bias, pairs.scale(drive.given, bodies.axes))

    def inward(children, x):
        P, z = children
        body, force, bias, axes, offset, effort, armature, mask = x
        r = riccati_step(P, body, axes[0], axes[1], armature, mask)
        nu, up, projected = filter_step(z, r.inertia, r.force_per_rate, r.pivot_inverse, axes, bias, force, effort)
        reaction = None if mask is None else (r.force_per_rate, projected)
        found = r.inertia, r.force_per_rate, r.gain, nu, r.pivot_inverse, reaction
        return (updated(r).shifted(offset), pairs.carry_force(offset, up)), found

    xs = (body, force, bias, bodies.axes, offset, drive.effort, robot.armature, drive.prescribed)
    zero = carried(jnp.zeros_like(robot.gravity), xs)
    _, found = gather(robot.topology.dof_plan, inward, (no_inertia(zero.dtype), (zero, zero)), xs)
    P, u, gain, nu, inverse, reaction = found
    return Filtered(P, u, gain, nu, inverse, reaction, bodies.axes, offset, bias)


def filter_step(
    z: Spatial,
    P: SpatialInertia,
    u: Spatial,
    pivot_inverse: Array,
    axes: Spatial,
    bias: Spatial,
    force: Spatial,
    effort,
) -> tuple[Array, Spatial, Array]:
    """One degree of freedom of the filter: nu = (effort - H z) / D, what is passed on, and H z."""
    z = pairs.add(z, P.times(*bias), force)
    projected = pairs.dot(axes, z)
    nu = (effort - projected) * pivot_inverse
    return nu, pairs.add(z, pairs.scale(nu, u)), projected


def smoothed_outward(robot: Multibody, filtered: Filtered, base: Spatial | None = None) -> tuple[Array, Array | None]:
    """Accelerations of the degrees of freedom, and the torques felt where prescribed (JPL 88-11, 5.16-5.17).

    `base` is the motion that it begins with: by default gravity upside down.
    """

    def outward(parent, x):
        gain, nu, reaction, axes, offset, bias = x
        motion = pairs.carry_motion(offset, parent)
        a = nu - ops.dot(gain[0], motion[0]) - ops.dot(gain[1], motion[1])
        felt = None if reaction is None else pairs.dot(reaction[0], motion) + reaction[1]
        return pairs.add(motion, bias, pairs.scale(a, axes)), (a, felt)

    _, _, gain, nu, _, reaction, *rest = filtered
    xs = (gain, nu, reaction, *rest)
    return scatter(robot.topology.dof_plan, outward, gravity_upward(robot, xs) if base is None else base, xs)


def factors_of(filtered: Filtered) -> Factors:
    tree = DofTree(spatial_rows(*filtered.axes), filtered.offset)
    return Factors(tree, spatial_rows(*filtered.gain), filtered.pivot_inverse)


def _sweeps(robot: Multibody, q, v, a, tau, f_ext, prescribed) -> tuple[Array, Array, Factors]:
    """The three sweeps from end to end.

    `a` is read where prescribed, `tau` elsewhere; `prescribed` None means nothing is.
    """
    given = None if prescribed is None else jnp.where(prescribed, a, 0)
    drive = Drive(tau - dissipation(robot, v), given, prescribed)
    filtered = filtered_inward(robot, moving_bodies(robot, q, v), f_ext, drive)
    found, felt = smoothed_outward(robot, filtered)
    # External forces may be more precise than poses.
    factors = jax.tree.map(lambda x: x.astype(found.dtype), factors_of(filtered))
    if prescribed is None or felt is None:
        return found, tau.astype(found.dtype), factors
    acceleration = jnp.where(prescribed, a, found)
    needed = felt + robot.armature * acceleration + dissipation(robot, v)
    return acceleration, jnp.where(prescribed, needed, tau), factors


_by_kernel = door(_sweeps)


def _solve_motion_rule(primals, tangents):
    robot, q, v, a, tau, f_ext, prescribed = primals
    outputs = _without_springs(robot, q, v, a, tau, f_ext, prescribed)
    acceleration, _, factors = outputs
    d_robot, d_q, d_v, d_a, d_tau, d_f_ext, _ = tangents
    varying = Varying.of((robot, q, v, f_ext), (d_robot, d_q, d_v, d_f_ext))
    given = [x for x in (*varying.rates, d_tau, d_a if prescribed is not None else d_tau) if not is_zero(x)]
    if not given:
        return outputs, jax.tree.map(jnp.zeros_like, outputs)

    def tangent(d):
        like = acceleration
        return linear_zeros(like.shape, like.dtype, given) if is_zero(d) else d.astype(like.dtype)

    d_tau = tangent(d_tau)
    d_given = None if prescribed is None else jnp.where(prescribed, tangent(d_a), 0)
    found = perturbed_motion(
        varying,
        acceleration,
        (factors.gain, factors.pivot_inverse),
        prescribed,
        (d_given, d_tau),
    )
    if prescribed is None or d_given is None:
        d_acceleration, d_torque = found, d_tau
    else:
        d_acceleration, d_torque = jnp.where(prescribed, d_given, found), jnp.where(prescribed, found, d_tau)
    d_outputs = (d_acceleration, d_torque, jax.tree.map(jnp.zeros_like, factors))
    return outputs, jax.tree.map(lambda d, x: varying_like(d.astype(x.dtype), x), d_outputs, outputs)


@ruled(_solve_motion_rule)
def _without_springs(robot: Multibody, q, v, a, tau, f_ext, prescribed) -> tuple[Array, Array, Factors]:
    return _by_kernel(robot, q, v, a, tau, f_ext, prescribed)


def solve_motion(robot: Multibody, q, v, a, tau, f_ext, prescribed) -> tuple[Array, Array, Factors]:
    """(accelerations, torques, factors), complete: given where given, found where not. `prescribed` may be None."""
    robot, pull = unsprung(robot, q)
    if pull is None:
        return _without_springs(robot, q, v, a, tau, f_ext, prescribed)
    acceleration, torque, factors = _without_springs(robot, q, v, a, tau + pull, f_ext, prescribed)
    return acceleration, torque - pull, factors


def mass_times(robot: Multibody, q: Array, x: Array) -> Array:
    """M x in two sweeps, differentiable by plain JAX: H phi M phi* H* x + armature x."""
    kin = kinematics(robot, q)
    zero = jnp.zeros(3, jnp.result_type(kin.axes, x))
    alpha = accelerations(robot, kin.offset, joint_rates(robot, kin.axes, x), (zero, zero))
    forces = newton_euler(link_inertias(robot, kin.rotation), alpha, jnp.zeros(6, alpha.dtype))
    return project(robot, kin.axes, sum_outboard(robot, kin.offset, forces)) + robot.armature * x


_apply_factors = door(solve_with_factors)


def differentiable_solve(
    robot: Multibody, q: Array, factors: Factors, x: Array, prescribed=None, *, plain: bool = False
) -> Array:
    """M^-1 x by the factors, whose own derivatives are replaced by those of M x = b.

    With `prescribed`, M is its block of free degrees of freedom and the result is zero elsewhere. `plain` is for what
    becomes a kernel itself, columns and all: no kernel inside.
    """

    def matvec(y):
        product = mass_times(robot, q, free_only(y, prescribed))
        return product if prescribed is None else jnp.where(prescribed, y, product)

    def solve(_, b):
        b = free_only(b, prescribed)
        return solve_with_factors(robot, factors, b) if plain else _apply_factors(robot, factors, b)

    return lax.custom_linear_solve(matvec, free_only(x, prescribed), solve, symmetric=True)
