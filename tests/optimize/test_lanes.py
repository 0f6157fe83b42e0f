"""Batches worked off in lanes against one problem after the other, and steps through kernels against plain JAX."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.compare import assert_close

from jaxsoa import kernels, optimize
from jaxsoa.optimize.lanes import LANES, while_by_lanes
from jaxsoa.optimize.stepwise import stepwise


def collatz(n, step):
    """(steps to 1, the sum of `step` on the way): loops whose length nobody foresees."""

    def body(x):
        n, count, total = x
        return jnp.where(n % 2 == 0, n // 2, 3 * n + 1), count + 1, {"sum": total["sum"] + step}

    start = (n, jnp.array(0), {"sum": jnp.zeros_like(step)})
    return while_by_lanes(lambda x: x[0] > 1, body, start)


@pytest.mark.parametrize("size", [3, LANES, LANES + 1, 5 * LANES + 2])
def test_lanes_give_what_single_loops_give(size):
    numbers, steps = jnp.arange(1, size + 1), jnp.arange(2.0 * size).reshape(size, 2)
    n, count, total = jax.jit(jax.vmap(collatz))(numbers, steps)
    for k in range(size):
        expected, m = 0, k + 1
        while m > 1:
            m, expected = (m // 2 if m % 2 == 0 else 3 * m + 1), expected + 1
        assert int(count[k]) == expected and int(n[k]) == 1
        np.testing.assert_allclose(total["sum"][k], expected * np.asarray(steps[k]), rtol=1e-14)
    shared = jax.jit(jax.vmap(collatz, in_axes=(0, None)))(numbers, steps[0])
    np.testing.assert_array_equal(shared[1], count)


def test_lanes_in_a_batch_of_batches():
    numbers = jnp.arange(1, 6 * LANES + 1)
    step = jnp.ones(1)
    flat = jax.jit(jax.vmap(collatz, in_axes=(0, None)))(numbers, step)
    nested = jax.jit(jax.vmap(jax.vmap(collatz, in_axes=(0, None)), in_axes=(0, None)))(numbers.reshape(6, -1), step)
    np.testing.assert_array_equal(nested[1].ravel(), flat[1])


def test_a_large_batch_of_trajectories_equals_one_by_one():
    problem = optimize.step_problem(
        lambda x, u: x + 0.1 * jnp.stack([x[1], u[0] - jnp.sin(x[0])]),
        controls=1,
        horizon=20,
        dt=0.1,
        running_cost=optimize.LeastSquares(lambda x, u: 0.1 * u),
        limits=3.0,
    )

    def solve(goal):
        end = optimize.Equality(lambda x: x - jnp.array([1.0, 0.0]) * goal, "end")
        slow = optimize.Inequality(lambda x, u: x[1:] - 0.8, "speed")
        return optimize.constrained(problem, jnp.zeros(2), path=slow, final=end)

    goals = jnp.linspace(-0.6, 0.9, LANES + 4)
    together, one = jax.jit(jax.vmap(solve))(goals), jax.jit(solve)
    assert bool(together.converged.all()) and float(together.violation.max()) < 1e-6
    assert len(set(np.asarray(together.iterations).tolist())) > 1
    for k in (0, LANES - 1, LANES + 3):
        alone = one(goals[k])
        assert_close(together.cost[k], alone.cost, 1e-6)
        assert_close(together.controls[k], alone.controls, 1e-4)


def test_a_large_batch_of_what_starts_from_constants():
    problem = optimize.step_problem(lambda x, u: x + 0.1 * u, controls=1, horizon=5, final_cost=lambda x: x @ x)

    @jax.jit  # in whose program constants are numbers
    def solve(start, guess):
        return optimize.ilqr(problem, start, guess).cost

    starts, guess = jnp.linspace(-1, 1, LANES + 1)[:, None], jnp.zeros((5, 1))
    together = jax.jit(jax.vmap(solve, in_axes=(0, None)))(starts, guess)
    np.testing.assert_allclose(together[0], solve(starts[0], guess), atol=1e-12)


def test_steps_through_kernels_close_over_what_is_traced():
    kernels.clear()

    def along(factor, x):
        def function(y):
            return jnp.sin(factor * y).sum(), {"product": factor * y}

        return jax.vmap(stepwise(function))(x)

    x, factors = jnp.arange(12.0).reshape(4, 3) / 10, jnp.array([2.0, 3.0])
    value, more = jax.jit(jax.vmap(along, in_axes=(0, None)))(factors, x)
    for k, factor in enumerate(factors):
        assert_close(value[k], np.sin(factor * np.asarray(x)).sum(1), 1e-14)
        assert_close(more["product"][k], factor * x, 1e-15)
    slope = jax.jit(jax.grad(lambda f: along(f, x)[0].sum()))(2.0)
    assert_close(slope, (np.asarray(x) * np.cos(2.0 * np.asarray(x))).sum(), 1e-14)
    assert "function (batch): kernel" in str(kernels.report())
    seen = []
    told = jax.jit(stepwise(lambda y: (jax.debug.callback(lambda y: seen.append(float(y)), y), 2 * y)[1]))
    assert float(told(3.0)) == 6.0
    jax.effects_barrier()
    assert seen == [3.0]
