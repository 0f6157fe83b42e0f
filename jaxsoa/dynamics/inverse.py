"""Inverse dynamics: joint torques of a given motion, by Newton-Euler and by composite bodies.

tau = H phi [M phi* (H* a + bias) + b - f_ext]   (JPL 88-11, 3.17-3.20), plus what acts in the joints themselves.
Gravity enters as an upward acceleration of the base.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

from jaxsoa.dynamics import newton_euler as by_pairs
from jaxsoa.dynamics.kinematics import (
    accelerations,
    carried,
    gravity_upward,
    joint_rates,
    kinematics,
    link_inertias,
    moving_kinematics,
)
from jaxsoa.dynamics.linear_maps import linear_zeros
from jaxsoa.dynamics.newton_euler import (
    dissipation as dissipation,
    inter_body_forces,
    link_biases,
    moving_bodies,
    torque_of,
)
from jaxsoa.dynamics.springs import stored_energy, taken_off, unsprung
from jaxsoa.dynamics.tangents import Varying, perturbed_torque
from jaxsoa.eager import compiled
from jaxsoa.kernels import door, is_zero, ruled
from jaxsoa.model.multibody import Multibody
from jaxsoa.model.topology import Topology
from jaxsoa.spatial import ops, pairs
from jaxsoa.spatial.inertia import RigidInertia
from jaxsoa.sweeps import gather

# In arrays (n, 6), what `newton_euler.py` does with pairs.


def bias_forces(inertias: RigidInertia, angular: Array, f_ext: Array | None) -> Float[Array, "n 6"]:
    """b(k) - f_ext(k): gyroscopic forces less what pushes on the links from outside."""
    return pairs.flat(*link_biases(inertias, angular, f_ext))


def newton_euler(inertias: RigidInertia, alpha: Array, bias: Array) -> Float[Array, "n 6"]:
    """M alpha + b: the net force each link needs, about its own origin."""
    return pairs.flat(*inertias.times(*pairs.halves(alpha))) + bias


def sum_outboard(robot: Multibody, offset: Array, forces: Array) -> Float[Array, "n 6"]:
    """phi times forces: each link's force plus all that hang outboard of it, carried to its own origin."""
    return pairs.flat(*by_pairs.sum_outboard(robot, offset, pairs.halves(forces)))


def project(robot: Multibody, axes: Array, forces: Array) -> Float[Array, " nv"]:
    """H times link forces."""
    return by_pairs.project(robot, pairs.halves(axes), pairs.halves(forces))


def _torque(robot: Multibody, q: Array, v: Array, a: Array, f_ext: Array | None) -> Array:
    return torque_of(robot, moving_bodies(robot, q, v), v, a, f_ext)


_by_kernel = door(_torque)


def _inverse_dynamics_rule(primals, tangents):
    robot, q, v, a, f_ext = primals
    d_robot, d_q, d_v, d_a, d_f_ext = tangents
    tau = _without_springs(robot, q, v, a, f_ext)
    varying = Varying.of((robot, q, v, f_ext), (d_robot, d_q, d_v, d_f_ext))
    if is_zero(d_a):
        if not varying.rates:
            return tau, jnp.zeros_like(tau)
        d_a = linear_zeros(tau.shape, tau.dtype, varying.rates)
    return tau, perturbed_torque(varying, a.astype(tau.dtype), d_a.astype(tau.dtype))


@ruled(_inverse_dynamics_rule)
def _without_springs(robot: Multibody, q: Array, v: Array, a: Array, f_ext: Array | None) -> Array:
    return _by_kernel(robot, q, v, a, f_ext)


def inverse_dynamics_raw(robot: Multibody, q: Array, v: Array, a: Array, f_ext: Array | None) -> Array:
    """`inverse_dynamics` of checked arguments."""
    robot, pull = unsprung(robot, q)
    tau = _without_springs(robot, q, v, a, f_ext)
    return tau if pull is None else tau - pull


@compiled
def inverse_dynamics(
    robot: Multibody,
    q: Shaped[Array, " nq"],
    v: Shaped[Array, " nv"],
    a: Shaped[Array, " nv"],
    f_ext: Shaped[Array, "n 6"] | None = None,
    *,
    method: str = "newton-euler",
) -> Float[Array, " nv"]:
    """Torques that give the accelerations `a` in the state (q, v), against gravity, f_ext, springs, friction, armature.

    Methods: "newton-euler" (two sweeps, O(N)), "composite" (DARTS unit 7: forces from composite-body inertias) and
    "parallel" (Newton-Euler by associative scans, O(log N) depth).

    Units: rad, rad/s, rad/s^2, f_ext in N m and N; N m (N for prismatic joints).

    >>> a = soa.forward_dynamics(robot, q, v, tau)
    >>> print(soa.inverse_dynamics(robot, q, v, a).round(3))  # tau again
    [1.  0.5]
    """
    q, v, a, f_ext = robot.check_q(q), robot.check_v(v), robot.check_v(a, "a"), robot.check_f_ext(f_ext)
    if method == "newton-euler":
        return inverse_dynamics_raw(robot, q, v, a, f_ext)
    if robot.springs is not None:
        robot, pull = taken_off(robot, q)
        return inverse_dynamics(robot, q, v, a, f_ext, method=method) - pull
    if method == "composite":
        return _composite_inverse_dynamics(robot, q, v, a, f_ext)
    if method == "parallel":
        from jaxsoa.dynamics.parallel import inverse_dynamics_parallel  # which itself builds on this module

        return inverse_dynamics_parallel(robot, q, v, a, f_ext)
    raise ValueError(f"Unknown method {method!r} of inverse_dynamics; choose newton-euler, composite or parallel.")


@compiled
def bias_force(
    robot: Multibody, q: Shaped[Array, " nq"], v: Shaped[Array, " nv"], f_ext: Shaped[Array, "n 6"] | None = None
) -> Float[Array, " nv"]:
    """What inverse dynamics needs for zero acceleration: Coriolis, gravity, friction, springs, less external forces.

    Units: rad, rad/s; N m (N for prismatic joints).

    >>> print(soa.bias_force(robot, q, jnp.zeros(2)).round(2))  # gravity alone
    [ 3.37 -0.97]
    """
    v = robot.check_v(v)
    return inverse_dynamics_raw(robot, robot.check_q(q), v, jnp.zeros_like(v), robot.check_f_ext(f_ext))


@compiled(kernel=True)
def link_forces(
    robot: Multibody,
    q: Shaped[Array, " nq"],
    v: Shaped[Array, " nv"],
    a: Shaped[Array, " nv"],
    f_ext: Shaped[Array, "n 6"] | None = None,
) -> Float[Array, "n 6"]:
    """Inter-body forces: what each link's parent exerts on it by the joint; world axes, about the link's origin.

    Units: rad, rad/s, rad/s^2; N m and N.

    >>> forces = soa.link_forces(robot, q, jnp.zeros(2), jnp.zeros(2))
    >>> print(forces[:, 5].round(2))  # upward, at rest: the weights of two links and of one
    [19.62  9.81]
    """
    q, v, a, f_ext = robot.check_q(q), robot.check_v(v), robot.check_v(a, "a"), robot.check_f_ext(f_ext)
    return jnp.concatenate(inter_body_forces(robot, moving_bodies(robot, q, v), a, f_ext), axis=-1)


# --- composite bodies ---------------------------------------------------------------------------------------------


def composite_bodies(topology: Topology, bodies: Any, offset: Array) -> Any:
    """R(k): everything outboard of joint k as one body about the link's origin (DARTS 4; linearization 3.7), by one
    inward sweep. `bodies` are rigid ones, or any arrays per link that add up and can be seen from elsewhere: `shifted`.
    """

    def step(children, x):
        body, offset = x
        total = jax.tree.map(jnp.add, children, body)
        return total.shifted(offset), total

    nothing = jax.tree.map(lambda x: carried(jnp.zeros_like(x[0]), (bodies, offset)), bodies)
    return gather(topology.link_plan, step, nothing, (bodies, offset))[1]


def _composite_inverse_dynamics(robot: Multibody, q: Array, v: Array, a: Array, f_ext: Array | None) -> Array:
    """f = R alpha + y, y = phi [b + E_phi R (H* a + bias)] (DARTS unit 7, the form hybrid dynamics switches to)."""
    kin, vel = moving_kinematics(robot, q, v)
    inertias = link_inertias(robot, kin.rotation)
    R = composite_bodies(robot.topology, inertias, kin.offset)
    source = joint_rates(robot, kin.axes, a) + vel.bias
    alpha = accelerations(robot, kin.offset, source, gravity_upward(robot, source))

    def step(children, x):
        b, from_source, offset = x
        y = children + b
        return pairs.flat(*pairs.carry_force(offset, pairs.halves(y + from_source))), y

    bias = bias_forces(inertias, vel.angular, f_ext)
    zero = jnp.zeros(6, bias.dtype)
    from_source = newton_euler(R, source, zero)
    _, y = gather(robot.topology.link_plan, step, zero, (bias, from_source, kin.offset))
    return project(robot, kin.axes, newton_euler(R, alpha, y)) + robot.armature * a + dissipation(robot, v)


# --- momentum, energy, centre of mass -----------------------------------------------------------------------------


@compiled(kernel=True)
def kinetic_energy(robot: Multibody, q: Shaped[Array, " nq"], v: Shaped[Array, " nv"]) -> Float[Array, ""]:
    """Half of v* M v; the armature's share is counted.

    Units: rad, rad/s; J.

    >>> print(f"{soa.kinetic_energy(robot, q, v):.4f}")
    0.2720
    """
    q, v = robot.check_q(q), robot.check_v(v)
    kin, vel = moving_kinematics(robot, q, v)
    momenta = newton_euler(link_inertias(robot, kin.rotation), vel.spatial, jnp.zeros(6, kin.axes.dtype))
    return (jnp.sum(vel.spatial * momenta) + jnp.sum(robot.armature * v * v)) / 2


@compiled(kernel=True)
def potential_energy(robot: Multibody, q: Shaped[Array, " nq"]) -> Float[Array, ""]:
    """Minus mass times gravity times height of the centre of mass, the world's origin at zero; and that of springs.

    Units: rad; J.

    >>> print(f"{soa.potential_energy(robot, q):.3f}")
    -18.865
    """
    weight = -jnp.sum(robot.mass) * jnp.dot(robot.gravity, center_of_mass(robot, q))
    return weight if robot.springs is None else weight + stored_energy(robot, robot.check_q(q))


@compiled(kernel=True)
def center_of_mass(robot: Multibody, q: Shaped[Array, " nq"]) -> Float[Array, "3"]:
    """World position of the centre of mass of all moving links.

    Units: rad; m.

    >>> print(soa.center_of_mass(robot, q).round(3))
    [-0.172  0.    -0.962]
    """
    kin = kinematics(robot, robot.check_q(q))
    centers = kin.position + jax.vmap(ops.matvec)(kin.rotation, robot.com)
    return robot.base_position + jnp.sum(robot.mass[:, None] * centers, axis=0) / jnp.sum(robot.mass)


@compiled(kernel=True)
def momentum(robot: Multibody, q: Shaped[Array, " nq"], v: Shaped[Array, " nv"]) -> Float[Array, "6"]:
    """Total spatial momentum (angular about the world's origin, linear), world axes.

    Units: rad, rad/s; kg m^2/s and kg m/s.

    >>> print(soa.momentum(robot, q, v)[3:].round(3))  # linear
    [-0.867  0.     0.118]
    """
    kin, vel = moving_kinematics(robot, robot.check_q(q), robot.check_v(v))
    momenta = newton_euler(link_inertias(robot, kin.rotation), vel.spatial, jnp.zeros(6, kin.axes.dtype))
    arms = kin.position + robot.base_position
    angular = momenta[:, :3] + jax.vmap(ops.cross)(arms, momenta[:, 3:])
    return jnp.concatenate([jnp.sum(angular, axis=0), jnp.sum(momenta[:, 3:], axis=0)])
