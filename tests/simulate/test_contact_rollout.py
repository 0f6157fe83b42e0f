"""Contact inside of rollouts: what is recorded, what warns, loops in the same solve."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsoa as soa
from jaxsoa import contact

sys.path.insert(0, str(Path(__file__).parents[1] / "contact"))

from contact_cases import G, about_y, block, bottom

DT = 2e-3


def _sliding(settings=None):
    robot = block()
    scene = contact.Scene(contact.Points(["block"] * 4, bottom()), contact.Plane(), 0.5, settings=settings)
    return robot, scene, robot.neutral().at[6].set(0.05), jnp.zeros(6).at[3].set(1.0)


def test_a_rollout_records_impulses_and_residuals_and_warns_where_it_was_not_solved():
    robot, scene, q, v = _sliding()
    options = {"steps": 6, "contact": scene}

    def seen(sample):
        return sample.q, sample.contact.impulses, sample.contact.residual, sample.contact.gaps

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        path, impulses, residual, gaps = soa.rollout(robot, q, v, None, DT, record=seen, **options)
    by_hand = contact.step(robot, scene, q, v, jnp.zeros(6), DT)
    assert np.asarray(path[0]) == pytest.approx(np.asarray(by_hand.q), abs=1e-12)
    assert np.asarray(impulses.sum(axis=1)) == pytest.approx(
        np.tile([-0.5 * G * DT, 0, G * DT], (6, 1)), rel=1e-9, abs=1e-12
    )
    assert residual.shape == (6,) and float(residual.max()) < 1e-12
    assert gaps.shape == (6, 4)
    every = soa.rollout(robot, q, v, None, DT, record=seen, every=3, **options)
    assert np.asarray(every[0]) == pytest.approx(np.asarray(path[2::3]), abs=1e-14)
    assert np.asarray(every[1]) == pytest.approx(np.asarray(impulses[2::3]), abs=1e-14)

    robot, hasty, q, v = _sliding(contact.Settings(1, 1, 0, 0))
    with pytest.warns(UserWarning, match="stopped at a residual"):
        soa.rollout(robot, q, v, None, DT, steps=2, contact=hasty)
    residual = jax.jit(
        lambda q: soa.rollout(robot, q, v, None, DT, steps=2, contact=hasty, record=lambda s: s.contact.residual)
    )(q)
    assert float(residual.max()) > 1e-6  # inside of jit it is there to be looked at


@pytest.mark.slow
def test_a_closed_chain_stands_on_the_ground_by_its_loop():
    """Two struts on slides meet in a hinge that a loop closes; they carry a weight, feet on the ground pushed apart."""
    builder = soa.Builder("trestle")
    for name in ("left", "right"):
        builder.link(name, joint="free", mass=1.0, inertia=0.1 * np.eye(3))
    robot = builder.build()
    # Each strut runs from its foot, at -0.5 along its own z, to the ridge at +0.5.
    for name in ("left", "right"):
        robot = robot.with_frame(f"{name} ridge", name, np.eye(3), (0, 0, 0.5))
    hinge = soa.closed_chain.Loop("left ridge", "right ridge", free=[[0, 1, 0, 0, 0, 0]])
    feet = contact.Points(["left", "right"], [(0, 0, -0.5), (0, 0, -0.5)])

    def posed(angle):
        """Feet on the ground, ridge above the middle."""
        x, z = 0.5 * np.sin(angle), 0.5 * np.cos(angle)
        turn = [np.concatenate([about_y(sign * angle), [-sign * x, 0, z]]) for sign in (1, -1)]
        return jnp.asarray(np.concatenate(turn))

    def run(friction, angle):
        scene = contact.Scene(feet, contact.Plane(), friction)
        q = posed(angle)
        shown = lambda s: (s.q, s.v, s.contact)  # noqa: E731
        return soa.rollout(robot, q, jnp.zeros(12), None, DT, steps=100, contact=scene, loops=(hinge,), record=shown)

    angle = 0.5  # from the vertical; friction tan(angle) / 2 holds it, by statics
    needed = np.tan(angle) / 2
    q, v, s = jax.jit(lambda mu: run(mu, angle))(1.05 * needed)
    assert float(s.residual.max()) < 1e-9
    assert np.abs(v).max() < 1e-9 and np.abs(q - q[0]).max() < 1e-9
    assert np.asarray(s.impulses[-1]) / DT == pytest.approx(
        np.array([[needed * G, 0, G], [-needed * G, 0, G]]), rel=1e-8, abs=1e-8
    )
    assert np.linalg.norm(s.loop_impulses[-1]) / DT == pytest.approx(needed * G, rel=1e-8)  # the struts lean
    q, v, s = jax.jit(lambda mu: run(mu, angle))(0.9 * needed)
    assert float(s.residual.max()) < 1e-9
    ridge = jax.vmap(lambda q: soa.frame_pose(robot, q, "left ridge")[1] - soa.frame_pose(robot, q, "right ridge")[1])(
        q
    )
    assert np.abs(ridge).max() < 1e-4  # first order in the step, pulled back by `recovery`
    assert float(v[-1].max()) > 0.01  # it gives way
