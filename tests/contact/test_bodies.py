"""Bodies that touch bodies: capsules that cross, a ball on a box, a box on a ball; each pair at rest or in a bounce."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contact_cases import G

import jaxsoa as soa
from jaxsoa import contact

DT = 2e-3


def _two(first: str = "free", second: str = "free") -> soa.Multibody:
    builder = soa.Builder("two")
    builder.link("a", joint=first, mass=2.0, inertia=np.diag([0.02, 0.03, 0.04]))
    builder.link("b", joint=second, mass=1.0, inertia=np.diag([0.01, 0.02, 0.015]))
    return builder.build(gravity=(0, 0, 0))


def _motion(robot, q, v):
    """Momentum about the world's origin (moment, force) and kinetic energy."""
    return np.asarray(soa.momentum(robot, q, v)), float(soa.kinetic_energy(robot, q, v))


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["capsule on capsule", "ball on capsule", "capsule on ball", "ball on box", "ball on plane"]
)
def test_a_bounce_between_free_bodies_keeps_momentum_and_energy(kind):
    """Frictionless and elastic, off the middle, both turning: no oracle but the laws of mechanics."""
    robot = _two()
    segment = {"radii": [0.05], "positions": [(-0.3, 0, 0)], "ends": [(0.3, 0, 0)]}
    points, surface = {
        "capsule on capsule": (segment, contact.Capsule((0, -0.3, 0), (0, 0.3, 0), 0.05, frame="a")),
        "ball on capsule": ({"radii": [0.05]}, contact.Capsule((-0.1, -0.3, 0), (0.1, 0.3, 0), 0.05, frame="a")),
        "capsule on ball": (segment, contact.Ball(0.05, frame="a")),
        "ball on box": ({"radii": [0.05]}, contact.Box((0.5, 0.5, 0.1), frame="a")),
        "ball on plane": ({"radii": [0.05]}, contact.Plane(height=0.05, frame="a")),
    }[kind]
    scene = contact.Scene(contact.Points("b", **points), surface, 0.0, restitution=1.0)
    q = robot.neutral().at[7 + 4 : 7 + 7].set(jnp.array([0.03, 0.02, 0.11]))
    gap = jax.jit(lambda q: contact.gaps(robot, scene, q)[0])
    for _ in range(20):  # down to half a millimetre above it
        q = q.at[13].add(5e-4 - gap(q))
    v = jnp.zeros(12).at[6:].set(jnp.array([0.1, 0.2, 0.3, 0.2, -0.1, -1.0])).at[5].set(0.1)
    s = jax.jit(lambda q, v: contact.step(robot, scene, q, v, jnp.zeros(12), DT))(q, v)
    assert float(s.residual) < 1e-12
    free = soa.step(robot, q, v, jnp.zeros(12), DT)  # to the same accuracy, without a bounce
    assert float(s.impulses[0] @ s.impulses[0]) > 0.1
    assert np.abs(np.asarray(s.v) - np.asarray(free.v)).max() > 0.5
    before, energy = _motion(robot, q, free.v)
    after, energy_after = _motion(robot, q, s.v)
    assert after == pytest.approx(before, abs=1e-12)
    # The gyroscopic part of the step comes between: first order in it.
    assert energy_after == pytest.approx(energy, rel=1e-3)


@pytest.mark.slow
def test_a_capsule_rests_across_another_and_legs_do_not_cross():
    """A rod lies across a fixed one, balanced: its weight is carried at the crossing. Pushed hard, it does not pass."""
    robot = soa.Builder("rod").link("rod", joint="free", mass=1.5, inertia=np.diag([1e-3, 0.1, 0.1])).build()
    lying = contact.Capsule((0, -1, 0), (0, 1, 0), 0.05)
    scene = contact.Scene(contact.Points("rod", [(-0.4, 0, 0)], [0.03], [(0.4, 0, 0)]), lying, 0.8)
    q = robot.neutral().at[6].set(0.08)

    @jax.jit
    def run(q, v, push):
        def one(state, _):
            s = contact.step(robot, scene, *state, jnp.zeros(6).at[5].set(push), DT)
            return (s.q, s.v), (s.q, s.impulses[0], s.residual, s.gaps[0])

        return jax.lax.scan(one, (q, v), length=50)[1]

    _, impulses, residual, _ = run(q, jnp.zeros(6), 0.0)
    assert float(residual.max()) < 1e-10
    assert np.asarray(impulses) / DT == pytest.approx(np.tile([0, 0, 1.5 * G], (50, 1)), abs=1e-6)
    tilted = q.at[4:7].set(jnp.array([0.1, 0.0, 0.2]))
    moving, _, residual, gap = run(tilted, jnp.zeros(6).at[3:].set(jnp.array([0.5, 0.3, -3.0])), -200.0)
    assert float(residual.max()) < 1e-8
    assert float(gap.min()) > -2e-3  # first order in the step, since the rod turns
    assert np.isfinite(moving).all()
