"""Forward and inverse dynamics of a grasp: the public functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Shaped

from jaxsoa.closed_chain.algebra import components
from jaxsoa.closed_chain.grasp import GraspProblem, GraspSystem, Pose, grasp_problem, over_arms
from jaxsoa.closed_chain.grasp_methods import METHODS, free_arm, general, omega


class GraspAcceleration(NamedTuple):
    """How a grasp moves. World axes, angular before linear, moment before force."""

    a: tuple[Array, ...]  # joint accelerations, one per arm
    contact_forces: Float[Array, "l 6"]  # on the object, at the contacts
    object_acceleration: Float[Array, "6"]  # true acceleration (w', v') of the origin of the object's frame
    contact_accelerations: tuple[Array, ...]  # W'(0), (k,) per arm, along the contact's free axes
    object_velocity: Float[Array, "6"]  # V(C), found by (2.8a) if it was not given
    rank: Int[Array, ""]  # independent contact constraints; below 6 l less the free axes, forces are not determined


def grasp_forward_dynamics(
    system: GraspSystem,
    q: Sequence[Array],
    v: Sequence[Array],
    tau: Sequence[Array],
    object_pose: Pose,
    *,
    contact_rates: Sequence[Array] | None = None,
    object_velocity: Shaped[Array, "6"] | None = None,
    f_ext: Sequence[Array | None] | None = None,
    method: str = "auto",
    open_chain: str | None = None,
) -> GraspAcceleration:
    """Joint, object and contact accelerations and contact forces of arms that hold an object (JPL 88-11, Part II).

    q, v, tau (and f_ext) hold one array per arm; object_pose = (R, p). The object's velocity follows from the arms'
    (`grasp_state` says how) unless given, the contact rates W(0) from both. Methods: see `grasp_methods`; "auto" is the
    fast default, O(n) with at most four arms' contacts solved at once and O(n) + O(l) beyond. `open_chain` names the
    forward-dynamics method that "general" is to run on.
    """
    if method not in METHODS:
        raise ValueError(f"Unknown method {method!r} of grasp_forward_dynamics; choose one of {', '.join(METHODS)}.")
    if open_chain is not None and method != "general":
        raise ValueError(f'open_chain is an option of method "general" only, not of {method!r}.')
    problem = grasp_problem(
        system,
        q,
        v,
        tau,
        object_pose,
        contact_rates=contact_rates,
        object_velocity=object_velocity,
        f_ext=f_ext,
    )
    solution = METHODS[method](problem) if open_chain is None else general(problem, open_chain)
    return complete(problem, *solution)


def grasp_compliance(
    system: GraspSystem, q: Sequence[Array], object_pose: Pose
) -> Float[Array, "six_l six_l"]:
    """Omega = J M^-1 J* + A M(C)^-1 A* of l contacts (JPL 88-11, Part II, 3.1): how they would part under unit forces.

    q holds one array per arm. N Omega N with N the directions that the contacts hold (`grasp_state(...).held`) is the
    inverse of their effective inertia.
    """
    still = tuple(jnp.zeros(arm.robot.nv, arm.robot.dtype) for arm in system.arms)
    p = grasp_problem(system, q, still, still, object_pose)
    arms = over_arms(p.system, free_arm, p.q, p.v, p.tau, p.f_ext, p.jacobians, p.state.tips.bias)
    return omega(p, jnp.stack([arm.compliance for arm in arms]))


def complete(problem: GraspProblem, a: tuple[Array, ...], f: Array, rank: Array) -> GraspAcceleration:
    """Object acceleration by (2.10c) and contact accelerations by (b.1f) from joint accelerations and forces."""
    alpha = problem.compliance @ (jnp.einsum("lij,li->j", problem.A, f) - problem.bias)
    tips = jnp.stack([J @ ai for J, ai in zip(problem.jacobians, a, strict=True)]) + problem.state.tips.bias
    relative = jnp.einsum("lij,j->li", problem.A, alpha) + problem.centripetal - tips - problem.slip_bias
    rates = tuple(components(H, x) for H, x in zip(problem.state.axes, relative, strict=True))
    return GraspAcceleration(a, f, alpha, rates, problem.state.object_velocity, rank)
