"""Inverse kinematics by Levenberg and Marquardt on the manifold of configurations, from several seeds at once.

    minimize  1/2 |W r(q)|^2 + rest_weight/2 |q - rest|^2   within the joint limits

Each step solves (J* W^2 J + damping) d = -J* W^2 r for the coordinates that no limit holds, and is cut at the limits.
All seeds walk a while, until enough of them have arrived; the best of them walk to the end. It is one program, whose
step is a kernel, and which `jax.vmap` batches: problems are worked off in lanes.

The solution is differentiated by the implicit function theorem: at a minimum the gradient g(q, parameters) of the free
coordinates vanishes, so dq = -H^-1 dg, with the least dq where H is singular (redundant joints).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Shaped

from jaxsoa.closed_chain.constraints import Constraint
from jaxsoa.closed_chain.loops import check_loops
from jaxsoa.eager import compiled
from jaxsoa.ik.coordinates import Coordinates, bounds, clip_step, coordinates, held, inside
from jaxsoa.ik.tasks import Tasks, check_targets, task_rows
from jaxsoa.model.mimics import check_mimics
from jaxsoa.model.multibody import Multibody
from jaxsoa.optimize.lanes import while_by_lanes
from jaxsoa.optimize.small_dense import by_cholesky
from jaxsoa.optimize.stepwise import stepwise

KEPT = 4
"""One seed in this many goes on after the first steps."""

ARRIVED = 1e-3
"""Part of the tolerance that a residual has to be below for a walk to end: the last steps converge quadratically, and
derivatives are as exact as the solution."""

PROBLEMS_AT_ONCE = 64


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
    rest = None if rest is None else robot.check_q(rest, "rest")
    numbers = (center_of_mass, center_of_mass_weight, rest, rest_weight)
    seed = np.int64(key) if isinstance(key, int) else key  # an input of the program, not a part of it
    options = (check_loops(robot, loops), limits, seeds, seed, iterations, tolerance, mimics)
    return _solved(robot, q0, names, checked, weighted, *numbers, *options)


@compiled(through_door=False)
def _solved(
    robot: Multibody,
    q0: Any,
    names: Any,
    targets: Any,
    weights: Any,
    center_of_mass: Any,
    center_of_mass_weight: Any,
    rest: Any,
    rest_weight: Any,
    loops: Any,
    limits: Any,
    seeds: Any,
    key: Any,
    iterations: Any,
    tolerance: Any,
    mimics: Any,
) -> InverseKinematics:
    """The same of checked arguments: one program, outside of jit too."""
    dtype = jnp.result_type(q0, robot.mass)

    def number(x):
        return jnp.asarray(x, dtype)

    tasks = Tasks(
        names,
        jax.tree.map(number, targets),
        jax.tree.map(number, weights),
        None if center_of_mass is None else number(center_of_mass),
        number(center_of_mass_weight),
        loops,
        None if rest is None else number(rest),
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


def _starts(robot: Multibody, q0: Array, seeds: int, key: Any, settings: _Settings) -> Float[Array, "s nq"]:
    lower, upper = bounds(robot, settings.to, settings.limited)
    key = jax.random.key(key) if jnp.shape(key) == () and jnp.issubdtype(key.dtype, jnp.integer) else key
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


def _advance(robot: Multibody, tasks: Tasks, settings: _Settings, walk: _Walk) -> _Walk:
    """One step. The only evaluation is of where the last one pointed."""
    to = settings.to
    lower, upper = bounds(robot, to, settings.limited)
    A = jnp.asarray(to.A, walk.q.dtype)
    new = (walk.next, *_normal_equations(robot, tasks, to, walk.next), jnp.maximum(walk.damping / 8, 1e-12))
    old = (*walk[:5], jnp.minimum(walk.damping * 4, 1e6))
    better = new[1] < walk.value
    q, value, gradient, H, squares, damping = (jnp.where(better, x, y) for x, y in zip(new, old, strict=True))
    free = ~held(to, q, gradient, lower, upper)
    shift = damping * (1e-3 + jnp.diagonal(H)) + 1e-14
    among = jnp.where(free[:, None] & free[None, :], H, 0) + jnp.diag(jnp.where(free, shift, 1))
    d = -by_cholesky(among, jnp.where(free, gradient, 0)[:, None])[:, 0]
    d = d / jnp.maximum(1.0, jnp.max(jnp.abs(d)))  # a radian at most: beyond, the linear model says nothing
    d = clip_step(to, q, d, lower, upper)
    return _Walk(q, value, gradient, H, squares, damping, robot.integrate(q, A @ d))


def _search(settings: _Settings, robot: Multibody, tasks: Tasks, starts: Float[Array, "s nq"]) -> Float[Array, " nq"]:
    advance = stepwise(lambda walk: _advance(robot, tasks, settings, walk))

    def on(walks: _Walk, steps: int, enough: int) -> _Walk:
        """So many steps, fewer where enough of them have arrived."""

        def unfinished(at):
            walks, count = at
            arrived = walks.squares < (ARRIVED * settings.tolerance) ** 2
            return (count < steps) & (jnp.sum(arrived) < enough)

        start = walks, jnp.array(0)
        return while_by_lanes(
            unfinished, lambda at: (jax.vmap(advance)(at[0]), at[1] + 1), start, PROBLEMS_AT_ONCE
        )[0]  # fmt: skip

    seeds = len(starts)
    walks = jax.vmap(lambda q: _begin(settings.to, q))(starts)
    first, kept = settings.iterations // 2 if seeds > KEPT else 0, -(-seeds // KEPT)
    if first:
        walks = on(walks, first, kept)
        # q0 always goes on, with the best of the others.
        rank = jnp.argsort(jnp.where(jnp.isfinite(walks.value), walks.value, jnp.inf).at[0].set(-1))
        walks = jax.tree.map(lambda x: x[rank[:kept]], walks)
    walks = on(walks, settings.iterations - first, len(walks.value))
    good = walks.squares < settings.tolerance**2
    distance = jax.vmap(lambda q: jnp.sum(robot.difference(starts[0], q) ** 2))(walks.q)
    nearest = jnp.argmin(jnp.where(good, distance, jnp.inf))
    least = jnp.argmin(jnp.where(jnp.isfinite(walks.value), walks.value, jnp.inf))
    return walks.q[jnp.where(jnp.any(good), nearest, least)]


def _differentiable(settings: _Settings, robot: Multibody, tasks: Tasks, starts: Array) -> Array:
    # A robot that is known stays known inside, and is compiled into the kernel; JAX hands a rule traced values only.
    known = robot if not any(isinstance(x, Tracer) for x in jax.tree.leaves(robot)) else None

    @jax.custom_jvp
    def solve(given, tasks, starts):
        return _search(settings, given if known is None else known, tasks, starts)

    @solve.defjvp
    def solve_jvp(primals, tangents):
        given, tasks, starts = primals
        robot = given if known is None else known
        q = solve(given, tasks, starts)
        to, A = settings.to, jnp.asarray(settings.to.A, q.dtype)

        def gradient(robot, tasks, d):
            return _normal_equations(robot, tasks, to, robot.integrate(q, A @ d))[1]

        def of_given(given, tasks):
            robot = given if known is None else known
            return gradient(robot, tasks, zero), bounds(robot, to, settings.limited)

        zero = jnp.zeros(A.shape[1], q.dtype)
        (_, ends), (dg, moves) = jax.jvp(of_given, primals[:2], tangents[:2])
        H = jax.jacfwd(lambda d: gradient(robot, tasks, d))(zero)
        now = q[to.place]
        low, high = (to.plain & (now <= ends[0])), (to.plain & (now >= ends[1]))
        d = jnp.where(low, moves[0], jnp.where(high, moves[1], 0))  # what stands at a limit moves with it
        free = ~(low | high)
        push = jnp.where(free, dg + H @ d, 0)
        among = free[:, None] & free[None, :]
        d = d - _least_solution(jnp.where(among, (H + H.T) / 2, 0), push)
        return q, jax.jvp(lambda d: robot.integrate(q, A @ d), (zero,), (d,))[1]

    return solve(robot if known is None else (), tasks, starts)


def _least_solution(H: Array, b: Array) -> Array:
    """The least x with H x = b for a symmetric H; directions that H leaves free stay still."""
    values, vectors = jnp.linalg.eigh(H)
    tiny = jnp.abs(values) < 1e-9 * jnp.max(jnp.abs(values))
    return vectors @ (jnp.where(tiny, 0, 1 / jnp.where(tiny, 1, values)) * (vectors.T @ b))
