"""Contact as a passive force."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contact_cases import ball

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
