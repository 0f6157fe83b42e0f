"""Arms and object moved back onto their contacts together: derivatives, against differences."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.function_states import grasp, states
from helpers.transformed import rate_and_difference, row

from jaxsoa import closed_chain as cc
from jaxsoa.closed_chain.together import projected_together
from jaxsoa.spatial import rotation


@pytest.mark.slow
def test_the_inertia_of_a_turned_object_turns_with_it():
    """Far from the contacts, with a body that is harder to turn about one axis than about another."""
    held = grasp()
    at = row(states(held, 1), 0)
    body = cc.RigidBody(held.system.body.mass, jnp.full(3, 0.05), jnp.diag(jnp.asarray([0.02, 0.05, 0.06])))
    system = cc.GraspSystem(arms=held.system.arms, body=body)
    turns = cc.grasp_rotations(system, at["q"], held.pose)
    q, axis = tuple(x + 1e-2 for x in at["q"]), jnp.asarray([0.3, -0.5, 0.7])

    def found(t):
        turned = rotation.from_quaternion(rotation.exponential(t * axis)) @ held.pose[0]
        back = projected_together(system, q, at["v"], (turned, held.pose[1]), at["twist"], turns, (None, None))
        weights = np.random.default_rng(0)
        return sum(jnp.sum(x * weights.normal(size=x.shape)) for x in jax.tree.leaves(back))

    rate, difference = rate_and_difference(found, 1e-3)
    assert abs(rate - difference) < 1e-8 * abs(difference)  # 90 % where the inertia keeps its axes
