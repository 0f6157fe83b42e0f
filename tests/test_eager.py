"""Functions called outside of jit: compiled once, with the answers, derivatives and messages of plain ones."""

from __future__ import annotations

import inspect

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.every_function import TABLE, public_names

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


def test_mechanisms_contacts_and_searches_are_compiled_too():
    """Numbers (stabilization, a seed) are inputs of the program, names and counts a part of it; a list of names too."""
    robot, loops, q = soa.closed_chain.mechanisms.four_bar()
    v, tau = jnp.zeros(3), jnp.ones(3)
    floor = soa.contact.Scene(soa.contact.Points("tip", radii=[0.05]), soa.contact.Plane(height=-2.0), 0.5)
    at = jnp.array([0.3, 0.4])
    target = soa.frame_pose(ARM, at, "tip")[1]

    def calls(k):
        found = soa.closed_chain.loop_forward_dynamics(robot, loops, q, v, (1 + k) * tau, stabilization=(5.0 + k, 5.0))
        closed = soa.closed_chain.close_loops(robot, loops, q + 0.01 * k, hold=["left1_joint"])
        touched = soa.contact.step(ARM, floor, at, jnp.ones(2) * k, jnp.zeros(2), 0.01 + 0.001 * k)
        seen = soa.inverse_kinematics(ARM, at + 0.1, "tip", target, seeds=2, key=k)
        return found.a, closed, touched.q, seen.success

    calls(0)
    before = programs()
    again = calls(1)
    assert programs() == before and again[-1]
    expected = jax.jit(
        lambda: soa.closed_chain.loop_forward_dynamics(robot, loops, q, v, 2 * tau, stabilization=(6, 5))
    )()
    np.testing.assert_allclose(again[0], expected.a, atol=1e-12)
    zeros = jnp.zeros_like(FLOATING.neutral())
    hinge = soa.closed_chain.ball(FLOATING.frame_names[0], FLOATING.frame_names[-1])
    with pytest.raises(ValueError, match="quaternion of zeros"):
        soa.closed_chain.loop_jacobian(FLOATING, (hinge,), zeros)


UNCOMPILED = {
    "made of functions, to be jitted as a whole": """optimize. simulate.conserving simulate.vector_field
        simulate.with_mom simulate.solve_adaptively simulate.trajectory_sensitivity simulate.linearize_actuated
        simulate.mount""",
    "a loop over time, compiled inside": "soa.rollout simulate.grasp_rollout identify.trajectory_residual",
    "thin, around what is compiled": """closed_chain.close_loops contact.step soa.inverse_kinematics
        soa.differential_inverse""",
    "gives operators, which are lazy, or a model": """soa.operators closed_chain.grasp_operators decomposition.
        estimation.random_model closed_chain.holding closed_chain.coupled soa.with_inertial""",
    "takes pairs of robots and names": "closed_chain.cut_chain",
}


def test_every_function_of_a_state_is_compiled_or_has_a_reason_not_to_be():
    names = public_names()
    functions = {n: names[n] for n in (name.split(",")[0] for name in TABLE) if inspect.isfunction(names.get(n))}
    plain = {name for name, function in functions.items() if not hasattr(function, "__wrapped__")}
    reasons = tuple(" ".join(UNCOMPILED.values()).split())
    assert len(functions) > 100 and not [name for name in plain if not name.startswith(reasons)]


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
