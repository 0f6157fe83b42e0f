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
    """A body that slides along y, x and z and turns, with a leg of two links: six degrees of freedom."""
    builder = soa.Builder("hopper")
    inertia = np.diag([0.02, 0.03, 0.025])
    builder.link("rail", joint="prismatic", axis=(0, 1, 0), mass=0.5, inertia=inertia)
    builder.link(
        "body",
        joint="planar",
        parent="rail",
        axis=(0, -1, 0),
        axis2=(1, 0, 0),
        mass=2.0,
        inertia=inertia,
        com=(0.01, 0, 0.02),
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
    "sticks": (-1e-3, (0.0, 0.0, -0.1, 0.02, 0.1, -0.1), 0.9),  # but for what `_without_slip` changes
    "slides": (-1e-3, (0.2, 0.9, -0.1, 0.02, 0.1, -0.1), 0.2),
    "separates": (0.0, (0.1, 0.3, 1.5, 0.1, 0.3, -0.2), 0.5),
    "flies": (0.5, (0.1, 0.3, -0.5, 0.1, 0.3, -0.2), 0.5),
    "lands": (1e-4, (0.1, 0.4, -0.6, 0.1, 0.2, -0.1), 0.4),
}
NORMAL = np.array([0.05, 0.02, 1.0]) / np.linalg.norm([0.05, 0.02, 1.0])


def _inputs(robot, name: str, restitution: float, compliance: float):
    height, v, friction = STATES[name]
    ground = contact.Plane(NORMAL, 0.03)
    scene = contact.Scene(POINTS, ground, friction, restitution, compliance)
    q = jnp.array([-0.2, 0.1, 0.5, 0.05, 0.4, -0.7])
    foot = contact.gaps(robot, scene, q)[0]
    slope = jax.grad(lambda z: contact.gaps(robot, scene, q.at[2].set(z))[0])(0.5)
    q = q.at[2].add((height - foot) / slope)
    v, tau = jnp.array(v), jnp.array([0.3, 0.5, -1.0, 0.1, 0.8, -0.6])
    return robot, scene, q, _without_slip(robot, scene, q, v, tau) if name == "sticks" else v, tau


def _slope(impulse) -> float:
    """The tangential part of an impulse over its normal one."""
    normal = np.asarray(impulse) @ NORMAL
    return float(np.linalg.norm(impulse - normal * NORMAL) / normal)


def _without_slip(robot, scene, q, v, tau):
    """v with other sideways velocities of the body: those with which the foot that holds needs no friction to do so."""
    sticky = scene.replace(friction=30.0)
    sideways = np.linalg.svd(NORMAL[None])[2][1:]
    needed = jax.jit(lambda x: sideways @ contact.step(robot, sticky, q, v.at[:2].set(x), tau, DT).impulses[0])
    start, *ends = (np.asarray(needed(jnp.array(x))) for x in ((0.0, 0.0), (0.1, 0.0), (0.0, 0.1)))
    return v.at[:2].set(np.linalg.solve((np.array(ends) - start).T / 0.1, -start))


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


def _one_leaf_after_the_other(arrays, static, weights, reverse, key, moved: set, name: str) -> None:
    """The derivative by each leaf of robot, scene, state and torque against differences; those that matter join
    `moved`. Rounding leaves 1e-8 of a difference (1e-15 of numbers of size ten, over EPS)."""
    paths, form = jax.tree_util.tree_flatten_with_path(_direction(arrays, key))
    still = [jnp.zeros_like(x) for _, x in paths]
    for k, (path, x) in enumerate(paths):
        if not np.any(x):
            continue
        direction = jax.tree.unflatten(form, [*still[:k], x, *still[k + 1 :]])
        found = float(_rate(arrays, direction, weights, static, reverse))
        back, on = (
            _value(jax.tree.map(lambda x, d, s=s: x + s * EPS * d, arrays, direction), static)[0] for s in (-1, 1)
        )
        expected, where = float(weights @ (on - back)) / (2 * EPS), jax.tree_util.keystr(path)
        assert found == pytest.approx(expected, rel=1e-6, abs=1e-8), (name, where)
        if abs(found) > 1e-7:
            moved.add(where)


@pytest.mark.slow
@pytest.mark.parametrize(
    "restitution, compliance, reverse",
    [pytest.param(0.0, 1e-5, True, id="soft, reverse"), pytest.param(0.4, 0.0, False, id="bouncy, forward")],
)
def test_all_leaves_at_once_in_every_mode(restitution, compliance, reverse):
    """Along random directions of all leaves of robot, scene, state and torque together."""
    robot = hopper()
    impulses, moved = {}, set()
    for number, name in enumerate(STATES):
        arrays, static = eqx.partition(_inputs(robot, name, restitution, compliance), eqx.is_inexact_array)
        y, residual = _value(arrays, static)
        assert float(residual) < 1e-12
        impulses[name] = np.asarray(y[12:15])
        weights = jax.random.normal(jax.random.key(number), y.shape)
        for trial in range(3):
            direction = _direction(arrays, jax.random.key(10 * number + trial))
            found = float(_rate(arrays, direction, weights, static, reverse))
            ends = [
                _value(jax.tree.map(lambda x, d, s=s: x + s * EPS * d, arrays, direction), static)[0] for s in (-1, 1)
            ]
            assert found == pytest.approx(float(weights @ (ends[1] - ends[0])) / (2 * EPS), rel=1e-6), name
        _one_leaf_after_the_other(arrays, static, weights, reverse, jax.random.key(100 + number), moved, name)
    assert _slope(impulses["sticks"]) < 0.5 * STATES["sticks"][2]
    assert _slope(impulses["slides"]) == pytest.approx(STATES["slides"][2], rel=1e-9)
    assert impulses["lands"][2] > 0
    asked = "mass com inertia gravity armature damping friction normal height positions radii".split()
    asked += ["restitution"] if restitution else ["compliance"]
    assert not [leaf for leaf in asked if not any(leaf in path for path in moved)]
    assert not impulses["separates"].any() and not impulses["flies"].any()


@pytest.mark.slow
@pytest.mark.parametrize("restitution", [0.0, 0.4])
def test_second_derivatives_in_every_mode(restitution):
    """By state, torque, a mass and the friction: forward over reverse mode, against differences of reverse mode."""
    robot = hopper()

    def value(x, robot, scene, q, tau):
        robot = robot.replace(mass=robot.mass.at[3].add(x[12]))
        scene = scene.replace(friction=scene.friction + x[13])
        s = contact.step(robot, scene, robot.integrate(q, x[6:12]), x[:6], tau + x[14:], DT)
        return jnp.concatenate([s.q, s.v, s.impulses.reshape(-1)]) @ jnp.cos(jnp.arange(18.0))

    @jax.jit
    def both(x, *rest):
        return jax.hessian(value)(x, *rest), jax.grad(value)(x, *rest)

    largest = {}
    for name in STATES:
        _, scene, q, v, tau = _inputs(robot, name, restitution, 0.0)
        x = jnp.zeros(20).at[:6].set(v)
        hessian, _ = both(x, robot, scene, q, tau)
        step = 1e-6
        moved = [[both(x.at[i].add(s * step), robot, scene, q, tau)[1] for s in (-1, 1)] for i in range(20)]
        expected = np.stack([(b - a) / (2 * step) for a, b in moved])
        assert np.asarray(hessian) == pytest.approx(expected, rel=1e-5, abs=1e-6 * np.abs(expected).max()), name
        largest[name] = np.abs(expected).max()
    assert min(largest.values()) > 1e-6


@pytest.mark.slow
def test_relaxed_gradients_see_contacts_that_do_not_carry():
    robot = hopper()
    _, scene, q, v, tau = _inputs(robot, "separates", 0.0, 0.0)

    @eqx.filter_jit
    def answer(scene):
        return jax.jvp(lambda v: contact.step(robot, scene, q, v, tau, DT).impulses[0, 2], (v,), (jnp.eye(6)[2],))

    found = {name: answer(scene.replace(gradient=name)) for name in ("exact", "relaxed", "distance")}
    assert all(float(value) == 0 for value, _ in found.values())  # forward is hard in all three
    assert float(found["exact"][1]) == 0
    assert float(found["relaxed"][1]) < 0  # to fly off less would bring an impulse
    assert float(found["distance"][1]) < float(found["relaxed"][1])
