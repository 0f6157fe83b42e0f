"""A function compiled into one kernel, where XLA's CPU compiler would make one per operation.

XLA's CPU runtime starts a kernel per fused operation: some 50 ns each, hundreds of them in the sweeps over a robot,
more than the arithmetic of one state. It can also emit a called function as a whole, loops and all, which it does of
its own for small loops. `one_kernel` asks for that: the function is called, not inlined, and the call carries the mark
that XLA puts on its small loops. On other platforms, and where JAX has several devices, it is left as it is.

What XLA cannot emit inside such a kernel makes compilation fail, so only functions made of operations known to work
are marked (`fits`); all others are left as they are.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxsoa.kernels.jax_interface import (
    ClosedJaxpr,
    Jaxpr,
    Primitive,
    ad,
    batching,
    ir,
    jaxpr_as_fun,
    mlir,
    partial_eval,
)
from jaxsoa.kernels.xla_flags import multi_output_fusion

OFF = "JAXSOA_ONE_KERNEL"
"""The environment variable that, set to 0, leaves every program to XLA's own choice."""

LARGEST_SUM = 4096
"""Elements that one reduction may have: XLA hands larger ones to a library, which a kernel cannot call."""

LARGEST_FUSED = 4096
"""Elements of all arguments up to which a kernel pays with multi-output fusion: there XLA copies the results of a scan
as a whole at every step, which is quadratic in the number of links."""

LARGEST_PACKED = 8192
"""Elements of an argument up to which it travels with the others in one array; copying a larger one costs more than
the parameter it saves."""

_EMITTED = frozenset(
    """
    abs acos add add_any and asin atan atan2 broadcast broadcast_in_dim clamp concatenate convert_element_type copy
    copy_p cos cosh cumsum custom_jvp_call custom_vmap_call div dynamic_slice dynamic_update_slice eq exp exp2 expm1
    gather ge gt integer_pow iota is_finite jit le log log1p logistic lt max min mul ne neg not optimization_barrier
    or pad pjit pow reduce_and reduce_max reduce_min reduce_or reduce_sum rem reshape rev rsqrt scan select_n sign
    sin sinh slice split sqrt square squeeze stack stop_gradient sub tan tanh transpose unstack while
    """.split()
)
"""Primitives that XLA emits inside a kernel. Not among them: dense products, scatters, sorts, library calls."""

_NAME = "one_kernel"
_MARKS = {"xla_cpu_small_call": "true", "inlineable": "false"}

_called_p = Primitive("called_as_one_kernel")  # the identity, on a result of the call
_called_p.def_impl(lambda x: x)
_called_p.def_abstract_eval(lambda x: x)
# A batch is not one kernel: its loops are long enough to be worth starting, and may be shared out over threads.
batching.primitive_batchers[_called_p] = lambda values, axes: (values[0], axes[0])
ad.primitive_jvps[_called_p] = lambda primals, tangents: (primals[0], tangents[0])  # nor is a derivative


def _mark_call(_, x):
    call = x.owner
    if not isinstance(call, ir.Block) and call.operation.name == "func.call":
        attributes = call.operation.attributes
        if ir.FlatSymbolRefAttr(attributes["callee"]).value.startswith(_NAME):
            marks: dict[str, ir.Attribute] = {key: ir.StringAttr.get(value) for key, value in _MARKS.items()}
            attributes["mhlo.frontend_attributes"] = ir.DictAttr.get(marks)
    return [x]


mlir.register_lowering(_called_p, lambda _, x: [x])
# Not cacheable: a cached lowering is a function of its own, in which the call cannot be seen.
mlir.register_lowering(_called_p, _mark_call, platform="cpu", cacheable=False)


class _Tracing(threading.local):
    """Whether a function is being traced for a kernel, and whether it asked for kernels of its own meanwhile."""

    inside = False
    asked = False


_tracing = _Tracing()


def inside_a_kernel() -> bool:
    """Whether what is traced now becomes part of a kernel."""
    return _tracing.inside


def traced_as_part(function: Callable, *arguments: Any) -> tuple[ClosedJaxpr, Any, bool]:
    """The program of a function that is to be in a kernel, the shapes of its results, and whether it would without that
    have had kernels of its own."""
    before = _tracing.inside, _tracing.asked
    _tracing.inside, _tracing.asked = True, False
    try:
        program, results = jax.make_jaxpr(function, return_shape=True)(*arguments)
        return program, results, _tracing.asked
    finally:
        _tracing.inside, _tracing.asked = before


def one_kernel(function: Callable) -> Callable:
    """`function` of arrays as one kernel on a CPU, if it fits into one. What is a kernel by itself becomes part of it.

    Small arguments travel in one array, and those never read not at all: XLA's emitter stops the process at a
    parameter that the kernel never reads, and of a robot's leaves no function reads all.
    """

    @wraps(function)
    def called(*arguments: Any) -> Any:
        if _tracing.inside:
            _tracing.asked = True
            return function(*arguments)
        leaves, structure = jax.tree.flatten(arguments)
        too_large = multi_output_fusion() and sum(x.size for x in leaves) > LARGEST_FUSED
        if too_large or left_to_xla():
            return function(*arguments)
        shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in leaves]
        program, results, asked = traced_as_part(function, *jax.tree.unflatten(structure, shapes))
        results, form = jax.tree.flatten(results)
        compute = jaxpr_as_fun(program)
        small, large = _read(program)
        dtype = _common_float([leaves[i] for i in small])
        if not results or dtype is None or not fits(program):
            return function(*arguments) if asked else jax.tree.unflatten(form, compute(*leaves))

        def inside(packed, *whole):
            parts = jnp.split(packed, np.cumsum([shapes[i].size for i in small])[:-1])
            parts = [x.reshape(shapes[i].shape).astype(shapes[i].dtype) for i, x in zip(small, parts, strict=True)]
            given = dict(zip([*small, *large], [*parts, *whole], strict=True))
            # What is never read is not handed in; any value does.
            full = [given.get(i, jnp.zeros(s.shape, s.dtype)) for i, s in enumerate(shapes)]
            # XLA shares large loops out over threads, which it cannot do inside a kernel, but does not look for them
            # inside a branch. The barrier keeps it from seeing that the branch is always taken.
            always = jax.lax.optimization_barrier(True)
            found = jax.lax.cond(always, compute, lambda *_: [jnp.zeros(x.shape, x.dtype) for x in results], *full)
            # What JAX thinks is read, XLA may still find is not: so one element of each large argument is a result.
            return [*found, *(jnp.ravel(x)[0] for x in whole)]

        inside.__name__ = inside.__qualname__ = _NAME
        packed = jnp.concatenate([jnp.ravel(leaves[i]).astype(dtype) for i in small])
        # A choice that XLA cannot foresee: at a constant as a kernel's argument, it stops the process.
        always = jax.lax.optimization_barrier(True)
        whole = [jnp.where(always, leaves[i], jnp.zeros((), shapes[i].dtype)) for i in large]
        outputs = jax.jit(inside)(packed, *whole)
        outputs = [_called_p.bind(x) for x in outputs]
        if large:  # the barrier keeps the results that nobody wants
            outputs = jax.lax.optimization_barrier(outputs)[: len(results)]
        return jax.tree.unflatten(form, outputs)

    return called


def _read(program: ClosedJaxpr) -> tuple[list[int], list[int]]:
    """Numbers of the arguments that the program reads: the small ones, and the large ones."""
    _, read = partial_eval.dce_jaxpr(program.jaxpr, [True] * len(program.jaxpr.outvars))
    sizes = [math.prod(getattr(x.aval, "shape", ())) for x in program.jaxpr.invars]
    small = [i for i, size in enumerate(sizes) if read[i] and size <= LARGEST_PACKED]
    return small, [i for i, size in enumerate(sizes) if read[i] and size > LARGEST_PACKED]


def left_to_xla() -> bool:
    """Where a kernel is not wanted, or with several devices, among which XLA might divide what is inside it."""
    one_cpu = jax.default_backend() == "cpu" and jax.device_count() == 1
    return not one_cpu or os.environ.get(OFF) == "0" or getattr(jax.config, "jax_disable_jit", False)


def in_one_kernel() -> bool:
    """Whether functions become kernels whatever the size of their arguments."""
    return not left_to_xla() and not multi_output_fusion()


def _common_float(leaves: list[Array]) -> Any:
    """The one floating type of the leaves, masks aside; None where there is not one."""
    kinds = {leaf.dtype for leaf in leaves if leaf.dtype != jnp.bool_}
    kind = kinds.pop() if len(kinds) == 1 else None
    return kind if kind is not None and jnp.issubdtype(kind, jnp.floating) else None


def fits(program: ClosedJaxpr | Jaxpr) -> bool:
    """Whether every operation is one that XLA emits inside a kernel."""
    for equation in getattr(program, "jaxpr", program).eqns:
        name = equation.primitive.name
        if name not in _EMITTED:
            return False
        if name.startswith("reduce_") and math.prod(getattr(equation.invars[0].aval, "shape", ())) > LARGEST_SUM:
            return False
        if not all(fits(inner) for inner in _inner_programs(equation.params)):
            return False
    return True


def _inner_programs(params: dict[str, Any]) -> Iterator[ClosedJaxpr | Jaxpr]:
    for value in params.values():
        for part in value if isinstance(value, tuple | list) else (value,):
            if isinstance(part, ClosedJaxpr | Jaxpr):
                yield part
