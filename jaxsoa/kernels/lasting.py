"""Functions of stacked matrices with a derivative rule that nothing drops.

A `jax.custom_jvp` is forgotten where a loop is differentiated in reverse, and a second derivative then differentiates
the function itself. A primitive's rule stays. The rule may use the primitive, so that it holds to any order.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from jaxsoa.kernels.jax_interface import Primitive, ad, batching, mlir, shaped


def lasting(name: str, function: Callable, rule: Callable, matrices: tuple[int, ...]) -> Callable:
    """`function(*arrays)` -> one array, with `rule(arrays, tangent of the first) -> tangent`; the others are constants.

    Both take stacks: `matrices` says how many trailing axes each argument has of its own, those before are a batch.
    """
    primitive = Primitive(f"jaxsoa_{name}")
    primitive.def_impl(jax.jit(function))

    def abstract(*avals):
        found = jax.eval_shape(function, *(jax.ShapeDtypeStruct(a.shape, a.dtype) for a in avals))
        return shaped(found.shape, found.dtype, avals)

    def batch(arguments, dims):
        size = next(x.shape[d] for x, d in zip(arguments, dims, strict=True) if d is not None)
        stacked = max(x.ndim - own - (d is not None) for x, d, own in zip(arguments, dims, matrices, strict=True))

        def moved(x, d, own):
            x = jnp.broadcast_to(x, (size, *x.shape)) if d is None else jnp.moveaxis(x, d, 0)
            return x.reshape(size, *(1,) * (stacked + own + 1 - x.ndim), *x.shape[1:])

        return primitive.bind(*map(moved, arguments, dims, matrices)), 0

    def jvp(primals, tangents):
        found = primitive.bind(*primals)
        if type(tangents[0]) is ad.Zero:
            return found, ad.Zero(jax.typeof(found).to_tangent_aval())
        return found, rule(primals, tangents[0])

    primitive.def_abstract_eval(abstract)
    mlir.register_lowering(primitive, mlir.lower_fun(function, multiple_results=False))
    batching.primitive_batchers[primitive] = batch
    ad.primitive_jvps[primitive] = jvp
    WRITTEN[primitive.name] = function
    return primitive.bind


WRITTEN: dict[str, Callable] = {}
"""What such a primitive computes, by its name: the reader of programs looks it up."""
