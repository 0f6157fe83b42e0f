"""Forward and inverse dynamics of a grasp: the public functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Shaped

from jaxsoa.closed_chain.algebra import components, safe_norm
from jaxsoa.closed_chain.grasp import GraspSystem, Pose, over_arms
from jaxsoa.closed_chain.grasp_methods import HYBRID, METHODS, free_arm, general, omega
from jaxsoa.closed_chain.grasp_problem import GraspProblem, grasp_problem
from jaxsoa.dynamics.inverse import inverse_dynamics_raw
from jaxsoa.eager import compiled


class GraspAcceleration(NamedTuple):
    """How a grasp moves. World axes, angular before linear, moment before force."""

    a: tuple[Array, ...]  # joint accelerations, one per arm
    contact_forces: Float[Array, "l 6"]  # on the object, at the contacts
    object_acceleration: Float[Array, "6"]  # true acceleration (w', v') of the origin of the object's frame
    contact_accelerations: tuple[Array, ...]  # W'(0), (k,) per arm, along the contact's free axes
    object_velocity: Float[Array, "6"]  # V(C), found by (2.8a) if it was not given
    rank: Int[Array, ""]  # independent contact constraints; below 6 l less the free axes, forces are not determined
    tau: tuple[Array, ...]  # complete, one per arm: as given, found where the motion is prescribed
    residual: Float[Array, ""]  # how fast contacts part in spite of it: where prescribed motions contradict each other


@compiled(through_door=False)
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
    a: Sequence[Array] | None = None,
    prescribed: Sequence[Array | None] | None = None,
    method: str = "auto",
    open_chain: str | None = None,
) -> GraspAcceleration:
    """Joint, object and contact accelerations and contact forces of arms that hold an object (JPL 88-11, Part II).

    q, v, tau (and f_ext) hold one array per arm; object_pose = (R, p). The object's velocity follows from the arms'
    (`grasp_state` says how) unless given, the contact rates W(0) from both. Methods: see `grasp_methods`; "auto" is the
    fast default, O(n) with at most four arms' contacts solved at once and O(n) + O(l) beyond. `open_chain` names the
    forward-dynamics method that "general" is to run on.

    `prescribed` (per arm bool (nv,), or None for an arm; may change at run time): there the acceleration `a` is given
    (zero for None) and the torque found, by methods "auto" and "rank6". Motions that contradict each other or the
    contacts leave a `residual`.

    >>> system, q, pose = soa.closed_chain.mechanisms.two_arm_grasp()
    >>> still = [jnp.zeros(7)] * 2  # rad/s, N m
    >>> found = soa.closed_chain.grasp_forward_dynamics(system, q, still, still, pose)
    >>> print(found.object_acceleration[5].round(3))  # let go, the box falls with the arms: m/s^2
    -11.912
    """
    if method not in METHODS:
        raise ValueError(f"Unknown method {method!r} of grasp_forward_dynamics; choose one of {', '.join(METHODS)}.")
    if open_chain is not None and method != "general":
        raise ValueError(f'open_chain is an option of method "general" only, not of {method!r}.')
    if prescribed is not None and method not in HYBRID:
        raise ValueError(f"Joints are prescribed by methods {' and '.join(HYBRID)} only, not by {method!r}.")
    problem = grasp_problem(
        system,
        q,
        v,
        tau,
        object_pose,
        contact_rates=contact_rates,
        object_velocity=object_velocity,
        f_ext=f_ext,
        a=a,
        prescribed=prescribed,
    )
    solution = METHODS[method](problem) if open_chain is None else general(problem, open_chain)
    return complete(problem, *solution)


@compiled(through_door=False)
def grasp_compliance(system: GraspSystem, q: Sequence[Array], object_pose: Pose) -> Float[Array, "six_l six_l"]:
    """Omega = J M^-1 J* + A M(C)^-1 A* of l contacts (JPL 88-11, Part II, 3.1): how they would part under unit forces.

    q holds one array per arm. N Omega N with N the directions that the contacts hold (`grasp_state(...).held`) is the
    inverse of their effective inertia.

    >>> system, q, pose = soa.closed_chain.mechanisms.two_arm_grasp()
    >>> print(soa.closed_chain.grasp_compliance(system, q, pose).shape)  # six rows per contact
    (12, 12)
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
    apart = jnp.einsum("lij,lj->li", problem.state.held, relative).reshape(-1)
    torques = [_complete(problem, k, a[k], f[k]) for k in range(len(a))]
    return GraspAcceleration(a, f, alpha, rates, problem.state.object_velocity, rank, tuple(torques), safe_norm(apart))


def _complete(problem: GraspProblem, k: int, a: Array, f: Array) -> Array:
    """The torques of an arm, those of prescribed joints by inverse dynamics: the contact pushes back with -f."""
    tau, mask = problem.tau[k], problem.prescribed[k]
    if mask is None:
        return tau
    robot = problem.system.arms[k].robot
    needed = inverse_dynamics_raw(robot, problem.q[k], problem.v[k], a, problem.f_ext[k])
    return jnp.where(mask, needed + problem.jacobians[k].T @ f, tau)
