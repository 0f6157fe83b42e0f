"""The linearized model of a mechanism in minimal coordinates (constraint embedding).

With v = X y' and a = X y'' + bias the equations of motion are X* [ID(q, X y', X y'' + bias) - tau] = 0. Differentiated
once at the motion found, q moving along the closed configurations (dq = X dy),

    X* M X dy'' = X* dtau - X* [B_D X dy + A_D d(X y') + M d(X y'' + bias)] - dX* [ID - tau],

with B_D, A_D and M by the papers' O(N^2) algorithm; all columns are solved for by the sweeps over aggregate bodies.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Shaped

from jaxsoa.closed_chain.embedding import (
    Embedding,
    checked_rates,
    embedded_forward_dynamics,
    embedded_motion,
    solve_embedded,
)
from jaxsoa.dynamics.inverse import inverse_dynamics_raw
from jaxsoa.dynamics.motion import mass_times
from jaxsoa.linearized.inverse import linearize_inverse_dynamics


class LinearizedEmbeddedDynamics(NamedTuple):
    """Derivatives of y'' by the independent coordinates y, their rates y', and the torques on all joints."""

    wrt_y: Float[Array, "ny ny"]
    wrt_rates: Float[Array, "ny ny"]
    wrt_tau: Float[Array, "ny nv"]


def linearize_embedded_dynamics(
    embedding: Embedding,
    q: Shaped[Array, " nq"],
    rates: Shaped[Array, " ny"],
    tau: Shaped[Array, " nv"],
    f_ext: Shaped[Array, "n 6"] | None = None,
) -> LinearizedEmbeddedDynamics:
    """Derivatives of `embedded_forward_dynamics(...).rates` at a closed configuration q.

    `wrt_y` is along motions of the mechanism: y by a tangent dy, q by X dy. O(N^2); the aggregates' X is differentiated
    as the small linear systems that it solves.
    """
    robot = embedding.robot
    q, rates, tau = robot.check_q(q), checked_rates(embedding, rates, "rates"), robot.check_v(tau, "tau")
    f_ext = robot.check_f_ext(f_ext)
    y = embedded_forward_dynamics(embedding, q, rates, tau, f_ext).rates
    at = embedded_motion(embedding, q, rates)
    X, a = at.X, at.X @ y + at.bias
    excess = inverse_dynamics_raw(robot, q, X @ rates, a, f_ext) - tau
    linear = linearize_inverse_dynamics(robot, q, X @ rates, a, f_ext)
    ny = embedding.nv

    def kinematics(x: Array) -> tuple[Array, Array, Array]:
        """v, a and X* excess as the mechanism moves by x = (dy, drates)."""
        now = embedded_motion(embedding, robot.integrate(q, X @ x[:ny]), rates + x[ny:])
        return now.X @ (rates + x[ny:]), now.X @ y + now.bias, now.X.T @ excess

    dv, da, turned = jax.jacfwd(kinematics)(jnp.zeros(2 * ny, q.dtype))
    dq = jnp.concatenate([X, jnp.zeros_like(X)], axis=1)
    change = X.T @ (linear.wrt_q @ dq + linear.wrt_v @ dv + linear.wrt_a @ da) + turned
    columns = jnp.concatenate([-change, X.T], axis=1)
    fixed = lax.stop_gradient((embedding, q, X))

    def solve(x: Array) -> Array:
        return lax.custom_linear_solve(
            lambda y: X.T @ mass_times(robot, q, X @ y), x, lambda _, b: solve_embedded(*fixed, b), symmetric=True
        )

    found = jax.vmap(solve, in_axes=1, out_axes=1)(columns)
    return LinearizedEmbeddedDynamics(found[:, :ny], found[:, ny : 2 * ny], found[:, 2 * ny :])
