"""Functions traced once: a function and shapes are a key, arrays that are part of a program are known by content."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import jax
import numpy as np

from jaxsoa.caches import register


class Constant:
    """An array that is part of a program, known by its content."""

    def __init__(self, value: Any):
        self.value = np.asarray(value)
        self._key = (self.value.shape, self.value.dtype.str, self.value.tobytes())
        self._hash = hash(self._key)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constant) and (self is other or self._key == other._key)


class Constants:
    """Constants of arrays at hand, so that a robot used again and again is looked at once."""

    def __init__(self, most: int = 512):
        self.most, self.found, self.lock = most, {}, threading.Lock()

    def of(self, leaf: Any) -> Constant:
        if not isinstance(leaf, jax.Array):  # NumPy arrays can be written to
            return Constant(leaf)
        with self.lock:
            known = self.found.get(id(leaf))
            if known is not None and known[0] is leaf:
                return known[1]
        constant = Constant(leaf)
        with self.lock:
            while len(self.found) >= self.most:
                self.found.pop(next(iter(self.found)))
            self.found[id(leaf)] = (leaf, constant)  # the leaf is kept, so its number is not given away
        return constant


CONSTANTS = Constants()
register(CONSTANTS.found.clear)


def _identity(function: Callable) -> Any:
    """What makes two functions the same: partial applications made anew are equal if their parts are."""
    if isinstance(function, partial):
        return _identity(function.func), function.args, tuple(sorted(function.keywords.items()))
    return function


class Traced:
    """A function of arrays of given shapes: its jaxpr, and the form of its results."""

    def __init__(self, function: Callable, structure: Any, shapes: tuple):
        self.name = _name(function)

        def flat(*leaves):
            return function(*jax.tree.unflatten(structure, leaves))

        arguments = [jax.ShapeDtypeStruct(*shape) for shape in shapes]
        self.program, results = jax.make_jaxpr(flat, return_shape=True)(*arguments)
        leaves, self.form = jax.tree.flatten(results)
        self.results = tuple((leaf.shape, np.dtype(leaf.dtype)) for leaf in leaves)


def _name(function: Any) -> str:
    if isinstance(function, partial):
        return _name(function.func)
    module, name = getattr(function, "__module__", ""), getattr(function, "__qualname__", str(function))
    return f"{module}.{name}".removeprefix("jaxsoa.")


class Key:
    """A function and shapes, as a key of caches: equal where `_identity` is."""

    def __init__(self, function: Callable, structure: Any, shapes: tuple):
        self.function, self.structure, self.shapes = function, structure, shapes
        self._key = (_identity(function), structure, shapes, bool(getattr(jax.config, "jax_enable_x64", False)))
        self._hash = hash(self._key)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and self._key == other._key


@lru_cache(maxsize=512)
def trace(key: Key) -> Traced:
    return Traced(key.function, key.structure, key.shapes)
