"""Closed chains in motion: energy and constraints over ten seconds, by the experiment that prints them."""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import jaxsoa as soa
from jaxsoa import closed_chain as cc

EXPERIMENTS = Path(__file__).parents[2] / "experiments"


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["four-bar", "five-bar", "stewart", "grasp"])
def test_energy_stays_and_constraints_hold_for_ten_seconds(name, monkeypatch):
    """Runge-Kutta 4 with a step of 1 ms, projection after every step."""
    monkeypatch.syspath_prepend(str(EXPERIMENTS))
    import closed_chain_energy

    assert "closed_chain_energy" in sys.modules
    run = closed_chain_energy.RUNS[name](10.0, 1e-3)
    assert run.swing > 0.1
    assert run.drift < 1e-6
    assert run.position_error < 1e-8
    assert run.velocity_error < 1e-8


def test_projection_brings_a_four_bar_back_and_never_adds_energy():
    robot, loops, guess = cc.mechanisms.four_bar()
    q = jax.jit(cc.close_loops)(robot, loops, guess)
    rng = np.random.default_rng(0)
    project = jax.jit(cc.project)
    v = rng.normal(size=3)
    back, slowed = project(robot, loops, q + 1e-4 * rng.normal(size=3), v)
    assert_allclose(jax.jit(cc.loop_errors)(robot, loops, back), 0, atol=1e-12)
    assert_allclose(jax.jit(cc.loop_jacobian)(robot, loops, back) @ slowed, 0, atol=1e-12)
    energy = jax.jit(soa.kinetic_energy)
    assert energy(robot, back, slowed) < energy(robot, back, v)

    def total(x):
        q, v = cc.project(robot, loops, x, v0)
        return jnp.sum(q**2) + jnp.sum(v**2)

    v0, x, h = jnp.asarray(v), q + 1e-4, 1e-4
    f, gradient = jax.jit(total), jax.jit(jax.grad(total))(x)
    for i, e in enumerate(np.eye(3)):
        difference = (8 * (f(x + h * e) - f(x - h * e)) - (f(x + 2 * h * e) - f(x - 2 * h * e))) / (12 * h)
        assert_allclose(gradient[i], difference, rtol=1e-5, atol=1e-6)


def test_stabilization_makes_errors_decay():
    """Baumgarte: error'' = -2 damping error' - frequency^2 error, along the constraint."""
    robot, loops, guess = cc.mechanisms.four_bar()
    q = jax.jit(cc.close_loops)(robot, loops, guess) + jnp.array([1e-4, 0, 0])
    v, tau = jnp.zeros(3), jnp.zeros(3)
    s = jax.jit(lambda q: cc.loop_forward_dynamics(robot, loops, q, v, tau, stabilization=(10.0, 10.0)))(q)
    J, e = jax.jit(cc.loop_jacobian)(robot, loops, q), jax.jit(cc.loop_errors)(robot, loops, q)
    assert_allclose(J @ s.a, -100 * e, atol=1e-4 * float(jnp.abs(100 * e).max()))
