"""Functions of a model and a state with a derivative rule of their own, and kernels inside.

JAX hands everything to a rule as traced values, whether it was known before or not. Here the model is looked at first:
one that is known stays known inside, so that kernels can be compiled for it, and is not differentiated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax.custom_derivatives import SymbolicZero

from jaxsoa.kernels.jax_interface import Tracer


def is_zero(tangent: Any) -> bool:
    """Whether a tangent is known to be zero."""
    return isinstance(tangent, SymbolicZero)


class _Known:
    """A model that is not traced."""

    def __init__(self, model: Any):
        self.model = model


class Ruled:
    """`function(model, *state)` with the rule `rule(primals, tangents) -> (results, their tangents)`.

    Tangents that are zero are given as such (`is_zero`), leaf by leaf.
    """

    def __init__(self, function: Callable, rule: Callable):
        self.__name__, self.__doc__ = function.__name__, function.__doc__
        self._any = jax.custom_jvp(function)
        self._any.defjvp(rule, symbolic_zeros=True)
        self._known = jax.custom_jvp(lambda known, *state: function(known.model, *state), nondiff_argnums=(0,))

        def with_known(known, primals, tangents):
            still = jax.tree.map(lambda x: SymbolicZero(jax.typeof(x)), known.model)
            return rule((known.model, *primals), (still, *tangents))

        self._known.defjvp(with_known, symbolic_zeros=True)

    def __call__(self, model: Any, *state: Any) -> Any:
        known = not any(isinstance(x, Tracer) for x in jax.tree.leaves(model))
        if known and any(isinstance(x, Tracer) for x in jax.tree.leaves(state)):
            return self._known(_Known(model), *state)
        return self._any(model, *state)


def ruled(rule: Callable) -> Callable[[Callable], Ruled]:
    """Decorator: a function of (model, *state) with a derivative rule."""
    return lambda function: Ruled(function, rule)


def by_jax(function: Callable) -> Callable:
    """The rule that differentiates another form of the same function in plain JAX, along what is not zero."""

    def rule(primals, tangents):
        leaves, structure = jax.tree.flatten(primals)
        rates = jax.tree.leaves(tangents, is_leaf=is_zero)
        moving = [i for i, rate in enumerate(rates) if not is_zero(rate)]

        def along(*values):
            full = list(leaves)
            for i, value in zip(moving, values, strict=True):
                full[i] = value
            return function(*jax.tree.unflatten(structure, full))

        if not moving:
            found = function(*primals)
            return found, jax.tree.map(jax.numpy.zeros_like, found)
        return jax.jvp(along, [leaves[i] for i in moving], [rates[i] for i in moving])

    return rule
