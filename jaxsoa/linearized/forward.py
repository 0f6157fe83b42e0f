"""The linearized forward model: derivatives of the joint accelerations (linearization paper, section 4).

    da = M^-1 dtau - A_C dv - B_C dq,      A_C = M^-1 A_D,      B_C = M^-1 B_D                  (lemma 4.1)

without forming or inverting the mass matrix (Algorithm 6). Sweeps: those of forward dynamics, inward and outward, and
at its accelerations those of the inverse model. Then (I + H phi K)^-1 = I - H psi K = E and M^-1 = E* D^-1 E (lemmas
4.3, 4.4), and the inverse model of `inverse` in O(N^2) products.

M^-1 and its products with A_D and B_D are O(N^2) by two sweeps that carry all columns, but for small robots products
of dense triangular matrices are faster: `DENSE_UP_TO` says where the two part.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

from jaxsoa.dynamics.articulated import solve_with_factors, vmap_columns, whiten
from jaxsoa.dynamics.inverse import dissipation
from jaxsoa.dynamics.mass import mass_matrix_inverse, solve_mass_matrix
from jaxsoa.dynamics.motion import Drive, factors_of, filtered_inward, smoothed_outward, solve_motion
from jaxsoa.dynamics.newton_euler import Bodies
from jaxsoa.dynamics.springs import taken_off, tangent_stiffness
from jaxsoa.eager import compiled
from jaxsoa.kernels import by_jax, door, ruled
from jaxsoa.linearized.inverse import inverse_model, inverse_model_raw, model_rows
from jaxsoa.linearized.state import moving_state, with_accelerations
from jaxsoa.model.multibody import Multibody

DENSE_UP_TO = 64
"""Degrees of freedom up to which the last products are of dense matrices (O(N^3) with a very small constant)."""


class LinearizedForwardDynamics(NamedTuple):
    """Derivatives of the accelerations: `wrt_q` (along tangent vectors of q), `wrt_v`, and `wrt_tau`, M^-1."""

    wrt_q: Float[Array, "nv nv"]
    wrt_v: Float[Array, "nv nv"]
    wrt_tau: Float[Array, "nv nv"]


class Linearization(NamedTuple):
    """The derivatives, and the accelerations that were found on the way."""

    matrices: LinearizedForwardDynamics
    a: Float[Array, " nv"]


def _model(robot: Multibody, q: Array, v: Array, tau: Array, f_ext: Array | None) -> Linearization:
    """M^-1 and its products with the inverse model at the accelerations that forward dynamics finds."""
    moving = moving_state(robot, q, v)
    bodies = Bodies(moving.offset, moving.axis, moving.velocity[0], moving.bias, moving.body)
    filtered = filtered_inward(robot, bodies, f_ext, Drive(tau - dissipation(robot, v), None, None))
    a, _ = smoothed_outward(robot, filtered)
    tree, gain, pivot_inverse = factors = factors_of(filtered)
    state = with_accelerations(robot, moving, v, a, f_ext)
    wrt_q, wrt_v, _ = inverse_model(robot, model_rows(robot, state), v)
    both, one = jnp.concatenate([wrt_q, wrt_v], axis=1), jnp.eye(robot.nv, dtype=wrt_q.dtype)
    if robot.nv <= DENSE_UP_TO:  # by the triangular factor E, of which most elements are known to be zero
        E = vmap_columns(lambda x: whiten(robot, tree, gain, x))(one)
        half = (E * pivot_inverse[:, None]).T
        columns, inverse = half @ (E @ both), half @ E
    else:  # by sweeps that carry all columns
        solved = vmap_columns(lambda x: solve_with_factors(robot, factors, x))(jnp.concatenate([both, one], axis=1))
        columns, inverse = solved[:, : 2 * robot.nv], solved[:, 2 * robot.nv :]
    by_q, by_v = -columns[:, : robot.nv], -columns[:, robot.nv :]
    return Linearization(LinearizedForwardDynamics(by_q, by_v, inverse), a)


def by_parts(robot: Multibody, q, v, tau, f_ext) -> Linearization:
    """Algorithm 6 from parts that have derivative rules: forward dynamics, the inverse model, solves with M.

    This is what higher derivatives differentiate: O(N^2), nothing of size N^3.
    """
    a, _, _ = solve_motion(robot, q, v, jnp.zeros_like(tau), tau, f_ext, None)
    wrt_q, wrt_v, _ = inverse_model_raw(robot, q, v, a, f_ext)
    columns = solve_mass_matrix(robot, q, jnp.concatenate([wrt_q, wrt_v], axis=1))
    by_q, by_v = -columns[:, : robot.nv], -columns[:, robot.nv :]
    return Linearization(LinearizedForwardDynamics(by_q, by_v, mass_matrix_inverse(robot, q)), a)


_by_kernel = door(_model)


@ruled(by_jax(by_parts))
def _without_springs(robot: Multibody, q, v, tau, f_ext) -> Linearization:
    return _by_kernel(robot, q, v, tau, f_ext)


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
