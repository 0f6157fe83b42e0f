"""Contact as a passive force."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contact_cases import ball

import jaxsoa as soa
from jaxsoa import contact


def test_forces_are_those_of_the_formula_and_vanish_above_the_ground():
    robot = ball(0.1, mass=2.0)
    force = contact.Compliant(contact.Points("ball", radii=[0.1]), contact.Plane(), 1e4, 0.5, 0.3, slip_speed=0.01)
    at = jax.jit(
        lambda z, v: (
            force.forces(robot, robot.neutral().at[6].set(z), v)[0],
            force(robot, robot.neutral().at[6].set(z), v),
        )
    )
    v = jnp.zeros(6).at[jnp.array([3, 5])].set(jnp.array([0.02, -0.4]))
    f, tau = at(0.09, v)
    pressing = 1e4 * 0.01**1.5 * (1 + 0.5 * 0.4)
    assert np.asarray(f) == pytest.approx([-0.3 * pressing * 0.02 / np.hypot(0.02, 0.01), 0, pressing], rel=1e-9)
    # The friction also turns the ball: its arm is the way from the centre to where they touch.
    assert np.asarray(tau) == pytest.approx(np.array([0, -0.1 * f[0], 0, f[0], 0, f[2]]), rel=1e-9, abs=1e-12)
    assert not np.asarray(at(0.11, v)[0]).any()
    assert not np.asarray(at(0.09, v.at[5].set(3.0))[0])[2]  # leaving fast, it does not pull


def test_bad_numbers_are_refused():
    points = contact.Points("ball", radii=[0.1])
    with pytest.raises(ValueError, match="stiffness must not be negative"):
        contact.Compliant(points, contact.Plane(), -1.0)
    with pytest.raises(ValueError, match="damping must be one number or one per point"):
        contact.Compliant(points, contact.Plane(), 1.0, [1.0, 2.0])


@pytest.mark.slow
def test_an_adaptive_step_mends_the_derivative_of_a_stiff_bounce():
    """Without gravity and loss, a ball that starts higher by something ends lower by as much: -1. Fixed steps that
    follow the motion itself to a few per cent are off by more than half; steps to a tolerance are not."""
    diffrax = pytest.importorskip("diffrax")
    options = {"adjoint": diffrax.ForwardMode()}
    robot = ball(0.1).replace(gravity=np.zeros(3))
    force = contact.Compliant(contact.Points("ball", radii=[0.1]), contact.Plane(), 1e6, 0.0, 0.0)
    v, end = jnp.zeros(6).at[5].set(-1.0), 0.4

    def start(z):
        return robot.neutral().at[6].set(0.1 + z)

    def fixed(z):
        return soa.rollout(robot, start(z), v, None, 2e-3, steps=200, passive=force, record="final").q[6]

    def adaptive(z):
        times = jnp.array([0.0, end])
        return soa.simulate.solve_adaptively(robot, start(z), v, None, times, passive=force, **options).q[-1, 6]

    (z_fixed, d_fixed), (z, d) = (
        jax.jit(lambda z, f=f: jax.jvp(f, (z,), (jnp.ones(()),)))(0.2) for f in (fixed, adaptive)
    )
    assert float(z) == pytest.approx(0.1 + 0.2, abs=0.02)  # the bounce takes its time
    assert float(z_fixed) == pytest.approx(float(z), rel=0.05)
    assert float(d) == pytest.approx(-1, abs=0.03)  # the tolerance is that of the motion, not of its derivative
    assert abs(float(d_fixed) + 1) > 0.5
