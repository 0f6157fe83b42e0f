"""The Coriolis matrix that passivity asks for: C(q, v) w in O(N), with M' - 2 C antisymmetric, for any tree and joints.

With V(k) = J v and W(k) = J w the links' velocities at their origins (world axes), and the link's inertia M(k) turning
with the link,

    C w = sum over links of J* (M J' w + N(V) W),     N = [ w~ J_o + m (c x u)~    m w~ c~ ]
                                                          [      - m w~ c~             0   ]   for V = (w, u),

J_o the rotational inertia about the origin and c the centre of mass. N + N* = M' makes M' - 2 C antisymmetric, and
N V = b, the gyroscopic force, makes C v the Coriolis force of Newton-Euler (JPL 88-11, 3.10). The sum is H phi (...):
one outward sweep, its tangent along v, and one inward sweep.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

from jaxsoa.dynamics.inverse import newton_euler, project, sum_outboard
from jaxsoa.dynamics.kinematics import Kinematics, accelerations, joint_rates, kinematics, link_inertias
from jaxsoa.eager import compiled
from jaxsoa.model.multibody import Multibody
from jaxsoa.spatial import ops
from jaxsoa.spatial.inertia import RigidInertia


@compiled(kernel=True)
def coriolis_times(
    robot: Multibody, q: Shaped[Array, " nq"], v: Shaped[Array, " nv"], w: Shaped[Array, " nv"]
) -> Float[Array, " nv"]:
    """C(q, v) w: Coriolis and centrifugal torques with two velocities, as adaptive and passivity-based control ask.

    Linear in v and in w; C(q, v) v is `bias_force` without gravity and friction; M' - 2 C(q, v) is antisymmetric along
    the motion with velocity v, for every kind of joint.

    Units: rad, rad/s; N m (N for prismatic joints).

    >>> print(soa.coriolis_times(robot, q, v, v).round(3))
    [ 0.048 -0.038]
    """
    return _times(robot, robot.check_q(q), robot.check_v(v), robot.check_v(w, "w"))


def _times(robot: Multibody, q: Array, v: Array, w: Array) -> Array:
    kin, V, W, dW = two_motions(robot, q, v, w)
    inertias = link_inertias(robot, kin.rotation)
    forces = newton_euler(inertias, dW, jax.vmap(_turning_force)(inertias, V, W))
    return project(robot, kin.axes, sum_outboard(robot, kin.offset, forces))


def two_motions(robot: Multibody, q: Array, v: Array, w: Array) -> tuple[Kinematics, Array, Array, Array]:
    """Poses, the links' velocities J v and J w at their origins (n, 6), and J' w, J changing with v."""

    def motions(t):
        kin = kinematics(robot, robot.integrate(q, t * v))
        zero = jnp.zeros(3, kin.axes.dtype)
        both = [accelerations(robot, kin.offset, joint_rates(robot, kin.axes, x), (zero, zero)) for x in (v, w)]
        return both, kin

    at = jnp.zeros((), jnp.result_type(q, v))
    ((V, W), kin), ((_, dW), _) = jax.jvp(motions, (at,), (jnp.ones_like(at),))
    return kin, V, W, dW


def _turning_force(inertia: RigidInertia, V: Array, W: Array) -> Float[Array, "6"]:
    """N(V) W of one link."""
    w, u, turn, move = V[:3], V[3:], W[:3], W[3:]
    first = inertia.first_moment  # m c
    moment = ops.cross(w, ops.matvec(inertia.rotation, turn)) + ops.cross(ops.cross(first, u), turn)
    moment = moment + ops.cross(w, ops.cross(first, move))
    return jnp.concatenate([moment, -ops.cross(w, ops.cross(first, turn))])


@compiled(kernel=True)
def coriolis_matrix(robot: Multibody, q: Shaped[Array, " nq"], v: Shaped[Array, " nv"]) -> Float[Array, "nv nv"]:
    """C(q, v), column by column from `coriolis_times`: O(N^2).

    Units: rad, rad/s; N m s/rad (N s/m for prismatic joints).

    >>> C = soa.coriolis_matrix(robot, q, v)
    >>> print((C @ v).round(3))  # N m
    [ 0.048 -0.038]
    """
    q, v = robot.check_q(q), robot.check_v(v)
    columns = jnp.eye(robot.nv, dtype=v.dtype)
    return jax.vmap(lambda w: _times(robot, q, v, w), out_axes=1)(columns)
