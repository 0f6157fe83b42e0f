"""A part of a solver as one kernel for one problem; a batch of problems is left to XLA."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from jaxsoa.kernels.xla_kernel import fits, left_to_xla, one_kernel, traced_as_part
from jaxsoa.optimize.hoisted import of_program


def alone(function: Callable) -> Callable:
    """`function` of arrays: one kernel (where it fits into one) for one problem, as it stands under `jax.vmap`.

    It may close over traced values, of which dynamics and costs are made. Only forward mode goes through a kernel, as
    through the loops around it.
    """

    def called(*arguments: Any) -> Any:
        if left_to_xla():
            return function(*arguments)
        arguments = jax.tree.map(jnp.asarray, arguments)
        program, shapes, _ = traced_as_part(function, *arguments)
        if not fits(program):
            return function(*arguments)
        # A batch may be in what the function closes over: that has to be handed in.
        found = of_program(program, jax.tree.structure(jax.tree.leaves(shapes)))

        def compute(closed_over, leaves):
            return found.function(closed_over, *leaves)

        @custom_vmap
        def either(closed_over, leaves):
            return one_kernel(compute)(closed_over, leaves)

        @either.def_vmap
        def batched(_, in_batched, closed_over, leaves):
            axes = jax.tree.map(lambda b: 0 if b else None, tuple(in_batched))
            outputs = jax.vmap(compute, in_axes=axes)(closed_over, leaves)
            return outputs, [True] * len(outputs)

        results = either(found.values, jax.tree.leaves(arguments))
        return jax.tree.unflatten(jax.tree.structure(shapes), results)

    return called
