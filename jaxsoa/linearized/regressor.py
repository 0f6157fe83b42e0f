"""The regressor: inverse dynamics is linear in the links' inertial parameters, tau = Y(q, v, a) pi.

Per link pi = (m, m c (3), Ixx, Iyy, Izz, Ixy, Ixz, Iyz), the inertia about the link's origin, all in link axes. The
Newton-Euler equations of one link about its origin are linear in them; a column of Y carries such a unit force inboard:
Y = H phi W, W the block-diagonal (6, 10) matrices of the links.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

from jaxsoa.dynamics.kinematics import Kinematics, accelerations, gravity_upward, joint_rates, moving_kinematics
from jaxsoa.eager import compiled
from jaxsoa.model.multibody import Multibody
from jaxsoa.spatial import ops

PARAMETERS = ("m", "mcx", "mcy", "mcz", "Ixx", "Iyy", "Izz", "Ixy", "Ixz", "Iyz")
"""Names of one link's ten parameters, in the order of the columns."""

_ENTRY = ((0, 3, 4), (3, 1, 5), (4, 5, 2))  # where I[i, j] stands among the last six


def inertia_columns(w: Array) -> Float[Array, "3 6"]:
    """The matrix that maps (Ixx, Iyy, Izz, Ixy, Ixz, Iyz) to I w."""
    x, y, z = w
    o = jnp.zeros_like(x)
    return jnp.stack([jnp.stack([x, o, o, y, z, o]), jnp.stack([o, y, o, x, o, z]), jnp.stack([o, o, z, o, x, y])])


def link_regressor(w: Array, alpha: Array) -> Float[Array, "6 10"]:
    """Net force (moment, force) of one link per parameter; w and alpha = (w', v') of its origin in link axes."""
    w_dot, v_dot = ops.skew(alpha[:3]), alpha[3:]
    turn = ops.skew(w)
    zero = jnp.zeros((3, 1), v_dot.dtype)
    rotation = inertia_columns(alpha[:3]) + ops.matmul(turn, inertia_columns(w))
    moment = jnp.concatenate([zero, -ops.skew(v_dot), rotation], axis=1)
    force = jnp.concatenate([v_dot[:, None], w_dot + ops.matmul(turn, turn), jnp.zeros_like(rotation)], axis=1)
    return jnp.concatenate([moment, force])


@compiled(kernel=True)
def regressor(
    robot: Multibody, q: Shaped[Array, " nq"], v: Shaped[Array, " nv"], a: Shaped[Array, " nv"]
) -> Float[Array, "nv ten_n"]:
    """Y with Y @ inertial_parameters(robot) = inverse_dynamics(robot, q, v, a) of bodies: no armature, no springs.

    Columns link by link, each in the order of `PARAMETERS`. Y is the derivative of the torques by them.

    Units: N m per kg, per kg m and per kg m^2.

    >>> Y = soa.regressor(robot, q, v, jnp.zeros(2))
    >>> print((Y @ soa.inertial_parameters(robot)).round(3), soa.inverse_dynamics(robot, q, v, jnp.zeros(2)).round(3))
    [ 3.422 -1.013] [ 3.422 -1.013]
    """
    q, v, a = robot.check_q(q), robot.check_v(v), robot.check_v(a, "a")
    kin, vel = moving_kinematics(robot, q, v)
    source = joint_rates(robot, kin.axes, a) + vel.bias
    alpha = accelerations(robot, kin.offset, source, gravity_upward(robot, source))

    turned = jax.vmap(in_link_axes)(kin.rotation, alpha)
    W = jax.vmap(link_regressor)(jax.vmap(ops.matvec_t)(kin.rotation, vel.angular), turned)
    return carried_inboard(robot, kin, W)


def in_link_axes(R: Array, x: Array) -> Float[Array, "6"]:
    """R* on both halves of a spatial vector."""
    return jnp.concatenate([ops.matvec_t(R, x[:3]), ops.matvec_t(R, x[3:])])


def carried_inboard(robot: Multibody, kin: Kinematics, W: Float[Array, "n 6 10"]) -> Float[Array, "nv ten_n"]:
    """H phi W: what forces on the links (link axes, per parameter) ask of the joints."""
    topology = robot.topology

    def axis_at_link(R, p, axis, origin):  # H(i) phi(i, k), in the axes of link k
        return in_link_axes(R, jnp.concatenate([axis[:3], axis[3:] + ops.cross(axis[:3], p - origin)]))

    dofs = jax.vmap(axis_at_link, in_axes=(None, None, 0, 0))
    origins = kin.position[topology.dof_link]
    H = jax.vmap(dofs, in_axes=(0, 0, None, None))(kin.rotation, kin.position, kin.axes, origins)  # (n, nv, 6)
    moves = topology.link_support[:, topology.dof_link]
    Y = jnp.where(moves[:, :, None], jnp.einsum("kif,kfp->kip", H, W), 0)
    return jnp.swapaxes(Y, 0, 1).reshape(topology.nv, 10 * topology.n_links)


@compiled
def inertial_parameters(robot: Multibody) -> Float[Array, " ten_n"]:
    """pi of a model: ten numbers per link, in the order of `PARAMETERS`.

    Units: kg, kg m and kg m^2.

    >>> print(soa.inertial_parameters(robot)[:4].round(3) + 0.0)  # mass and first moment of the first link
    [ 1.   0.   0.  -0.5]
    """
    m, c = robot.mass, robot.com
    I = (robot.inertia + jnp.swapaxes(robot.inertia, -1, -2)) / 2
    square = jnp.sum(c * c, axis=-1)[:, None, None] * jnp.eye(3, dtype=c.dtype)
    I = I + m[:, None, None] * (square - c[:, :, None] * c[:, None, :])
    six = jnp.stack([I[:, 0, 0], I[:, 1, 1], I[:, 2, 2], I[:, 0, 1], I[:, 0, 2], I[:, 1, 2]], axis=1)
    return jnp.concatenate([m[:, None], m[:, None] * c, six], axis=1).reshape(-1)


def with_inertial_parameters(robot: Multibody, parameters: Shaped[Array, " ten_n"]) -> Multibody:
    """The model with other inertial parameters: the inverse of `inertial_parameters`. Masses must not be zero.

    Units: kg, kg m and kg m^2.

    >>> heavier = soa.with_inertial_parameters(robot, 2 * soa.inertial_parameters(robot))
    >>> print(heavier.mass)
    [2. 2.]
    """
    parameters = jnp.asarray(parameters)
    if parameters.shape != (10 * robot.n_links,):
        raise ValueError(
            f"parameters of robot {robot.name!r} must have shape (10 n_links,) = ({10 * robot.n_links},), "
            f"got {parameters.shape}."
        )
    rows = parameters.reshape(robot.n_links, 10)
    m, c = rows[:, 0], rows[:, 1:4] / rows[:, :1]
    I = rows[:, 4:][:, jnp.asarray(_ENTRY)]
    square = jnp.sum(c * c, axis=-1)[:, None, None] * jnp.eye(3, dtype=c.dtype)
    I = I - m[:, None, None] * (square - c[:, :, None] * c[:, None, :])
    return robot.replace(mass=m, com=c, inertia=I)
