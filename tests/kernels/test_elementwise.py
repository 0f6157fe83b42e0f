"""The program for accelerators, evaluated here: equal to plain JAX, and chosen for the platform that is lowered for."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsoa as soa
from jaxsoa.kernels import _door, elementwise
from jaxsoa.kernels.reader import read
from jaxsoa.model.joints import JOINT_KINDS


@pytest.fixture(scope="module")
def robot():
    return soa.models.random_tree(3, 2, ["universal", "prismatic"])


def states(robot, count):
    q = jax.vmap(robot.random)(jax.random.split(jax.random.key(0), count))
    return q, *(jax.random.normal(jax.random.key(i), (count, robot.nv)) for i in (1, 2))


@pytest.fixture
def written_out(monkeypatch):
    """CPU programs made as those of accelerators are; what was chosen is in the report."""
    monkeypatch.setattr(_door, "_build", lambda *_: None)
    monkeypatch.setattr(_door, "_by_jax", None)
    monkeypatch.setattr(_door, "_lower_by_jax", _door.mlir.lower_fun(_door._by_elements, multiple_results=True))


@pytest.mark.parametrize("part", [50, 10**9], ids=["in parts", "whole"])
def test_equals_the_function(robot, part, written_out, monkeypatch):
    """One state and a batch, the model fixed, shared by the batch and different in each state."""
    monkeypatch.setattr(elementwise, "PART", part)
    monkeypatch.setattr(elementwise, "WHOLE", 0)
    q, v, tau = states(robot, 3)
    expected = [np.linalg.solve(*_system(robot, *state)) for state in zip(q, v, tau, strict=True)]

    def close(found, wanted):
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9 * np.abs(wanted).max())

    fixed = partial(soa.forward_dynamics, robot)
    close(jax.jit(fixed)(q[0], v[0], tau[0]), expected[0])
    close(jax.jit(jax.vmap(fixed))(q, v, tau), expected)
    close(jax.jit(jax.vmap(soa.forward_dynamics, (None, 0, 0, None)))(robot, q, v, tau[0])[0], expected[0])
    models = jax.tree.map(lambda x: jnp.stack([x] * 3), robot)
    close(jax.jit(jax.vmap(soa.forward_dynamics))(models, q, v, tau), expected)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [jnp.float64, jnp.float32])
def test_all_joint_kinds(dtype):
    """Computed operation by operation: nothing is compiled. 300 roundings, as of a tree of nine links."""
    kinds = sorted(set(JOINT_KINDS) - {"fixed", "free"})
    robot = soa.models.random_tree(3, 9, kinds, floating_base=True)
    q, v, tau = states(robot, 3)
    single = robot.astype(dtype)
    for function in (soa.forward_dynamics, soa.inverse_dynamics, lambda robot, q, *_: soa.mass_matrix(robot, q)):
        expected = jax.vmap(partial(function, robot))(q, v, tau)
        given = [x.astype(dtype) for x in (q, v, tau)]
        program = jax.make_jaxpr(partial(function, single))(*(x[0] for x in given))
        straight = read(program, [None] * 3, dtype, 100_000)
        (found,) = elementwise.evaluate(straight, given, [True] * 3, 3, dtype)
        scale, eps = np.abs(expected).max(), jnp.finfo(dtype).eps
        np.testing.assert_allclose(found.reshape(expected.shape), expected, rtol=0, atol=300 * eps * scale)


def _system(robot, q, v, tau):
    """M and tau - C of M a = tau - C, by inverse dynamics alone; computed by kernels, before they are left out."""
    columns = [soa.inverse_dynamics(robot, q, v, e, method="composite") for e in np.eye(robot.nv)]
    bias = soa.inverse_dynamics(robot, q, v, np.zeros(robot.nv), method="composite")
    return np.stack([column - bias for column in columns], axis=1), tau - bias


def test_products_selections_and_elementary_functions(written_out):
    def function(A, B, x):
        where = jnp.where(x > 0.1, jnp.sin(x), jnp.sqrt(jnp.abs(x)) * jnp.exp(-x))
        return A @ B, jnp.tanh(where) + jnp.arctan2(x, 1 + x**2), jnp.maximum(x, x[::-1])

    rng = np.random.default_rng(0)
    A, B, x = (jnp.asarray(rng.normal(size=shape)) for shape in ((5, 7, 9), (5, 9, 8), (5, 4)))
    expected = jax.vmap(function)(A, B, x)
    found = jax.jit(jax.vmap(_door.door(function, constants=())))(A, B, x)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("platform", ["cuda", "tpu"])
def test_chosen_for_the_platform_that_is_lowered_for(platform):
    """One program for both platforms of an export; sums and products of single numbers, no loop over links."""
    robot = soa.models.pendulum(3)
    q = jnp.zeros((8, 3))

    def batch(q, v, tau):
        return jax.vmap(partial(soa.forward_dynamics, robot))(q, v, tau)

    text = jax.export.export(jax.jit(batch), platforms=[platform])(q, q, q).mlir_module()
    assert "stablehlo.while" not in text
    assert "custom_call" not in text.replace("custom_call @Sharding", "")
    assert "tensor<8xf64>" in text
