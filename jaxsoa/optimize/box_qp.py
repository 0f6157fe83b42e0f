"""Small quadratic programs in a box, by projected Newton steps.

    minimize   x . H x / 2 + g . x      subject to   lower <= x <= upper

D. P. Bertsekas, "Projected Newton methods for optimization problems with simple constraints", SIAM J. Control Optim.
20(2), 1982; used inside differential dynamic programming by Y. Tassa, N. Mansard and E. Todorov, "Control-limited
differential dynamic programming", ICRA 2014.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxsoa.mesh_axes import while_loop
from jaxsoa.optimize.small_dense import solve_positive

STEP_SIZES = 2.0 ** -np.arange(10)


class BoxSolution(NamedTuple):
    x: Float[Array, " n"]
    free: Bool[Array, " n"]  # not held at a limit
    iterations: Int[Array, ""]


def box_qp(
    H: Float[Array, "n n"],
    g: Float[Array, " n"],
    lower: Float[Array, " n"],
    upper: Float[Array, " n"],
    start: Float[Array, " n"],
    *,
    iterations: int = 50,
    solve: Callable = solve_positive,
    part: Callable = lambda function: function,
) -> BoxSolution:
    """The minimizer, for H positive definite (otherwise NaN). Each iteration is a Newton step of the free variables.

    Once the right limits are held, one more step is exact. Step sizes are tried all at once and the best is taken, so
    that nothing loops inside the loop. `solve` solves the systems, and `part` may make a kernel of an iteration.
    """
    tolerance = jnp.finfo(g.dtype).eps ** 0.75

    def held_and_gradient(H, g, lower, upper, x):
        gradient = jnp.sum(H * x, axis=1) + g
        return ((x <= lower) & (gradient > 0)) | ((x >= upper) & (gradient < 0)), gradient

    def unfinished(carry):
        _, count, done = carry
        return ~done & (count < iterations)

    def newton(H, g, lower, upper, x):
        def value(x):
            return jnp.sum(x * (jnp.sum(H * x, axis=1) / 2 + g))

        held, gradient = held_and_gradient(H, g, lower, upper, x)
        step = -solve_free(H, jnp.where(held, 0, gradient)[:, None], ~held, solve)[:, 0]
        tried = jnp.clip(x + STEP_SIZES.astype(x.dtype)[:, None] * step, lower, upper)
        values = jax.vmap(value)(tried)
        best = _first_least(values, tried)
        held, gradient = held_and_gradient(H, g, lower, upper, best)
        scale = jnp.max(jnp.abs(g)) + jnp.max(jnp.abs(H)) * jnp.max(jnp.abs(best))
        solved = jnp.max(jnp.where(held, 0, jnp.abs(gradient)), initial=0.0) <= tolerance * scale
        # NaN (H not positive definite) must end the loop and stay visible.
        return best, solved | ~jnp.all(jnp.isfinite(best)) | (values.min() >= value(x))

    step = part(newton)

    def iterate(carry):
        x, count, _ = carry
        x, done = step(H, g, lower, upper, x)
        return x, count + 1, done

    x, count, _ = while_loop(unfinished, iterate, (jnp.clip(start, lower, upper), 0, jnp.array(False)))
    held, _ = held_and_gradient(H, g, lower, upper, x)
    return BoxSolution(x, ~held, jnp.asarray(count))


def _first_least(values: Array, tried: Array) -> Array:
    """The row of the least value, the first of several; NaN if any value is. Without indices, to fit into a kernel."""
    least = jnp.min(values)
    ties = values == least
    first = ties & (jnp.cumsum(ties.astype(values.dtype)) == 1)
    return jnp.where(jnp.isnan(least), jnp.nan, jnp.sum(jnp.where(first[:, None], tried, 0), axis=0))


def solve_free(
    H: Float[Array, "n n"], b: Float[Array, "n k"], free: Bool[Array, " n"], solve: Callable = solve_positive
) -> Float[Array, "n k"]:
    """H_ff^-1 b_f for the free variables, zero for the others."""
    among = free[:, None] & free[None, :]
    return solve(jnp.where(among, H, jnp.eye(len(H), dtype=H.dtype)), jnp.where(free[:, None], b, 0))
