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


def test_every_public_function_has_an_example():
    without = {name for name, function in functions().items() if ">>>" not in (function.__doc__ or "")}
    assert not without, "These public functions have no example (>>>) in their docstring."


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
