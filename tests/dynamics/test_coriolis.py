"""The Coriolis matrix with two velocities, and the operational-space dynamics built on it."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
from helpers.compare import assert_close

import jaxsoa as soa

KINDS = ("free", "spherical", "universal", "planar", "helical", "cylindrical", "prismatic", "revolute")


@cache
def every_joint() -> tuple[soa.Multibody, jax.Array, jax.Array, jax.Array]:
    """A branched tree with every kind of joint, and a random motion of it."""
    rng = np.random.default_rng(0)
    builder = soa.Builder("every joint")
    parents = [None, "free", "spherical", "universal", "free", "planar", "helical", "free"]
    for kind, parent in zip(KINDS, parents, strict=True):
        part = {"mass": 1.0, "com": 0.2 * rng.normal(size=3), "inertia": np.diag(rng.uniform(0.2, 0.3, 3))}
        part |= {"axis": rng.normal(size=3)} if kind not in ("free", "spherical") else {}
        part |= {"axis2": (0.1, 1.0, 0.3)} if kind == "universal" else {}
        part |= {"pitch": 0.1} if kind == "helical" else {}
        place = {"position": 0.3 * rng.normal(size=3)} if parent else {}
        builder.link(kind, joint=kind, parent=parent, joint_name=f"{kind}_joint", **place, **part)
    robot = builder.build()
    v, w = (jnp.asarray(rng.normal(size=robot.nv)) for _ in range(2))
    return robot, robot.integrate(robot.neutral(), 0.5 * rng.normal(size=robot.nv)), v, w


def test_passivity_bilinearity_and_the_right_force():
    robot, q, v, w = every_joint()

    @jax.jit
    def everything(q, v, w):
        C = soa.coriolis_matrix(robot, q, v)
        _, rate = jax.jvp(lambda t: soa.mass_matrix(robot, robot.integrate(q, t * v)), (0.0,), (1.0,))
        weightless = robot.with_gravity(jnp.zeros(3))
        times = soa.coriolis_times
        two = times(robot, q, 2 * v + w, w) - 2 * times(robot, q, v, w) - times(robot, q, w, w)
        return C, rate, C @ v, soa.bias_force(weightless, q, v), C @ w - times(robot, q, v, w), two

    C, rate, force, expected, linear, bilinear = everything(q, v, w)
    antisymmetric = rate - 2 * C
    assert_close(antisymmetric, -antisymmetric.T, 1e-12)
    assert np.abs(antisymmetric).max() > 0.1
    assert_close(force, expected, 1e-12)
    assert np.abs(linear).max() < 1e-12 and np.abs(bilinear).max() < 1e-12


def test_operational_space_dynamics_decouples_the_frames():
    """Commanded accelerations of two frames are met whatever torque is added in the null space."""
    robot, q, v, w = every_joint()
    frames = ("universal", "revolute")
    wanted = jnp.asarray(np.random.default_rng(1).normal(size=12))

    @jax.jit
    def everything(q, v, w):
        s = soa.operational_space_dynamics(robot, q, v, frames)
        tau = s.jacobian.T @ (s.inertia @ wanted + s.coriolis + s.gravity) + s.null_space @ w
        a = soa.forward_dynamics(robot, q, v, tau)
        bias = jnp.concatenate([soa.jacobian_bias(robot, q, v, frame) for frame in frames])
        planar = soa.operational_space_dynamics(soa.models.planar_arm(3), jnp.array([0.3, 0.5, 0.7]), jnp.ones(3), "tip")
        return s, s.jacobian @ a + bias, soa.operational_space_inertia(robot, q, frames), planar

    s, reached, inertia, planar = everything(q, v, w)
    assert_close(reached, wanted, 1e-9)
    assert_close(s.inertia, inertia, 1e-9)
    assert_close(s.jacobian @ s.inverse, np.eye(12), 1e-9)
    assert int(s.rank) == 12 and int(planar.rank) == 3  # three hinges reach three of six directions
    assert np.isfinite(planar.inertia).all()
