"""Every private or moving interface of JAX that the kernels need, for the oldest and the newest version supported.

JAX 0.11 renamed the parameters of `scan` and made closed and open jaxprs one class; all such differences end here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.core import ShapedArray, Tracer as Tracer
from jax.extend.core import (
    ClosedJaxpr as ClosedJaxpr,
    Jaxpr as Jaxpr,
    Literal as Literal,
    Primitive as Primitive,
    jaxpr_as_fun as jaxpr_as_fun,
)
from jax.interpreters import ad as ad, batching as batching, mlir as mlir, partial_eval as partial_eval
from jax.sharding import PartitionSpec
from jaxlib.mlir import ir as ir

try:
    from jax._src.core import trace_state_clean as _trace_state_clean
except ImportError:  # functions called outside of jit are then computed an operation at a time
    _trace_state_clean = None


class Opened(NamedTuple):
    """A jaxpr and the values of its constants."""

    jaxpr: Any
    consts: Sequence[Any]


def opened(program: Any) -> Opened:
    """A closed or open jaxpr, whichever this JAX has."""
    inner = getattr(program, "jaxpr", program)
    return Opened(inner, tuple(getattr(program, "consts", ()) or ()))


def in_avals(program: Any) -> list[Any]:
    return [v.aval for v in opened(program).jaxpr.invars]


def out_avals(program: Any) -> list[Any]:
    return [v.aval for v in opened(program).jaxpr.outvars]


def called(params: dict[str, Any]) -> Opened | None:
    """The program that an equation with these parameters calls (jit, custom_jvp_call, checkpoint, ...)."""
    for name in ("jaxpr", "call_jaxpr", "call", "fun_jaxpr"):
        if params.get(name) is not None:
            return opened(params[name])
    return None


def written(function: Callable, eqn: Any) -> Opened:
    """The program of a function of an equation's operands."""
    shapes = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in eqn.invars]
    return opened(jax.make_jaxpr(function)(*shapes))


def evaluated(eqn: Any, values: Sequence[Any]) -> list[Any]:
    """What one equation gives for the values of its operands."""
    found = eqn.primitive.get_bind_params(eqn.params)  # with or without the functions that the primitive calls
    functions, params = found if isinstance(found, tuple) else ((), found)
    results = eqn.primitive.bind(*functions, *values, **params)
    return list(results) if eqn.primitive.multiple_results else [results]


class ScanParts(NamedTuple):
    consts: int
    carries: int
    length: int
    reverse: bool
    body: Opened


def scan_parts(params: dict[str, Any]) -> ScanParts:
    if "num_consts" in params:
        consts, carries = params["num_consts"], params["num_carry"]
    else:  # trees of what comes in, constants, carries, slices; iterating one gives its leaves
        consts, carries = (len(tuple(part)) for part in params["ft_in"].unpack()[:2])
    return ScanParts(consts, carries, params["length"], params["reverse"], opened(params["jaxpr"]))


def linear_solve(params: dict[str, Any], arguments: list) -> tuple[Opened, list]:
    """The program inside a `custom_linear_solve` that solves, and what it is called with."""
    lengths, programs = params["const_lengths"], params["jaxprs"]
    before = lengths.matvec + lengths.vecmat
    consts = arguments[before : before + lengths.solve]
    right = arguments[before + lengths.solve + lengths.transpose_solve :]
    return opened(programs.solve), [*consts, *right]


def varying(avals: Sequence[Any]) -> frozenset:
    """The mesh axes of a surrounding `shard_map` along which any of these vary."""
    return frozenset().union(*(_varying_axes(aval) for aval in avals))


def _varying_axes(aval: Any) -> frozenset:
    found = getattr(aval, "vma", None)
    if found is None:
        found = getattr(getattr(aval, "mat", None), "varying", None)
    return frozenset(found or ())


def shaped(shape: tuple[int, ...], dtype: Any, avals: Sequence[Any]) -> ShapedArray:
    """The type of a result that varies over every mesh axis that some argument varies over."""
    axes = varying(avals)
    if not axes:
        return ShapedArray(shape, dtype)
    try:
        return ShapedArray(shape, dtype, vma=axes)  # pyright: ignore
    except TypeError:
        from jax._src.core import ManualAxisType  # where `vma` has moved to, beside the mesh

        mesh = next(aval.sharding for aval in avals if _varying_axes(aval))
        sharding = mesh.update(spec=PartitionSpec(*(None,) * len(shape)))
        return ShapedArray(shape, dtype, sharding=sharding, manual_axis_type=ManualAxisType(varying=axes))  # pyright: ignore


def nothing_traced() -> bool:
    """Whether what is computed now is computed at once, rather than made part of a program."""
    return _trace_state_clean is not None and _trace_state_clean()


def for_export(context: Any) -> bool:
    """Whether a program is lowered to be run in another process."""
    parameters = context.module_context.lowering_parameters
    return bool(getattr(parameters, "for_export", False))


def dead_code_rule(primitive: Primitive, rule: Callable) -> None:
    """`rule(used_results, equation)`; JAX 0.12 hands over in between which arguments are live."""
    partial_eval.dce_rules[primitive] = lambda used_results, *rest: rule(used_results, rest[-1])


def register_target(name: str, address: int, partitionable: bool) -> None:
    """Machine code at an address as a target that XLA's CPU programs can call."""
    import ctypes

    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    capsule = new(address, b"xla._CUSTOM_CALL_TARGET", None)
    jax.ffi.register_ffi_target(name, capsule, platform="cpu", api_version=1)
    if partitionable:
        jax.ffi.register_ffi_target_as_batch_partitionable(name)


def devices_of(context: Any) -> int:
    """Over how many devices XLA may divide what is lowered; one inside `shard_map`, where it is divided already."""
    return getattr(context.module_context.axis_context, "num_devices", 1) or 1


def call_by_batch(context: Any, target: str, x: Sequence[Any]) -> Sequence[Any]:
    """Lower a call of machine code whose arguments and results all begin with the batch, so that it may be divided.

    XLA's partitioner is told by an attribute of its own; where shardings go is told to Shardy.
    """
    shapes = [[aval.shape for aval in avals] for avals in (context.avals_in, context.avals_out)]
    attributes = {
        "mhlo.frontend_attributes": ir.DictAttr.get({"num_batch_dims": ir.StringAttr.get("1")}),
        "sdy.sharding_rule": ir.Attribute.parse(_sharding_rule(*shapes)),
    }
    return jax.ffi.ffi_lowering(target, extra_attributes=attributes)(context, *x)


def _sharding_rule(inputs: Sequence[tuple], outputs: Sequence[tuple]) -> str:
    """In Shardy's words: the first axis of all is one, every other axis its own, and not divided."""
    letters = "jklmnopqrstuvwxyz"
    sizes = {"i": (inputs or outputs)[0][0]}

    def axes(shape: tuple) -> str:
        names = ["i"]
        for extent in shape[1:]:
            number = len(sizes) - 1
            name = letters[number] if number < len(letters) else f"z_{number - len(letters) + 1}"
            sizes[name] = extent
            names.append(name)
        return f"[{', '.join(names)}]"

    left, right = (", ".join(map(axes, shapes)) for shapes in (inputs, outputs))
    whole = ", ".join(list(sizes)[1:])
    whole = f" need_replication={{{whole}}}" if whole else ""
    factors = ", ".join(f"{name}={extent}" for name, extent in sizes.items())
    return f"#sdy.op_sharding_rule<({left})->({right}) {{{factors}}}{whole}, custom>"


def is_literal(x: Any) -> bool:
    return hasattr(x, "val")


def literal(x: Any) -> np.ndarray:
    return np.asarray(x.val)
