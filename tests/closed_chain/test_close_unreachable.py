"""Loops that cannot be closed: the best configuration met comes back, never a worse one than the guess."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import jaxsoa as soa
from jaxsoa import closed_chain as cc


def test_of_fifty_targets_out_of_reach_none_ends_worse_than_it_began():
    robot = soa.models.planar_arm(4)  # links of 0.5 m, in the xy plane
    tip, base = robot.frame_names[-1], robot.frame_names[0]
    keys = jax.random.split(jax.random.key(0), 3)
    directions = jax.random.normal(keys[0], (50, 3))
    distances = jax.random.uniform(keys[1], (50, 1), minval=2.2, maxval=6.0)
    targets = distances * directions / jnp.linalg.norm(directions, axis=1, keepdims=True)
    guesses = jax.vmap(robot.random)(jax.random.split(keys[2], 50))
    ball = cc.ball(base, tip)

    @jax.jit
    @jax.vmap
    def close(target, q):
        loops = [eqx.tree_at(lambda loop: loop.position, ball, target)]
        found = cc.close_loops_report(robot, loops, q)
        before, after = (jnp.linalg.norm(cc.loop_errors(robot, loops, x)) for x in (q, found.q))
        return found.q, found.error, before, after

    q, error, before, after = map(np.asarray, close(targets, guesses))
    assert (after <= before).all()
    np.testing.assert_allclose(error, after, rtol=1e-9)
    assert np.abs(q).max() < 20  # they do not wind up
    # The best there is: stretched towards the target's shadow on the arm's plane.
    flat = np.linalg.norm(np.asarray(targets)[:, :2], axis=1)
    best = np.hypot(np.asarray(targets)[:, 2], np.maximum(flat - 2, 0))
    assert np.median(after / best) < 1.001


def test_what_is_held_follows_the_guess_even_then():
    robot = soa.models.planar_arm(3)
    loops = [cc.ball(robot.frame_names[0], robot.frame_names[-1], position=(9.0, 0, 0))]
    first = robot.joint_names[0]

    def closed(q):
        return (cc.close_loops(robot, loops, q, hold=(first,)),) * 2

    derivative, q = jax.jit(jax.jacfwd(closed, has_aux=True))(jnp.array([0.3, 0.2, -0.4]))
    np.testing.assert_allclose(q[0], 0.3, atol=1e-12)
    np.testing.assert_allclose(derivative[0], [1, 0, 0], atol=1e-12)
    assert np.isfinite(derivative).all()
