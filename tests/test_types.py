"""One rule for types: the model's floating type is that of every computation and every result.

Whatever is given beside the model, states and torques, time steps, what controllers answer, is converted to it.
Everything but the rollouts is traced only.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.every_function import CORE, TABLE, entries_on
from helpers.function_states import MODELS, states
from helpers.numpy_programs import evaluated
from helpers.transformed import by_numpy

import jaxsoa as soa
from jaxsoa import optimize, simulate

KINDS = {
    "float64": lambda x: np.asarray(x, np.float64),
    "integers": lambda x: np.rint(np.asarray(x)).astype(np.int32),
    "float16": lambda x: jnp.asarray(x, jnp.float16),
    "bfloat16": lambda x: jnp.asarray(x, jnp.bfloat16),
    "weak": lambda x: jnp.asarray(x) * 1.0,
    "lists": lambda x: np.asarray(x).tolist(),
    "lists of integers": lambda x: np.rint(np.asarray(x)).astype(int).tolist(),
}
"""What arguments may be, beside the type of the model."""
#: What takes long to trace is tried with one kind only.
LONG = ("optimize.ilqr", "optimize.shooting", "simulate.solve_adaptively")
COMPUTED_BEFORE = {
    "soa.solve_mass_matrix, columns", "soa.inverse_kinematics", "optimize.track", "optimize.follow",
    "identify.trajectory_residual", "closed_chain.close_loops_report", "closed_chain.holding",
    "closed_chain.close_grasp", "closed_chain.project_grasp", "simulate.grasp_rollout",
}  # fmt: skip
"""Entries of the table that compute with the state before the function sees it, and lists cannot be computed with."""


def in_kind(state: dict, kind: str) -> dict:
    """The state with all its floating-point arrays of another type; quaternions stay rotations, rounded or not."""
    return jax.tree.map(lambda x: KINDS[kind](x) if jnp.issubdtype(x.dtype, jnp.floating) else x, state)


def one_state(name: str):
    """A model in single precision and a state of it."""
    model = MODELS[name](jnp.float32)
    return model, jax.tree.map(lambda x: x[0], states(model, 1))


@pytest.fixture(scope="module")
def at_hand():
    """Models and states, made once."""
    made = {}

    def find(name):
        if name not in made:
            made[name] = one_state(name)
        return made[name]

    return find


def check(entry, model, state) -> None:
    results = jax.eval_shape(lambda: entry.call(model, state))
    for path, leaf in jax.tree_util.tree_leaves_with_path(results):
        if jnp.issubdtype(leaf.dtype, jnp.floating):
            assert leaf.dtype == jnp.float32, f"{jax.tree_util.keystr(path)}: {leaf.dtype}"
            assert not leaf.weak_type, f"{jax.tree_util.keystr(path)} is weakly typed"


def model_for(name: str) -> str:
    """The model that is traced fastest."""
    return "pendulum" if TABLE[name].on == "tree" else TABLE[name].on


SLOW = pytest.mark.slow


def kinds_in_turn():
    """Of every-day functions three kinds in turn in the default run; the other kinds and functions in the slow one."""
    for number, name in enumerate(n for n in TABLE if n not in LONG):
        quick = [kind for k, kind in enumerate(KINDS) if (k + number) % len(KINDS) % 3 == 0 and name in CORE]
        if quick:
            yield pytest.param(name, quick, id=name)
        yield pytest.param(name, [kind for kind in KINDS if kind not in quick], marks=SLOW, id=f"{name}, others")


@pytest.mark.parametrize(("name", "kinds"), list(kinds_in_turn()))
def test_arguments_of_any_type_give_results_of_the_models_type(name, kinds, at_hand):
    model, state = at_hand(model_for(name))
    for kind in kinds:
        if "lists" not in kind or name not in COMPUTED_BEFORE:
            check(TABLE[name], model, in_kind(state, kind))


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in entries_on("fixed") if n not in LONG])
def test_integers_and_half_precision_mean_the_numbers_they_are(name, at_hand):
    """What is computed with them is what single precision of the same numbers gives, and not an integer's division."""
    model, state = at_hand("pendulum")
    program = jax.make_jaxpr(TABLE[name].call)(model, state)
    for kind in ("integers", "bfloat16"):
        given = in_kind(state, kind)
        single = jax.tree.map(lambda x, like: jnp.asarray(x, like.dtype), given, state)
        found = jax.tree.leaves(by_numpy(TABLE[name].call, model, given))
        for a, b in zip(found, evaluated(program, jax.tree.leaves((model, single))), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5 * np.abs(b[np.isfinite(b)]).max(initial=1))


def test_integer_controls_do_not_make_costs_integers():
    """Where no robot says what the type is."""
    problem = optimize.step_problem(lambda x, u: x + u, controls=1, horizon=2, running_cost=lambda x, u: 0.25 * u @ u)
    controls = [[1], [1]]
    states = optimize.simulate_controls(problem, jnp.zeros(1, int), controls)
    np.testing.assert_allclose(optimize.total_cost(problem, states, controls), 0.5 * problem.dt)


@pytest.mark.slow
@pytest.mark.parametrize("name", LONG)
def test_solvers_keep_the_models_type(name, at_hand):
    model, state = at_hand("pendulum")
    check(TABLE[name], model, in_kind(state, "float64"))


def test_lists_and_python_numbers():
    robot = soa.models.pendulum(2).astype(jnp.float32)
    a = jax.eval_shape(lambda: soa.forward_dynamics(robot, [0, 1], [0.5, 1], (1, 2)))
    q, v = jax.eval_shape(lambda: soa.step(robot, [0, 1], [0.5, 1], [True, False], 1))
    assert a.dtype == q.dtype == v.dtype == jnp.float32


def test_what_is_not_a_real_number_is_refused():
    robot = soa.models.pendulum(2)
    with pytest.raises(TypeError, match="v must hold real numbers"):
        soa.kinetic_energy(robot, [0.0, 0.0], [1j, 0.0])
    with pytest.raises(ValueError, match="dt must be one number"):
        soa.step(robot, [0.0, 0.0], [0.0, 0.0], [0.0, 0.0], np.ones(3))


class Integral:
    """A controller with memory, more precise than the robot."""

    def initial(self, q, v):
        return np.zeros(2), 0

    def __call__(self, time, q, v, memory, dt):
        total, count = memory
        total = total + np.float64(0.5) * dt * np.ones(2) * v
        return -2 * total, (total, count + 1)


@pytest.mark.parametrize("dt", [0.01, np.float64(0.01), jnp.float64(0.01)], ids=["python", "numpy", "jax"])
@pytest.mark.parametrize("control", ["torques", "function", "memory"])
def test_rollouts_keep_the_models_type(control, dt):
    robot = soa.models.pendulum(2).astype(jnp.float32)
    torques = np.ones((3, 2))
    given = {"torques": torques, "function": lambda time, q, v: torques[0] * time, "memory": Integral()}[control]
    actuators = (simulate.Lag(np.float64(0.1)), simulate.Saturation(np.ones(2)))

    def run():
        return soa.rollout(robot, np.ones(2), np.ones(2), given, dt, steps=3, actuators=actuators, time=np.float64(1))

    path = jax.eval_shape(run)
    assert path.q.dtype == path.v.dtype == jnp.float32


def test_a_model_that_is_more_precise_than_jax_allows_says_so():
    robot = soa.models.pendulum(2)
    assert robot.dtype == jnp.float64
    single = robot.astype(jnp.float32)
    with jax.enable_x64(False):
        message = r"float64, which is not available while jax_enable_x64 is off.*astype"
        with pytest.raises(TypeError, match=message):
            soa.mass_matrix(robot, np.zeros(2))
        with pytest.raises(TypeError, match=message):
            soa.rollout(robot, [0, 0], [0, 0], None, 0.1, steps=2)
        found = jax.eval_shape(lambda: soa.mass_matrix(single, np.zeros(2)))
        assert found.dtype == jnp.float32


def test_a_solver_that_starts_from_nan_stops_at_once_and_says_so():
    robot = soa.models.pendulum(1)
    problem = optimize.robot_problem(
        robot, horizon=3, dt=0.02, running_cost=lambda x, u: jnp.sum(u**2), final_cost=lambda x: jnp.sum(x.q**2)
    )

    @jax.jit
    def both(starts):
        return jax.vmap(lambda x: optimize.ilqr(problem, x, max_iterations=5))(starts)

    q = jnp.asarray([[1.0], [jnp.nan]])
    found = both(soa.State(q, jnp.zeros((2, 1))))
    np.testing.assert_array_equal(found.failed, [False, True])
    np.testing.assert_array_equal(found.converged, [True, False])
    assert found.iterations[0] > 0
    assert found.iterations[1] == 0
