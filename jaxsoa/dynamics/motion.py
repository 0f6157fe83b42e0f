"""Forward and hybrid dynamics in three sweeps, with derivatives that never enter the Riccati recursion.

`solve_motion` finds the accelerations of the free degrees of freedom and the torques of the prescribed ones; forward
dynamics is the case where none is prescribed. Outward: poses, velocities, biases. Inward: the Riccati sweep with the
filter z. Outward: accelerations (DARTS 7, the boxed algorithm; its hybrid form for prescribed motion). A floating base
is taken apart from its limbs: see `floating_base`.

Derivatives (forward, reverse, any order): along any tangent of state, inputs or model,
    da = M^-1 [dtau - dID(q, v, a)],
with inverse dynamics differentiated at fixed a and M^-1 applied by the factors at hand, in two sweeps.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from jaxsoa.batching import either_way, linear_zeros
from jaxsoa.dynamics.articulated import (
    DofTree,
    Factors,
    free_only,
    on_first,
    on_last,
    riccati_step,
    solve_over_dofs,
    solve_with_factors,
    updated,
)
from jaxsoa.dynamics.floating_base import Drive, eliminate, halves, inertia_matrix, release, spatial_vector
from jaxsoa.dynamics.inverse import accelerations, newton_euler, project, sum_outboard
from jaxsoa.dynamics.kinematics import base_vector, joint_rates, kinematics, link_inertias, spatial_rows
from jaxsoa.dynamics.newton_euler import Bodies, bias_force, bodies_on, dissipation, moving_bodies
from jaxsoa.dynamics.springs import unsprung
from jaxsoa.dynamics.tangents import Varying, perturbed_motion
from jaxsoa.kernels import is_zero, ruled
from jaxsoa.model.floating import trunk_and_limbs
from jaxsoa.model.multibody import Multibody
from jaxsoa.spatial import ops
from jaxsoa.spatial.inertia import SpatialInertia
from jaxsoa.sweeps import gather, scatter


class Filtered(NamedTuple):
    """What the inward sweep leaves for the outward one, per degree of freedom."""

    gain: tuple
    nu: Array
    pivot_inverse: Array
    reaction: tuple | None  # where motion is prescribed
    axes: tuple
    offset: Any
    bias: tuple


def _filter(robot: Multibody, bodies: Bodies, f_ext, drive: Drive, split: bool) -> tuple[tuple, Filtered]:
    """The Riccati sweep with the filter z: (articulated inertia and z that reach the base, what it leaves)."""
    h_w, h_v = bodies.axes

    def on(where, tree):
        return jax.tree.map(lambda x: where(robot, x), tree)

    b_w, b_v, body = on(on_last, (*bias_force(bodies, f_ext, split), bodies.inertias))
    a_w, a_v, offset = on(on_first, (*bodies.bias, bodies.offset))
    if drive.given is not None:
        a_w = jax.vmap(lambda a, s, h: ops.add(a, ops.scale(s, h)))(a_w, drive.given, h_w)
        if h_v is not None:
            a_v = jax.vmap(lambda a, s, h: ops.add(a, ops.scale(s, h)))(a_v, drive.given, h_v)

    def along(h_w, h_v, f_w, f_v):
        return ops.dot(h_w, f_w) if h_v is None else ops.dot(h_w, f_w) + ops.dot(h_v, f_v)

    def inward(children, x):
        P, z_w, z_v = SpatialInertia.expanded(children[0]), *children[1:]
        body, b_w, b_v, a_w, a_v, h_w, h_v, offset, effort, armature, mask = x
        r = riccati_step(P, body, h_w, h_v, armature, mask)
        Pa_w, Pa_v = r.inertia.times(a_w, a_v)
        z_w, z_v = ops.add(z_w, Pa_w, b_w), ops.add(z_v, Pa_v, b_v)
        projected = along(h_w, h_v, z_w, z_v)
        nu = (effort - projected) * r.pivot_inverse
        u_w, u_v = r.force_per_rate
        up_w, up_v = ops.add(z_w, ops.scale(nu, u_w)), ops.add(z_v, ops.scale(nu, u_v))
        carried = (updated(r).shifted(offset).compact(), ops.add(up_w, ops.cross(offset, up_v)), up_v)
        reaction = None if mask is None else (u_w, u_v, projected)
        return carried, (r.gain, nu, r.pivot_inverse, reaction)

    xs = (body, b_w, b_v, a_w, a_v, h_w, h_v, offset, drive.effort, robot.armature, drive.prescribed)
    zero = base_vector(jnp.zeros_like(robot.gravity), xs, split)
    nothing = SpatialInertia(*((zero, zero, zero) if split else jnp.zeros((3, 3), zero.dtype) for _ in range(3)))
    total, left = gather(robot.topology.dof_plan, inward, (nothing.compact(), zero, zero), xs)
    gain, nu, pivot_inverse, reaction = left
    return total, Filtered(gain, nu, pivot_inverse, reaction, bodies.axes, offset, (a_w, a_v))


def _smooth(robot: Multibody, filtered: Filtered, base: tuple) -> tuple[Array, Array | None]:
    """Accelerations of the degrees of freedom from that of the base, and the torques felt where prescribed."""

    def outward(parent, x):
        w, v = parent
        (g_w, g_v), nu, _, u, (h_w, h_v), offset, (a_w, a_v) = x
        v = ops.add(v, ops.cross(w, offset))
        a = nu - ops.dot(g_w, w) - ops.dot(g_v, v)
        felt = None if u is None else ops.dot(u[0], w) + ops.dot(u[1], v) + u[2]
        v = ops.add(v, a_v) if h_v is None else ops.add(v, a_v, ops.scale(a, h_v))
        return (ops.add(w, a_w, ops.scale(a, h_w)), v), (a, felt)

    return scatter(robot.topology.dof_plan, outward, base, filtered)


def _factors(filtered: Filtered) -> Factors:
    tree = DofTree(spatial_rows(*filtered.axes), ops.join_vector(filtered.offset))
    return Factors(tree, spatial_rows(*filtered.gain), filtered.pivot_inverse)


def _on_a_base(robot: Multibody, q, v, f_ext, drive: Drive, split: bool) -> tuple[Array, Array | None, Factors]:
    """(accelerations, torques felt, factors) by three sweeps over the whole tree."""
    _, filtered = _filter(robot, moving_bodies(robot, q, v, split), f_ext, drive, split)
    base = tuple(base_vector(x, filtered, split) for x in (jnp.zeros_like(robot.gravity), -robot.gravity))
    return *_smooth(robot, filtered, base), _factors(filtered)


def _floating(robot: Multibody, q, v, f_ext, drive: Drive, split: bool) -> tuple[Array, Array | None, Factors]:
    """The same where the first link floats: sweeps over its limbs, and its own joint in between."""
    trunk, limbs = trunk_and_limbs(robot)
    own, rest = drive.part(slice(trunk.nv)), drive.part(slice(trunk.nv, None))
    own_f_ext, rest_f_ext = (None, None) if f_ext is None else (f_ext[:1], f_ext[1:])
    body, motion = bodies_on(trunk, q[: trunk.nq], v[: trunk.nv], split)
    of_link = partial(jax.tree.map, lambda x: x[0])
    bodies, _ = bodies_on(limbs, q[trunk.nq :], v[trunk.nv :], split, of_link(motion))
    total, filtered = _filter(limbs, bodies, rest_f_ext, rest, split)

    inertia = SpatialInertia.expanded(total[0]).plus_rigid_body(of_link(body.inertias))
    force = spatial_vector(*total[1:]) + spatial_vector(*of_link(bias_force(body, own_f_ext, split)))
    axes = spatial_rows(*body.axes)
    found = eliminate(trunk.topology, inertia_matrix(inertia), force, axes, trunk.armature, own)
    base = spatial_vector(jnp.zeros_like(robot.gravity), -robot.gravity) + spatial_vector(*of_link(body.bias))
    a, felt, base = release(trunk.topology, found, axes, own.given, base)

    rest_a, rest_felt = _smooth(limbs, filtered, halves(base, split))
    offset = ops.join_vector(jax.tree.map(lambda x: on_first(trunk, x), body.offset))
    factors = Factors(DofTree(axes, offset), found.gain, found.pivot_inverse)
    joined = jax.tree.map(lambda *x: jnp.concatenate(x), factors, _factors(filtered))
    both = jnp.concatenate([a, rest_a])
    return both, None if felt is None or rest_felt is None else jnp.concatenate([felt, rest_felt]), joined


def _sweeps(robot: Multibody, q, v, a, tau, f_ext, prescribed, split: bool) -> tuple[Array, Array, Factors]:
    """The three sweeps, packed or (`split`) in components, from end to end.

    In components everything is element-wise, so a batch may trail every argument: q (nq, batch), leaves of the robot
    (..., batch) or (..., 1). `a` is read where prescribed, `tau` elsewhere; `prescribed` None means nothing is.
    """
    given = None if prescribed is None else jnp.where(prescribed, a, 0)
    drive = Drive(tau - dissipation(robot, v), given, prescribed)
    solve = _floating if robot.topology.floats else _on_a_base
    found, felt, factors = solve(robot, q, v, f_ext, drive, split)
    factors = jax.tree.map(lambda x: x.astype(found.dtype), factors)  # external forces may be more precise than poses
    if prescribed is None or felt is None:
        return found, tau.astype(found.dtype), factors
    acceleration = jnp.where(prescribed, a, found)
    needed = felt + robot.armature * acceleration + dissipation(robot, v)
    return acceleration, jnp.where(prescribed, needed, tau), factors


_sweeps_either_way = either_way(_sweeps)


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
    return outputs, jax.tree.map(lambda d, x: d.astype(x.dtype), d_outputs, outputs)


@ruled(_solve_motion_rule)
def _without_springs(robot: Multibody, q, v, a, tau, f_ext, prescribed) -> tuple[Array, Array, Factors]:
    return _sweeps_either_way(robot, q, v, a, tau, f_ext, prescribed)


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


def _solve(robot: Multibody, factors: Factors, x: Array, split: bool) -> Array:
    if not split:
        return solve_with_factors(robot, factors, x)
    axes, offset = factors.tree
    axes, gain = ops.split_spatial(axes), ops.split_spatial(factors.gain)
    return solve_over_dofs(robot, axes, ops.split_vector(offset), gain, factors.pivot_inverse, x)


_apply_factors = either_way(_solve, linear=True)


def differentiable_solve(robot: Multibody, q: Array, factors: Factors, x: Array, prescribed=None) -> Array:
    """M^-1 x by the factors, whose own derivatives are replaced by those of M x = b.

    With `prescribed`, M is its block of free degrees of freedom and the result is zero elsewhere.
    """

    def matvec(y):
        product = mass_times(robot, q, free_only(y, prescribed))
        return product if prescribed is None else jnp.where(prescribed, y, product)

    def solve(_, b):
        return _apply_factors(robot, factors, free_only(b, prescribed))

    return lax.custom_linear_solve(matvec, free_only(x, prescribed), solve, symmetric=True)
