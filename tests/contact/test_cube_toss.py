"""A cube thrown, that lands, slides and comes to rest: the derivative of where it ends by how it was thrown.

The experiment of DiffMJX (arXiv 2506.14186), in which derivatives through MJX's soft contact change from one time step
to the next. Without spin the cube lands flat and the answer has a closed form. It falls for t with t = (v_z + s) / g,
s = sqrt(v_z^2 + 2 g z); the impact takes mu s from its speed, and it slides w^2 / (2 mu g) with w = v_x - mu s:

    x = v_x t + w^2 / (2 mu g),   dx/dv_x = t + w / (mu g),   dx/dv_z = v_x t / s - w v_z / (g s).

(Their cube, its friction and its speeds are others, and so is their value of 0.1715.)
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contact_cases import G, block

from jaxsoa import contact

EDGE, MU, TIME = 0.1, 0.3, 0.9
CORNERS = np.array([(x, y, z) for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)]) * EDGE / 2
HEIGHT, THROW = 0.1, (1.2, 1.0)  # m above the ground; (v_x, v_z)


def _toss(steps: int, corners: np.ndarray, rotation, spin=0.0):
    """(where it ends and how fast it still is, derivative by (v_x, v_z)), in so many steps of TIME / steps."""
    robot = block((EDGE, EDGE, EDGE))
    scene = contact.Scene(contact.Points(["block"] * len(corners), corners), contact.Plane(), MU)
    lowest = -min(_turned(rotation, p)[2] for p in corners)
    q = robot.neutral().at[:4].set(jnp.asarray(rotation)).at[6].set(HEIGHT + lowest)
    dt = TIME / steps

    def final(throw):
        v = jnp.zeros(6).at[1].set(spin)
        world = jnp.array([throw[0], 0.0, throw[1]])
        v = v.at[3:].set(_turned(jnp.asarray(rotation) * jnp.array([1, -1, -1, -1]), world))

        def one(state, _):
            s = contact.step(robot, scene, *state, jnp.zeros(6), dt)
            return (s.q, s.v), s.residual

        (q_end, v_end), residual = jax.lax.scan(one, (q, v), length=steps)
        return q_end[4], (jnp.max(jnp.abs(v_end)), residual.max(), q_end)

    def everything(throw):
        x, aux = final(throw)
        return x, aux, jax.jacfwd(lambda throw: final(throw)[0])(throw)

    return jax.jit(everything)(jnp.array(THROW))


def _turned(quaternion, p):
    w, u = quaternion[0], quaternion[1:]
    return p + 2 * jnp.cross(u, jnp.cross(u, jnp.asarray(p)) + w * jnp.asarray(p))


@pytest.mark.slow
@pytest.mark.parametrize("steps", [300, 900])  # 3 ms and 1 ms
def test_landing_flat_it_has_the_closed_form(steps):
    x, (speed, residual, _), rate = _toss(steps, CORNERS, np.array([1.0, 0, 0, 0]))
    v_x, v_z = THROW
    s = np.sqrt(v_z**2 + 2 * G * HEIGHT)
    t, w = (v_z + s) / G, v_x - MU * s
    assert float(speed) < 1e-9 and float(residual) < 1e-9
    assert float(x) == pytest.approx(v_x * t + w**2 / (2 * MU * G), rel=2e-2)
    expected = [t + w / (MU * G), v_x * t / s - w * v_z / (G * s)]
    assert np.asarray(rate) == pytest.approx(expected, rel=2e-2)


@pytest.mark.slow
def test_tilted_and_spinning_it_tends_to_a_limit_that_differences_confirm():
    """Landing on an edge, falling over onto the face and sliding on: by step refinement."""
    tilt = np.array([np.cos(0.1), 0, np.sin(0.1), 0])
    found = {}
    for steps in (300, 900, 9000):
        x, (_, residual, _), rate = _toss(steps, CORNERS, tilt, spin=0.5)
        assert float(residual) < 1e-8
        found[steps] = float(x), np.asarray(rate)
    for steps in (300, 900):
        assert found[steps][1][0] == pytest.approx(found[9000][1][0], rel=2e-2)
