"""Functions of a state inside other programs: kernels there too, with the derivatives of the function as written."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsoa as soa
from jaxsoa import kernels

ROBOT = soa.models.random_tree(2, 3, ["revolute", "spherical"], floating_base=True)
FRAME = ROBOT.frame_names[-1]
Q = jax.vmap(ROBOT.random)(jax.random.split(jax.random.key(0), 3))
V, W = jax.random.normal(jax.random.key(1), (2, 3, ROBOT.nv))

FUNCTIONS = {
    "center_of_mass": lambda f, r, q, v, w: f(r, q),
    "coriolis_matrix": lambda f, r, q, v, w: f(r, q, v),
    "coriolis_times": lambda f, r, q, v, w: f(r, q, v, w),
    "forward_kinematics": lambda f, r, q, v, w: f(r, q),
    "frame_pose": lambda f, r, q, v, w: f(r, q, FRAME),
    "inertia_factor": lambda f, r, q, v, w: f(r, q),
    "jacobian": lambda f, r, q, v, w: f(r, q, frame=FRAME),
    "jacobian_bias": lambda f, r, q, v, w: f(r, q, v, FRAME),
    "kinetic_energy": lambda f, r, q, v, w: f(r, q, v),
    "link_accelerations": lambda f, r, q, v, w: f(r, q, v, w),
    "link_forces": lambda f, r, q, v, w: f(r, q, v, w, jnp.ones((r.n_links, 6))),
    "link_velocities": lambda f, r, q, v, w: f(r, q, v),
    "mass_matrix_inverse": lambda f, r, q, v, w: f(r, q),
    "mass_matrix_logdet": lambda f, r, q, v, w: f(r, q),
    "mass_times": lambda f, r, q, v, w: f(r, q, w),
    "momentum": lambda f, r, q, v, w: f(r, q, v),
    "operational_space_compliance": lambda f, r, q, v, w: f(r, q, [FRAME, r.frame_names[1]]),
    "potential_energy": lambda f, r, q, v, w: f(r, q),
    "regressor": lambda f, r, q, v, w: f(r, q, v, w),
    "solve_mass_matrix": lambda f, r, q, v, w: f(r, q, x=w),
}
EVERY_DAY = ("jacobian", "solve_mass_matrix")


@pytest.mark.parametrize("name", [n if n in EVERY_DAY else pytest.param(n, marks=pytest.mark.slow) for n in FUNCTIONS])
def test_public_functions_are_kernels_inside_programs(name):
    """Batches, one state and derivatives, beside the function as it is written."""
    function, call = getattr(soa, name), FUNCTIONS[name]

    def everything(f):
        def one(q, v, w):
            return call(f, ROBOT, q, v, w)

        def rate(q, v, w):  # by the model and by the state
            def moved(t):
                return call(f, ROBOT.replace(mass=ROBOT.mass * (1 + t)), ROBOT.integrate(q, t * v), v + t * w, w)
            return jax.jvp(moved, (0.0,), (1.0,))[1]

        return jax.jit(jax.vmap(one))(Q, V, W), jax.jit(one)(Q[0], V[0], W[0]), jax.jit(rate)(Q[0], V[0], W[0])

    found, expected = everything(function), everything(function.__wrapped__)
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(x, y, rtol=0, atol=1e-11 * max(1.0, np.abs(y).max()))
    made = {
        entry.form for entry in kernels.report() if entry.function.endswith(f".{name}") and entry.runs_as == "kernel"
    }
    assert made == {"batch", "one state"}, kernels.report()


def test_what_is_known_inside_a_program_is_looked_at():
    """A quaternion of zeros that is not traced raises, as it does outside; so do names and shapes."""
    no_rotation = ROBOT.neutral().at[:4].set(0.0)
    with pytest.raises(ValueError, match="quaternion of zeros"):
        jax.jit(lambda v: soa.kinetic_energy(ROBOT, no_rotation, v))(V[0])
    with pytest.raises(KeyError, match="no frame named"):
        jax.jit(lambda q: soa.jacobian(ROBOT, q, "nowhere"))(Q[0])
    with pytest.raises(ValueError, match="shape"):
        jax.jit(lambda v: soa.kinetic_energy(ROBOT, Q[0], v))(V[0, :3])
