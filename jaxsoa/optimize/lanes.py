"""Loops of many problems, of which each ends when it ends.

Under `jax.vmap` a `lax.while_loop` goes on until the last problem of the batch is done, and computes all of them all
the time; and the more problems, the less of them stays in the cache. Here a batch is worked off in a number of lanes:
where problems are done, the next ones of the batch take their places.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Bool, Int

from jaxsoa.mesh_axes import inside_shard_map, while_loop
from jaxsoa.optimize.hoisted import hoisted

LANES = 16
"""Problems worked on at a time. A trajectory with its derivatives takes some hundred kilobytes."""

REFILL = 6
"""One lane in so many waits, done, until new problems are brought."""


class _Lanes(NamedTuple):
    closed: Any  # what the loop closes over, per lane
    carry: Any
    number: Int[Array, " lanes"]  # of the problem in the lane; the number of problems where there is none
    busy: Bool[Array, " lanes"]
    upcoming: Int[Array, ""]  # the next problem that no lane has had
    done: Any  # carries of all problems, those done so far


def while_by_lanes(unfinished: Callable, body: Callable, carry: Any, lanes: int = LANES) -> Any:
    """`lax.while_loop`, of which a large batch is worked off in lanes. Both functions may close over traced values."""
    if inside_shard_map() or getattr(jax.config, "jax_disable_jit", False):
        return while_loop(unfinished, body, carry)
    carry = jax.tree.map(jnp.asarray, carry)
    tested, stepped = hoisted(unfinished, carry), hoisted(body, carry)
    if stepped.program.effects:  # callbacks
        return while_loop(unfinished, body, carry)
    test, step = tested.function, stepped.function

    def loop(closed, carry):
        return lax.while_loop(lambda x: test(closed[0], x), lambda x: step(closed[1], x), carry)

    @custom_vmap
    def run(closed, carry):
        return loop(closed, carry)

    @run.def_vmap
    def _(size, in_batched, closed, carry):
        closed, carry = jax.tree.map(jnp.asarray, (closed, carry))  # JAX hands over what is constant as numbers
        axes = jax.tree.map(lambda batched: 0 if batched else None, tuple(in_batched))
        if size <= lanes:
            found = jax.vmap(loop, in_axes=axes)(closed, carry)
        else:
            carry = jax.tree.map(
                lambda x, batched: x if batched else jnp.broadcast_to(x, (size, *x.shape)), carry, in_batched[1]
            )
            tests = jax.vmap(lambda closed, x: test(closed[0], x), in_axes=(axes[0], 0))
            steps = jax.vmap(lambda closed, x: step(closed[1], x), in_axes=(axes[0], 0))
            found = _by_lanes(tests, steps, closed, in_batched[0], carry, size, lanes)
        return found, jax.tree.map(lambda _: True, found)

    return run((tested.values, stepped.values), carry)


def _by_lanes(test: Callable, step: Callable, closed: Any, batched: Any, carry: Any, size: int, lanes: int) -> Any:
    """`test` and `step` of a batch of carries; `batched` says which values closed over differ between problems."""

    def of_problems(number: Array, now_closed: Any, now: Any, take: Array) -> tuple[Any, Any]:
        """What the lanes hold, with the problems of these numbers where `take`."""
        number = jnp.minimum(number, size - 1)
        fresh = jax.tree.map(lambda x: x[number], carry)
        new = jax.tree.map(lambda x, y, b: _where(take, x[number], y) if b else x, closed, now_closed, batched)
        return new, jax.tree.map(lambda x, y: _where(take, x, y), fresh, now)

    def ticking(at: _Lanes):
        many = jnp.sum(at.busy)
        return (many > 0) & ((many > lanes - -(-lanes // REFILL)) | (at.upcoming >= size))

    def tick(at: _Lanes) -> _Lanes:
        after = jax.tree.map(lambda x, y: _where(at.busy, x, y), step(at.closed, at.carry), at.carry)
        return at._replace(carry=after, busy=at.busy & test(at.closed, after))

    def refill(at: _Lanes) -> _Lanes:
        at = lax.while_loop(ticking, tick, at)
        number = at.upcoming + jnp.cumsum(~at.busy) - 1
        take = ~at.busy & (number < size)
        done = _put(at.done, at.carry, jnp.where(at.busy, size, at.number))
        in_lanes, now = of_problems(number, at.closed, at.carry, take)
        upcoming = at.upcoming + jnp.sum(take)
        number = jnp.where(take, number, jnp.where(at.busy, at.number, size))
        return _Lanes(in_lanes, now, number, at.busy | (take & test(in_lanes, now)), upcoming, done)

    first = jnp.arange(lanes)
    like = jax.tree.map(lambda x, b: x[:lanes] if b else x, closed, batched)
    in_lanes, now = of_problems(first, like, jax.tree.map(lambda x: x[:lanes], carry), first >= 0)
    done = jax.tree.map(lambda x: jnp.concatenate([x, x[:1]]), carry)  # a last row for what is not to be kept
    start = _Lanes(in_lanes, now, first, test(in_lanes, now), jnp.asarray(lanes), done)
    end = lax.while_loop(lambda at: jnp.any(at.number < size), refill, start)
    return jax.tree.map(lambda x: x[:size], end.done)


def _where(condition: Array, x: Array, y: Array) -> Array:
    return jnp.where(condition.reshape(-1, *([1] * (x.ndim - 1))), x, y)


def _put(done: Any, carry: Any, numbers: Array) -> Any:
    """Rows written where their numbers say. One after the other: XLA's CPU compiler (jaxlib 0.10) stops the process at
    several scatters that it makes one under `fast_cpu`."""

    def write(done, x):
        number, row = x
        return jax.tree.map(lambda all, one: lax.dynamic_update_index_in_dim(all, one, number, 0), done, row), None

    return lax.scan(write, done, (numbers, carry))[0]
