"""Functions compiled as one kernel: the same answers, and only where XLA can do it."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsoa as soa
from jaxsoa.kernels.xla_kernel import LARGEST_PACKED, one_kernel

MARK = "xla_cpu_small_call"


def compiled(function, *arguments):
    return jax.jit(lambda *x: function(*x)).lower(*arguments).compile()


def marks(function, *arguments):
    """Calls asked for as one kernel in what JAX hands to XLA (which marks small loops of its own later)."""
    return jax.jit(lambda *x: function(*x)).lower(*arguments).as_text().count(MARK)


def state(robot):
    q = robot.random(jax.random.key(0))
    v, tau = jax.random.normal(jax.random.key(1), (2, robot.nv), robot.dtype)
    return q, v, tau


def star(arms: int) -> soa.Multibody:
    """More children at one link than are added one by one: their sum is a scatter."""
    builder = soa.Builder("star")
    builder.link("hub", mass=1.0, inertia=np.eye(3), joint="continuous", axis=(0, 0, 1))
    for k in range(arms):
        for part, parent in (("inner", "hub"), ("outer", f"inner{k}")):
            builder.link(
                f"{part}{k}",
                parent=parent,
                mass=0.5,
                com=(0.1, 0, 0),
                inertia=0.1 * np.eye(3),
                joint="continuous",
                axis=(0, 1, 0),
                position=(0.2, 0.1 * k, 0.0),
            )
    return builder.build()


def test_a_batch_is_not_one_kernel():
    robot = soa.models.chain(3)
    arguments = jax.tree.map(lambda x: jnp.stack([x] * 5), state(robot))
    assert marks(jax.vmap(lambda *x: soa.forward_dynamics(robot, *x)), *arguments) == 0


def test_batching_a_kernel_takes_the_mark_away():
    x = jnp.arange(6.0).reshape(2, 3)
    double = one_kernel(lambda x: 2 * x)
    assert marks(double, x[0]) == 1
    assert marks(jax.vmap(double), x) == 0
    np.testing.assert_array_equal(jax.jit(jax.vmap(double))(x), 2 * x)


def test_sums_over_many_children():
    robot = star(7)
    q, v, tau = state(robot)
    a = jax.jit(soa.forward_dynamics)(robot, q, v, tau)
    np.testing.assert_allclose(jax.jit(soa.inverse_dynamics)(robot, q, v, a), tau, rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: x @ y.T,
        lambda x, y: x.at[jnp.argsort(y[0])].set(0.0),
        lambda x, y: jnp.sum(jnp.outer(jnp.ravel(x), jnp.arange(1000.0))),
        lambda x, y: jnp.linalg.solve(x[:, :2], y[:, 0]),
    ],
    ids=["product", "scatter", "large sum", "library"],
)
def test_what_xla_cannot_emit_is_left_alone(function):
    x, y = jnp.arange(6.0).reshape(2, 3), jnp.ones((2, 3))
    arguments = (x + jnp.eye(2, 3), y)
    assert marks(one_kernel(function), *arguments) == 0
    np.testing.assert_allclose(compiled(one_kernel(function), *arguments)(*arguments), function(*arguments))


def test_arguments_that_are_not_read_passed_through_or_of_other_types():
    x, unread, mask = jnp.arange(3.0), jnp.ones((4, 2)), jnp.array([True, False, True])
    kernel = one_kernel(lambda x, unread, mask: (x, jnp.where(mask, x + 1, -x), mask))
    assert marks(kernel, x, unread, mask) == 1
    passed, chosen, same = compiled(kernel, x, unread, mask)(x, unread, mask)
    np.testing.assert_array_equal(passed, x)
    np.testing.assert_array_equal(chosen, [1, -1, 3])
    np.testing.assert_array_equal(same, mask)
    assert marks(one_kernel(lambda x, n: x * n), x, jnp.array(2)) == 0  # integers do not travel among floats


def test_a_kernel_inside_another_is_part_of_it():
    x = jnp.arange(3.0)
    double = one_kernel(lambda x: 2 * x)
    fitting, not_fitting = (
        one_kernel(lambda x: jnp.sum(double(x)) + x),
        one_kernel(lambda x: jnp.outer(x, x) @ double(x)),
    )
    assert marks(fitting, x) == 1
    assert marks(not_fitting, x) == 1  # only the inner one
    np.testing.assert_array_equal(compiled(fitting, x)(x), 6 + x)
    np.testing.assert_array_equal(compiled(not_fitting, x)(x), 10 * x)


def test_large_arguments_read_or_not_and_of_other_types():
    large, count = jnp.arange(LARGEST_PACKED + 1.0), jnp.arange(LARGEST_PACKED + 1)
    kernel = one_kernel(lambda x, read, unread, count: (x + read[-1] + count[-1], jnp.all(x > 0), jnp.any(x > 1)))
    x = jnp.arange(3.0)
    assert marks(kernel, x, large, large, count) == 1
    total, every, some = compiled(kernel, x, large, large, count)(x, large, large, count)
    np.testing.assert_array_equal(total, x + 2 * LARGEST_PACKED)
    assert not every and some


def test_forward_mode_goes_through_a_kernel():
    x = jnp.linspace(0.1, 0.5, 4)
    slope = jax.jit(lambda x: jax.jvp(one_kernel(jnp.sin), (x,), (jnp.ones_like(x),))[1])(x)
    np.testing.assert_allclose(slope, np.cos(x), rtol=1e-6)


def test_not_a_number_stays_one():
    robot = soa.models.chain(4)
    q, v, tau = state(robot)
    assert jnp.isnan(jax.jit(soa.forward_dynamics)(robot, q.at[0].set(jnp.nan), v, tau)).any()


def test_states_divided_among_devices():
    """XLA may share out one state's arrays over devices, which it cannot do inside a kernel."""
    program = (
        "import jax\n"
        "jax.config.update('jax_num_cpu_devices', 2)\n"
        "jax.config.update('jax_enable_x64', True)\n"
        "import jax.numpy as jnp, numpy as np, jaxsoa as soa\n"
        "from jax.sharding import AxisType, NamedSharding, PartitionSpec\n"
        "robot = soa.models.puma560()\n"
        "q = v = jnp.linspace(0.1, 0.6, 6)\n"
        "forward = jax.jit(lambda q: soa.forward_dynamics(robot, q, v, v))\n"
        "mesh = jax.make_mesh((2,), ('joints',), axis_types=(AxisType.Auto,))\n"
        "shared = jax.device_put(q, NamedSharding(mesh, PartitionSpec('joints')))\n"
        "np.testing.assert_allclose(forward(shared), forward(q), rtol=1e-10)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("closed_over", [False, True])
def test_a_large_argument_that_only_jax_takes_for_read(closed_over):
    """XLA stops the process at a kernel's parameter that is never read."""

    @jax.custom_jvp
    def first(x, _):
        return 2 * x

    first.defjvp(lambda primals, tangents: (first(*primals), 2 * tangents[0]))
    compute = one_kernel(lambda x, y: jnp.sin(first(x, y)))
    x, y = jnp.arange(3.0), jnp.ones(5000)
    found = jax.jit(lambda x: compute(x, y))(x) if closed_over else jax.jit(compute)(x, y)
    np.testing.assert_allclose(found, np.sin(2 * np.arange(3.0)), rtol=1e-12)


def test_a_large_constant():
    """XLA stops the process at a kernel's argument that is a constant, too."""
    constant = np.random.default_rng(0).normal(size=5000)
    compute = one_kernel(lambda x, y: jax.lax.scan(lambda c, t: (c + t, c * t), x[0], y)[1] + x[1])
    found = jax.jit(lambda x: compute(x, jnp.asarray(constant)))(jnp.array([0.5, 2.0]))
    before = 0.5 + np.concatenate([[0], np.cumsum(constant)[:-1]])
    np.testing.assert_allclose(found, before * constant + 2, rtol=1e-10, atol=1e-10)
