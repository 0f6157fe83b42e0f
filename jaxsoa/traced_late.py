"""A function that JAX traces only where its program is needed: when it is compiled as it stands.

`jax.custom_batching.custom_vmap` traces a function before it knows whether it will be batched, and then throws the
program away if it is: half of the time it takes to trace a batch of humanoids. A function traced late is one operation
until then, for which its caller says what the results look like. Outside of `jax.jit` it is compiled once per shape.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import jax
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import mlir


class _Late(NamedTuple):
    """What the operation stands for: a function and the form of its arguments."""

    function: Callable
    structure: Any

    def __call__(self, *leaves: Any) -> list:
        return jax.tree.leaves(self.function(*jax.tree.unflatten(self.structure, leaves)))


@lru_cache(maxsize=64)
def _compiled(late: _Late) -> Callable:
    return jax.jit(late.__call__)


_late_p = Primitive("traced_late")
_late_p.multiple_results = True
_late_p.def_impl(lambda *leaves, late, results: _compiled(late)(*leaves))
_late_p.def_abstract_eval(lambda *_, late, results: [ShapedArray(*result) for result in results])
mlir.register_lowering(_late_p, mlir.lower_fun(lambda *leaves, late, results: late(*leaves), multiple_results=True))


def traced_late(function: Callable, results: Callable) -> Callable:
    """`function` of arrays, to be traced when it is lowered; `results(*arguments)` gives the shapes of its results.

    It cannot be batched or differentiated: the rules for that belong around it.
    """

    def called(*arguments: Any) -> Any:
        leaves, structure = jax.tree.flatten(arguments)
        shapes, form = jax.tree.flatten(results(*arguments))
        kinds = tuple((s.shape, s.dtype) for s in shapes)
        return jax.tree.unflatten(form, _late_p.bind(*leaves, late=_Late(function, structure), results=kinds))

    return called
