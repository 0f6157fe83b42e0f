"""The linearized inverse model: derivatives of the joint torques (linearization paper, sections 2 and 3).

    dtau = M da + A_D dv + B_D dq                                                      (eq. 1.2, lemma 3.1)

by Algorithm 2, for trees with any joints: outward sweeps for the motion, inward sweeps for composite quantities, and
then O(N^2) products that are independent of each other (lemma 3.2). With R, R-ring and f the composites outboard of
a link, and the axis rates of `rates`, degree j makes the forces

    x(j) = R H*        x_v(j) = R (rate + spin) + R-ring H*        x_q(j) = R second + R-ring rate + H* x* f

of which each degree i inboard sees H(i) x(j); a degree i outboard of j sees H*(j) and its rates through its own
composites: H(i) R(i) second(j) + H(i) R-ring(i) rate(j), and so on (eq. 3.8).
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
from jaxsoa.dynamics.springs import tangent_stiffness
from jaxsoa.eager import compiled
from jaxsoa.kernels import by_jax, door, ruled
from jaxsoa.linearized import spatial_components as sc
from jaxsoa.linearized.rates import axis_support, dof_links
from jaxsoa.linearized.state import MotionState, dof_positions, motion_state
from jaxsoa.model.multibody import Multibody
from jaxsoa.one_kernel import one_kernel
from jaxsoa.spatial import ops


class LinearizedInverseDynamics(NamedTuple):
    """Derivatives of the torques: `wrt_q` (along tangent vectors of q), `wrt_v`, and `wrt_a`, the mass matrix."""

    wrt_q: Float[Array, "nv nv"]
    wrt_v: Float[Array, "nv nv"]
    wrt_a: Float[Array, "nv nv"]


def dissipation_rate(robot: Multibody, v: Array) -> Array:
    """Derivative of damping and (smooth) Coulomb friction by v, per degree of freedom."""
    t = jnp.tanh(v / robot.friction_velocity)
    return robot.damping + robot.friction * (1 - t * t) / robot.friction_velocity


def products(left: list, right: list) -> Array:
    """[i, j]: sum over components of left(i) right(j)."""
    if left[0].ndim == 1:  # one state: a product of matrices
        return jnp.stack(left).T @ jnp.stack(right)
    terms = [x[:, None] * y[None, :] for x, y in zip(left, right, strict=True)]
    return sum(terms[1:], terms[0])


class Rows(NamedTuple):
    """Per degree of freedom, components (nv, ...): what each entry of the matrices is a product of.

    Motions and forces are moved to one point, the first link's origin.
    """

    axis: list  # H*
    drift: list  # rate + spin
    second: list
    angular: list  # of H*, at its own origin
    force: list  # x
    force_by_v: list  # x_v
    force_by_q: list  # x_q
    ring: list  # R-ring* H*
    ring_by_q: list  # the same, with external forces in it,
    rate_by_q: list  # and what it meets


def model_rows(robot: Multibody, state: MotionState) -> Rows:
    """The rows of a motion and its composites; a batch trails."""
    links = dof_links(robot.topology)
    axis, rate, spin, second = state.rates
    body, ring, ring_ext = sc.take(state.composite, links)
    drift = sc.add(rate, spin)
    x = body.times(axis)
    x_v = sc.add(body.times(drift), ring.times(axis[0]))
    x_q = sc.add(body.times(second), ring.times(rate[0]), sc.cross_force(axis, sc.take(state.force, links)))
    z = ring.transpose_times(axis)
    z_q, rate_q = [*z], [*rate[0]]
    if ring_ext is not None:
        x_q = sc.add(x_q, ring_ext.times(axis[0]))
        z_q, rate_q = [*z_q, *ring_ext.transpose_times(axis)], [*rate_q, *axis[0]]
    arm = dof_positions(robot, state.moving)
    back = ops.negative(arm)
    H, H1, H2 = (sc.flat(*sc.carry_motion(back, m)) for m in (axis, drift, second))
    X, X_v, X_q = (sc.flat(*sc.carry_force(arm, f)) for f in (x, x_v, x_q))
    return Rows(H, H1, H2, [*axis[0]], X, X_v, X_q, [*z], z_q, rate_q)


def inverse_model(robot: Multibody, rows: Rows, v: Array) -> LinearizedInverseDynamics:
    """The three matrices from their rows (lemma 3.2); a batch trails."""
    topology = robot.topology
    H, H1, H2, axis, X, X_v, X_q, z, z_q, rate_q = rows
    tail = (1,) * (v.ndim - 1)
    outer = axis_support(topology)  # degree i moves with degree j
    inner = topology.dof_support.T & ~outer
    diagonal = np.eye(topology.nv, dtype=bool).reshape(topology.nv, topology.nv, *tail)

    def choose(outer_values: Array, inner_values: Array) -> Array:
        keep = outer.reshape(*outer.shape, *tail)
        if (outer | inner).all():
            return jnp.where(keep, outer_values, inner_values)
        return jnp.where(keep, outer_values, jnp.where(inner.reshape(keep.shape), inner_values, 0))

    wrt_a = choose(products(X, H), products(H, X))
    wrt_v = choose(products([*X, *z], [*H1, *axis]), products(H, X_v))
    wrt_q = choose(products([*X, *z_q], [*H2, *rate_q]), products(H, X_q))
    wrt_a = wrt_a + jnp.where(diagonal, robot.armature[:, None], 0)
    wrt_v = wrt_v + jnp.where(diagonal, dissipation_rate(robot, v)[:, None], 0)
    return LinearizedInverseDynamics(wrt_q, wrt_v, wrt_a)


def motion_rows(robot: Multibody, q: Array, v: Array, a: Array, f_ext: Array | None) -> Rows:
    return model_rows(robot, motion_state(robot, q, v, a, f_ext))


def inverse_model_raw(robot: Multibody, q: Array, v: Array, a: Array, f_ext: Array | None):
    """`linearize_inverse_dynamics` of checked arguments, differentiable by plain JAX."""
    return inverse_model(robot, stored(motion_rows(robot, q, v, a, f_ext)), v)


def kernel_for_chains(function: Callable, robot: Multibody) -> Callable:
    """In components the sweeps over a tree are thousands of small loops, which as one kernel take XLA twice as long to
    compile as they do one by one; those over a chain are few."""
    return one_kernel(function) if robot.topology.dof_plan.is_chain else function


def _one(robot, q, v, a, f_ext) -> LinearizedInverseDynamics:
    """One evaluation, as the kernel reads it."""
    return inverse_model(robot, motion_rows(robot, q, v, a, f_ext), v)


@custom_vmap
def _by_xla(robot, q, v, a, f_ext):
    rows = kernel_for_chains(motion_rows, robot)(robot, q, v, a, f_ext)
    return inverse_model(robot, stored(rows), v)


@_by_xla.def_vmap
def _batched(axis_size, in_batched, *arguments):
    def together(*arguments):
        arguments = batches_last(arguments, tuple(in_batched))
        robot, q, v, a, f_ext = arguments
        state = staged(motion_state(robot, q, v, a, f_ext))
        return batch_first(inverse_model(robot, staged(model_rows(robot, state)), v))

    size = chunk_of(axis_size, chunk_bytes(arguments[0].nv), arguments[0].dtype.itemsize, dense=True)
    outputs = in_chunks(together, size, axis_size, tuple(in_batched), arguments)
    return outputs, jax.tree.map(lambda _: True, outputs)


_through_the_door = door(_one, fallback=_by_xla)


@ruled(by_jax(inverse_model_raw))
def _linearize(robot, q, v, a, f_ext):
    """`linearize_inverse_dynamics` of checked arguments; higher derivatives differentiate the same formulas."""
    return _through_the_door(robot, q, v, a, f_ext)


@compiled
def linearize_inverse_dynamics(
    robot: Multibody,
    q: Shaped[Array, " nq"],
    v: Shaped[Array, " nv"],
    a: Shaped[Array, " nv"],
    f_ext: Shaped[Array, "n 6"] | None = None,
) -> LinearizedInverseDynamics:
    """Derivatives of `inverse_dynamics` by q, v and a: three (nv, nv) matrices in O(N^2) (Algorithm 2).

    `wrt_q` is the derivative along `robot.integrate(q, dq)`, so it has nv columns for every kind of joint. `f_ext`
    keeps its direction in the world and its point of attack, the link's origin.

    Units: N m per rad, per rad/s and per rad/s^2.

    >>> model = soa.linearize_inverse_dynamics(robot, q, v, jnp.zeros(2))
    >>> print(model.wrt_q.round(3))
    [[18.865  4.719]
     [ 4.807  4.877]]
    """
    q, v, a, f_ext = robot.check_q(q), robot.check_v(v), robot.check_v(a, "a"), robot.check_f_ext(f_ext)
    if robot.springs is None:
        return _linearize(robot, q, v, a, f_ext)
    wrt_q, wrt_v, wrt_a = _linearize(robot.with_springs(None), q, v, a, f_ext)
    return LinearizedInverseDynamics(wrt_q + tangent_stiffness(robot, q), wrt_v, wrt_a)
