"""Designed trajectories: exact derivatives, at rest at the ends, within limits at all times, well conditioned."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.compare import assert_close

import jaxsoa as soa
from jaxsoa import identify

pytestmark = pytest.mark.slow  # one optimal design is what all of them share, and it takes most of the time


def _robot() -> soa.Multibody:
    robot = soa.models.chain(2)
    limits = robot.limits
    return robot.replace(
        limits=type(limits)(
            jnp.array([-1.0, -jnp.inf]), jnp.array([2.0, jnp.inf]), jnp.array([1.5, 2.0]), limits.effort
        )
    )


@pytest.fixture(scope="module")
def designed():
    return identify.design(_robot(), period=5.0, harmonics=3, acceleration=6.0, iterations=60, progress=False)


def test_derivatives_are_exact(designed):
    trajectory = designed.trajectory
    times = jnp.linspace(0, 5, 7)

    def path(t):
        return trajectory(t[None]).q[0]

    v = jax.vmap(jax.jacfwd(path))(times)
    a = jax.vmap(jax.jacfwd(jax.jacfwd(path)))(times)
    motion = trajectory(times)
    assert_close(motion.v, v, 1e-12)
    assert_close(motion.a, a, 1e-12)


def test_keeps_limits_everywhere_and_starts_at_rest(designed):
    robot = _robot()
    q, v, a = (np.asarray(x) for x in designed.trajectory(jnp.linspace(0, 5, 20001)))
    assert (q[:, 0] >= -1).all() and (q[:, 0] <= 2).all() and (np.abs(q[:, 1]) <= np.pi).all()
    assert (np.abs(v) <= np.asarray(robot.limits.velocity)).all() and (np.abs(a) <= 6.0).all()
    assert np.abs(v).max() > 0.5  # and it moves
    assert np.abs(v[[0, -1]]).max() < 1e-12 and np.abs(a[[0, -1]]).max() < 1e-11


def test_design_improves_the_condition_number(designed):
    assert designed.condition < 0.7 * designed.history[0]  # 16.9 to 9.4: two joints leave little to gain
    motion = designed.trajectory(jnp.arange(60) * (5.0 / 60))
    robot = _robot()
    base = soa.base_parameters(robot)
    Y = jax.jit(jax.vmap(soa.regressor, in_axes=(None, 0, 0, 0)))(robot, *motion)
    singular = np.linalg.svd(np.asarray(Y)[:, :, base.independent].reshape(-1, base.rank), compute_uv=False)
    assert_close(designed.condition, singular[0] / singular[-1], 1e-6)
    assert_close(jax.jit(lambda m: identify.condition_number(robot, m, base=base))(motion), designed.condition, 1e-6)


def test_quaternions_are_refused():
    with pytest.raises(ValueError, match="quaternions"):
        identify.design(soa.models.random_tree(9, 1, kinds=["free"]))


def test_joints_without_limits_can_be_improved_too():
    """A limit of infinity must not make the gradient NaN."""
    robot = soa.models.chain(2)
    excitation = soa.identify.design(robot, period=5.0, harmonics=3, iterations=10, progress=False)
    assert excitation.condition < excitation.history[0]
