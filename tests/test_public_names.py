"""What a newcomer sees of the package: help() lists functions, dir() no internals, a name has one address."""

from __future__ import annotations

import importlib
import pkgutil
import pydoc
from types import ModuleType

import pytest

import jaxsoa as soa

PACKAGES = ("closed_chain", "contact", "identify", "ik", "kernels", "models", "optimize", "simulate", "viz")


@pytest.mark.parametrize("name", ("", *PACKAGES))
def test_dir_and_help_show_functions_and_no_internals(name):
    package = getattr(soa, name) if name else soa
    shown = {entry: getattr(package, entry) for entry in dir(package) if entry != "__version__"}
    assert sorted(shown) == package.__all__
    assert not [entry for entry in shown if entry.startswith("_")]
    modules = {entry for entry, value in shown.items() if isinstance(value, ModuleType)}
    assert modules == (set() if name else {*PACKAGES, "convert", "decomposition", "estimation"})
    text = pydoc.plaintext.document(package)
    functions = [entry for entry, value in shown.items() if type(value).__name__ == "function"]
    assert functions
    assert not [entry for entry in functions if f"\n    {entry}(" not in text]


def test_no_module_is_hidden_by_a_function():
    """Nor does importing a module later on put it where its function was."""
    hidden = []
    for found in pkgutil.walk_packages(soa.__path__, "jaxsoa."):
        if found.name.endswith("__main__"):
            continue
        module = importlib.import_module(found.name)
        parent, _, leaf = found.name.rpartition(".")
        if getattr(importlib.import_module(parent), leaf) is not module:
            hidden.append(found.name)
    assert not hidden
    assert callable(soa.operators) and callable(soa.simulate.rollout) and callable(soa.identify.fit)
