"""The contact problem at the level of velocities, solved by Newton's method, a path of smoothed cones and ADMM.

    find  lambda in K  with  sigma + De Saxce's term in K*, perpendicular to it,   sigma = G lambda + g:

Coulomb's law (a complementarity problem of cones); without De Saxce's term it is the convex law, the minimum of
lambda* G lambda / 2 + g* lambda over K. K is a friction cone per contact, the non-negative numbers per one-sided row
(joint limits) and everything per two-sided row (loops).

Semismooth Newton steps on the natural map r = lambda - P_K(lambda - sigma~), each shortened until it lessens r, solve
most problems to rounding; they begin where one turn around the contacts leads, each solved as if it were alone with
those before. What they leave goes through rounds of three parts: ADMM with one
factorization (Carpentier, Le Lidec, Montaut, RSS 2024, arXiv 2405.17020), z for minus sigma,

    x = (G + (rho + eta) 1)^-1 (rho y + eta x - z - g - mu |z_T| n),   y = P_K(x + z / rho),   z = z + rho (x - y),

with a penalty that balances how far x is from y against how far y moves; Newton steps on the map of smoothed cones,
less smooth wherever one is nearly solved (a path of interior points); Newton steps on the map itself. Rows are scaled
so that every diagonal block of G is one in the mean, one factor per contact, which maps cones to themselves. Redundant
rows (G singular) are met by proximal terms. The loops end when the problem is solved, at a bound at the latest; no
derivative enters them (see `derivative`), so reverse mode never meets an open loop. `jaxsoa.kernels` compiles them,
Newton's loop included: states that are computed side by side go on until the last of them is solved, others do not
wait for it.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from jaxsoa.contact.blocks import LARGEST, eliminated, inverse_3x3, regularized_solve, solved
from jaxsoa.contact.cone import dot, lifted, lifted_jacobian, norm, project, projection_jacobian, tangential
from jaxsoa.kernels import door
from jaxsoa.mesh_axes import while_loop


class Cones(eqx.Module):
    """What the rows may carry: `normals` (c, 3) and `friction` (c,) of contacts, three rows each, then one-sided and
    two-sided rows. `kappa` (c,) smooths the contacts' cones; None leaves them sharp. `slides` (c,): zero for contacts
    known to stick, whose De Saxce's term is zero whatever rounding leaves of their slip; None: none is known."""

    normals: Float[Array, "c 3"]
    friction: Float[Array, " c"]
    one_sided: int = eqx.field(static=True, default=0)
    two_sided: int = eqx.field(static=True, default=0)
    law: str = eqx.field(static=True, default="coulomb")
    slides: Float[Array, " c"] | None = None

    @property
    def lifting(self) -> Array:
        """Friction where De Saxce's term counts."""
        return self.friction if self.slides is None else self.friction * self.slides

    @property
    def contacts(self) -> int:
        """Number of contacts."""
        return self.normals.shape[0]

    def parts(self, x: Array) -> tuple[Array, Array, Array]:
        """(contacts (c, 3), one-sided, two-sided) of a vector of all rows."""
        m, k = 3 * self.contacts, self.one_sided
        return x[:m].reshape(-1, 3), x[m : m + k], x[m + k :]

    def joined(self, contacts: Array, one_sided: Array, two_sided: Array) -> Array:
        """The inverse of `parts`."""
        if not self.one_sided and not self.two_sided:
            return contacts.reshape(-1)
        return jnp.concatenate([contacts.reshape(-1), one_sided, two_sided])

    def project(self, x: Array, kappa: Array | None = None) -> Array:
        """The nearest vector of K."""
        contacts, one, two = self.parts(x)
        return self.joined(project(contacts, self.normals, self.friction, kappa), jnp.maximum(one, 0), two)

    def lift(self, sigma: Array) -> Array:
        """sigma with De Saxce's term, or as it is under the convex law."""
        if self.law == "convex":
            return sigma
        contacts, one, two = self.parts(sigma)
        return self.joined(lifted(contacts, self.normals, self.lifting), one, two)

    def sliding(self, impulse: Array, sigma: Array) -> Float[Array, " c"]:
        """One for contacts that do not stick at a solution, zero for those that do."""
        x = self.parts(impulse - self.lift(sigma))[0]
        return jnp.where(norm(tangential(x, self.normals)) < self.friction * dot(x, self.normals), 0.0, 1.0)

    def natural_map(self, impulse: Array, sigma: Array, kappa: Array | None = None) -> Array:
        """lambda - P(lambda - sigma~): zero exactly at solutions (in scaled rows)."""
        return impulse - self.project(impulse - self.lift(sigma), kappa)

    def natural_jacobian(self, impulse: Array, sigma: Array, G: Array, kappa: Array | None = None) -> Array:
        """Its derivative by lambda along sigma = G lambda + g: 1 - P' (1 - S G)."""
        at, one, _ = self.parts(impulse - self.lift(sigma))
        P = projection_jacobian(at, self.normals, self.friction, kappa)
        n, m = G.shape[0], 3 * self.contacts
        PS = P @ lifted_jacobian(self.parts(sigma)[0], self.normals, self.lifting) if self.law == "coulomb" else P
        first = (PS @ G[:m].reshape(-1, 3, n)).reshape(m, n)
        slack = jnp.concatenate([(one > 0).astype(G.dtype), jnp.ones(self.two_sided, G.dtype)])
        A = jnp.concatenate([first, slack[:, None] * G[m:]])
        # 1 - P', block by block
        rows = np.arange(m).reshape(-1, 3)
        A = A.at[rows[:, :, None], rows[:, None, :]].add(jnp.eye(3, dtype=G.dtype) - P)
        rest = np.arange(m, n)
        return A.at[rest, rest].add(1 - slack)


#: A Newton step is made so much shorter until it helps, down to the shortest, and to another along smoothed cones.
SHORTER, SHORTEST = 0.4, 0.1
#: What part of the sum of squares must be left at most for a step to be taken.
LESS = 0.999
#: By how much the smoothing of cones shrinks once its problem is solved to this part of it. With a looser bound the
#: path is lost where masses differ by thousands.
SHRINK, NEAR = 0.3, 0.3
#: Steps along smoothed cones: halved until the sum of squares lessens by this part of their length, or the shortest.
HALF, ENOUGH, SHORTEST_ALONG = 0.5, 1e-3, 1e-3
#: Small against the scaled matrix: what makes redundant rows solvable.
ETA = 1e-6


class Settings(eqx.Module):
    """How long the solver works at most: `newton` steps, then `rounds` of so many ADMM `iterations`, steps along the
    `path` of smoothed cones, and Newton steps again."""

    rounds: int = eqx.field(static=True, default=24)
    iterations: int = eqx.field(static=True, default=10)
    newton: int = eqx.field(static=True, default=8)
    path: int = eqx.field(static=True, default=60)
    tolerance: float | None = eqx.field(static=True, default=None)  # of `residual`; None: by floating type


class Solution(NamedTuple):
    """Impulses of all rows (inside their cones), how far from solved, and how long it took."""

    impulse: Float[Array, " n"]
    residual: Float[Array, ""]  # greatest entry of the natural map, as a velocity
    iterations: Int[Array, ""]  # of ADMM and of Newton's method


def default_tolerance(dtype) -> float:
    """Residual (m/s) below which a solution counts as found."""
    return 1e-9 if dtype == jnp.float64 else 1e-4


def row_scales(cones: Cones, G: Array) -> Float[Array, " n"]:
    """1 / sqrt of the mean diagonal entry of each contact's block, and of each other row's own; one where that is 0."""
    each = np.arange(G.shape[0])
    contacts, one, two = cones.parts(G[each, each])
    mean = jnp.broadcast_to(jnp.mean(contacts, axis=1, keepdims=True), contacts.shape)
    size = cones.joined(mean, one, two)
    return 1 / jnp.sqrt(jnp.where(size > 0, size, 1))


def _approached(cones: Cones, G, g, state: tuple[Array, Array, Array], rho, iterations: int, written: bool):
    """ADMM with one factorization: the state (x, y, z) after so many iterations, and the next penalty."""
    K = G + (rho + ETA) * jnp.eye(g.shape[0], dtype=g.dtype)
    if written:
        factors = eliminated(K, cones.contacts)
        solve = lambda b: solved(factors, b)  # noqa: E731
    else:
        inverse = jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(K), True), jnp.eye(g.shape[0], dtype=g.dtype))
        solve = lambda b: inverse @ b  # noqa: E731

    def iterate(carry, _):
        x, y, z, _, _ = carry
        x = solve(rho * y + ETA * x - g - cones.lift(-z) - 2 * z)
        before, y = y, cones.project(x + z / rho)
        z = z + rho * (x - y)
        return (x, y, z, jnp.max(jnp.abs(x - y)), rho * jnp.max(jnp.abs(y - before))), None

    zero = jnp.zeros((), g.dtype)
    (x, y, z, apart, moved), _ = lax.scan(iterate, (*state, zero, zero), length=iterations)
    factor = jnp.sqrt(jnp.clip(apart / jnp.maximum(moved, jnp.finfo(g.dtype).tiny), 1e-2, 1e2))
    return (x, y, z), jnp.clip(rho * factor, 1e-5, 1e3)


def _newton(
    cones: Cones, G, g, scale, y, kappa, most, shortest, *, target: float, written: bool, refined: int = 2
) -> tuple[Array, Array, Array]:
    """At most so many Newton steps for as long as they help, each of the first length that does: (impulse, map, number
    of steps). `kappa` (c,) smooths the cones; zero or None leaves them sharp.

    Counters are floating numbers, so that the loop can be part of a kernel."""
    per_scale = 1 / scale

    def mapped(y):
        sigma = G @ y + g
        return y, sigma, cones.natural_map(y, sigma, kappa)

    def one(state):
        (y, sigma, r), count, _ = state
        A, merit = cones.natural_jacobian(y, sigma, G, kappa), LESS * jnp.sum(r * r)
        direction = regularized_solve(A, r, cones.contacts if written else None, refined=refined)

        def shorter(tried):
            length = SHORTER * tried[0]
            return length, mapped(cones.project(y - length * direction))

        def too_long(tried):  # never where it is NaN
            length, (_, _, r) = tried
            return (jnp.sum(r * r) >= merit) & (length > shortest)

        first = jnp.ones((), g.dtype), mapped(cones.project(y - direction))
        _, there = while_loop(too_long, shorter, first)
        better = jnp.sum(there[2] * there[2]) < merit
        best = [jnp.where(better, new, old) for new, old in zip(there, state[0], strict=True)]
        return tuple(best), count + 1, better.astype(g.dtype)

    def unfinished(state):
        (_, _, r), count, helped = state
        return (jnp.max(jnp.abs(r) * per_scale) > target) & (count < most) & (helped > 0)

    zero = jnp.zeros((), g.dtype)
    (y, _, r), count, _ = while_loop(unfinished, one, (mapped(y), zero, zero + 1))
    return y, r, count


def _followed(cones: Cones, G, g, y, width, last, most, *, written: bool) -> tuple[Array, Array]:
    """Newton steps for cones ever less smooth, by `width` and down to `last`, inside their smoothed forms (so that no
    step is projected): where one is nearly solved, on to the next. (impulse, number of steps)."""

    def mapped(y, width):
        return cones.natural_map(y, G @ y + g, jnp.broadcast_to(width, (cones.contacts,)))

    def one(state):
        y, width, count = state
        sigma, kappa = G @ y + g, jnp.broadcast_to(width, (cones.contacts,))
        r = cones.natural_map(y, sigma, kappa)
        A, merit = cones.natural_jacobian(y, sigma, G, kappa), jnp.sum(r * r)
        shift = float(jnp.finfo(g.dtype).eps) ** 0.75  # A itself is regular, but for rounding
        direction = regularized_solve(A, r, cones.contacts if written else None, refined=1, shift=shift)

        def shorter(tried):
            length = HALF * tried[0]
            return length, mapped(y - length * direction, width)

        def too_long(tried):  # never where it is NaN
            length, r = tried
            return (jnp.sum(r * r) > (1 - ENOUGH * length) * merit) & (length > SHORTEST_ALONG)

        length, r = while_loop(too_long, shorter, (jnp.ones((), g.dtype), mapped(y - direction, width)))
        y = jnp.where(jnp.sum(r * r) < 2 * merit, y - length * direction, y)
        return y, jnp.where(jnp.max(jnp.abs(r)) < NEAR * width, SHRINK * width, width), count + 1

    def unfinished(state):
        _, width, count = state
        return (width > last) & (count < most)

    y, _, count = while_loop(unfinished, one, (y, width, jnp.zeros((), g.dtype)))
    return cones.project(y), count


def _once_around(cones: Cones, G, g) -> Array:
    """Each contact's impulse in turn, as if it were alone with those before: where Newton's method begins."""
    y = jnp.zeros_like(g)
    for k in range(cones.contacts):
        own = slice(3 * k, 3 * k + 3)
        first, sigma = y[own], G[own, : 3 * k] @ y[: 3 * k] + g[own]
        eased = inverse_3x3(G[own, own] + ETA * jnp.eye(3, dtype=g.dtype)) @ sigma
        y = y.at[own].set(project(first - eased, cones.normals[k], cones.friction[k], None))
    return y


def _rebuilt(function, one_sided: int, two_sided: int, law: str, normals, friction, *arguments, **options):
    return function(Cones(normals, friction, one_sided, two_sided, law), *arguments, **options)


def compiled(function, cones: Cones, **options):
    """function(cones, ...) through the door of the kernels where it is small: one kernel for all robots and scenes."""
    one = partial(_rebuilt, function, cones.one_sided, cones.two_sided, cones.law, **options)
    by_lapack = partial(one, written=False)
    small = 3 * cones.contacts + cones.one_sided + cones.two_sided <= LARGEST
    chosen = door(partial(one, written=True), constants=(), fallback=by_lapack) if small else by_lapack
    return lambda *arguments: chosen(cones.normals, cones.friction, *arguments)


class _Scaled(NamedTuple):
    """A problem in rows of like size, and where to begin."""

    G: Array
    g: Array
    scale: Array
    y: Array


def _scaled(cones: Cones, G, g, start) -> _Scaled:
    scale = row_scales(cones, G)
    y = jnp.zeros_like(g) if start is None else cones.project(start / scale)
    return _Scaled(scale[:, None] * G * scale, scale * g, scale, y)


def targets(dtype, settings: Settings) -> tuple[float, float]:
    """(residual below which a problem counts as solved, residual below which nothing more is tried)."""
    tolerance = default_tolerance(dtype) if settings.tolerance is None else settings.tolerance
    return tolerance, 1e-4 * tolerance


def _beside(y: Array, *values) -> list[Array]:
    """Numbers that have a batch where y has one, so that one kernel serves all calls of a function."""
    return [jnp.where(y[0] > 0, x, x).astype(y.dtype) for x in values]


def attempted(cones: Cones, G, g, start, settings: Settings, written: bool) -> tuple[Array, Array, Array]:
    """What Newton's method alone finds: (impulse, residual, number of steps, a floating number). `written`: as part of
    a kernel; else by a kernel of its own where it is short enough."""
    G, g, scale, y = _scaled(cones, G, g, start)
    if start is None and written:
        y = _once_around(cones, G, g)
    target, most = targets(g.dtype, settings)[1], jnp.asarray(settings.newton, g.dtype)
    newton = partial(_newton, cones, target=target, written=True, refined=0)  # what it leaves is looked at again
    newton = newton if written else compiled(_newton, cones, target=target)
    how = (None, most, SHORTEST) if written else _beside(y, jnp.zeros(cones.contacts, g.dtype), most, SHORTEST)
    y, r, count = newton(G, g, scale, y, *how)
    return y * scale, jnp.max(jnp.abs(r / scale)), count


def insisted(
    cones: Cones, G, g, start, settings: Settings, found: tuple[Array, Array, Array]
) -> tuple[Array, Array, Array]:
    """What rounds of ADMM, steps along smoothed cones and Newton steps make of what Newton's method has `found`."""
    G, g, scale, y = _scaled(cones, G, g, start)
    tolerance, target = targets(g.dtype, settings)
    approach = compiled(_approached, cones, iterations=settings.iterations)
    newton, follow = compiled(_newton, cones, target=target), compiled(_followed, cones)
    sharp, most = jnp.zeros(cones.contacts, g.dtype), jnp.asarray(settings.newton, g.dtype)

    def size(r):
        return jnp.max(jnp.abs(r / scale))

    def one_round(carry):
        admm, rho, best, r_best, number, count, _ = carry
        admm, rho = approach(G, g, admm, rho)
        # The first path begins where every cone is entered evenly, the others where ADMM led, nearer to the end.
        begin = jnp.where(number > 0, admm[1], 0)
        width = (0.1 ** (number % 3)).astype(g.dtype) * jnp.max(jnp.abs(g))
        last = jnp.finfo(g.dtype).eps ** 0.8 * jnp.max(jnp.abs(g))
        # In a batch all go around together: what is solved already takes no steps.
        still = (size(r_best) > target).astype(g.dtype)
        y, along = follow(G, g, begin, *_beside(begin, width, last, settings.path * still))
        y, r, steps = newton(G, g, scale, y, *_beside(y, sharp, still * most, SHORTEST))
        better = jnp.sum(r * r) < jnp.sum(r_best * r_best)
        best, r_best = jnp.where(better, y, best), jnp.where(better, r, r_best)
        return admm, rho, best, r_best, number + 1, count + settings.iterations + along + steps, better

    def unsolved(carry):
        *_, r, number, _, better = carry
        return (number < settings.rounds) & ((size(r) > tolerance) | ((size(r) > target) & better))

    best = found[0] / scale
    z = jnp.zeros_like(g) if start is None else -cones.lift(G @ y + g)
    carry = ((y, y, z), jnp.asarray(0.3, g.dtype), best, cones.natural_map(best, G @ best + g))
    carry = (*carry, jnp.zeros((), int), found[2], jnp.ones((), bool))
    _, _, y, r, _, count, _ = while_loop(unsolved, one_round, carry)
    return y * scale, size(r), count


def solve(
    cones: Cones,
    G: Float[Array, "n n"],
    g: Float[Array, " n"],
    start: Float[Array, " n"] | None = None,
    settings: Settings | None = None,
) -> Solution:
    """Impulses for G (n, n), symmetric and positive semidefinite (compliance added to it), and free velocities g.

    >>> cones = soa.contact.Cones(jnp.array([[0.0, 0.0, 1.0]]), jnp.array([0.5]))  # a normal, its friction
    >>> print(soa.contact.solve(cones, jnp.eye(3), jnp.array([2.0, 0.0, -2.0])).impulse.round(6))  # N s
    [-1.  0.  2.]
    """
    settings = Settings() if settings is None else settings
    if g.shape[0] == 0:
        return Solution(g, jnp.zeros((), g.dtype), jnp.zeros((), int))
    found = attempted(cones, G, g, start, settings, written=False)
    impulse, residual, count = insisted(cones, G, g, start, settings, found)
    return Solution(impulse, residual, count.astype(int))
