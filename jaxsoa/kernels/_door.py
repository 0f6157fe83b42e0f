"""The one door to compilers: a function of one state, computed by machine code of our own where that can be had.

    fast = door(function)

`fast` is the same function. Under `jax.vmap` a batch of it is one call; a batch of batches is a larger batch. On a
CPU its program is read (`reader`) and compiled (`machine`) when JAX lowers it; for an accelerator it is written out
element by element (`elementwise`). Where that cannot be done, and in programs exported for a CPU, JAX compiles the
function as it stands, or the `fallback` given for that. `report` tells which.

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

from jaxsoa.kernels import elementwise, jax_interface, machine, settings
from jaxsoa.kernels._report import Entry, record
from jaxsoa.kernels.jax_interface import Tracer, ad, batching, mlir
from jaxsoa.kernels.llvm_module import LARGEST_SCRATCH, batch_module, single_module
from jaxsoa.kernels.llvm_values import EMITTED
from jaxsoa.kernels.program import Straight, Unreadable, pruned
from jaxsoa.kernels.reader import read
from jaxsoa.kernels.traced import CONSTANTS, Constant, Key, trace
from jaxsoa.kernels.xla_kernel import one_kernel

MOST = 0.95
"""A kernel that leaves some results out is one of its own where at most this part of the work remains."""


class Kernel:
    """A traced function with some of its arguments fixed: what the primitive stands for."""

    def __init__(self, key: Key, fallback: Callable | None, constants: tuple[Constant | None, ...]):
        self.key, self.fallback, self.constants = key, fallback, constants
        self.traced = trace(key)
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

    def plain(self, inputs: Sequence[Any], used: Sequence[bool], alone: bool) -> list[Any]:
        """The function as JAX computes it; of one state `alone`, as one kernel of XLA's if it fits."""
        function = self.fallback or (one_kernel(self.key.function) if alone else self.key.function)
        results = function(*jax.tree.unflatten(self.key.structure, self.with_constants(inputs)))
        return _kept(jax.tree.leaves(results), used)

    def written(self, inputs: Sequence[Any], used: Sequence[bool]) -> list[Any]:
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
        found = read(kernel.program(), constants, kernel.dtype(), 8 * settings.LONGEST, loops=True)
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


def _record(kernel: Kernel, single: bool, runs_as: str, operations: int = 0, seconds: float = 0.0, reason: str = ""):
    form, inputs = "one state" if single else "batch", tuple(shape for shape, _ in kernel.shapes)
    known = len(kernel.constants) - len(inputs)
    record(Entry(kernel.traced.name, form, runs_as, reason, operations, seconds, inputs, known))


_building = threading.RLock()


@lru_cache(maxsize=512)
def _build(kernel: Kernel, batched: tuple[bool, ...] | None, used: tuple[bool, ...]) -> str | None:
    """The registered machine code of a kernel, of one state (`batched` None) or a batch; None where there is none."""
    single = batched is None
    if not machine.available():
        _record(kernel, single, "xla", reason=machine.why_not())
        return None
    with _building:
        begun = time.perf_counter()
        straight = _read(kernel)
        if isinstance(straight, Unreadable):
            _record(kernel, single, "xla", reason=str(straight))
            return None
        straight = pruned(straight.operations, _kept(straight.results, used))
        dtype, target = kernel.dtype(), machine.target()
        sizes = [int(np.prod(shape)) for shape, _ in kernel.shapes]
        if batched is None:
            emitted = single_module(straight, len(sizes), dtype, target)
        else:
            emitted = batch_module(straight, sizes, batched, dtype, target)
        if emitted.scratch > LARGEST_SCRATCH:
            _record(kernel, single, "xla", straight.cost, reason="matrices too large")
            return None
        partitionable = batched is not None and all(batched)
        name, _ = machine.load(emitted.texts, threads=batched is not None, partitionable=partitionable)
        _record(kernel, single, "kernel", straight.cost, time.perf_counter() - begun)
        return name


# --- the primitive ------------------------------------------------------------------------------------------------

kernel_p = jax_interface.Primitive("jaxsoa_kernel")
kernel_p.multiple_results = True


def _lead(size: Any) -> tuple:
    return () if size is None else (size,)


def _abstract(*avals, kernel: Kernel, size, batched, used):
    results = _kept(kernel.traced.results, used)
    return [jax_interface.shaped((*_lead(size), *shape), dtype, avals) for shape, dtype in results]


kernel_p.def_abstract_eval(_abstract)


def _evaluate(*x, kernel: Kernel, size, batched, used):
    """Outside of a trace: compiled once. With jit disabled, as the function is written."""
    if getattr(jax.config, "jax_disable_jit", False):
        return _by_jax(*x, kernel=kernel, size=size, batched=batched, used=used, written=True)
    return _jitted(kernel, size, batched, used)(*x)


@lru_cache(maxsize=256)
def _jitted(kernel: Kernel, size, batched, used) -> Callable:
    return jax.jit(partial(kernel_p.bind, kernel=kernel, size=size, batched=batched, used=used))


kernel_p.def_impl(_evaluate)


def _by_jax(*x, kernel: Kernel, size, batched, used, written: bool = False):
    one = partial(kernel.written, used=used) if written else partial(kernel.plain, used=used, alone=size is None)
    if size is None:
        return one(x)
    return jax.vmap(lambda *x: one(x), in_axes=tuple(0 if b else None for b in batched), axis_size=size)(*x)


def _by_kernel(*x, kernel: Kernel, size, batched, used, target: str):
    dtype = kernel.dtype()
    results = _kept(kernel.traced.results, used)
    shapes = [jax.ShapeDtypeStruct((*_lead(size), *shape), dtype) for shape, _ in results]
    found = jax.ffi.ffi_call(target, shapes)(*(jnp.asarray(y, dtype) for y in x))
    return [y.astype(kind) for y, (_, kind) in zip(found, results, strict=True)]


def _by_elements(*x, kernel: Kernel, size, batched, used):
    """On an accelerator: element by element where the program can be read and is short enough."""
    straight = _read(kernel)
    if not isinstance(straight, Unreadable):
        straight = pruned(straight.operations, _kept(straight.results, used))
        if straight.cost > elementwise.LONGEST:
            most = elementwise.LONGEST
            straight = Unreadable(f"{straight.cost} operations, of which {most} are written out on an accelerator")
        elif any(op[0] == "loop" for op in straight.operations):
            straight = Unreadable("a loop whose end depends on values")
        elif size is not None and not isinstance(size, int):
            straight = Unreadable("a batch of unknown size")
    if isinstance(straight, Unreadable):
        _record(kernel, size is None, "xla", reason=str(straight))
        return _by_jax(*x, kernel=kernel, size=size, batched=batched, used=used)
    dtype = kernel.dtype()
    flat = [jnp.asarray(y, dtype).reshape(*(_lead(size) if b else ()), -1) for y, b in zip(x, batched, strict=True)]
    found = elementwise.evaluate(straight, flat, batched, size, dtype)
    _record(kernel, size is None, "element-wise", straight.cost)
    results = _kept(kernel.traced.results, used)
    return [y.reshape(*_lead(size), *shape).astype(kind) for y, (shape, kind) in zip(found, results, strict=True)]


_lower_by_jax = mlir.lower_fun(_by_jax, multiple_results=True)


def _each_its_own(*x, kernel: Kernel, size, batched, used):
    """The same with every argument batched."""
    x = [y if b else jnp.broadcast_to(y, (size, *jnp.shape(y))) for y, b in zip(x, batched, strict=True)]
    return kernel_p.bind(*x, kernel=kernel, size=size, batched=(True,) * len(x), used=used)


def _with_all_results(*x, kernel: Kernel, size, batched, used):
    """The same by the kernel that computes everything."""
    return _kept(kernel_p.bind(*x, kernel=kernel, size=size, batched=batched, used=(True,) * len(used)), used)


@lru_cache(maxsize=512)
def _hardly_less(kernel: Kernel, used: tuple[bool, ...]) -> bool:
    """Whether what is used of a kernel's results is nearly all of its work: then it is not compiled once more."""
    if all(used):
        return False
    straight = _read(kernel)
    if isinstance(straight, Unreadable):
        return False
    rest = pruned(straight.operations, _kept(straight.results, used))
    return rest.cost > MOST * pruned(straight.operations, straight.results).cost


def _lower_on_cpu(context, *x, kernel: Kernel, size, batched, used):
    parameters = {"kernel": kernel, "size": size, "batched": batched, "used": used}
    target = None
    if _hardly_less(kernel, used):
        return mlir.lower_fun(_with_all_results, multiple_results=True)(context, *x, **parameters)
    if isinstance(size, int) and not all(batched) and jax_interface.devices_of(context) > 1:
        # XLA divides a call among devices only along an axis that all arguments have.
        return mlir.lower_fun(_each_its_own, multiple_results=True)(context, *x, **parameters)
    if not jax_interface.for_export(context):  # an exported program runs where no kernel is registered
        target = _build(kernel, None if size is None else batched, used)
    if target is None:
        return _lower_by_jax(context, *x, **parameters)
    types = {aval.dtype for aval in (*context.avals_in, *context.avals_out)}
    if size is not None and types == {kernel.dtype()} and jax_interface.devices_of(context) > 1:  # all are batched
        return jax_interface.call_by_batch(context, target, x)
    return mlir.lower_fun(partial(_by_kernel, target=target), multiple_results=True)(context, *x, **parameters)


mlir.register_lowering(kernel_p, _lower_by_jax)
mlir.register_lowering(kernel_p, _lower_on_cpu, platform="cpu")
for _platform in ("cuda", "rocm", "tpu"):
    mlir.register_lowering(kernel_p, mlir.lower_fun(_by_elements, multiple_results=True), platform=_platform)


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
        return _by_jax(*full, kernel=kernel, size=size, batched=batched, used=used, written=True)

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
    changes a model compiles once. `fallback` is the same function in another form for JAX's own compilers.
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
        key = Key(function, structure, shapes)
        baked = tuple(CONSTANTS.of(x) if f else None for x, f in zip(leaves, fixed, strict=True))
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
    for cached in (trace, _read, _build, _jitted):
        cached.cache_clear()
    CONSTANTS.found.clear()
