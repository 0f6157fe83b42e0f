"""Functions that close over traced values, with these handed in: what rules for batches need to see."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jax.core import Tracer
from jaxtyping import Array

from jaxsoa.kernels.jax_interface import ClosedJaxpr, jaxpr_as_fun


class Hoisted(NamedTuple):
    """`function(values, *arguments)` is what was given, and closes over nothing that is traced."""

    function: Callable
    values: list[Array]
    program: ClosedJaxpr


def hoisted(function: Callable, *arguments: Any) -> Hoisted:
    """A function of arrays, traced with these arguments."""
    program, shapes = jax.make_jaxpr(function, return_shape=True)(*arguments)
    return of_program(program, jax.tree.structure(shapes))


def of_program(program: ClosedJaxpr, structure: Any) -> Hoisted:
    """The same of a program at hand, whose results have this structure."""
    places = [i for i, value in enumerate(program.consts) if isinstance(value, Tracer)]

    def called(values, *arguments):
        consts = list(program.consts)
        for i, value in zip(places, values, strict=True):
            consts[i] = value
        results = jaxpr_as_fun(ClosedJaxpr(program.jaxpr, consts))(*jax.tree.leaves(arguments))
        return jax.tree.unflatten(structure, results)

    return Hoisted(called, [program.consts[i] for i in places], program)
