"""Public functions called outside of `jax.jit`: one compiled program each, instead of an operation at a time.

    @compiled
    def frame_pose(robot, q, frame): ...

Inside of a trace (jit, vmap, grad, scan) the function is what it is without the decorator, or with `kernel` one kernel
whose derivatives are those of the function as it is written. Outside, arrays and the numbers of models are inputs of a
compiled program, through the door of the kernels where it can be read; names and options are part of it. Where an
argument is anything else (a function, say, which may read what changes), the function runs as it is.
"""

from __future__ import annotations

import inspect
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import lru_cache, wraps
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsoa.caches import register
from jaxsoa.kernels import by_jax, door, ruled
from jaxsoa.kernels.jax_interface import Tracer, nothing_traced

MOST = 256
"""Programs that are kept."""

_CONFIGURATIONS = ("q", "q0", "q1")


class _Programs:
    """Compiled programs by key, the last ones used."""

    def __init__(self):
        self.found: OrderedDict[Any, Callable] = OrderedDict()
        self.lock = threading.Lock()

    def get(self, key: Any, make: Callable[[], Callable]) -> Callable:
        with self.lock:
            program = self.found.get(key)
            if program is None:
                program = self.found[key] = make()
                while len(self.found) > MOST:
                    self.found.popitem(last=False)
            self.found.move_to_end(key)
            return program


_programs = _Programs()
register(_programs.found.clear)


def compiled(
    function: Callable | None = None,
    *,
    through_door: bool = True,
    not_with: Sequence[str] = (),
    kernel: bool = False,
) -> Any:
    """Decorator: `function(model, ...)` as one compiled program where it is called outside of a trace.

    Where one of the arguments `not_with` is given (is not None, False or empty), the function runs as it is: it looks
    at values then. `through_door`: into machine code of our own if it can be read, which is not worth trying for what
    has an eigenvalue problem or a search in it. `kernel`: in the programs of others too, for functions of a robot and
    arrays that do not bring kernels themselves.
    """
    if function is None:
        return lambda f: compiled(f, through_door=through_door, not_with=not_with, kernel=kernel)
    names = tuple(inspect.signature(function).parameters)

    @wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        if getattr(jax.config, "jax_disable_jit", False) or len(args) > len(names):
            return function(*args, **kwargs)
        if not nothing_traced():
            return _inside(function, names, args, kwargs) if kernel else function(*args, **kwargs)
        named = (*zip(names, args, strict=False), *kwargs.items())
        inputs: list[list] = []
        parts: list[tuple[str, Any, Any]] = []  # name, structure of an input, or value of an option
        for name, value in named:
            if name in not_with and not _absent(value):
                return function(*args, **kwargs)
            value = _as_option(value)
            if _is_option(value):
                parts.append((name, None, (type(value), value)))
                continue
            leaves, structure = jax.tree.flatten(value)
            if callable(value) or not leaves or not all(map(_is_input, leaves)):
                return function(*args, **kwargs)
            inputs.append(leaves)
            parts.append((name, structure, None))
        _check_rotations(named)
        count = len(args)
        key = (function, count, tuple(parts), bool(getattr(jax.config, "jax_enable_x64", False)))
        program = _programs.get(key, lambda: _program(function, through_door, count, parts))
        return program(inputs)

    return called


def _inside(function: Callable, names: Sequence[str], args: Sequence, kwargs: dict[str, Any]) -> Any:
    """The function within a program: one kernel, if everything that it computes with is of one floating type."""
    named = {name: _as_option(value) for name, value in (*zip(names, args, strict=False), *kwargs.items())}
    inputs = {name: value for name, value in named.items() if not _is_option(value)}
    leaves = jax.tree.leaves(inputs)
    if not inputs or next(iter(inputs)) != names[0] or not all(isinstance(x, jax.Array) for x in leaves):
        return function(*args, **kwargs)
    if len({x.dtype for x in leaves}) != 1 or not jnp.issubdtype(leaves[0].dtype, jnp.floating):
        return function(*args, **kwargs)
    _check_rotations(tuple(named.items()))  # a kernel sees no values, not even those that are known here
    options = tuple((name, value) for name, value in named.items() if name not in inputs)
    return _as_kernel(function, tuple(inputs), options)(*inputs.values())


@lru_cache(maxsize=MOST)
def _as_kernel(function: Callable, inputs: tuple[str, ...], options: tuple[tuple[str, Any], ...]) -> Callable:
    """A kernel of the model and arrays named `inputs`, with the derivatives of the function."""

    def whole(*values: Any) -> Any:
        return function(**dict(zip(inputs, values, strict=True)), **dict(options))

    for name in ("__module__", "__name__", "__qualname__", "__doc__"):  # not its signature, which has options
        setattr(whole, name, getattr(function, name))
    return ruled(by_jax(whole))(door(whole))


register(_as_kernel.cache_clear)


def _as_option(x: Any) -> Any:
    """A list of names as a tuple of them; anything else as it is."""
    return tuple(x) if isinstance(x, list) and x and all(isinstance(y, str) for y in x) else x


def _is_option(x: Any) -> bool:
    """What is part of a program: names, switches, whole numbers, nothing, and tuples of names."""
    return x is None or isinstance(x, str | bool | int) or (isinstance(x, tuple) and all(isinstance(y, str) for y in x))


def _is_input(x: Any) -> bool:
    if type(x) is float:
        return True
    if isinstance(x, Tracer):
        return False
    if isinstance(x, jax.Array):
        # What is more precise than JAX computes now, `jit` would round without a word.
        return _computed_as_it_is(x.dtype)
    return isinstance(x, np.ndarray | np.generic) and x.dtype.kind in "fiub"


def _computed_as_it_is(dtype: np.dtype) -> bool:
    if dtype.kind not in "fiub":
        return False
    return dtype.itemsize < 8 or bool(getattr(jax.config, "jax_enable_x64", False))


def _absent(value: Any) -> bool:
    return value is None or value is False or (isinstance(value, tuple | list) and not value)


def _check_rotations(named: Sequence[tuple[str, Any]]) -> None:
    """What a model says of configurations whose values it can see."""
    model = named[0][1] if named else None
    check = getattr(type(model), "check_rotations", None)  # not bound: Equinox takes longer to bind than this to check
    if check is not None:
        for name, value in named[1:]:
            if name in _CONFIGURATIONS:
                check(model, value, name)


def _program(function: Callable, through_door: bool, count: int, parts: Sequence) -> Callable:
    """The jitted function of the leaves of what is an input."""

    def whole(*inputs: Any) -> Any:
        given = iter(inputs)
        values = [(name, option[1] if structure is None else next(given)) for name, structure, option in parts]
        return function(*(value for _, value in values[:count]), **dict(values[count:]))

    whole.__name__ = whole.__qualname__ = function.__name__
    whole.__module__ = function.__module__
    structures = [structure for _, structure, _ in parts if structure is not None]
    inner = door(whole, constants=()) if through_door else whole
    return jax.jit(lambda leaves: inner(*map(jax.tree.unflatten, structures, leaves)))
