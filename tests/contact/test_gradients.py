"""Derivatives of a step with contacts: every leaf against central differences, in every mode of contact."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsoa as soa
from jaxsoa import contact

DT = 2e-3
EPS = 1e-6


def hopper() -> soa.Multibody:
    """A body that slides along x and z and turns (a planar base), with a leg of two links: five degrees of freedom."""
    builder = soa.Builder("hopper")
    inertia = np.diag([0.02, 0.03, 0.025])
    builder.link(
        "body", joint="planar", axis=(0, -1, 0), axis2=(1, 0, 0), mass=2.0, inertia=inertia, com=(0.01, 0, 0.02)
    )
    builder.link(
        "thigh", joint="revolute", parent="body", axis=(0, 1, 0), mass=0.6, inertia=0.3 * inertia, com=(0, 0, -0.1)
    )
    builder.link(
        "shank",
        joint="revolute",
        parent="thigh",
        position=(0, 0, -0.2),
        axis=(0, 1, 0),
        mass=0.3,
        inertia=0.2 * inertia,
        com=(0, 0, -0.1),
        damping=0.1,
        armature=0.02,
    )
    return builder.build()


POINTS = contact.Points(["shank", "body"], [(0.01, 0, -0.2), (-0.1, 0, 0.0)], [0.02, 0.05])
#: What the foot does: height above touching (at zero itself recovery has a kink), velocity, friction.
STATES = {
    "sticks": (-1e-5, (0.0, -0.1, 0.02, 0.1, -0.1), 0.9),
    "slides": (-1e-5, (0.9, -0.1, 0.02, 0.1, -0.1), 0.2),
    "separates": (0.0, (0.3, 1.5, 0.1, 0.3, -0.2), 0.5),
    "flies": (0.5, (0.3, -0.5, 0.1, 0.3, -0.2), 0.5),
    "lands": (1e-4, (0.4, -0.6, 0.1, 0.2, -0.1), 0.4),
}


def _inputs(robot, name: str, restitution: float, compliance: float):
    height, v, friction = STATES[name]
    ground = contact.Plane((0.05, 0.02, 1.0), 0.03)
    scene = contact.Scene(POINTS, ground, friction, restitution, compliance)
    q = jnp.array([0.1, 0.5, 0.05, 0.4, -0.7])
    foot = contact.gaps(robot, scene, q)[0]
    slope = jax.grad(lambda z: contact.gaps(robot, scene, q.at[1].set(z))[0])(0.5)
    q = q.at[1].add((height - foot) / slope)
    return robot, scene, q, jnp.array(v), jnp.array([0.5, -1.0, 0.1, 0.8, -0.6])


def _outputs(inputs):
    s = contact.step(inputs[0], inputs[1], *inputs[2:], DT)
    return jnp.concatenate([s.q, s.v, s.impulses.reshape(-1), s.gaps]), s.residual


@eqx.filter_jit
def _value(arrays, static):
    return _outputs(eqx.combine(arrays, static))


@eqx.filter_jit
def _rate(arrays, direction, weights, static, reverse: bool):
    """weights . (directional derivative), by forward or by reverse mode."""

    def f(arrays):
        return _outputs(eqx.combine(arrays, static))[0]

    if reverse:
        gradient = jax.vjp(f, arrays)[1](weights)[0]
        return sum(jax.tree.leaves(jax.tree.map(lambda g, d: jnp.sum(g * d), gradient, direction)))
    return weights @ jax.jvp(f, (arrays,), (direction,))[1]


def _direction(arrays, key):
    """A random direction of all leaves; a compliance of zero stays, where the law itself changes."""
    leaves, tree = jax.tree.flatten(arrays)
    keys = jax.random.split(key, len(leaves))
    sizes = [jnp.where(jnp.isfinite(x), jnp.where(x == 0, 0.01, 0.1 * jnp.abs(x)), 0.0) for x in leaves]
    moved = [s * jax.random.normal(k, x.shape, x.dtype) for s, k, x in zip(sizes, keys, leaves, strict=True)]
    direction = jax.tree.unflatten(tree, moved)
    return eqx.tree_at(lambda d: d[1].compliance, direction, 0.1 * arrays[1].compliance)


@pytest.mark.slow
@pytest.mark.parametrize(
    "restitution, compliance, reverse",
    [pytest.param(0.0, 1e-5, True, id="soft, reverse"), pytest.param(0.4, 0.0, False, id="bouncy, forward")],
)
def test_all_leaves_at_once_in_every_mode(restitution, compliance, reverse):
    """Along random directions of all leaves of robot, scene, state and torque together."""
    robot = hopper()
    impulses = {}
    for number, name in enumerate(STATES):
        arrays, static = eqx.partition(_inputs(robot, name, restitution, compliance), eqx.is_inexact_array)
        y, residual = _value(arrays, static)
        assert float(residual) < 1e-12
        impulses[name] = np.asarray(y[10:13])
        weights = jax.random.normal(jax.random.key(number), y.shape)
        for trial in range(3):
            direction = _direction(arrays, jax.random.key(10 * number + trial))
            found = float(_rate(arrays, direction, weights, static, reverse))
            ends = [
                _value(jax.tree.map(lambda x, d, s=s: x + s * EPS * d, arrays, direction), static)[0] for s in (-1, 1)
            ]
            assert found == pytest.approx(float(weights @ (ends[1] - ends[0])) / (2 * EPS), rel=1e-6), name
    if restitution == 0:  # on soft ground it presses, and slips at the edge of its cone
        assert impulses["sticks"][2] > 0
        assert impulses["slides"][2] > 0 and impulses["lands"][2] > 0
        assert not impulses["separates"].any() and not impulses["flies"].any()


def test_second_derivatives_are_refused_and_not_wrong():
    robot = hopper()
    _, scene, q, v, tau = _inputs(robot, "slides", 0.0, 0.0)

    def height(v):
        return contact.step(robot, scene, q, v, tau, DT).v[1]

    with pytest.raises(NotImplementedError, match="Second derivatives"):
        jax.eval_shape(jax.jacfwd(jax.jacfwd(height)), v)


@pytest.mark.slow
def test_relaxed_gradients_see_contacts_that_do_not_carry():
    robot = hopper()
    _, scene, q, v, tau = _inputs(robot, "separates", 0.0, 0.0)

    @eqx.filter_jit
    def answer(scene):
        return jax.jvp(lambda v: contact.step(robot, scene, q, v, tau, DT).impulses[0, 2], (v,), (jnp.eye(5)[1],))

    found = {name: answer(scene.replace(gradient=name)) for name in ("exact", "relaxed", "distance")}
    assert all(float(value) == 0 for value, _ in found.values())  # forward is hard in all three
    assert float(found["exact"][1]) == 0
    assert float(found["relaxed"][1]) < 0  # to fly off less would bring an impulse
    assert float(found["distance"][1]) < float(found["relaxed"][1])
