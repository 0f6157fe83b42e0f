"""Linearized models in float32: each quantity within its own bound of the same in float64, from the same numbers.

Rounding is 6e-8. The tree's six links of all kinds of joints turn and shift what rounding has made of the links before
them, and what solves with a mass matrix loses the digits of its condition number besides.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.compare import relative_error

import jaxsoa as soa

ROBOTS = {
    "arm": soa.models.puma560,
    "tree": lambda: soa.models.random_tree(2, 6, floating_base=True),
}
BOUNDS = {  # arm, tree
    "regressor": (1e-6, 4e-6),
    "inverse wrt q": (1e-6, 5e-6),
    "inverse wrt v": (1e-6, 5e-6),
    "inverse wrt a": (4e-7, 4e-6),
    "forward wrt q": (1e-6, 4e-5),
    "forward wrt v": (4e-6, 2e-5),
    "forward wrt tau": (3e-7, 1e-5),
    "step A": (3e-7, 1e-5),
    "step B": (4e-7, 1e-5),
}


@jax.jit
def everything(robot, q, v, a, tau):
    inverse, forward = soa.linearize_inverse_dynamics(robot, q, v, a), soa.linearize_forward_dynamics(robot, q, v, tau)
    A, B = soa.linearize_step(robot, q, v, tau, 1e-2)
    found = {"regressor": soa.regressor(robot, q, v, a), "step A": A, "step B": B}
    found |= {f"inverse {name}": getattr(inverse, name) for name in ("wrt_q", "wrt_v", "wrt_a")}
    found |= {f"forward {name}": getattr(forward, name) for name in ("wrt_q", "wrt_v", "wrt_tau")}
    return {name.replace("_", " "): value for name, value in found.items()}


@pytest.mark.parametrize("name", ["arm", pytest.param("tree", marks=pytest.mark.slow)])
def test_each_quantity_keeps_its_digits(name):
    single = ROBOTS[name]().astype(jnp.float32)
    double, rng, worst = single.astype(jnp.float64), np.random.default_rng(3), dict.fromkeys(BOUNDS, 0.0)
    for seed in range(4):
        states = [single.random(seed), *rng.normal(size=(3, single.nv)).astype(np.float32)]
        found = everything(single, *states)
        exact = everything(double, *(jnp.asarray(x, jnp.float64) for x in states))
        assert found.keys() == worst.keys()
        for key, value in found.items():
            assert value.dtype == jnp.float32, key
            worst[key] = max(worst[key], relative_error(value, exact[key]))
    bounds = {key: bound[list(ROBOTS).index(name)] for key, bound in BOUNDS.items()}
    assert all(worst[key] < bound for key, bound in bounds.items()), worst
