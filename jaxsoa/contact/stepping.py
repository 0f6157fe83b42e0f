"""One step in time with contacts: a problem for impulses at the level of velocities, and its exact derivatives.

With v_free = v + h FD(q, v, tau), impulses lambda, and J the velocities at contacts (rows in world axes),

    v+ = v_free + M^-1 J* lambda,   sigma = J v+ + b + R lambda,   K contains lambda, perpendicular to sigma~ in K*,

q+ = q moved by h v+ (semi-implicit Euler). b holds the gap: sigma_N >= -gap / h, so that a contact never closes further
than to touch (Stewart and Trinkle 1996); of a penetration a part is removed. R = compliance / h^2 on the normal.

Restitution needs to know when in the step bodies meet: at t = gap / |u_N| with the free approach velocity. Then two
problems are solved. Velocities: sigma_N >= e |u| less what gravity takes back in the rest of the step. Positions:
sigma_N >= -gap / h + (1 - t / h) times that: to the surface, and back for the remaining time. So positions answer to
the time of impact, and their derivatives are those of the bounce (an elastic ball has dz/dz0 = -1).

Derivatives: at the solution r(lambda; x) = 0 (the natural map of the law), so dlambda = -(dr/dlambda)^-1 dr/dx. dr/dx
is one tangent of the equations of motion at fixed impulse, so that no derivative of G is formed; dr/dlambda uses the G
at hand. Then dv+ = (the same tangent) + M^-1 J* dlambda. Forward and reverse mode, any leaf of robot and scene; once,
not twice.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Float, Int, Shaped

from jaxsoa.closed_chain.algebra import is_concrete
from jaxsoa.closed_chain.constraints import Constraint
from jaxsoa.closed_chain.loops import check_loops, check_prescribed
from jaxsoa.contact.rows import Rows, delassus, rows_at
from jaxsoa.contact.scene import Pair, Scene
from jaxsoa.contact.solver import Cones, default_tolerance, regularized_solve, row_scales, solve
from jaxsoa.dynamics.articulated import Factors, solve_with_factors
from jaxsoa.dynamics.inverse import inverse_dynamics
from jaxsoa.dynamics.mass import mass_times
from jaxsoa.dynamics.motion import solve_motion
from jaxsoa.model.multibody import Multibody


class Step(NamedTuple):
    """The state after a step, and what the contacts did during it (c contacts, in the order of `Scene.pairs`)."""

    q: Float[Array, " nq"]
    v: Float[Array, " nv"]
    impulses: Float[Array, "c 3"]  # on the point's body, world axes (N s); the surface's body feels the opposite
    gaps: Float[Array, " c"]  # at the start of the step
    residual: Float[Array, ""]  # how far from solved, as a velocity (m/s)
    iterations: Int[Array, ""]  # of the solver until it was
    limit_impulses: Float[Array, " k"]  # on the limited joints, towards the inside
    loop_impulses: Float[Array, " e"]


class _Inputs(NamedTuple):
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


def _offsets(x: _Inputs, rows: Rows, pairs: tuple[Pair, ...], v_free: Array) -> Float[Array, "p n"]:
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


def _bounced(x: _Inputs, rows: Rows, pairs: tuple[Pair, ...], v_free: Array, normal: Array) -> tuple[Array, Array]:
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


def _cones(x: _Inputs, rows: Rows, pairs: tuple[Pair, ...]) -> Cones:
    friction = x.scene.per_contact(x.scene.friction, pairs, rows.gaps.dtype)
    return Cones(rows.normals, friction, rows.limit_gaps.shape[0], rows.errors.shape[0], x.scene.law)


def _softened(x: _Inputs, rows: Rows, pairs: tuple[Pair, ...], vector: Array) -> Array:
    """R times a vector of rows (or the columns of a matrix): compliance / h^2 along the contacts' normals."""
    c = rows.gaps.shape[0]
    R = x.scene.per_contact(x.scene.compliance, pairs, rows.gaps.dtype) / x.dt**2
    first = vector[: 3 * c].reshape(c, 3, *vector.shape[1:])
    along = jnp.einsum("ci,ci...->c...", rows.normals, first)
    soft = jnp.einsum("c,ci,c...->ci...", R, rows.normals, along)
    return jnp.concatenate([soft.reshape(3 * c, *vector.shape[1:]), jnp.zeros_like(vector[3 * c :])])


class _Outcome(NamedTuple):
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


def _solved(x: _Inputs, start: Array | None, pairs: tuple[Pair, ...]) -> _Outcome:
    rows = rows_at(x.robot, x.scene, x.q, pairs, x.loops)
    prescribed, given = (None, x.tau) if x.held is None else (x.held > 0, x.given)
    # The factors are those of the free degrees of freedom: what is prescribed does not answer to impulses.
    free, _, factors = solve_motion(x.robot, x.q, x.v, given, x.tau, x.f_ext, prescribed)
    v_free = x.v + x.dt * free
    G = delassus(x.robot, factors, rows.jacobian)
    G = G + _softened(x, rows, pairs, jnp.eye(G.shape[0], dtype=G.dtype))
    g = rows.jacobian @ v_free + _offsets(x, rows, pairs, v_free)
    cones = _cones(x, rows, pairs)
    if start is not None:
        start = jnp.concatenate([start.reshape(-1), jnp.zeros(G.shape[0] - start.size, G.dtype)])
    found = jax.vmap(lambda g: solve(cones, G, g, start, x.scene.settings))(g)
    v = v_free + jax.vmap(lambda y: solve_with_factors(x.robot, factors, y))(found.impulse @ rows.jacobian)
    iterations = found.iterations.astype(v.dtype)
    return _Outcome(found.impulse, v, rows.gaps, found.residual, iterations, factors, G, free)


def _advance(pairs: tuple[Pair, ...]):
    """A function of `_Inputs` (and a start for the solver) with the derivatives of the head of this file."""

    @jax.custom_jvp
    def advance(x: _Inputs, start) -> _Outcome:
        return _solved(x, start, pairs)

    def rule(primals, tangents):
        x, start = primals
        out = advance(x, start)
        leaves, tree = jax.tree.flatten(x)
        rates = jax.tree.leaves(tangents[0], is_leaf=_is_zero)
        moving = [i for i, rate in enumerate(rates) if not _is_zero(rate)]
        still = jax.tree.map(jnp.zeros_like, out)
        if not moving:
            return out, still
        impulse = out.impulse
        factors, G, free = _first_order_only((out.factors, out.matrix, out.free))
        accelerations = (out.v - x.v) / x.dt
        c = len(pairs)
        k = x.scene.limited(x.robot).size
        rows_of = Cones(jnp.zeros((c, 3), G.dtype), jnp.zeros(c, G.dtype), k, G.shape[0] - 3 * c - k)
        scale = row_scales(rows_of, G)

        def solve_mass(force):
            return jax.vmap(lambda y: solve_with_factors(x.robot, factors, y))(force)

        def at_fixed_impulse(*values):
            full = list(leaves)
            for i, value in zip(moving, values, strict=True):
                full[i] = value
            y = jax.tree.unflatten(tree, full)
            rows = rows_at(y.robot, y.scene, y.q, pairs, y.loops)
            # M da = d(tau + J* lambda / h - ID(q, v, a)); the bracket itself is zero.
            reference = y.with_given(free if y.scene.bounces else accelerations[0])
            unbalanced = y.tau - inverse_dynamics(y.robot, y.q, y.v, reference, y.f_ext)
            v_free = unbalanced  # not looked at, unless
            force = unbalanced + impulse @ rows.jacobian / y.dt
            if y.scene.bounces:
                v_free = y.v + y.dt * (y.with_given(free) + solve_mass(unbalanced[None])[0])
                force = force - jax.vmap(lambda a: mass_times(y.robot, y.q, a - free))(accelerations)
            v = y.v + y.dt * (jax.vmap(y.with_given)(accelerations) + solve_mass(force))
            sigma = v @ rows.jacobian.T + _offsets(y, rows, pairs, v_free)
            sigma = sigma + jax.vmap(lambda f: _softened(y, rows, pairs, f))(impulse)
            cones = _cones(y, rows, pairs)
            kappa = _smoothing(y, rows, cones, impulse, scale)
            r = jax.vmap(cones.natural_map)(impulse / scale, scale * sigma, kappa)
            return (v, r, rows.gaps), (sigma, rows.jacobian, cones, kappa)

        _, (dv, dr, d_gaps), (sigma, J, cones, kappa) = jax.jvp(
            at_fixed_impulse, [leaves[i] for i in moving], [rates[i] for i in moving], has_aux=True
        )

        def answered(impulse, sigma, kappa, dr):
            A = cones.natural_jacobian(impulse / scale, scale * sigma, scale[:, None] * G * scale, kappa)
            return -scale * regularized_solve(A, dr)

        d_impulse = jax.vmap(answered)(impulse, sigma, kappa, dr)
        return out, still._replace(impulse=d_impulse, v=dv + solve_mass(d_impulse @ J), gaps=d_gaps)

    advance.defjvp(rule, symbolic_zeros=True)
    return advance


@jax.custom_jvp
def _first_order_only(tree):
    """Constants of the derivative; to differentiate it again would need theirs, and says so."""
    return tree


@_first_order_only.defjvp
def _refuse(primals, tangents):
    raise NotImplementedError(
        "Second derivatives of a step with contacts are not available: differentiate its gradient by differences, or "
        "use Gauss-Newton models."
    )


def _is_zero(tangent) -> bool:
    return isinstance(tangent, SymbolicZero)


def _smoothing(x: _Inputs, rows: Rows, cones: Cones, impulse: Array, scale: Array) -> Float[Array, "p c"] | None:
    """kappa of every contact, in scaled rows, as `Scene.gradient` says; None is zero."""
    if x.scene.gradient == "exact":
        return None
    size = cones.parts(scale)[0][:, 0]
    contacts = jax.vmap(lambda f: cones.parts(f)[0])(impulse)
    if x.scene.gradient == "relaxed":
        kappa = jnp.broadcast_to(x.scene.relaxation.astype(scale.dtype) * size, contacts.shape[:2])
    else:
        carries = jnp.sum(contacts * rows.normals, axis=-1) > 0
        kappa = jnp.where(carries, 0, x.scene.reach.astype(scale.dtype) / x.dt * size)
    return jax.lax.stop_gradient(kappa)


def step(
    robot: Multibody,
    scene: Scene,
    q: Shaped[Array, " nq"],
    v: Shaped[Array, " nv"],
    tau: Shaped[Array, " nv"],
    dt: float | Array,
    f_ext: Shaped[Array, "n 6"] | None = None,
    loops: Sequence[Constraint] | Constraint = (),
    *,
    prescribed: Any = None,
    warm: Shaped[Array, "c 3"] | None = None,
) -> Step:
    """The state a time dt later under constant torques, contacts of the scene enforced.

    `loops` are closed in the same solve, `recovery` of the scene removes their drift. `prescribed`: a mask, bool (nv,)
    (velocities stay), or a pair (mask, accelerations (nv,)): there the torque is not read and impulses move nothing.
    `warm` are impulses to start from (those of the step before). Differentiable in forward and reverse mode by every
    array of robot, scene, state and inputs. Outside of jit a solver that has not converged warns; inside, look at
    `residual`. Impulses never leave their friction cones, converged or not.
    """
    q, v, tau, f_ext = robot.check_q(q), robot.check_v(v), robot.check_v(tau, "tau"), robot.check_f_ext(f_ext)
    if not isinstance(scene, Scene):
        raise TypeError(f"scene must be a contact.Scene, got {type(scene).__name__}.")
    loops = check_loops(robot, loops)
    pairs = scene.pairs(robot)
    held, given = _held(robot, prescribed)
    x = _Inputs(robot, scene, loops, q, v, tau, jnp.asarray(dt, robot.dtype), f_ext, held, given)
    out = _advance(pairs)(x, _start(pairs, warm, robot.dtype))
    residual = jnp.max(out.residual)
    _warn(residual, scene)
    c, k = 3 * len(pairs), scene.limited(robot).size
    impulse = out.impulse[-1]
    return Step(
        robot.integrate(q, x.dt * out.v[0]),
        out.v[-1],
        impulse[:c].reshape(-1, 3),
        out.gaps,
        residual,
        jax.lax.stop_gradient(jnp.max(out.iterations)).astype(int),
        impulse[c : c + k],
        impulse[c + k :],
    )


def _held(robot: Multibody, prescribed: Any) -> tuple[Array | None, Array | None]:
    """(mask as numbers, accelerations) from a mask, a pair or nothing."""
    if prescribed is None:
        return None, None
    mask, a = prescribed if isinstance(prescribed, tuple) else (prescribed, jnp.zeros(robot.nv, robot.dtype))
    mask = check_prescribed(robot, mask)
    assert mask is not None
    return jax.lax.stop_gradient(mask.astype(robot.dtype)), robot.check_v(a, "a").astype(robot.dtype)


def _start(pairs: tuple[Pair, ...], warm, dtype) -> Array | None:
    if warm is None:
        return None
    warm = jnp.asarray(warm, dtype)
    if warm.shape != (len(pairs), 3):
        raise ValueError(f"warm must hold an impulse per contact, ({len(pairs)}, 3); got {warm.shape}.")
    return jax.lax.stop_gradient(warm)


def _warn(residual: Array, scene: Scene) -> None:
    if not is_concrete(residual):
        return
    tolerance = scene.settings.tolerance or default_tolerance(residual.dtype)
    if float(residual) > tolerance:
        message = (
            f"The contact solver stopped at a residual of {float(residual):.1e} m/s (tolerance {tolerance:.0e}); give "
            "the scene more iterations by settings=contact.Settings(...)."
        )
        warnings.warn(message, UserWarning, stacklevel=3)
