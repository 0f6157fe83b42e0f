"""jit, vmap, grad, jacfwd, jacrev, hessian: right everywhere, and finite where formulas could divide by zero."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.compare import assert_close, random_state, random_states

import jaxsoa as soa

random_tree = soa.models.random_tree


def floating_arm() -> soa.Multibody:
    """A free base with an arm: nq = 9, nv = 8."""
    builder = soa.Builder("floating arm")
    inertia = np.diag([0.1, 0.2, 0.25])
    builder.link("body", joint="free", mass=3.0, com=(0.05, 0, 0.1), inertia=inertia)
    builder.link("upper", parent="body", joint="revolute", axis=(0, 1, 0), position=(0.3, 0, 0), mass=1.0,
                 com=(0.2, 0, 0), inertia=0.1 * inertia, armature=0.02, damping=0.3, friction=0.1)  # fmt: skip
    builder.link("slide", parent="upper", joint="prismatic", axis=(1, 0, 0), position=(0.4, 0, 0), mass=0.5,
                 com=(0.1, 0.02, 0), inertia=0.05 * inertia, armature=0.1)  # fmt: skip
    # At this velocity the smooth friction is well resolved by the finite differences below.
    return builder.build().replace(friction_velocity=0.5)


# --- derivatives by the state ------------------------------------------------------------------------------------


def by_state(robot, q, v, tau):
    """Forward dynamics as a function of (tangent of q, v, tau), and its derivatives of first and second order."""
    n = robot.nv

    def f(x):
        return soa.forward_dynamics(robot, robot.integrate(q, x[:n]), x[n : 2 * n], x[2 * n :])

    x = jnp.concatenate([jnp.zeros(n), v, tau])
    return f, x


@jax.jit
def derivatives(robot, q, v, tau):
    f, x = by_state(robot, q, v, tau)
    return f(x), jax.jacfwd(f)(x), jax.jacrev(f)(x)


@jax.jit
def along(robot, q, v, tau, step):
    f, x = by_state(robot, q, v, tau)
    return f(x + step), jax.jacfwd(f)(x + step)


@jax.jit
def second(robot, q, v, tau):
    f, x = by_state(robot, q, v, tau)
    weights = jnp.arange(1.0, robot.nv + 1)
    return jax.hessian(lambda x: weights @ f(x))(x)


def central(f, h):
    """Fourth-order central difference of f(t) at zero."""
    return (8 * (np.asarray(f(h)) - f(-h)) - (np.asarray(f(2 * h)) - f(-2 * h))) / (12 * h)


CHAIN = soa.models.chain(3)
FLOATING = floating_arm()
ANYWHERE = jnp.array([0.1, -0.5, 0.5, 0.7, 1.2, -0.7, 0.4, 0.9, -1.3])  # the quaternion, of length 1, comes first
POINTS = {
    "straight chain at rest": (CHAIN, jnp.zeros(3), jnp.zeros(3), jnp.zeros(3)),
    "chain in motion": (CHAIN, jnp.array([0.3, -1.0, 2.0]), jnp.array([1.0, -2, 0.5]), jnp.array([0.1, 0.2, 0.3])),
    "hanging pendulum": (soa.models.pendulum(3), jnp.zeros(3), jnp.zeros(3), jnp.zeros(3)),
    "identity quaternion, free fall at rest": (FLOATING, FLOATING.neutral(), jnp.zeros(8), jnp.zeros(8)),
    "identity quaternion, free fall in motion": (FLOATING, FLOATING.neutral(), jnp.arange(8.0), jnp.zeros(8)),
    "anywhere": (FLOATING, ANYWHERE, 0.5 * jnp.arange(8.0) - 2, jnp.ones(8)),
}


# In the default run the points of the other robots and the states in motion; compiling takes most of the time.
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=pytest.mark.slow) if n.startswith(("straight chain", "identity quaternion")) else n
        for n in POINTS
    ],
)
def test_first_derivatives_of_forward_dynamics_are_finite_and_right(name):
    robot, q, v, tau = POINTS[name]
    value, forward, reverse = derivatives(robot, q, v, tau)
    assert np.isfinite(value).all()
    assert_close(reverse, forward, 1e-11, "jacrev = jacfwd")
    rng = np.random.default_rng(0)
    for _ in range(3):
        direction = rng.normal(size=3 * robot.nv)
        expected = central(lambda t, d=direction: along(robot, q, v, tau, t * d)[0], 1e-4)
        assert_close(forward @ direction, expected, 1e-8, "jacfwd = finite differences")


@pytest.mark.parametrize(
    "name", [n if n == "chain in motion" else pytest.param(n, marks=pytest.mark.slow) for n in POINTS]
)
@pytest.mark.slow
def test_second_derivatives_of_forward_dynamics_are_finite_and_right(name):
    robot, q, v, tau = POINTS[name]
    hessian = second(robot, q, v, tau)
    assert np.isfinite(hessian).all()
    assert_close(hessian, hessian.T, 1e-10, "symmetry")
    weights = np.arange(1.0, robot.nv + 1)
    rng = np.random.default_rng(0)
    for _ in range(2):
        # integrate(q, x) is not additive in x, so differences are taken of the same f at shifted x.
        direction = rng.normal(size=3 * robot.nv)
        expected = central(lambda t, d=direction: weights @ along(robot, q, v, tau, t * d)[1], 1e-3)
        assert_close(hessian @ direction, expected, 1e-7, "hessian = finite differences of the gradient")


@pytest.mark.slow
def test_derivatives_of_the_other_functions_are_finite_at_rest():
    """Kinematics, energies, momentum, operational space at q = 0, v = 0 and the identity quaternion."""
    robot = FLOATING

    @jax.jit
    def gradients(dq, v):
        def total(dq, v):
            q = robot.integrate(robot.neutral(), dq)
            R, p = soa.frame_pose(robot, q, "slide")
            parts = (
                R, p, soa.jacobian(robot, q, "slide"), soa.jacobian_bias(robot, q, v, "slide"),
                soa.kinetic_energy(robot, q, v), soa.potential_energy(robot, q), soa.momentum(robot, q, v),
                soa.mass_matrix_logdet(robot, q), robot.difference(robot.neutral(), q),
            )  # fmt: skip
            return sum(jnp.sum(jnp.sin(part)) for part in parts)

        return jax.grad(total, argnums=(0, 1))(dq, v)

    for gradient in gradients(jnp.zeros(8), jnp.zeros(8)):
        assert np.isfinite(gradient).all() and np.abs(gradient).max() > 1e-3


# --- derivatives by the model ------------------------------------------------------------------------------------

MODELS = {
    "floating arm": FLOATING,
    "universal, helical, planar": random_tree(3, 3, kinds=("universal", "helical", "planar"), shape="chain",
                                              armature=True, damping=True, friction=True),
    "every kind": random_tree(1, 9, armature=True, damping=True, friction=True),
}  # fmt: skip
WITHOUT_EFFECT = {
    *("lower", "upper", "velocity", "effort", "frame_rotation", "frame_position", "base_position"),
    *("base_mass", "base_com", "base_inertia"),  # of what is fixed to the world
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_gradients_by_every_leaf_of_the_model_equal_finite_differences(name):
    robot = MODELS[name]
    q, v, a, f_ext = random_state(robot, 5)
    robot = robot.replace(friction_velocity=0.5)
    weights = jnp.asarray(np.random.default_rng(1).normal(size=(2, robot.nv)))

    def forward(robot):
        return weights[0] @ soa.forward_dynamics(robot, q, v, a, f_ext)

    def inverse(robot):
        return weights[1] @ soa.inverse_dynamics(robot, q, v, a, f_ext)

    values = jax.jit(lambda robot: jnp.stack([forward(robot), inverse(robot)]))
    gradients = jax.jit(lambda robot: (jax.grad(forward)(robot), jax.grad(inverse)(robot)))(robot)
    leaves, structure = jax.tree.flatten(robot)
    paths = [str(path[-1]).strip(".") for path, _ in jax.tree_util.tree_flatten_with_path(robot)[0]]
    checked = set()
    rng = np.random.default_rng(2)
    for number, (path, leaf) in enumerate(zip(paths, leaves, strict=True)):
        pair = [np.asarray(jax.tree.leaves(g)[number]) for g in gradients]
        assert all(np.isfinite(g).all() for g in pair), path
        if path in WITHOUT_EFFECT:
            assert not any(g.any() for g in pair), path
            continue
        checked.add(path)
        for _ in range(4):
            direction = rng.normal(size=leaf.shape)

            def moved(t, number=number, direction=direction):
                changed = list(leaves)
                changed[number] = leaves[number] + t * direction
                return np.asarray(values(jax.tree.unflatten(structure, changed)))

            expected = central(moved, 1e-4)
            actual = [np.sum(g * direction) for g in pair]
            np.testing.assert_allclose(actual, expected, rtol=2e-7, atol=1e-7, err_msg=path)
        if path not in ("axis2", "pitch", "friction", "damping", "armature"):  # not every robot uses these
            assert all(np.abs(g).max() > 1e-9 for g in pair), f"{path} has no effect"
    assert {"mass", "com", "inertia", "gravity", "axis", "joint_position", "joint_rotation", "armature"} <= checked


# --- vmap and jit ------------------------------------------------------------------------------------------------


def both(robot, q, v, a, f_ext):
    return soa.forward_dynamics(robot, q, v, a, f_ext), soa.inverse_dynamics(robot, q, v, a, f_ext)


def stretched(robot, factor):
    """The same topology with other parameters."""
    return robot.replace(
        mass=robot.mass * factor, joint_position=robot.joint_position * (2 - factor), inertia=robot.inertia * factor
    )


@pytest.mark.parametrize("name", ["chain", pytest.param("floating arm", marks=pytest.mark.slow)])
def test_vmap_over_states_over_models_and_over_both(name):
    robot = {"chain": CHAIN, "floating arm": FLOATING}[name]
    factors = jnp.array([0.7, 1.0, 1.6])
    models = jax.vmap(lambda factor: stretched(robot, factor))(factors)
    q, v, a, f_ext = random_states(robot, 3, 4)
    single = jax.jit(both)
    expected = [[single(stretched(robot, f), q[k], v[k], a[k], f_ext[k]) for k in range(4)] for f in factors]
    over_states = jax.vmap(both, in_axes=(None, 0, 0, 0, 0))
    grid = jax.jit(jax.vmap(over_states, in_axes=(0, None, None, None, None)))(models, q, v, a, f_ext)
    over_models = jax.jit(jax.vmap(both, in_axes=(0, None, None, None, None)))(models, q[0], v[0], a[0], f_ext[0])
    for which in range(2):
        for m in range(3):
            assert_close(over_models[which][m], expected[m][0][which], 1e-11, "vmap over models")
            for k in range(4):
                assert_close(grid[which][m, k], expected[m][k][which], 1e-11, "vmap over models and states")


@pytest.mark.slow
def test_gradients_of_batches_equal_those_of_single_states():
    robot = FLOATING
    q, v, a, _ = random_states(robot, 3, 3)

    def loss(robot, v, a, q):
        return jnp.sum(jnp.sin(soa.forward_dynamics(robot, q, v, a)))

    gradient = jax.grad(loss, argnums=(0, 1, 2))
    batched = jax.jit(jax.vmap(gradient, in_axes=(None, 0, 0, 0)))(robot, v, a, q)
    single = jax.jit(gradient)
    for k in range(3):
        one = single(robot, v[k], a[k], q[k])
        jax.tree.map(lambda x, y, k=k: assert_close(x[k], y, 1e-10, "vmap of grad"), batched, one)
    # The gradient of a mean is the mean of the gradients: grad of vmap beside vmap of grad.
    mean = jax.jit(jax.grad(lambda robot: jnp.mean(jax.vmap(loss, in_axes=(None, 0, 0, 0))(robot, v, a, q))))(robot)
    jax.tree.map(lambda x, y: assert_close(jnp.mean(x, axis=0), y, 1e-10, "grad of vmap"), batched[0], mean)


def test_jit_changes_nothing():
    q, v, a, _ = random_state(CHAIN, 2)
    with jax.disable_jit():
        plain = soa.forward_dynamics(CHAIN, q, v, a)
    assert_close(jax.jit(soa.forward_dynamics)(CHAIN, q, v, a), plain, 1e-12)


@pytest.mark.slow
def test_float32_models_give_float32_gradients():
    q, v, a, _ = random_state(CHAIN, 2)

    def gradient(dtype):
        robot = CHAIN.astype(dtype)
        loss = lambda robot, q: jnp.sum(soa.forward_dynamics(robot, q, v.astype(dtype), a.astype(dtype)))  # noqa: E731
        return jax.jit(jax.grad(loss, argnums=(0, 1)))(robot, q.astype(dtype))

    single, double = gradient(jnp.float32), gradient(jnp.float64)
    assert {leaf.dtype for leaf in jax.tree.leaves(single)} == {jnp.dtype("float32")}
    jax.tree.map(lambda x, y: assert_close(x, y, 1e-4, "float32 gradient"), single, double)
