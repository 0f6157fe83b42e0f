"""Long loops inside kernels, against the same functions in plain JAX."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsoa as soa
from jaxsoa.kernels import clear, door, machine, report
from jaxsoa.kernels.read_rows import read_rows
from jaxsoa.kernels.rows import Stage

N = 40


def _sweeps(x, m, w):
    """Rows that need rows before and behind them, loops in both directions and one in a loop, and what ends them."""
    y = jnp.sin(x) * m + 1
    z = jnp.stack([y, x, y * y])
    square = jnp.outer(w, w)

    def step(carry, row):
        a, b = row
        inner, sums = jax.lax.scan(lambda c, r: (c + r @ a, c * b), b, square)
        carry = 0.5 * carry + a - inner * jnp.where(b > 1, a, w)
        return carry, (carry * b + sums.sum(), b > 1)

    begin = jnp.zeros(3, x.dtype)
    end, (ys, large) = jax.lax.scan(step, begin, (z.T, y[::-1]))
    back, (zs, _) = jax.lax.scan(step, end * w, (ys, jnp.roll(y, 7)), reverse=True)
    mixed = jnp.concatenate([zs[3:], ys[:2], zs[:1] * w])
    chosen = jnp.where(large[:, None] & (mixed[..., :1] > 0), mixed, -ys)
    # Even and odd rows apart, a product of all rows, rows in an order of their own, and a number of them all.
    order = np.random.default_rng(0).permutation(N)
    apart = zs[::2] - zs[1::2]
    return chosen @ square, back, apart, ys[order], jnp.max(zs, axis=1), jnp.pad(x, (2, 3)), w[:2], x[:0], large


def _compare(found, expected, eps):
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=0, atol=200 * eps * np.abs(b).max(initial=0))


def _given(dtype, batch=()):
    rng = np.random.default_rng(1)
    return (
        rng.normal(size=(*batch, N)).astype(dtype),
        rng.uniform(1, 2, N).astype(dtype),
        np.array([0.3, -0.5, 0.9], dtype),
    )


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_one_state_and_batches(dtype):
    """Parts of blocks, what all states share, and both known and given numbers. 200 roundings: 80 steps and sums."""
    fast, eps = door(_sweeps, constants=(1,)), np.finfo(dtype).eps
    x, m, w = _given(dtype, (64,))
    expected = jax.jit(jax.vmap(_sweeps, (0, None, None)))(x, m, w)
    batched = jax.jit(jax.vmap(lambda x, w: fast(x, m, w), (0, None)))
    for n in (1, 3, 8, 64):
        _compare(batched(x[:n], w), [y[:n] for y in expected], eps)
    given = jax.jit(jax.vmap(fast, (0, None, 0)))(x[:9], m, np.tile(w, (9, 1)))
    _compare(given, [y[:9] for y in expected], eps)
    _compare(jax.jit(lambda x: fast(x, m, w))(x[5]), [y[5] for y in expected], eps)
    assert [(e.runs_as, e.reason) for e in report()[-3:]] == [("kernel", "loops over rows")] * 3


@pytest.mark.slow
def test_derivatives():
    x, m, w = _given(np.float64)
    fast = door(_sweeps, constants=())

    def rates(f):
        along = jax.jvp(lambda x, w: f(x, m, w)[:4], (x, w), (m, w))[1]
        return along, jax.grad(lambda x, w: sum(jnp.sum(y**2) for y in f(x, m, w)[:7]), (0, 1))(x, w)

    rows = door(lambda x, w: rates(lambda *y: _sweeps(*y)), constants=())  # the derivatives as programs of their own
    expected = jax.jit(lambda: rates(_sweeps))()
    _compare(jax.jit(lambda: rates(fast))(), expected, 1e-14)
    _compare(jax.jit(rows)(x, w), expected, 1e-14)


def test_the_code_does_not_grow_with_the_number_of_links():
    def stages(n):
        robot = soa.models.chain(n)
        program = jax.make_jaxpr(partial(soa.forward_dynamics, robot))(*3 * (jnp.zeros(n),))
        found = read_rows(program, [None] * 3, np.float64, 10_000, [True]).stages
        return [(s.reverse, [op[0] for op in s.body.operations]) for s in found if isinstance(s, Stage)], len(found)

    assert stages(20) == stages(50)


def test_what_is_not_a_number_stays_in_its_state():
    """A NaN in the fourth state reaches the rows behind it and no other state."""
    f = door(lambda x: jax.lax.cumsum(jnp.cos(x)) * 0 + jax.lax.scan(lambda c, y: (c + y, c), 0.0, x)[1], constants=())
    x = np.ones((11, N))
    x[3, 20] = np.nan
    found = np.isnan(jax.jit(jax.vmap(f))(x))
    assert found[3, 21:].all() and not found[3, :20].any() and found.sum() == found[3].sum()


def test_what_cannot_be_looped_over_is_left_to_jax():
    def counted(x):
        return jax.lax.scan(lambda c, y: ((c[0] + y, c[1] + 1), c[1]), (0.0, 0), x)

    (total, count), numbers = jax.jit(door(counted, constants=()))(np.ones(N))
    assert total == N and count == N and numbers.tolist() == list(range(N))


def _without_kernels(f, *x):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machine, "available", lambda: False)
        clear()
        try:
            return jax.jit(f)(*x)
        finally:
            clear()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["chain", "rod", "tree"])
def test_long_robots(name):
    """Dynamics and derivatives of a chain, a rod of ball joints, and a tree whose limbs are long."""
    robot = {
        "chain": lambda: soa.models.chain(30),
        "rod": lambda: soa.models.rod(1.0, 14, soa.models.circle(0.02), E=1e6, G=4e5, density=1000.0, damping=0.01),
        "tree": lambda: soa.models.random_tree(1, 40, ["revolute", "spherical"], floating_base=True),
    }[name]()
    q = jax.vmap(robot.random)(jax.random.split(jax.random.key(0), 5))
    v, tau = jax.random.normal(jax.random.key(1), (2, 5, robot.nv))
    functions = {
        "forward": soa.forward_dynamics,
        "inverse": soa.inverse_dynamics,
        "mass": lambda robot, q, v, tau: soa.mass_matrix(robot, q),
        "gradient": lambda robot, *x: jax.grad(lambda *x: (soa.forward_dynamics(robot, *x) ** 2).sum(), (0, 1, 2))(*x),
    }
    for f in functions.values():
        known = jax.vmap(partial(f, robot))
        expected = _without_kernels(known, q, v, tau)
        jax.clear_caches()
        found = [jax.jit(known)(q, v, tau), jax.jit(jax.vmap(f, (None, 0, 0, 0)))(robot, q, v, tau)]
        each = [jax.jit(partial(f, robot))(q[i], v[i], tau[i]) for i in range(5)]
        found.append(jax.tree.map(lambda *y: jnp.stack(y), *each))
        for y in found:
            for a, b in zip(jax.tree.leaves(y), jax.tree.leaves(expected), strict=True):
                # Two ways to the same sums; links far out of a chain are badly conditioned (1e-13 in the gradient).
                np.testing.assert_allclose(a, b, rtol=0, atol=1e-11 * np.abs(b).max())
        jax.clear_caches()
