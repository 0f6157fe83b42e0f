"""A function of one step of a trajectory as a kernel: the steps of a problem, and of many problems, are a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxsoa.kernels import door
from jaxsoa.mesh_axes import axes_of
from jaxsoa.optimize.hoisted import hoisted


def stepwise(function: Callable) -> Callable:
    """`function` of arrays through the door, whatever it closes over: costs and dynamics are made of traced values.

    What has effects (a callback in a cost), what no kernel can be made of, and what is typed as differing between the
    devices of a mesh, for which the program says where it begins to, stays with JAX.
    """

    def called(*arguments: Any) -> Any:
        arguments = jax.tree.map(jnp.asarray, arguments)
        found = hoisted(function, *arguments)
        if found.program.effects or getattr(jax.config, "jax_disable_jit", False):
            return function(*arguments)
        if any(map(axes_of, jax.tree.leaves((arguments, found.values)))):
            return function(*arguments)

        def compute(values, arguments):
            return found.function(values, *arguments)

        compute.__qualname__ = getattr(function, "__qualname__", compute.__qualname__)
        return door(compute, constants=())(found.values, arguments)

    return called
