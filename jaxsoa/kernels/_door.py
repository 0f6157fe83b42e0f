"""The one door to compilers: a function of one state, computed by machine code of our own where that can be had.

    fast = door(function)

`fast` is the same function. Under `jax.vmap` a batch of it is one call; a batch of batches is a larger batch. On a
CPU its program is read (`reader`) and compiled (`machine`) when JAX lowers it; where that cannot be done, on other
platforms and in exported programs, JAX compiles the function as it stands, or the `fallback` given for that. `report`
tells which.

Derivatives are those of the function in plain JAX; rules that know better stand around the door.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsoa.caches import register
from jaxsoa.kernels import jax_interface, machine, settings
from jaxsoa.kernels._report import record
from jaxsoa.kernels.jax_interface import Tracer, ad, batching, mlir
from jaxsoa.kernels.llvm_module import LARGEST_SCRATCH, batch_module, single_module
from jaxsoa.kernels.llvm_values import EMITTED
from jaxsoa.kernels.program import Straight, Unreadable, pruned
from jaxsoa.kernels.reader import read


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


class _Constants:
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


_constants = _Constants()
register(_constants.found.clear)


def _identity(function: Callable) -> Any:
    """What makes two functions the same: partial applications made anew are equal if their parts are."""
    if isinstance(function, partial):
        return _identity(function.func), function.args, tuple(sorted(function.keywords.items()))
    return function


class _Traced:
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


class _Key:
    """A function and shapes, as a key of caches: equal where `_identity` is."""

    def __init__(self, function: Callable, structure: Any, shapes: tuple):
        self.function, self.structure, self.shapes = function, structure, shapes
        self._key = (_identity(function), structure, shapes, bool(getattr(jax.config, "jax_enable_x64", False)))
        self._hash = hash(self._key)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self._key == other._key


_tracing = threading.RLock()


@lru_cache(maxsize=512)
def _trace(key: _Key) -> _Traced:
    return _Traced(key.function, key.structure, key.shapes)


class Kernel:
    """A traced function with some of its arguments fixed: what the primitive stands for."""

    def __init__(self, key: _Key, fallback: Callable | None, constants: tuple[Constant | None, ...]):
        self.key, self.fallback, self.constants = key, fallback, constants
        self.traced = _trace(key)
        self.shapes = tuple(s for s, c in zip(key.shapes, constants, strict=True) if c is None)
        self._hash = hash((key, constants))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Kernel)
            and self._hash == other._hash
            and self.key == other.key
            and self.constants == other.constants
        )

    def program(self) -> Any:
        return self.traced.program

    def with_constants(self, inputs: Sequence[Any]) -> list[Any]:
        rest = iter(inputs)
        return [next(rest) if c is None else c.value for c in self.constants]

    def plain(self, inputs: Sequence[Any], used: Sequence[bool]) -> list[Any]:
        """The function as JAX computes it."""
        function = self.fallback or self.key.function
        results = function(*jax.tree.unflatten(self.key.structure, self.with_constants(inputs)))
        return _kept(jax.tree.leaves(results), used)

    def packed(self, inputs: Sequence[Any], used: Sequence[bool]) -> list[Any]:
        """The function as it is written, to be differentiated."""
        results = self.key.function(*jax.tree.unflatten(self.key.structure, self.with_constants(inputs)))
        return _kept(jax.tree.leaves(results), used)

    def dtype(self) -> np.dtype:
        """The one floating type of everything; Unreadable where there is not one."""
        given = [dtype for _, dtype in self.key.shapes] + [dtype for _, dtype in self.traced.results]
        kinds = {np.dtype(dtype) for dtype in given if dtype != np.bool_}
        if len(kinds) != 1 or next(iter(kinds)) not in (np.float32, np.float64):
            raise Unreadable(f"values of types {', '.join(sorted(map(str, kinds))) or 'none'}")
        return next(iter(kinds))


def _kept(items: Sequence[Any], used: Sequence[bool]) -> list[Any]:
    return [item for item, keep in zip(items, used, strict=True) if keep]


@lru_cache(maxsize=256)
def _read(kernel: Kernel) -> Straight | Unreadable:
    """The program of one state, inputs numbered among those that are not constant."""
    try:
        constants = [None if c is None else c.value for c in kernel.constants]
        found = read(kernel.program(), constants, kernel.dtype(), 4 * settings.LONGEST)
        if found.scalars > settings.LONGEST:
            raise Unreadable(f"{found.scalars} operations, of which {settings.LONGEST} fit into a kernel")
        unknown = {op[0] for op in found.operations} - EMITTED
        if unknown:
            raise Unreadable(f"the operation {min(unknown)}")
        number = dict(zip([i for i, c in enumerate(constants) if c is None], range(len(constants)), strict=False))
        operations = tuple(("in", number[op[1]], op[2]) if op[0] == "in" else op for op in found.operations)
        return Straight(operations, found.results)
    except Unreadable as reason:
        return reason


_building = threading.RLock()


@lru_cache(maxsize=512)
def _build(kernel: Kernel, batched: tuple[bool, ...] | None, used: tuple[bool, ...]) -> str | None:
    """The registered machine code of a kernel, of one state (`batched` None) or a batch; None where there is none."""
    if not machine.available():
        return None
    with _building:
        begun = time.perf_counter()
        straight = _read(kernel)
        what = kernel.traced.name, "one state" if batched is None else "batch"
        if isinstance(straight, Unreadable):
            record(*what, "xla", str(straight), 0, 0.0)
            return None
        straight = pruned(straight.operations, _kept(straight.results, used))
        dtype, target = kernel.dtype(), machine.target()
        sizes = [int(np.prod(shape)) for shape, _ in kernel.shapes]
        if batched is None:
            emitted = single_module(straight, len(sizes), dtype, target)
        else:
            emitted = batch_module(straight, sizes, batched, dtype, target)
        if emitted.scratch > LARGEST_SCRATCH:
            record(*what, "xla", "matrices too large", straight.cost, 0.0)
            return None
        partitionable = batched is not None and all(batched)
        name, _ = machine.load(emitted.texts, threads=batched is not None, partitionable=partitionable)
        record(*what, "kernel", "", straight.cost, time.perf_counter() - begun)
        return name


# --- the primitive ------------------------------------------------------------------------------------------------

kernel_p = jax_interface.Primitive("jaxsoa_kernel")
kernel_p.multiple_results = True


def _lead(size: Any) -> tuple:
    return () if size is None else (size,)


def _abstract(*avals, kernel: Kernel, size, batched, used):
    axes = jax_interface.varying(avals)
    results = _kept(kernel.traced.results, used)
    return [jax_interface.shaped((*_lead(size), *shape), dtype, axes) for shape, dtype in results]


kernel_p.def_abstract_eval(_abstract)


def _evaluate(*x, kernel: Kernel, size, batched, used):
    """Outside of a trace: compiled once. With jit disabled, as the function is written."""
    if getattr(jax.config, "jax_disable_jit", False):
        return _by_jax(*x, kernel=kernel, size=size, batched=batched, used=used, packed=True)
    return _jitted(kernel, size, batched, used)(*x)


@lru_cache(maxsize=256)
def _jitted(kernel: Kernel, size, batched, used) -> Callable:
    return jax.jit(partial(kernel_p.bind, kernel=kernel, size=size, batched=batched, used=used))


kernel_p.def_impl(_evaluate)


def _by_jax(*x, kernel: Kernel, size, batched, used, packed: bool = False):
    if size is not None and not isinstance(size, int):  # a batch of unknown size cannot be cut into chunks
        packed = True
    one = partial(kernel.packed if packed else kernel.plain, used=used)
    if size is None:
        return one(x)
    return jax.vmap(lambda *x: one(x), in_axes=tuple(0 if b else None for b in batched), axis_size=size)(*x)


def _by_kernel(*x, kernel: Kernel, size, batched, used, target: str):
    dtype = kernel.dtype()
    results = _kept(kernel.traced.results, used)
    shapes = [jax.ShapeDtypeStruct((*_lead(size), *shape), dtype) for shape, _ in results]
    found = jax.ffi.ffi_call(target, shapes)(*(jnp.asarray(y, dtype) for y in x))
    return [y.astype(kind) for y, (_, kind) in zip(found, results, strict=True)]


_lower_by_jax = mlir.lower_fun(_by_jax, multiple_results=True)


def _lower_on_cpu(context, *x, kernel: Kernel, size, batched, used):
    parameters = {"kernel": kernel, "size": size, "batched": batched, "used": used}
    target = None
    if not jax_interface.for_export(context):  # an exported program runs where no kernel is registered
        target = _build(kernel, None if size is None else batched, used)
    if target is None:
        return _lower_by_jax(context, *x, **parameters)
    return mlir.lower_fun(partial(_by_kernel, target=target), multiple_results=True)(context, *x, **parameters)


mlir.register_lowering(kernel_p, _lower_by_jax)
mlir.register_lowering(kernel_p, _lower_on_cpu, platform="cpu")


def _batch(arguments, dims, *, kernel: Kernel, size, batched, used):
    count = next(x.shape[d] for x, d in zip(arguments, dims, strict=True) if d is not None)
    moved = [d is not None for d in dims]
    front = [jnp.moveaxis(x, d, 0) if m else x for x, d, m in zip(arguments, dims, moved, strict=True)]
    if size is None:
        found = kernel_p.bind(*front, kernel=kernel, size=count, batched=tuple(moved), used=used)
        return found, [0] * len(found)
    together = []
    for x, m, b in zip(front, moved, batched, strict=True):
        if b and not m:
            x = jnp.broadcast_to(x[None], (count, *x.shape))
        elif m and not b:
            x = jnp.broadcast_to(x[:, None], (count, size, *x.shape[1:]))
        together.append(x.reshape(count * size, *x.shape[2:]) if b or m else x)
    both = tuple(b or m for b, m in zip(batched, moved, strict=True))
    found = kernel_p.bind(*together, kernel=kernel, size=count * size, batched=both, used=used)
    return [x.reshape(count, size, *x.shape[1:]) for x in found], [0] * len(found)


batching.primitive_batchers[kernel_p] = _batch


def _jvp(primals, tangents, *, kernel: Kernel, size, batched, used):
    found = kernel_p.bind(*primals, kernel=kernel, size=size, batched=batched, used=used)
    moving = [i for i, t in enumerate(tangents) if type(t) is not ad.Zero]

    def function(*x):
        full = list(primals)
        for i, y in zip(moving, x, strict=True):
            full[i] = y
        return _by_jax(*full, kernel=kernel, size=size, batched=batched, used=used, packed=True)

    _, rates = jax.jvp(function, [primals[i] for i in moving], [tangents[i] for i in moving])
    return found, rates


ad.primitive_jvps[kernel_p] = _jvp


def _dead_code(used_results, equation):
    if not any(used_results):
        return [False] * len(equation.invars), None
    asked = iter(used_results)
    used = tuple(was and next(asked) for was in equation.params["used"])
    results = [v for v, keep in zip(equation.outvars, used_results, strict=True) if keep]
    return [True] * len(equation.invars), equation.replace(outvars=results, params={**equation.params, "used": used})


jax_interface.dead_code_rule(kernel_p, _dead_code)


# --- the door -----------------------------------------------------------------------------------------------------


def door(function: Callable, *, constants: Sequence[int] = (0,), fallback: Callable | None = None) -> Callable:
    """`function` of arrays, for one state, through a kernel where one can be built.

    `constants` are the positions of arguments (models) that are compiled into the kernel where they are known while a
    program is traced: closed over, not arguments of `jax.jit`. Outside of a trace nothing is, so that a loop that
    changes a model compiles once. `fallback` is the same function in a form that suits JAX's own compilers.
    """

    def called(*arguments: Any) -> Any:
        leaves, structure = jax.tree.flatten(arguments)
        if not leaves:
            return function(*arguments)
        fixed = [False] * len(leaves)
        traced = any(isinstance(x, Tracer) for x in leaves)
        if traced:
            first = 0
            for position, part in enumerate(structure.children()):
                last = first + part.num_leaves
                if position in constants:
                    fixed[first:last] = [not isinstance(x, Tracer) for x in leaves[first:last]]
                first = last
        leaves = [x if hasattr(x, "dtype") and hasattr(x, "shape") else jnp.asarray(x) for x in leaves]
        shapes = tuple((tuple(x.shape), np.dtype(x.dtype)) for x in leaves)
        key = _Key(function, structure, shapes)
        baked = tuple(_constants.of(x) if f else None for x, f in zip(leaves, fixed, strict=True))
        kernel = Kernel(key, fallback, baked)
        inputs = [x for x, f in zip(leaves, fixed, strict=True) if not f]
        everything = (True,) * len(kernel.traced.results)
        if not everything:
            return jax.tree.unflatten(kernel.traced.form, [])
        single = {"kernel": kernel, "size": None, "batched": (False,) * len(inputs), "used": everything}
        found = kernel_p.bind(*inputs, **single) if traced else _evaluate(*inputs, **single)
        return jax.tree.unflatten(kernel.traced.form, found)

    called.__wrapped__ = function  # pyright: ignore[reportFunctionMemberAccess]
    return called


def clear() -> None:
    """Forget traced programs and what was compiled for calls outside of `jax.jit`. Machine code stays."""
    for cached in (_trace, _read, _build, _jitted):
        cached.cache_clear()
    _constants.found.clear()
