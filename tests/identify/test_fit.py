"""Fits to simulated data, where the truth is known."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers.compare import assert_close
from scipy.special import chdtri

import jaxsoa as soa
from jaxsoa import identify
from jaxsoa.identify.parameters import Parameters
from jaxsoa.identify.residuals import problem, rms

torques = jax.jit(jax.vmap(soa.inverse_dynamics, in_axes=(None, 0, 0, 0)))
STANDARD = ("inertial", "damping", "friction", "offset")


def _arm(n: int) -> soa.Multibody:
    """Thick links (a thin rod has no definite pseudo-inertia to start from) and some friction."""
    robot = identify.make_physical(soa.models.chain(n), floor=0.3)
    return robot.replace(damping=jnp.full(n, 0.3), friction=jnp.full(n, 0.2), friction_velocity=0.1)


def _truth(robot: soa.Multibody, seed: int) -> identify.Candidate:
    parameters = Parameters.of(robot, STANDARD)
    return parameters.decode(0.4 * np.random.default_rng(seed).normal(size=parameters.size))


def _data(truth: identify.Candidate, count: int, seed: int, noise: float = 0.0) -> identify.TorqueData:
    """Random states; noise as a fraction of each joint's RMS torque."""
    rng = np.random.default_rng(seed)
    q, v, a = rng.uniform(-3, 3, (count, truth.robot.nv)), *rng.normal(size=(2, count, truth.robot.nv)) * 2
    tau = np.asarray(torques(truth.robot, q, v, a) + truth.offset)
    tau = tau + noise * np.sqrt(np.mean(tau**2, axis=0)) * rng.normal(size=tau.shape)
    return identify.TorqueData(q, v, a, tau)


@pytest.fixture(scope="module")
def arm():
    robot = _arm(2)
    return robot, _truth(robot, 1), soa.base_parameters(robot)


@pytest.fixture(scope="module")
def exact(arm):
    """A fit without noise and without prior."""
    robot, truth, _ = arm
    return identify.fit(robot, _data(truth, 150, 2), STANDARD, weights=np.ones(2), progress=False)


def test_base_parameters_recovered_without_noise(arm, exact):
    _, truth, base = arm
    expected = base.grouping @ np.asarray(soa.inertial_parameters(truth.robot))
    assert exact.rms_before.min() > 0.1
    assert np.abs(exact.base_parameters(base).value - expected).max() < 1e-6 * np.abs(expected).max()
    for leaf in ("damping", "friction"):
        assert_close(getattr(exact.robot, leaf), getattr(truth.robot, leaf), 1e-6)
    assert_close(exact.offset, truth.offset, 1e-6)
    assert np.asarray(identify.consistency(exact.robot)).min() > 0


def test_what_torques_do_not_determine_is_said_to_be_unknown(exact):
    """Of the first link only the inertia about its axis and part of the first moment show: its mass does not."""
    std = exact.leaf("mass").std
    assert np.isinf(std[0])
    assert np.isfinite(exact.leaf("damping").std).all() and np.isfinite(exact.base_parameters().std).all()


def test_five_per_cent_noise_is_within_the_predicted_deviations(arm):
    """The errors' Mahalanobis distance in the predicted covariance is chi-square, one degree per parameter."""
    robot, truth, base = arm
    result = identify.fit(robot, _data(truth, 400, 3, noise=0.05), STANDARD, progress=False)
    estimate = result.base_parameters(base)
    error = estimate.value - base.grouping @ np.asarray(soa.inertial_parameters(truth.robot))
    z = error / estimate.std
    assert np.abs(z).max() < 3.5 and np.abs(z).max() > 0.3
    distance = error @ np.linalg.solve(estimate.covariance, error)
    low, high = chdtri(base.rank, [0.995, 0.005])  # of chi squared: outside of it in a case of a hundred
    assert low < distance < high, (distance, base.rank)
    # The noise itself is found too, joint by joint.
    assert_close(1 / result.weights, 0.05 * np.sqrt(np.mean(_data(truth, 400, 3).tau ** 2, axis=0)), 0.1)
    assert_close(result.rms_after, 1 / result.weights, 0.05)


@pytest.mark.slow
def test_compressed_data_gives_the_same_answer(arm):
    """The general way (derivatives of inverse dynamics at every sample), by passing the residual explicitly."""
    robot, truth, _ = arm
    data = _data(truth, 60, 4, noise=0.02)
    options = {"weights": np.ones(2), "prior": {"inertial": 0.5}, "progress": False, "tolerance": 1e-12}
    compressed = identify.fit(robot, data, STANDARD, **options)
    general = identify.fit(robot, data, STANDARD, residual=identify.torque_residual, chunk=32, **options)
    assert_close(general.theta, compressed.theta, 1e-5)
    assert_close(general.rms_after, compressed.rms_after, 1e-8)
    assert_close(general.rms_before, compressed.rms_before, 1e-10)
    assert_close(compressed.rms(data), compressed.rms_after, 1e-8)
    assert_close(general.covariance, compressed.covariance, 1e-5)


def test_dry_friction_given_with_the_data(arm):
    """The same as the model's own where it is the same function, whole and compressed; another one where it is not."""
    robot, truth, _ = arm
    plain = _data(truth, 30, 10)
    own = plain._replace(dry=np.tanh(plain.v / 0.1))
    apart = identify.residual_rms(robot, plain)
    assert_close(identify.residual_rms(robot, own), apart, 1e-12)
    parameters = Parameters.of(robot, STANDARD)
    compressed = rms(parameters.prior, problem(robot, own, parameters=parameters))
    assert_close(compressed, apart, 1e-10)
    inside = identify.residual_rms(truth.robot, own._replace(dry=own.dry + 0.5), truth.offset)
    assert_close(inside, 0.5 * np.asarray(truth.robot.friction), 1e-10)


@pytest.mark.parametrize("times", [20.0, 300.0])
def test_a_light_link_gets_a_heavy_load(times):
    """The fit is a convex problem: from the light model it ends where it ends from the true one, at the noise."""
    robot = _arm(2)
    light = robot.replace(mass=robot.mass.at[1].set(0.05), inertia=robot.inertia.at[1].set(1e-5 * jnp.eye(3)))
    load = 0.05 * times * jnp.array([1.0, 0.004])  # kg, kg m^2
    loaded = light.with_payload(light.link_names[1], load[0], (0.1, 0.2, 0.3), load[1] * jnp.eye(3))
    data = _data(identify.Candidate(loaded, jnp.zeros(2)), 150, 3, noise=0.01)
    free, fits = {"inertial": [light.link_names[1]]}, []
    for start in (light, loaded):
        fits.append(identify.fit(start, data, free, progress=False))
        assert fits[-1].converged
    noise = 0.01 * np.sqrt(np.mean(data.tau**2, axis=0))
    np.testing.assert_allclose(fits[0].rms_after, noise, rtol=0.2)  # of 150 samples
    np.testing.assert_allclose(fits[0].rms_after, fits[1].rms_after, rtol=1e-5)
    assert_close(*(fit.base_parameters().value for fit in fits), 1e-4)


@pytest.mark.slow
def test_gravity_and_optax():
    """The direction of gravity too, by Gauss-Newton and by L-BFGS of optax: the same optimum."""
    robot = _arm(2)
    tilted = jnp.array([0.3, -0.2, -9.8])
    truth = identify.Candidate(robot.with_gravity(tilted * 9.81 / jnp.linalg.norm(tilted)), jnp.zeros(2))
    free = {"gravity_direction": None, "mass": [robot.link_names[1]], "damping": None}
    options = {"weights": np.ones(2), "progress": False}
    data = _data(truth, 50, 5, noise=0.01)
    newton = identify.fit(robot, data, free, **options)
    assert_close(newton.robot.gravity, truth.robot.gravity, 5e-3)
    quasi = identify.fit(robot, data, free, method=optax.lbfgs(), iterations=80, **options)
    assert_close(quasi.theta, newton.theta, 1e-4)
    assert_close(quasi.history[-1], newton.history[-1], 1e-4)


@pytest.mark.slow
def test_lengths_and_axes_from_torques():
    """Where the second joint sits and how its axis points, by derivatives with respect to both."""
    robot = _arm(2)
    x_only = np.zeros((2, 3), bool)
    x_only[1, 0] = True
    free = {"joint_position": x_only, "axis": [robot.joint_names[1]]}
    parameters = Parameters.of(robot, free)
    truth = parameters.decode(np.array([0.07, 0.1, -0.15]))
    result = identify.fit(robot, _data(truth, 40, 6), free, weights=np.ones(2), progress=False)
    assert_close(result.robot.joint_position, truth.robot.joint_position, 1e-6)
    assert_close(result.robot.axis, truth.robot.axis, 1e-6)
    assert result.rms_before.min() > 1e-2 and result.rms_after.max() < 1e-7
    assert result.converged


@pytest.mark.slow
def test_trajectory_matching():
    """Masses, damping and a length from motion alone, by simulating it."""
    robot = soa.models.pendulum(2).replace(damping=jnp.array([0.1, 0.1]))
    x_only = np.zeros((2, 3), bool)
    x_only[1, 2] = True
    free = {"mass": ["link2"], "damping": None, "joint_position": x_only}
    truth = Parameters.of(robot, free).decode(np.array([0.3, 0.5, -0.4, -0.1])).robot
    rng = np.random.default_rng(7)
    dt, steps = 0.02, 120
    tau = rng.normal(size=(steps, 2)) * 3
    q0, v0 = jnp.array([0.5, -0.3]), jnp.zeros(2)
    path = jax.jit(lambda tau: soa.rollout(truth, q0, v0, tau, dt))(tau)
    q, v = np.vstack([q0, path.q]), np.vstack([v0, path.v])
    data = identify.segments(q, v, tau, dt, 20)
    result = identify.fit(robot, data, free, weights=np.ones(4), progress=False)
    assert result.channels[0] == "joint1 q" and result.rms_before.max() > 1e-2
    for leaf in ("mass", "damping", "joint_position"):
        assert_close(getattr(result.robot, leaf), getattr(truth, leaf), 1e-6)
    assert result.rms_after.max() < 1e-8
    assert_close(result.rms(data), result.rms_after, 1e-6)


def test_the_prior_holds_what_data_does_not(arm):
    robot, truth, _ = arm
    data = _data(truth, 1, 8)
    tight = identify.fit(robot, data, "inertial", prior=1e-4, weights=np.ones(2), progress=False)
    assert np.abs(tight.theta).max() < 1e-2
    loose = identify.fit(robot, data, "inertial", prior=10.0, weights=np.ones(2), progress=False)
    assert loose.rms_after.max() < 0.1 * tight.rms_after.max()


def test_bad_arguments_are_explained(arm):
    robot, truth, _ = arm
    data = _data(truth, 3, 9)
    with pytest.raises(ValueError, match="prior names 'friction'"):
        identify.fit(robot, data, "damping", prior={"friction": 1.0}, progress=False)
    with pytest.raises(ValueError, match="Unknown method"):
        identify.fit(robot, data, "damping", method="simplex")
    with pytest.raises(ValueError, match="NaN"):
        identify.fit(robot, data._replace(tau=data.tau * np.nan), "damping")
    with pytest.raises(ValueError, match="last 2 for robot"):
        identify.fit(robot, data._replace(v=data.v[:, :1]), "damping")
    with pytest.raises(ValueError, match="weights must be 2"):
        identify.fit(robot, data, "damping", weights=np.ones(3), progress=False)
    with pytest.raises(TypeError, match="TorqueData"):
        identify.fit(robot, {"tau": 1}, "damping")
