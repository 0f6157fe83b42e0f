"""Several arms and the object they hold as letters of the algebra (JPL 88-11, Part II, section 5).

The arms are one tree with a branch each, so the report's diag(H_i), diag(phi_i), diag(M_i) ... are its H, phi, M, and B
picks the contacts. With A = [phi*(C, O_1) ... phi*(C, O_l)] and M(C) beside them,

    Omega = J M^-1 J* + A M(C)^-1 A*,    f = Omega^-1 (J M^-1 T' - a'(C)),    x = M^-1 (T' - J* f)         (3.1)-(3.6)

are expressions, of which `soa.derive` makes RCCFD1, RCCFD2 and RCCFD3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Shaped

from jaxsoa.algebra.bundle import Bundle, operators
from jaxsoa.algebra.expression import Operator
from jaxsoa.algebra.spaces import Space
from jaxsoa.closed_chain.grasp import GraspSystem, Pose
from jaxsoa.closed_chain.grasp_problem import grasp_problem
from jaxsoa.dynamics.inverse import bias_force
from jaxsoa.model.edit import merge
from jaxsoa.model.multibody import Multibody


class GraspOperators(NamedTuple):
    """The letters of a grasp; l contacts, `bundle` of all arms together (joints one arm after the other)."""

    bundle: Bundle  # H, phi, M, psi, P ..., block-diagonal over the arms
    J: Operator  # of all contacts: B* phi* H*
    A: Operator  # from the object's acceleration to the contacts'
    object_inertia: Operator  # M(C), about the object's origin
    held: Operator  # N, the projector on what the contacts hold
    torque: Operator  # T' = T - C of all joints, a vector
    bias: Operator  # a'(C): how fast tips and object would part if joints and object did not accelerate, reversed

    @property
    def Omega(self) -> Operator:
        """J M^-1 J* + A M(C)^-1 A* (3.1)."""
        return self.J @ self.bundle.Mass.inv @ self.J.T + self.A @ self.object_inertia.inv @ self.A.T


def grasp_operators(
    system: GraspSystem,
    q: Sequence[Array],
    v: Sequence[Array],
    tau: Sequence[Array],
    object_pose: Pose,
    *,
    object_velocity: Shaped[Array, "6"] | None = None,
) -> GraspOperators:
    """Arms and object as letters of the algebra, to write and derive the closed chain's dynamics with.

    q, v, tau hold one array per arm; object_pose = (R, p). Rigid contacts need no more than `Omega`; otherwise f = N f
    and the inverse is that of N Omega N + I - N.

    Units: rad, rad/s, N m.

    >>> system, q, pose = soa.closed_chain.mechanisms.two_arm_grasp()
    >>> still = [jnp.zeros(7)] * 2
    >>> o = soa.closed_chain.grasp_operators(system, q, still, still, pose)
    >>> forces = o.Omega.inv @ (o.J @ o.bundle.Mass.inv @ o.torque - o.bias)
    >>> print(soa.derive(forces).result)
    (B* ψ* H* D⁻¹ H ψ B + A M_C⁻¹ A*)⁻¹ (B* ψ* H* D⁻¹ (I - H ψ K) T' - a'(C))
    """
    problem = grasp_problem(system, q, v, tau, object_pose, object_velocity=object_velocity)
    arms = system.arms
    robot = _together([arm.robot for arm in arms])
    bundle = operators(robot, jnp.concatenate(problem.q))
    frames = tuple(f"{k}/{arm.frame}" for k, arm in enumerate(arms))
    tips, body = bundle.tips(frames), Space("other", 6, None, ("object",))
    moving = zip(arms, problem.q, problem.v, problem.tau, strict=True)
    unbiased = [tau - bias_force(arm.robot, q, v) for arm, q, v, tau in moving]
    held = jax.scipy.linalg.block_diag(*problem.state.held)
    return GraspOperators(
        bundle,
        bundle.J(frames),
        bundle.matrix("A", problem.A.reshape(-1, 6), tips, body),
        bundle.matrix("M_C", problem.inertia, body, symmetric=True),
        bundle.matrix("N", held, tips, symmetric=True),
        bundle.vector("T'", jnp.concatenate(unbiased)),
        bundle.vector("a'(C)", -problem.free_gap(problem.state.tips.bias).reshape(-1), tips),
    )


def _together(robots: Sequence[Multibody]) -> Multibody:
    """All arms as branches of one tree, each where it stands; names carry the arm's number."""
    first = robots[0]
    prefixes = [f"{k}/" for k in range(len(robots))]
    if len(robots) == 1:
        return first.rename(prefix=prefixes[0])
    back = first.base_rotation.T
    root = f"0/{first.frame_names[0]}"
    return merge(robots, [(root, back, -back @ first.base_position)] * (len(robots) - 1), prefixes=prefixes)
