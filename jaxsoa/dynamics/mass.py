"""The mass matrix: dense by composite bodies, its innovations factors, its inverse in closed form, its determinant.

M = H phi M phi* H* + armature = (I + H phi K) D (I + H phi K)*,   M^-1 = (I - H psi K)* D^-1 (I - H psi K).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from jaxsoa.dynamics.articulated import (
    ArticulatedBody,
    Factors,
    articulated_body,
    carry_force,
    carry_motion,
    color,
    smooth,
    unwhiten,
    whiten,
)
from jaxsoa.dynamics.inverse import composite_bodies
from jaxsoa.dynamics.joints import joint_motion
from jaxsoa.dynamics.kinematics import (
    Kinematics,
    kinematics,
    link_inertias,
    sweep_poses,
    world_axes,
)
from jaxsoa.dynamics.motion import differentiable_solve, mass_times as _mass_times
from jaxsoa.eager import compiled
from jaxsoa.indexing import take_rows
from jaxsoa.kernels import by_jax, door, ruled
from jaxsoa.model.checks import as_float
from jaxsoa.model.multibody import Multibody
from jaxsoa.spatial import ops
from jaxsoa.sweeps import gather, scatter


def _composite_mass_matrix(robot: Multibody, q: Array) -> Array:
    """(nv, nv). With R(k) the composite inertia, the column of degree j is H phi R H*: the force R(j) H*(j) carried
    from link j's origin to every link inboard. Both origins are known, so it is carried there directly: one sweep for R
    and then O(N^2) independent products.
    """
    topology = robot.topology
    motion = joint_motion(robot, q)
    rotation, position, offset = sweep_poses(robot, motion)
    h_w, h_v = world_axes(robot, rotation, motion)
    R = composite_bodies(robot.topology, link_inertias(robot, rotation), offset)
    if not topology.single_dof:
        R, position = jax.tree.map(lambda x: take_rows(x, topology.dof_link), (R, position))
    moment, force = R.times(h_w, h_v)
    arm = position[:, None] - position[None]  # [outboard, inboard]
    lower = ops.dot(h_w[None], moment[:, None] + ops.cross(arm, force[:, None]))
    if h_v is not None:
        lower = lower + ops.dot(h_v[None], force[:, None])
    support = topology.dof_support
    matrix = jnp.where(support, lower, jnp.where(support.T, lower.T, 0))
    return matrix + jnp.where(np.eye(robot.nv, dtype=bool), robot.armature[:, None], 0)


_by_kernel = door(_composite_mass_matrix)


@ruled(by_jax(_composite_mass_matrix))
def dense_mass_matrix(robot: Multibody, q: Array) -> Float[Array, "nv nv"]:
    """`mass_matrix` of checked arguments."""
    return _by_kernel(robot, q)


@compiled
def mass_matrix(robot: Multibody, q: Shaped[Array, " nq"]) -> Float[Array, "nv nv"]:
    """The mass matrix (armature included), by composite bodies: O(N^2).

    Units: rad; kg m^2 (kg m and kg where joints are prismatic).

    >>> print(soa.mass_matrix(robot, q).round(3))
    [[2.544 0.772]
     [0.772 0.333]]
    """
    return dense_mass_matrix(robot, robot.check_q(q))


@compiled(kernel=True)
def mass_times(robot: Multibody, q: Shaped[Array, " nq"], x: Shaped[Array, " nv"]) -> Float[Array, " nv"]:
    """M x without forming M: O(N).

    Units: rad, rad/s^2; N m.

    >>> print(soa.mass_times(robot, q, v).round(3))
    [1.172 0.376]
    """
    return _mass_times(robot, robot.check_q(q), robot.check_v(x, "x"))


def articulated(robot: Multibody, q: Array) -> tuple[Kinematics, ArticulatedBody]:
    """Kinematics and the Riccati sweep at a configuration."""
    kin = kinematics(robot, q)
    return kin, articulated_body(robot, kin, link_inertias(robot, kin.rotation))


def constant_factors(robot: Multibody, q: Array) -> Factors:
    """The factors at a configuration, as constants: stopped at the inputs, no tangent enters the Riccati sweep."""
    return articulated(*jax.lax.stop_gradient((robot, q)))[1].factors


@compiled(kernel=True)
def solve_mass_matrix(robot: Multibody, q: Shaped[Array, " nq"], x: Shaped[Array, " nv"]) -> Float[Array, " nv"]:
    """M^-1 x in O(N), by the factors. x may also be a matrix (nv, m) of columns.

    Units: rad, N m; rad/s^2.

    >>> x = soa.solve_mass_matrix(robot, q, tau)
    >>> print(soa.mass_times(robot, q, x).round(3))  # tau again
    [1.  0.5]
    """
    q = robot.check_q(q)
    x = jnp.asarray(x)
    x = x.astype(jnp.result_type(robot.dtype, q, as_float(x, robot.dtype)))
    factors = constant_factors(robot, q)
    if x.ndim == 2 and x.shape[0] == robot.nv:
        return jax.vmap(lambda c: differentiable_solve(robot, q, factors, c), in_axes=1, out_axes=1)(x)
    return differentiable_solve(robot, q, factors, robot.check_v(x, "x"))


class InertiaFactor(NamedTuple):
    """M = L D L*: `L` = I + H phi K (unit lower triangular up to the order of branches) and the diagonal matrix `D`."""

    L: Float[Array, "nv nv"]
    D: Float[Array, "nv nv"]


@compiled(kernel=True)
def inertia_factor(robot: Multibody, q: Shaped[Array, " nq"]) -> InertiaFactor:
    """The innovations factors (I + H phi K, D), dense (JPL 88-11, 4.11). With the transpose: M = L D L*.

    A joint of several degrees of freedom is factored degree by degree, so D is diagonal (the pivots of the block).

    Units: rad; D in kg m^2.

    >>> L, D = soa.inertia_factor(robot, q)
    >>> print(jnp.allclose(L @ D @ L.T, soa.mass_matrix(robot, q)))
    True
    """
    _, body = articulated(robot, robot.check_q(q))
    columns = jax.vmap(lambda e: unwhiten(robot, body.tree, body.gain, e), in_axes=1, out_axes=1)
    return InertiaFactor(columns(jnp.eye(robot.nv, dtype=body.gain.dtype)), jnp.diag(body.pivot))


@compiled(kernel=True)
def mass_matrix_logdet(robot: Multibody, q: Shaped[Array, " nq"]) -> Float[Array, ""]:
    """log det M = sum of log D(k), in O(N).

    Units: rad.

    >>> print(f"{jnp.exp(soa.mass_matrix_logdet(robot, q)):.3f}", f"{jnp.linalg.det(soa.mass_matrix(robot, q)):.3f}")
    0.252 0.252
    """
    return _logdet(robot, robot.check_q(q))


@jax.custom_jvp
def _logdet(robot: Multibody, q: Array) -> Array:
    return jnp.sum(jnp.log(articulated(robot, q)[1].pivot))


@_logdet.defjvp
def _logdet_jvp(primals, tangents):
    """d log det M = trace(M^-1 dM), columns of dM by differentiating M x: the Riccati sweep is not entered."""
    robot, q = primals
    inverse = _mass_matrix_inverse(robot, q)
    _, d_mass = jax.jvp(dense_mass_matrix, primals, tangents)
    return _logdet(robot, q), jnp.sum(inverse * d_mass)


@compiled(kernel=True)
def mass_matrix_inverse(robot: Multibody, q: Shaped[Array, " nq"]) -> Float[Array, "nv nv"]:
    """M^-1 in O(N^2) from the Riccati factors, never forming or inverting M (JPL 86-48, 10.1-10.3, for trees).

    Units: rad; 1/(kg m^2).

    >>> print((soa.mass_matrix_inverse(robot, q) @ soa.mass_matrix(robot, q)).round(3) + 0.0)
    [[1. 0.]
     [0. 1.]]
    """
    return _mass_matrix_inverse(robot, robot.check_q(q))


@jax.custom_jvp
def _mass_matrix_inverse(robot: Multibody, q: Array) -> Array:
    return _closed_form_inverse(robot, articulated(robot, q)[1])


@_mass_matrix_inverse.defjvp
def _mass_matrix_inverse_jvp(primals, tangents):
    inverse = _mass_matrix_inverse(*primals)
    _, d_mass = jax.jvp(dense_mass_matrix, primals, tangents)
    return inverse, -inverse @ d_mass @ inverse


def costate_covariances(robot: Multibody, body: ArticulatedBody) -> tuple[Array, Array]:
    """Lambda+ and Lambda- of every degree of freedom, (nv, 6, 6) each, by one outward sweep (JPL 86-48, 10.30-10.31).

    Lambda-(k) = psi* H* D^-1 H psi on the diagonal: the operational-space compliance at the link's origin.
    """

    def step(parent, x):
        h, g, offset, inverse = x
        shift = jax.vmap(lambda row: carry_motion(offset, row))
        plus = shift(shift(parent).T)
        update = jnp.eye(6, dtype=h.dtype) - jnp.outer(h, g)  # (I - G H)*
        minus = update @ plus @ update.T + inverse * jnp.outer(h, h)
        return minus, (plus, minus)

    zero = jnp.zeros((6, 6), body.gain.dtype)
    xs = (body.tree.axes, body.gain, body.tree.offset, 1 / body.pivot)
    return scatter(robot.topology.dof_plan, step, zero, xs)


def _closed_form_inverse(robot: Multibody, body: ArticulatedBody) -> Array:
    """M^-1 entry by entry (JPL 86-48, 10.2): with c = D^-1 + G* Lambda+ G and d = G* Lambda+ - c H,

        [k, k] = c(k),    [k, i] = G(k)* psi*(i, k) d(i)*  for k outboard of i,
        [k, i] = G(k)* psi*(j, k) Lambda-(j) psi(j, i) G(i)  for branches that part at j (not in the report).

    Two sweeps that carry one 6-vector per column.
    """
    topology, tree = robot.topology, body.tree
    plus, minus = costate_covariances(robot, body)
    Lg = jnp.einsum("kij,kj->ki", plus, body.gain)
    c = 1 / body.pivot + jnp.sum(body.gain * Lg, axis=1)
    d = Lg - c[:, None] * tree.axes
    below = _strict_support(topology.dof_parents).T  # below[k, i]: i lies strictly outboard of k
    own = np.eye(topology.nv, dtype=bool)

    def inward(F, x):  # F (6, nv): psi(k-, i+) G(i) for all i strictly outboard of k
        h, g, offset, own = x
        out = F - jnp.outer(g, h @ F) + jnp.where(own, g[:, None], 0)
        return jax.vmap(lambda f: carry_force(offset, f), in_axes=1, out_axes=1)(out), F

    zero = jnp.zeros((6, topology.nv), body.gain.dtype)
    _, F = gather(topology.dof_plan, inward, zero, (tree.axes, body.gain, tree.offset, own))

    def outward(Y, x):  # Y (6, nv): minus the co-state of the parent, one column per unit torque
        h, g, offset, d, minus, F, own, below = x
        Y = jax.vmap(lambda y: carry_motion(offset, y), in_axes=1, out_axes=1)(Y)
        row = g @ Y
        passed = Y - jnp.outer(h, row)
        return jnp.where(own, d[:, None], jnp.where(below, minus @ F, passed)), row

    xs = (tree.axes, body.gain, tree.offset, d, minus, F, own, below)
    rows = scatter(topology.dof_plan, outward, zero, xs)
    inverse = jnp.where(own, jnp.diag(c), jnp.where(below, rows.T, rows))
    return inverse


def _strict_support(parents: tuple[int, ...]) -> np.ndarray:
    """[i, k]: degree k lies strictly inboard of degree i."""
    n = len(parents)
    support = np.zeros((n, n), bool)
    for i, parent in enumerate(parents):
        if parent >= 0:
            support[i] = support[parent]
            support[i, parent] = True
    return support


# --- diagonalized coordinates -------------------------------------------------------------------------------------


class InnovationsMotion(NamedTuple):
    """The equations of motion in diagonalized coordinates: nu' + coriolis = epsilon (overview, section 6)."""

    nu: Float[Array, " nv"]
    epsilon: Float[Array, " nv"]
    coriolis: Float[Array, " nv"]


@compiled(kernel=True)
def innovations_velocity(robot: Multibody, q: Shaped[Array, " nq"], v: Shaped[Array, " nv"]) -> Float[Array, " nv"]:
    """nu = D^(1/2) (I + H phi K)* v: coordinates in which the kinetic energy is nu* nu / 2.

    Units: rad, rad/s; J^(1/2).

    >>> nu = soa.innovations_velocity(robot, q, v)
    >>> print(f"{nu @ nu / 2:.4f}", f"{soa.kinetic_energy(robot, q, v):.4f}")  # J
    0.2720 0.2720
    """
    q, v = robot.check_q(q), robot.check_v(v)
    _, body = articulated(robot, q)
    return jnp.sqrt(body.pivot) * color(robot, body.tree, body.gain, v)


@compiled(kernel=True)
def velocity_from_innovations(
    robot: Multibody, q: Shaped[Array, " nq"], nu: Shaped[Array, " nv"]
) -> Float[Array, " nv"]:
    """v of diagonalized coordinates: the inverse of `innovations_velocity`.

    Units: rad, J^(1/2); rad/s.

    >>> nu = soa.innovations_velocity(robot, q, v)
    >>> print(soa.velocity_from_innovations(robot, q, nu).round(3))  # v again
    [0.4 0.2]
    """
    q, nu = robot.check_q(q), robot.check_v(nu, "nu")
    _, body = articulated(robot, q)
    return smooth(robot, body.tree, body.gain, nu / jnp.sqrt(body.pivot))


@compiled(kernel=True)
def innovations_torque(robot: Multibody, q: Shaped[Array, " nq"], tau: Shaped[Array, " nv"]) -> Float[Array, " nv"]:
    """epsilon = D^(-1/2) (I - H psi K) tau: torques in diagonalized coordinates; power is nu* epsilon.

    Units: rad, N m; N m over the root of kg m^2.

    >>> print(soa.innovations_torque(robot, q, tau).round(3))
    [-0.182  0.866]
    """
    q, tau = robot.check_q(q), robot.check_v(tau, "tau")
    _, body = articulated(robot, q)
    return whiten(robot, body.tree, body.gain, tau) / jnp.sqrt(body.pivot)


@compiled
def innovations_motion(
    robot: Multibody, q: Shaped[Array, " nq"], v: Shaped[Array, " nv"], tau: Shaped[Array, " nv"]
) -> InnovationsMotion:
    """The terms of nu' + coriolis(q, nu) = epsilon for the state (q, v) under `tau` (overview, section 6).

    coriolis is found from its definition: nu' differentiates D^(1/2) (I + H phi K)* along the motion, and what M a
    leaves to bias forces enters through the whitening filter. Gravity and friction count as bias.

    Units: rad, rad/s, N m; J^(1/2)/s.

    >>> motion = soa.innovations_motion(robot, q, v, tau)
    >>> print(motion._fields)
    ('nu', 'epsilon', 'coriolis')
    """
    from jaxsoa.dynamics.inverse import bias_force

    q, v, tau = robot.check_q(q), robot.check_v(v), robot.check_v(tau, "tau")
    nu = innovations_velocity(robot, q, v)

    def moved(t):  # the coordinates of the same v a little along the motion
        return innovations_velocity(robot, robot.integrate(q, t * v), v)

    _, drift = jax.jvp(moved, (jnp.zeros((), nu.dtype),), (jnp.ones((), nu.dtype),))
    coriolis = innovations_torque(robot, q, bias_force(robot, q, v)) - drift
    return InnovationsMotion(nu, innovations_torque(robot, q, tau), coriolis)
