"""Derivatives of the dynamics: second order in both modes, singular states, every leaf, the rules, program size."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.compare import assert_close, random_states
from jax.test_util import check_grads

import jaxsoa as soa
from jaxsoa.dynamics import articulated, motion


def last_frame(robot):
    return robot.frame_names[-1]


def hybrid(robot, q, v, x):
    """The first degree of freedom prescribed; x is read as acceleration there and as torque elsewhere."""
    return soa.hybrid_dynamics(robot, q, v, x, x, jnp.arange(robot.nv) == 0)


FUNCTIONS = {
    "forward dynamics": soa.forward_dynamics,
    "inverse dynamics": soa.inverse_dynamics,
    "hybrid dynamics": hybrid,
    "solve with M": lambda robot, q, v, x: soa.solve_mass_matrix(robot, q, x),
    "log det M": lambda robot, q, v, x: soa.mass_matrix_logdet(robot, q),
    "inverse of M": lambda robot, q, v, x: soa.mass_matrix_inverse(robot, q),
    "compliance": lambda robot, q, v, x: soa.operational_space_compliance(robot, q, last_frame(robot)),
}


def operational_inertia(robot, q, v, x):
    return soa.operational_space_inertia(robot, q, last_frame(robot))


def check_second_order(function, robot):
    """Against central differences of derivatives (about six digits), at a random state and at rest in the neutral pose:
    q = 0 and v = 0, quaternions at the identity, the arm straight."""

    @jax.jit  # the state is an argument, so that both states share what is compiled
    def at(q, dq, v, x):
        return function(robot, robot.integrate(q, dq), v, x)

    q, v, x, _ = (y[0] for y in random_states(robot, 51, 1))
    for state in ((q, v, x), (robot.neutral(), 0 * v, 0 * x)):
        moving = (jnp.zeros_like(v), *state[1:])
        for mode in ("fwd", "rev"):
            check_grads(lambda *y, q=state[0]: at(q, *y), moving, order=2, modes=(mode,), atol=1e-5, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", FUNCTIONS)
def test_second_order_on_an_arm(name):
    check_second_order(FUNCTIONS[name], soa.models.random_tree(5, 2, kinds=["revolute"], shape="chain", damping=True))


@pytest.mark.slow
def test_second_order_with_quaternions():
    robot = soa.models.random_tree(5, 2, kinds=["spherical", "revolute"], damping=True)
    check_second_order(soa.forward_dynamics, robot)


@pytest.mark.slow
def test_second_order_of_the_operational_inertia():
    """On a free body, where the compliance is never singular."""
    check_second_order(operational_inertia, soa.models.random_tree(5, 1, kinds=["free"]))


@pytest.mark.slow
def test_second_derivatives_agree():
    """jit, vmap, hessian and checkpoint of forward dynamics against the derivative of the analytical matrices."""
    robot = soa.models.chain(2)
    weights = jnp.array([1.0, -0.5])
    states = random_states(robot, 53, 2)[:3]

    @jax.checkpoint
    def loss(q, v, tau):
        return weights @ soa.forward_dynamics(robot, q, v, tau)

    def gradient(q, v, tau):
        return tuple(weights @ matrix for matrix in soa.linearize_forward_dynamics(robot, q, v, tau))

    ours = jax.jit(jax.vmap(jax.hessian(loss, argnums=(0, 1, 2))))(*states)
    expected = jax.jit(jax.vmap(jax.jacrev(gradient, argnums=(0, 1, 2))))(*states)
    for x, y in zip(jax.tree.leaves(ours), jax.tree.leaves(expected), strict=True):
        assert_close(x, y, 1e-9)


@pytest.mark.slow
def test_gradient_by_every_leaf():
    """Against central differences along one random direction per leaf (rotations may leave SO(3)).

    The loop runs over the leaves of the pytree, so no leaf can be missed; all but the joint limits and the inertia of a
    base that does not move, which no dynamics reads, must have an effect. Frames and the place of the base act on
    accelerations of a frame only.
    """
    robot = soa.models.random_tree(
        6, 2, kinds=["universal", "helical"], shape="chain", armature=True, damping=True, friction=True
    )
    turn = soa.models.random_tree(7, 1, kinds=["revolute"]).joint_rotation[0]  # any rotation
    frames = len(robot.frame_names)
    rng = np.random.default_rng(0)
    robot = robot.replace(
        base_rotation=turn, base_position=rng.normal(size=3), frame_position=rng.normal(size=(frames, 3))
    )
    q, v, tau, f_ext = (x[0] for x in random_states(robot, 52, 1))
    weights = jnp.linspace(0.5, 1.5, robot.nv)
    names = robot.frame_names

    @jax.jit
    def loss(arguments):
        robot, f_ext = arguments
        a = soa.forward_dynamics(robot, q, v, tau, f_ext)
        rotation, position = soa.frame_pose(robot, q, names[-1])
        seen = rotation.T @ (soa.jacobian(robot, q, names[-1]) @ a)[3:]  # in the axes of the frame
        return weights @ a + weights[:3] @ seen + weights[:3] @ position

    gradient = jax.jit(jax.grad(loss))((robot, f_ext))
    leaves, structure = jax.tree.flatten((robot, f_ext))
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path((robot, f_ext))]
    h = 1e-6  # relative errors of order 1e-9 beside rounding
    for number, (path, slope) in enumerate(zip(paths, jax.tree.leaves(gradient), strict=True)):
        direction = jnp.asarray(rng.normal(size=leaves[number].shape))

        def moved(step, number=number, direction=direction):
            changed = [x + step * direction if i == number else x for i, x in enumerate(leaves)]
            return loss(jax.tree.unflatten(structure, changed))

        expected = (moved(h) - moved(-h)) / (2 * h)
        actual = jnp.sum(slope * direction)
        assert abs(actual - expected) <= 1e-6 * max(1.0, abs(expected)), path
        idle = any(name in path for name in ("limits", "base_mass", "base_com", "base_inertia"))
        assert (actual == 0) == idle, f"{path} should {'not ' * idle}matter"


@pytest.fixture
def riccati_without_derivative(monkeypatch):
    """The step of the Riccati sweep made to refuse differentiation, everywhere it is used."""
    step = jax.custom_jvp(articulated.riccati_step)

    @step.defjvp
    def refuse(primals, tangents):
        raise AssertionError("differentiated through the Riccati sweep")

    for module in (articulated, motion):
        monkeypatch.setattr(module, "riccati_step", lambda *x: step(*x, *[None] * (6 - len(x))))


MATRICES = {
    "linearized inverse model": lambda robot, q, v, x: soa.linearize_inverse_dynamics(robot, q, v, x),
    "linearized forward model": lambda robot, q, v, x: soa.linearize_forward_dynamics(robot, q, v, x),
    "operational inertia": operational_inertia,
}


@pytest.mark.parametrize("name", [*FUNCTIONS, *(pytest.param(name, marks=pytest.mark.slow) for name in MATRICES)])
@pytest.mark.slow
def test_no_derivative_enters_the_riccati_sweep(name, riccati_without_derivative):
    """Traced only: forward, reverse and forward over reverse, by state and model."""
    function = {**FUNCTIONS, **MATRICES}[name]
    robot = soa.models.chain(2)
    point = (robot, *jnp.ones((3, 2)))

    def total(*x):
        return sum(jnp.sum(y) for y in jax.tree.leaves(function(*x)))

    def second(*x):
        return jax.jvp(jax.grad(total, argnums=(0, 1, 2, 3)), x, x)[1]

    gradient = jax.eval_shape(second, *point)
    assert jax.tree.structure(gradient) == jax.tree.structure(point)
    assert jax.eval_shape(lambda *x: jax.jvp(total, x, x)[1], *point).shape == ()


def test_the_refusal_works(riccati_without_derivative):
    """What the test above relies on: differentiating the bare sweep is noticed."""
    robot = soa.models.chain(2)
    with pytest.raises(AssertionError, match="Riccati"):
        jax.eval_shape(jax.jacfwd(lambda q: soa.inertia_factor(robot, q)), jnp.zeros(2))


def lines(function, n):
    robot = soa.models.chain(n)
    x = jnp.zeros(n)
    return len(jax.jit(function).lower(robot, x).as_text().splitlines())


def test_the_program_does_not_grow_with_the_robot():
    """Lines of the program to compile, for 72 and for 512 links."""

    def algorithm_5(robot, x):
        return soa.forward_dynamics_perturbation(robot, x, x, x, x, x, x)

    def algorithm_6(robot, x):
        return soa.linearize_forward_dynamics(robot, x, x, x)

    for function in (algorithm_5, algorithm_6):
        assert lines(function, 72) == lines(function, 512)
