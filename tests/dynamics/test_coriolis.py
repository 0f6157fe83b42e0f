"""The Coriolis matrix with two velocities, and the operational-space dynamics built on it."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.compare import assert_close

import jaxsoa as soa

TREES = {  # joint kind of every link, and which link carries it
    "limbs": {"spherical": None, "revolute": "spherical", "prismatic": "spherical", "universal": "revolute"},
    "every kind": {
        "free": None, "spherical": "free", "universal": "spherical", "planar": "universal", "helical": "free",
        "cylindrical": "planar", "prismatic": "helical", "revolute": "free",
    },
}  # fmt: skip


@cache
def moving_tree(name: str) -> tuple[soa.Multibody, jax.Array, jax.Array, jax.Array]:
    """A branched tree, and a random motion of it."""
    rng = np.random.default_rng(0)
    builder = soa.Builder(name)
    for kind, parent in TREES[name].items():
        part = {"mass": 1.0, "com": 0.2 * rng.normal(size=3), "inertia": np.diag(rng.uniform(0.2, 0.3, 3))}
        part |= {"axis": rng.normal(size=3)} if kind not in ("free", "spherical") else {}
        part |= {"axis2": (0.1, 1.0, 0.3)} if kind == "universal" else {}
        part |= {"pitch": 0.1} if kind == "helical" else {}
        place = {"position": 0.3 * rng.normal(size=3)} if parent else {}
        builder.link(kind, joint=kind, parent=parent, joint_name=f"{kind}_joint", **place, **part)
    robot = builder.build()
    v, w = (jnp.asarray(rng.normal(size=robot.nv)) for _ in range(2))
    return robot, robot.integrate(robot.neutral(), 0.5 * rng.normal(size=robot.nv)), v, w


@pytest.mark.parametrize("name", ["limbs", pytest.param("every kind", marks=pytest.mark.slow)])
def test_passivity_bilinearity_and_the_right_force(name):
    robot, q, v, w = moving_tree(name)

    @jax.jit
    def everything(q, v, w):
        C = soa.coriolis_matrix(robot, q, v)
        _, rate = jax.jvp(lambda t: soa.mass_matrix(robot, robot.integrate(q, t * v)), (0.0,), (1.0,))
        weightless = robot.with_gravity(jnp.zeros(3))
        speeds = jnp.stack([2 * v + w, v, w])
        both, first, second = jax.vmap(lambda u: soa.coriolis_times(robot, q, u, w))(speeds)
        return C, rate, C @ v, soa.bias_force(weightless, q, v), C @ w - first, both - 2 * first - second

    C, rate, force, expected, linear, bilinear = everything(q, v, w)
    antisymmetric = rate - 2 * C
    assert_close(antisymmetric, -antisymmetric.T, 1e-12)
    assert np.abs(antisymmetric).max() > 0.1
    assert_close(force, expected, 1e-12)
    assert np.abs(linear).max() < 1e-12 and np.abs(bilinear).max() < 1e-12


@pytest.mark.slow
def test_operational_space_dynamics_decouples_the_frames():
    """Commanded accelerations of a frame are met whatever torque is added in the null space."""
    robot, q, v, w = moving_tree("limbs")
    frames = ("universal",)
    wanted = jnp.asarray(np.random.default_rng(1).normal(size=6))

    @jax.jit
    def everything(q, v, w):
        s = soa.operational_space_dynamics(robot, q, v, frames)
        tau = s.jacobian.T @ (s.inertia @ wanted + s.coriolis + s.gravity) + s.null_space @ w
        a = soa.forward_dynamics(robot, q, v, tau)
        bias = jnp.concatenate([soa.jacobian_bias(robot, q, v, frame) for frame in frames])
        singular = soa.operational_space_dynamics(robot, q, v, "prismatic")
        return s, s.jacobian @ a + bias, soa.operational_space_inertia(robot, q, frames), singular

    s, reached, inertia, singular = everything(q, v, w)
    assert_close(reached, wanted, 1e-9)
    assert_close(s.inertia, inertia, 1e-9)
    assert_close(s.jacobian @ s.inverse, np.eye(6), 1e-9)
    assert int(s.rank) == 6 and int(singular.rank) == 4  # a ball and a slider reach four of six directions
    assert np.isfinite(singular.inertia).all()
