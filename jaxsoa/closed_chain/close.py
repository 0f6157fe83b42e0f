"""Inverse kinematics that closes loops and grasps from a rough guess.

Levenberg-Marquardt on the position errors, in a `lax.while_loop`, then two Newton steps through which derivatives flow:
by the implicit function theorem they give those of the solution (first and second order), whatever path led to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, Shaped

from jaxsoa.closed_chain.algebra import complement, pseudo_inverse, turned
from jaxsoa.closed_chain.constraints import Constraint, rotation_error
from jaxsoa.closed_chain.grasp import GraspSystem, Pose, check_pose, tip
from jaxsoa.closed_chain.loops import check_loops, loop_rows
from jaxsoa.model.multibody import Multibody


class Closed(NamedTuple):
    """A configuration that closes the loops, and how well it does."""

    q: Float[Array, " nq"]
    error: Float[Array, ""]  # norm of the errors left
    iterations: Int[Array, ""]


def movable(robot: Multibody, hold: Sequence[str]) -> np.ndarray:
    """One per degree of freedom that may move, zero for the joints to hold."""
    mask = np.ones(robot.nv)
    for joint in hold:
        mask[robot.v_index(joint)] = 0
    return mask


def _solve(robot: Multibody, residual: Callable, q: Array, mask: Array, tolerance: float, iterations: int) -> Closed:
    """`residual(q) -> (error, jacobian)`. Damping follows the error, which keeps the last steps quadratic."""

    def step(q, damping):
        e, J = residual(q)
        J = J * mask
        gram = J @ J.T
        shift = damping * jnp.minimum(1.0, jnp.sum(e * e)) + 1e-13 * jnp.trace(gram)
        d = -mask * (J.T @ jnp.linalg.solve(gram + shift * jnp.eye(len(e), dtype=e.dtype), e))
        return robot.integrate(q, d / jnp.maximum(1.0, jnp.max(jnp.abs(d)) / 0.5))

    def size(q):
        return jnp.sqrt(jnp.sum(residual(q)[0] ** 2))

    def body(state):
        q, error, damping, count = state
        new = step(q, damping)
        new_error = size(new)
        better = new_error < error
        q = jnp.where(better, new, q)
        damping = jnp.where(better, jnp.maximum(damping / 4, 1e-6), damping * 8)
        return q, jnp.where(better, new_error, error), damping, count + 1

    def unfinished(state):
        _, error, damping, count = state
        return (error > tolerance) & (count < iterations) & (damping < 1e12)

    first = lax.stop_gradient(q)
    start = (first, size(first), jnp.ones((), q.dtype), jnp.zeros((), int))
    found, _, _, count = lax.while_loop(unfinished, body, start)
    found = lax.stop_gradient(found)
    # Zero in value; it carries the derivative by the initial guess, which held joints pass on unchanged.
    moved = robot.difference(first, q)
    e, J = residual(found)
    q = robot.integrate(found, moved - _least(J, mask, e + J @ moved))
    e, J = residual(q)
    q = robot.integrate(q, -_least(J, mask, e))
    return Closed(q, size(q), count)


def _least(J: Array, mask: Array, e: Array) -> Array:
    """The least motion of movable joints that changes the error by e."""
    J = J * mask
    return J.T @ pseudo_inverse(J @ J.T).solve(e)


def close_loops_report(
    robot: Multibody,
    loops: Sequence[Constraint],
    q: Shaped[Array, " nq"],
    *,
    hold: Sequence[str] = (),
    tolerance: float = 1e-10,
    iterations: int = 200,
) -> Closed:
    """`close_loops` with the error left and the number of iterations."""
    loops = check_loops(robot, loops)
    q = robot.check_q(q)
    still = jnp.zeros(robot.nv, q.dtype)

    def residual(q):
        rows = loop_rows(robot, loops, q, still)
        return rows.error, rows.jacobian

    return _solve(robot, residual, q, jnp.asarray(movable(robot, hold), q.dtype), tolerance, iterations)


def close_loops(
    robot: Multibody,
    loops: Sequence[Constraint],
    q: Shaped[Array, " nq"],
    *,
    hold: Sequence[str] = (),
    tolerance: float = 1e-10,
    iterations: int = 200,
) -> Float[Array, " nq"]:
    """A configuration near q that closes the loops; joints named in `hold` keep their values.

    Differentiable. If the loops cannot be closed the best configuration found is returned: look at `loop_errors`, or
    call `close_loops_report`.
    """
    return close_loops_report(robot, loops, q, hold=hold, tolerance=tolerance, iterations=iterations).q


class ClosedGrasp(NamedTuple):
    q: tuple[Array, ...]
    error: Float[Array, " l"]


def grasp_residual(robot: Multibody, frame: str, q, v, R, p, point, free, target, turns: int):
    """Error and Jacobian of one arm's grasp: the frame seen from the contact point, in the object's axes."""
    at = tip(robot, frame, q, v)
    N = complement(free)
    position = R.T @ (at.position - p) - point
    turn = jnp.zeros(3, position.dtype) if target is None else rotation_error(R.T @ at.rotation @ target.T, free, turns)
    J = turned(R).T @ at.jacobian
    if target is None:
        N = N.at[:3].set(0)
    return N @ jnp.concatenate([turn, position]), N @ J


def close_grasp(
    system: GraspSystem,
    q: Sequence[Array],
    object_pose: Pose,
    *,
    rotations: Sequence[Array | None] | None = None,
    tolerance: float = 1e-10,
    iterations: int = 200,
) -> ClosedGrasp:
    """Joint angles near q that bring every arm's frame to its contact point on the object.

    `rotations`: per arm the orientation (3, 3) of its frame in the object's axes, met up to what the contact leaves
    free; None (for all or for one arm) asks for positions only. The object stays where it is, so each arm is solved
    alone.
    """
    q = system.check("q", q, "check_q")
    R, p = check_pose(object_pose)
    rotations = (None,) * system.n_arms if rotations is None else tuple(rotations)
    found = []
    for arm, qi, target in zip(system.arms, q, rotations, strict=True):
        robot, free = arm.robot, arm.contact.axes
        turns = arm.contact.turns
        still = jnp.zeros(robot.nv, qi.dtype)

        def residual(q, robot=robot, arm=arm, free=free, target=target, turns=turns, still=still):
            return grasp_residual(robot, arm.frame, q, still, R, p, arm.point, free, target, turns)

        found.append(_solve(robot, residual, qi, jnp.ones(robot.nv, qi.dtype), tolerance, iterations))
    return ClosedGrasp(tuple(c.q for c in found), jnp.stack([c.error for c in found]))
