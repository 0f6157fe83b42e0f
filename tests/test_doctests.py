"""The examples in docstrings run, all on one small robot, and print what they say; public functions have one."""

from __future__ import annotations

import doctest
import inspect
from types import FunctionType

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.every_function import public_names

import jaxsoa as soa
import jaxsoa.closed_chain

WITHOUT_EXAMPLE = {
    "soa": """
        load_mjcf_passive""",
    "closed_chain": """
        ball check_grasp close_grasp close_loops close_loops_report coupled cut_chain_dynamics cylinder distance
        embed embedded_forward_dynamics embedded_inverse_dynamics embedded_mass_matrix embedded_velocity
        equality_constraints friction_report grasp_compliance grasp_forward_dynamics grasp_inverse_dynamics
        grasp_rotations grasp_state hinge holding linearize_embedded_dynamics linearize_grasp_forward_dynamics
        linearize_loop_forward_dynamics loop_effective_inertia loop_inverse_dynamics mimic_couplings planar
        project project_grasp project_position project_velocity screw slider weld""",
    "closed_chain.mechanisms": """
        five_bar linkage stewart two_arm_grasp""",
    "contact": """
        gaps points_of solve step""",
    "simulate": """
        Accelerometer Gyro commands conserving_momentum grasp_rollout grasp_step linearize_actuated_step mount
        observation run_study sensor_set shard_batch sharded_value_and_grad trajectory_sensitivity vector_field
        with_momentum""",
    "optimize": """
        clear_of_sphere constrained follow friction_cone optimal_trajectory parametrized_problem
        parametrized_start shifted shooting simulate_controls total_cost track violated within_joint_limits""",
    "identify": """
        condition_number consistency design fit from_log_cholesky log_cholesky make_physical prepare
        random_trajectory residual_rms segments torque_residual trajectory_residual""",
    "estimation": """
        random_model""",
    "decomposition": """
        blocks_of commuted decompose decompose_outboard dense_mass dense_mass_inverse dense_omega inboard
        mass_decomposition mass_inverse_decomposition omega_decomposition outboard upsilon_plus""",
    "models": """
        rod""",
    "viz": """
        film urdf_shapes view""",
}
"""Public functions that have no example yet, by package: every one that is not listed must have one."""


def functions() -> dict[str, FunctionType]:
    """Public functions by name; jitted ones and the like are unwrapped."""
    names = {name: inspect.unwrap(value) for name, value in public_names().items() if not inspect.isclass(value)}
    names.pop("soa.exported", None)  # what makes `__all__`
    return {name: value for name, value in names.items() if inspect.isfunction(value)}


def examples_of(package: str) -> list[doctest.DocTest]:
    """Of everything public, classes too."""
    parser = doctest.DocTestParser()
    found = []
    for name, value in public_names().items():
        text = inspect.getdoc(value) or ""
        if name.rpartition(".")[0] == package and ">>>" in text:
            found.append(parser.get_doctest(text, {}, name, None, 0))
    return found


def test_every_public_function_has_an_example_or_is_listed():
    listed = {f"{package}.{name}" for package, names in WITHOUT_EXAMPLE.items() for name in names.split()}
    without = {name for name, function in functions().items() if ">>>" not in (function.__doc__ or "")}
    assert not without - listed, "These public functions have no example (>>>) in their docstring."
    assert not listed - without, "These have an example now, or are gone: take them off the list."


@pytest.fixture(scope="module")
def known() -> dict:
    """What examples may use: two rods that hang from a hinge, each of 1 m and 1 kg, moving."""
    return {
        "soa": soa,
        "jax": jax,
        "jnp": jnp,
        "np": np,
        "robot": soa.models.pendulum(2),
        "q": jnp.array([0.3, -0.5]),
        "v": jnp.array([0.4, 0.2]),
        "tau": jnp.array([1.0, 0.5]),
    }


@pytest.mark.slow
@pytest.mark.parametrize("package", sorted({name.rpartition(".")[0] for name in functions()}))
def test_examples_print_what_they_say(package, known, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # some write files
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    said: list[str] = []
    for example in examples_of(package):
        example.globs = dict(known)
        with np.printoptions(precision=8, suppress=False):
            runner.run(example, out=said.append)
    assert not runner.failures, "".join(said)
