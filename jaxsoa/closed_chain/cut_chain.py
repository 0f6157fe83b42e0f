"""The overview's single closed loop: a chain cut at one point into two arms (application 3)."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxsoa.closed_chain.algebra import pseudo_inverse
from jaxsoa.closed_chain.frames import moving_frame
from jaxsoa.closed_chain.grasp_methods import free_arm
from jaxsoa.model.multibody import Multibody


class CutChain(NamedTuple):
    """The overview's single loop: two arms that meet at a point."""

    a: tuple[Array, Array]
    force: Float[Array, "6"]  # on the first arm's tip
    effective_inertia: Float[Array, "6 6"]  # Lambda_c


def cut_chain_dynamics(
    arms: tuple[tuple[Multibody, str], tuple[Multibody, str]],
    q: tuple[Array, Array],
    v: tuple[Array, Array],
    tau: tuple[Array, Array],
) -> CutChain:
    """A closed chain cut at one point into two arms (robot, tip frame) whose tips move as one (overview, 5.6-5.11).

    f = Lambda_c (alpha_2f - alpha_1f), Lambda_c^-1 = Lambda_1^-1 + Lambda_2^-1, then each arm with +-f at its tip.

    >>> system, q, _ = soa.closed_chain.mechanisms.two_arm_grasp()
    >>> arms, still = tuple((arm.robot, arm.frame) for arm in system.arms), (jnp.zeros(7), jnp.zeros(7))
    >>> print(soa.closed_chain.cut_chain_dynamics(arms, q, still, still).force.shape)  # N m, N
    (6,)
    """
    parts = []
    for (robot, frame), qi, vi, taui in zip(arms, q, v, tau, strict=True):
        qi, vi, taui = robot.check_q(qi), robot.check_v(vi), robot.check_v(taui, "tau")
        at = moving_frame(robot, frame, qi, vi)
        parts.append(free_arm(robot, frame, qi, vi, taui, None, at.jacobian, at.bias))
    first, second = parts
    compliance = pseudo_inverse(first.compliance + second.compliance)
    f = compliance.solve(second.tip - first.tip)
    inertia = jax.vmap(compliance.solve, in_axes=1, out_axes=1)(jnp.eye(6, dtype=f.dtype))
    return CutChain((first.joints + first.columns @ f, second.joints - second.columns @ f), f, inertia)
