"""A function compiled into one kernel, where XLA's CPU compiler would make one per operation.

XLA's CPU runtime starts a kernel per fused operation: some 50 ns each, hundreds of them in the sweeps over a robot,
more than the arithmetic of one state. It can also emit a called function as a whole, loops and all, which it does of
its own for small loops. `one_kernel` asks for that: the function is called, not inlined, and the call carries the mark
that XLA puts on its small loops. On other platforms, and where JAX has several devices, it is left as it is.

What XLA cannot emit inside such a kernel makes compilation fail, so only functions made of operations known to work
are marked (`_fits`); all others are left as they are.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Primitive, jaxpr_as_fun
from jax.interpreters import batching, mlir
from jaxlib.mlir import ir
from jaxtyping import Array

from jaxsoa.xla_flags import multi_output_fusion

OFF = "JAXSOA_ONE_KERNEL"
"""The environment variable that, set to 0, leaves every program to XLA's own choice."""

LARGEST_SUM = 4096
"""Elements that one reduction may have: XLA hands larger ones to a library, which a kernel cannot call."""

LARGEST_FUSED = 4096
"""Elements of all arguments up to which a kernel pays with multi-output fusion: there XLA copies the results of a scan
as a whole at every step, which is quadratic in the number of links."""

_EMITTED = frozenset(
    """
    abs acos add add_any and asin atan atan2 broadcast broadcast_in_dim clamp concatenate convert_element_type copy
    copy_p cos cosh cumsum custom_jvp_call div dynamic_slice dynamic_update_slice eq exp exp2 expm1 gather ge gt
    integer_pow iota is_finite jit le log log1p logistic lt max min mul ne neg not optimization_barrier or pad pjit
    pow reduce_max reduce_min reduce_sum rem reshape rev rsqrt scan select_n sign sin sinh slice split sqrt square
    squeeze stack stop_gradient sub tan tanh transpose unstack while
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


def one_kernel(function: Callable) -> Callable:
    """`function` of arrays as one kernel on a CPU, if it fits into one.

    All arguments travel in one array: XLA's emitter stops the process at a parameter that the kernel never reads, and
    of a robot's leaves no function reads all.
    """

    @wraps(function)
    def called(*arguments: Any) -> Any:
        leaves, structure = jax.tree.flatten(arguments)
        shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in leaves]
        dtype, sizes = _common_float(leaves), [x.size for x in leaves]
        too_large = multi_output_fusion() and sum(sizes) > LARGEST_FUSED
        if dtype is None or too_large or _left_to_xla():
            return function(*arguments)
        program, results = jax.make_jaxpr(function, return_shape=True)(*jax.tree.unflatten(structure, shapes))
        results, form = jax.tree.flatten(results)
        compute = jaxpr_as_fun(program)
        if not results or not _fits(program):
            return jax.tree.unflatten(form, compute(*leaves))

        def inside(packed):
            parts = jnp.split(packed, np.cumsum(sizes)[:-1])
            parts = [x.reshape(s.shape).astype(s.dtype) for x, s in zip(parts, shapes, strict=True)]
            # XLA shares large loops out over threads, which it cannot do inside a kernel, but does not look for them
            # inside a branch. The barrier keeps it from seeing that the branch is always taken.
            always = jax.lax.optimization_barrier(True)
            return jax.lax.cond(always, compute, lambda *_: [jnp.zeros(x.shape, x.dtype) for x in results], *parts)

        inside.__name__ = inside.__qualname__ = _NAME
        packed = jnp.concatenate([jnp.ravel(x).astype(dtype) for x in leaves])
        return jax.tree.unflatten(form, [_called_p.bind(x) for x in jax.jit(inside)(packed)])

    return called


def _left_to_xla() -> bool:
    """Where a kernel is not wanted, or with several devices, among which XLA might divide what is inside it."""
    one_cpu = jax.default_backend() == "cpu" and jax.device_count() == 1
    return not one_cpu or os.environ.get(OFF) == "0" or getattr(jax.config, "jax_disable_jit", False)


def _common_float(leaves: list[Array]) -> Any:
    """The one floating type of the leaves, masks aside; None where there is not one."""
    kinds = {leaf.dtype for leaf in leaves if leaf.dtype != jnp.bool_}
    kind = kinds.pop() if len(kinds) == 1 else None
    return kind if kind is not None and jnp.issubdtype(kind, jnp.floating) else None


def _fits(program: ClosedJaxpr | Jaxpr) -> bool:
    """Whether every operation is one that XLA emits inside a kernel."""
    for equation in getattr(program, "jaxpr", program).eqns:
        name = equation.primitive.name
        if name not in _EMITTED:
            return False
        if name.startswith("reduce_") and math.prod(getattr(equation.invars[0].aval, "shape", ())) > LARGEST_SUM:
            return False
        if not all(_fits(inner) for inner in _inner_programs(equation.params)):
            return False
    return True


def _inner_programs(params: dict[str, Any]) -> Iterator[ClosedJaxpr | Jaxpr]:
    for value in params.values():
        for part in value if isinstance(value, tuple | list) else (value,):
            if isinstance(part, ClosedJaxpr | Jaxpr):
                yield part
