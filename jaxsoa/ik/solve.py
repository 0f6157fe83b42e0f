"""Inverse kinematics by Levenberg and Marquardt on the manifold of configurations, from several seeds at once.

    minimize  1/2 |W r(q)|^2 + rest_weight/2 |q - rest|^2   within the joint limits

Each step solves (J* W^2 J + damping) d = -J* W^2 r for the coordinates that no limit holds, and is cut at the limits.
All seeds walk a while, the best of them to the end: a fixed number of steps, one program, which `jax.vmap` batches.

The solution is differentiated by the implicit function theorem: at a minimum the gradient g(q, parameters) of the free
coordinates vanishes, so dq = -H^-1 dg, with the least dq where H is singular (redundant joints).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Shaped

from jaxsoa.closed_chain.constraints import Constraint
from jaxsoa.closed_chain.loops import check_loops
from jaxsoa.ik.coordinates import Coordinates, bounds, clip_step, coordinates, held, inside
from jaxsoa.ik.tasks import Tasks, check_targets, task_rows
from jaxsoa.model.mimics import check_mimics
from jaxsoa.model.multibody import Multibody
from jaxsoa.optimize.small_dense import solve_positive

KEPT = 4
"""One seed in this many goes on after the first steps."""


class InverseKinematics(NamedTuple):
    """A configuration and how well it does what was asked for."""

    q: Float[Array, " nq"]
    residual: Float[Array, ""]  # norm of all errors: radians and metres, unweighted
    errors: Float[Array, " m"]  # one row after another: frames in order, centre of mass, loops
    success: Bool[Array, ""]  # the residual is below the tolerance; the limits hold always


def inverse_kinematics(
    robot: Multibody,
    q0: Shaped[Array, " nq"],
    frames: Sequence[str] | str,
    targets: Any,
    *,
    weights: Any = None,
    center_of_mass: Any = None,
    center_of_mass_weight: float | Array = 1.0,
    rest: Shaped[Array, " nq"] | None = None,
    rest_weight: float | Array = 1e-3,
    loops: Sequence[Constraint] = (),
    limits: bool = True,
    seeds: int = 16,
    key: Array | int = 0,
    iterations: int = 100,
    tolerance: float = 1e-6,
    mimics: Literal["coupled", "free"] = "coupled",
) -> InverseKinematics:
    """A configuration in which the frames are where the targets say.

        soa.inverse_kinematics(robot, q0, "tool", (R, p))
        soa.inverse_kinematics(robot, q0, ["left", "right"], [(R, p), Position(x)], center_of_mass=c)

    - `frames` and `targets`: a name and its target, or as many of both: (rotation, position) for a pose, a position
      (3,), or `Pose`, `Position` (of any point of the frame), `Direction` (of an axis of the frame).
    - `weights`: one number per target, one per row of it, or (angular, linear) for a pose.
    - `center_of_mass`: world position (3,) for the robot's; `loops`: what must stay closed (`closed_chain`).
    - `rest`: a posture to be near. It pulls with `rest_weight`, so a heavy one costs accuracy of the targets.
    - `limits`: stay inside the joint limits. `seeds`: q0 and random others; among those that succeed, the nearest to q0
      is taken, otherwise the one with the least residual. `key` draws them; with `seeds` = 1 only q0 is tried.
    - `mimics`: mimic joints follow ("coupled"), or are "free".

    A target out of reach gives the best compromise found and `success` False. Differentiable by targets, weights, rest
    and every leaf of the robot; not by q0, which only chooses among solutions.

    Units: rad, m; errors in rad and m.

    >>> _, target = soa.frame_pose(robot, q, "tip")
    >>> found = soa.inverse_kinematics(robot, q + 0.2, "tip", target)
    >>> print(found.success, jnp.allclose(soa.frame_pose(robot, found.q, "tip")[1], target, atol=1e-5))
    True True
    """
    q0 = robot.check_q(q0, "q0")
    check_mimics(mimics)
    if seeds < 1 or iterations < 1:
        raise ValueError(f"seeds and iterations must be positive, got {seeds} and {iterations}.")
    names, checked, weighted = check_targets(robot, frames, targets, weights)
    if center_of_mass is not None and jnp.shape(center_of_mass) != (3,):
        raise ValueError(f"center_of_mass must be a world position (3,), got shape {jnp.shape(center_of_mass)}.")
    if not names and center_of_mass is None and not loops:
        raise ValueError("Inverse kinematics needs a frame with a target, a centre of mass or loops.")
    dtype = jnp.result_type(q0, robot.mass)

    def number(x):
        return jnp.asarray(x, dtype)

    tasks = Tasks(
        names,
        jax.tree.map(number, checked),
        jax.tree.map(number, weighted),
        None if center_of_mass is None else number(center_of_mass),
        number(center_of_mass_weight),
        check_loops(robot, loops),
        None if rest is None else robot.check_q(rest, "rest").astype(dtype),
        number(rest_weight),
    )
    settings = _Settings(coordinates(robot, mimics), limits, iterations, tolerance)
    starts = lax.stop_gradient(_starts(robot, q0.astype(dtype), seeds, key, settings))
    q = _differentiable(settings, robot, tasks, starts)
    errors, _, _ = task_rows(robot, tasks, q)
    residual = jnp.sqrt(jnp.sum(lax.stop_gradient(errors) ** 2))
    return InverseKinematics(q, residual, errors, residual < tolerance)


class _Settings:
    """What is static; compared by identity, as functions are."""

    def __init__(self, to: Coordinates, limited: bool, iterations: int, tolerance: float):
        self.to, self.limited, self.iterations, self.tolerance = to, limited, iterations, tolerance


def _starts(robot: Multibody, q0: Array, seeds: int, key: Array | int, settings: _Settings) -> Float[Array, "s nq"]:
    lower, upper = bounds(robot, settings.to, settings.limited)
    key = jax.random.key(key) if isinstance(key, int) else key
    others = [jax.vmap(robot.random)(jax.random.split(key, seeds - 1))] if seeds > 1 else []
    starts = jnp.concatenate([q0[None], *others]).astype(q0.dtype)
    return jax.vmap(lambda q: inside(settings.to, q, lower, upper))(starts)


def _normal_equations(robot: Multibody, tasks: Tasks, to: Coordinates, q: Array) -> tuple[Array, Array, Array, Array]:
    """Value, gradient (ny,) and Gauss-Newton matrix (ny, ny) of the objective, and the unweighted residual squared."""
    r, J, weight = task_rows(robot, tasks, q)
    A = jnp.asarray(to.A, r.dtype)
    J = weight[:, None] * (J @ A)
    weighted = weight * r
    value, gradient, H = jnp.sum(weighted**2) / 2, J.T @ weighted, J.T @ J
    if tasks.rest is not None:
        away = robot.difference(tasks.rest, q)
        value = value + tasks.rest_weight / 2 * jnp.sum(away**2)
        gradient = gradient + tasks.rest_weight * (A.T @ away)
        H = H + tasks.rest_weight * (A.T @ A)
    return value, gradient, H, jnp.sum(r**2)


class _Walk(NamedTuple):
    """A seed on its way: the best configuration so far, what is known there, the damping, and where to look next."""

    q: Array
    value: Array
    gradient: Array
    H: Array
    squares: Array
    damping: Array
    next: Array


def _begin(to: Coordinates, q: Array) -> _Walk:
    ny = to.A.shape[1]
    far = jnp.asarray(jnp.inf, q.dtype)
    return _Walk(q, far, jnp.zeros(ny, q.dtype), jnp.eye(ny, dtype=q.dtype), far, jnp.asarray(0.08, q.dtype), q)


def _walk(robot: Multibody, tasks: Tasks, settings: _Settings, walk: _Walk, steps: int) -> _Walk:
    to = settings.to
    lower, upper = bounds(robot, to, settings.limited)
    A = jnp.asarray(to.A, walk.q.dtype)

    def advance(walk: _Walk, _):
        # One evaluation in the body, of where the last pass pointed: it is compiled once.
        new = (walk.next, *_normal_equations(robot, tasks, to, walk.next), jnp.maximum(walk.damping / 8, 1e-12))
        old = (*walk[:5], jnp.minimum(walk.damping * 4, 1e6))
        better = new[1] < walk.value
        q, value, gradient, H, squares, damping = (jnp.where(better, x, y) for x, y in zip(new, old, strict=True))
        free = ~held(to, q, gradient, lower, upper)
        shift = damping * (1e-3 + jnp.diagonal(H)) + 1e-14
        among = jnp.where(free[:, None] & free[None, :], H, 0) + jnp.diag(jnp.where(free, shift, 1))
        d = -solve_positive(among, jnp.where(free, gradient, 0)[:, None])[:, 0]
        d = d / jnp.maximum(1.0, jnp.max(jnp.abs(d)))  # a radian at most: beyond, the linear model says nothing
        d = clip_step(to, q, d, lower, upper)
        return _Walk(q, value, gradient, H, squares, damping, robot.integrate(q, A @ d)), None

    return lax.scan(advance, walk, length=steps)[0]


def _search(settings: _Settings, robot: Multibody, tasks: Tasks, starts: Float[Array, "s nq"]) -> Float[Array, " nq"]:
    def on(walks, steps):
        return jax.vmap(lambda walk: _walk(robot, tasks, settings, walk, steps))(walks)

    seeds = len(starts)
    walks = jax.vmap(lambda q: _begin(settings.to, q))(starts)
    first = settings.iterations // 2 if seeds > KEPT else 0
    if first:
        walks = on(walks, first)
        # q0 always goes on, with the best of the others.
        rank = jnp.argsort(jnp.where(jnp.isfinite(walks.value), walks.value, jnp.inf).at[0].set(-1))
        chosen = rank[: -(-seeds // KEPT)]
        walks = jax.tree.map(lambda x: x[chosen], walks)
    walks = on(walks, settings.iterations - first)
    good = walks.squares < settings.tolerance**2
    distance = jax.vmap(lambda q: jnp.sum(robot.difference(starts[0], q) ** 2))(walks.q)
    nearest = jnp.argmin(jnp.where(good, distance, jnp.inf))
    least = jnp.argmin(jnp.where(jnp.isfinite(walks.value), walks.value, jnp.inf))
    return walks.q[jnp.where(jnp.any(good), nearest, least)]


def _differentiable(settings: _Settings, robot: Multibody, tasks: Tasks, starts: Array) -> Array:
    @jax.custom_jvp
    def solve(robot, tasks, starts):
        return _search(settings, robot, tasks, starts)

    @solve.defjvp
    def solve_jvp(primals, tangents):
        robot, tasks, starts = primals
        q = solve(robot, tasks, starts)
        to, A = settings.to, jnp.asarray(settings.to.A, q.dtype)

        def gradient(robot, tasks, d):
            return _normal_equations(robot, tasks, to, robot.integrate(q, A @ d))[1]

        zero = jnp.zeros(A.shape[1], q.dtype)
        _, dg = jax.jvp(lambda robot, tasks: gradient(robot, tasks, zero), (robot, tasks), tangents[:2])
        H = jax.jacfwd(lambda d: gradient(robot, tasks, d))(zero)
        ends, moves = jax.jvp(lambda robot: bounds(robot, to, settings.limited), (robot,), (tangents[0],))
        now = q[to.place]
        low, high = (to.plain & (now <= ends[0])), (to.plain & (now >= ends[1]))
        d = jnp.where(low, moves[0], jnp.where(high, moves[1], 0))  # what stands at a limit moves with it
        free = ~(low | high)
        push = jnp.where(free, dg + H @ d, 0)
        among = free[:, None] & free[None, :]
        d = d - _least_solution(jnp.where(among, (H + H.T) / 2, 0), push)
        return q, jax.jvp(lambda d: robot.integrate(q, A @ d), (zero,), (d,))[1]

    return solve(robot, tasks, starts)


def _least_solution(H: Array, b: Array) -> Array:
    """The least x with H x = b for a symmetric H; directions that H leaves free stay still."""
    values, vectors = jnp.linalg.eigh(H)
    tiny = jnp.abs(values) < 1e-9 * jnp.max(jnp.abs(values))
    return vectors @ (jnp.where(tiny, 0, 1 / jnp.where(tiny, 1, values)) * (vectors.T @ b))
