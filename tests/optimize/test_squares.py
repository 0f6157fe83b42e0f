"""Sums of squares are seen in plain costs: |residual|^2 / 2 + rest is the cost, and its Gauss-Newton model that of
`LeastSquares`."""

from __future__ import annotations

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsoa.optimize import LeastSquares
from jaxsoa.optimize.costs import quadratic_model
from jaxsoa.optimize.squares import as_squares

Q = np.array([[2.0, 0.5, 0], [0.5, 1.0, 0], [0, 0, 0.0]])  # positive semidefinite
W = np.array([1.0, 0.0, 3.0])


def bent(x):
    return jnp.sin(x) + x[::-1] ** 3 - 0.2


ALL_SQUARES = {
    "sum of squares": lambda x, u: 0.5 * jnp.sum(bent(x) ** 2) + 3 * jnp.sum(jnp.square(u)),
    "products": lambda x, u: bent(x) @ bent(x) / 4 + (lambda y: jnp.sum(y * y))(bent(u)),
    "dot with itself": lambda x, u: (lambda y: y @ y + jnp.dot(y, y) + jnp.vdot(y, y))(bent(x)),
    "weights": lambda x, u: jnp.sum(W * bent(x) ** 2) + (lambda y: y @ (W * y) + jnp.sum(2.0 * y * y))(bent(u)),
    "quadratic form": lambda x, u: (lambda y: y @ Q @ y + 0.5 * y @ (Q @ y))(bent(x)),
    "norms": lambda x, u: jnp.linalg.norm(bent(x)) ** 2 + jnp.sum(jnp.linalg.norm(bent(u)[:, None], axis=0) ** 2),
    "one entry": lambda x, u: (bent(x)[0] - 2) ** 2 + 10 * x[1] ** 4,
    "means": lambda x, u: jnp.mean(bent(x) ** 2) + jnp.where(True, 1.0, 0.0) * 0 + jnp.sum(jnp.maximum(u, 0) ** 2),
    "inner jit": lambda x, u: jax.jit(lambda y: jnp.sum(y**2))(bent(x)) + jax.jit(jnp.square)(u[0]),
}
OTHERS = {
    "partly": lambda x, u: jnp.sum(bent(x) ** 2) + jnp.cos(u[0]) - u[1],
    "minus": lambda x, u: jnp.sum(bent(x) ** 2) - jnp.sum(bent(u) ** 2),
    "negative weight": lambda x, u: jnp.sum(np.array([1.0, -1, 1]) * x**2) + jnp.sum(u**2),
    "indefinite form": lambda x, u: x @ np.diag([1.0, -1, 1]) @ x + jnp.sum(u**2),
    "nothing": lambda x, u: jnp.sum(jnp.exp(x)) + jnp.sum(jnp.sqrt(1 + u**2)),
    "odd power": lambda x, u: jnp.sum(x**3) + u @ u,
}


def arguments():
    return jax.random.normal(jax.random.key(0), (3,)), jax.random.normal(jax.random.key(1), (3,))


@cache
def found() -> dict:
    """Of every cost what is compared, in one program: seen squares and rest, the cost, its models."""

    def of(cost, x, u):
        def moved(z):
            return x + z[:3], u + z[3:]

        residual, rest = as_squares(cost, x, u)
        zero = jnp.zeros(6)
        squares = LeastSquares(lambda *a: as_squares(cost, *a)[0])
        return {
            "residual": residual,
            "rest": rest,
            "cost": cost(x, u),
            "model": quadratic_model((cost,), moved, 6, x.dtype),
            "gradient": jax.grad(lambda z: cost(*moved(z)))(zero),
            "hessian of squares": quadratic_model((squares,), moved, 6, x.dtype).hessian,
            "hessian of rest": 0 if rest is None else jax.hessian(lambda z: as_squares(cost, *moved(z))[1])(zero),
        }

    return jax.jit(lambda x, u: {name: of(cost, x, u) for name, cost in (ALL_SQUARES | OTHERS).items()})(*arguments())


@pytest.mark.parametrize("name", [*ALL_SQUARES, *OTHERS])
def test_residual_and_rest_make_the_cost_again(name):
    of = found()[name]
    residual, rest, model = of["residual"], of["rest"], of["model"]
    np.testing.assert_allclose(residual @ residual / 2 + (0 if rest is None else rest), of["cost"], rtol=1e-13)
    if name in ALL_SQUARES:
        assert residual.size and (rest is None or name == "means")
    elif name == "nothing":
        assert not residual.size
    # The model: exact gradient, and the Hessian of Gauss-Newton for what was seen, the exact one for the rest.
    np.testing.assert_allclose(model.gradient, of["gradient"], rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(model.hessian, of["hessian of squares"] + of["hessian of rest"], rtol=1e-11, atol=1e-11)
    if name in ALL_SQUARES:
        assert np.linalg.eigvalsh(model.hessian).min() > -1e-10
