"""Costs and their quadratic models in tangent coordinates.

A running cost is any function `(state, control) -> scalar`, a final cost any function `(state) -> scalar`, and a tuple
of costs is their sum. A cost given as `LeastSquares(residual)` is modelled by Gauss-Newton (first derivatives only,
never indefinite), and so are the squares that are seen in other costs (`squares.py`: sums of squares, norms, quadratic
forms with constant matrices); the rest of a cost by its exact gradient and Hessian, which far from a minimum may be
indefinite and slow the search.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxsoa.optimize.small_dense import transposed_product
from jaxsoa.optimize.squares import as_squares


class LeastSquares(eqx.Module):
    """The cost |residual(state, control)|^2 / 2 (for a final cost |residual(state)|^2 / 2)."""

    residual: Callable[..., Array]

    def __call__(self, *arguments: Any) -> Array:
        return jnp.sum(jnp.square(self.residual(*arguments))) / 2


Cost = Callable[..., Array]


class Quadratic(NamedTuple):
    """value + gradient . z + z . hessian z / 2 for small z = (dx, du), or z = dx for a final cost."""

    gradient: Float[Array, " n"]
    hessian: Float[Array, "n n"]


def terms(cost: Cost | tuple[Cost, ...] | list[Cost] | None) -> tuple[Cost, ...]:
    """A cost, several or none, as a tuple."""
    if cost is None:
        return ()
    found = tuple(cost) if isinstance(cost, tuple | list) else (cost,)
    for term in found:
        if not callable(term):
            raise ValueError(f"A cost must be a function or a tuple of functions, got {term!r}.")
    return found


def evaluate(costs: tuple[Cost, ...], dtype, *arguments: Any) -> Array:
    """The sum of the costs, in the floating type of the trajectory."""
    total = jnp.zeros((), dtype)
    for cost in costs:
        value = jnp.asarray(cost(*arguments))
        if value.shape != ():
            raise ValueError(
                f"A cost must return one number, got shape {value.shape}; for a vector of residuals use LeastSquares."
            )
        total = total + value.astype(dtype)
    return total


def quadratic_model(costs: tuple[Cost, ...], moved: Callable[[Array], tuple], size: int, dtype) -> Quadratic:
    """The sum's quadratic model about z = 0, where `moved(z)` gives the arguments of the costs."""
    zero = jnp.zeros(size, dtype)
    gradient, hessian = zero, jnp.zeros((size, size), dtype)
    for cost in costs:
        if isinstance(cost, LeastSquares):

            def residual(z, cost=cost):
                return cost.residual(*moved(z))

            value, J = residual(zero).astype(dtype), _jacobian(residual, zero).astype(dtype)
            gradient = transposed_product(value[:, None], J, gradient[None])[0]
            hessian = transposed_product(J, J, hessian)
            continue

        def split(z, cost=cost):
            return as_squares(cost, *moved(z))

        squares, rest = jax.eval_shape(split, zero)
        if squares.size:

            def root(z, split=split):
                return split(z)[0]

            value, J = root(zero).astype(dtype), _jacobian(root, zero).astype(dtype)
            gradient = transposed_product(value[:, None], J, gradient[None])[0]
            hessian = transposed_product(J, J, hessian)
        if rest is not None:

            def scalar(z, split=split):
                return split(z)[1]

            gradient = gradient + jax.grad(scalar)(zero)
            hessian = hessian + jax.jacfwd(jax.grad(scalar))(zero)
    return Quadratic(gradient, hessian)


def _jacobian(residual: Callable[[Array], Array], at: Array) -> Array:
    """Few rows by reverse mode, few columns by forward mode."""
    shape = jax.eval_shape(residual, at).shape
    if len(shape) != 1:
        raise ValueError(f"The residual of LeastSquares must be a vector, got shape {shape}.")
    return (jax.jacrev if 2 * shape[0] < at.shape[0] else jax.jacfwd)(residual)(at)
