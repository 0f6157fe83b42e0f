"""All columns of the derivative of a step at once: by q, v and tau, in tangent coordinates of q.

At the impulse found, v+ = v + h FD(q, v, tau + J* lambda / h). Its derivatives at fixed lambda are those of forward
dynamics by Algorithm 6, and M^-1 d(J* lambda) along q. What the impulse answers follows from the natural map r:

    d lambda = -(dr/dlambda)^-1 (dr at fixed lambda),   dv+ = (dv+ at fixed lambda) + M^-1 J* d lambda.

Only geometry is differentiated column by column. The same derivatives one tangent at a time, of every leaf and of
bounces too, are in `derivative`.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from jaxsoa.contact.blocks import LARGEST
from jaxsoa.contact.derivative import implicit_solve, outcome, smoothing
from jaxsoa.contact.problem import Inputs, cones_of, offsets, softened
from jaxsoa.contact.rows import Rows, rows_at
from jaxsoa.contact.scene import Pair, Scene
from jaxsoa.contact.solver import Cones, row_scales
from jaxsoa.kernels import door
from jaxsoa.linearized.forward import linearization
from jaxsoa.model.multibody import Multibody


class LinearizedVelocity(NamedTuple):
    """Velocity after a step, and its derivatives by dq (tangent), dv and dtau side by side."""

    v: Float[Array, " nv"]
    columns: Float[Array, "nv three_nv"]


class _At(NamedTuple):
    """What the law says at a solution: rows, relative velocities and cones."""

    rows: Rows
    sigma: Array
    cones: Cones


def _at(robot: Multibody, scene: Scene, q, v, impulse, dt, pairs: tuple[Pair, ...]) -> _At:
    x = Inputs(robot, scene, (), q, v, v, dt, None)
    rows = rows_at(robot, scene, q, pairs)
    sigma = rows.jacobian @ v + offsets(x, rows, pairs, v)[0] + softened(x, rows, pairs, impulse)
    return _At(rows, sigma, cones_of(x, rows, pairs))


def _carried(robot: Multibody, scene: Scene, q, impulse, pairs: tuple[Pair, ...]) -> tuple[Array, Array]:
    """(J, J* lambda)."""
    J = rows_at(robot, scene, q, pairs).jacobian
    return J, impulse @ J


def _maps(robot: Multibody, scene: Scene, q, v, impulse, G, dt, pairs: tuple[Pair, ...]):
    """(dr/dlambda, dr/dsigma, scale of rows, which contacts do not stick), in scaled rows."""
    rows, sigma, cones = _at(robot, scene, q, v, impulse, dt, pairs)
    one = jnp.eye(G.shape[0], dtype=G.dtype)
    G = G + softened(Inputs(robot, scene, (), q, v, v, dt, None), rows, pairs, one)
    scale = lax.stop_gradient(row_scales(cones, G))
    at = impulse / scale, scale * sigma
    cones = dataclasses.replace(cones, slides=lax.stop_gradient(cones.sliding(*at).astype(G.dtype)))
    kappa = _kappa(scene, rows, cones, impulse, scale, dt)
    of_impulse = cones.natural_jacobian(*at, scale[:, None] * G * scale, kappa)
    of_sigma = cones.natural_jacobian(*at, one, kappa) - cones.natural_jacobian(*at, 0 * one, kappa)
    return of_impulse, of_sigma, scale, cones.slides


def _kappa(scene: Scene, rows: Rows, cones: Cones, impulse, scale, dt) -> Array | None:
    found = smoothing(scene, dt, rows, cones, impulse[None], scale)
    return None if found is None else found[0]


def _along_q(robot: Multibody, scene: Scene, q, v, impulse, scale, slides, dt, dq, pairs: tuple[Pair, ...]):
    """Derivatives along dq of (J* lambda, r) at fixed v+ and lambda."""

    def moved(t):
        of = robot.integrate(q, t * dq)
        rows, sigma, cones = _at(robot, scene, of, v, impulse, dt, pairs)
        kappa = _kappa(scene, rows, cones, impulse, scale, dt)
        r = dataclasses.replace(cones, slides=slides).natural_map(impulse / scale, scale * sigma, kappa)
        return impulse @ rows.jacobian, r

    zero = jnp.zeros((), q.dtype)
    return jax.jvp(moved, (zero,), (jnp.ones_like(zero),))[1]


def _put_together(wrt_q, wrt_v, inverse, J, of_sigma, weights, d_force, dr_q, dt) -> Array:
    """dv+ from its parts at fixed lambda, `weights` (n, nv) being what dv+ answers to -dr: M^-1 J* (dr/dlambda)^-1."""
    held = jnp.eye(J.shape[1], dtype=J.dtype) - (weights.T @ of_sigma) @ J
    in_time = dt * held
    by_q = in_time @ (wrt_q + inverse @ (d_force.T / dt)) - weights.T @ dr_q.T
    return jnp.concatenate([by_q, held + in_time @ wrt_v, in_time @ inverse], axis=1)


def linearized_velocity(robot: Multibody, scene: Scene, q, v, tau, dt) -> LinearizedVelocity:
    """Of a step without bounces, loops and prescribed joints; arguments checked."""
    pairs = scene.pairs(robot)
    found = outcome(Inputs(robot, scene, (), q, v, tau, dt, None), pairs, None)
    impulse, v_next = found.impulse[0], found.v[0]

    def through(function, constants=(0, 1)):
        of = partial(function, pairs=pairs)
        return door(of, constants=constants) if impulse.shape[0] <= LARGEST else of

    J, force = through(_carried)(robot, scene, q, impulse)
    (wrt_q, wrt_v, inverse), _ = linearization(robot, q, v, tau + force / dt, None)
    answer = inverse @ J.T
    of_impulse, of_sigma, scale, slides = through(_maps)(robot, scene, q, v_next, impulse, J @ answer, dt)
    weights = implicit_solve(of_impulse.T, (answer * scale).T, len(pairs))
    along = through(_along_q)
    one = jnp.eye(robot.nv, dtype=wrt_q.dtype)
    d_force, dr_q = jax.vmap(lambda dq: along(robot, scene, q, v_next, impulse, scale, slides, dt, dq))(one)
    put_together = door(_put_together, constants=())
    return LinearizedVelocity(
        v_next, put_together(wrt_q, wrt_v, inverse, J, of_sigma * scale, weights, d_force, dr_q, jnp.asarray(dt))
    )
