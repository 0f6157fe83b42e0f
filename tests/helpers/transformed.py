"""Many functions of the table at once, transformed, beside the same functions of one state at a time.

Every function is compiled as part of one program per transformation: compiling is what takes the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from helpers.every_function import TABLE
from helpers.function_states import MODELS, models_near, states

TOLERANCE = {"float64": 1e-10, "float32": 1e-3}
"""Rounding, times what a badly conditioned small tree makes of it."""
LOOSE = 1e-5
"""The same for searches, whose last step is a matter of rounding (in double precision)."""


@cache
def traced_once(name: str) -> Callable:
    """The function, of which JAX keeps the program: every transformation of it starts from the same one."""
    return jax.jit(TABLE[name].call)


def together(names: Iterable[str]) -> Callable:
    """All the functions as one, of (model, state)."""
    names = tuple(names)
    return lambda model, state: {name: traced_once(name)(model, state) for name in names}


def traceable(names: Iterable[str], run: Callable) -> tuple[list[str], dict[str, str]]:
    """Names whose program `run(together([name]))` can be traced, and what the others say."""
    good, bad = [], {}
    for name in names:
        try:
            jax.eval_shape(run(together([name])))
            good.append(name)
        except Exception as error:  # whatever it is, it goes into the report
            bad[name] = f"{type(error).__name__}: {error}".split("\n")[0][:300]
    return good, bad


def compiled_together(names: Iterable[str], run: Callable) -> tuple[dict, dict[str, str]]:
    """Results of `run(together(names))()` as one program; where that cannot be traced, of those that can."""
    names, bad = list(names), {}
    try:
        program = jax.jit(run(together(names))).lower()
    except Exception:
        names, bad = traceable(names, run)
        program = jax.jit(run(together(names))).lower()
    return program.compile()(), bad


def error_of(actual: Any, expected: Any) -> float:
    """The largest deviation of any leaf, relative to that leaf; infinities must be the same."""
    worst = 0.0
    for a, b in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        a, b = np.asarray(a, float), np.asarray(b, float)
        assert a.shape == b.shape, f"{a.shape} instead of {b.shape}"
        if np.isnan(a).any():
            return np.inf
        finite = b[np.isfinite(b)]
        scale = max(np.abs(finite).max(initial=0.0), 1e-3)
        with np.errstate(invalid="ignore"):
            worst = max(worst, float(np.where(a == b, 0.0, np.abs(a - b)).max(initial=0.0)) / scale)
    return worst


def complaints(actual: dict, expected: dict, dtype: str) -> dict[str, str]:
    """Functions that differ by more than rounding, and by how much."""
    found = {}
    for name, value in actual.items():
        tolerance = TOLERANCE[dtype] if TABLE[name].exact else max(LOOSE, TOLERANCE[dtype])
        error = error_of(value, expected[name])
        if not error <= tolerance:
            found[name] = f"relative error {error:.1e}"
    return found


def row(tree: Any, k: int) -> Any:
    return jax.tree.map(lambda x: x[k], tree)


def zipped(*rows: Any) -> Any:
    return jax.tree.map(lambda *x: jnp.stack(x), *rows)


class Case:
    """Two models that differ and two states, in a floating type."""

    def __init__(self, model: str, dtype: str):
        self.model = MODELS[model](jnp.dtype(dtype))
        self.models = models_near(self.model, 2)
        self.states = states(self.model, 2)

    def one_at_a_time(self, pairs: list[tuple[Any, Any]]) -> Callable:
        """The functions for pairs (model, state), one after the other."""
        batch = zipped(*pairs)
        return lambda f: lambda: jax.lax.map(lambda x: f(*x), batch)

    def transformations(self) -> dict[str, tuple[Callable, list[tuple[Any, Any]]]]:
        """By name: what makes a batch of a function, and the pairs it stands for, in order."""
        models, batch = self.models, self.states
        m, s = [row(models, k) for k in (0, 1)], [row(batch, k) for k in (0, 1)]

        def over(which: Callable[[str], bool]):
            mixed = {name: x if which(name) else row(x, 0) for name, x in batch.items()}
            axes = {name: 0 if which(name) else None for name in batch}
            pairs = [(m[0], {n: row(x, k) if which(n) else x for n, x in mixed.items()}) for k in (0, 1)]
            return (lambda f: lambda: jax.vmap(f, (None, axes))(m[0], mixed)), pairs

        def nested(f):
            return lambda: jax.tree.map(
                lambda x: x.reshape(4, *x.shape[2:]),
                jax.vmap(jax.vmap(f, (None, 0)), (0, None))(models, batch),
            )

        return {
            "states": ((lambda f: lambda: jax.vmap(f, (None, 0))(m[0], batch)), [(m[0], s[0]), (m[0], s[1])]),
            "models": ((lambda f: lambda: jax.vmap(f, (0, None))(models, s[0])), [(m[0], s[0]), (m[1], s[0])]),
            "models and states": ((lambda f: lambda: jax.vmap(f)(models, batch)), list(zip(m, s, strict=True))),
            "nested": (nested, [(a, b) for a in m for b in s]),
            "q alone": over(lambda name: name == "q"),
            "v alone": over(lambda name: name == "v"),
            "all but q": over(lambda name: name != "q"),
        }
