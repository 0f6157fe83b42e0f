"""Functions of the table, transformed, beside the same functions of one state at a time."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from helpers.every_function import TABLE
from helpers.function_states import MODELS, models_near, states
from helpers.numpy_programs import evaluated
from jax.sharding import AbstractMesh, PartitionSpec

TOLERANCE = {"float64": 1e-10, "float32": 1e-3}
"""Rounding, times what a badly conditioned small tree makes of it."""
LOOSE = 1e-5
"""The same for searches, whose last step is a matter of rounding (in double precision)."""


@cache
def traced_once(name: str) -> Callable:
    """The function, of which JAX keeps the program: every transformation of it starts from the same one."""
    return jax.jit(TABLE[name].call)


def by_numpy(f: Callable, *x: Any) -> Any:
    """What `f(*x)` gives by the program that JAX makes of it, without compiling that."""
    program, results = jax.make_jaxpr(f, return_shape=True)(*x)
    return jax.tree.unflatten(jax.tree.structure(results), evaluated(program, jax.tree.leaves(x)))


def rate_and_difference(f: Callable, h: float = 1e-4) -> tuple[float, float]:
    """df/dt at 0 by forward mode, and by central differences of fourth order."""

    def known(f):
        program = jax.make_jaxpr(f)(0.0)
        return lambda t: float(evaluated(program, [jnp.asarray(t)])[0])

    value = known(f)
    difference = (8 * (value(h) - value(-h)) - (value(2 * h) - value(-2 * h))) / (12 * h)
    return known(lambda t: jax.jvp(f, (t,), (1.0,))[1])(0.0), difference


def error_of(actual: Any, expected: Any) -> float:
    """The largest deviation of any leaf, relative to that leaf; infinities must be the same.

    A field `residual` is nothing but rounding. In single precision it counts as a hundredth of the largest leaf, of
    which it is the rounding: times the tolerance, eighty roundings of that.
    """
    leaves = [np.asarray(x) for x in jax.tree.leaves(expected)]
    largest = max((np.abs(x[np.isfinite(x)]).max(initial=0.0) for x in leaves if x.dtype == np.float32), default=0.0)
    worst = 0.0
    named = jax.tree_util.tree_flatten_with_path(actual)[0]
    for (path, a), b in zip(named, jax.tree.leaves(expected), strict=True):
        a, b = np.asarray(a, float), np.asarray(b, float)
        assert a.shape == b.shape, f"{a.shape} instead of {b.shape}"
        if np.isnan(a).any():
            return np.inf
        finite = b[np.isfinite(b)]
        rounding = 1e-2 * float(largest) if jax.tree_util.keystr(path).endswith(".residual") else 0.0
        scale = max(np.abs(finite).max(initial=0.0), 1e-3, rounding)
        with np.errstate(invalid="ignore"):
            worst = max(worst, float(np.where(a == b, 0.0, np.abs(a - b)).max(initial=0.0)) / scale)
    return worst


def tolerance_of(name: str, dtype: str) -> float:
    return TOLERANCE[dtype] if TABLE[name].exact else max(LOOSE, TOLERANCE[dtype])


def row(tree: Any, k: int) -> Any:
    return jax.tree.map(lambda x: x[k], tree)


class Pair(NamedTuple):
    """One of the models, and the names of those arguments that are of the second state, the others of the first."""

    model: int
    second: frozenset[str] = frozenset()


class Case:
    """Two models that differ and two states, in a floating type."""

    def __init__(self, model: str, dtype: str):
        self.dtype = dtype
        self.model = MODELS[model](jnp.dtype(dtype))
        self.models = models_near(self.model, 2)
        self.states = states(self.model, 2)

    def __getitem__(self, pair: Pair) -> tuple[Any, dict]:
        state = {name: row(x, int(name in pair.second)) for name, x in self.states.items()}
        return row(self.models, pair.model), state

    def transformations(self) -> dict[str, tuple[Callable, list[Pair]]]:
        """By name: what makes a batch of a function of (model, state), and the pairs it stands for, in order."""
        models, batch, everything = self.models, self.states, frozenset(self.states)
        m, s = self[Pair(0)]
        mesh = AbstractMesh((2,), ("devices",))

        def over(which: frozenset[str]):
            mixed = {name: x if name in which else row(x, 0) for name, x in batch.items()}
            axes = {name: 0 if name in which else None for name in batch}
            return (lambda f: lambda: jax.vmap(f, (None, axes))(m, mixed)), [Pair(0), Pair(0, which)]

        def nested(f):
            return lambda: jax.tree.map(
                lambda x: x.reshape(4, *x.shape[2:]),
                jax.vmap(jax.vmap(f, (None, 0)), (0, None))(models, batch),
            )

        def known(f):  # as where a jitted function closes over a robot
            return lambda: jax.vmap(lambda s: f.__wrapped__(m, s))(batch)

        def sharded(f):
            split, whole = PartitionSpec("devices"), PartitionSpec()
            local = jax.shard_map(jax.vmap(f, (None, 0)), mesh=mesh, in_specs=(whole, split), out_specs=split)
            return lambda: local(m, batch)

        one_and_other = [Pair(0), Pair(0, everything)]
        return {
            "states": ((lambda f: lambda: jax.vmap(f, (None, 0))(m, batch)), one_and_other),
            "states, the model known": (known, one_and_other),
            "states on two devices": (sharded, one_and_other),
            "models": ((lambda f: lambda: jax.vmap(f, (0, None))(models, s)), [Pair(0), Pair(1)]),
            "models and states": ((lambda f: lambda: jax.vmap(f)(models, batch)), [Pair(0), Pair(1, everything)]),
            "nested": (nested, [*one_and_other, Pair(1), Pair(1, everything)]),
            "q alone": over(frozenset({"q"})),
            "v alone": over(frozenset({"v"})),
            "all but q": over(everything - {"q"}),
        }


def one_by_one(f: Callable, case: Case) -> Callable[[list[Pair]], Any]:
    """Results of a function for pairs, one after the other; the program is made once, and each pair computed once."""
    program, results = jax.make_jaxpr(f, return_shape=True)(*case[Pair(0)])

    @cache
    def of(pair: Pair) -> list[np.ndarray]:
        return evaluated(program, jax.tree.leaves(case[pair]))

    def find(pairs: list[Pair]) -> Any:
        rows = zip(*(of(pair) for pair in pairs), strict=True)
        return jax.tree.unflatten(jax.tree.structure(results), [np.stack(x) for x in rows])

    return find
