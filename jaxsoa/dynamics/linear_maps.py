"""Linear maps with code of their own for both directions, which JAX can transpose and differentiate to any order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxsoa.mesh_axes import varying_like


def linear_zeros(shape: tuple[int, ...], dtype: Any, x: Any) -> Array:
    """Zeros that depend linearly on every leaf of x: element on element where shapes are the same, which XLA makes part
    of its neighbours in both directions; else on the first element."""
    leaves = [leaf for leaf in jax.tree.leaves(x) if leaf.size]
    total = sum(0 * (leaf if leaf.shape == shape else leaf.ravel()[0]) for leaf in leaves)
    return jnp.broadcast_to(jnp.asarray(total).astype(dtype), shape)


def linked(tree: Any, to: Any = None) -> Any:
    """The same values, each leaf depending on all (and on `to`): JAX transposes a linear solve only if all parts of
    its right-hand side are tangents, not if some happen to be constant."""
    return jax.tree.map(lambda x: x + linear_zeros(x.shape, x.dtype, (tree, to)), tree)


def tied(tree: Any, on: Any) -> Any:
    """The same values, each leaf a function of every leaf of `on`: where JAX transposes the derivative of a linear
    solve by what the equations depend on, no part of it may be a constant zero either."""
    finite = jax.tree.map(lambda x: jnp.where(jnp.isfinite(x), x, 0), on)  # joint limits may be infinite
    return jax.tree.map(lambda x: x * (1 + linear_zeros((), x.dtype, finite)), tree)


def linear_map(reference: Callable, apply: Callable, transpose: Callable, x: Any, on: Any) -> Any:
    """L x, by `apply` in forward mode and `transpose` in reverse mode, neither of which is ever differentiated.

    Derivatives by what L itself depends on, `on`, are those of `reference`, the same map in plain JAX. L x is the
    solution of y - L x = 0 beside x = x, and a linear solve may bring its own solvers for both directions.
    """
    x = varying_like(linked(x), on)
    y = jax.tree.map(lambda s: linear_zeros(s.shape, s.dtype, x), jax.eval_shape(reference, x))

    def matvec(xy):
        x, y = tied(xy, on)
        product = reference(x)
        return linked(x, product), jax.tree.map(jnp.subtract, y, product)

    def solve(_, xy):
        x, y = xy
        return x, jax.tree.map(jnp.add, y, apply(x))

    def solve_transposed(_, xy):
        x, y = xy
        return jax.tree.map(jnp.add, x, transpose(y)), y

    return jax.lax.custom_linear_solve(matvec, (x, y), solve, solve_transposed)[1]
