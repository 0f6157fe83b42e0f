"""The contact problem at the level of velocities, solved by a proximal ADMM and finished by Newton's method.

    find  lambda in K  with  sigma + De Saxce's term in K*, perpendicular to it,   sigma = G lambda + g:

Coulomb's law (a complementarity problem of cones); without De Saxce's term it is the convex law, the minimum of
lambda* G lambda / 2 + g* lambda over K. K is a friction cone per contact, the non-negative numbers per one-sided row
(joint limits) and everything per two-sided row (loops).

ADMM with one factorization (Carpentier, Le Lidec, Montaut, RSS 2024, arXiv 2405.17020), z for minus sigma:

    x = (G + (rho + eta) 1)^-1 (rho y + eta x - z - g - mu |z_T| n),   y = P_K(x + z / rho),   z = z + rho (x - y).

It brings the iterate near; semismooth Newton steps on the natural map r = lambda - P_K(lambda - sigma~), each of the
length among a few that lessens r most, bring it to rounding. Where they stall, ADMM goes on from where it was, with a
penalty that balances how far x is from y against how far y moves. Rows are scaled so that every diagonal block of G
is one in the mean, one factor per contact, which maps cones to themselves. Redundant rows (G singular) are met by the
proximal term. The loops end when the problem is solved, at a bound at the latest; no derivative enters them (see
`stepping`), so reverse mode never meets an open loop.
"""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from jaxsoa.contact.cone import lifted, lifted_jacobian, project, projection_jacobian


class Cones(eqx.Module):
    """What the rows may carry: `normals` (c, 3) and `friction` (c,) of contacts, three rows each, then one-sided and
    two-sided rows. `kappa` (c,) smooths the contacts' cones; None leaves them sharp."""

    normals: Float[Array, "c 3"]
    friction: Float[Array, " c"]
    one_sided: int = eqx.field(static=True, default=0)
    two_sided: int = eqx.field(static=True, default=0)
    law: str = eqx.field(static=True, default="coulomb")

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
        return self.joined(lifted(contacts, self.normals, self.friction), one, two)

    def natural_map(self, impulse: Array, sigma: Array, kappa: Array | None = None) -> Array:
        """lambda - P(lambda - sigma~): zero exactly at solutions (in scaled rows)."""
        return impulse - self.project(impulse - self.lift(sigma), kappa)

    def natural_jacobian(self, impulse: Array, sigma: Array, G: Array, kappa: Array | None = None) -> Array:
        """Its derivative by lambda along sigma = G lambda + g: 1 - P' (1 - S G)."""
        at, one, _ = self.parts(impulse - self.lift(sigma))
        P = projection_jacobian(at, self.normals, self.friction, kappa)
        n = G.shape[0]
        first, rest = G[: 3 * self.contacts].reshape(-1, 3, n), G[3 * self.contacts :]
        if self.law == "coulomb":
            S = lifted_jacobian(self.parts(sigma)[0], self.normals, self.friction)
            first = S @ first
        eye = jnp.eye(n, dtype=G.dtype)
        first = (P @ (eye[: 3 * self.contacts].reshape(-1, 3, n) - first)).reshape(-1, n)
        slack = jnp.concatenate([(one > 0).astype(G.dtype), jnp.ones(self.two_sided, G.dtype)])
        return eye - jnp.concatenate([first, slack[:, None] * (eye[3 * self.contacts :] - rest)])


#: Lengths of a Newton step, tried all at once.
LENGTHS = (1, 0.5, 0.25, 0.1, 0.03, 0.01)


class Settings(eqx.Module):
    """How long the solver works at most: `rounds`, each of so many ADMM iterations and up to `newton` steps."""

    rounds: int = eqx.field(static=True, default=30)
    iterations: int = eqx.field(static=True, default=20)
    newton: int = eqx.field(static=True, default=8)
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
    contacts, one, two = cones.parts(jnp.diagonal(G))
    mean = jnp.broadcast_to(jnp.mean(contacts, axis=1, keepdims=True), contacts.shape)
    size = cones.joined(mean, one, two)
    return 1 / jnp.sqrt(jnp.where(size > 0, size, 1))


def regularized_solve(A: Float[Array, "n n"], b: Float[Array, " n"], steps: int = 3) -> Float[Array, " n"]:
    """x with A x = b where A may be singular but b is in its range: proximal steps x += (A + eps 1)^-1 (b - A x)."""
    eps = jnp.sqrt(jnp.finfo(A.dtype).eps)
    factors = jax.scipy.linalg.lu_factor(A + eps * jnp.eye(A.shape[0], dtype=A.dtype))
    x = jax.scipy.linalg.lu_solve(factors, b)
    for _ in range(steps - 1):
        x = x + jax.scipy.linalg.lu_solve(factors, b - A @ x)
    return x


def solve(
    cones: Cones,
    G: Float[Array, "n n"],
    g: Float[Array, " n"],
    start: Float[Array, " n"] | None = None,
    settings: Settings | None = None,
) -> Solution:
    """Impulses for G (n, n), symmetric and positive semidefinite (compliance added to it), and free velocities g."""
    settings = Settings() if settings is None else settings
    n = g.shape[0]
    if n == 0:
        return Solution(g, jnp.zeros((), g.dtype), jnp.zeros((), int))
    tolerance = default_tolerance(g.dtype) if settings.tolerance is None else settings.tolerance
    scale = row_scales(cones, G)
    G, g = scale[:, None] * G * scale, scale * g
    y = jnp.zeros_like(g) if start is None else cones.project(start / scale)
    eye = jnp.eye(n, dtype=G.dtype)
    eta = 1e-6

    def size(r):
        return jnp.max(jnp.abs(r / scale))

    def residual_of(y):
        return cones.natural_map(y, G @ y + g)

    def approached(carry, rho):
        """ADMM with one factorization."""
        K = jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(G + (rho + eta) * eye), True), eye)

        def iterate(carry, _):
            x, y, z, _, _ = carry
            x = K @ (rho * y + eta * x - g - cones.lift(-z) - 2 * z)
            before, y = y, cones.project(x + z / rho)
            z = z + rho * (x - y)
            return (x, y, z, jnp.max(jnp.abs(x - y)), rho * jnp.max(jnp.abs(y - before))), None

        zero = jnp.zeros((), g.dtype)
        (x, y, z, apart, moved), _ = lax.scan(iterate, (*carry, zero, zero), length=settings.iterations)
        factor = jnp.sqrt(jnp.clip(apart / jnp.maximum(moved, jnp.finfo(g.dtype).tiny), 1e-2, 1e2))
        return (x, y, z), jnp.clip(rho * factor, 1e-5, 1e3)

    def newton(carry):
        y, r, count, _ = carry
        direction = regularized_solve(cones.natural_jacobian(y, G @ y + g, G), r)
        tried = jax.vmap(lambda length: cones.project(y - length * direction))(jnp.asarray(LENGTHS, g.dtype))
        r_tried = jax.vmap(residual_of)(tried)
        merit = jnp.sum(r_tried * r_tried, axis=1)
        merit = jnp.where(jnp.isfinite(merit), merit, jnp.inf)
        best = jnp.argmin(merit)
        better = merit[best] < 0.999 * jnp.sum(r * r)
        return jnp.where(better, tried[best], y), jnp.where(better, r_tried[best], r), count + 1, better

    def one_round(carry):
        admm, rho, best, r_best, number, count, _ = carry
        admm, rho = approached(admm, rho)
        first = admm[1], residual_of(admm[1]), jnp.zeros((), int), jnp.ones((), bool)
        unfinished = lambda state: (size(state[1]) > target) & (state[2] < settings.newton) & state[3]  # noqa: E731
        y, r, steps, _ = lax.while_loop(unfinished, newton, first)
        better = jnp.sum(r * r) < jnp.sum(r_best * r_best)
        best, r_best = jnp.where(better, y, best), jnp.where(better, r, r_best)
        return admm, rho, best, r_best, number + 1, count + settings.iterations + steps, better

    def unsolved(carry):
        *_, r, number, _, better = carry
        return (number < settings.rounds) & ((size(r) > tolerance) | ((size(r) > target) & better))

    target = 1e-4 * tolerance  # gone for as long as rounds still help; NaN ends everything
    z = jnp.zeros_like(g) if start is None else -cones.lift(G @ y + g)
    zero = jnp.zeros((), int)
    carry = ((y, y, z), jnp.asarray(0.3, g.dtype), y, residual_of(y), zero, zero, jnp.ones((), bool))
    _, _, y, r, _, count, _ = lax.while_loop(unsolved, one_round, carry)
    return Solution(y * scale, size(r), count)
