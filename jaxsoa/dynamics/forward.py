"""Forward dynamics: one function, and the family of algorithms the papers derive for it.

"articulated" is the default and the only one tuned for speed; the others are the papers' algorithms as they stand, and
oracles for each other. With T' = tau - friction, and C-type terms as in T' = M a + H phi [M phi* bias + b - f_ext]:

    fd1       JPL 88-11 (4.17)-(4.18): bias-free torques by Newton-Euler, then (I - H psi K)* D^-1 (I - H psi K)
    fd2       JPL 88-11 (5.5)-(5.7): the same filter, but link accelerations come out too
    fd3       JPL 88-11 (5.8)-(5.10): biases enter the filter through M phi* bias
    fd4       JPL 88-11 (5.13)-(5.15): biases enter the filter through P bias; no sweep for phi* bias
    kalman    JPL 86-48 section 8: one filter and one smoother, biases differentiated in the body frame
    crb       dense mass matrix by composite bodies, Cholesky
    parallel  the filter and smoother as associative scans: O(log N) depth (see `parallel`)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Shaped

from jaxsoa.dynamics.articulated import (
    ArticulatedBody,
    articulated_body,
    on_first,
    on_last,
    smooth,
    smoothed,
    whiten,
)
from jaxsoa.dynamics.inverse import (
    accelerations,
    bias_forces,
    dissipation,
    inverse_dynamics_raw,
    newton_euler,
)
from jaxsoa.dynamics.kinematics import Kinematics, Velocities, gravity_upward, link_inertias, moving_kinematics
from jaxsoa.dynamics.mass import dense_mass_matrix
from jaxsoa.dynamics.motion import solve_motion
from jaxsoa.dynamics.parallel import forward_dynamics_parallel, hybrid_dynamics_parallel
from jaxsoa.dynamics.springs import unsprung
from jaxsoa.eager import compiled
from jaxsoa.model.multibody import Multibody
from jaxsoa.spatial.inertia import RigidInertia, SpatialInertia


@compiled
def forward_dynamics(
    robot: Multibody,
    q: Shaped[Array, " nq"],
    v: Shaped[Array, " nv"],
    tau: Shaped[Array, " nv"],
    f_ext: Shaped[Array, "n 6"] | None = None,
    *,
    method: str = "articulated",
) -> Float[Array, " nv"]:
    """Accelerations that the torques `tau` give in the state (q, v). O(N) except for method "crb".

    Units: rad, rad/s, N m, f_ext in N m and N; rad/s^2 (m, m/s, N and m/s^2 for prismatic joints).

    >>> a = soa.forward_dynamics(robot, q, v, tau)
    >>> print(a.round(3))
    [-7.838 22.691]
    """
    q, v, tau, f_ext = robot.check_q(q), robot.check_v(v), robot.check_v(tau, "tau"), robot.check_f_ext(f_ext)
    if method not in METHODS:
        raise ValueError(f"Unknown method {method!r} of forward_dynamics; choose one of {', '.join(METHODS)}.")
    return METHODS[method](*_driven(robot, q, v, tau), f_ext)


def _driven(robot: Multibody, q: Array, v: Array, tau: Array) -> tuple[Multibody, Array, Array, Array]:
    """The same motion without springs: their torques are among those given."""
    robot, pull = unsprung(robot, q)
    return robot, q, v, tau if pull is None else tau + pull


@compiled
def hybrid_dynamics(
    robot: Multibody,
    q: Shaped[Array, " nq"],
    v: Shaped[Array, " nv"],
    a: Shaped[Array, " nv"],
    tau: Shaped[Array, " nv"],
    prescribed: Shaped[Array, " nv"],
    f_ext: Shaped[Array, "n 6"] | None = None,
    *,
    method: str = "articulated",
) -> tuple[Float[Array, " nv"], Float[Array, " nv"]]:
    """Complete accelerations and torques from a mix of both (DARTS unit 7, hybrid dynamics), in O(N).

    Where `prescribed` (bool, may be traced and change at run time) `a` is given and the torque found; elsewhere `tau`
    is given and the acceleration found. Entries that are not read may hold anything finite. Method "parallel" takes
    O(log N) steps, as that of `forward_dynamics`.

    Units: rad, rad/s, rad/s^2, N m.

    >>> prescribed = soa.prescribed_mask(robot, ["joint1"])  # held at zero acceleration; the second swings
    >>> a, torques = soa.hybrid_dynamics(robot, q, v, jnp.zeros(2), jnp.zeros(2), prescribed)
    >>> print(a.round(3), torques.round(3))
    [0.    3.038] [5.768 0.   ]
    """
    q, v, a, tau = robot.check_q(q), robot.check_v(v), robot.check_v(a, "a"), robot.check_v(tau, "tau")
    prescribed = jnp.asarray(prescribed)
    if prescribed.shape != (robot.nv,) or prescribed.dtype != jnp.bool_:
        raise ValueError(
            f"prescribed must be bool of shape (nv,) = ({robot.nv},), got {prescribed.dtype} {prescribed.shape}."
        )
    f_ext = robot.check_f_ext(f_ext)
    if method == "parallel":
        robot, pull = unsprung(robot, q)
        if pull is None:
            return hybrid_dynamics_parallel(robot, q, v, a, tau, prescribed, f_ext)
        found, torque = hybrid_dynamics_parallel(robot, q, v, a, tau + pull, prescribed, f_ext)
        return found, torque - pull
    if method != "articulated":
        raise ValueError(f'Unknown method {method!r} of hybrid_dynamics; choose "articulated" or "parallel".')
    acceleration, torque, _ = solve_motion(robot, q, v, a, tau, f_ext, prescribed)
    return acceleration, torque


class _Stage(NamedTuple):
    """What every paper algorithm starts from."""

    kin: Kinematics
    vel: Velocities
    inertias: RigidInertia
    body: ArticulatedBody
    torque: Array  # tau less friction


def _stage(robot: Multibody, q, v, tau) -> _Stage:
    kin, vel = moving_kinematics(robot, q, v)
    inertias = link_inertias(robot, kin.rotation)
    return _Stage(kin, vel, inertias, articulated_body(robot, kin, inertias), tau - dissipation(robot, v))


def _bias_motion(robot: Multibody, stage: _Stage) -> Array:
    """zeta = phi* a, gravity included: link accelerations at zero joint acceleration."""
    return accelerations(robot, stage.kin.offset, stage.vel.bias, gravity_upward(robot, stage.vel.bias))


def _articulated(robot, q, v, tau, f_ext):
    return solve_motion(robot, q, v, tau, tau, f_ext, None)[0]


def _fd1(robot, q, v, tau, f_ext):
    stage = _stage(robot, q, v, tau)
    bias_free = tau - inverse_dynamics_raw(robot, q, v, jnp.zeros_like(tau), f_ext)
    e = whiten(robot, stage.body.tree, stage.body.gain, bias_free)
    return smooth(robot, stage.body.tree, stage.body.gain, e / stage.body.pivot)


@compiled
def accelerations_by_fd2(
    robot: Multibody,
    q: Shaped[Array, " nq"],
    v: Shaped[Array, " nv"],
    tau: Shaped[Array, " nv"],
    f_ext: Shaped[Array, "n 6"] | None = None,
) -> tuple[Float[Array, " nv"], Float[Array, "n 6"]]:
    """FD2: joint accelerations and, from the same sweep, link accelerations lambda + phi* a (JPL 88-11, 5.6).

    World axes, at each link's origin, gravity not among them: those of `link_accelerations`.

    Units: rad, rad/s, N m; rad/s^2, links in rad/s^2 and m/s^2.

    >>> a, links = soa.accelerations_by_fd2(robot, q, v, tau)
    >>> print(a.round(3), jnp.allclose(links, soa.link_accelerations(robot, q, v, a)))
    [-7.838 22.691] True
    """
    q, v, tau, f_ext = robot.check_q(q), robot.check_v(v), robot.check_v(tau, "tau"), robot.check_f_ext(f_ext)
    robot, q, v, tau = _driven(robot, q, v, tau)
    stage = _stage(robot, q, v, tau)
    bias_free = tau - inverse_dynamics_raw(robot, q, v, jnp.zeros_like(tau), f_ext)
    nu = whiten(robot, stage.body.tree, stage.body.gain, bias_free) / stage.body.pivot

    a, lam = smoothed(robot, stage.body.tree, stage.body.gain, nu)
    zero = jnp.zeros(3, nu.dtype)
    zeta = accelerations(robot, stage.kin.offset, stage.vel.bias, (zero, zero))
    return a, lam[robot.topology.dof_is_last] + zeta


def _fd2(robot, q, v, tau, f_ext):
    return accelerations_by_fd2(robot, q, v, tau, f_ext)[0]


def _fd3(robot, q, v, tau, f_ext):
    stage = _stage(robot, q, v, tau)
    force = newton_euler(
        stage.inertias, _bias_motion(robot, stage), bias_forces(stage.inertias, stage.vel.angular, f_ext)
    )
    e = whiten(robot, stage.body.tree, stage.body.gain, stage.torque, on_last(robot, force))
    return smooth(robot, stage.body.tree, stage.body.gain, e / stage.body.pivot)


def _fd4(robot, q, v, tau, f_ext):
    stage = _stage(robot, q, v, tau)
    # Gravity is an acceleration of the base; as a bias of the links that hang on it, it needs no sweep of its own.
    bias = on_first(robot, stage.vel.bias) + _gravity_on_roots(robot, stage.vel.bias)
    force = on_last(robot, bias_forces(stage.inertias, stage.vel.angular, f_ext))
    return _filter_and_smooth(robot, stage.body, stage.torque, bias, force)


def _gravity_on_roots(robot: Multibody, like: Array) -> Array:
    """Minus gravity on every degree of freedom that hangs on the base."""
    roots = jnp.asarray([parent < 0 for parent in robot.topology.dof_parents])
    up = jnp.concatenate(gravity_upward(robot, like))
    return jnp.where(roots[:, None], up, 0)


def _filter_and_smooth(robot: Multibody, body: ArticulatedBody, torque, bias, force) -> Array:
    """Predictor-corrector filter inward, Bryson-Frazier smoother outward (JPL 86-48, 8.2-8.13; JPL 88-11, 5.16-5.17).

    `bias` and `force` (nv, 6) are the bias acceleration and bias force of every degree of freedom. The filter predicts
    z with the bias force (8.3) and corrects it by the innovation tau - H z (8.6, with z where the report prints x) and
    P+ bias (8.7), P+ = P - G D G* (8.9); the smoother has the biases in its co-states (8.12-8.13).
    """
    P = jax.vmap(SpatialInertia.matrix)(body.inertia)
    along = body.pivot * jnp.sum(body.gain * bias, axis=-1)
    corrected = jnp.einsum("kij,kj->ki", P, bias) - body.gain * along[:, None]  # P+ bias
    residual = whiten(robot, body.tree, body.gain, torque, force, corrected) / body.pivot  # (8.8)
    return smoothed(robot, body.tree, body.gain, residual, bias)[0]


def body_frame_biases(robot: Multibody, stage_kin: Kinematics, vel: Velocities, inertias: RigidInertia, f_ext):
    """eta and xi of JPL 86-48 (5.6, 4.4): bias acceleration and force when v' is differentiated in the link's frame.

    There lambda = (w', v' - w x v), so eta differs from the inertial-frame bias by w x v of the parent less that of
    the link, and xi from b by M (0, w x v). Gravity acts as an external force, as the report has it.
    """
    parents = jnp.asarray(robot.topology.parents)
    turning = jnp.cross(vel.angular, vel.linear)
    inboard = jnp.where((parents >= 0)[:, None], turning[parents], 0)
    eta = jnp.concatenate([vel.bias_angular, vel.bias_linear + inboard - turning], axis=-1)
    pseudo = turning - robot.gravity
    still = jnp.zeros_like(pseudo)
    xi = newton_euler(inertias, jnp.concatenate([still, pseudo], axis=-1), bias_forces(inertias, vel.angular, f_ext))
    return eta, xi


def _kalman(robot, q, v, tau, f_ext):
    stage = _stage(robot, q, v, tau)
    eta, xi = body_frame_biases(robot, stage.kin, stage.vel, stage.inertias, f_ext)
    return _filter_and_smooth(robot, stage.body, stage.torque, on_first(robot, eta), on_last(robot, xi))


def _crb(robot, q, v, tau, f_ext):
    M = dense_mass_matrix(robot, q)
    rest = tau - inverse_dynamics_raw(robot, q, v, jnp.zeros_like(tau), f_ext)
    return jax.scipy.linalg.solve(M, rest, assume_a="pos")


METHODS: dict[str, Callable] = {
    "articulated": _articulated,
    "fd1": _fd1,
    "fd2": _fd2,
    "fd3": _fd3,
    "fd4": _fd4,
    "kalman": _kalman,
    "crb": _crb,
    "parallel": forward_dynamics_parallel,
}


class AccelerationSplit(NamedTuple):
    """The joint acceleration in three parts, which add up to forward dynamics (JPL 86-48, 10.1)."""

    from_torques: Float[Array, " nv"]
    from_bias_forces: Float[Array, " nv"]
    from_bias_accelerations: Float[Array, " nv"]


@compiled
def acceleration_split(
    robot: Multibody,
    q: Shaped[Array, " nq"],
    v: Shaped[Array, " nv"],
    tau: Shaped[Array, " nv"],
    f_ext: Shaped[Array, "n 6"] | None = None,
) -> AccelerationSplit:
    """Accelerations due to joint torques (less friction, with springs), to bias forces (gyroscopic, gravity, external)
    and to bias accelerations, with biases differentiated in the link frames (JPL 86-48, 10.1-10.3).

    Units: rad, rad/s, N m; each part in rad/s^2.

    >>> parts = soa.acceleration_split(robot, q, v, tau)
    >>> print(jnp.allclose(sum(parts), soa.forward_dynamics(robot, q, v, tau)))
    True
    """
    q, v, tau, f_ext = robot.check_q(q), robot.check_v(v), robot.check_v(tau, "tau"), robot.check_f_ext(f_ext)
    robot, q, v, tau = _driven(robot, q, v, tau)
    stage = _stage(robot, q, v, tau)
    eta, xi = body_frame_biases(robot, stage.kin, stage.vel, stage.inertias, f_ext)
    eta, xi = on_first(robot, eta), on_last(robot, xi)
    torque = stage.torque

    def response(torque, eta, xi):
        return _filter_and_smooth(robot, stage.body, torque, eta, xi)

    return AccelerationSplit(
        response(torque, jnp.zeros_like(eta), jnp.zeros_like(xi)),
        response(jnp.zeros_like(torque), jnp.zeros_like(eta), xi),
        response(jnp.zeros_like(torque), eta, jnp.zeros_like(xi)),
    )


def prescribed_mask(robot: Multibody, joints: list[str]) -> Bool[Array, " nv"]:
    """The `prescribed` argument of `hybrid_dynamics` that prescribes the motion of the joints named.

    >>> print(soa.prescribed_mask(robot, ["joint1"]))
    [ True False]
    """
    mask = jnp.zeros(robot.nv, bool)
    for joint in joints:
        mask = mask.at[robot.v_index(joint)].set(True)
    return mask
