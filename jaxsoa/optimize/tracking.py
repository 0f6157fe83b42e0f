"""Holding a robot to a given motion: the torques of the motion fed forward, deviations fed back by a Riccati sweep.

Along the motion (q_k, v_k) inverse dynamics gives the torques, `linearize_step` the deviations' dynamics
dx+ = A dx + B du, and the discrete Riccati recursion backward in time the gains that are best for
sum dx* Q dx + du* R du:

    K = (R + B* P B)^-1 B* P A,      P <- Q + A* P (A - B K),      tau = tau_k - K_k dx.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

from jaxsoa.dynamics.inverse import inverse_dynamics
from jaxsoa.mesh_axes import scan
from jaxsoa.model.multibody import Multibody
from jaxsoa.simulate.linearized_step import linearize_step, semi_implicit_euler


class Tracking(eqx.Module):
    """A controller for `rollout`: tau = feedforward - gain (q - q_k, v - v_k) at step k; held at the last one after."""

    robot: Multibody
    q: Float[Array, "steps nq"]
    v: Float[Array, "steps nv"]
    torques: Float[Array, "steps nv"]
    gains: Float[Array, "steps nv two_nv"]
    dt: Float[Array, ""]

    def __call__(self, time: Array, q: Array, v: Array) -> Float[Array, " nv"]:
        k = jnp.clip(jnp.round(time / self.dt).astype(int), 0, len(self.torques) - 1)
        off = jnp.concatenate([self.robot.difference(self.q[k], q), v - self.v[k]])
        return self.torques[k] - self.gains[k] @ off


def track(
    robot: Multibody,
    q: Shaped[Array, "steps_plus_1 nq"],
    v: Shaped[Array, "steps_plus_1 nv"],
    dt: float | Array,
    *,
    state_weight: Shaped[Array, "*two_nv"] | float = 1.0,
    torque_weight: Shaped[Array, "*nv"] | float = 1e-3,
    step=semi_implicit_euler,
) -> Tracking:
    """The linear-quadratic regulator along a motion q (steps + 1, nq), v (steps + 1, nv) sampled every dt.

    `state_weight` (2 nv,) and `torque_weight` (nv,) are the diagonals of Q and R, or one number each. The motion's
    torques are those of inverse dynamics for the velocity differences, so a motion that the robot can make under
    `step` is followed exactly and needs no feedback.

    >>> swing = soa.rollout(robot, q, v, None, 0.01, steps=5, integrator="semi_implicit_euler")  # free fall
    >>> guide = soa.optimize.track(robot, swing.q, swing.v, 0.01)
    >>> print(guide.gains.shape, jnp.abs(guide.torques).max() < 1e-9)  # N m
    (4, 2, 4) True
    """
    q, v, dt = robot.convert(q, "q"), robot.convert(v, "v"), robot.check_number(dt)
    n, nv = len(q) - 1, robot.nv
    if q.shape != (n + 1, robot.nq) or v.shape != (n + 1, nv) or n < 1:
        raise ValueError(
            f"q and v must be one row per sample, at least two: (steps + 1, {robot.nq}) and (steps + 1, {nv}); "
            f"got {q.shape} and {v.shape}."
        )
    Q = jnp.diag(jnp.broadcast_to(robot.convert(state_weight, "state_weight"), (2 * nv,)))
    R = jnp.diag(jnp.broadcast_to(robot.convert(torque_weight, "torque_weight"), (nv,)))
    torques = jax.vmap(lambda *x: inverse_dynamics(robot, *x))(q[:-1], v[:-1], (v[1:] - v[:-1]) / dt)
    models = jax.vmap(lambda q, v, tau: linearize_step(robot, q, v, tau, dt, step=step))(q[:-1], v[:-1], torques)

    def back(P, model):
        A, B = model
        K = jnp.linalg.solve(R + B.T @ P @ B, B.T @ P @ A)
        P = Q + A.T @ P @ (A - B @ K)
        return (P + P.T) / 2, K

    _, gains = scan(back, Q, models, reverse=True)
    return Tracking(robot, q[:-1], v[:-1], torques, gains, jnp.asarray(dt, q.dtype))
