"""The linearized forward model: derivatives of the joint accelerations (linearization paper, section 4).

    da = M^-1 dtau - A_C dv - B_C dq,      A_C = M^-1 A_D,      B_C = M^-1 B_D                  (lemma 4.1)

without forming or inverting the mass matrix (Algorithm 6). Sweeps: outward for the motion; inward for the Riccati
recursion with the filter of forward dynamics and the composites of the inverse model; outward for the accelerations;
inward for the forces. Then (I + H phi K)^-1 = I - H psi K = E and M^-1 = E* D^-1 E (lemmas 4.3, 4.4), and the inverse
model of `inverse` in O(N^2) products.

M^-1 and its products with A_D and B_D are O(N^2) by two sweeps that carry all columns, but for small robots products
of dense triangular matrices are faster: `DENSE_UP_TO` says where the two part.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Float, Shaped

from jaxsoa.batching import batch_first, batches_last, chunk_bytes, chunk_of, in_chunks, staged, stored
from jaxsoa.dynamics.articulated import on_first, on_last, riccati_step, solve_in_components, updated
from jaxsoa.dynamics.inverse import dissipation
from jaxsoa.dynamics.mass import mass_matrix_inverse, solve_mass_matrix
from jaxsoa.dynamics.motion import solve_motion
from jaxsoa.dynamics.springs import taken_off, tangent_stiffness
from jaxsoa.eager import compiled
from jaxsoa.kernels import by_jax, door, ruled
from jaxsoa.linearized import spatial_components as sc
from jaxsoa.linearized.inverse import Rows, inverse_model, inverse_model_raw, kernel_for_chains, model_rows
from jaxsoa.linearized.limbs import limb_paths
from jaxsoa.linearized.rates import axis_rates
from jaxsoa.linearized.spatial_components import Spatial
from jaxsoa.linearized.state import (
    MotionState,
    Moving,
    base_motion,
    collect,
    fixed_point_acceleration,
    moving_state,
    net_forces,
    own_composite,
    zeros_of_one,
)
from jaxsoa.model.multibody import Multibody
from jaxsoa.one_kernel import in_one_kernel, one_kernel
from jaxsoa.spatial import ops
from jaxsoa.spatial.inertia import SpatialInertia
from jaxsoa.sweeps import gather, scatter

DENSE_UP_TO = 64
"""Degrees of freedom up to which the last products are of dense matrices (O(N^3) with a very small constant)."""


ROWS_AT_ONCE = 4
"""Of products in loops: more would not be faster, and longer to compile."""


class LinearizedForwardDynamics(NamedTuple):
    """Derivatives of the accelerations: `wrt_q` (along tangent vectors of q), `wrt_v`, and `wrt_tau`, M^-1."""

    wrt_q: Float[Array, "nv nv"]
    wrt_v: Float[Array, "nv nv"]
    wrt_tau: Float[Array, "nv nv"]


def _same(x):
    return x


def _on(where, robot: Multibody, tree):
    return jax.tree.map(lambda x: where(robot, x), tree)


def _forward_sweeps(robot: Multibody, q: Array, v: Array, tau: Array, f_ext: Array | None):
    """(MotionState at the accelerations found, G, 1 / D, accelerations). A batch may trail every argument."""
    topology = robot.topology
    moving = moving_state(robot, q, v)
    body, velocity, axis = moving.body, moving.velocity, moving.axis
    bias_force = body.gyroscopic(velocity[0])
    if f_ext is not None:
        bias_force = sc.subtract(bias_force, ops.split_spatial(f_ext))
    effort = tau - dissipation(robot, v)
    own = own_composite(body, velocity, f_ext)
    bias, offset = _on(on_first, robot, (moving.bias, moving.offset))
    bias_force, own = _on(on_last, robot, (bias_force, own))

    def inward(children, x):
        P, z, outboard = children
        own, b, bias, axis, offset, effort, armature = x
        outboard = jax.tree.map(jnp.add, outboard, own)
        r = riccati_step(SpatialInertia.expanded(P), own.body.full(), axis[0], axis[1], armature)
        z = sc.add(z, r.inertia.times(*bias), b)
        nu = (effort - sc.dot(axis, z)) * r.pivot_inverse
        up = sc.add(z, sc.scale(nu, r.force_per_rate))
        carried = (updated(r).shifted(offset).compact(), sc.carry_force(offset, up), outboard.shifted(offset))
        return carried, (r.gain, nu, r.pivot_inverse, outboard)

    xs = (own, bias_force, bias, axis, offset, effort, robot.armature)
    like = own.ring.force[0][0]
    zero = jnp.zeros_like(like)
    vector, matrix = (zero,) * 3, ((zero,) * 3,) * 3
    nothing = SpatialInertia(matrix, matrix, matrix).compact()
    start = (nothing, (vector, vector), zeros_of_one(own))
    _, (gain, nu, pivot_inverse, outboard) = gather(topology.dof_plan, inward, start, xs)

    def outward(parent, x):
        gain, nu, axis, offset, bias = x
        motion = sc.carry_motion(offset, parent)
        a = nu - sc.dot(gain, motion)
        motion = sc.add(motion, bias, sc.scale(a, axis))
        return motion, (a, motion)

    xs = (gain, nu, axis, offset, bias)
    a, acceleration = scatter(topology.dof_plan, outward, base_motion(robot, xs), xs)
    last = None if topology.single_dof else np.flatnonzero(topology.dof_is_last)
    acceleration, outboard = sc.take((acceleration, outboard), last)
    force = collect(robot, moving.offset, net_forces(moving, acceleration, f_ext))
    rates = axis_rates(robot, axis, velocity, fixed_point_acceleration(velocity, acceleration), v, a)
    return MotionState(moving, acceleration, force, outboard, rates), gain, pivot_inverse, a


def _whitening(robot: Multibody, moving: Moving, gain: Spatial) -> Array:
    """I - H psi K (eq. 4.6 and lemma 4.3): [i, j], a batch trails.

    By one inward sweep that carries columns, those of a limb along the limb's own path to the base.
    """
    paths = limb_paths(robot.topology)

    def step(children, x):
        unit, axis, gain, offset = x
        e = unit - sc.dot(axis, children)
        return sc.carry_force(offset, sc.add(children, sc.scale(e, gain))), e

    like = moving.axis[0][0]
    unit = jnp.asarray(paths.unit, like.dtype).reshape(*paths.unit.shape, *(1,) * (like.ndim - 1))
    zero = (jnp.zeros((paths.unit.shape[1], *like.shape[1:]), like.dtype),) * 3
    xs = sc.take((moving.axis, gain, _on(on_first, robot, moving.offset)), paths.dofs)
    return paths.matrix(gather(paths.plan, step, (zero, zero), (unit, *xs))[1])


class Swept(NamedTuple):
    """What all matrices are made of."""

    rows: Rows  # of the inverse model
    axis: Spatial  # H*, per degree of freedom
    offset: tuple  # per link
    gain: Spatial  # G
    pivot_inverse: Array  # 1 / D
    E: Array | None  # I - H psi K; left out above `DENSE_UP_TO`
    a: Array  # accelerations


def _swept(robot: Multibody, q, v, tau, f_ext, stage=_same) -> Swept:
    state, gain, pivot_inverse, a = stage(_forward_sweeps(robot, q, v, tau, f_ext))
    E = _whitening(robot, state.moving, gain) if robot.nv <= DENSE_UP_TO else None
    return Swept(model_rows(robot, state), state.moving.axis, state.moving.offset, gain, pivot_inverse, E, a)


class Linearization(NamedTuple):
    """The derivatives, and the accelerations that were found on the way."""

    matrices: LinearizedForwardDynamics
    a: Float[Array, " nv"]


def _products(robot: Multibody, v, swept: Swept, stage, to_front) -> Linearization:
    """M^-1 and its products with the inverse model; `to_front` brings a trailing batch axis to the front."""
    rows, axis, offset, gain, pivot_inverse, E, a = swept
    wrt_q, wrt_v, _ = inverse_model(robot, stage(rows), v)
    nv = robot.nv
    if E is None:  # sweeps that carry all columns
        one = jnp.eye(nv, dtype=wrt_q.dtype).reshape(nv, nv, *(1,) * (v.ndim - 1))
        columns = jnp.concatenate([-wrt_q, -wrt_v, jnp.broadcast_to(one, wrt_q.shape)], axis=1)
        axis, offset, gain, pivot_inverse = jax.tree.map(lambda x: x[:, None], (axis, offset, gain, pivot_inverse))
        columns = solve_in_components(robot, axis, offset, gain, pivot_inverse, columns)
        solved, a = to_front((columns, a))
        return Linearization(LinearizedForwardDynamics(*jnp.split(solved, 3, axis=-1)), a)
    both, E, pivot_inverse, a = to_front((jnp.concatenate([wrt_q, wrt_v], axis=1), E, pivot_inverse, a))
    inverse = stage(jnp.einsum("...ki,...kj->...ij", E * pivot_inverse[..., :, None], E))
    product = -(inverse @ both)
    return Linearization(LinearizedForwardDynamics(product[..., :nv], product[..., nv:], inverse), a)


def _in_loops(robot: Multibody, q, v, tau, f_ext) -> tuple[Array, ...]:
    """wrt_q, wrt_v, wrt_tau and the accelerations of a small batch, which trails, without a call of a library."""
    swept = _swept(robot, q, v, tau, f_ext)
    wrt_q, wrt_v, _ = inverse_model(robot, stored(swept.rows), v)
    assert swept.E is not None  # small robots only
    inverse = _product_by_rows(swept.E * swept.pivot_inverse[:, None], swept.E)
    product = -_product_by_rows(inverse, jnp.concatenate([wrt_q, wrt_v], axis=1))  # the inverse is symmetric
    return product[:, : robot.nv], product[:, robot.nv :], inverse, swept.a


def _product_by_rows(a: Array, b: Array) -> Array:
    """a* b for each element of a trailing batch, over which every loop runs."""

    def add_row(total, row):
        return total + row[0][:, None] * row[1], None

    start = jnp.zeros((a.shape[1], *b.shape[1:]), b.dtype)
    return jax.lax.scan(add_row, start, (a, b), unroll=min(len(a), ROWS_AT_ONCE))[0]


def _one(robot, q, v, tau, f_ext) -> Linearization:
    """One evaluation, as the kernel reads it."""
    swept = _swept(robot, q, v, tau, f_ext)
    if swept.E is None:
        return _products(robot, v, swept, stage=_same, to_front=_same)
    wrt_q, wrt_v, _ = inverse_model(robot, swept.rows, v)
    # By the triangular factors, of which most elements are known to be zero.
    E = swept.E
    half = (E * swept.pivot_inverse[:, None]).T
    columns = -half @ (E @ jnp.concatenate([wrt_q, wrt_v], axis=1))
    by_q, by_v = columns[:, : robot.nv], columns[:, robot.nv :]
    return Linearization(LinearizedForwardDynamics(by_q, by_v, half @ E), swept.a)


@custom_vmap
def _by_xla(robot, q, v, tau, f_ext):
    swept = kernel_for_chains(_swept, robot)(robot, q, v, tau, f_ext)
    return _products(robot, v, swept, stage=stored, to_front=_same)


@_by_xla.def_vmap
def _batched(axis_size, in_batched, *arguments):
    in_batched, robot = tuple(in_batched), arguments[0]
    size = chunk_of(axis_size, chunk_bytes(robot.nv), robot.dtype.itemsize, dense=True)

    def together(*arguments):
        robot, q, v, tau, f_ext = batches_last(arguments, in_batched)
        return _products(robot, v, _swept(robot, q, v, tau, f_ext, staged), stage=staged, to_front=batch_first)

    def shared_out(*arguments):
        return in_chunks(together, size, axis_size, in_batched, arguments)

    # Where one chunk holds all, starting its kernels one by one takes as long as they run.
    alone = axis_size <= (size or axis_size) and robot.nv <= DENSE_UP_TO and robot.topology.dof_plan.is_chain
    call = _small_batch(shared_out, in_batched) if alone and in_one_kernel() else shared_out
    outputs = call(*arguments)
    return outputs, jax.tree.map(lambda _: True, outputs)


def _small_batch(shared_out: Callable, in_batched: tuple) -> Callable:
    """A batch as one kernel; a batch of such batches is `shared_out`."""

    @one_kernel
    def kernel(*arguments):
        def last(x, batched):
            return jnp.moveaxis(x, 0, -1) if batched else x[..., None]

        found = _in_loops(*batches_last(arguments, in_batched, last))
        *matrices, a = (jnp.moveaxis(x, -1, 0) for x in found)
        return Linearization(LinearizedForwardDynamics(*matrices), a)

    @custom_vmap
    def call(*arguments):
        return kernel(*arguments)

    @call.def_vmap
    def batch_of_batches(_, outer_batched, *arguments):
        axes = jax.tree.map(lambda b: 0 if b else None, tuple(outer_batched))
        outputs = jax.vmap(shared_out, in_axes=axes)(*arguments)
        return outputs, jax.tree.map(lambda _: True, outputs)

    return call


def by_parts(robot: Multibody, q, v, tau, f_ext) -> Linearization:
    """Algorithm 6 from parts that have derivative rules: forward dynamics, the inverse model, solves with M.

    This is what higher derivatives differentiate: O(N^2), nothing of size N^3.
    """
    a, _, _ = solve_motion(robot, q, v, jnp.zeros_like(tau), tau, f_ext, None)
    wrt_q, wrt_v, _ = inverse_model_raw(robot, q, v, a, f_ext)
    columns = solve_mass_matrix(robot, q, jnp.concatenate([wrt_q, wrt_v], axis=1))
    by_q, by_v = -columns[:, : robot.nv], -columns[:, robot.nv :]
    return Linearization(LinearizedForwardDynamics(by_q, by_v, mass_matrix_inverse(robot, q)), a)


_through_the_door = door(_one, fallback=_by_xla)


@ruled(by_jax(by_parts))
def _without_springs(robot: Multibody, q, v, tau, f_ext) -> Linearization:
    return _through_the_door(robot, q, v, tau, f_ext)


def linearization(robot: Multibody, q, v, tau, f_ext) -> Linearization:
    """`linearize_forward_dynamics` of checked arguments, with the accelerations."""
    if robot.springs is None:
        return _without_springs(robot, q, v, tau, f_ext)
    bare, pull = taken_off(robot, q)
    (wrt_q, wrt_v, wrt_tau), a = _without_springs(bare, q, v, tau + pull, f_ext)
    wrt_q = wrt_q - wrt_tau @ tangent_stiffness(robot, q)
    return Linearization(LinearizedForwardDynamics(wrt_q, wrt_v, wrt_tau), a)


@compiled
def linearize_forward_dynamics(
    robot: Multibody,
    q: Shaped[Array, " nq"],
    v: Shaped[Array, " nv"],
    tau: Shaped[Array, " nv"],
    f_ext: Shaped[Array, "n 6"] | None = None,
) -> LinearizedForwardDynamics:
    """Derivatives of `forward_dynamics` by q, v and tau: three (nv, nv) matrices (Algorithm 6).

    `wrt_q` is the derivative along `robot.integrate(q, dq)`, so it has nv columns for every kind of joint. This is
    the fast way to the full matrices: `jax.jacfwd` of `forward_dynamics` gives the same, one O(N) tangent at a time.

    Units: rad/s^2 per rad, per rad/s and per N m.

    >>> model = soa.linearize_forward_dynamics(robot, q, v, tau)
    >>> print(model.wrt_q.round(3))
    [[-10.227   0.719]
     [  9.268 -10.658]]
    """
    q, v, tau, f_ext = robot.check_q(q), robot.check_v(v), robot.check_v(tau, "tau"), robot.check_f_ext(f_ext)
    return linearization(robot, q, v, tau, f_ext).matrices
