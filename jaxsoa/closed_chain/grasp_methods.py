"""Forward dynamics of a grasp, by every algorithm of JPL 88-11, Part II, and one more.

    dense      the whole system (2.11), with contact freedom (b.1), solved at once: O(n^3)
    analytic   the closed form (3.6), with contact freedom (b.9), from dense inverses
    general    the four steps (4.9) on any open-chain solver, columns of J M^-1 J* from that solver too
    rccfd1-3   the recursive algorithms (6.11), (6.18), (6.22): O(n) + O(l^3)
    rank6      beyond the report: Omega is block-diagonal plus rank six, so arms are absorbed one by one: O(n) + O(l)

A method maps a `GraspProblem` to (joint accelerations per arm, contact forces (l, 6), rank). Contact freedom enters all
of them through the projectors N of the held directions: f = N f and N Omega N f = N (...), whose pseudo-inverse is the
report's Pi (b.7b). Only "analytic" writes Pi as the report does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from jaxsoa.closed_chain.algebra import PseudoInverse, pseudo_inverse, stack
from jaxsoa.closed_chain.grasp import over_arms
from jaxsoa.closed_chain.grasp_problem import GraspProblem
from jaxsoa.dynamics.articulated import ArticulatedBody, Factors, carry_force, carry_motion, smooth, smoothed, whiten
from jaxsoa.dynamics.forward import forward_dynamics
from jaxsoa.dynamics.inverse import inverse_dynamics_raw
from jaxsoa.dynamics.kinematics import frame_placement
from jaxsoa.dynamics.mass import articulated, costate_covariances, dense_mass_matrix, mass_matrix_inverse
from jaxsoa.dynamics.motion import differentiable_solve, solve_motion
from jaxsoa.model.multibody import Multibody
from jaxsoa.sweeps import SweepPlan, gather, scatter

Solution = tuple[tuple[Array, ...], Array, Array]


def block_diagonal(blocks) -> Array:
    return jax.scipy.linalg.block_diag(*blocks)


def omega(problem: GraspProblem, compliances: Array) -> Array:
    """Omega = J M^-1 J* + A M(C)^-1 A* (3.1), (6l, 6l)."""
    A = problem.A.reshape(-1, 6)
    return block_diagonal(compliances) + A @ problem.compliance @ A.T


class _Contacts(NamedTuple):
    """Pi = (N Omega N)^+, ready to apply."""

    held: Array
    inverse: PseudoInverse

    def forces(self, y: Array) -> Array:
        """f(0) = Pi y, (l, 6) to (l, 6)."""
        return self.held_times(self.inverse.solve(self.held_times(y).reshape(-1)).reshape(y.shape))

    def held_times(self, y: Array) -> Array:
        return jnp.einsum("lij,lj->li", self.held, y)


def _contacts(problem: GraspProblem, compliances: Array) -> _Contacts:
    N = block_diagonal(problem.state.held)
    return _Contacts(problem.state.held, pseudo_inverse(N @ omega(problem, compliances) @ N))


# --- references ---------------------------------------------------------------------------------------------------


def _bias_free(problem: GraspProblem) -> list[Array]:
    """T' = T - C (2.15a)."""
    return over_arms(
        problem.system,
        lambda robot, frame, q, v, tau, f: tau - inverse_dynamics_raw(robot, q, v, jnp.zeros_like(tau), f),
        problem.q,
        problem.v,
        problem.tau,
        problem.f_ext,
    )


def dense(problem: GraspProblem) -> Solution:
    """(2.11); with contact freedom its first row and column carry N, and (I - N) f = 0 fills the rows set free."""
    masses = over_arms(problem.system, lambda robot, frame, q: dense_mass_matrix(robot, q), problem.q)
    M, J, A = block_diagonal(masses), block_diagonal(problem.jacobians), problem.A.reshape(-1, 6)
    N = block_diagonal(problem.state.held)
    n, m = M.shape[0], J.shape[0]
    K = jnp.block(
        [
            [jnp.eye(m, dtype=N.dtype) - N, N @ J, -N @ A],
            [J.T @ N, M, jnp.zeros((n, 6), M.dtype)],
            [-A.T @ N, jnp.zeros((6, n), M.dtype), problem.inertia],
        ]
    )
    first = problem.centripetal - problem.slip_bias - problem.state.tips.bias
    right = jnp.concatenate([N @ first.reshape(-1), *_bias_free(problem), -problem.bias])
    solver = pseudo_inverse(K)
    x = solver.solve(right)
    freedom = sum(arm.contact.freedom for arm in problem.system.arms)
    return _split(problem, x[m : m + n]), x[:m].reshape(-1, 6), solver.rank - n - 6 - freedom


def _split(problem: GraspProblem, a: Array) -> tuple[Array, ...]:
    ends = np.cumsum([arm.robot.nv for arm in problem.system.arms])[:-1]
    return tuple(jnp.split(a, ends.tolist()))


def analytic(problem: GraspProblem) -> Solution:
    """(b.9), which is (3.6) when the contacts are rigid, with Pi as the report writes it (b.9c).

    The report inverts Omega. Arms of fewer than six degrees of freedom, or at a singularity, make it singular, also
    along free directions, where nothing can be inverted away. Pi does not change if Omega is filled up along these,
    Omega + s (I - N): what is still singular then no contact holds, and the pseudo-inverse leaves it out, so that
    Pi = (N Omega N)^+ as for the other methods.
    """
    inverses = over_arms(problem.system, lambda robot, frame, q: mass_matrix_inverse(robot, q), problem.q)
    M_inv, J, A = block_diagonal(inverses), block_diagonal(problem.jacobians), problem.A.reshape(-1, 6)
    H = block_diagonal(problem.state.axes)
    T = jnp.concatenate(_bias_free(problem))
    W = J @ M_inv @ J.T + A @ problem.compliance @ A.T
    if H.shape[0]:
        size = lax.stop_gradient(jnp.mean(jnp.diagonal(W)))
        W = W + size * (jnp.eye(len(W), dtype=W.dtype) - block_diagonal(problem.state.held))
    W = pseudo_inverse(W)
    W_inv = jax.vmap(W.solve, in_axes=1, out_axes=1)(jnp.eye(len(A), dtype=A.dtype))
    Pi = W_inv
    if H.shape[0]:
        Pi = W_inv - W_inv @ H.T @ jnp.linalg.solve(H @ W_inv @ H.T, H @ W_inv)
    first = problem.state.tips.bias + problem.slip_bias - problem.centripetal
    G1 = first.reshape(-1) + A @ problem.compliance @ problem.bias
    f = Pi @ (J @ M_inv @ T + G1)
    a = M_inv @ (T - J.T @ f)
    return _split(problem, a), f.reshape(-1, 6), W.rank - H.shape[0]


def general(problem: GraspProblem, open_chain: str = "articulated") -> Solution:
    """(4.9) on any open-chain forward dynamics: free motion, contact forces, correction, sum."""

    def free(robot: Multibody, frame, q, v, tau, f_ext, J, bias):
        a = forward_dynamics(robot, q, v, tau, f_ext, method=open_chain)  # (4.9a)
        still = robot.with_springs(None).with_gravity(jnp.zeros(3))

        def response(torque):  # M^-1 torque by the same solver: at rest, without gravity
            return forward_dynamics(still, q, jnp.zeros_like(v), torque, method=open_chain)

        columns = jax.vmap(response)(J).T
        return a, J @ a + bias, J @ columns, columns  # (4.9b)

    p = problem
    parts = over_arms(p.system, free, p.q, p.v, p.tau, p.f_ext, p.jacobians, p.state.tips.bias)
    contacts = _contacts(p, jnp.stack([part[2] for part in parts]))
    f = contacts.forces(p.free_gap(jnp.stack([part[1] for part in parts])))  # (4.9d)
    a = tuple(free - columns @ fi for (free, _, _, columns), fi in zip(parts, f, strict=True))  # (4.9e, g)
    return a, f, contacts.inverse.rank


# --- the report's recursive algorithms ----------------------------------------------------------------------------


class _ArmFactors(NamedTuple):
    """What an arm's Riccati sweep leaves: found once, used before and after the contact forces are known."""

    body: ArticulatedBody
    offset: Array  # from the last link's origin to the contact


def _factors(robot: Multibody, frame: str, q: Array) -> _ArmFactors:
    kin, body = articulated(robot, q)
    _, point, link = frame_placement(robot, kin, frame)
    return _ArmFactors(body, point - kin.position[link])


class _ArmOperators:
    """One arm's operators: sweeps for (I - H psi K), H psi B, B* psi* H* and the compliance (6.10)."""

    def __init__(self, robot: Multibody, frame: str, factors: _ArmFactors):
        self.robot, self.body, self.arm = robot, factors.body, factors.offset
        topology = robot.topology
        self.node = topology.v_slices[topology.frame_links[topology.frame_number(frame)]].stop - 1

    def filtered(self, x: Array, f: Array | None = None) -> Array:
        """D^-1 {(I - H psi K) x - H psi B f}."""
        force = None
        if f is not None:
            at_link = carry_force(self.arm, f)
            force = jnp.zeros((self.robot.nv, 6), at_link.dtype).at[self.node].set(at_link)
        return whiten(self.robot, self.body.tree, self.body.gain, x, force) / self.body.pivot

    def smoothed(self, nu: Array) -> Array:
        """(I - H psi K)* nu."""
        return smooth(self.robot, self.body.tree, self.body.gain, nu)

    def tip_motion(self, nu: Array) -> Array:
        """B* psi* H* nu."""
        lam = smoothed(self.robot, self.body.tree, self.body.gain, nu)[1]
        return carry_motion(self.arm, lam[self.node])

    def compliance(self) -> Array:
        """B* psi* H* D^-1 H psi B by the recursion (6.10), base to tip."""
        _, lam = costate_covariances(self.robot, self.body)
        shift = jax.vmap(lambda row: carry_motion(self.arm, row))
        return shift(shift(lam[self.node]).T)


def _swept(problem: GraspProblem) -> list[_ArmFactors]:
    return over_arms(problem.system, _factors, problem.q)


def rccfd1(problem: GraspProblem) -> Solution:
    """(6.11): free accelerations, contact forces, corrections."""
    p, factors = problem, _swept(problem)

    def free(robot, frame, factors, torque, J, bias):
        arm = _ArmOperators(robot, frame, factors)
        a = arm.smoothed(arm.filtered(torque))
        return a, J @ a + bias, arm.compliance()

    def correction(robot, frame, factors, f):
        arm = _ArmOperators(robot, frame, factors)
        return arm.smoothed(arm.filtered(jnp.zeros(robot.nv, f.dtype), f))  # (6.3) with its sign

    parts = over_arms(p.system, free, factors, _bias_free(p), p.jacobians, p.state.tips.bias)
    contacts = _contacts(p, jnp.stack([part[2] for part in parts]))
    f = contacts.forces(p.free_gap(jnp.stack([part[1] for part in parts])))
    corrections = over_arms(p.system, correction, factors, f)
    return tuple(part[0] + d for part, d in zip(parts, corrections, strict=True)), f, contacts.inverse.rank


def rccfd2(problem: GraspProblem) -> Solution:
    """(6.18): tip accelerations straight from the filter, then one filter for torques and contact forces together."""
    p, factors = problem, _swept(problem)
    torques = _bias_free(p)

    def free(robot, frame, factors, torque):
        arm = _ArmOperators(robot, frame, factors)
        return arm.tip_motion(arm.filtered(torque)), arm.compliance()

    def joint(robot, frame, factors, torque, f):
        arm = _ArmOperators(robot, frame, factors)
        return arm.smoothed(arm.filtered(torque, f))

    motion, compliances = stack(over_arms(p.system, free, factors, torques))
    contacts = _contacts(p, compliances)
    f = contacts.forces(p.free_gap(motion + p.state.tips.bias))
    return tuple(over_arms(p.system, joint, factors, torques, f)), f, contacts.inverse.rank


def rccfd3(problem: GraspProblem) -> Solution:
    """(6.22): the responses to torques and to a'(C) found apart and added."""
    p, factors = problem, _swept(problem)

    def free(robot, frame, factors, torque):
        arm = _ArmOperators(robot, frame, factors)
        nu = arm.filtered(torque)
        return nu, arm.tip_motion(nu), arm.compliance()

    def joint(robot, frame, factors, nu, f):
        arm = _ArmOperators(robot, frame, factors)
        return arm.smoothed(nu + arm.filtered(jnp.zeros_like(nu), f))

    parts = over_arms(p.system, free, factors, _bias_free(p))
    contacts = _contacts(p, jnp.stack([part[2] for part in parts]))
    from_bias = -p.free_gap(p.state.tips.bias)  # a'(C)
    zeta = contacts.forces(from_bias)  # (6.22d)
    from_torques = contacts.forces(jnp.stack([part[1] for part in parts]))
    first = over_arms(p.system, joint, factors, [part[0] for part in parts], from_torques)  # (6.22f)
    second = over_arms(p.system, joint, factors, [jnp.zeros_like(part[0]) for part in parts], -zeta)  # (6.22g)
    return tuple(a + b for a, b in zip(first, second, strict=True)), from_torques - zeta, contacts.inverse.rank


# --- the fast ones ------------------------------------------------------------------------------------------------


class FreeArm(NamedTuple):
    """An arm let go: accelerations of joints and tip, and how both answer to a force at the tip."""

    joints: Array
    tip: Array
    columns: Array  # M^-1 J*
    compliance: Array  # J M^-1 J*
    factors: Factors


def free_arm(robot: Multibody, frame: str, q, v, tau, f_ext, J, bias, given=None, prescribed=None) -> FreeArm:
    """One forward dynamics and, with its factors, two sweeps for six columns. Derivatives avoid the Riccati sweep.

    Of joints whose motion is prescribed only the given acceleration is left: no force at the tip moves them.
    """
    a, _, factors = solve_motion(robot, q, v, tau if given is None else given, tau, f_ext, prescribed)
    factors = lax.stop_gradient(factors)
    columns = jax.vmap(lambda row: differentiable_solve(robot, q, factors, row, prescribed), out_axes=1)(J)
    return FreeArm(a, J @ a + bias, columns, J @ columns, factors)


def _free_arms(problem: GraspProblem) -> tuple[list[FreeArm], Array, Array]:
    p = problem
    arms = over_arms(
        p.system, free_arm, p.q, p.v, p.tau, p.f_ext, p.jacobians, p.state.tips.bias, p.given, p.prescribed
    )
    return arms, jnp.stack([arm.tip for arm in arms]), jnp.stack([arm.compliance for arm in arms])


def _corrected(arms: list[FreeArm], f: Array) -> tuple[Array, ...]:
    return tuple(arm.joints - arm.columns @ fi for arm, fi in zip(arms, f, strict=True))


def whole_omega(problem: GraspProblem) -> Solution:
    """Sweeps for the arms, one pseudo-inverse for all contacts: least contact forces where they are not determined."""
    arms, tips, compliances = _free_arms(problem)
    contacts = _contacts(problem, compliances)
    f = contacts.forces(problem.free_gap(tips))
    return _corrected(arms, f), f, contacts.inverse.rank


def rank6(problem: GraspProblem) -> Solution:
    """Omega = diag(Lambda_i) + A M(C)^-1 A* by its structure, in O(l).

    Woodbury's identity would need every Lambda_i inverted, which fails for an arm at a singularity. Its covariance form
    does not: the object's acceleration is an estimate with covariance M(C)^-1, each arm a measurement of it with noise
    covariance Lambda_i, and the contact forces are the smoother's multipliers. A filter over the arms, then back:

        e = N (alpha_f,i + (H*)'W - a_i - A_i x),  S = N (A_i C A_i* + Lambda_i) N,  K = C A_i* S^+
        x <- x + K e,   C <- (I - K A_i) C (I - K A_i)* + K Lambda_i K*            (i = 1 .. l)
        f_i = S^+ e - K* r,   r <- r + A_i* f_i                                     (i = l .. 1)

    "It is analogous to combining two distinct state estimates" (overview, section 6). Where contact forces are not
    determined the answer is finite and satisfies the equations but is not the least one.
    """
    arms, tips, compliances = _free_arms(problem)
    N, A = problem.state.held, problem.A
    measured = tips + problem.slip_bias - problem.centripetal
    plan = SweepPlan(range(-1, len(arms) - 1))

    def absorb(estimate, arm):
        x, C = estimate
        N, A, compliance, y = arm
        A, noise = N @ A, N @ compliance @ N
        e = N @ y - A @ x
        S = pseudo_inverse(A @ C @ A.T + noise)
        K = jax.vmap(S.solve, in_axes=1, out_axes=1)(A @ C).T
        rest = jnp.eye(6, dtype=C.dtype) - K @ A
        x, C = x + K @ e, rest @ C @ rest.T + K @ noise @ K.T
        return (x, C), (S.solve(e), K, S.rank)

    base = (problem.free_object, problem.compliance)
    first, K, ranks = scatter(plan, absorb, base, (N, A, compliances, measured))

    def share(later, arm):
        N, A, first, K = arm
        f = N @ (first - K.T @ later)
        return later + A.T @ f, f

    # `gather` hands each arm the sum over those absorbed after it.
    _, f = gather(plan, share, jnp.zeros(6, first.dtype), (N, A, first, K))
    return _corrected(arms, f), f, jnp.sum(ranks)


RANK6_FROM = 5
"""With at least this many arms "auto" takes the O(l) form; below, Omega as a whole is as fast and least-norm."""


def auto(problem: GraspProblem) -> Solution:
    return rank6(problem) if problem.system.n_arms >= RANK6_FROM else whole_omega(problem)


HYBRID = ("auto", "rank6")
"""Methods that know of prescribed joints."""

METHODS: dict[str, Callable[..., Solution]] = {
    "auto": auto,
    "dense": dense,
    "analytic": analytic,
    "general": general,
    "rccfd1": rccfd1,
    "rccfd2": rccfd2,
    "rccfd3": rccfd3,
    "rank6": rank6,
}
