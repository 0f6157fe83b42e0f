"""Velocities that move frames as asked, and how well a configuration can do that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

from jaxsoa.dynamics.kinematics import frame_axes, jacobian, kinematics
from jaxsoa.eager import compiled
from jaxsoa.ik.coordinates import bounds, coordinates
from jaxsoa.model.mimics import check_mimics
from jaxsoa.model.multibody import Multibody
from jaxsoa.optimize.box_qp import box_qp

ROWS = {"all": slice(0, 6), "angular": slice(0, 3), "linear": slice(3, 6)}


def differential_inverse_kinematics(
    robot: Multibody,
    q: Shaped[Array, " nq"],
    frames: Sequence[str] | str,
    twists: Any,
    dt: float | Array,
    *,
    weights: Any = None,
    damping: float | Array = 1e-6,
    rest_velocity: Shaped[Array, " nv"] | None = None,
    rest_weight: float | Array = 0.0,
    limits: bool = True,
    mimics: str = "coupled",
) -> Float[Array, " nv"]:
    """The velocity v (nv,) that best moves the frames with the twists (6,) asked for, world axes, angular first.

        minimize  sum |w (J v - twist)|^2 + damping |v|^2 + rest_weight |v - rest_velocity|^2

    within the velocity limits, and such that a step dt stays inside the position limits: a box-constrained least
    squares problem, solved exactly. Hand `robot.integrate(q, dt * v)` on to take the step.

    Units: rad, twists in rad/s and m/s, s; rad/s.

    >>> twist = soa.jacobian(robot, q, "tip") @ v
    >>> print(soa.differential_inverse_kinematics(robot, q, "tip", twist, 0.01).round(3))  # v again
    [0.4 0.2]
    """
    q = robot.check_q(q)
    names = (frames,) if isinstance(frames, str) else tuple(frames)
    given = [robot.convert(x, "twists") for x in ((twists,) if isinstance(frames, str) else twists)]
    if len(names) != len(given) or any(x.shape != (6,) for x in given):
        shapes = [x.shape for x in given]
        raise ValueError(f"{len(names)} frames need as many twists (6,), angular first; got shapes {shapes}.")
    check_mimics(mimics)
    scale = jnp.atleast_1d(robot.convert([1.0] * len(names) if weights is None else weights, "weights"))
    if scale.shape != (len(names),):
        raise ValueError(f"{len(names)} frames need {len(names)} weights, got shape {scale.shape}.")
    rest = None if rest_velocity is None else robot.check_v(rest_velocity, "rest_velocity")
    return _stepped(robot, q, names, jnp.stack(given), dt, scale, damping, rest, rest_weight, limits, mimics)


@compiled
def _stepped(
    robot: Multibody,
    q: Any,
    names: Any,
    twists: Any,
    dt: Any,
    scale: Any,
    damping: Any,
    rest: Any,
    rest_weight: Any,
    limits: Any,
    mimics: Any,
) -> Float[Array, " nv"]:
    """The same of checked arguments: one program, outside of jit too."""
    to = coordinates(robot, mimics)
    kin = kinematics(robot, q)
    A = jnp.asarray(to.A, kin.axes.dtype)
    J = jnp.concatenate([w * frame_axes(robot, kin, name) @ A for w, name in zip(scale, names, strict=True)])
    wanted = jnp.concatenate([w * x for w, x in zip(scale, twists, strict=True)])
    H = J.T @ J + (damping + rest_weight) * (A.T @ A)
    g = -J.T @ wanted
    if rest is not None:
        g = g - rest_weight * (A.T @ rest)
    start = jnp.zeros(A.shape[1], H.dtype)
    low, high = jnp.full_like(start, -jnp.inf), jnp.full_like(start, jnp.inf)
    if limits:
        lower, upper = bounds(robot, to, True)
        now = q[to.place]
        moved = A != 0
        speeds = robot.limits.velocity[:, None] / jnp.where(moved, jnp.abs(A), 1)
        fastest = jnp.min(jnp.where(moved, speeds, jnp.inf), axis=0)
        # A joint already outside may stay where it is or come back, never go further.
        low = jnp.maximum(-fastest, jnp.where(to.plain, jnp.minimum((lower - now) / dt, 0), -jnp.inf))
        high = jnp.minimum(fastest, jnp.where(to.plain, jnp.maximum((upper - now) / dt, 0), jnp.inf))
    return A @ box_qp(H, g, low, high, start).x


@compiled
def manipulability(robot: Multibody, q: Shaped[Array, " nq"], frame: str, rows: str = "all") -> Float[Array, ""]:
    """Yoshikawa's measure sqrt(det(J J*)): the volume of velocities that unit joint rates give; zero where singular.

    `rows`: "all", "angular" or "linear". Yoshikawa, Manipulability of robotic mechanisms, IJRR 1985.

    Units: rad; m^2, m and 1 by the rows asked for.

    >>> w = soa.manipulability(soa.models.chain(6), 0.4 * jnp.arange(1.0, 7), "tip")
    >>> print(f"{w:.4f}")
    0.0391
    """
    if rows not in ROWS:
        raise ValueError(f"rows must be one of {', '.join(ROWS)}, got {rows!r}.")
    J = jacobian(robot, q, frame)[ROWS[rows]]
    return jnp.sqrt(jnp.maximum(jnp.linalg.det(J @ J.T), 0))
