"""What goes through the door equals plain JAX: transformations, batch sizes, types, trees of all joint kinds."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxsoa as soa
from jaxsoa import kernels
from jaxsoa.kernels import door
from jaxsoa.model.joints import JOINT_KINDS

BATCHES = (0, 1, 3, 7, 8, 9, 63, 64)
KINDS = sorted(set(JOINT_KINDS) - {"fixed", "free"})


@pytest.fixture(scope="module")
def robot():
    return soa.models.random_tree(3, 9, KINDS, floating_base=True)


@pytest.fixture(scope="module")
def states(robot):
    q = jax.vmap(robot.random)(jax.random.split(jax.random.key(0), 64))
    v, tau = (jax.random.normal(jax.random.key(i), (64, robot.nv)) for i in (1, 2))
    return q, v, tau


@jax.jit
def plain(robot, q, v, tau):
    """Forward dynamics by a dense solve: no code of the kernels, nor of the Riccati sweep."""
    bias = soa.inverse_dynamics(robot, q, v, jnp.zeros_like(v), method="composite")
    columns = jax.vmap(lambda e: soa.inverse_dynamics(robot, q, v, e, method="composite"), out_axes=1)
    M = columns(jnp.eye(robot.nv)) - bias[:, None]
    return jnp.linalg.solve(M, tau - bias)


@pytest.fixture(scope="module")
def expected(robot, states):
    return jax.jit(jax.vmap(partial(plain, robot)))(*states)


def close(found, expected, rtol=1e-9):
    scale = np.abs(expected).max() if np.size(expected) else 1
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=rtol * scale)


def test_one_state_closed_over_as_argument_and_eager(robot, states, expected):
    state = [x[0] for x in states]
    close(jax.jit(partial(soa.forward_dynamics, robot))(*state), expected[0])
    close(jax.jit(soa.forward_dynamics)(robot, *state), expected[0])
    close(soa.forward_dynamics(robot, *state), expected[0])


def test_batches_of_every_size_by_one_kernel(robot, states, expected):
    batched = jax.jit(jax.vmap(partial(soa.forward_dynamics, robot)))
    batched(*states)
    before = len(kernels.report())
    for n in BATCHES:
        close(batched(*(x[:n] for x in states)), expected[:n])
    assert len(kernels.report()) == before  # nothing was compiled anew
    close(batched(*(jnp.tile(x, (64, 1)) for x in states)), np.tile(expected, (64, 1)))


def test_batches_of_batches_and_of_one_argument(robot, states, expected):
    f = partial(soa.forward_dynamics, robot)
    nested = jax.jit(jax.vmap(jax.vmap(f)))(*(x.reshape(4, 16, -1) for x in states))
    close(nested.reshape(64, -1), expected)
    q, v, tau = states
    one = jax.jit(jax.vmap(lambda tau: f(q[0], v[0], tau)))(tau[:5])
    close(one, jax.vmap(lambda tau: plain(robot, q[0], v[0], tau))(tau[:5]))


@pytest.mark.slow
def test_models_as_arguments_replaced_and_updated(robot, states):
    state = [x[0] for x in states]
    heavier = eqx.tree_at(lambda r: r.mass, robot, robot.mass * 2)
    close(jax.jit(partial(soa.forward_dynamics, heavier))(*state), plain(heavier, *state))
    close(jax.jit(soa.forward_dynamics)(heavier, *state), plain(heavier, *state))
    rates = jax.jit(jax.grad(lambda r: soa.forward_dynamics(r, *state).sum()))(robot)
    updates, _ = optax.sgd(1e-4).update(jax.tree.map(lambda x: jnp.clip(x, -1, 1), rates), optax.sgd(1e-4).init(robot))
    moved = optax.apply_updates(robot, updates)
    close(soa.forward_dynamics(moved, *state), plain(moved, *state), rtol=1e-8)
    many = jax.tree.map(lambda x: jnp.stack([x] * 5), robot)
    many = eqx.tree_at(lambda r: r.mass, many, many.mass * jnp.linspace(1, 2, 5)[:, None])
    found = jax.jit(jax.vmap(soa.forward_dynamics, in_axes=(0, None, None, None)))(many, *state)
    one = [plain(jax.tree.map(lambda x, i=i: x[i], many), *state) for i in range(5)]
    close(found, np.stack(one))


def test_nothing_leaks_between_states(robot, states, expected):
    q, v, tau = states
    for bad in (jnp.nan, jnp.inf):
        found = jax.jit(jax.vmap(partial(soa.forward_dynamics, robot)))(q, v.at[5, 2].set(bad), tau)
        wrong = ~np.isfinite(np.asarray(found)).all(axis=1)
        np.testing.assert_array_equal(np.flatnonzero(wrong), [5])
        close(found[6:], expected[6:])


def test_a_nan_reaches_what_depends_on_it():
    found = jax.jit(door(lambda x: (x - x, 0 * x, x * 2, jnp.maximum(x, 0)), constants=()))(jnp.array([jnp.nan, 1.0]))
    assert np.isnan(np.asarray(found[0])[0]) and np.isnan(np.asarray(found[2])[0]) and np.isnan(np.asarray(found[3])[0])
    assert not np.isnan(np.asarray(found[0])[1])


def test_float32(robot, states, expected):
    single = robot.astype(jnp.float32)
    found = jax.jit(jax.vmap(partial(soa.forward_dynamics, single)))(*(x.astype(jnp.float32) for x in states))
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, expected, atol=2e-5 * np.abs(expected).max())


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("batch", [None, 13])
def test_elementary_functions(dtype, batch):
    rng = np.random.default_rng(0)
    top = np.log10(np.finfo(dtype).max) - 1
    x = np.concatenate([rng.uniform(-10, 10, 60), rng.uniform(-1e9, 1e9, 40), 10.0 ** rng.uniform(-top, top, 20)])
    x = np.concatenate([x, [0.0, -0.0, 10.0**top, 10 * np.pi, np.inf, -np.inf, np.nan, 1e9, -1e9, 0.625]]).astype(dtype)
    x = x[: len(x) // 13 * 13] if batch else x
    functions = (jnp.sin, jnp.cos, jnp.tanh, jnp.sqrt, jnp.abs, jnp.sign, jnp.floor, jnp.isfinite)
    f = door(lambda x: [g(x) for g in functions], constants=())
    given = jnp.asarray(x.reshape(13, -1).T if batch else x)
    found = jax.jit(jax.vmap(f) if batch else f)(given)
    exact = np.longdouble(np.asarray(given))
    ulp = np.finfo(dtype).eps
    for name, y in zip(("sin", "cos", "tanh"), found, strict=False):
        with np.errstate(invalid="ignore"):
            want = getattr(np, name)(exact)
        np.testing.assert_allclose(np.asarray(y), want.astype(dtype), rtol=2 * ulp, atol=0)
    for g, y in zip(functions[3:], found[3:], strict=True):
        np.testing.assert_array_equal(np.asarray(y), np.asarray(jax.jit(g)(given)))
    zero = jax.jit(door(jnp.sin, constants=()))(jnp.array([-0.0], dtype))
    assert np.signbit(np.asarray(zero))[0]


def test_matrices_inside_a_kernel():
    """Products by loops, with rows that are mostly zero; factors and triangular solves; choices and scans."""
    rng = np.random.default_rng(1)
    pattern = np.tril(rng.random((14, 14)) < 0.4)

    def function(x, y):
        lower = jnp.where(pattern, x, 0)
        total = (lower @ y) @ (y.T @ y)
        small = y[:4, :4] @ y[:4, :4].T + jnp.eye(4)
        factor = jnp.linalg.cholesky(small)
        solved = jax.scipy.linalg.solve_triangular(factor, y[:4], lower=True)
        carried = jax.lax.scan(lambda c, row: (c + row * jnp.where(c > 0, c, -1), c.sum()), y[0], x[:, :14])[1]
        return total, solved, carried, jax.lax.cond(x[0, 0] > 0, jnp.sin, jnp.cos, x[0])

    x, y = (jnp.asarray(rng.normal(size=(5, 14, 14))) for _ in range(2))
    expected = jax.vmap(function)(x, y)
    through = door(function, constants=())
    for found in (jax.jit(jax.vmap(through))(x, y), jax.tree.map(lambda *r: jnp.stack(r), *map(through, x, y))):
        jax.tree.map(partial(close, rtol=1e-11), found, expected)
    assert [e.runs_as for e in kernels.report()[-2:]] == ["kernel", "kernel"]


def test_results_for_which_large_pages_are_asked():
    """Two results of some megabytes and one of none, at odd places in memory; the last states fill no block."""

    def function(x):
        return x[:, None] * x, x[:0], jnp.sin(x)[:, None] + x

    x = np.linspace(-1, 1, 3003 * 17).reshape(3003, 17)
    found = jax.jit(jax.vmap(door(function, constants=())))(x)
    for a, b in zip(found, jax.vmap(function)(x), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-15, atol=1e-15)


def test_what_cannot_be_read_is_left_to_xla_and_listed():
    f = door(lambda x: jnp.linalg.eigh(x)[0], constants=())
    x = jnp.array([[2.0, 1.0], [1.0, 3.0]])
    close(jax.jit(f)(x), np.linalg.eigvalsh(x))
    entry = kernels.report()[-1]
    assert "eigh" in str(entry) and "inputs 2x2" in str(entry) and (entry.runs_as, entry.constants) == ("xla", 0)


def test_derivatives_of_every_order():
    f = door(lambda x: jnp.sin(x) * x[0], constants=())
    x = jnp.array([0.3, 0.7])
    for a in (jax.jacfwd, jax.jacrev):
        for b in (jax.jacfwd, jax.jacrev):
            close(jax.jit(a(b(f)))(x), jax.jacfwd(jax.jacfwd(lambda x: jnp.sin(x) * x[0]))(x))


def test_inside_loops_branches_checkpoints_and_their_derivatives():
    """A kernel in a scan, a branch and a checkpoint, in batches of batches, and its gradients."""
    robot = soa.models.pendulum(2)
    q, v, tau = jax.random.normal(jax.random.key(0), (3, 2, 3, robot.nv))

    def outcome(f, q, v, tau):
        def step(v, _):
            a = jax.checkpoint(f)(q, v, tau)
            return jax.lax.cond(a[0] > 0, lambda: v + 0.1 * a, lambda: v - 0.2 * a), a

        v, a = jax.lax.scan(step, v, None, 3)
        return (v * a[-1]).sum() + a.sum()

    @partial(jax.jit, static_argnums=0)
    def everything(f, q, v, tau):
        return jax.vmap(jax.vmap(jax.value_and_grad(partial(outcome, f), (0, 1, 2))))(q, v, tau)

    found = everything(partial(soa.forward_dynamics, robot), q, v, tau)
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(everything(partial(plain, robot), q, v, tau)), strict=True):
        close(x, y)


def test_results_that_nobody_reads_are_not_computed():
    f = door(lambda x: (jnp.sin(x), jnp.linalg.inv(x[:1, None] + 1)), constants=())
    close(jax.jit(lambda x: f(x)[0])(jnp.ones(2)), np.sin(np.ones(2)))


def test_constants_are_not_taken_for_the_values_of_that_number():
    """1 == 1.0 == True in Python; in a program the first is a value, x[1] here, and the others are constants."""

    def function(x):
        y = x[3]
        two = jnp.stack([x[2] * y, 2.0 * y, y - x[2], y - 2.0, jnp.maximum(y, x[2]), jnp.maximum(y, 2.0)])
        one = jnp.stack([x[1] / y, 1.0 / y, jnp.arctan2(y, x[1]), jnp.arctan2(y, 1.0), jnp.arctan2(y, x[0])])
        zero = jnp.stack([jnp.arctan2(y, 0.0), jnp.arctan2(y, -0.0), jnp.arctan2(-0.0, y - 9), jnp.arctan2(0.0, y - 9)])
        return two, one, zero, jnp.where(y > 1, x[1], 1.0), jnp.where(x > 0.0, 0.0, -0.0)

    x = jnp.asarray([0.3, -0.7, 0.4, 1.6])
    for found, expected in zip(jax.jit(door(function, constants=()))(x), function(x), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-15)
        np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))


@pytest.mark.parametrize("links", [2, 3, 4, 5])
def test_known_models_equal_models_as_arguments(links):
    robot = soa.models.random_tree(3, links, KINDS, floating_base=True)
    q, (v, tau) = robot.random(0), jax.random.normal(jax.random.key(1), (2, robot.nv))
    found = jax.jit(partial(soa.forward_dynamics, robot))(q, v, tau)
    close(found, soa.forward_dynamics(robot, q, v, tau), rtol=1e-12)


def test_a_result_left_out_makes_a_kernel_of_its_own_only_where_that_saves_work():
    def both(x):
        y = x
        for _ in range(40):
            y = jnp.sin(y) + x
        return y, jnp.sum(x), x[0] + x[1]

    through, x = door(both, constants=()), jnp.linspace(0.1, 0.9, 4)
    expected = both(x)
    close(jnp.stack(jax.jit(lambda x: through(x)[1:])(x)), jnp.stack(expected[1:]))
    assert kernels.report()[-1].operations < 20
    jax.block_until_ready(jax.jit(through)(x))
    before = len(kernels.report())
    close(jax.jit(lambda x: through(x)[0])(x), expected[0])
    close(jax.jit(jax.grad(lambda x: through(x)[2]))(x), [1.0, 1.0, 0, 0])
    assert len(kernels.report()) == before
