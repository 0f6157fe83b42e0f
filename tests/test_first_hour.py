"""What one meets in the first hour: errors that say what was expected, printed results that fit on a line, one protocol
for integrators, stops that suit the step."""

from __future__ import annotations

import importlib.util
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsoa as soa
from jaxsoa import identify, optimize, simulate
from jaxsoa.cli import main, tables
from jaxsoa.viz.pictures import _Stage
from jaxsoa.viz.render import grid_triangles, shadow_triangles
from jaxsoa.viz.scene import bodies_at

ARM = soa.models.planar_arm(2)
Q, ZERO = jnp.array([0.3, -0.4]), jnp.zeros(2)


def euler(robot, acceleration, q, v, dt):
    v = v + dt * acceleration(q, v)
    return robot.integrate(q, dt * v), v


def problem(**options):
    options = {"horizon": 4, "dt": 0.05, "running_cost": lambda state, torque: torque @ torque} | options
    return optimize.robot_problem(ARM, **options)


def test_external_forces_by_name_are_pointed_to_their_function():
    for call in (soa.forward_dynamics, soa.inverse_dynamics, soa.step):
        with pytest.raises(TypeError, match=r"soa\.external_forces"):
            call(ARM, Q, ZERO, ZERO, **({"dt": 0.1} if call is soa.step else {}), f_ext={"link2": np.ones(6)})
    with pytest.raises(TypeError, match=r"soa\.external_forces"):
        soa.rollout(ARM, Q, ZERO, None, 0.1, steps=2, f_ext={"link2": np.ones(6)})


def test_where_a_trajectory_starts():
    for solver in (optimize.ilqr, optimize.shooting):
        for start, got in ((Q, "ArrayImpl"), ((Q,), "tuple of 1"), ({"q": Q}, "dict")):
            with pytest.raises(TypeError, match=rf"soa.State\(q, v\), got a {got}"):
                solver(problem(), start)
        with pytest.raises(ValueError, match="v must be one velocity"):
            solver(problem(), (Q, jnp.zeros(3)))


def test_a_solution_prints_as_a_line():
    nothing = np.full(3, np.nan)
    history = optimize.History(np.array([2.0, 1.0, 0.5, np.nan]), nothing, nothing)
    found = optimize.Solution(soa.State(Q, ZERO), np.zeros((4, 2)), np.array(0.5), np.array(2), np.array(True), history)
    line = "Solution: horizon 4, 2 controls; cost 0.5 (at first 2); converged after 2 iterations"
    assert repr(found) == str(found) == line
    assert "NOT converged in 2" in repr(found._replace(converged=np.array(False)))
    assert "FAILED" in repr(found._replace(failed=np.True_))
    batch = jax.tree.map(lambda x: np.stack([x, x]), found)
    assert "2 of 2 converged" in repr(batch)


@pytest.mark.parametrize(
    ("integrator", "words"),
    [
        (lambda q, v, dt: (q, v), "takes \\(q, v, dt\\)"),
        (lambda robot, q, v, tau, dt: (q, v), "robot', 'q', 'v', 'tau"),
        (lambda robot, acceleration, q, v, dt: q, "one array of shape \\(2,\\)"),
        (lambda robot, acceleration, q, v, dt: (v, q[:1]), "shapes"),
        ("euler", "semi_implicit_euler"),
        (3, "integrator"),
    ],
)
def test_a_wrong_integrator_is_told_the_protocol(integrator, words):
    with pytest.raises((TypeError, ValueError), match=words) as told:
        soa.rollout(ARM, Q, ZERO, None, 0.1, steps=2, integrator=integrator)
    assert "ntegrator" in str(told.value)


def test_one_integrator_serves_steps_rollouts_and_problems():
    named = jax.jit(lambda q: soa.rollout(ARM, q, ZERO, None, 0.05, steps=4))(Q)
    own = jax.jit(lambda q: soa.rollout(ARM, q, ZERO, None, 0.05, steps=4, integrator=euler))(Q)
    np.testing.assert_allclose(own.q, named.q, atol=1e-14)
    here = problem(integrator=euler)
    assert here.dynamics.integrator == problem(integrator=euler).dynamics.integrator  # one compiled program for both
    states = jax.jit(lambda q: optimize.simulate_controls(here, (q, ZERO), jnp.zeros((4, 2))))(Q)
    np.testing.assert_allclose(states.q[1:], named.q, atol=1e-14)
    with pytest.raises(TypeError, match="integrator="):
        problem(step="rk4")
    with pytest.raises(TypeError, match=r"takes \(q, v\)"):
        problem(step=lambda q, v: (q, v))
    with pytest.raises(ValueError, match="not both"):
        problem(step=lambda robot, q, v, tau, dt: (q, v), integrator="rk4")


def test_data_that_says_nothing_is_refused():
    nothing = identify.TorqueData(*(np.zeros((30, 2)),) * 4)
    with pytest.raises(ValueError, match="all zeros"):
        identify.fit(ARM, nothing, progress=False)
    with pytest.raises(ValueError, match="no samples"):
        identify.fit(ARM, nothing.take(slice(0)), progress=False)
    with pytest.raises(ValueError, match="leaves nothing"):
        identify.prepare(np.arange(50) * 0.01, np.ones((50, 2)), np.ones((50, 2)), cutoff=5.0)


def test_export_without_flatbuffers_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"jaxsoa\[export\]"):
        soa.export_function(tmp_path / "arm.bin", soa.forward_dynamics, ARM)


def limited(span=0.1, *, light=1.0):
    builder = soa.Builder("slide")
    options = {"axis": (0, 0, 1), "lower": -span, "upper": span}
    return builder.link("finger", joint="prismatic", mass=light, **options).build()


def test_stops_without_a_stiffness_are_stable_at_every_step():
    """A slide falls on its lower limit and stays there, to g / FREQUENCY^2, or what the step allows."""
    robot, options = limited(), {"steps": 1500, "passive": simulate.JointLimits()}

    @jax.jit
    @jax.vmap
    def fall(mass, dt):
        return soa.rollout(robot.replace(mass=mass[None]), jnp.zeros(1), jnp.zeros(1), None, dt, **options)

    masses, steps = np.array([1e-3, 1e-3, 1e-3, 1.0, 50.0]), np.array([1e-3, 5e-3, 2e-2, 1e-3, 2e-2])
    motion = fall(jnp.asarray(masses), jnp.asarray(steps))
    rate = np.minimum(simulate.joint_limits.FREQUENCY, 0.2 / steps)
    end, lowest = motion.q[:, -1, 0], motion.q[:, :, 0].min(axis=1)
    sunk = 9.81 / rate**2 + 0.004  # the spring sets in over a width of 0.02 * 0.2 m
    assert (end < -0.1).all() and (end > -0.1 - sunk).all()
    assert (lowest > -0.1 - sunk - 2.0 / rate).all() and np.abs(motion.v[:, -1]).max() < 1e-2


def test_stops_that_are_too_stiff_for_the_step_are_told():
    stiff, light = simulate.JointLimits(1e4, 1e2), limited(light=1e-3)
    with pytest.warns(UserWarning, match="unstable at a step of 0.001 s: joint 'finger_joint'"):
        soa.rollout(light, jnp.zeros(1), jnp.zeros(1), None, 1e-3, steps=1, passive=stiff)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        soa.rollout(limited(light=1.0), jnp.zeros(1), jnp.zeros(1), None, 1e-3, steps=1, passive=stiff)
    with pytest.raises(ValueError, match="for_step"):
        simulate.JointLimits()(light, jnp.zeros(1), jnp.zeros(1))


def test_the_ground_of_a_picture_is_at_zero():
    """A body high up is seen high up, over a grid at z = 0; what is below the ground throws no shadow on it."""
    robot = soa.Builder("ball").link("ball", joint="free", mass=1.0, inertia=0.01 * np.eye(3)).build()
    heights = {}
    for height in (2.0, -2.0):
        q = robot.neutral().at[6].set(height)
        stage = _Stage(robot, q, None, None, None, None, False, (200, 150), (0.5, 0.4))
        bodies = bodies_at(robot, stage.shapes, stage.where, 0)
        heights[height] = len(shadow_triangles(bodies, stage.camera).points)
        rows = grid_triangles(stage.camera, stage.low, stage.high).points[..., 1]
        ball = stage.camera.project(np.array([[0, 0, height]]))[0][0, 1]
        assert (ball < rows).mean() > 0.9 if height > 0 else (ball > rows).mean() > 0.9
    assert heights[2.0] > 0 and heights[-2.0] == 0


def test_a_motion_in_csv_is_read_back(tmp_path, capsys):
    path, times = tmp_path / "m.csv", np.arange(3) * 0.1
    q = np.random.default_rng(0).normal(size=(3, 2))
    names = tables.coordinate_names(ARM)[0]
    tables.write_csv(path, {"time": times, **dict(zip(names, q.T, strict=True)), "energy": times})
    from jaxsoa.cli.view import _trajectory

    found, dt = _trajectory(path, ARM)
    np.testing.assert_array_equal(found, q)
    assert dt == pytest.approx(0.1)
    for name, text, words in (("a.csv", "time,q.other\n0,1\n", "no column"), ("b.csv", "time\nx\n", "numbers")):
        (tmp_path / name).write_text(text)
        assert main(["view", "pendulum:2", "--trajectory", str(tmp_path / name)]) == 2
        assert words in capsys.readouterr().err
    (tmp_path / "c.npz").write_text("time,q\n")
    assert main(["view", "pendulum:2", "--trajectory", str(tmp_path / "c.npz")]) == 2
    told = capsys.readouterr().err
    assert "is not a motion" in told and "pickle" not in told
