"""Inverse kinematics that closes loops and grasps from a rough guess.

Levenberg-Marquardt on the position errors, in a `lax.while_loop`, then two Newton steps through which derivatives flow:
by the implicit function theorem they give those of the solution (first and second order), whatever path led to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, Shaped

from jaxsoa.closed_chain.algebra import complement, pseudo_inverse, turned
from jaxsoa.closed_chain.constraints import Constraint, rotation_error
from jaxsoa.closed_chain.frames import MovingFrame, moving_frame
from jaxsoa.closed_chain.grasp import Arm, GraspSystem, Pose, check_pose
from jaxsoa.closed_chain.loops import check_loops, loop_rows_at_rest
from jaxsoa.eager import compiled
from jaxsoa.mesh_axes import scan, while_loop
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


class _Iterate(NamedTuple):
    """State of the search: the best configuration so far with its error and Jacobian, and where to look next."""

    best: tuple[Array, Array, Array]
    damping: Array
    next: Array
    count: Array


def _solve(robot: Multibody, residual: Callable, q: Array, mask: Array, tolerance: float, iterations: int) -> Closed:
    """`residual(q) -> (error, jacobian)`. Damping follows the error, which keeps the last steps quadratic."""

    def step(q, e, J, damping):
        J = J * mask
        gram = J @ J.T
        shift = damping * jnp.minimum(1.0, jnp.sum(e * e)) + 1e-13 * jnp.trace(gram)
        d = -mask * (J.T @ jnp.linalg.solve(gram + shift * jnp.eye(len(e), dtype=e.dtype), e))
        return robot.integrate(q, d / jnp.maximum(1.0, jnp.max(jnp.abs(d)) / 0.5))

    # One evaluation per pass: a loop body compiles once, and the first pass looks at the guess itself.
    def body(state):
        at, damping = state.next, state.damping
        e, J = residual(at)
        better = jnp.sum(e * e) < jnp.sum(state.best[1] ** 2)
        first = state.count == 0
        best = jax.tree.map(lambda new, old: jnp.where(better | first, new, old), (at, e, J), state.best)
        damping = jnp.where(better, jnp.maximum(damping / 4, 1e-6), damping * 8)
        damping = jnp.where(first, 1.0, damping)
        return _Iterate(best, damping, step(best[0], best[1], best[2], damping), state.count + 1)

    def unfinished(state):
        far = (state.count == 0) | (jnp.sum(state.best[1] ** 2) > tolerance**2)
        return far & (state.count <= iterations) & (state.damping < 1e12)

    guess = lax.stop_gradient(q)
    nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(residual, guess))
    start = _Iterate((guess, *nothing), jnp.ones((), guess.dtype), guess, jnp.zeros((), int))
    end = while_loop(unfinished, body, start)

    # Two Newton steps through which derivatives flow; a third pass only looks at the error left. The first step also
    # carries the derivative by the guess (`moved` is zero in value), which held joints pass on unchanged.
    def newton(q, x):
        moved, go = x
        e, J = residual(q)
        d = moved - go * _least(J, mask, e + J @ moved)
        return robot.integrate(q, d), jnp.sqrt(jnp.sum(lax.stop_gradient(e) ** 2))

    moved = robot.difference(guess, q)
    moves = jnp.stack([moved, jnp.zeros_like(moved), jnp.zeros_like(moved)])
    best, error = lax.stop_gradient(end.best[0]), jnp.sqrt(jnp.sum(lax.stop_gradient(end.best[1]) ** 2))
    q, errors = scan(newton, best, (moves, jnp.array([1.0, 1.0, 0.0], q.dtype)))
    # Where the loops cannot be closed, Newton's steps lead away (far away, near singularities): the best is kept, and
    # only what is held follows the guess.
    closer = errors[-1] <= jnp.maximum(error, tolerance)
    kept = robot.integrate(best, (1 - mask) * moved)
    return Closed(jnp.where(closer, q, kept), jnp.where(closer, errors[-1], error), end.count)


def _least(J: Array, mask: Array, e: Array) -> Array:
    """The least motion of movable joints that changes the error by e."""
    J = J * mask
    return J.T @ pseudo_inverse(J @ J.T).solve(e)


@compiled(through_door=False)
def close_loops_report(
    robot: Multibody,
    loops: Sequence[Constraint],
    q: Shaped[Array, " nq"],
    *,
    hold: Sequence[str] = (),
    tolerance: float = 1e-10,
    iterations: int = 200,
) -> Closed:
    """`close_loops` with the error left and the number of iterations.

    >>> robot, loops, q = soa.closed_chain.mechanisms.four_bar()
    >>> found = soa.closed_chain.close_loops_report(robot, loops, q, hold=["left1_joint"])
    >>> print(found.error < 1e-9)  # m and rad
    True
    """
    loops = check_loops(robot, loops)
    q = robot.check_q(q)

    def residual(q):
        rows = loop_rows_at_rest(robot, loops, q)
        return rows.error, rows.jacobian

    return _solve(robot, residual, q, jnp.asarray(movable(robot, hold), q.dtype), tolerance, iterations)


def close_loops(
    robot: Multibody, loops: Sequence[Constraint], q: Shaped[Array, " nq"], **options
) -> Float[Array, " nq"]:
    """A configuration near q that closes the loops; joints named in `hold` keep their values.

    Differentiable. If the loops cannot be closed the best configuration found is returned: look at `loop_errors`, or
    call `close_loops_report`, which takes the same options (hold, tolerance, iterations).

    >>> robot, loops, q = soa.closed_chain.mechanisms.four_bar()
    >>> q = soa.closed_chain.close_loops(robot, loops, q, hold=["left1_joint"])  # the crank stays at -1 rad
    >>> print(q.round(3))  # rad
    [-1.     0.684 -1.18 ]
    """
    return close_loops_report(robot, loops, q, **options).q


class ClosedGrasp(NamedTuple):
    """Configurations q, one (nq,) per arm, and how far each contact is from being met."""

    q: tuple[Array, ...]
    error: Float[Array, " l"]


class Hold(NamedTuple):
    """One arm's grasp along the directions its contact holds, in the object's axes."""

    error: Float[Array, "6"]
    jacobian: Float[Array, "6 nv"]
    held: Float[Array, "6 6"]  # takes a velocity at the contact (world axes) to the part of it that is held
    frame: MovingFrame


def hold(arm: Arm, q: Array, v: Array, object_pose: Pose, target: Array | None) -> Hold:
    """How far an arm's frame is from its contact point and (unless None) from its `target` orientation."""
    R, p = object_pose
    frame = moving_frame(arm.robot, arm.frame, q, v)
    N = complement(arm.contact.axes)
    position = R.T @ (frame.position - p) - arm.point
    if target is None:
        turn, N = jnp.zeros_like(position), N.at[:3].set(0)
    else:
        turn = rotation_error(R.T @ frame.rotation @ target.T, arm.contact.axes, arm.contact.turns)
    held = N @ turned(R).T
    return Hold(N @ jnp.concatenate([turn, position]), held @ frame.jacobian, held, frame)


@compiled(through_door=False)
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
    alone. Derivatives are those of the nearest closed configuration: the search moves a redundant arm along its
    self-motion too, and of that they know nothing.

    >>> system, q, (R, p) = soa.closed_chain.mechanisms.two_arm_grasp()
    >>> found = soa.closed_chain.close_grasp(system, q, (R, p + jnp.array([0.0, 0.0, 0.05])))  # 5 cm higher
    >>> print(found.error < 1e-9)
    [ True  True]
    """
    q = system.check("q", q, "check_q")
    pose = check_pose(system, object_pose)
    rotations = (None,) * system.n_arms if rotations is None else tuple(rotations)
    found = []
    for arm, guess, target in zip(system.arms, q, rotations, strict=True):
        everywhere = jnp.ones(arm.robot.nv, guess.dtype)

        def residual(q, arm=arm, target=target, still=0 * everywhere):
            return hold(arm, q, still, pose, target)[:2]

        found.append(_solve(arm.robot, residual, guess, everywhere, tolerance, iterations))
    return ClosedGrasp(tuple(c.q for c in found), jnp.stack([c.error for c in found]))
