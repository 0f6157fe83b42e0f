"""The regressor of adaptive control: linear in the parameters, with two velocities."""

import jax
import jax.numpy as jnp
import numpy as np
from helpers.compare import assert_close

import jaxsoa as soa


def test_two_velocities():
    """Y pi is M a + C(q, v) w + gravity; with one velocity it is the regressor of inverse dynamics."""
    robot = soa.models.random_tree(3, 5, ("revolute", "spherical", "prismatic"), armature=False)
    rng = np.random.default_rng(0)
    q = robot.integrate(robot.neutral(), jnp.asarray(rng.normal(size=robot.nv)))
    v, w, a = (jnp.asarray(rng.normal(size=robot.nv)) for _ in range(3))

    @jax.jit
    def everything(q, v, w, a):
        still = jnp.zeros_like(v)
        wanted = soa.inverse_dynamics(robot, q, still, a) + soa.coriolis_times(robot, q, v, w)
        found = soa.tracking_regressor(robot, q, v, w, a) @ soa.inertial_parameters(robot)
        same = soa.tracking_regressor(robot, q, v, v, a) @ soa.inertial_parameters(robot)
        return (found, same), (wanted, soa.regressor(robot, q, v, a) @ soa.inertial_parameters(robot))

    for found, expected in zip(*everything(q, v, w, a), strict=True):
        assert_close(found, expected, 1e-12)
