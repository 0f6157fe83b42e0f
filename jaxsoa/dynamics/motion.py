"""Forward and hybrid dynamics in three sweeps, with derivatives that never enter the Riccati recursion.

`solve_motion` finds the accelerations of the free degrees of freedom and the torques of the prescribed ones; forward
dynamics is the case where none is prescribed. Outward: poses, velocities, biases. Inward: the Riccati sweep with the
filter z. Outward: accelerations (DARTS 7, the boxed algorithm; its hybrid form for prescribed motion).

Derivatives (forward, reverse, any order): along any tangent of state, inputs or model,
    da = M^-1 [dtau - dID(q, v, a)],
with inverse dynamics differentiated at fixed a and M^-1 applied by the factors at hand, in two sweeps.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array

from jaxsoa.batching import batch_last
from jaxsoa.dynamics.articulated import (
    DofTree,
    Factors,
    free_only,
    on_first,
    on_last,
    riccati_step,
    solve_with_factors,
    updated,
)
from jaxsoa.dynamics.inverse import (
    accelerations,
    dissipation,
    inverse_dynamics_raw,
    newton_euler,
    project,
    sum_outboard,
)
from jaxsoa.dynamics.kinematics import (
    base_vector,
    joint_motion,
    joint_rates,
    kinematics,
    link_inertias,
    spatial_rows,
    sweep_motion,
    world_axes,
)
from jaxsoa.model.multibody import Multibody
from jaxsoa.spatial import ops
from jaxsoa.spatial.inertia import RigidInertia, SpatialInertia, rigid_inertia
from jaxsoa.sweeps import gather, scatter


def _sweeps(robot: Multibody, q, v, a, tau, f_ext, prescribed, split: bool) -> tuple[Array, Array, Factors]:
    """The three sweeps, packed or (`split`) in components, from end to end.

    In components everything is element-wise, so a batch may trail every argument: q (nq, batch), leaves of the robot
    (..., batch) or (..., 1). `a` is read where prescribed, `tau` elsewhere; `prescribed` None means nothing is.
    """
    vector = ops.split_vector if split else lambda x: x
    matrix = ops.split_matrix if split else lambda m: m
    topology = robot.topology
    motion = joint_motion(robot, q, v, split)
    link = sweep_motion(robot, motion, split)
    inertia = (robot.inertia + jnp.swapaxes(robot.inertia, 1, 2)) / 2
    inertias = jax.vmap(rigid_inertia)(link.rotation, robot.mass, vector(robot.com), matrix(inertia))
    b_w, b_v = jax.vmap(RigidInertia.gyroscopic)(inertias, link.angular)
    if f_ext is not None:
        b_w = ops.add(b_w, ops.negative(vector(f_ext[:, :3])))
        b_v = ops.add(b_v, ops.negative(vector(f_ext[:, 3:])))

    def on(where, tree):
        return jax.tree.map(lambda x: where(robot, x), tree)

    b_w, b_v, body = on(on_last, (b_w, b_v, inertias))
    a_w, a_v, offset = on(on_first, (link.bias_angular, link.bias_linear, link.offset))
    h_w, h_v = world_axes(robot, link.rotation, motion)
    effort = tau - dissipation(robot, v)
    if prescribed is not None:
        given = jnp.where(prescribed, a, 0)
        a_w = jax.vmap(lambda a, s, h: ops.add(a, ops.scale(s, h)))(a_w, given, h_w)
        if h_v is not None:
            a_v = jax.vmap(lambda a, s, h: ops.add(a, ops.scale(s, h)))(a_v, given, h_v)

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
        return carried, (*r.gain, nu, r.pivot_inverse, reaction)

    xs = (body, b_w, b_v, a_w, a_v, h_w, h_v, offset, effort, robot.armature, prescribed)
    zero = base_vector(jnp.zeros_like(robot.gravity), xs, split)
    nothing = SpatialInertia(*((zero, zero, zero) if split else jnp.zeros((3, 3), zero.dtype) for _ in range(3)))
    _, (g_w, g_v, nu, pivot_inverse, reaction) = gather(topology.dof_plan, inward, (nothing.compact(), zero, zero), xs)

    def outward(parent, x):
        w, v = parent
        g_w, g_v, nu, h_w, h_v, offset, a_w, a_v, u = x
        v = ops.add(v, ops.cross(w, offset))
        a = nu - ops.dot(g_w, w) - ops.dot(g_v, v)
        felt = None if u is None else ops.dot(u[0], w) + ops.dot(u[1], v) + u[2]
        v = ops.add(v, a_v) if h_v is None else ops.add(v, a_v, ops.scale(a, h_v))
        return (ops.add(w, a_w, ops.scale(a, h_w)), v), (a, felt)

    xs = (g_w, g_v, nu, h_w, h_v, offset, a_w, a_v, reaction)
    base = (zero, base_vector(-robot.gravity, xs, split))
    found, felt = scatter(topology.dof_plan, outward, base, xs)
    axes = spatial_rows(h_w, h_v)
    factors = Factors(DofTree(axes, ops.join_vector(offset)), spatial_rows(g_w, g_v), pivot_inverse)
    if prescribed is None:
        return found, tau.astype(found.dtype), factors
    acceleration = jnp.where(prescribed, a, found)
    needed = felt + robot.armature * acceleration + dissipation(robot, v)
    return acceleration, jnp.where(prescribed, needed, tau), factors


@custom_vmap
def _sweeps_either_way(robot, q, v, a, tau, f_ext, prescribed):
    """One evaluation runs packed: few, small operations. A batch runs in components: long element-wise loops."""
    return _sweeps(robot, q, v, a, tau, f_ext, prescribed, split=False)


@_sweeps_either_way.def_vmap
def _batched_sweeps(axis_size, in_batched, *arguments):
    outputs = _sweeps(*jax.tree.map(batch_last, tuple(arguments), tuple(in_batched)), split=True)

    def batch_first(x):
        return jnp.moveaxis(jnp.broadcast_to(x, (*x.shape[:-1], axis_size)), -1, 0)

    return jax.tree.map(batch_first, outputs), jax.tree.map(lambda _: True, outputs)


@jax.custom_jvp
def solve_motion(robot: Multibody, q, v, a, tau, f_ext, prescribed) -> tuple[Array, Array, Factors]:
    """(accelerations, torques, factors), complete: given where given, found where not. `prescribed` may be None."""
    return _sweeps_either_way(robot, q, v, a, tau, f_ext, prescribed)


def _is_zero(t) -> bool:
    return isinstance(t, SymbolicZero)


def _solve_motion_jvp(primals, tangents):
    robot, q, v, a, tau, f_ext, prescribed = primals
    outputs = solve_motion(robot, q, v, a, tau, f_ext, prescribed)
    acceleration, _, factors = outputs
    factors = jax.tree.map(lax.stop_gradient, factors)
    d_robot, d_q, d_v, d_a, d_tau, d_f_ext, _ = tangents

    # Differentiate inverse dynamics only along what really varies: zeros cost nothing.
    primal_leaves, structure = jax.tree.flatten((robot, q, v, f_ext))
    tangent_leaves = jax.tree.leaves((d_robot, d_q, d_v, d_f_ext), is_leaf=_is_zero)
    varying = [i for i, t in enumerate(tangent_leaves) if not _is_zero(t)]

    def torque(*leaves):
        full = list(primal_leaves)
        for i, leaf in zip(varying, leaves, strict=True):
            full[i] = leaf
        robot, q, v, f_ext = jax.tree.unflatten(structure, full)
        return inverse_dynamics_raw(robot, q, v, acceleration, f_ext)

    d_torque = jnp.zeros_like(acceleration)
    if varying:
        _, d_torque = jax.jvp(torque, [primal_leaves[i] for i in varying], [tangent_leaves[i] for i in varying])
    d_given = jnp.zeros_like(acceleration)
    if prescribed is not None and not _is_zero(d_a):
        d_given = jnp.where(prescribed, d_a, 0)
        d_torque = d_torque + mass_times(robot, q, d_given)
    d_tau = jnp.zeros_like(acceleration) if _is_zero(d_tau) else d_tau
    d_found = differentiable_solve(robot, q, factors, d_tau - d_torque, prescribed)
    if prescribed is None:
        d_acceleration, d_torques = d_found, d_tau
    else:
        d_acceleration = jnp.where(prescribed, d_given, d_found)
        d_torques = jnp.where(prescribed, d_torque + mass_times(robot, q, free_only(d_found, prescribed)), d_tau)
    d_outputs = (d_acceleration, d_torques, jax.tree.map(jnp.zeros_like, outputs[2]))
    d_outputs = jax.tree.map(lambda d, x: d.astype(x.dtype), d_outputs, outputs)
    return outputs, d_outputs


solve_motion.defjvp(_solve_motion_jvp, symbolic_zeros=True)


def mass_times(robot: Multibody, q: Array, x: Array) -> Array:
    """M x in two sweeps, differentiable by plain JAX: H phi M phi* H* x + armature x."""
    kin = kinematics(robot, q)
    zero = jnp.zeros(3, jnp.result_type(kin.axes, x))
    alpha = accelerations(robot, kin.offset, joint_rates(robot, kin.axes, x), (zero, zero))
    forces = newton_euler(link_inertias(robot, kin.rotation), alpha, jnp.zeros(6, alpha.dtype))
    return project(robot, kin.axes, sum_outboard(robot, kin.offset, forces)) + robot.armature * x


def differentiable_solve(robot: Multibody, q: Array, factors: Factors, x: Array, prescribed=None) -> Array:
    """M^-1 x by the factors, whose own derivatives are replaced by those of M x = b.

    With `prescribed`, M is its block of free degrees of freedom and the result is zero elsewhere.
    """

    def matvec(y):
        product = mass_times(robot, q, free_only(y, prescribed))
        return product if prescribed is None else jnp.where(prescribed, y, product)

    def solve(_, b):
        return solve_with_factors(robot, factors, free_only(b, prescribed))

    return lax.custom_linear_solve(matvec, free_only(x, prescribed), solve, symmetric=True)
