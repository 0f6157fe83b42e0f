"""All columns of a step's derivative at once, against differences and against one tangent at a time."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_gradients import DT, STATES, _inputs, hopper

import jaxsoa as soa
from jaxsoa import contact


def _floating():
    """A body on a free joint with one leg, its joint at a limit, friction and a spring in it."""
    builder = soa.Builder("hopper")
    inertia = np.diag([0.02, 0.03, 0.025])
    builder.link("body", joint="free", mass=2.0, inertia=inertia, com=(0.01, 0, 0.02))
    builder.link(
        "leg", joint="revolute", parent="body", axis=(0, 1, 0), mass=0.5, inertia=0.2 * inertia, com=(0, 0, -0.1),
        damping=0.1, friction=0.2, armature=0.02, lower=-0.2, upper=0.5,
    )  # fmt: skip
    robot = builder.build()
    return robot.replace(stiffness=jnp.zeros(7).at[6].set(3.0), rest=robot.neutral())


def _differences(robot, scene, q, v, tau, eps=1e-6):
    """(A, B) by central differences."""
    size = 3 * robot.nv
    moves = eps * np.concatenate([np.zeros((1, size)), np.eye(size), -np.eye(size)]).reshape(-1, 3, robot.nv)

    @jax.jit
    def ends(q, v, tau):
        def end(d):
            return contact.step(robot, scene, robot.integrate(q, d[0]), v + d[1], tau + d[2], DT)[:2]

        q1, v1 = jax.lax.map(end, jnp.asarray(moves))
        return jax.vmap(lambda q, v: jnp.concatenate([robot.difference(q1[0], q), v]))(q1, v1)

    ahead, behind = np.split(np.asarray(ends(q, v, tau))[1:], 2)
    columns = (ahead - behind).T / (2 * eps)
    return columns[:, : 2 * robot.nv], columns[:, 2 * robot.nv :]


@pytest.mark.slow
@pytest.mark.parametrize("law, compliance", [("coulomb", 0.0), ("convex", 1e-5)])
def test_matrices_are_the_derivatives_of_the_step(law, compliance):
    robot, cases = hopper(), []
    for name in STATES:
        _, scene, q, v, tau = _inputs(robot, name, 0.0, compliance)
        cases.append((robot, scene.replace(law=law), q, v, tau))
    floating = _floating()
    scene = contact.Scene(contact.Points(["leg", "body"], [(0, 0, -0.2), (0.1, 0, -0.1)]), contact.Plane(), 0.6,
                          law=law, compliance=compliance, limits=True)  # fmt: skip
    q = floating.neutral().at[:4].set(jnp.array([0.98, 0.1, 0.15, -0.05])).at[7].set(0.499)
    q = floating.normalize(q)
    q = q.at[6].add(-jnp.min(contact.gaps(floating, scene, q)) - 1e-4)
    cases.append((floating, scene, q, jnp.array([0.1, 0.3, -0.2, 0.3, 0.1, -0.4, 0.8]), jnp.linspace(-0.5, 0.5, 7)))
    for robot, scene, q, v, tau in cases:
        linearized = jax.jit(lambda *x, r=robot, s=scene: soa.linearize_step(r, *x, DT, contact=s))
        for found, expected in zip(linearized(q, v, tau), _differences(robot, scene, q, v, tau), strict=True):
            assert np.asarray(found) == pytest.approx(expected, rel=1e-6, abs=1e-6 * np.abs(expected).max())


@pytest.mark.slow
@pytest.mark.parametrize("gradient", ["relaxed", "distance"])
def test_smoothed_gradients_are_those_of_the_rule(gradient):
    """One tangent at a time, and in a batch; and exact matrices themselves have derivatives, by the friction say."""
    robot = hopper()
    states = [_inputs(robot, name, 0.0, 0.0)[1:] for name in ("slides", "separates", "lands")]
    scene = states[0][0].replace(gradient=gradient)
    q, v, tau = (jnp.stack(parts) for parts in list(zip(*states, strict=True))[1:])

    def by_rule(q, v, tau):
        def moved(dq, dv, dtau):
            s = contact.step(robot, scene, robot.integrate(q, dq), v + dv, tau + dtau, DT)
            return jnp.concatenate([robot.difference(q, s.q), s.v])

        zero = jnp.zeros(robot.nv)
        return jnp.concatenate(jax.jacfwd(moved, argnums=(0, 1, 2))(zero, zero, zero), axis=1)

    expected = np.asarray(jax.jit(jax.vmap(by_rule))(q, v, tau))
    A, B = jax.jit(jax.vmap(lambda *x: soa.linearize_step(robot, *x, DT, contact=scene)[:2]))(q, v, tau)
    found = np.concatenate([A, B], axis=2)
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-9 * np.abs(expected).max())

    def one_number(friction):
        of = soa.linearize_step(
            robot, q[0], v[0], tau[0], DT, contact=scene.replace(friction=friction, gradient="exact")
        )
        return jnp.sum(of.A * jnp.cos(jnp.arange(144.0)).reshape(12, 12))

    rate, ends = jax.jit(lambda mu: (jax.grad(one_number)(mu), one_number(mu + 1e-6) - one_number(mu - 1e-6)))(0.2)
    assert float(rate) == pytest.approx(float(ends) / 2e-6, rel=1e-5)
