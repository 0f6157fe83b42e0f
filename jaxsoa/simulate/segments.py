"""Scans in segments: reverse mode keeps the state between segments and computes each segment again."""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp

from jaxsoa.mesh_axes import scan


def segmented_scan(body, carry, xs, length: int, segment: int = 1, report: Callable | None = None):
    """`lax.scan(body, carry, xs)`, by checkpointed segments if `segment` > 1.

    The outermost loop calls `report(items done before, items done after)`, if there is one: outside every checkpoint,
    so that no recomputation repeats it.
    """
    if segment == 1:

        def reported(carry, x):
            number, x = x
            out = body(carry, x)
            if report is not None:
                report(number, number + 1)
            return out

        return scan(reported, carry, (jnp.arange(length), xs))

    def report_segment(before, after):
        if report is not None:
            report(before * segment, after * segment)

    whole = length // segment * segment
    run = jax.checkpoint(lambda carry, xs: scan(body, carry, xs), prevent_cse=False)
    head = in_blocks(jax.tree.map(lambda x: x[:whole], xs), segment)
    carry, records = segmented_scan(run, carry, head, whole // segment, 1, report_segment)
    records = jax.tree.map(lambda x: x.reshape(whole, *x.shape[2:]), records)
    if whole == length:
        return carry, records
    carry, rest = scan(body, carry, jax.tree.map(lambda x: x[whole:], xs))
    if report is not None:
        report(jnp.asarray(whole), jnp.asarray(length))
    return carry, jax.tree.map(lambda a, b: jnp.concatenate([a, b]), records, rest)


def in_blocks(xs, size: int):
    """Leading axes (n, ...) as (n / size, size, ...)."""
    return jax.tree.map(lambda x: x.reshape(-1, size, *x.shape[1:]), xs)


def segment_length(length: int) -> int:
    """About sqrt(length); a divisor if there is one near, which saves compiling the body twice."""
    root = max(1, math.isqrt(length))
    near = [n for n in range(root, 2 * root + 1) if length % n == 0]
    return near[0] if near else root
