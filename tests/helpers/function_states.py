"""Models that every public function is tried on, and batches of states of them: all array arguments by name."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxsoa as soa
from jaxsoa import closed_chain as cc, models


def fixed_tree(dtype=jnp.float64) -> soa.Multibody:
    """Five links on a fixed base, with branches: joints of three, two and one degrees of freedom."""
    kinds = ["spherical", "universal", "prismatic", "helical", "cylindrical"]
    return models.random_tree(3, 5, kinds, armature=True, damping=True, friction=True).astype(dtype)


def floating_tree(dtype=jnp.float64) -> soa.Multibody:
    """Four links, the first free, the others on it or on one another, of the kinds that `fixed_tree` has not."""
    kinds = ["planar", "revolute", "continuous"]
    return models.random_tree(5, 4, kinds, floating_base=True, damping=True).astype(dtype)


def every_kind(dtype=jnp.float64) -> soa.Multibody:
    """Nine links, one of every kind of joint that moves."""
    return models.random_tree(7, 9, armature=True, damping=True).astype(dtype)


def small_tree(dtype=jnp.float64) -> soa.Multibody:
    """Two links, one on a spherical joint: for what takes long to trace, yet has to do with joints' kinds."""
    return models.random_tree(2, 2, ["spherical", "revolute"], armature=True, damping=True).astype(dtype)


def pendulum(dtype=jnp.float64) -> soa.Multibody:
    """Two links: for what takes long to trace."""
    return models.pendulum(2).astype(dtype)


def linkage(dtype=jnp.float64) -> cc.mechanisms.Mechanism:
    return jax.tree.map(lambda x: jnp.asarray(x, dtype), cc.mechanisms.four_bar())


def grasp(dtype=jnp.float64) -> cc.mechanisms.Grasp:
    contacts = (cc.Rigid(), cc.SoftFinger((-1.0, 0.0, 0.0), friction=0.8, torsion=0.1))
    return jax.tree.map(lambda x: jnp.asarray(x, dtype), cc.mechanisms.two_arm_grasp(contacts))


MODELS = {
    "fixed": fixed_tree,
    "floating": floating_tree,
    "every kind": every_kind,
    "small": small_tree,
    "pendulum": pendulum,
    "linkage": linkage,
    "grasp": grasp,
}


def models_near(model: Any, count: int) -> Any:
    """A batch of models that differ in masses and inertias, joint places, armature, damping, pitch and gravity."""

    def batch(path, x):
        name = str(path[-1]).strip(".")
        moved = name in ("mass", "com", "inertia", "armature", "damping", "joint_position", "gravity", "pitch")
        steps = 1 + 0.05 * jnp.arange(count, dtype=x.dtype) * moved
        return x[None] * steps.reshape(-1, *(1,) * x.ndim)

    return jax.tree_util.tree_map_with_path(batch, model)


def states(model: Any, count: int, seed: int = 0) -> dict[str, Any]:
    """A batch of states of a model: every array argument by its name, with a leading axis."""
    rng = np.random.default_rng(seed)
    if isinstance(model, soa.Multibody):
        return _tree_states(model, count, rng)
    if isinstance(model, cc.mechanisms.Mechanism):
        return _linkage_states(model, count, rng)
    return _grasp_states(model, count, rng)


def _tree_states(robot: soa.Multibody, count: int, rng) -> dict[str, Any]:
    n, nv, dtype = robot.n_links, robot.nv, robot.dtype

    def normal(*shape):
        return jnp.asarray(rng.normal(size=(count, *shape)), dtype)

    q = jnp.stack([robot.random(int(k)) for k in rng.integers(1 << 30, size=count)])
    vectors = {name: normal(nv) for name in ("v", "a", "tau", "dq", "dv", "da", "dtau", "x", "nu")}
    parameters = soa.inertial_parameters(robot) * (1 + jnp.asarray(0.1 * rng.uniform(size=(count, 1)), dtype))
    prescribed = jnp.asarray(rng.integers(2, size=(count, nv)), bool)
    others = {"f_ext": normal(n, 6), "force": normal(6), "target": normal(6), "torques": normal(3, nv)}
    return {"q": q, **vectors, **others, "parameters": parameters, "prescribed": prescribed}


def _linkage_states(model: cc.mechanisms.Mechanism, count: int, rng) -> dict[str, Any]:
    robot, dtype = model.robot, model.robot.dtype
    turned = model.q + jnp.asarray(0.3 * np.arange(count)[:, None] * np.eye(robot.nq)[0], dtype)
    close = jax.jit(jax.vmap(lambda q: cc.close_loops(robot, model.loops, q, hold=("left1_joint",))))

    def normal(*shape):
        return jnp.asarray(rng.normal(size=(count, *shape)), dtype)

    vectors = {name: normal(robot.nv) for name in ("v", "a", "tau")}
    return {"q": close(turned), **vectors, "f_ext": normal(robot.n_links, 6), "rates": normal(1), "more": normal(1)}


def _grasp_states(model: cc.mechanisms.Grasp, count: int, rng) -> dict[str, Any]:
    dtype = model.pose[0].dtype

    def normal(*shape):
        return jnp.asarray(rng.normal(size=(count, *shape)), dtype)

    nv = model.system.arms[0].robot.nv
    pairs = {name: (normal(nv), normal(nv)) for name in ("v", "a", "tau")}
    q = tuple(jnp.broadcast_to(x, (count, nv)) for x in model.q)
    place = jnp.broadcast_to(model.pose[1], (count, 3))
    return {"q": q, **pairs, "place": place, "force": normal(2, 6), "twist": normal(6)}
