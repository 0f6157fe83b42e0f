"""Functions called outside of jit: compiled once, with the answers, derivatives and messages of plain ones."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsoa as soa
from jaxsoa import eager, kernels

ARM = soa.models.planar_arm(2)
FLOATING = soa.models.random_tree(0, 2, ("revolute",), floating_base=True)


def programs():
    return len(eager._programs.found)


def state(robot):
    rng = np.random.default_rng(0)
    return robot.random(0), jnp.asarray(rng.normal(size=robot.nv))


@pytest.mark.slow
def test_answers_derivatives_and_batches_are_those_of_the_plain_function():
    q, v = state(FLOATING)
    frame = FLOATING.frame_names[-1]
    plain = soa.jacobian.__wrapped__
    with jax.disable_jit():
        expected = soa.jacobian(FLOATING, q, frame)
    np.testing.assert_allclose(soa.jacobian(FLOATING, q, frame), expected, atol=1e-13)
    moved = [jax.jvp(lambda q, f=f: f(FLOATING, q, frame), (q,), (jnp.ones_like(q),))[1] for f in (soa.jacobian, plain)]
    np.testing.assert_allclose(*moved, atol=1e-13)
    batch = jax.vmap(lambda q: soa.jacobian(FLOATING, q, frame))(jnp.stack([q, q]))
    np.testing.assert_allclose(batch[1], expected, atol=1e-13)
    by_model = jax.grad(lambda mass: soa.kinetic_energy(FLOATING.replace(mass=mass), q, v))(FLOATING.mass)
    assert by_model.shape == FLOATING.mass.shape and np.all(np.asarray(by_model) > 0)


def test_one_program_for_all_values_of_a_model_and_one_per_name():
    q, v = state(ARM)
    energy = soa.kinetic_energy(ARM, q, v)
    before = programs()
    heavy = eqx.tree_at(lambda r: (r.mass, r.inertia), ARM, (ARM.mass * 2, ARM.inertia * 2))
    np.testing.assert_allclose(soa.kinetic_energy(heavy, q + 0, v), 2 * energy, rtol=1e-13)
    np.testing.assert_allclose(soa.kinetic_energy(ARM, v=v, q=np.asarray(q)), energy, rtol=1e-13)
    assert programs() == before + 1  # by keyword is another form of the call
    places = [soa.frame_pose(ARM, q, frame)[1] for frame in ARM.frame_names[-2:]]
    assert np.linalg.norm(places[0] - places[1]) > 0.1 and programs() == before + 3


def test_messages_come_before_anything_is_compiled():
    q, v = state(FLOATING)
    before = len(kernels.report())
    with pytest.raises(ValueError, match="q must be one configuration of shape"):
        soa.frame_pose(FLOATING, v, FLOATING.frame_names[0])
    with pytest.raises(KeyError, match="no frame named 'nowhere'"):
        soa.frame_pose(FLOATING, q, "nowhere")
    with pytest.raises(ValueError, match="quaternion of zeros"):
        soa.frame_pose(FLOATING, jnp.zeros_like(q), FLOATING.frame_names[0])
    with pytest.raises(TypeError):
        soa.frame_pose(FLOATING, q)
    with pytest.raises(ValueError, match="Unknown method"):
        soa.forward_dynamics(FLOATING, q, v, v, method="none")
    assert len(kernels.report()) == before


def test_rollouts_are_compiled_once_and_functions_are_looked_at_every_time():
    q, v = state(ARM)
    gain = 1.0

    def brake(time, q, v):
        return -gain * v

    def run(control, robot=ARM):
        return np.asarray(soa.rollout(robot, q, v, control, 0.01, steps=5, record="final").v)

    torques = jnp.ones((5, 2))
    still = run(torques)
    before = programs()
    np.testing.assert_array_equal(run(torques), still)
    assert np.abs(run(torques, ARM.replace(mass=2 * ARM.mass)) - still).min() > 1e-6
    assert programs() == before
    first = run(brake)
    gain = 5.0
    assert np.abs(run(brake) - first).min() > 1e-4
    assert programs() == before


def test_lists_and_numbers_are_converted_as_always():
    found = soa.forward_dynamics(ARM, [0, 1], [0.5, 1.0], (1, 2))
    arrays = (jnp.array([0.0, 1]), jnp.array([0.5, 1]), jnp.array([1.0, 2]))
    np.testing.assert_allclose(found, soa.forward_dynamics(ARM, *arrays))
    with pytest.raises(TypeError, match="v must hold real numbers"):
        soa.kinetic_energy(ARM, [0.0, 0.0], [1j, 0.0])


@pytest.mark.slow
def test_what_traced_values_are_closed_over_stays_differentiable():
    q, v = state(ARM)

    def last(gain):
        return soa.rollout(ARM, q, v, lambda time, q, v: -gain * v, 0.01, steps=3, record="final").v.sum()

    slope = (last(1.0 + 1e-5) - last(1.0 - 1e-5)) / 2e-5
    np.testing.assert_allclose(jax.grad(last)(1.0), slope, rtol=1e-6)
