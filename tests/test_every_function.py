"""Every public function, batched in every way, against itself one state at a time.

Twice. First all functions in all ways by the programs that JAX makes of them, computed by NumPy: whether batching a
function changes it is settled there, and nothing has to be compiled. Then compiled, through kernels where there are
any, as users run them: each function in some of the ways, in turn.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.every_function import NOT_OF_A_STATE, TABLE, public_names
from helpers.numpy_programs import evaluated
from helpers.transformed import Case, Pair, by_numpy, error_of, one_by_one, tolerance_of, traced_once


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
EVERYTHING = "JAXSOA_EVERY_COMBINATION" in os.environ
"""Compiling every function in every way takes hours. Without this each is compiled in two, in turn."""
EVERY_DAY = ("soa.forward_dynamics", "soa.mass_matrix", "soa.solve_mass_matrix")
REFUSED = """
    simulate.solve_adaptively optimize.shooting optimize.constrained optimize.optimal_trajectory optimize.shifted
""".split()
"""Functions that inside `shard_map` need `check_vma=False`, and say so."""
TREES = {"tree": ("fixed", "floating"), "floating": ("floating",)}
"""A fixed and a floating robot, which together have a joint of every kind."""


@cache
def case_of(model: str, dtype: str) -> Case:
    return Case(model, dtype)


def models_of(name: str) -> tuple[str, ...]:
    return TREES.get(TABLE[name].on, (TABLE[name].on,))


def each_on_its_models() -> list:
    found = [(name, model) for name in TABLE for model in models_of(name)]
    return [pytest.param(*pair, marks=() if pair[0] in EVERY_DAY else SLOW, id=", ".join(pair)) for pair in found]


def complaint(name: str, dtype: str, how: str, actual, expected) -> list[str]:
    error = error_of(actual, expected)
    return [] if error <= tolerance_of(name, dtype) else [f"{how} ({dtype}): relative error {error:.1e}"]


@pytest.mark.parametrize(("name", "model"), each_on_its_models())
def test_programs_of_batches_equal_one_state_at_a_time(name, model):
    """In all ways in double precision; of trees, one of the two also in single precision, in one way, both in turn."""
    wrong, number = [], list(TABLE).index(name)
    for dtype in ("float64", "float32"):
        if dtype == "float32" and model != models_of(name)[number % len(models_of(name))]:
            continue
        case = case_of(model, dtype)
        expected = one_by_one(traced_once(name), case)
        ways = list(case.transformations().items())
        if dtype == "float32":
            ways = [ways[number // 2 % len(ways)]]
        for how, (run, pairs) in ways:
            if how == "states on two devices" and name in REFUSED:
                with pytest.raises(TypeError, match="Pass check_vma=False to"):
                    jax.make_jaxpr(run(traced_once(name)))()
                continue
            wrong += complaint(name, dtype, how, by_numpy(run(traced_once(name))), expected(pairs))
    assert not wrong, "\n".join(wrong)


#: The robot, the type and the way; "eager": called operation by operation, alone and under vmap, without jit.
COMPILED = [
    ("floating", "float64", "nested"),
    ("fixed", "float32", "states, the model known"),
    ("every kind", "float64", "models and states"),
    ("fixed", "float64", "eager"),
    ("floating", "float32", "q alone"),
    ("every kind", "float32", "states"),
    ("floating", "float64", "states, the model known"),
    ("fixed", "float64", "models"),
    ("fixed", "float32", "v alone"),
    ("floating", "float64", "all but q"),
    ("every kind", "float64", "states, the model known"),
]


def compiled_in_turn() -> list:
    found = []
    for k, name in enumerate(TABLE):
        for model, dtype, how in COMPILED if EVERYTHING else (COMPILED[(2 * k + j) % len(COMPILED)] for j in (0, 1)):
            on = TABLE[name].on
            model = {"tree": model, "floating": "floating"}.get(on, on)
            found.append(pytest.param(name, model, dtype, how, marks=SLOW, id=f"{name}: {model}, {dtype}, {how}"))
    return found


@pytest.mark.parametrize(("name", "model", "dtype", "how"), compiled_in_turn())
def test_compiled_programs_of_batches_equal_one_state_at_a_time(name, model, dtype, how):
    case = case_of(model, dtype)
    expected, transformations = one_by_one(traced_once(name), case), case.transformations()
    if how == "eager":
        _, pairs = transformations["states"]
        robot, _ = case[Pair(0)]
        alone = TABLE[name].call(*case[Pair(0)])
        wrong = complaint(name, dtype, "alone", jax.tree.map(lambda x: x[None], alone), expected(pairs[:1]))
        actual = jax.vmap(TABLE[name].call, (None, 0))(robot, case.states)
    else:
        run, pairs = transformations[how]
        wrong, actual = [], jax.jit(run(traced_once(name)))()
    wrong += complaint(name, dtype, how, actual, expected(pairs))
    assert not wrong, "\n".join(wrong)


SHARDED = "soa.forward_dynamics;soa.mass_matrix_inverse;soa.rollout"


@pytest.mark.parametrize(
    ("devices", "model", "names"),
    [
        pytest.param(2, "pendulum", SHARDED, marks=SLOW),
        pytest.param(8, "pendulum", SHARDED, marks=SLOW),
        *(pytest.param(8, *what, marks=[SLOW, pytest.mark.skipif(not EVERYTHING, reason="hours of compiling")])
          for what in (("pendulum", "all"), ("fixed", "core"), ("linkage", "all"))),
    ],
    ids=["two devices", "eight devices", "solvers", "core", "linkage"],
)  # fmt: skip
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


def test_numpy_computes_what_jax_computes():
    """The operations of programs, each with parameters that differ from the usual ones."""
    rng = np.random.default_rng(0)
    x, y = (jnp.asarray(rng.normal(size=(4, 3))) for _ in range(2))
    rows, places = jnp.asarray([2, 0, 2]), jnp.asarray([[3, 0], [1, 9]])

    def looped(x):
        return jax.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * 2), (0, x))[1]

    functions = [
        lambda x, y: (jnp.tile(x, (2, 1)), jnp.stack([x, y], 1), jnp.unstack(x, axis=1), jnp.split(x, 2)),
        lambda x, y: (x[rows], x[:, rows], x[rows, rows], x.at[rows].add(y[:3]), x.at[rows, 1].set(y[:3, 0])),
        lambda x, y: (x.at[places[:, 0]].get(mode="fill"), x.at[places[:, 1]].multiply(2.0, mode="drop")),
        lambda x, y: x.at[places[:, 1]].add(1.0, mode="clip"),
        jax.vmap(lambda x, y: x[jnp.argmax(y)] + jnp.zeros(3).at[jnp.argmin(y)].add(x[0])),
        lambda x, y: jax.lax.pad(x, 1.0, [(1, -1, 2), (-1, 2, 0)]),
        lambda x, y: (jnp.cumsum(x, 0), jnp.cumprod(x[::-1], 1), jax.lax.cummax(x, 0, reverse=True)),
        lambda x, y: jnp.einsum("ij,ik,il->kl", x, y, x),
        jax.vmap(lambda x, y: jnp.outer(x, y) @ x),
        lambda x, y: jax.lax.scan(lambda c, x: (c * x + 1, c[0]), y[0], x, reverse=True),
        lambda x, y: jax.lax.cond(x[0, 0] > 0, jnp.sin, lambda x: x**-3, y),
        lambda x, y: (jax.vmap(looped)(x), jnp.round(x), x // y, x % y, jnp.select([x > 0], [y], x)),
        lambda x, y: (jnp.linalg.solve(x[:3] + 3 * jnp.eye(3), y.T), jnp.linalg.cholesky(x.T @ x)),
        lambda x, y: (jax.lax.dynamic_slice(x, (rows[0], 5), (2, 2)), jax.lax.dynamic_update_slice(x, y[:2], (9, 0))),
        lambda x, y: (rows // 2, -rows // 2, jnp.any(x > 0, 0), jnp.all(x > 0), jnp.prod(x, 1), jnp.max(x, 1)),
    ]
    for f in functions:
        expected = jax.tree.leaves(jax.jit(f)(x, y))
        for a, b in zip(evaluated(jax.make_jaxpr(f)(x, y), [x, y]), expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-13, atol=1e-13)
