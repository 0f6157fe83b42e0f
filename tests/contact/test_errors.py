"""What is refused, and how; what is documented behaviour instead."""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contact_cases import ball, block, bottom

import jaxsoa as soa
from jaxsoa import contact

POINTS = contact.Points(["ball"], radii=[0.1])


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: contact.Plane((0, 0, 0)), "must not be zero"),
        (lambda: contact.Plane((0, 0, np.nan)), "must be finite"),
        (lambda: contact.Plane((0, 1)), r"shape \(3,\)"),
        (lambda: contact.HeightField(np.zeros(3)), "at least 2 x 2"),
        (lambda: contact.HeightField(np.zeros((2, 2)), -1.0), "positive"),
        (lambda: contact.Points([]), "at least one frame"),
        (lambda: contact.Points(["a"], radii=[-1.0]), "must not be negative"),
        (lambda: contact.Points(["a"], [(0, 0)]), r"shape \(1, 3\)"),
        (lambda: contact.Scene(POINTS, contact.Plane(), friction=-0.1), "friction must not be negative"),
        (lambda: contact.Scene(POINTS, contact.Plane(), restitution=1.1), "restitution must lie between 0 and 1"),
        (lambda: contact.Scene(POINTS, contact.Plane(), restitution=np.nan), "restitution must lie"),
        (lambda: contact.Scene(POINTS, contact.Plane(), friction=[0.1, 0.2]), "friction must have a shape of"),
        (lambda: contact.Scene(POINTS, contact.Plane(), law="columb"), "'coulomb', 'convex'"),
        (lambda: contact.Scene(POINTS, contact.Plane(), gradient="soft"), "'exact', 'relaxed', 'distance'"),
    ],
)
def test_bad_numbers_and_names_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_meshes_and_other_things_are_no_ground():
    with pytest.raises(TypeError, match="meshes are not supported: describe them by points"):
        contact.Scene(POINTS, "terrain.stl")  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match=r"a contact\.Scene"):
        contact.step(ball(), POINTS, *_state(ball()), 1e-3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match=r"contact\.Scene, got str"):
        soa.step(ball(), *_state(ball()), 1e-3, contact="ground")
    with pytest.raises(ValueError, match="semi_implicit_euler"):
        soa.step(ball(), *_state(ball()), 1e-3, contact=contact.Scene(POINTS, contact.Plane()), integrator="rk4")


def _state(robot):
    return robot.neutral(), jnp.zeros(robot.nv), jnp.zeros(robot.nv)


def test_a_scene_of_another_robot_is_named():
    scene = contact.Scene(contact.Points(["bal"]), contact.Plane())
    with pytest.raises(ValueError, match=r"no frame 'bal' for a contact point.*another robot.*'ball'"):
        contact.step(ball(), scene, *_state(ball()), 1e-3)
    scene = contact.Scene(contact.Points(["base"]), contact.Plane())
    with pytest.raises(ValueError, match="fixed to the world"):
        contact.step(ball(), scene, *_state(ball()), 1e-3)
    scene = contact.Scene(POINTS, contact.Ball(0.1, frame="ball"))
    with pytest.raises(ValueError, match="No point of this scene"):
        contact.step(ball(), scene, *_state(ball()), 1e-3)


def test_deep_penetration_is_undone_at_a_limited_speed_and_impulses_stay_in_the_cone():
    """Also with a solver that is stopped at once, which says so outside of jit."""
    robot = block()
    points = contact.Points(["block"] * 4, bottom())
    q, v, tau = robot.neutral().at[6].set(-1.0), jnp.zeros(6).at[3].set(3.0), jnp.zeros(6)
    hasty = contact.Scene(points, contact.Plane(), 0.5, settings=contact.Settings(1, 1, 0, 0))
    scenes = [contact.Scene(points, contact.Plane(), 0.5), hasty]
    steps = [jax.jit(lambda q, scene=scene: contact.step(robot, scene, q, v, tau, 1e-3))(q) for scene in scenes]
    assert float(steps[0].residual) < 1e-10
    assert float(steps[0].v[5]) == pytest.approx(1.0, rel=1e-9)  # recovery_speed
    assert float(steps[1].residual) > 1e-6
    for s in steps:
        impulse = np.asarray(s.impulses)
        assert np.isfinite(impulse).all()
        assert (np.hypot(impulse[:, 0], impulse[:, 1]) <= 0.5 * impulse[:, 2] + 1e-15).all()
    with pytest.warns(UserWarning, match="stopped at a residual"):
        hasty.warn_unsolved(steps[1].residual)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scenes[0].warn_unsolved(steps[0].residual)
