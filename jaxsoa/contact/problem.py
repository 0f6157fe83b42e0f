"""The contact problem of a step in time, at the level of velocities.

With v_free = v + h FD(q, v, tau), impulses lambda, and J the velocities at contacts (rows in world axes),

    v+ = v_free + M^-1 J* lambda,   sigma = J v+ + b + R lambda,   K contains lambda, perpendicular to sigma~ in K*,

q+ = q moved by h v+ (semi-implicit Euler). b holds the gap: sigma_N >= -gap / h, so that a contact never closes further
than to touch (Stewart and Trinkle 1996); of a penetration a part is removed. R = compliance / h^2 on the normal.

Restitution needs to know when in the step bodies meet: at t = gap / |u_N| with the free approach velocity. Then two
problems are solved. Velocities: sigma_N >= e |u| less what gravity takes back in the rest of the step. Positions:
sigma_N >= -gap / h + (1 - t / h) times that: to the surface, and back for the remaining time. So positions answer to
the time of impact, and their derivatives are those of the bounce (an elastic ball has dz/dz0 = -1).
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from jaxsoa.contact.blocks import LARGEST
from jaxsoa.contact.rows import Rows, delassus, rows_at
from jaxsoa.contact.scene import Pair, Scene
from jaxsoa.contact.solver import Cones, attempted, insisted, targets
from jaxsoa.dynamics.articulated import Factors, solve_with_factors
from jaxsoa.dynamics.motion import solve_motion
from jaxsoa.kernels import door
from jaxsoa.kernels.jax_interface import Tracer
from jaxsoa.model.multibody import Multibody


class Inputs(NamedTuple):
    """Everything the step depends on."""

    robot: Multibody
    scene: Scene
    loops: tuple
    q: Array
    v: Array
    tau: Array
    dt: Array
    f_ext: Array | None
    held: Array | None = None  # one where the motion is prescribed, zero elsewhere: a number, so that it has a tangent
    given: Array | None = None  # accelerations, looked at where held

    def with_given(self, a: Array) -> Array:
        """Accelerations with those prescribed in their places."""
        return a if self.held is None or self.given is None else jnp.where(self.held > 0, self.given, a)


def offsets(x: Inputs, rows: Rows, pairs: tuple[Pair, ...], v_free: Array) -> Float[Array, "p n"]:
    """b: what is added to J v+, all rows, for one problem or for two (positions, then velocities)."""
    scene, h = x.scene, x.dt
    compliance = scene.per_contact(scene.compliance, pairs, rows.gaps.dtype)

    def allowed(gap, soft):
        removed = jnp.maximum(scene.recovery.astype(gap.dtype) * gap / h, -scene.recovery_speed.astype(gap.dtype))
        return jnp.where((gap > 0) | soft, gap / h, removed)

    normal = allowed(rows.gaps, compliance > 0)
    problems = _bounced(x, rows, pairs, v_free, normal) if scene.bounces else (normal,)
    others = jnp.concatenate([allowed(rows.limit_gaps, False), scene.recovery.astype(normal.dtype) * rows.errors / h])
    return jnp.stack([jnp.concatenate([(b[:, None] * rows.normals).reshape(-1), others]) for b in problems])


def _bounced(x: Inputs, rows: Rows, pairs: tuple[Pair, ...], v_free: Array, normal: Array) -> tuple[Array, Array]:
    """The normal offsets of contacts that may bounce, for positions and velocities; see the head of this file."""
    c = rows.gaps.shape[0]
    J = rows.jacobian[: 3 * c].reshape(c, 3, -1)
    restitution = x.scene.per_contact(x.scene.restitution, pairs, rows.gaps.dtype)

    def approach(v):
        return jnp.sum(rows.normals * (J @ v), axis=1)

    free, before = approach(v_free), approach(x.v)
    meets = (rows.gaps + x.dt * free < 0) & (free < 0)
    part = jnp.clip(jnp.maximum(rows.gaps, 0) / (x.dt * jnp.where(meets, -free, 1)), 0, 1)  # t / h
    gained = free - before
    speed = restitution * jnp.maximum(-(before + part * gained), 0)
    back = jnp.maximum(speed + jnp.minimum((1 - part) * gained, 0), 0)
    positions = jnp.where(meets, normal - (1 - part) * back, normal)
    return positions, jnp.where(meets, -back, jnp.maximum(rows.gaps, 0) / x.dt)


def cones_of(x: Inputs, rows: Rows, pairs: tuple[Pair, ...]) -> Cones:
    friction = x.scene.per_contact(x.scene.friction, pairs, rows.gaps.dtype)
    return Cones(rows.normals, friction, rows.limit_gaps.shape[0], rows.errors.shape[0], x.scene.law)


def softened(x: Inputs, rows: Rows, pairs: tuple[Pair, ...], vector: Array) -> Array:
    """R times a vector of rows (or the columns of a matrix): compliance / h^2 along the contacts' normals."""
    c = rows.gaps.shape[0]
    R = x.scene.per_contact(x.scene.compliance, pairs, rows.gaps.dtype) / x.dt**2
    first = vector[: 3 * c].reshape(c, 3, *vector.shape[1:])
    along = jnp.einsum("ci,ci...->c...", rows.normals, first)
    soft = jnp.einsum("c,ci,c...->ci...", R, rows.normals, along)
    return jnp.concatenate([soft.reshape(3 * c, *vector.shape[1:]), jnp.zeros_like(vector[3 * c :])])


class Outcome(NamedTuple):
    """Of each of the p problems (one, or with restitution two: positions, then velocities)."""

    impulse: Float[Array, "p n"]
    v: Float[Array, "p nv"]
    gaps: Float[Array, " c"]
    residual: Float[Array, " p"]
    iterations: Float[Array, " p"]  # a float, so that it has a tangent
    # For the derivative, as constants:
    factors: Factors
    matrix: Float[Array, "n n"]  # G + R
    free: Float[Array, " nv"]  # acceleration without contacts


class Posed(NamedTuple):
    """The contact problem of a state, and what its derivative needs."""

    rows: Rows
    factors: Factors
    free: Array
    v_free: Array
    matrix: Array
    offsets: Array


def posed(robot: Multibody, scene: Scene, loops: tuple, *rest, pairs: tuple[Pair, ...]) -> Posed:
    x = Inputs(robot, scene, loops, *rest)
    rows = rows_at(x.robot, x.scene, x.q, pairs, x.loops)
    prescribed, given = (None, x.tau) if x.held is None else (x.held > 0, x.given)
    # The factors are those of the free degrees of freedom: what is prescribed does not answer to impulses.
    free, _, factors = solve_motion(x.robot, x.q, x.v, given, x.tau, x.f_ext, prescribed)
    v_free = x.v + x.dt * free
    G = delassus(x.robot, factors, rows.jacobian)
    G = G + softened(x, rows, pairs, jnp.eye(G.shape[0], dtype=G.dtype))
    return Posed(rows, factors, free, v_free, G, rows.jacobian @ v_free + offsets(x, rows, pairs, v_free))


def _released(robot: Multibody, factors: Factors, jacobian: Array, impulse: Array) -> Array:
    """M^-1 J* lambda."""
    return solve_with_factors(robot, factors, impulse @ jacobian)


ALL = 16
"""Rows up to which a step, the solver's Newton steps included, is one kernel; beyond, it would be too long."""


def solved(x: Inputs, start: Array | None, pairs: tuple[Pair, ...]) -> Outcome:
    """Impulses, and what they lead to: by Newton's method, and by all that the solver can where that is not enough."""
    rows = 3 * len(pairs) + x.scene.limited(x.robot).size
    small = rows <= LARGEST  # else a kernel would be too long
    start = None if start is None else start.reshape(-1)
    pose = _posing(pairs, small)
    whole = partial(_quickly, pairs=pairs)
    apart = partial(_apart, pairs=pairs, small=small)
    out = (door(whole, constants=(0, 1, 2), fallback=apart) if rows <= ALL else apart)(*x, start)
    target = targets(out.v.dtype, x.scene.settings)[1]

    def once_more(carry):
        # Made to hang on what is carried: else XLA computes it before the loop, which hardly ever begins.
        (varying, begun), (out, _) = lax.optimization_barrier(((traced_of(x), start), carry))
        y = with_traced(x, varying)
        found = pose(*y)
        cones = cones_of(y, found.rows, pairs)
        begin = _with_others(begun, found.matrix)
        before = [(out.impulse[k], out.residual[k], out.iterations[k]) for k in range(out.residual.size)]
        more = [
            insisted(cones, found.matrix, g, begin, x.scene.settings, one)
            for g, one in zip(found.offsets, before, strict=True)
        ]
        return _led_to(y, found, more, small), jnp.zeros((), bool)

    def unsolved(carry):
        out, first = carry
        return first & (jnp.max(out.residual) > target)

    parts = out.impulse, out.v, out.residual, out.iterations
    (found, _) = lax.while_loop(unsolved, once_more, (_Found(*parts), jnp.ones((), bool)))
    return out._replace(**found._asdict())


def traced_of(tree) -> list:
    """The leaves of a tree that are traced."""
    return [leaf for leaf in jax.tree.leaves(tree) if isinstance(leaf, Tracer)]


def with_traced(tree, values: list):
    """The tree with other values for what is traced of it."""
    rest = iter(values)
    leaves, form = jax.tree.flatten(tree)
    return jax.tree.unflatten(form, [next(rest) if isinstance(leaf, Tracer) else leaf for leaf in leaves])


class _Found(NamedTuple):
    """What may change when the solver goes on."""

    impulse: Array
    v: Array
    residual: Array
    iterations: Array


def _posing(pairs: tuple[Pair, ...], small: bool):
    pose = partial(posed, pairs=pairs)
    return door(pose, constants=(0, 1, 2)) if small else pose


def _with_others(start: Array | None, G: Array) -> Array | None:
    """A start for the contacts' impulses; the other rows begin at zero."""
    return None if start is None else jnp.concatenate([start, jnp.zeros(G.shape[0] - start.size, G.dtype)])


def _led_to(x: Inputs, found: Posed, solutions: list, small: bool) -> _Found:
    release = door(_released) if small else _released
    v = [found.v_free + release(x.robot, found.factors, found.rows.jacobian, s[0]) for s in solutions]
    impulse, residual, count = (jnp.stack(parts) for parts in zip(*solutions, strict=True))
    return _Found(impulse, jnp.stack(v), residual, count)


def _outcome(found: Posed, at: _Found) -> Outcome:
    return Outcome(
        at.impulse, at.v, found.rows.gaps, at.residual, at.iterations, found.factors, found.matrix, found.free
    )


def _quickly(*given, pairs: tuple[Pair, ...]) -> Outcome:
    """By Newton's method alone, as one function."""
    x, start = Inputs(*given[:-1]), given[-1]
    found = posed(*x, pairs=pairs)
    cones = cones_of(x, found.rows, pairs)
    begin = _with_others(start, found.matrix)
    solutions = [attempted(cones, found.matrix, g, begin, x.scene.settings, written=True) for g in found.offsets]
    v = [found.v_free + _released(x.robot, found.factors, found.rows.jacobian, s[0]) for s in solutions]
    impulse, residual, count = (jnp.stack(parts) for parts in zip(*solutions, strict=True))
    return _outcome(found, _Found(impulse, jnp.stack(v), residual, count))


def _apart(*given, pairs: tuple[Pair, ...], small: bool) -> Outcome:
    """The same by functions that are kernels each, where they are not too long."""
    x, start = Inputs(*given[:-1]), given[-1]
    found = _posing(pairs, small)(*x)
    cones = cones_of(x, found.rows, pairs)
    begin = _with_others(start, found.matrix)
    first = [attempted(cones, found.matrix, g, begin, x.scene.settings, written=False) for g in found.offsets]
    return _outcome(found, _led_to(x, found, first, small))
