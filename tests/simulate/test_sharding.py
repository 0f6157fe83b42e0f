"""Sharded batches, on one device here and on eight virtual ones in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers.transformed import by_numpy
from jax.sharding import AbstractMesh, PartitionSpec

import jaxsoa as soa
from jaxsoa import optimize, simulate


def test_one_device_maps_and_differentiates():
    """The machinery alone, on functions that compile at once."""
    x = np.linspace(0.0, 1.0, 7)
    mapped = simulate.sharded_map(lambda a, x: {"y": a * x**2}, chunk=3)
    np.testing.assert_allclose(simulate.to_host(mapped(2.0, x))["y"], 2 * x**2, rtol=1e-12)
    value, gradient = simulate.sharded_value_and_grad(lambda a, x: jnp.sin(a * x), chunk=2)(jnp.float64(2.0), x)
    np.testing.assert_allclose(value, np.sin(2 * x).mean(), rtol=1e-12)
    np.testing.assert_allclose(gradient, (x * np.cos(2 * x)).mean(), rtol=1e-12)


def test_batches_that_do_not_match_are_refused():
    mapped = simulate.sharded_map(lambda a, x, y: x + y)
    for x, y in ((np.zeros(3), np.zeros(4)), (np.zeros(0), np.zeros(0)), (np.float64(1), np.zeros(1))):
        with pytest.raises(ValueError, match="leading batch axis"):
            mapped(None, x, y)


@pytest.mark.slow
def test_eight_devices_equal_a_plain_vmap():
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"
    script = Path(__file__).parent / "check_devices.py"
    environment = {**os.environ, "XLA_FLAGS": flags}
    done = subprocess.run([sys.executable, str(script), "8"], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "8 devices: all equal" in done.stdout


@pytest.mark.slow
def test_derivatives_along_what_is_alike_on_all_devices():
    """States differ between devices and the masses do not: derivatives by these, with the types of devices checked."""
    robot, mesh = soa.models.pendulum(2), AbstractMesh((2,), ("devices",))
    rng = np.random.default_rng(0)
    states = [jnp.asarray(rng.normal(size=(2, 2))) for _ in range(3)]

    def rates(q, v, tau):
        def along(function):
            return jax.jvp(lambda m: function(robot.replace(mass=m), q, v, tau), (robot.mass,), (robot.mass,))[1]

        found = simulate.trajectory_sensitivity(
            lambda by: robot.replace(mass=robot.mass * (1 + by)), jnp.zeros(2), q, v, None, 0.01, steps=2
        )
        return along(soa.forward_dynamics), along(soa.inverse_dynamics), found

    split = PartitionSpec("devices")
    sharded = jax.shard_map(jax.vmap(rates), mesh=mesh, in_specs=split, out_specs=split)
    jax.tree.map(np.testing.assert_array_equal, by_numpy(sharded, *states), by_numpy(jax.vmap(rates), *states))


@pytest.mark.slow
def test_solvers_of_other_packages_inside_shard_map():
    """Loops of optax and diffrax lose the types of devices: they are refused by name; what has none of them works."""
    robot, mesh, split = soa.models.pendulum(1), AbstractMesh((2,), ("devices",)), PartitionSpec("devices")
    rng = np.random.default_rng(0)
    q, v = (jnp.asarray(rng.normal(size=(2, 1))) for _ in range(2))
    problem = optimize.robot_problem(robot, horizon=2, dt=0.01, final_cost=lambda x: jnp.sum(x.v**2))

    def shooting(optimizer):
        def solved(q, v):
            found = optimize.shooting(problem, soa.State(q, v), optimizer=optimizer, max_iterations=2)
            return found.controls, found.cost

        return jax.vmap(solved)

    def adaptively(q, v):
        return soa.simulate.solve_adaptively(robot, q, v, None, jnp.asarray([0.0, 0.01]), max_steps=16)

    def sharded(function, **options):
        return jax.shard_map(function, mesh=mesh, in_specs=split, out_specs=split, **options)

    for function in (shooting(None), jax.vmap(adaptively)):
        with pytest.raises(TypeError, match="Pass check_vma=False to"):
            jax.make_jaxpr(sharded(function))(q, v)
        jax.make_jaxpr(sharded(function, check_vma=False))(q, v)  # as it says
    adam = shooting(optax.adam(1e-2))
    jax.tree.map(np.testing.assert_array_equal, by_numpy(sharded(adam), q, v), by_numpy(adam, q, v))
