"""Functions traced late: what they promise of their results is true, and they are traced no more often than needed."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsoa as soa
from jaxsoa.batching import either_way
from jaxsoa.dynamics import inverse, mass, motion
from jaxsoa.traced_late import traced_late


@pytest.mark.parametrize("q_type", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("f_ext_type", [None, jnp.float64])
@pytest.mark.parametrize("robot_type", [jnp.float32, jnp.float64])
def test_promised_shapes_are_those_of_the_results(robot_type, q_type, f_ext_type):
    robot = soa.models.random_tree(jax.random.key(0), 6).astype(robot_type)
    q, v = robot.neutral().astype(q_type), jnp.zeros(robot.nv, robot_type)
    f_ext = None if f_ext_type is None else jnp.zeros((robot.n_links, 6), f_ext_type)
    cases = [
        (motion._sweeps, motion._results, (robot, q, v, v, v, f_ext, None)),
        (motion._sweeps, motion._results, (robot, q, v, v, v, f_ext, jnp.zeros(robot.nv, bool))),
        (inverse._torque, inverse._torque_shape, (robot, q, v, v, f_ext)),
        (mass._composite_mass_matrix, mass._mass_shape, (robot, q)),
    ]
    for function, results, arguments in cases:
        found = jax.eval_shape(partial(function, split=False), *arguments)
        kinds = jax.tree.map(lambda x: (x.shape, x.dtype), (found, results(*arguments)))
        assert kinds[0] == kinds[1], function.__name__


def test_a_batch_does_not_trace_the_function_alone():
    traced = []

    def function(robot, x, split):
        traced.append(split)
        return robot.mass[0] * x

    robot = soa.models.pendulum(1)
    call = either_way(function, results=lambda robot, x: x)
    batch = jax.jit(jax.vmap(call, in_axes=(None, 0)))(robot, jnp.ones((5, 2)))
    np.testing.assert_allclose(batch, jnp.full((5, 2), robot.mass[0]))
    assert traced == [True]
    np.testing.assert_allclose(jax.jit(call)(robot, jnp.ones(2)), batch[0])
    assert False in traced


def test_outside_of_jit_it_is_traced_once():
    traced = []

    def function(x):
        traced.append(x.shape)
        return 2 * x

    late = traced_late(function, lambda x: x)
    for value in (1.0, 2.0, 3.0):
        np.testing.assert_allclose(late(jnp.full(3, value)), 2 * value)
    late(jnp.ones(4))
    assert traced == [(3,), (4,)]
