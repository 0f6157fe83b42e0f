"""Logarithmic-depth dynamics against the serial sweeps, and the parallel sweeps against their plain loops."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.compare import relative_error
from helpers.example_robots import EXAMPLE_ROBOTS

import jaxsoa as soa
from jaxsoa.parallel_sweeps import PathPlan, prefix_from_base, suffix_from_tips

TREES = {
    "chain": [-1, 0, 1, 2, 3],
    "star": [-1, 0, 0, 0, 0],
    "two roots and a comb": [-1, -1, 0, 2, 2, 3, 3, 5, 5, 1],
    "single": [-1],
}


@pytest.mark.parametrize("parents", TREES.values(), ids=TREES)
def test_prefix_from_base_is_the_loop_it_specifies(parents):
    rng = np.random.default_rng(0)
    x, base = rng.normal(size=(len(parents), 2, 2)), rng.normal(size=(2, 2))
    y = jax.jit(partial(prefix_from_base, PathPlan(parents), jnp.matmul))(jnp.asarray(x), jnp.asarray(base))
    expected = []
    for k, parent in enumerate(parents):
        expected.append((base if parent < 0 else expected[parent]) @ x[k])
    np.testing.assert_allclose(y, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("parents", TREES.values(), ids=TREES)
def test_suffix_from_tips_sums_subtrees(parents):
    x = np.random.default_rng(1).normal(size=len(parents))
    sweep = partial(
        suffix_from_tips,
        PathPlan(parents),
        lambda outer, inner: (outer[0] * inner[0], inner[1] + inner[0] * outer[1]),
        lambda x, received, is_tip: (jnp.where(is_tip, 0.0, 1.0), x + received),
        lambda x, result: result[1],
    )
    (_, sums), _ = jax.jit(sweep)(jnp.zeros(()), jnp.asarray(x))
    expected = x.copy()
    for k in reversed(range(len(parents))):
        if parents[k] >= 0:
            expected[parents[k]] += expected[k]
    np.testing.assert_allclose(sums, expected, rtol=1e-12, atol=1e-12)


def agreement(robot, seed=0):
    rng = np.random.default_rng(seed)
    q = robot.random(jax.random.key(seed))
    v, tau = (jnp.asarray(rng.normal(size=robot.nv)) for _ in range(2))
    f_ext = jnp.asarray(rng.normal(size=(robot.n_links, 6)))

    @jax.jit
    def both(robot, q, v, tau, f_ext):  # the robot as an argument: nothing is known of its masses at trace time
        serial = soa.forward_dynamics(robot, q, v, tau, f_ext)
        parallel = soa.forward_dynamics(robot, q, v, tau, f_ext, method="parallel")
        torque = soa.inverse_dynamics(robot, q, v, serial, f_ext)
        return serial, parallel, torque, soa.inverse_dynamics(robot, q, v, serial, f_ext, method="parallel")

    serial, parallel, torque, parallel_torque = both(robot, q, v, tau, f_ext)
    return (
        float(jnp.max(jnp.abs(serial - parallel)) / jnp.max(jnp.abs(serial))),
        # Torques of long chains nearly cancel in the sum: compare with the size of what is summed.
        float(jnp.max(jnp.abs(torque - parallel_torque)) / (1 + jnp.max(jnp.abs(serial)) * jnp.sum(robot.mass))),
    )


@pytest.mark.parametrize(
    "make",
    [
        lambda: soa.models.chain(12),
        pytest.param(lambda: soa.models.random_tree(5, 30, kinds=["revolute", "prismatic"]), marks=pytest.mark.slow),
        pytest.param(lambda: soa.models.random_tree(0, 9), marks=pytest.mark.slow),
        pytest.param(lambda: soa.models.random_tree(1, 200, kinds=["revolute"]), marks=pytest.mark.slow),
        pytest.param(lambda: soa.models.chain(2048), marks=pytest.mark.slow),
        pytest.param(lambda: soa.models.random_tree(2, 2048, kinds=["revolute"]), marks=pytest.mark.slow),
    ],
    ids=["chain 12", "tree 30", "every joint kind", "tree 200", "chain 2048", "tree 2048"],
)
def test_parallel_equals_serial(make):
    forward, inverse = agreement(make())
    assert forward < 1e-9
    assert inverse < 1e-9


def test_depth_grows_with_the_logarithm_of_the_chain():
    depths = [PathPlan(range(-1, n - 1)).sequential_steps for n in (8, 64, 512, 4096)]
    assert depths == [6, 12, 18, 24]


def test_massless_links_are_handled():
    """A gimbal: links without mass or inertia between links with both."""
    robot = soa.models.chain(7)
    hollow = jnp.asarray([1, 2, 4])
    zeros = {"mass": 0.0, "com": 0.0, "inertia": 0.0, "armature": 0.0}
    robot = robot.replace(**{name: getattr(robot, name).at[hollow].set(value) for name, value in zeros.items()})
    forward, inverse = agreement(robot)
    assert forward < 1e-9
    assert inverse < 1e-9


def test_links_with_hardly_any_inertia_about_their_axes():
    """Point masses, one of them all but on its axis, and a link of a billionth of the others' inertia."""
    robot = soa.models.chain(6)
    robot = robot.replace(
        inertia=robot.inertia.at[1:4].set(0).at[4].multiply(1e-9),
        com=robot.com.at[2].multiply(1e-5).at[4].multiply(1e-5),
        mass=robot.mass.at[4].multiply(1e-6),
        armature=jnp.zeros(robot.nv),
    )
    rng = np.random.default_rng(3)
    q, v, tau, *tangents = (jnp.asarray(rng.normal(size=robot.nv)) for _ in range(6))

    @jax.jit
    def both(robot, state, tangents):
        def of(method):
            return jax.jvp(lambda *x: soa.forward_dynamics(robot, *x, method=method), state, tangents)

        return of("articulated"), of("parallel")

    for serial, parallel in zip(*both(robot, (q, v, tau), tuple(tangents)), strict=True):
        assert relative_error(parallel, serial) < 1e-10


@pytest.mark.slow
def test_single_precision_and_gradients_by_mass_where_a_link_has_no_inertia_of_its_own():
    """A point mass on its own axis and links that turn about it with 1e-6, 1e-8, 1e-10 kg m^2, the model traced."""
    robot = soa.models.chain(6).replace(armature=jnp.zeros(6))
    own = jnp.array([1e-6, 1e-8, 1e-10, 0.0])
    rng = np.random.default_rng(3)
    state = [jnp.asarray(rng.normal(size=6)) for _ in range(3)]

    def hollow(own, mass):
        inertia, com = robot.inertia.at[2].set(own * jnp.eye(3)), robot.com.at[2].set(0)
        return robot.replace(inertia=inertia, com=com, mass=mass)

    @jax.jit
    def both(own, mass, state):
        def of(method, own):
            def double(own, mass):
                return soa.forward_dynamics(hollow(own, mass), *state, method=method)

            def single(own):
                model = hollow(own, mass).astype(jnp.float32)
                return soa.forward_dynamics(model, *(x.astype(jnp.float32) for x in state), method=method)

            found = double(own, mass), jax.grad(lambda mass: jnp.sum(double(own, mass)))(mass)
            return *found, single(own)

        return jax.lax.map(lambda own: [of(method, own) for method in ("articulated", "parallel")], own)

    serial, parallel = both(own, robot.mass, state)
    for k in range(len(own)):
        assert relative_error(parallel[0][k], serial[0][k]) < 1e-12
        assert relative_error(parallel[1][k], serial[1][k]) < 1e-12
        # Some ten roundings of 6e-8, as without such links: 2e-6 for each of the four, the serial sweeps 3e-7.
        assert relative_error(parallel[2][k], serial[0][k]) < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("name", ["icub.urdf", "human.urdf"])
@pytest.mark.filterwarnings("ignore::jaxsoa.ModelWarning")
def test_robots_with_hollow_links(name):
    path = EXAMPLE_ROBOTS.get(name)
    if path is None:
        pytest.skip("example-robot-data is not installed")
    robot = soa.load_urdf(path, floating_base=name == "icub.urdf")
    rng = np.random.default_rng(0)
    q, v, tau = robot.random(jax.random.key(0)), *(jnp.asarray(rng.normal(size=robot.nv)) for _ in range(2))
    dynamics = [jax.jit(partial(soa.forward_dynamics, method=method)) for method in ("articulated", "parallel")]
    serial, parallel = (f(robot, q, v, tau) for f in dynamics)
    assert relative_error(parallel, serial) < 1e-9  # icub: 2e-12, of accelerations up to 1e7 rad/s2
    low = jax.tree.map(lambda x: x.astype(jnp.float32), (robot, q, v, tau))
    by_serial, by_parallel = (relative_error(f(*low), serial) for f in dynamics)
    # icub: 8e-3 and 2e-3, human: 5e-7 and 1.3e-6.
    assert by_parallel < 5 * by_serial


def test_the_compiled_program_has_no_loop_over_links():
    """What depth means in the end: sequential steps of the compiled program, counted."""
    steps = {}
    for n in (8, 64, 512):
        robot = soa.models.chain(n)
        zero = jnp.zeros(n)
        dynamics = jax.jit(lambda q, v, tau, robot=robot: soa.forward_dynamics(robot, q, v, tau, method="parallel"))
        jaxpr = str(jax.make_jaxpr(dynamics)(zero, zero, zero))
        assert "scan[" not in jaxpr
        assert "while[" not in jaxpr
        steps[n] = jaxpr.count("\n")
    # Equations grow with log2 n (3, 6, 9), not with n.
    assert steps[512] - steps[64] <= 1.2 * (steps[64] - steps[8])


def test_prescribed_joints_in_logarithmic_depth():
    """Any mix, its mask traced, on a floating tree with springs: as the serial sweeps, which have a dense oracle."""
    robot = soa.models.random_tree(4, 6, ("revolute", "spherical", "prismatic"), floating_base=True, armature=True)
    robot = robot.replace(stiffness=jnp.linspace(0.0, 2.0, robot.nv))
    rng = np.random.default_rng(0)
    q = robot.integrate(robot.neutral(), 0.4 * rng.normal(size=robot.nv))
    v, a, tau = (jnp.asarray(rng.normal(size=robot.nv)) for _ in range(3))
    f_ext = jnp.asarray(rng.normal(size=(robot.n_links, 6)))

    @jax.jit
    def both(mask):
        return [soa.hybrid_dynamics(robot, q, v, a, tau, mask, f_ext, method=m) for m in ("articulated", "parallel")]

    for part in (0.0, 0.4, 1.0):
        mask = jnp.asarray(rng.random(robot.nv) < part)
        for serial, parallel in zip(*both(mask), strict=True):
            assert relative_error(parallel, serial) < 1e-10
    with pytest.raises(ValueError, match="Unknown method 'fd1' of hybrid_dynamics"):
        soa.hybrid_dynamics(robot, q, v, a, tau, mask, method="fd1")
