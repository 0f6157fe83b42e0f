"""Loops inside `jax.shard_map`: what a loop carries must from the start vary over the mesh axes it will vary over.

Inside `shard_map`, JAX tracks in the type of every array over which axes of the mesh it differs between devices. What a
loop starts from is often a constant, alike on all devices; what its body makes of it is not, and JAX refuses a loop
whose carry changes its type. So carries are marked before the loop. Elsewhere nothing is done, and nothing costs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax import lax


def inside_shard_map() -> bool:
    """Whether what is traced now runs on each device of a mesh by itself."""
    return bool(jax.sharding.get_abstract_mesh().manual_axes)


def axes_of(x: Any) -> frozenset:
    """The mesh axes over which an array, or the shape of one, differs between devices."""
    kind = x if isinstance(x, jax.ShapeDtypeStruct) else jax.typeof(x)
    manual = getattr(kind, "manual_axis_type", None)  # before it had this name, JAX called it vma
    found = getattr(kind, "vma", None) if manual is None else manual.varying
    return frozenset(found or ())


def refuse_varying(name: str, tree: Any, why: str) -> None:
    """Raise if `shard_map` types any leaf as varying between devices: for what cannot be made to keep such types."""
    if any(axes_of(x) for x in jax.tree.leaves(tree) if isinstance(x, jax.Array | jax.ShapeDtypeStruct)):
        raise TypeError(
            f"{name} cannot be used where shard_map types arrays by the devices they differ between: {why}. "
            "Pass check_vma=False to jax.shard_map, or use simulate.sharded_map."
        )


def _marked(x: Any, axes: frozenset) -> Any:
    missing = axes - axes_of(x)
    return lax.pcast(x, tuple(sorted(missing)), to="varying") if missing else x


def varying_like(tree: Any, *others: Any) -> Any:
    """The same values, every leaf varying over all mesh axes over which any leaf of the tree or the others does."""
    if not inside_shard_map():
        return tree
    axes = frozenset().union(*(axes_of(x) for x in jax.tree.leaves((tree, *others))))
    return jax.tree.map(lambda x: _marked(x, axes), tree)


def keeping_axes(body: Callable) -> Callable:
    """`body(carry, ...) -> (carry, y)`, what it carries on marked leaf by leaf as what it was given."""
    if not inside_shard_map():
        return body

    def marked(carry: Any, *inputs: Any) -> tuple[Any, Any]:
        after, y = body(carry, *inputs)
        return jax.tree.map(lambda x, y: _marked(x, axes_of(y)), after, carry), y

    return marked


def varying_carry(body: Callable, carry: Any, *inputs: Any) -> Any:
    """The carry a loop starts from, marked as what `body(carry, *inputs) -> carry` makes of it.

    For loops whose bodies close over arrays: the body is traced to find out, so it is for the outer loops only.
    """
    if not inside_shard_map():
        return carry
    while True:
        after = jax.eval_shape(body, carry, *inputs)
        marked = jax.tree.map(lambda x, y: _marked(x, axes_of(y)), carry, after)
        before, now = ([axes_of(x) for x in jax.tree.leaves(tree)] for tree in (carry, marked))
        carry = marked
        if before == now:
            return carry


def scan(body: Callable, carry: Any, xs: Any = None, length: int | None = None, **options: Any) -> tuple[Any, Any]:
    """`lax.scan` whose carry is marked by `varying_carry`."""
    if inside_shard_map():
        row = jax.tree.map(lambda x: lax.index_in_dim(x, 0, keepdims=False), xs)
        carry = varying_carry(lambda carry, x: body(carry, x)[0], carry, row)
    return lax.scan(keeping_axes(body), carry, xs, length=length, **options)


def while_loop(unfinished: Callable, body: Callable, carry: Any) -> Any:
    """`lax.while_loop` whose carry is marked by `varying_carry`."""
    if not inside_shard_map():
        return lax.while_loop(unfinished, body, carry)
    kept = keeping_axes(lambda carry: (body(carry), None))
    return lax.while_loop(unfinished, lambda carry: kept(carry)[0], varying_carry(body, carry))
