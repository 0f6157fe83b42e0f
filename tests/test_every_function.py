"""Every public function, batched in every way, against itself one state at a time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest
from helpers.every_function import CORE, NOT_OF_A_STATE, TABLE, entries_on, public_names
from helpers.transformed import Case, compiled_together, complaints, row, traced_once


def test_every_public_name_is_in_the_table_or_has_a_reason_not_to_be():
    names = public_names()
    tested = {name.split(",")[0] for name in TABLE}
    unknown = [name for name in names if name not in tested and name not in NOT_OF_A_STATE]
    assert not unknown, (
        f"{unknown} are public, but nothing tries them batched, sharded and differentiated: give them an entry in "
        "helpers/tree_functions.py or closed_functions.py, or a reason in helpers/every_function.py."
    )
    gone = [name for name in {*tested, *NOT_OF_A_STATE} if name not in names]
    assert not gone, f"{gone} are no longer public."
    assert not {*tested} & {*NOT_OF_A_STATE}


SLOW = pytest.mark.slow
ALL = [SLOW, pytest.mark.skipif("JAXSOA_EVERY_COMBINATION" not in os.environ, reason="an hour of compiling: by hand")]
EVERY_DAY = ("soa.forward_dynamics", "soa.mass_matrix", "soa.solve_mass_matrix", "soa.link_velocities", "soa.regressor")
"""One function each of those with rules of their own for batches, and of those without."""

WAYS = [
    ("floating", "float64", "states"),
    ("fixed", "float32", "models"),
    ("fixed", "float64", "nested"),
    ("floating", "float32", "q alone"),
    ("floating", "float64", "all but q"),
    ("fixed", "float64", "v alone"),
    ("every kind", "float64", "models and states"),
]
"""Every function in every one of these ways takes an hour to compile: set JAXSOA_EVERY_COMBINATION for that."""


def cases() -> list:
    everything = "JAXSOA_EVERY_COMBINATION" in os.environ
    others = [name for name in entries_on("fixed") if name not in CORE]
    found = [("floating", "float64", "states", EVERY_DAY, SLOW)]
    if not everything:
        return [pytest.param(*found[0][:4], marks=SLOW, id="floating, float64, states")]
    for way in WAYS:
        found += [(*way, CORE, SLOW), (*way, others, SLOW)]
    found += [
        ("pendulum", "float64", "nested", others, SLOW),
        ("pendulum", "float64", "states", entries_on("pendulum"), SLOW),
        ("floating", "float64", "states", [n for n, e in TABLE.items() if e.on == "floating"], SLOW),
        ("linkage", "float64", "nested", entries_on("linkage"), SLOW),
        ("grasp", "float64", "models and states", entries_on("grasp"), SLOW),
    ]
    return [pytest.param(*case[:4], marks=case[4], id=f"{k}: {', '.join(case[:3])}") for k, case in enumerate(found)]


@pytest.mark.parametrize(("model", "dtype", "how", "names"), cases())
def test_batches_equal_one_state_at_a_time(model, dtype, how, names):
    case = Case(model, dtype)
    batched, pairs = case.transformations()[how]
    actual, bad = compiled_together(names, batched)
    expected, _ = compiled_together(actual, case.one_at_a_time(pairs))
    wrong = {**bad, **complaints(actual, expected, dtype)}
    assert not wrong, "\n".join(f"{name}: {what}" for name, what in wrong.items())


@pytest.mark.parametrize(
    "names", [pytest.param(EVERY_DAY[:2], marks=SLOW), pytest.param(CORE[::3], marks=ALL)], ids=["two", "many"]
)
def test_functions_called_operation_by_operation_equal_compiled_ones(names):
    """Alone and under vmap, without jit."""
    case = Case("fixed", "float64")
    batched, pairs = case.transformations()["states"]
    expected, bad = compiled_together(names, case.one_at_a_time(pairs))
    actual = {name: batched(TABLE[name].call)() for name in expected}
    alone = {name: TABLE[name].call(*pairs[0]) for name in expected}
    wrong = {**bad, **complaints(actual, expected, "float64"), **complaints(alone, row(expected, 0), "float64")}
    assert not wrong, "\n".join(f"{name}: {what}" for name, what in wrong.items())


SHARDED = "soa.forward_dynamics;soa.mass_matrix_inverse;soa.rollout"


@pytest.mark.parametrize(
    ("devices", "model", "names"),
    [
        pytest.param(2, "pendulum", SHARDED, marks=SLOW),
        pytest.param(8, "pendulum", SHARDED, marks=SLOW),
        pytest.param(8, "pendulum", "all", marks=ALL),
        pytest.param(8, "fixed", "core", marks=ALL),
        pytest.param(2, "linkage", "all", marks=ALL),
    ],
    ids=["two devices", "eight devices", "solvers", "core", "linkage"],
)
def test_sharded_functions_equal_one_state_at_a_time(devices, model, names):
    """In a process of its own, whose one CPU looks like several devices."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    command = [sys.executable, str(Path(__file__).with_name("check_every_function.py")), str(devices), model, names]
    done = subprocess.run(command, env={**os.environ, "XLA_FLAGS": flags}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]


def test_a_program_is_traced_once_for_all_transformations():
    """What the tests above rely on to be fast."""
    assert traced_once("soa.mass_matrix") is traced_once("soa.mass_matrix")
    assert isinstance(jax.jit(lambda x: x), type(traced_once("soa.mass_matrix")))
