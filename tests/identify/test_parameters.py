"""Coordinates of the free numbers: round trips, physical for every value, chosen by name, row or function."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.compare import assert_close

import jaxsoa as soa
from jaxsoa import contact, identify
from jaxsoa.identify.parameters import BLOCKS, Parameters
from jaxsoa.identify.straight_steps import StraightSteps, divergences


def _robot() -> soa.Multibody:
    return soa.models.random_tree(3, 3, kinds=["revolute"], armature=True, damping=True)


def _random_theta(parameters: Parameters, seed: int, size: float = 0.3) -> np.ndarray:
    return size * np.random.default_rng(seed).normal(size=parameters.size)


def test_pseudo_inertia_is_that_of_point_masses():
    rng = np.random.default_rng(0)
    m, r = rng.uniform(0.1, 1, 20), rng.normal(size=(20, 3))
    com = m @ r / m.sum()
    d = r - com
    squares = np.einsum("ki,ki->k", d, d)[:, None, None] * np.eye(3)
    inertia = np.einsum("k,kij->ij", m, squares - d[:, :, None] * d[:, None])
    homogeneous = np.column_stack([r, np.ones(20)])
    expected = np.einsum("k,ki,kj->ij", m, homogeneous, homogeneous)
    P = identify.pseudo_inertia(jnp.asarray(m.sum()), jnp.asarray(com), jnp.asarray(inertia))
    assert_close(P, expected, 1e-13)
    mass, c, I = identify.from_pseudo_inertia(P)
    assert_close(mass, m.sum(), 1e-13)
    assert_close(c, com, 1e-13)
    assert_close(I, inertia, 1e-12)


def test_log_cholesky_is_a_chart_of_definite_matrices():
    rng = np.random.default_rng(1)
    A, B = (x @ x.T + 0.1 * np.eye(4) for x in rng.normal(size=(2, 4, 4)))
    x = identify.log_cholesky(jnp.asarray(A), jnp.asarray(B))
    assert_close(identify.from_log_cholesky(x, jnp.asarray(B)), A, 1e-12)
    assert_close(identify.log_cholesky(jnp.asarray(B), jnp.asarray(B)), np.zeros(10), 1e-12)
    # The divergence of the literature, in these coordinates.
    ratio = np.linalg.solve(B, A)
    expected = np.trace(ratio) - np.linalg.slogdet(ratio)[1] - 4
    bounded = np.arange(10) < 4
    assert_close(jnp.sum(divergences(x, bounded)), expected, 1e-11)


def test_round_trip_of_every_block():
    robot = _robot()
    free = [name for name in BLOCKS if name not in ("mass", "com", "inertia", "gravity")]
    scene = contact.Scene(contact.Points([robot.link_names[-1]] * 2), contact.Plane(), 0.5, [0.2, 0.3], 1e-4)
    parameters = Parameters.of(robot, free, scene=scene)
    theta = _random_theta(parameters, 2)
    candidate = jax.jit(parameters.decode)(theta)
    assert_close(parameters.encode(*candidate), theta, 1e-10)
    assert 0 < candidate.scene.restitution.min() and candidate.scene.restitution.max() < 1
    assert len(set(parameters.names)) == parameters.size
    assert np.asarray(identify.consistency(candidate.robot)).min() > 0
    for leaf in ("mass", "damping", "armature", "friction", "friction_velocity"):
        assert np.asarray(getattr(candidate.robot, leaf)).min() > 0
    turns = np.asarray(candidate.robot.joint_rotation)
    assert_close(turns @ turns.swapaxes(1, 2), np.broadcast_to(np.eye(3), turns.shape), 1e-12)
    assert_close(np.linalg.norm(candidate.robot.gravity), np.linalg.norm(robot.gravity), 1e-12)
    other = Parameters.of(robot, ("mass", "com", "inertia", "gravity"))
    theta = _random_theta(other, 3)
    assert_close(other.encode(jax.jit(other.decode)(theta).robot), theta, 1e-10)


def test_zero_is_the_prior_and_any_theta_is_physical():
    robot = _robot()
    parameters = Parameters.of(robot, ("inertial", "damping"))
    decode = jax.jit(parameters.decode)
    at_zero = decode(np.zeros(parameters.size)).robot
    for leaf in ("mass", "com", "inertia", "damping"):
        assert_close(getattr(at_zero, leaf), getattr(robot, leaf), 1e-12)
    for seed in range(5):
        far = decode(_random_theta(parameters, seed, 3.0)).robot
        assert np.linalg.eigvalsh(identify.link_pseudo_inertias(far))[:, 0].min() > 0
        principal = np.linalg.eigvalsh(far.inertia)
        assert (principal[:, 0] + principal[:, 1] > principal[:, 2]).all()  # the triangle inequality


def test_a_choice_of_rows_leaves_the_others_alone():
    robot = _robot()
    link, joint = robot.link_names[1], robot.joint_names[2]
    mask = np.zeros((3, 3), bool)
    mask[0, 2] = True
    parameters = Parameters.of(robot, {"inertial": link, "friction": [joint], "joint_position": mask, "axis": [joint]})
    assert parameters.size == 10 + 1 + 1 + 2
    assert parameters.names[10:] == [f"friction[{joint}]", f"joint_position[{robot.link_names[0]}].z"] + [
        f"axis[{robot.link_names[2]}].{k}" for k in "12"
    ]
    moved = parameters.decode(_random_theta(parameters, 4)).robot
    for leaf, changed in {"mass": [1], "com": [1], "inertia": [1], "friction": [2], "axis": [2]}.items():
        old, new = np.asarray(getattr(robot, leaf)), np.asarray(getattr(moved, leaf))
        for row in range(3):
            assert (old[row] == new[row]).all() == (row not in changed), (leaf, row)
    assert (np.asarray(moved.joint_position - robot.joint_position) != 0).sum() == 1


def test_a_function_chooses_leaves():
    parameters = Parameters.of(_robot(), lambda robot: (robot.mass, robot.damping))
    assert list(parameters.blocks) == ["mass", "damping"]


def test_straight_steps_are_straight_and_their_derivatives_right():
    """Pseudo-inertias move linearly, and tangents and penalties agree with finite differences."""
    robot = _robot()
    parameters = Parameters.of(robot, ("inertial", "damping", "offset"))
    steps = StraightSteps(parameters)
    rng = np.random.default_rng(5)
    theta, delta = _random_theta(parameters, 6), 0.1 * rng.normal(size=parameters.size)
    decode = jax.jit(parameters.decode)

    def pseudo(factor):
        robot = decode(steps.move(theta, factor * delta)).robot
        return np.asarray(identify.link_pseudo_inertias(robot)), np.asarray(robot.damping)

    for half, start, end in zip(pseudo(0.5), pseudo(0.0), pseudo(1.0), strict=True):
        assert_close(half, (start + end) / 2, 1e-12)
    step = 1e-6
    difference = (steps.move(theta, step * delta) - steps.move(theta, -step * delta)) / (2 * step)
    assert_close(steps.tangents(theta) @ delta, difference, 1e-8)
    precision = np.full(parameters.size, 0.7)
    for weights in ((precision,), (precision, precision / 30)):
        _, gradient, curvature = steps.penalty(theta, *weights)
        values = [steps.penalty(steps.move(theta, s * delta), *weights)[0] for s in (-1e-3, 0.0, 1e-3)]
        assert abs((values[2] - values[0]) / 2e-3 - gradient @ delta) < 1e-5
        assert abs((values[2] - 2 * values[1] + values[0]) / 1e-6 - delta @ (curvature * delta)) < 1e-4
    # With a weaker pull the least is where everything is larger by the ratio.
    larger = np.where(steps.bounded & steps.has_border, np.log(30), 0.0)
    np.testing.assert_allclose(steps.penalty(larger, *weights)[1][steps.has_border], 0, atol=1e-13)
    longest = steps.longest(delta * 20)
    assert np.isfinite(steps.move(theta, 0.999 * longest * delta * 20)).all()
    with np.errstate(invalid="ignore"), pytest.raises(np.linalg.LinAlgError):
        moved = steps.move(theta, 1.001 * longest * delta * 20)
        if not np.isfinite(moved).all():  # it was damping that became negative
            raise np.linalg.LinAlgError


def test_make_physical():
    rod = soa.models.pendulum(1)
    flat = rod.replace(inertia=jnp.diag(jnp.array([1.0, 0.1, 0.2]))[None])  # violates the triangle inequality
    assert identify.consistency(flat)[0] < 0
    fixed = identify.make_physical(flat)
    assert identify.consistency(fixed)[0] > 0
    assert (fixed.mass == flat.mass).all() and (fixed.com == flat.com).all()
    with pytest.raises(ValueError, match="make_physical"):
        Parameters.of(flat, "inertial")
    assert (identify.make_physical(_robot(), floor=1e-6).inertia == _robot().inertia).all()


@pytest.mark.parametrize(
    "free, message",
    [
        ("colour", "cannot be a free parameter"),
        ((), "No parameter is free"),
        (("inertial", "mass"), "same leaves"),
        ({"mass": ["nobody"]}, "has no 'nobody'"),
        ({"mass": np.ones(2, bool)}, "booleans of shape"),
        ({"inertial": np.ones((3, 10), bool)}, "link by link"),
        ({"gravity": ["x"]}, "no rows"),
    ],
)
def test_bad_choices_are_explained(free, message):
    with pytest.raises(ValueError, match=message):
        Parameters.of(_robot(), free)
