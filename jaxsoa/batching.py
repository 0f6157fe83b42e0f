"""How a batch of states runs through element-wise code: batch axis last, in chunks that stay in the cache.

Measured on two cores with 7 to 35 degrees of freedom: the layout of the intermediate arrays and the size of the
chunks are each worth up to a factor of two on a CPU. Left to itself the compiler lets the layout that a dense product
wants creep backwards into the sweeps, where it makes every access a strided one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jax.experimental.layout import Layout, with_layout_constraint
from jaxtyping import Array

from jaxsoa.kernels import door
from jaxsoa.one_kernel import one_kernel
from jaxsoa.xla_flags import multi_output_fusion

SWEEP_CHUNK = 2048
"""Bytes of one component of the states swept at a time: more leave the cache, fewer are lost in overhead."""

CACHE_LINE = 64


def row_major(x: Array) -> Array:
    """x, stored with its last axis contiguous."""
    return with_layout_constraint(x, Layout(tuple(range(x.ndim))))


def staged(tree: Any) -> Any:
    """The end of a stage: everything stored row-major, and no operation fused across."""
    return jax.lax.optimization_barrier(jax.tree.map(row_major, tree))


def stored(tree: Any) -> Any:
    """The end of a stage of one evaluation: what follows reads these arrays instead of computing them again.

    XLA's CPU compiler fuses through its own optimization barriers, and then computes a row anew for every pair that it
    enters; it does not fuse through a concatenation. So arrays of equal shape are stacked, and read from the stack.
    """
    leaves, structure = jax.tree.flatten(tree)
    groups: dict[tuple, list[int]] = {}
    for number, leaf in enumerate(leaves):
        groups.setdefault((leaf.shape, leaf.dtype), []).append(number)
    for numbers in groups.values():
        # The barrier keeps the algebra simplifier, which runs first, from seeing through the stack.
        stack = jax.lax.optimization_barrier(jnp.stack([leaves[i] for i in numbers]))
        for number, leaf in zip(numbers, stack, strict=True):
            leaves[number] = leaf
    return jax.tree.unflatten(structure, leaves)


def batch_last(x: Array, batched: bool) -> Array:
    """An argument of a batched call with its batch axis at the end (of length one if it has none)."""
    return row_major(jnp.moveaxis(x, 0, -1)) if batched else jnp.expand_dims(x, -1)


def batch_of(arguments: Any) -> int:
    """Length of the trailing batch axis that some of the arguments have."""
    return max(x.shape[-1] for x in jax.tree.leaves(arguments))


def each_its_own(tree: Any, size: int) -> Any:
    """Leaves that a batch shares (their last axis has length one) repeated for each of its states."""
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (*x.shape[:-1], size)), tree)


def batches_last(arguments: tuple, in_batched: tuple, last: Callable = batch_last) -> tuple:
    """Arguments (robot, state, ...) of a batched call, each leaf with the batch axis at the end.

    Of a batch of models in one state, every model gets a state: what sweeps carry then has the shape of the batch.
    """
    robot, state, *others = jax.tree.map(last, arguments, in_batched)
    return robot, each_its_own(state, batch_of((robot, state, others))), *others


def batch_first(x: Any) -> Any:
    """Results with their trailing batch axis brought to the front."""
    return staged(jax.tree.map(lambda x: jnp.moveaxis(x, -1, 0), staged(x)))


def chunk_bytes(nv: int) -> int | None:
    """Bytes of one component of the states to linearize at a time on a CPU, so that what one chunk needs stays in the
    second-level cache."""
    if jax.default_backend() != "cpu":
        return None
    return SWEEP_CHUNK if nv <= 12 else SWEEP_CHUNK // 2 if nv <= 24 else SWEEP_CHUNK // 4


def floating_type(*arguments: Any) -> Any:
    """The type that arithmetic with all floating leaves of the arguments has."""
    return jnp.result_type(*(x for x in jax.tree.leaves(arguments) if jnp.issubdtype(x.dtype, jnp.floating)))


def either_way(function: Callable, *, linear: bool = False, dense: bool = False) -> Callable:
    """`function(robot, state, ..., split=)` through the door: a kernel where one can be built.

    Where none can: one evaluation packed, and under `jax.vmap` in components, batch last, in chunks. With `linear`, the
    last argument holds tangents; where the batch is in those alone (columns of a Jacobian), what the rest gives is
    computed only once. With `dense`, the results are (nv, nv) matrices, which want smaller chunks.
    """
    return door(partial(function, split=False), fallback=_by_xla(function, linear, dense))


@cache
def _by_xla(function: Callable, linear: bool, dense: bool) -> Callable:
    alone = one_kernel(partial(function, split=False))

    @custom_vmap
    def call(*arguments):
        return alone(*arguments)

    @call.def_vmap
    def batched(axis_size, in_batched, *arguments):
        in_batched = tuple(in_batched)
        if linear and not any(jax.tree.leaves(in_batched[:-1])):
            axes = jax.tree.map(lambda b: 0 if b else None, in_batched[-1])
            outputs = jax.vmap(lambda x: function(*arguments[:-1], x, split=False), in_axes=(axes,))(arguments[-1])
            return outputs, jax.tree.map(lambda _: True, outputs)

        def run(*arguments):
            arguments = batches_last(arguments, in_batched)
            outputs = each_its_own(function(*arguments, split=True), batch_of(arguments))
            return batch_first(outputs) if dense else jax.tree.map(lambda x: jnp.moveaxis(x, -1, 0), outputs)

        if dense:
            row = chunk_bytes(arguments[0].nv)
        else:
            row = SWEEP_CHUNK if jax.default_backend() == "cpu" and multi_output_fusion() else None
        size = chunk_of(axis_size, row, arguments[0].dtype.itemsize, dense=dense)
        outputs = in_chunks(run, size, axis_size, in_batched, arguments)
        return outputs, jax.tree.map(lambda _: True, outputs)

    return call


def linear_zeros(shape: tuple[int, ...], dtype: Any, x: Any) -> Array:
    """Zeros that depend linearly on every leaf of x."""
    total = sum(0 * leaf.ravel()[0] for leaf in jax.tree.leaves(x) if leaf.size)
    return jnp.broadcast_to(jnp.asarray(total).astype(dtype), shape)


def linked(tree: Any, to: Any = None) -> Any:
    """The same values, each leaf depending on all (and on `to`): JAX transposes a linear solve only if all parts of
    its right-hand side are tangents, not if some happen to be constant."""
    return jax.tree.map(lambda x: x + linear_zeros((), x.dtype, (tree, to)), tree)


def tied(tree: Any, on: Any) -> Any:
    """The same values, each leaf a function of every leaf of `on`: where JAX transposes the derivative of a linear
    solve by what the equations depend on, no part of it may be a constant zero either."""
    finite = jax.tree.map(lambda x: jnp.where(jnp.isfinite(x), x, 0), on)  # joint limits may be infinite
    return jax.tree.map(lambda x: x * (1 + linear_zeros((), x.dtype, finite)), tree)


def linear_map(reference: Callable, apply: Callable, transpose: Callable, x: Any, on: Any) -> Any:
    """L x, by `apply` in forward mode and `transpose` in reverse mode, neither of which is ever differentiated.

    Derivatives by what L itself depends on, `on`, are those of `reference`, the same map in plain JAX. L x is the
    solution of y - L x = 0 beside x = x, and a linear solve may bring its own solvers for both directions.
    """
    x = linked(x)
    y = jax.tree.map(lambda s: linear_zeros(s.shape, s.dtype, x), jax.eval_shape(reference, x))

    def matvec(xy):
        x, y = tied(xy, on)
        product = reference(x)
        return linked(x, product), jax.tree.map(jnp.subtract, y, product)

    def solve(_, xy):
        x, y = xy
        return x, jax.tree.map(jnp.add, y, apply(x))

    def solve_transposed(_, xy):
        x, y = xy
        return jax.tree.map(jnp.add, x, transpose(y)), y

    return jax.lax.custom_linear_solve(matvec, (x, y), solve, solve_transposed)[1]


def chunk_of(states: int, row: int | None, itemsize: int, *, dense: bool = False) -> int | None:
    """How many of so many states to take at a time, for about `row` bytes per component (None: all at once).

    A row is an odd number of cache lines. Rows of a power of two all begin in the same few sets of the cache and drive
    each other out: on a quadruped, chunks of 264 states take three quarters of the time of chunks of 256
    (`experiments/chunk_sizes.py`). Of the sizes near `row` the one is taken that leaves least of its last chunk unused.
    Where results are `dense` matrices, cutting off the unused ones would cost more than the cache does: then a divisor
    is preferred.
    """
    if row is None:
        return None
    line, lines = CACHE_LINE // itemsize, row // CACHE_LINE
    if states <= line * lines // 2:
        return None
    near = range(lines * 3 // 4, lines * 5 // 4 + 2)
    divisors = [line * n for n in near if states % (line * n) == 0] if dense else []
    if divisors:
        return min(divisors, key=lambda size: abs(size - line * lines))
    sizes = [line * n for n in near if n % 2]
    if states <= sizes[-1]:
        return line * (-(-states // line) | 1)
    return min(sizes, key=lambda size: (-(-states // size) * size, -size))


def in_chunks(function: Callable, size: int | None, axis_size: int, in_batched: tuple, arguments: tuple) -> Any:
    """`function(*arguments)` over a leading batch axis, `size` states at a time (all at once for None).

    in_batched says which leaves have the batch axis. The last chunk is filled up with the first states.
    """
    if size is None or size == axis_size:
        return function(*arguments)
    leaves, structure = jax.tree.flatten(arguments)
    batched = jax.tree.leaves(in_batched)
    count = -(-axis_size // size)
    spare = count * size - axis_size

    def run(parts: list) -> Any:
        moving = iter(parts)
        full = [next(moving) if b else leaf for leaf, b in zip(leaves, batched, strict=True)]
        return function(*jax.tree.unflatten(structure, full))

    moving = [leaf for leaf, b in zip(leaves, batched, strict=True) if b]
    moving = [jnp.concatenate([x, x[:spare]]) if spare else x for x in moving]
    if count == 1:
        outputs = run(moving)
    else:
        outputs = jax.lax.map(run, [x.reshape(count, size, *x.shape[1:]) for x in moving])
        outputs = jax.tree.map(lambda x: x.reshape(count * size, *x.shape[2:]), outputs)
    return jax.tree.map(lambda x: x[:axis_size], outputs) if spare else outputs
