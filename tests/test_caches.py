"""`clear_caches` gives back compiled programs and topologies, finds every cache by itself, and changes no number."""

from __future__ import annotations

import ast
import gc
import importlib
import pkgutil
import weakref
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.backend import get_backend

import jaxsoa as soa
from jaxsoa import caches


def programs() -> int:
    gc.collect()
    return len(get_backend().live_executables())


def held() -> int:
    return sum(cache.cache_info().currsize for cache in caches.functools_caches())


def test_programs_and_topologies_of_many_robots_are_given_back():
    soa.clear_caches()
    # Programs of module-level constants and of other tests' fixtures may live on.
    programs_before = programs()
    topologies, answers = [], []

    def use(n):
        robot = soa.models.random_tree(n, n, ["revolute"])
        zero = jnp.zeros(n)
        answers.append(np.asarray(soa.forward_dynamics(robot, zero, zero, zero)))
        topologies.append(weakref.ref(robot.topology))

    for n in (2, 3, 4):
        use(n)
    assert programs() > programs_before + 3
    assert held() >= 3
    soa.clear_caches()
    assert programs() == programs_before
    assert held() == 0
    gc.collect()
    assert [t() for t in topologies] == [None] * 3
    first = answers.pop(0)
    use(2)
    np.testing.assert_array_equal(answers[-1], first)


def test_every_cache_in_the_sources_is_found():
    """Each function under a `cache` or `lru_cache` decorator at the top of a module; nested ones live with a call."""
    root = Path(soa.__file__).parent
    found = {f"{cache.__module__}.{cache.__qualname__}" for cache in _with_all_modules_imported()}
    for path in root.rglob("*.py"):
        module = ".".join(["jaxsoa", *path.relative_to(root).with_suffix("").parts])
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and any("cache" in ast.unparse(d) for d in node.decorator_list):
                assert f"{module}.{node.name}" in found


def _with_all_modules_imported():
    for module in pkgutil.walk_packages(soa.__path__, "jaxsoa."):
        source = Path(soa.__file__).parent.parent / Path(*module.name.split("."))
        path = source.with_suffix(".py")
        if path.exists() and "cache" in path.read_text():
            importlib.import_module(module.name)
    return list(caches.functools_caches())


def test_other_caches_can_be_registered(monkeypatch):
    monkeypatch.setattr(caches, "_clearing", [])
    kept = {"program": jax.jit(jnp.sin)}
    assert caches.register(kept.clear) is not None
    soa.clear_caches()
    assert kept == {}
