"""Scenes of several surfaces and of terrain: a groove, a staircase, a slope of a height field."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contact_cases import G, ball, block, bottom

from jaxsoa import contact

DT = 2e-3


def _simulate(robot, scene, q, v, steps):
    def one(state, _):
        s = contact.step(robot, scene, *state, jnp.zeros(robot.nv), DT)
        return (s.q, s.v), (s.q, s.v, s.impulses, s.residual)

    return tuple(np.asarray(x) for x in jax.jit(lambda q, v: jax.lax.scan(one, (q, v), length=steps)[1])(q, v))


@pytest.mark.slow
def test_a_ball_rests_in_a_groove():
    """Two planes at 30 and 60 degrees, no friction: their forces balance the weight."""
    robot, angles = ball(0.1), np.deg2rad([-30.0, 60.0])
    normals = np.stack([np.sin(angles), np.zeros(2), np.cos(angles)], axis=1)
    scene = contact.Scene(contact.Points("ball", radii=[0.1]), [contact.Plane(n) for n in normals], 0.0)
    center = np.linalg.solve(normals[:, [0, 2]], [0.1, 0.1])
    q = robot.neutral().at[jnp.array([4, 6])].set(center)
    q, v, impulses, residual = _simulate(robot, scene, q, jnp.zeros(6), 20)
    assert residual.max() < 1e-12 and np.abs(v).max() < 1e-12
    forces = np.linalg.solve(normals[:, [0, 2]].T, [0, G])
    assert impulses[-1] / DT == pytest.approx(forces[:, None] * normals, abs=1e-8)


@pytest.mark.slow
def test_a_ball_goes_down_the_stairs():
    """Boxes as steps: it falls from one to the next, and ends at rest in the corner of a wall of several planes."""
    robot = ball(0.05)
    stairs = [contact.Box((0.4, 1.0, 0.2 * (3 - k)), (0.4 * k + 0.2, 0, 0.1 * (3 - k))) for k in range(3)]
    surfaces = [*stairs, contact.Plane(), contact.Plane((-1, 0, 0), -2.0)]
    scene = contact.Scene(contact.Points("ball", radii=[0.05]), surfaces, 0.3)
    q = robot.neutral().at[jnp.array([4, 6])].set(jnp.array([0.2, 0.65]))
    q, v, impulses, residual = _simulate(robot, scene, q, jnp.zeros(6).at[3].set(0.8), 1500)
    assert residual.max() < 1e-8
    x, height = q[:, 4], q[:, 6] - 0.05
    for k, level in enumerate((0.6, 0.4, 0.2)):
        on = (x > 0.4 * k + 0.3) & (x < 0.4 * k + 0.4)
        assert height[on].min() > level - 1e-3  # first order in the step, where it rolls over the edge
    assert x[-1] == pytest.approx(1.95, abs=1e-3) and height[-1] == pytest.approx(0, abs=1e-6)
    assert np.abs(v[-1, 3:]).max() < 1e-6
    assert impulses[-1, :, 2].sum() == pytest.approx(G * DT, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("friction", [0.5, 0.2])
def test_a_slope_of_a_height_field_is_a_slope(friction):
    """20 degrees, twice the cells that the block covers: it sticks, or slides by the closed form."""
    slope = np.deg2rad(20)
    x = np.linspace(-1, 1, 21)
    terrain = contact.HeightField(np.tile(-np.tan(slope) * x[:, None], (1, 21)), 0.1, (-1, -1))
    robot = block()
    scene = contact.Scene(contact.Points(["block"] * 4, bottom()), terrain, friction)
    turn, normal = [np.cos(slope / 2), 0, np.sin(slope / 2), 0], np.array([np.sin(slope), 0, np.cos(slope)])
    start = jnp.asarray(np.concatenate([turn, 0.05 * normal]))
    q, v, _, residual = _simulate(robot, scene, start, jnp.zeros(6), 100)
    assert residual.max() < 1e-11
    pull = max(G * (np.sin(slope) - friction * np.cos(slope)), 0)
    assert v[-1, 3] == pytest.approx(pull * 100 * DT, rel=1e-9, abs=1e-11)
    assert np.abs((q[:, 4:] - np.asarray(start[4:])) @ normal).max() < 1e-11
