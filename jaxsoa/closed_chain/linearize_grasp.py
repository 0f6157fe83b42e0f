"""The linearized model of arms that hold an object: full matrices from the equations differentiated once.

Arms and object are one system x = (a_1, ..., a_l, alpha) with M x + C - tau - G* f = 0 and G x + bias = 0, where
G = N [-diag(J_i)  A] (JPL 88-11, Part II, 2.10 and b.1). The arms' own part is the papers' O(N^2) algorithm for the
linearized inverse model; the constraints' part is a tangent of the kinematics per column, at the motion and the forces
found. `perturbed.py` solves for the changes with the factors of the one forward dynamics.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Shaped

from jaxsoa.closed_chain.algebra import pseudo_inverse
from jaxsoa.closed_chain.grasp import GraspProblem, GraspSystem, Pose, check_pose, grasp_problem, over_arms
from jaxsoa.closed_chain.grasp_methods import block_diagonal, free_arm, omega
from jaxsoa.closed_chain.perturbed import Changes, LinearMaps, perturbed_motion
from jaxsoa.dynamics.motion import differentiable_solve, solve_motion
from jaxsoa.linearized.inverse import linearize_inverse_dynamics
from jaxsoa.model.multibody import Multibody
from jaxsoa.spatial import rotation


class LinearizedGraspDynamics(NamedTuple):
    """Derivatives of `grasp_forward_dynamics`: n joints of all arms, one arm after the other; l contacts.

    `wrt_pose` is along (rotation vector, displacement) of the object, world axes; `wrt_object_velocity` is zero unless
    the object's velocity was given. First the joints' accelerations, then the object's, then the contact forces.
    """

    wrt_q: Float[Array, "n n"]
    wrt_v: Float[Array, "n n"]
    wrt_tau: Float[Array, "n n"]
    wrt_pose: Float[Array, "n 6"]
    wrt_object_velocity: Float[Array, "n 6"]
    object_wrt_q: Float[Array, "6 n"]
    object_wrt_v: Float[Array, "6 n"]
    object_wrt_tau: Float[Array, "6 n"]
    object_wrt_pose: Float[Array, "6 6"]
    object_wrt_object_velocity: Float[Array, "6 6"]
    forces_wrt_q: Float[Array, "l 6 n"]
    forces_wrt_v: Float[Array, "l 6 n"]
    forces_wrt_tau: Float[Array, "l 6 n"]
    forces_wrt_pose: Float[Array, "l 6 6"]
    forces_wrt_object_velocity: Float[Array, "l 6 6"]


def linearize_grasp_forward_dynamics(
    system: GraspSystem,
    q: Sequence[Array],
    v: Sequence[Array],
    tau: Sequence[Array],
    object_pose: Pose,
    *,
    object_velocity: Shaped[Array, "6"] | None = None,
    f_ext: Sequence[Array | None] | None = None,
) -> LinearizedGraspDynamics:
    """Derivatives of `grasp_forward_dynamics` by the arms' q (along tangents), v and tau and by the object's state.

    q, v, tau (and f_ext) hold one array per arm; object_pose = (R, p). Without `object_velocity` it follows from q and
    v, and so do its changes. Where contact forces are not determined the derivatives are those of the least ones, at
    constant rank.
    """
    q, v = system.check("q", q, "check_q"), system.check("v", v, "check_v")
    tau, (R, p) = system.check("tau", tau, "check_v"), check_pose(system, object_pose)
    robots = [arm.robot for arm in system.arms]
    ends = np.cumsum([robot.nv for robot in robots])
    n = int(ends[-1])
    given = None if object_velocity is None else robots[0].convert(object_velocity, "object_velocity")

    def problem(x: Array) -> GraspProblem:
        """Moved along x: dq, dv of all arms, the object's pose and velocity."""
        dq, dv, turn, move, dV = jnp.split(x, [n, 2 * n, 2 * n + 3, 2 * n + 6])
        moved_q = [r.integrate(a, d) for r, a, d in zip(robots, q, jnp.split(dq, ends[:-1].tolist()), strict=True)]
        moved_v = [a + d for a, d in zip(v, jnp.split(dv, ends[:-1].tolist()), strict=True)]
        pose = rotation.from_quaternion(rotation.exponential(turn)) @ R, p + move
        V = None if given is None else given + dV
        return grasp_problem(system, moved_q, moved_v, tau, pose, object_velocity=V, f_ext=f_ext)

    still = jnp.zeros(2 * n + 12, R.dtype)
    at = problem(still)
    arms = over_arms(system, free_arm, at.q, at.v, at.tau, at.f_ext, at.jacobians, at.state.tips.bias)
    compliances = jnp.stack([arm.compliance for arm in arms])
    N = block_diagonal(at.state.held)
    inverse = lax.stop_gradient(pseudo_inverse(N @ omega(at, compliances) @ N))
    f = inverse.solve(N @ at.free_gap(jnp.stack([arm.tip for arm in arms])).reshape(-1))
    by_arm = f.reshape(-1, 6)
    a = tuple(arm.joints - arm.columns @ fi for arm, fi in zip(arms, by_arm, strict=True))
    alpha = at.compliance @ (jnp.einsum("lij,li->j", at.A, by_arm) - at.bias)
    maps = LinearMaps(lambda x: _rows(at, x), lambda f: _columns(at, f), _solver(at), inverse)
    u = maps.solve(maps.columns(inverse.solve(f)))
    residual = _gap(at, a, alpha)

    def by_kinematics(x: Array) -> Changes:
        """What changes at fixed accelerations and forces, but for the arms' inverse dynamics."""
        now = problem(x)
        pulled, on_object = _columns(now, f)
        force = now.inertia @ alpha + now.bias - on_object
        torques = tuple(-t for t in pulled)
        return Changes((torques, force), _gap(now, a, alpha), _rows(now, u), _columns(now, residual))

    d = jax.jacfwd(by_kinematics)(still)
    own = [linearize_inverse_dynamics(r, *x) for r, *x in zip(robots, at.q, at.v, a, at.f_ext, strict=True)]
    torques = []
    for k, (robot, linear, change) in enumerate(zip(robots, own, d.torque[0], strict=True)):
        where = slice(int(ends[k]) - robot.nv, int(ends[k]))
        change = change.at[:, where].add(linear.wrt_q).at[:, n + where.start : n + where.stop].add(linear.wrt_v)
        torques.append(jnp.concatenate([change, -jnp.eye(n, dtype=change.dtype)[where]], axis=1))

    def widened(x: Array) -> Array:  # torques move nothing by themselves
        return jnp.concatenate([x, jnp.zeros((*x.shape[:-1], n), x.dtype)], axis=-1)

    rest = jax.tree.map(widened, d._replace(torque=d.torque[1]))
    d = rest._replace(torque=(tuple(torques), rest.torque))
    (da, d_alpha), df = jax.vmap(lambda d: perturbed_motion(maps, d), in_axes=-1, out_axes=-1)(d)
    found = []
    for x in (jnp.concatenate(da), d_alpha, df.reshape(-1, 6, df.shape[-1])):
        by_q, by_v, by_pose, by_V, by_tau = jnp.split(x, [n, 2 * n, 2 * n + 6, 2 * n + 12], axis=-1)
        found += [by_q, by_v, by_tau, by_pose, by_V]
    return LinearizedGraspDynamics(*found)


def _rows(problem: GraspProblem, x) -> Float[Array, " six_l"]:
    """G x = N (A alpha - J a)."""
    a, alpha = x
    tips = jnp.stack([J @ ai for J, ai in zip(problem.jacobians, a, strict=True)])
    apart = jnp.einsum("lij,j->li", problem.A, alpha) - tips
    return jnp.einsum("lij,lj->li", problem.state.held, apart).reshape(-1)


def _columns(problem: GraspProblem, f: Array) -> tuple[tuple[Array, ...], Array]:
    """G* f: on the joints of each arm, and on the object."""
    held = jnp.einsum("lij,lj->li", problem.state.held, f.reshape(-1, 6))
    return tuple(-J.T @ fi for J, fi in zip(problem.jacobians, held, strict=True)), jnp.einsum(
        "lij,li->j", problem.A, held
    )


def _gap(problem: GraspProblem, a: Sequence[Array], alpha: Array) -> Float[Array, " six_l"]:
    """G x + bias: how fast the contacts part."""
    bias = problem.centripetal - problem.state.tips.bias - problem.slip_bias
    return _rows(problem, (a, alpha)) + jnp.einsum("lij,lj->li", problem.state.held, bias).reshape(-1)


def _solver(problem: GraspProblem):
    """M^-1 of arms and object."""

    def factors(robot: Multibody, frame: str, q: Array, v: Array) -> tuple:
        return solve_motion(robot, q, v, jnp.zeros_like(v), jnp.zeros_like(v), None, None)[2]

    found = lax.stop_gradient(over_arms(problem.system, factors, problem.q, problem.v))

    def solve(x):
        torques, force = x
        arms = zip(problem.system.arms, problem.q, found, torques, strict=True)
        return tuple(differentiable_solve(arm.robot, q, k, t) for arm, q, k, t in arms), problem.compliance @ force

    return solve
