"""Dynamics in O(log N) depth: the articulated-body recursion is a Kalman filter, and Kalman filters run in parallel.

JPL 86-48 (section 9) reads forward dynamics as estimation: spatial forces are the state, phi the transition, M(k) the
process covariance, torques exact measurements (armature their noise). A stretch of the filter is then an element
(A, b, C, eta, J): given the state before it, the state after it has mean A x + b and covariance C, and its
measurements inform about x as eta, J. Elements combine associatively (Sarkka & Garcia-Fernandez, Temporal
parallelization of Bayesian smoothers, 2021), so `lax.associative_scan` does in log N steps what the sweep does in N.
The outward recursions are affine maps, which compose.

Here a joint is one block of up to six measurements, and a stretch is described by itself, so a link without inertia
would make its joint's measurements infinitely informative. Such joints are lent an armature, which conjugate gradients
take back. Serial `forward_dynamics` is the oracle.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from jaxsoa.dynamics.inverse import base_acceleration, bias_forces, dissipation, newton_euler, project
from jaxsoa.dynamics.kinematics import (
    Kinematics,
    Velocities,
    joint_motion,
    joint_rates,
    link_inertias,
    spatial_rows,
    velocity_step,
    world_axes,
)
from jaxsoa.model.multibody import Multibody
from jaxsoa.parallel_sweeps import PathPlan, prefix_from_base, suffix_from_tips


@lru_cache(maxsize=256)
def path_plan(parents: tuple[int, ...]) -> PathPlan:
    return PathPlan(parents)


def _mv(m: Array, x: Array) -> Array:
    return jnp.einsum("...ij,...j->...i", m, x)


def _t(m: Array) -> Array:
    return jnp.swapaxes(m, -1, -2)


def _skew(a: Array) -> Array:
    zero = jnp.zeros_like(a[..., 0])
    x, y, z = a[..., 0], a[..., 1], a[..., 2]
    rows = [jnp.stack(r, -1) for r in ((zero, -z, y), (z, zero, -x), (-y, x, zero))]
    return jnp.stack(rows, -2)


def _phi(offset: Array) -> Float[Array, "n 6 6"]:
    """phi(parent, k): a force at the link's origin seen at its parent's."""
    n = offset.shape[0]
    eye = jnp.broadcast_to(jnp.eye(3, dtype=offset.dtype), (n, 3, 3))
    top = jnp.concatenate([eye, _skew(offset)], -1)
    return jnp.concatenate([top, jnp.concatenate([jnp.zeros_like(eye), eye], -1)], -2)


def parallel_kinematics(robot: Multibody, q: Array, v: Array) -> tuple[Kinematics, Velocities]:
    """What `moving_kinematics` computes, by three prefix compositions: poses, angular and linear velocities."""
    plan = path_plan(robot.topology.parents)
    motion = joint_motion(robot, q, v)
    dtype = motion.rotation.dtype

    def poses(inner, outer):
        (R, p), (S, r) = inner, outer
        return R @ S, p + _mv(R, r)

    base = (robot.base_rotation.astype(dtype), jnp.zeros(3, dtype))
    R, p = prefix_from_base(plan, poses, (motion.rotation, motion.position), base)
    parents = np.array(robot.topology.parents)

    def of_parent(x: Array, at_base: Array) -> Array:
        return jnp.where((parents >= 0).reshape(-1, *(1,) * (x.ndim - 1)), x[parents], at_base)

    offset = _mv(of_parent(R, base[0]), motion.position)

    def in_world(x):
        return jnp.zeros_like(p) if x is None else _mv(R, x)

    s_w, s_v = in_world(motion.velocity_angular), in_world(motion.velocity_linear)
    c_w, c_v = in_world(motion.bias_angular), in_world(motion.bias_linear)
    zero = jnp.zeros(3, dtype)
    w = prefix_from_base(plan, jnp.add, s_w, zero)
    linear = prefix_from_base(plan, jnp.add, jnp.cross(of_parent(w, zero), offset) + s_v, zero)
    *_, a_w, a_v = jax.vmap(velocity_step)(of_parent(w, zero), of_parent(linear, zero), offset, s_w, s_v, c_w, c_v)
    axes = spatial_rows(*world_axes(robot, R, motion))
    return Kinematics(R, p, offset, axes), Velocities(w, linear, jnp.asarray(a_w), jnp.asarray(a_v))


def _motions(robot: Multibody, kin: Kinematics, source: Array, base: Array) -> Float[Array, "n 6"]:
    """phi* source in log depth: angular parts add up, then linear parts with what the angular ones give."""
    plan, parents = path_plan(robot.topology.parents), np.array(robot.topology.parents)
    w = prefix_from_base(plan, jnp.add, source[:, :3], base[:3])
    inner = jnp.where((parents >= 0)[:, None], w[parents], base[:3])
    v = prefix_from_base(plan, jnp.add, jnp.cross(inner, kin.offset) + source[:, 3:], base[3:])
    return jnp.concatenate([w, v], axis=-1)


def _base(robot: Multibody, like: Array) -> Array:
    return jnp.concatenate(base_acceleration(robot, like))


def inverse_dynamics_parallel(robot: Multibody, q: Array, v: Array, a: Array, f_ext: Array | None) -> Array:
    """Newton-Euler in log depth: link forces are summed from the tips by an associative scan."""
    kin, vel = parallel_kinematics(robot, q, v)
    inertias = link_inertias(robot, kin.rotation)
    source = joint_rates(robot, kin.axes, a) + vel.bias
    alpha = _motions(robot, kin, source, _base(robot, source))
    net = newton_euler(inertias, alpha, bias_forces(inertias, vel.angular, f_ext))
    plan = path_plan(robot.topology.parents)

    heavy = _next_on_path(plan, robot.n_links)
    way_in = jnp.where((heavy >= 0)[:, None], kin.offset[heavy], 0)

    # An element (keep, l, f) takes the force g summed so far, at the child's origin, to f + keep phi(l) g at its own.
    def element(x, received, is_tip):
        way_in, f, _ = x
        return jnp.where(is_tip, 0.0, jnp.ones_like(f[:, 0])), way_in, f + received

    def combine(outer, inner):
        (keep1, l1, f1), (keep2, l2, f2) = outer, inner
        return keep1 * keep2, l1 + l2, f2 + keep2[:, None] * carried(l2, f1)

    def carried(l, f):
        return jnp.concatenate([f[:, :3] + jnp.cross(l, f[:, 3:]), f[:, 3:]], axis=-1)

    def message(x, result):
        return carried(x[2], result[2])

    xs = (way_in, net, kin.offset)
    (_, _, forces), _ = suffix_from_tips(plan, combine, element, message, jnp.zeros(6, net.dtype), xs)
    return project(robot, kin.axes, forces) + robot.armature * a + dissipation(robot, v)


class _Stretch(NamedTuple):
    """A stretch of the filter."""

    A: Array
    b: Array
    C: Array
    eta: Array
    J: Array


def _combine(outer: _Stretch, inner: _Stretch) -> _Stretch:
    """`outer` is filtered first (it lies toward the tip)."""
    i, j = outer, inner
    eye = jnp.eye(6, dtype=i.C.dtype)
    right = jnp.concatenate([i.A, i.C, (i.b + _mv(i.C, j.eta))[..., None]], axis=-1)
    X = jnp.linalg.solve(eye + i.C @ j.J, right)
    XA, XC, Xb = X[..., :6], X[..., 6:12], X[..., 12]
    return _Stretch(
        j.A @ XA,
        _mv(j.A, Xb) + j.b,
        _symmetric(j.A @ XC @ _t(j.A) + j.C),
        _mv(_t(XA), j.eta - _mv(j.J, i.b)) + i.eta,
        _symmetric(_t(XA) @ j.J @ i.A + i.J),
    )


def _symmetric(m: Array) -> Array:
    return (m + _t(m)) / 2


def forward_dynamics_parallel(robot: Multibody, q: Array, v: Array, tau: Array, f_ext: Array | None) -> Array:
    """Accelerations in O(log N) depth; same arguments and answer as the serial sweeps."""
    weak = _joints_without_inertia(robot)
    if not weak.any():
        return _filter_and_smooth(robot, q, v, tau, f_ext)
    # Each lent armature is a change of rank one, so as many steps as there are, and one, solve exactly.
    size = jnp.mean(robot.mass) * (jnp.mean(jnp.sum(robot.joint_position**2, axis=1)) + jnp.mean(robot.com**2))
    lender = robot.replace(armature=jnp.where(weak, size, robot.armature))
    still = robot.frictionless().replace(gravity=jnp.zeros(3), armature=robot.armature)
    lending = still.replace(armature=lender.armature)
    zero = jnp.zeros_like(v)
    a = _filter_and_smooth(lender, q, v, tau, f_ext)
    residual = tau - inverse_dynamics_parallel(robot, q, v, a, f_ext)

    def solve(r):
        return _filter_and_smooth(lending, q, zero, r, None)

    def improve(_, state):
        a, r, z, direction, rz = state
        product = inverse_dynamics_parallel(still, q, zero, direction, None)
        step = _ratio(rz, direction @ product)
        a, r = a + step * direction, r - step * product
        z = solve(r)
        new = r @ z
        return a, r, z, z + _ratio(new, rz) * direction, new

    z = solve(residual)
    steps = min(int(weak.sum()) + 1, MOST_STEPS)
    return jax.lax.fori_loop(0, steps, improve, (a, residual, z, z, residual @ z))[0]


MOST_STEPS = 20
"""Steps of conjugate gradients for robots with massless links."""


def _ratio(x: Array, y: Array) -> Array:
    return jnp.where(y > 0, x / jnp.where(y > 0, y, 1), 0)


def _filter_and_smooth(robot: Multibody, q: Array, v: Array, tau: Array, f_ext: Array | None) -> Array:
    topology = robot.topology
    plan = path_plan(topology.parents)
    kin, vel = parallel_kinematics(robot, q, v)
    inertias = link_inertias(robot, kin.rotation)
    M = jax.vmap(lambda body: body.spatial().matrix())(inertias)
    # Bias accelerations leave the filter as in FD3 (JPL 88-11, 5.8-5.10): b + M phi* a.
    zeta = _motions(robot, kin, vel.bias, _base(robot, vel.bias))
    u = newton_euler(inertias, zeta, bias_forces(inertias, vel.angular, f_ext))

    # Joints padded to the most degrees of freedom there are: rows of zeros, measured as zero with unit noise.
    rows = max(joint.nv for joint in topology.joints)
    index = np.full((topology.n_links, rows), topology.nv)
    for link, s in enumerate(topology.v_slices):
        index[link, : s.stop - s.start] = np.arange(s.start, s.stop)
    padded = index == topology.nv
    H = jnp.concatenate([kin.axes, jnp.zeros_like(kin.axes[:1])])[index]
    y = jnp.concatenate([tau - dissipation(robot, v), jnp.zeros(1, tau.dtype)])[index]
    noise = jnp.concatenate([robot.armature, jnp.ones(1, robot.armature.dtype)])[index]
    # The transition into link k comes from its child on the same path; sums over paths arrive as messages.
    heavy = _next_on_path(plan, topology.n_links)
    to_parent = _phi(kin.offset)
    F = jnp.where((heavy >= 0)[:, None, None], to_parent[heavy], 0)

    def element(x, received, is_tip):
        M, u, H, y, noise, F, _ = x
        P_side, z_side = received
        Q, u = M + P_side, u + z_side
        QH = Q @ _t(H)
        S_inverse = _inverse(H @ QH, noise)
        K = QH @ S_inverse
        rest = y - _mv(H, u)
        HF = H @ F
        keep = jnp.eye(6, dtype=Q.dtype) - K @ H
        FHS = _t(HF) @ S_inverse
        # Tips have F = 0, so A, eta and J vanish and nothing before them counts.
        return _Stretch(keep @ F, u + _mv(K, rest), keep @ Q, _mv(FHS, rest), FHS @ HF)

    def message(x, result):
        to_parent = x[-1]
        return to_parent @ result.C @ _t(to_parent), _mv(to_parent, result.b)

    zero = (jnp.zeros((6, 6), M.dtype), jnp.zeros(6, M.dtype))
    xs = (M, u, H, y, noise, F, to_parent)
    filtered, (P_side, z_side) = suffix_from_tips(plan, _combine, element, message, zero, xs)

    # P and z of every link from its neighbour's filtered ones, then gains and innovations, all at once.
    C = jnp.where((heavy >= 0)[:, None, None], filtered.C[heavy], 0)
    b = jnp.where((heavy >= 0)[:, None], filtered.b[heavy], 0)
    P = M + P_side + F @ C @ _t(F)
    z = u + z_side + _mv(F, b)
    PH = P @ _t(H)
    D_inverse = _inverse(H @ PH, noise)
    G = PH @ D_inverse
    nu = _mv(D_inverse, y - _mv(H, z))

    # Outward: lambda = (I - G H)* phi* lambda(parent) + H* nu, an affine map per link.
    back = (jnp.eye(6, dtype=P.dtype) - _t(H) @ _t(G)) @ _t(to_parent)

    def affine(inner, outer):
        (A1, b1), (A2, b2) = inner, outer
        return A2 @ A1, _mv(A2, b1) + b2

    at_base = (jnp.eye(6, dtype=P.dtype), jnp.zeros(6, P.dtype))
    _, lam = prefix_from_base(plan, affine, (back, _mv(_t(H), nu)), at_base)
    parents = np.array(topology.parents)
    inner = jnp.where((parents >= 0)[:, None], lam[parents], 0)
    acceleration = nu - _mv(_t(G), _mv(_t(to_parent), inner))
    return acceleration.reshape(-1)[np.flatnonzero(~padded.ravel())]


def _inverse(S: Array, noise: Array) -> Array:
    """(S + diag(noise))^-1 of small symmetric blocks."""
    S = S + noise[..., None] * jnp.eye(S.shape[-1], dtype=S.dtype)
    return 1 / S if S.shape[-1] == 1 else jnp.linalg.inv(S)


def _next_on_path(plan: PathPlan, n: int) -> np.ndarray:
    """The child on the same path, -1 for tips."""
    following = np.full(n, -1)
    for level in plan.levels:
        inner = ~level.is_tip
        following[level.links[inner]] = level.links[np.flatnonzero(inner) + 1]
    return following


def _joints_without_inertia(robot: Multibody) -> np.ndarray:
    """(nv,) bool: degrees of freedom whose link has no mass and which have no armature, as far as known now."""
    if isinstance(robot.mass, Tracer) or isinstance(robot.armature, Tracer):
        return np.zeros(robot.nv, bool)
    massless = ~(np.asarray(robot.mass) > 0)
    return massless[robot.topology.dof_link] & ~(np.asarray(robot.armature) > 0)
