"""What is built on derivatives of contact: identification from recorded motion, and control through contact."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsoa as soa
from jaxsoa import contact, identify, optimize

DT = 5e-3


def slider() -> soa.Multibody:
    """A load on a carriage: along x, and up."""
    builder = soa.Builder("slider")
    builder.link("carriage", joint="prismatic", axis=(1, 0, 0), mass=0.2, inertia=0.01 * np.eye(3))
    builder.link("load", joint="prismatic", parent="carriage", axis=(0, 0, 1), mass=1.0, inertia=0.01 * np.eye(3))
    return builder.build()


def _recorded(robot, scene, q, v, tau):
    """Motions from starts (n, ...) under torques (n, steps, nv)."""
    path = jax.jit(jax.vmap(lambda q, v, tau: soa.rollout(robot, q, v, tau, DT, contact=scene)))(q, v, tau)
    q, v = (np.concatenate([a[:, None], np.asarray(b)], axis=1) for a, b in ((q, path.q), (v, path.v)))
    return identify.TrajectoryData(q, v, np.asarray(tau), DT)


@pytest.mark.slow
def test_mass_and_friction_from_a_slide():
    """Pushed and pulled while it slides: the force tells the mass, what is lost the friction."""
    truth = slider()
    scene = contact.Scene(contact.Points("load"), contact.Plane(), jnp.asarray(0.35))
    n, steps = 4, 30
    v = np.zeros((n, 2))
    v[:, 0] = [1.5, 1.0, -1.2, 2.0]
    tau = np.zeros((n, steps, 2))
    tau[:, :, 0] = np.array([2.0, 5.0, 1.0, -2.0])[:, None] * np.linspace(0, 1, steps)
    data = _recorded(truth, scene, np.zeros((n, 2)), v, tau)
    guess = truth.replace(mass=jnp.array([0.2, 1.6]))
    free = {"mass": ["load"], "contact_friction": None}
    start = scene.replace(friction=jnp.asarray(0.6))
    fit = identify.fit(guess, data, free, contact=start, progress=False)
    assert fit.converged
    assert float(fit.robot.mass[1]) == pytest.approx(1.0, rel=1e-6)
    assert float(fit.scene.friction) == pytest.approx(0.35, rel=1e-6)
    assert fit.rms(data).max() < 1e-8
    with pytest.raises(ValueError, match=r"is a number of a contact\.Scene"):
        identify.fit(guess, data, free)


@pytest.mark.slow
def test_restitution_from_bounces():
    robot = slider()
    scene = contact.Scene(contact.Points("load"), contact.Plane(), 0.2, restitution=jnp.asarray(0.7))
    q = np.array([[0.0, 0.05], [0.0, 0.1], [0.0, 0.2]])
    v = np.array([[0.3, -1.0], [0.0, -0.5], [0.5, -2.0]])
    data = _recorded(robot, scene, q, v, np.zeros((3, 30, 2)))
    assert (data.v[:, -1, 1] != 0).all()
    start = scene.replace(restitution=jnp.asarray(0.4))
    fit = identify.fit(robot, data, ("restitution",), contact=start, progress=False)
    assert float(fit.scene.restitution) == pytest.approx(0.7, rel=1e-6)


@pytest.mark.slow
def test_ilqr_finds_a_push_through_friction_by_relaxed_gradients():
    """From rest, no torque: the load sticks, so that the exact derivative by the push is zero and a search by it does
    not begin. By the relaxed one it finds the push that slides the load to its goal and lets it rest there."""
    robot = slider()
    horizon = 30

    def solved(gradient, relaxation=0.02):
        scene = contact.Scene(contact.Points("load"), contact.Plane(), 0.5, gradient=gradient, relaxation=relaxation)
        aim = optimize.LeastSquares(lambda s: jnp.concatenate([30 * (s.q[:1] - 0.1), 3 * s.v[:1]]))
        effort = optimize.LeastSquares(lambda s, u: 0.01 * u)
        problem = optimize.robot_problem(
            robot,
            horizon=horizon,
            dt=0.02,
            running_cost=effort,
            final_cost=aim,
            actuated=["carriage_joint"],
            contact=scene,
        )
        return optimize.ilqr(problem, soa.State(jnp.zeros(2), jnp.zeros(2)), max_iterations=60)

    stuck = solved("exact")
    assert np.abs(np.asarray(stuck.states.q)[-1, 0]) < 1e-6
    plan = solved("relaxed", 0.1)
    assert float(plan.states.q[-1, 0]) == pytest.approx(0.1, abs=5e-3)
    assert abs(float(plan.states.v[-1, 0])) < 0.02
    # What was found is what the robot does under these pushes, contact being hard forward.
    scene = contact.Scene(contact.Points("load"), contact.Plane(), 0.5)
    tau = jnp.zeros((horizon, 2)).at[:, 0].set(plan.controls[:, 0])
    path = soa.rollout(robot, jnp.zeros(2), jnp.zeros(2), tau, 0.02, contact=scene)
    assert np.asarray(path.q[-1]) == pytest.approx(np.asarray(plan.states.q[-1]), abs=1e-8)
