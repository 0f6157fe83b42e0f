"""Integrators: order of accuracy on joints that rotate freely, conserved quantities, and what rollout refuses."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsoa as soa
from jaxsoa.simulate import INTEGRATORS

ORDER = {"semi_implicit_euler": 1, "rk4": 4, "implicit_midpoint": 2}


@pytest.fixture(scope="module")
def floating():
    """A free body with a spherical and a revolute link: everything that does not commute."""
    return soa.models.random_tree(3, 3, kinds=["spherical", "revolute"], shape="chain", floating_base=True)


def endpoint(robot, integrator, steps, span=0.2):
    q = robot.random(jax.random.key(0))
    v = jnp.linspace(-1.0, 1.5, robot.nv)
    run = jax.jit(lambda q, v: soa.rollout(robot, q, v, None, span / steps, steps=steps, integrator=integrator))
    last = jax.tree.map(lambda x: x[-1], run(q, v))
    return q, v, last


@pytest.mark.parametrize("integrator", sorted(INTEGRATORS))
def test_order_of_accuracy_on_the_manifold(floating, integrator):
    _, _, exact = endpoint(floating, "rk4", 640)
    errors = []
    for steps in (10, 20, 40):
        _, _, last = endpoint(floating, integrator, steps)
        errors.append(float(jnp.linalg.norm(floating.difference(exact.q, last.q)) + jnp.linalg.norm(exact.v - last.v)))
    measured = np.log2(np.array(errors[:-1]) / np.array(errors[1:]))
    # The first halving may still be outside the asymptotic range.
    assert measured[-1] > ORDER[integrator] - 0.15, (errors, measured)


def test_momentum_and_energy_of_a_free_body_without_gravity(floating):
    robot = floating.with_gravity(jnp.zeros(3)).frictionless()
    q, v, last = endpoint(robot, "rk4", 200)
    before, after = soa.momentum(robot, q, v), soa.momentum(robot, last.q, last.v)
    np.testing.assert_allclose(after, before, rtol=0, atol=1e-9 * float(jnp.abs(before).max()))
    np.testing.assert_allclose(
        soa.kinetic_energy(robot, last.q, last.v), soa.kinetic_energy(robot, q, v), rtol=1e-9
    )


def test_controller_and_torques_agree_and_checkpointing_changes_no_gradient():
    robot = soa.models.cart_pole()
    q, v = robot.neutral() + 0.1, jnp.zeros(robot.nv)

    def gain(time, q, v):
        return -3.0 * q - v + jnp.sin(time)

    closed = jax.jit(lambda q, v: soa.rollout(robot, q, v, gain, 0.01, steps=30))(q, v)
    states = [(q, v), *zip(closed.q[:-1], closed.v[:-1], strict=True)]
    torques = jnp.stack([gain(k * 0.01, *state) for k, state in enumerate(states)])
    opened = jax.jit(lambda q, v, tau: soa.rollout(robot, q, v, tau, 0.01))(q, v, torques)
    np.testing.assert_allclose(opened.q, closed.q, rtol=1e-12, atol=1e-14)

    def cost(tau, checkpoint):
        last = soa.rollout(robot, q, v, tau, 0.01, checkpoint=checkpoint)
        return jnp.sum(last.q[-1] ** 2) + jnp.sum(last.v[-1] ** 2)

    plain = jax.jit(jax.grad(lambda tau: cost(tau, False)))(torques)
    saved = jax.jit(jax.grad(lambda tau: cost(tau, True)))(torques)
    np.testing.assert_allclose(saved, plain, rtol=1e-12, atol=1e-14)
    bump = jnp.zeros_like(torques).at[5, 0].set(1e-6)
    difference = (cost(torques + bump, False) - cost(torques - bump, False)) / 2e-6
    np.testing.assert_allclose(plain[5, 0], difference, rtol=1e-6)


def test_refusals_say_what_is_wrong():
    robot = soa.models.pendulum()
    q, v = robot.neutral(), jnp.zeros(1)
    with pytest.raises(ValueError, match="semi_implicit_euler"):
        soa.step(robot, q, v, v, 0.01, integrator="euler")
    with pytest.raises(ValueError, match="steps"):
        soa.rollout(robot, q, v, None, 0.01)
    with pytest.raises(ValueError, match=r"\(steps, nv\)"):
        soa.rollout(robot, q, v, jnp.zeros((3, 2)), 0.01)
