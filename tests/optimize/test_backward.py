"""The Riccati recursion and the small dense algebra under it, against plain NumPy; kernels against many kernels."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.compare import assert_close

import jaxsoa as soa
from jaxsoa.kernels.xla_kernel import OFF
from jaxsoa.optimize import tasks
from jaxsoa.optimize.alone import alone
from jaxsoa.optimize.costs import Quadratic
from jaxsoa.optimize.linear_quadratic import Model, Policy, backward
from jaxsoa.optimize.small_dense import LARGEST, solve_positive, transposed_product

MARK = "xla_cpu_small_call"


def random_model(seed: int, horizon: int, nx: int, nu: int) -> Model:
    local = np.random.default_rng(seed)
    A = np.eye(nx) + 0.1 * local.normal(size=(horizon, nx, nx))
    roots = local.normal(size=(horizon, nx + nu, nx + nu))
    final = local.normal(size=(nx, nx))
    return Model(
        np.concatenate([A, local.normal(size=(horizon, nx, nu))], axis=2),
        Quadratic(local.normal(size=(horizon, nx + nu)), np.einsum("tki,tkj->tij", roots, roots)),
        Quadratic(local.normal(size=nx), final.T @ final),
    )


def riccati(model: Model, mu: float):
    """Gains by the textbook recursion, the value of the policy by its own definition."""
    horizon, nx, _ = model.F.shape
    p, P = model.final.gradient, model.final.hessian
    ks, Ks, slope, bend = [], [], 0.0, 0.0
    for t in reversed(range(horizon)):
        A, B = model.F[t, :, :nx], model.F[t, :, nx:]
        l, L = model.cost.gradient[t], model.cost.hessian[t]
        Quu, Qux = L[nx:, nx:] + B.T @ P @ B, L[nx:, :nx] + B.T @ P @ A
        gu = l[nx:] + B.T @ p
        H = Quu + mu * np.eye(len(gu))
        K, k = -np.linalg.solve(H, Qux), -np.linalg.solve(H, gu)
        slope, bend = slope + gu @ k, bend + k @ Quu @ k
        closed, policy = A + B @ K, np.concatenate([np.eye(nx), K])  # dx' and (dx, du) by dx
        feed = np.concatenate([np.zeros(nx), k])
        p = policy.T @ (l + L @ feed) + closed.T @ (p + P @ B @ k)
        P = policy.T @ L @ policy + closed.T @ P @ closed
        ks.append(k)
        Ks.append(K)
    return np.array(ks[::-1]), np.array(Ks[::-1]), slope, bend


@pytest.mark.parametrize(
    ("horizon", "nx", "nu", "mu"), [(30, 14, 7, 1e-9), (20, 24, 6, 0.3), (1, 3, 2, 0.0), (9, 1, 1, 2.0)]
)
def test_backward_pass_against_numpy(horizon, nx, nu, mu):
    model = random_model(nx, horizon, nx, nu)
    found = jax.jit(lambda model, mu: backward(model, mu, None))(model, mu)
    for x, y, name in zip(found, riccati(model, mu), Policy._fields, strict=True):
        assert_close(x, y, 1e-9, name)


def test_backward_pass_of_large_states_and_of_a_batch():
    large = random_model(0, 3, LARGEST + 6, 3)
    found = jax.jit(lambda model: backward(model, 0.1, None))(large)
    for x, y, name in zip(found, riccati(large, 0.1), Policy._fields, strict=True):
        assert_close(x, y, 1e-8, name)
    models = [random_model(seed, 12, 6, 3) for seed in range(4)]
    together = jax.tree.map(lambda *x: np.stack(x), *models)
    found = jax.jit(jax.vmap(lambda model: backward(model, 0.1, None)))(together)
    for k, model in enumerate(models):
        for x, y, name in zip(found, riccati(model, 0.1), Policy._fields, strict=True):
            assert_close(x[k], y, 1e-9, f"{name} of {k}")


def test_backward_pass_in_a_wide_box_is_the_free_one():
    model = random_model(5, 15, 6, 3)
    wide = np.full((15, 3), 1e6)
    found = jax.jit(lambda model: backward(model, 0.0, (-wide, wide)))(model)
    for x, y, name in zip(found, riccati(model, 0.0), Policy._fields, strict=True):
        assert_close(x, y, 1e-9, name)


def test_an_indefinite_step_gives_nan():
    model = random_model(2, 5, 3, 2)
    indefinite = model.cost.hessian.copy()
    indefinite[2, 3:, 3:] -= 1e4 * np.eye(2)
    model = model._replace(cost=model.cost._replace(hessian=indefinite))
    assert np.isnan(jax.jit(lambda model: backward(model, 0.0, None).slope)(model))
    wide = np.full((5, 2), 1.0)
    assert not np.isfinite(jax.jit(lambda model: backward(model, 0.0, (-wide, wide)).K)(model)).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("k", "m", "n"), [(1, 1, 1), (7, 3, 5), (14, 14, 21), (LARGEST + 1, 4, 3)])
def test_products_and_solutions(k, m, n, dtype):
    local = np.random.default_rng(k)
    a, b, start = (local.normal(size=shape).astype(dtype) for shape in ((k, m), (k, n), (m, n)))
    bound = 1e-12 if dtype == np.float64 else 1e-4
    assert_close(jax.jit(transposed_product)(a, b, start), start + a.T.astype(float) @ b, bound, "product")
    H = (a.T @ a + np.eye(m)).astype(dtype)
    found = jax.jit(solve_positive)(H, start)
    assert found.dtype == dtype
    assert_close(found, np.linalg.solve(H.astype(float), start), bound, "solution")
    batched = jax.jit(jax.vmap(solve_positive, in_axes=(None, 0)))(H, np.stack([start, 2 * start]))
    assert_close(batched, np.linalg.solve(H.astype(float), np.stack([start, 2 * start])), bound, "batch")


def test_a_solver_is_made_of_kernels_and_a_batch_is_not(monkeypatch):
    task = tasks.pendulum_swing_up(horizon=10)

    def solve(start):
        return soa.optimize.ilqr(task.problem, start, max_iterations=5)

    lowered = jax.jit(solve).lower(task.start)
    # The recursion; costs, trajectory and derivatives are kernels of their own.
    assert lowered.as_text().count(MARK) == 1
    with_kernels = lowered.compile()(task.start)
    starts = jax.tree.map(lambda x: jnp.stack([x, x + 0.1]), task.start)
    batch = jax.jit(jax.vmap(solve)).lower(starts)
    assert batch.as_text().count(MARK) == 0
    together = batch.compile()(starts)
    monkeypatch.setenv(OFF, "0")
    without = jax.jit(lambda x: solve(x)).lower(task.start)
    assert without.as_text().count(MARK) == 0
    plain = without.compile()(task.start)
    assert_close(with_kernels.controls, plain.controls, 1e-9)
    assert_close(together.controls[0], plain.controls, 1e-9)


def test_what_a_part_closes_over_may_be_batched_and_differentiated():
    def scaled(factor, x):
        return alone(lambda y: jnp.sum(factor * y) + jnp.sin(y))(x)

    factors, x = jnp.array([2.0, 3.0]), jnp.arange(3.0)
    expected = factors[:, None] * 3.0 + jnp.sin(x)
    assert_close(jax.jit(jax.vmap(scaled, in_axes=(0, None)))(factors, x), expected, 1e-14)
    slope = jax.jit(lambda t: jax.jvp(lambda t: scaled(t, t * x), (t,), (1.0,))[1])(2.0)
    assert_close(slope, 2 * 2.0 * 3.0 + x * jnp.cos(2.0 * x), 1e-14)


def test_a_part_that_does_not_fit_is_left_alone():
    x = jnp.arange(4.0).reshape(2, 2)
    product = jax.jit(alone(lambda x: x @ x))
    assert MARK not in product.lower(x).as_text()
    assert_close(product(x), np.asarray(x) @ np.asarray(x), 1e-14)
