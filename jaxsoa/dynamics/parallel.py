"""Dynamics in O(log N) depth: the articulated-body recursion is a Kalman filter, and Kalman filters run in parallel.

JPL 86-48 (section 9) reads forward dynamics as estimation: spatial forces are the state, phi the transition, M(k) the
process covariance, torques exact measurements (armature their noise). A stretch of the filter is then an element that
relates forces x and motions lambda at its two ends, and elements combine associatively, so `lax.associative_scan` does
in log N steps what the sweep does in N. The outward recursions are affine maps, which compose. Serial
`forward_dynamics` is the oracle.

An element is written in waves, p = x - Z lambda running inward and r = x + Z lambda running outward:

    p_out = A p_in + C r_out + b,      r_in = J p_in + A* r_out + e

(Redheffer, On a certain linear fractional transformation, 1960). The usual form of parallel filters (Sarkka &
Garcia-Fernandez, Temporal parallelization of Bayesian smoothers, 2021) has x_in and lambda_out for inputs, which
asks of every stretch that it can take any force: a link without inertia of its own cannot, its joint's measurement is
infinitely informative, and a link with little loses all digits. Waves can always be sent. Inertia dissipates like a
resistor, x_out . lambda_out - x_in . lambda_in = lambda* M lambda >= 0, so an element never gives back more than it
got, and elements meet in a singular way only if something inside can move without inertia and without moving the ends,
that is, if the robot's mass matrix is singular. Z is any positive matrix, the same for both neighbours.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from jaxsoa.dynamics.inverse import bias_forces, dissipation, newton_euler, project
from jaxsoa.dynamics.joints import joint_motion
from jaxsoa.dynamics.kinematics import (
    Kinematics,
    Velocities,
    gravity_upward,
    joint_rates,
    link_inertias,
    spatial_rows,
    velocity_step,
    world_axes,
)
from jaxsoa.model.multibody import Multibody
from jaxsoa.parallel_sweeps import PathPlan, prefix_from_base, suffix_from_tips
from jaxsoa.spatial import pairs


@lru_cache(maxsize=256)
def path_plan(parents: tuple[int, ...]) -> PathPlan:
    return PathPlan(parents)


def _mv(m: Array, x: Array) -> Array:
    return jnp.einsum("...ij,...j->...i", m, x)


def _t(m: Array) -> Array:
    return jnp.swapaxes(m, -1, -2)


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
    return jnp.concatenate(gravity_upward(robot, like))


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
    """A stretch of the filter, in waves."""

    A: Array
    b: Array
    C: Array
    e: Array
    J: Array


def _combine(outer: _Stretch, inner: _Stretch) -> _Stretch:
    """Redheffer's star product; `outer` is filtered first (it lies toward the tip).

    Between the two p = A_i p_in + C_i r + b_i and r = J_j p + A_j* r_out + e_j.
    """
    i, j = outer, inner
    right = jnp.concatenate([i.A, i.C @ _t(j.A), (i.b + _mv(i.C, j.e))[..., None]], axis=-1)
    X = jnp.linalg.solve(_eye(i.C) - i.C @ j.J, right)
    XA, XC, Xb = X[..., :6], X[..., 6:12], X[..., 12]
    return _Stretch(
        j.A @ XA,
        j.b + _mv(j.A, Xb),
        _symmetric(j.C + j.A @ XC),
        i.e + _mv(_t(i.A), j.e + _mv(j.J, Xb)),
        _symmetric(i.J + _t(i.A) @ j.J @ XA),
    )


def _eye(like: Array) -> Array:
    return jnp.eye(like.shape[-1], dtype=like.dtype)


def _symmetric(m: Array) -> Array:
    return (m + _t(m)) / 2


OTHERS = 0.1
"""How much of the mean inertia of all links is in the wave impedance at a link, beside the link's own."""


def _impedance_roots(M: Array, offset: Array) -> Float[Array, "n 6"]:
    """Square roots of Z, a diagonal matrix at each joint: about the size of the inertia there, never zero.

    The answer does not depend on Z, its rounding does; so no derivative goes through it.
    """
    diagonal = jnp.diagonal(M, axis1=-2, axis2=-1)
    turning, mass = jnp.mean(diagonal[:, :3], axis=1), jnp.mean(diagonal[:, 3:], axis=1)
    mean_mass = jnp.mean(mass)
    mean_mass = jnp.where(mean_mass > 0, mean_mass, 1)
    # Of point masses that only slide, the lever arms; failing these too, a unit of length.
    mean_turning = jnp.mean(turning)
    levers = mean_mass * jnp.mean(jnp.sum(offset**2, axis=1))
    mean_turning = jnp.where(mean_turning > 0, mean_turning, jnp.where(levers > 0, levers, mean_mass))
    angular, linear = turning + OTHERS * mean_turning, mass + OTHERS * mean_mass
    return lax.stop_gradient(jnp.sqrt(jnp.concatenate([jnp.stack([x] * 3, axis=1) for x in (angular, linear)], axis=1)))


def _link_element(Q: Array, u: Array, H: Array, y: Array, noise: Array, F: Array, is_tip: np.ndarray) -> _Stretch:
    """Elements of single links, forces and motions in units of the impedance.

    Q is the link's inertia (with what hangs on it aside), u its bias force, F the way in of the force x_in from the
    next link out. With lambda = lambda_out + H* theta the link's motion, the force x_out = Q lambda + u + F x_in does
    work on the joint, H x_out + noise theta = y. Waves x_in = p_in + F* lambda add F F* to the inertia, which is then
    positive, and x_out = r - lambda_out makes its inverse (N + 1)^-1:

        N = Q + F F*,   R = (N + 1)^-1,   (H N R H* + noise) theta = y - H N R r - H R w,   w = u + F p_in
        lambda_out = R (r - w) - N R H* theta,   lambda = R (r - w) + R H* theta
    """
    N = Q + F @ _t(F)
    R = _symmetric(jnp.linalg.inv(N + _eye(N)))
    NR = _symmetric(N @ R)
    HNR, HR = H @ NR, H @ R
    gain = _inverse(HNR @ _t(H), noise)
    theta = gain @ jnp.concatenate([HNR, HR, -y[..., None]], axis=-1)  # of (r, w, 1), with the opposite sign
    end = _t(HNR) @ theta + jnp.concatenate([R, -R, jnp.zeros_like(u)[..., None]], axis=-1)  # lambda_out
    link = -_t(HR) @ theta[..., 6:] + jnp.concatenate([-R, jnp.zeros_like(u)[..., None]], axis=-1)  # lambda, of (w, 1)
    inner = ~is_tip  # nothing comes to a tip from outside, and nothing goes there
    return _Stretch(
        jnp.where(inner[:, None, None], -2 * end[..., 6:12] @ F, 0),
        -2 * (end[..., 12] + _mv(end[..., 6:12], u)),
        _symmetric(_eye(N) - 2 * end[..., :6]),
        jnp.where(inner[:, None], 2 * _mv(_t(F), link[..., 6] + _mv(link[..., :6], u)), 0),
        jnp.where(inner[:, None, None], _symmetric(_eye(N) + 2 * _t(F) @ link[..., :6] @ F), 0),
    )


def _inertia_behind(stretch: _Stretch, root: Array) -> tuple[Array, Array]:
    """What a stretch that ends in a tip is for the link it hangs on: x = P lambda + z, from (1 - C) x = (1 + C) lambda
    + b."""
    right = jnp.concatenate([_eye(stretch.C) + stretch.C, stretch.b[..., None]], axis=-1)
    solved = jnp.linalg.solve(_eye(stretch.C) - stretch.C, right)
    P = root[..., :, None] * _symmetric(solved[..., :6]) * root[..., None, :]
    return P, root * solved[..., 6]


def hybrid_dynamics_parallel(robot: Multibody, q: Array, v: Array, a, tau, prescribed, f_ext) -> tuple[Array, Array]:
    """Complete accelerations and torques in O(log N) depth: what is not prescribed by the filter, then Newton-Euler."""
    found = forward_dynamics_parallel(robot, q, v, tau, f_ext, jnp.where(prescribed, a, 0), prescribed)
    return found, jnp.where(prescribed, inverse_dynamics_parallel(robot, q, v, found, f_ext), tau)


def forward_dynamics_parallel(
    robot: Multibody, q: Array, v: Array, tau: Array, f_ext: Array | None, given: Array | None = None, prescribed=None
) -> Array:
    """Accelerations in O(log N) depth; same arguments and answer as the serial sweeps.

    Links without mass or inertia of their own are no exception, as long as the mass matrix can be inverted. Where
    `prescribed`, the acceleration is `given`: it joins the biases, and the joint gives way to no force.
    """
    topology = robot.topology
    plan = path_plan(topology.parents)
    kin, vel = parallel_kinematics(robot, q, v)
    inertias = link_inertias(robot, kin.rotation)
    M = jax.vmap(lambda body: body.spatial().matrix())(inertias)
    # Bias accelerations leave the filter as in FD3 (JPL 88-11, 5.8-5.10): b + M phi* a.
    source = vel.bias if given is None else vel.bias + joint_rates(robot, kin.axes, given)
    zeta = _motions(robot, kin, source, _base(robot, source))
    u = newton_euler(inertias, zeta, bias_forces(inertias, vel.angular, f_ext))

    # Joints padded to the most degrees of freedom there are: rows of zeros, measured as zero with unit noise.
    rows = max(joint.nv for joint in topology.joints)
    index = np.full((topology.n_links, rows), topology.nv)
    for link, s in enumerate(topology.v_slices):
        index[link, : s.stop - s.start] = np.arange(s.start, s.stop)
    padded = index == topology.nv
    axes, effort, armature = kin.axes, tau - dissipation(robot, v), robot.armature
    if prescribed is not None:  # like padding
        axes, effort = jnp.where(prescribed[:, None], 0, axes), jnp.where(prescribed, 0, effort)
        armature = jnp.where(prescribed, 1, armature)
    H = jnp.concatenate([axes, jnp.zeros_like(axes[:1])])[index]
    y = jnp.concatenate([effort, jnp.zeros(1, effort.dtype)])[index]
    noise = jnp.concatenate([armature, jnp.ones(1, armature.dtype)])[index]
    # The transition into link k comes from its child on the same path; sums over paths arrive as messages.
    heavy = _next_on_path(plan, topology.n_links)
    to_parent = pairs.phi(kin.offset)
    F = jnp.where((heavy >= 0)[:, None, None], to_parent[heavy], 0)
    root = _impedance_roots(M, kin.offset)

    def element(x, received, is_tip):
        M, u, H, y, noise, F, root, next_root, _ = x
        P_side, z_side = received
        Q = (M + P_side) / (root[:, :, None] * root[:, None, :])
        F = F * next_root[:, None, :] / root[:, :, None]
        return _link_element(Q, (u + z_side) / root, H * root[:, None, :], y, noise, F, is_tip)

    def message(x, result):
        root, _, to_parent = x[-3:]
        P, z = _inertia_behind(result, root)
        return to_parent @ P @ _t(to_parent), _mv(to_parent, z)

    zero = (jnp.zeros((6, 6), M.dtype), jnp.zeros(6, M.dtype))
    xs = (M, u, H, y, noise, F, root, root[heavy], to_parent)
    filtered, (P_side, z_side) = suffix_from_tips(plan, _combine, element, message, zero, xs)

    # P and z of every link from its neighbour's filtered ones, then gains and innovations, all at once.
    P_behind, z_behind = _inertia_behind(filtered, root)
    P = M + P_side + _times(_times(F, P_behind[heavy]), _t(F))
    z = u + z_side + _mv(F, z_behind[heavy])
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
    found = acceleration.reshape(-1)[np.flatnonzero(~padded.ravel())]
    return found if prescribed is None or given is None else jnp.where(prescribed, given, found)


def _times(A: Array, B: Array) -> Array:
    """A @ B as a sum: XLA's simplifier makes an invalid program of this product in a batch of batches."""
    return jnp.sum(A[..., :, :, None] * B[..., None, :, :], axis=-2)


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
