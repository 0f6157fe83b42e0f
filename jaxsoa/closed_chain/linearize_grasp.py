"""The linearized model of arms that hold an object: full matrices from the equations differentiated once.

Arms and object are one system x = (a_1, ..., a_l, alpha) with M x + C - tau - G* f = 0 and G x + bias = 0, where
G = N [-diag(J_i)  A] (JPL 88-11, Part II, 2.10 and b.1). The arms' own part is the papers' O(N^2) algorithm for the
linearized inverse model; the constraints' part is a tangent of the kinematics per column, a kernel, at the motion and
the forces found. `perturbed.py` solves for the changes with the factors of the one forward dynamics.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from jaxsoa.closed_chain.algebra import pseudo_inverse
from jaxsoa.closed_chain.grasp import GraspState, GraspSystem, Pose, check_pose, over_arms, state_of, velocity_gram
from jaxsoa.closed_chain.grasp_methods import block_diagonal, free_arm, omega
from jaxsoa.closed_chain.grasp_problem import GraspProblem, GraspTerms, check_prescription, grasp_terms
from jaxsoa.closed_chain.perturbed import Changes, perturbed_columns
from jaxsoa.dynamics.motion import differentiable_solve
from jaxsoa.eager import compiled
from jaxsoa.kernels import door
from jaxsoa.linearized.inverse import linearize_inverse_dynamics
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
    wrt_a: Float[Array, "n n"]  # by the accelerations of prescribed joints
    object_wrt_a: Float[Array, "6 n"]
    forces_wrt_a: Float[Array, "l 6 n"]


@compiled(through_door=False)
def linearize_grasp_forward_dynamics(
    system: GraspSystem,
    q: Sequence[Array],
    v: Sequence[Array],
    tau: Sequence[Array],
    object_pose: Pose,
    *,
    object_velocity: Shaped[Array, "6"] | None = None,
    f_ext: Sequence[Array | None] | None = None,
    a: Sequence[Array] | None = None,
    prescribed: Sequence[Array | None] | None = None,
) -> LinearizedGraspDynamics:
    """Derivatives of `grasp_forward_dynamics` by the arms' q (along tangents), v and tau and by the object's state.

    q, v, tau (and f_ext) hold one array per arm; object_pose = (R, p). Without `object_velocity` it follows from q and
    v, and so do its changes. Where contact forces are not determined the derivatives are those of the least ones, at
    constant rank. `a` and `prescribed` as in `grasp_forward_dynamics`.

    >>> system, q, pose = soa.closed_chain.mechanisms.two_arm_grasp()
    >>> still = [jnp.zeros(7)] * 2  # rad/s, N m
    >>> found = jax.jit(soa.closed_chain.linearize_grasp_forward_dynamics)(system, q, still, still, pose)
    >>> print(found.wrt_q.shape, found.wrt_pose.shape)  # 1/s^2
    (14, 14) (14, 6)
    """
    q, v = system.check("q", q, "check_q"), system.check("v", v, "check_v")
    tau, pose = system.check("tau", tau, "check_v"), check_pose(system, object_pose)
    robots = [arm.robot for arm in system.arms]
    f_ext = (None,) * len(robots) if f_ext is None else f_ext
    f_ext = tuple(r.check_f_ext(f) for r, f in zip(robots, f_ext, strict=True))
    given, masks = check_prescription(system, a, prescribed)
    sizes = [robot.nv for robot in robots]
    n, ends = sum(sizes), np.cumsum(sizes)[:-1].tolist()
    V = None if object_velocity is None else robots[0].convert(object_velocity, "object_velocity")
    # The object's velocity, where it is found from the arms': the spectrum of its equations is a constant of a column.
    spectrum = None if V is not None else pseudo_inverse(_gram(system, q, v, pose))[1:3]

    state, terms = _at(system, q, v, pose, V, spectrum)
    problem = GraspProblem(system, q, v, tau, f_ext, state, *terms, given=given, prescribed=masks)
    arms = over_arms(system, free_arm, q, v, tau, f_ext, problem.jacobians, state.tips.bias, given, masks)
    held = problem.state.held
    N = block_diagonal(held)
    inverse = pseudo_inverse(N @ omega(problem, jnp.stack([arm.compliance for arm in arms])) @ N)
    S = inverse.inverse()
    f = S @ (N @ problem.free_gap(jnp.stack([arm.tip for arm in arms])).reshape(-1))
    responses = [-block_diagonal([arm.columns for arm in arms]), problem.compliance @ _object_columns(problem)]
    responses = jnp.concatenate([responses[0] @ N, responses[1]])  # M^-1 G*
    free = jnp.concatenate([*(arm.joints for arm in arms), problem.free_object])
    x = free + responses @ f
    motion = _Motion(x, f, responses @ (S @ f), _gap(problem, x))

    directions = jnp.eye(2 * n + 12, dtype=x.dtype)
    column = partial(_by_state, system, q, v, pose, (V, spectrum), motion)
    d: Changes = jax.vmap(column, out_axes=-1)(directions)
    a = jnp.split(x[:n], ends)
    own = [linearize_inverse_dynamics(r, *y) for r, *y in zip(robots, q, v, a, f_ext, strict=True)]
    by_q, by_v, M = (block_diagonal(parts) for parts in zip(*own, strict=True))
    torque = d.torque.at[:n, :n].add(by_q).at[:n, n : 2 * n].add(by_v)
    # Torques and prescribed accelerations move nothing by themselves.
    some = any(mask is not None for mask in masks)
    fixed = [jnp.zeros(r.nv, x.dtype) if m is None else m for r, m in zip(robots, masks, strict=True)]
    fixed = jnp.diag(jnp.concatenate(fixed).astype(x.dtype))  # da where prescribed, from da
    inputs = jnp.concatenate([-jnp.eye(n, dtype=x.dtype), *([M @ fixed] if some else [])], axis=1)
    torque = jnp.concatenate([torque, jnp.pad(inputs, ((0, 6), (0, 0)))], axis=1)
    d = Changes(torque, *(jnp.pad(y, ((0, 0), (0, inputs.shape[1]))) for y in d[1:]))
    if some:
        d = d._replace(
            gap=d.gap.at[:, -n:].add(jax.vmap(partial(_rows, problem), 1, 1)(jnp.pad(fixed, ((0, 6), (0, 0)))))
        )

    def solve(columns: Array) -> Array:
        def of_arm(robot, frame, q, factors, columns, mask):
            return jax.vmap(lambda y: differentiable_solve(robot, q, factors, y, mask), 1, 1)(columns)

        factors = [arm.factors for arm in arms]
        moved = over_arms(system, of_arm, q, factors, jnp.split(columns[:n], ends), masks)
        return jnp.concatenate([*moved, problem.compliance @ columns[n:]])

    dx, df = perturbed_columns(solve, responses, inverse, d)
    if some:
        dx = dx.at[:n, -n:].add(fixed)
    else:
        dx, df = (jnp.pad(y, ((0, 0), (0, n))) for y in (dx, df))
    found, by_given = [], []
    for y in (dx[:n], dx[n:], df.reshape(-1, 6, df.shape[-1])):
        by_q, by_v, by_pose, by_V, by_tau, by_a = jnp.split(y, np.cumsum([n, n, 6, 6, n]).tolist(), axis=-1)
        found += [by_q, by_v, by_tau, by_pose, by_V]
        by_given.append(by_a)
    return LinearizedGraspDynamics(*found, *by_given)


class _Motion(NamedTuple):
    """What forward dynamics found: joints' and object's accelerations one after the other, and the contact forces."""

    x: Array
    f: Array
    u: Array  # M^-1 G* S f
    residual: Array


@door
def _gram(system: GraspSystem, q: tuple, v: tuple, pose: Pose) -> Array:
    return velocity_gram(system, q, v, pose)


def _terms(
    system: GraspSystem, q, v, pose: Pose, V: Array | None, spectrum: tuple | None
) -> tuple[GraspState, GraspTerms]:
    """The state, and what object and contacts add to the equations, as `GraspProblem` has them."""
    spectrum = None if spectrum is None else (*spectrum, jnp.zeros((), int))
    state = state_of(system, q, v, pose, None, V, spectrum)
    return state, grasp_terms(system, pose[0], state)


_at = door(_terms)


@door
def _by_state(
    system: GraspSystem, q, v, pose: Pose, object_velocity: tuple, motion: _Motion, direction: Array
) -> Changes:
    """One column, along (dq, dv) of all arms and the object's pose and velocity; without the arms' inverse dynamics."""
    robots = [arm.robot for arm in system.arms]
    ends = np.cumsum([robot.nv for robot in robots]).tolist()
    n = ends.pop()
    V, spectrum = object_velocity

    def by_kinematics(moved: Array) -> Changes:
        dq, dv, turn, move, dV = jnp.split(moved, [n, 2 * n, 2 * n + 3, 2 * n + 6])
        q_moved = tuple(r.integrate(x, d) for r, x, d in zip(robots, q, jnp.split(dq, ends), strict=True))
        v_moved = tuple(x + d for x, d in zip(v, jnp.split(dv, ends), strict=True))
        turned = rotation.from_quaternion(rotation.exponential(turn)) @ pose[0]
        velocity = None if V is None else V + dV
        state, terms = _terms(system, q_moved, v_moved, (turned, pose[1] + move), velocity, spectrum)
        none = (None,) * len(robots)
        now = GraspProblem(system, q_moved, v_moved, (), none, state, *terms, given=none, prescribed=none)
        force = now.inertia @ motion.x[n:] + now.bias
        torque = jnp.concatenate([jnp.zeros(n, force.dtype), force]) - _columns(now, motion.f)
        return Changes(torque, _gap(now, motion.x), _rows(now, motion.u), _columns(now, motion.residual))

    return jax.jvp(by_kinematics, (jnp.zeros_like(direction),), (direction,))[1]


def _rows(problem: GraspProblem, x: Array) -> Float[Array, " six_l"]:
    """G x = N (A alpha - J a)."""
    ends = np.cumsum([J.shape[1] for J in problem.jacobians]).tolist()
    *a, alpha = jnp.split(x, ends)
    tips = jnp.stack([J @ ai for J, ai in zip(problem.jacobians, a, strict=True)])
    apart = jnp.einsum("lij,j->li", problem.A, alpha) - tips
    return jnp.einsum("lij,lj->li", problem.state.held, apart).reshape(-1)


def _object_columns(problem: GraspProblem) -> Float[Array, "6 six_l"]:
    """The object's rows of G*."""
    return jnp.concatenate(list(problem.state.held @ problem.A)).T


def _columns(problem: GraspProblem, f: Array) -> Float[Array, " n_6"]:
    """G* f: on the joints of each arm, and on the object."""
    held = jnp.einsum("lij,lj->li", problem.state.held, f.reshape(-1, 6))
    joints = [-J.T @ fi for J, fi in zip(problem.jacobians, held, strict=True)]
    return jnp.concatenate([*joints, jnp.einsum("lij,li->j", problem.A, held)])


def _gap(problem: GraspProblem, x: Array) -> Float[Array, " six_l"]:
    """G x + bias: how fast the contacts part."""
    bias = problem.centripetal - problem.state.tips.bias - problem.slip_bias
    return _rows(problem, x) + jnp.einsum("lij,lj->li", problem.state.held, bias).reshape(-1)
