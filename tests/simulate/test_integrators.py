"""Integrators: order of accuracy on joints that rotate freely, energy, momentum, and what is refused."""

from __future__ import annotations

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxsoa as soa
from jaxsoa import simulate

ORDER = {"semi_implicit_euler": 1, "rk4": 4, "implicit_midpoint": 2, "leapfrog": 2, "variational_euler": 1}
SPAN = 0.2


@pytest.fixture(scope="module")
def floating():
    """A free body with a spherical and a revolute link: everything that does not commute."""
    return soa.models.random_tree(3, 3, kinds=["spherical", "revolute"], shape="chain", floating_base=True)


@cache
def compiled(integrator: str, conserving: bool = False):
    """(robot, q, v, dt, number of steps) -> final state: one compilation for any number of steps and any gravity."""
    method = simulate.conserving_momentum(integrator) if conserving else integrator

    def run(robot, q, v, dt, steps):
        def advance(_, state):
            return simulate.State(*soa.step(robot, *state, jnp.zeros(robot.nv), dt, integrator=method))

        return lax.fori_loop(0, steps, advance, simulate.State(q, v))

    return jax.jit(run)


def start(robot):
    return robot.random(jax.random.key(0)), jnp.linspace(-1.0, 1.5, robot.nv)


def distance(robot, a, b) -> float:
    return float(jnp.linalg.norm(robot.difference(a.q, b.q)) + jnp.linalg.norm(a.v - b.v))


@pytest.mark.parametrize(
    "integrator",
    [pytest.param(i, marks=[pytest.mark.slow] * (i == "variational_euler")) for i in sorted(simulate.INTEGRATORS)],
)
def test_order_of_accuracy_on_the_manifold(floating, integrator):
    exact = compiled("rk4")(floating, *start(floating), SPAN / 640, 640)
    counts = (10, 20, 40)
    errors = [distance(floating, exact, compiled(integrator)(floating, *start(floating), SPAN / n, n)) for n in counts]
    measured = np.log2(np.array(errors[:-1]) / np.array(errors[1:]))
    # The first halving may still be outside the asymptotic range.
    assert abs(measured[-1] - ORDER[integrator]) < 0.15, (errors, measured)


def test_momentum_and_energy_of_a_free_body_without_gravity(floating):
    robot = floating.with_gravity(jnp.zeros(3)).frictionless()
    momentum, energy = jax.jit(soa.momentum), jax.jit(soa.kinetic_energy)
    before = start(robot)
    after = compiled("rk4")(robot, *before, SPAN / 640, 640)
    scale = float(jnp.abs(momentum(robot, *before)).max())
    np.testing.assert_allclose(momentum(robot, *after), momentum(robot, *before), rtol=0, atol=1e-10 * scale)
    np.testing.assert_allclose(energy(robot, *after), energy(robot, *before), rtol=1e-10)


@pytest.mark.parametrize("gravity", [0.0, -9.81])
def test_the_momentum_balance_can_be_kept_by_construction(floating, gravity):
    """Semi-implicit Euler at a coarse step, which on its own misses momentum by percents."""
    robot = floating.with_gravity(jnp.array([0.0, 0.0, gravity])).frictionless()
    momentum, center = jax.jit(soa.momentum), jax.jit(soa.center_of_mass)
    steps, before = 40, start(robot)
    plain = compiled("semi_implicit_euler")(robot, *before, SPAN / steps, steps)
    kept = compiled("semi_implicit_euler", conserving=True)(robot, *before, SPAN / steps, steps)

    def about_center(state):
        h, c = momentum(robot, *state), center(robot, state[0])
        return np.concatenate([h[:3] - np.cross(c, h[3:]), h[3:]])

    expected = about_center(before)
    middle = expected[3:] / float(robot.mass.sum()) + np.array([0, 0, SPAN / 2 * gravity])
    expected[5] += SPAN * float(robot.mass.sum()) * gravity
    scale = np.abs(expected).max()
    assert np.abs(about_center(kept) - expected).max() < 1e-12 * scale
    assert np.abs(about_center(plain) - expected).max() > 1e-4 * scale
    np.testing.assert_allclose(center(robot, kept.q), center(robot, before[0]) + SPAN * middle, rtol=1e-12, atol=1e-13)
    if gravity == 0:
        np.testing.assert_allclose(momentum(robot, *kept), momentum(robot, *before), rtol=0, atol=1e-12 * scale)
    # It is still the same method: as near to the truth as before, or nearer.
    exact = compiled("rk4")(robot, *before, SPAN / 640, 640)
    assert distance(robot, kept, exact) < 1.5 * distance(robot, plain, exact)


@pytest.mark.slow
def test_the_variational_step_is_symplectic_and_the_default_is_not():
    """The derivative D of one step in positions and momenta has D* W D = W, with W = [[0, 1], [-1, 0]]."""
    robot = soa.models.random_tree(5, 3, kinds=["revolute", "prismatic"], shape="chain").frictionless()
    n, dt = robot.nv, 1e-2
    q, v = start(robot)

    def step(q, p, integrator):
        v = soa.solve_mass_matrix(robot, q, p)
        q, v = soa.step(robot, q, v, jnp.zeros(n), dt, integrator=integrator)
        return jnp.concatenate([q, soa.mass_times(robot, q, v)])

    @jax.jit
    def derivatives(q, v):
        p = soa.mass_times(robot, q, v)
        both = [jax.jacfwd(step, argnums=(0, 1))(q, p, name) for name in ("variational_euler", "semi_implicit_euler")]
        return [jnp.concatenate(parts, axis=1) for parts in both]

    W = np.block([[np.zeros((n, n)), np.eye(n)], [-np.eye(n), np.zeros((n, n))]])
    variational, default = (np.abs(D.T @ W @ D - W).max() for D in map(np.asarray, derivatives(q, v)))
    assert variational < 1e-7  # the velocity's iterations leave (rate x dt)^5
    assert default > 1e-3


def test_energy_of_a_double_pendulum_stays():
    """Ten seconds at 1 ms, swinging widely; energy relative to what the fall can give."""
    robot = soa.models.pendulum(2).frictionless()
    q, v = jnp.array([1.5, 0.5]), jnp.zeros(2)

    def energy(s):
        return soa.kinetic_energy(robot, s.q, s.v) + soa.potential_energy(robot, s.q)

    @jax.jit
    def errors(q, v):
        lowest = soa.potential_energy(robot, jnp.zeros(2))
        first = soa.potential_energy(robot, q)
        options = {"steps": 10_000, "record": energy, "every": 50}
        runs = [
            soa.rollout(robot, q, v, None, 1e-3, integrator=name, **options)
            for name in ("leapfrog", "variational_euler", "semi_implicit_euler")
        ]
        return [(run - first) / jnp.abs(first - lowest) for run in runs]

    leapfrog, variational, default = (np.asarray(x) for x in errors(q, v))
    assert np.abs(leapfrog).max() < 2e-4
    drift = [abs(x[len(x) // 2 :].mean() - x[: len(x) // 2].mean()) for x in (variational, default)]
    assert np.abs(variational).max() < 2e-2  # it oscillates, by first order
    assert drift[0] < 1e-3
    assert np.abs(default).max() > 5 * np.abs(leapfrog).max()


@pytest.mark.slow
def test_a_free_flyers_momentum_is_kept_by_symmetry(floating):
    """Noether's theorem for the variational step, on free and spherical joints, where plain Euler loses percents."""
    robot = floating.with_gravity(jnp.zeros(3)).frictionless()
    momentum = jax.jit(soa.momentum)
    before = start(robot)
    h = np.asarray(momentum(robot, *before))
    lost = {}
    for name in ("variational_euler", "semi_implicit_euler"):
        after = compiled(name)(robot, *before, SPAN / 40, 40)
        lost[name] = np.abs(momentum(robot, *after) - h).max() / np.abs(h).max()
    assert lost["variational_euler"] < 1e-6 < 1e-4 < lost["semi_implicit_euler"]


def test_refusals_say_what_is_wrong():
    robot = soa.models.pendulum()
    q, v = robot.neutral(), jnp.zeros(1)
    with pytest.raises(ValueError, match="semi_implicit_euler"):
        soa.step(robot, q, v, v, 0.01, integrator="euler")
    with pytest.raises(ValueError, match="free joint"):
        soa.step(robot, q, v, v, 0.01, integrator=simulate.conserving_momentum("rk4"))
