"""Programs that are cut into parts, and products of matrices that are loops: what they compute is what JAX computes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsoa.kernels import door, llvm_parts, program, reader, report
from jaxsoa.kernels.llvm_products import plan_product


@pytest.fixture
def small_parts(monkeypatch):
    """Every program has many parts, so that short ones show what long ones do."""
    monkeypatch.setattr(llvm_parts, "WHOLE", 0)
    monkeypatch.setattr(llvm_parts, "PART", 7)


def chained(x, y):
    """Values, also true and false ones, that are read long after they were computed."""
    early, large = jnp.sin(x), x > y
    total = x
    for _ in range(12):
        total = jnp.tanh(total * y + jnp.cos(x)) - early
    return jnp.where(large, total, early), jnp.where(large.all(), y, -y), jnp.full(3, 2.0, x.dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_parts_hand_on_numbers_and_truths(small_parts, dtype):
    x, y = (jax.random.normal(jax.random.key(i), (9, 4), dtype) for i in (0, 1))

    def own(x, y):  # a function of this test alone, so that no kernel made before is found
        return chained(x, y)

    found = jax.jit(jax.vmap(door(own)))(x, y)
    assert report()[-1].runs_as == "kernel"
    tolerance = 2e-5 if dtype == np.float32 else 1e-13
    for a, b in zip(found, jax.vmap(chained)(x, y), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)
    for a, b in zip(jax.jit(door(own))(x[0], y[0]), found, strict=True):
        np.testing.assert_allclose(a, b[0], rtol=tolerance, atol=tolerance)


def test_what_is_shared_is_computed_in_parts_too(small_parts):
    def own(x, y):
        return chained(x, y)

    x, y = (jax.random.normal(jax.random.key(i), (9, 4)) for i in (2, 3))
    found = jax.jit(jax.vmap(lambda y: door(own, constants=())(x[0], y)))(y)
    expected = jax.vmap(lambda y: chained(x[0], y))(y)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-13, atol=1e-13)


LEFT = np.triu(np.ones((13, 11)))
RIGHT = np.kron(np.eye(3), np.ones((4, 5)))[:11, :15]


def masked_products(a, b):
    """Products of which much is known to be zero, one of them a factor of the next, and of which not all is read."""
    first = (a * LEFT) @ (b * RIGHT)
    second = first.T @ a[:13] @ b
    return first, second[2:5, ::3], -second[-1]


@pytest.mark.parametrize("order", ["as written", "depth first, in parts"])
def test_products_of_matrices_with_zeros(order, monkeypatch):
    from jaxsoa.kernels import llvm_module

    if order != "as written":
        monkeypatch.setattr(llvm_module, "SHORT", 0)
        monkeypatch.setattr(llvm_parts, "WHOLE", 0)
        monkeypatch.setattr(llvm_parts, "PART", 200)

    def own(a, b):
        return masked_products(a, b)

    a, b = jax.random.normal(jax.random.key(0), (5, 13, 11)), jax.random.normal(jax.random.key(1), (5, 11, 15))
    found = jax.jit(jax.vmap(door(own, constants=())))(a, b)
    assert report()[-1].runs_as == "kernel"
    for x, y in zip(found, jax.vmap(masked_products)(a, b), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-12)


def test_a_product_reads_only_what_is_asked_for():
    zeros = [0.0 if x == 0 else i for i, x in enumerate([*LEFT.ravel(), *RIGHT.ravel()])]
    plan = plan_product(13, 11, 15, zeros, {3 * 15 + 12})
    ((row, first, terms),) = plan.tiles
    assert (row, first) == (3, 15 - plan.width)
    assert terms == [4, 5, 6, 7, 8, 9, 10]  # the tile touches columns of the second and third blocks of RIGHT
    assert not any(k < 3 for k in terms)


def test_depth_first_computes_the_same_and_keeps_sines_beside_cosines():
    read = reader.read(jax.make_jaxpr(chained)(jnp.ones(3), jnp.ones(3)), (None, None), np.float64, 10_000)
    ordered = program.depth_first(read)
    assert sorted(op[0] for op in ordered.operations) == sorted(op[0] for op in read.operations)
    at = {op: i for i, op in enumerate(ordered.operations)}
    pairs = [(i, at[("cos", op[1])]) for op, i in at.items() if op[0] == "sin"]
    assert pairs and all(abs(i - j) == 1 for i, j in pairs)
    for i, op in enumerate(ordered.operations):
        assert all(x < i for x in program.operands(op) if type(x) is int)


def test_infinities_zeros_and_far_angles_keep_to_their_state(small_parts):
    def own(x):
        return jnp.sin(x), jnp.cos(x) * 0.5, x / 3, jnp.where(x > 0, x, -x)

    x = jnp.array([[1e300], [-0.0], [jnp.inf], [jnp.nan], [0.5], [-jnp.inf], [1e9]])
    found = jax.jit(jax.vmap(door(own)))(x)
    for a, b in zip(found, own(np.asarray(x)), strict=True):
        np.testing.assert_allclose(a, b, rtol=4e-16, atol=0)
        assert (np.signbit(a) == np.signbit(b))[~np.isnan(b)].all()


def test_results_that_repeat_are_kept_once_and_written_everywhere():
    """Equal elements, constants (zero, its negative, a truth) and inputs among results, in any order and length."""

    def function(x):
        M = x[:, None] * x
        zeros = jnp.where(jnp.arange(9)[:, None] % 2 == 0, M, 0.0)
        return M, jnp.stack([x[2], x[2], -x[0], x[1]]), zeros[:, ::-1], x > 2, jnp.full(20, -0.0), x[::-1]

    x = np.random.default_rng(0).normal(size=(21, 9))
    for count in (1, 8, 21):
        found = jax.jit(jax.vmap(door(function, constants=())))(x[:count])
        for a, b in zip(found, jax.vmap(function)(x[:count]), strict=True):
            np.testing.assert_array_equal(a, b)
            np.testing.assert_array_equal(np.signbit(a), np.signbit(b))
