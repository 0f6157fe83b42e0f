"""The linearized model of a mechanism in minimal coordinates (constraint embedding).

With v = X y' and a = X y'' + bias the equations of motion are X* [ID(q, X y', X y'' + bias) - tau] = 0. Differentiated
once at the motion found, q moving along the closed configurations (dq = X dy),

    X* M X dy'' = X* dtau - X* [B_D X dy + A_D d(X y') + M d(X y'' + bias)] - dX* [ID - tau],

with B_D, A_D and M by the papers' O(N^2) algorithm; all columns are solved for by the sweeps over aggregate bodies.
"""

from __future__ import annotations

from functools import partial
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
from jaxsoa.eager import compiled
from jaxsoa.kernels import door
from jaxsoa.linearized.inverse import linearize_inverse_dynamics


class LinearizedEmbeddedDynamics(NamedTuple):
    """Derivatives of y'' by the independent coordinates y, their rates y', and the torques on all joints."""

    wrt_y: Float[Array, "ny ny"]
    wrt_rates: Float[Array, "ny ny"]
    wrt_tau: Float[Array, "ny nv"]


@compiled(through_door=False)
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

    >>> robot, loops, q = soa.closed_chain.mechanisms.four_bar()
    >>> q = soa.closed_chain.close_loops(robot, loops, q)
    >>> embedding = soa.closed_chain.embed(robot, loops, ["left1_joint"], q)
    >>> found = jax.jit(soa.closed_chain.linearize_embedded_dynamics)(embedding, q, jnp.ones(1), jnp.zeros(3))
    >>> print(found.wrt_y.round(3))  # 1/s^2
    [[33.281]]
    """
    robot = embedding.robot
    q, rates, tau = robot.check_q(q), checked_rates(embedding, rates, "rates"), robot.check_v(tau, "tau")
    f_ext = robot.check_f_ext(f_ext)
    X, bias, y, excess = _at(embedding, q, rates, tau, f_ext)
    linear = linearize_inverse_dynamics(robot, q, X @ rates, X @ y + bias, f_ext)
    ny = embedding.nv
    column = partial(_by_state, embedding, q, rates, X, y, excess)
    dv, da, turned = jax.vmap(column, out_axes=-1)(jnp.eye(2 * ny, dtype=q.dtype))
    dq = jnp.concatenate([X, jnp.zeros_like(X)], axis=1)
    change = X.T @ (linear.wrt_q @ dq + linear.wrt_v @ dv + linear.wrt_a @ da) + turned
    columns = jnp.concatenate([-change, X.T], axis=1)
    fixed = lax.stop_gradient((embedding, q, X))

    def solve(x: Array) -> Array:
        return lax.custom_linear_solve(
            lambda y: X.T @ mass_times(robot, q, X @ y), x, lambda _, b: _solve(*fixed, b), symmetric=True
        )

    found = jax.vmap(solve, in_axes=1, out_axes=1)(columns)
    return LinearizedEmbeddedDynamics(found[:, :ny], found[:, ny : 2 * ny], found[:, 2 * ny :])


_solve = door(solve_embedded)


@door
def _at(embedding: Embedding, q: Array, rates: Array, tau: Array, f_ext: Array | None) -> tuple[Array, ...]:
    """X, X' y', y'' and what inverse dynamics exceeds the torques by."""
    y = embedded_forward_dynamics(embedding, q, rates, tau, f_ext).rates
    X, bias = embedded_motion(embedding, q, rates)
    return X, bias, y, inverse_dynamics_raw(embedding.robot, q, X @ rates, X @ y + bias, f_ext) - tau


@door
def _by_state(
    embedding: Embedding, q: Array, rates: Array, X: Array, y: Array, excess: Array, direction: Array
) -> tuple[Array, Array, Array]:
    """One column: how v, a and X* excess change as the mechanism moves along (dy, drates)."""
    ny = embedding.nv

    def kinematics(x: Array) -> tuple[Array, Array, Array]:
        moving = rates + x[ny:]
        now = embedded_motion(embedding, embedding.robot.integrate(q, X @ x[:ny]), moving)
        return now.X @ moving, now.X @ y + now.bias, now.X.T @ excess

    return jax.jvp(kinematics, (jnp.zeros_like(direction),), (direction,))[1]
