"""Batches and flags change how answers are computed, never the answers."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsoa as soa
from jaxsoa import cpu
from jaxsoa.dynamics.linear_maps import linear_map, linear_zeros
from jaxsoa.indexing import stretches, take_rows

FLAG = "--xla_backend_extra_options=xla_cpu_use_multi_output_fusion=true"


def everything(robot):
    """Forward and inverse dynamics, a gradient by state and masses, a Jacobian."""

    def one(q, v, tau):
        def cost(robot, q, v, tau):
            return jnp.sum(soa.forward_dynamics(robot, q, v, tau) ** 2)

        by_robot, *by_state = jax.grad(cost, argnums=(0, 1, 2, 3))(robot, q, v, tau)
        return soa.forward_dynamics(robot, q, v, tau), soa.inverse_dynamics(robot, q, v, tau), by_robot.mass, by_state

    return one


def states(robot, batch):
    q = jax.vmap(robot.random)(jax.random.split(jax.random.key(0), batch))
    v, tau = jax.random.normal(jax.random.key(1), (2, batch, robot.nv), robot.dtype)
    return q, v, tau


def assert_close(x, y):
    def close(x, y):
        scale = np.abs(np.asarray(y)).max() + 1e-300
        np.testing.assert_allclose(np.asarray(x) / scale, np.asarray(y) / scale, rtol=0, atol=1e-11)

    jax.tree.map(close, x, y)


NOT_DYNAMICS = ("topology", "limits", "frame_rotation", "frame_position", "base_mass", "base_com", "base_inertia")
LEAVES = [f.name for f in dataclasses.fields(soa.Multibody) if f.name not in (*NOT_DYNAMICS, "springs")]


def one_leaf_batched(robot, leaf, functions):
    """Answers for three models that differ in one leaf, all in one state, at once and one after another."""
    q, v, tau = (x[0] for x in states(robot, 1))
    values = jnp.stack([getattr(robot, leaf) * (1 + 0.1 * k) for k in range(3)])

    def answers(value):
        model = robot.replace(**{leaf: value})
        return [function(model, q, v, tau) for function in functions]

    return jax.jit(jax.vmap(answers))(values), jax.lax.map(answers, values)


@pytest.mark.parametrize("leaf", LEAVES)
def test_models_that_differ_in_one_leaf_in_one_state(leaf):
    functions = [soa.forward_dynamics, soa.inverse_dynamics, lambda model, q, v, tau: soa.mass_matrix(model, q)]
    assert_close(*one_leaf_batched(soa.models.chain(2), leaf, functions))


@pytest.mark.slow
@pytest.mark.parametrize("leaf", ["mass", "joint_position", "damping", "gravity", "base_rotation"])
def test_derivatives_of_models_that_differ_in_one_leaf_in_one_state(leaf):
    def gradient(model, q, v, tau):
        return jax.grad(lambda v: jnp.sum(soa.forward_dynamics(model, q, v, tau)))(v)

    robot = soa.models.random_tree(3, 3, floating_base=True, armature=True, damping=True, friction=True)
    functions = [soa.forward_dynamics, gradient, soa.linearize_forward_dynamics, soa.linearize_inverse_dynamics]
    assert_close(*one_leaf_batched(robot, leaf, functions))


def test_one_robot_per_state():
    robot = soa.models.chain(3)
    robots = jax.vmap(lambda s: robot.replace(mass=robot.mass * s))(jnp.linspace(0.5, 2.0, 5))
    arguments = states(robot, 5)
    batched = jax.jit(jax.vmap(soa.forward_dynamics))(robots, *arguments)
    for k in range(5):
        single = jax.tree.map(lambda x, k=k: x[k], (robots, arguments))
        assert_close(batched[k], jax.jit(soa.forward_dynamics)(single[0], *single[1]))


def test_a_linear_map_uses_its_own_code_and_differentiates_the_reference():
    scale = jnp.asarray(3.0)
    x = jnp.arange(3.0)

    def mapped(scale, x):
        return linear_map(lambda x: scale * x, lambda x: 3 * x, lambda y: 3 * y, x, scale)

    np.testing.assert_array_equal(mapped(scale, x), 3 * x)
    np.testing.assert_array_equal(jax.grad(lambda x: jnp.sum(mapped(scale, x)))(x), jnp.full(3, 3.0))
    np.testing.assert_array_equal(jax.jacfwd(mapped, argnums=0)(scale, x), x)
    np.testing.assert_array_equal(jax.jacrev(mapped, argnums=0)(scale, x), x)
    np.testing.assert_array_equal(linear_zeros((2,), x.dtype, x), jnp.zeros(2))


@pytest.mark.slow
@pytest.mark.parametrize("function", [soa.forward_dynamics, soa.inverse_dynamics])
def test_reverse_over_forward_with_constant_directions(function):
    """The directions of the inner derivative are constants, wholly or in part, when the outer one is taken."""
    robot = soa.models.chain(2)
    q, v, tau = (x[0] for x in states(robot, 1))

    def along(q, dv):
        return jax.jvp(lambda q, v: function(robot, q, v, tau), (q, v), (jnp.ones(2), dv))[1].sum()

    gradient = jax.jit(jax.grad(along, argnums=(0, 1)))(q, v)
    forward = jax.jit(jax.jacfwd(along, argnums=(0, 1)))(q, v)
    assert_close(gradient, forward)


@pytest.mark.parametrize(
    "index",
    [
        *([0, 1, 2], [2, 3], [1, 1, 1], [0, 0, 1, 2, 5], [4, 2, 0], [*range(0, 40, 2)]),
        *([[0, 3], [1, 4], [2, 4]], [[0, 1], [2, 3]]),
    ],
    ids=str,
)
def test_rows_by_slices_equal_rows_by_index(index):
    x = np.random.default_rng(0).normal(size=(40, 2))
    np.testing.assert_array_equal(take_rows(jnp.asarray(x), np.asarray(index)), x[np.asarray(index)])


def test_stretches():
    assert stretches(np.array([3, 4, 5, 5, 5, 9])) == [(3, 3, 1), (5, 2, 0), (9, 1, 1)]


def test_importing_starts_nothing_and_fast_cpu_comes_first():
    program = (
        "import jaxsoa as soa\n"
        "soa.fast_cpu(devices=2)  # refused if importing had started JAX\n"
        "import jax, os\n"
        "assert len(jax.devices()) == 2\n"
        "assert 'xla_cpu_use_multi_output_fusion=true' in os.environ['XLA_FLAGS']\n"
        "try:\n    soa.fast_cpu()\n"
        "except RuntimeError as error:\n    assert 'before' in str(error)\n"
        "else:\n    raise AssertionError('too late, and no error')\n"
    )
    environment = {**os.environ, "XLA_FLAGS": "--xla_backend_extra_options=xla_cpu_something_else=1"}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)


def test_fast_cpu_is_refused_once_jax_runs():
    jnp.zeros(1).block_until_ready()
    for setting in (cpu.fast_cpu, cpu.low_latency_cpu):
        with pytest.raises(RuntimeError, match=f"{setting.__name__} must be called before"):
            setting()


def test_low_latency_computes_in_the_calling_thread():
    """So an answer that takes a while is there when the call returns; JAX by itself returns before."""
    program = (
        "import jaxsoa as soa, sys\n"
        "if sys.argv[1] == 'True':\n    soa.low_latency_cpu()\n"
        "import jax, jax.numpy as jnp\n"
        "q = jnp.ones((500, 500)) / 500\n"
        "run = jax.jit(lambda q: jax.lax.fori_loop(0, 300, lambda _, x: jnp.sin(x @ q), q))\n"
        "jax.block_until_ready(run(q))\n"
        "print(run(q + 1e-3).is_ready())\n"
    )
    for quick in (True, False):
        command = [sys.executable, "-c", program, str(quick)]
        assert subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip() == str(quick)


@pytest.mark.slow
@pytest.mark.parametrize("make", ["soa.models.puma560()", "soa.models.dual_arm()", "soa.models.random_tree(0, 7)"])
def test_the_flag_changes_no_answer(make, tmp_path):
    """Compiled by XLA with and without multi-output fusion, in processes of their own."""
    program = (
        "import sys; sys.path.insert(0, sys.argv[2])\n"
        "import jax, numpy as np; jax.config.update('jax_enable_x64', True)\n"
        "import jaxsoa as soa\n"
        "from test_batching import everything, states\n"
        f"robot = {make}\n"
        "linear = lambda *x: soa.linearize_forward_dynamics(robot, *x)\n"
        "out = jax.jit(jax.vmap(lambda *x: (everything(robot)(*x), linear(*x))))(*states(robot, 300))\n"
        "np.savez(sys.argv[1], *map(np.asarray, jax.tree.leaves(out)))\n"
    )
    answers = []
    for flags in ("", FLAG):
        path = tmp_path / f"{len(flags)}.npz"
        environment = {**os.environ, "XLA_FLAGS": flags, "JAXSOA_KERNELS": "0"}
        here = os.path.dirname(__file__)
        subprocess.run([sys.executable, "-c", program, str(path), here], check=True, env=environment)
        with np.load(path) as data:
            answers.append([data[name] for name in data.files])
    assert_close(*answers)


def test_a_batch_solves_the_mass_matrix_where_joints_have_several_degrees_of_freedom():
    robot = soa.models.random_tree(1, 4, ["revolute", "spherical"], floating_base=True)
    q, _, tau = states(robot, 4)

    @jax.jit
    def both(q, tau):
        mass = jax.vmap(lambda q: soa.mass_matrix(robot, q))(q)
        return jax.vmap(lambda q, x: soa.solve_mass_matrix(robot, q, x))(q, tau), jnp.linalg.solve(mass, tau[..., None])

    solved, expected = both(q, tau)
    assert_close(solved, expected[..., 0])
