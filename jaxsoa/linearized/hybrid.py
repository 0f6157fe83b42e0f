"""The linearized hybrid model: some joints have prescribed motions, the others given torques.

The linearized equations of motion dtau = M da + A_D dv + B_D dq (linearization paper, eq. 1.2) hold for any split of
what is known. With Z the inverse of the free block of M (zero elsewhere), applied by the factors of hybrid dynamics:

    da = da_p + Z [dtau - B_D dq - A_D dv - M da_p],       dtau_p = [M da + A_D dv + B_D dq] where prescribed.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

from jaxsoa.dynamics.motion import differentiable_solve, solve_motion
from jaxsoa.eager import compiled
from jaxsoa.linearized.inverse import linearize_inverse_dynamics
from jaxsoa.model.multibody import Multibody


class HybridDerivatives(NamedTuple):
    """Derivatives of one result by the state and by what is given: zero columns where an entry is not read."""

    wrt_q: Float[Array, "nv nv"]
    wrt_v: Float[Array, "nv nv"]
    wrt_a: Float[Array, "nv nv"]
    wrt_tau: Float[Array, "nv nv"]


class LinearizedHybridDynamics(NamedTuple):
    """Of the complete accelerations (nv,) and of the complete torques (nv,)."""

    acceleration: HybridDerivatives
    torque: HybridDerivatives


@compiled
def linearize_hybrid_dynamics(
    robot: Multibody,
    q: Shaped[Array, " nq"],
    v: Shaped[Array, " nv"],
    a: Shaped[Array, " nv"],
    tau: Shaped[Array, " nv"],
    prescribed: Shaped[Array, " nv"],
    f_ext: Shaped[Array, "n 6"] | None = None,
) -> LinearizedHybridDynamics:
    """Derivatives of both results of `hybrid_dynamics` by q (along tangents), v, a and tau: (nv, nv) each, O(N^2).

    `prescribed` (bool (nv,)) may be traced: joints are frozen and freed at run time.

    Units: rad/s^2 and N m per rad, per rad/s and per what is given.

    >>> prescribed = soa.prescribed_mask(robot, ["joint1"])
    >>> model = soa.linearize_hybrid_dynamics(robot, q, v, jnp.zeros(2), tau, prescribed)
    >>> print(model.acceleration.wrt_q.round(3) + 0.0)  # the first joint is held, whatever q is
    [[  0.      0.   ]
     [-14.417 -14.628]]
    """
    q, v, a, tau = robot.check_q(q), robot.check_v(v), robot.check_v(a, "a"), robot.check_v(tau, "tau")
    f_ext, prescribed = robot.check_f_ext(f_ext), jnp.asarray(prescribed)
    if prescribed.shape != (robot.nv,) or prescribed.dtype != jnp.bool_:
        raise ValueError(
            f"prescribed must be bool of shape (nv,) = ({robot.nv},), got {prescribed.dtype} {prescribed.shape}."
        )
    motion, _, factors = solve_motion(robot, q, v, a, tau, f_ext, prescribed)
    factors = jax.lax.stop_gradient(factors)
    of_torque = linearize_inverse_dynamics(robot, q, v, motion, f_ext)
    one = jnp.eye(robot.nv, dtype=motion.dtype)
    given = jnp.where(prescribed, one, 0)  # da where prescribed, from da
    known = [of_torque.wrt_q, of_torque.wrt_v, of_torque.wrt_a @ given, jnp.where(prescribed, 0, -one)]
    columns = jnp.concatenate(known, axis=1)
    solved = jax.vmap(lambda x: differentiable_solve(robot, q, factors, x, prescribed), 1, 1)(columns)
    by_q, by_v, by_a, by_tau = (-x for x in jnp.split(solved, 4, axis=1))
    acceleration = HybridDerivatives(by_q, by_v, by_a + given, by_tau)
    extra = (of_torque.wrt_q, of_torque.wrt_v, jnp.zeros_like(one), jnp.zeros_like(one))
    torque = [
        jnp.where(prescribed[:, None], direct + of_torque.wrt_a @ moved, 0)
        for direct, moved in zip(extra, acceleration, strict=True)
    ]
    torque[3] = torque[3] + jnp.where(prescribed, 0, one)
    return LinearizedHybridDynamics(acceleration, HybridDerivatives(*torque))
