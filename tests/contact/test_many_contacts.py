"""A thousand contacts under one rigid plate: the equations have rank six, forces are shared somehow and sum up."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contact_cases import G, block

from jaxsoa import contact

DT = 2e-3


@pytest.mark.slow
def test_a_plate_rests_and_slides_on_a_thousand_points():
    size, mass = (1.0, 0.8, 0.02), 3.0
    robot = block(size, mass)
    x, y = np.meshgrid(np.linspace(-0.5, 0.5, 40), np.linspace(-0.4, 0.4, 25))
    points = np.stack([x.ravel(), y.ravel(), np.full(x.size, -0.01)], axis=1)
    assert len(points) == 1000
    scene = contact.Scene(contact.Points(["block"] * 1000, points), contact.Plane(), 0.5)
    q = robot.neutral().at[6].set(0.01)
    step = jax.jit(lambda v: contact.step(robot, scene, q, v, jnp.zeros(6), DT))
    for speed in (0.0, 1.0):
        s = step(jnp.zeros(6).at[3].set(speed))
        impulses = np.asarray(s.impulses)
        assert np.isfinite(impulses).all() and float(s.residual) < 1e-6
        assert impulses.sum(axis=0) / DT == pytest.approx([-0.5 * mass * G * (speed > 0), 0, mass * G], abs=1e-6)
        assert np.asarray(s.v) == pytest.approx([0, 0, 0, speed and speed - 0.5 * G * DT, 0, 0], abs=1e-9)
        assert np.isfinite(np.asarray(s.q)).all()
