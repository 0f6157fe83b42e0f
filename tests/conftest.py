"""Shared by all tests: double precision, a hypothesis profile without deadlines (compilation takes time), robots."""

from __future__ import annotations

import os
from pathlib import Path

# Tests compile much and run little: without LLVM's optimizations the suite takes about two thirds of the time. Set
# XLA_FLAGS (to nothing, say) to test what users compile.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")

# What one test compiled, another (also in another process, or tomorrow) need not compile again.
cache = Path(__file__).parent.parent / ".pytest_cache" / "compiled"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(cache))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.3")

import jax  # noqa: E402

jax.config.update("jax_enable_x64", True)

import hypothesis  # noqa: E402
import pytest  # noqa: E402

hypothesis.settings.register_profile(
    "jaxsoa",
    deadline=None,
    print_blob=True,
    derandomize=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.data_too_large],
)
hypothesis.settings.load_profile("jaxsoa")

# The longest of the tests that others resemble (`pytest --durations=40`): the default run must stay below 15 minutes.
LONG = (
    "test_batching.py::test_chunks_with_a_remainder_equal_one_state_at_a_time[tree]",
    "test_batching.py::test_reverse_over_forward_with_constant_directions",
    "test_transformations.py::test_first_derivatives_of_forward_dynamics_are_finite_and_right[identity quaternion",
    "test_transformations.py::test_first_derivatives_of_forward_dynamics_are_finite_and_right[straight chain",
    "test_transformations.py::test_second_derivatives_of_forward_dynamics_are_finite_and_right[straight chain",
    "test_transformations.py::test_float32_models_give_float32_gradients",
    "test_transformations.py::test_gradients_by_every_leaf_of_the_model_equal_finite_differences[floating arm]",
    "test_fit.py::test_compressed_data_gives_the_same_answer",
    "test_excitation.py::",
    "test_energy.py::test_projection_brings_a_four_bar_back_and_never_adds_energy",
    "test_embedding.py::",
    "linearized/test_against_pinocchio.py::",
    "test_models.py::test_perturbations_are_directional_derivatives[mixed]",
    "test_models.py::test_forward_model_is_the_derivative_of_forward_dynamics[mixed]",
    "test_models.py::test_inverse_model_is_the_derivative_of_inverse_dynamics[mixed]",
    "test_models.py::test_other_ways_to_the_forward_model",
    "test_physics.py::test_all_forward_methods_agree[every kind]",
    "test_physics.py::test_hybrid_dynamics_with_traced_masks[every kind]",
    "test_robots.py::test_analytical_derivatives_of_actuated_joints_are_those_of_forward_mode",
    "test_loops.py::test_a_stretched_five_bar_is_singular_and_still_finite",
    "test_control.py::test_a_bounce_keeps_energy_without_damping_and_its_gradient_is_exact",
    "test_operator_evaluation.py::test_gradients_equal_those_of_the_dense_version",
)

# Every compiled program takes memory maps (a tree's sweeps over a hundred), of which Linux allows a process 65,530 and
# kills the compiler at the next one. So forget what was compiled long before that.
MANY_MAPS = 20_000


@pytest.fixture(autouse=True)
def _forget_compiled_programs_in_time():
    yield
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > MANY_MAPS:
        jax.clear_caches()


def pytest_collection_modifyitems(items):
    for item in items:
        if any(name in item.nodeid for name in LONG):
            item.add_marker(pytest.mark.slow)
