"""The regressor with two velocities, for adaptive control (Slotine and Li): Y(q, v, w, a) pi = M a + C(q, v) w + g.

v is the measured velocity, w the reference one, a the reference acceleration. C is that of `coriolis_times`, with
M' - 2 C antisymmetric. Per link, with (w, u) and (t, x) its two velocities in link axes and pi = (m, m c, I),

    C's part:   moment = (t~ u~ - w~ x~) m c + w~ I t,      force = w~ t~ m c.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

from jaxsoa.dynamics.coriolis import two_motions
from jaxsoa.dynamics.kinematics import accelerations, gravity_upward, joint_rates
from jaxsoa.eager import compiled
from jaxsoa.linearized.regressor import carried_inboard, in_link_axes, inertia_columns, link_regressor
from jaxsoa.model.multibody import Multibody
from jaxsoa.spatial import ops


@compiled(kernel=True)
def tracking_regressor(
    robot: Multibody,
    q: Shaped[Array, " nq"],
    v: Shaped[Array, " nv"],
    w: Shaped[Array, " nv"],
    a: Shaped[Array, " nv"],
) -> Float[Array, "nv ten_n"]:
    """Y with Y @ inertial_parameters(robot) = M a + C(q, v) w + gravity of the bodies; with w = v it is `regressor`.

    In O(N^2). Columns as in `regressor`: link by link, ten each; no armature, friction, springs.

    Units: N m per kg, per kg m and per kg m^2.

    >>> Y = soa.tracking_regressor(robot, q, v, v, jnp.zeros(2))
    >>> print((Y @ soa.inertial_parameters(robot)).round(3), soa.bias_force(robot, q, v).round(3))
    [ 3.422 -1.013] [ 3.422 -1.013]
    """
    q, v, w, a = robot.check_q(q), robot.check_v(v), robot.check_v(w, "w"), robot.check_v(a, "a")
    kin, V, W, dW = two_motions(robot, q, v, w)
    source = joint_rates(robot, kin.axes, a)
    alpha = accelerations(robot, kin.offset, source, gravity_upward(robot, source)) + dW

    def of_link(R, V, W, alpha):
        V, W, alpha = (in_link_axes(R, x) for x in (V, W, alpha))
        turn, reference = ops.skew(V[:3]), ops.skew(W[:3])
        by_moment = reference @ ops.skew(V[3:]) - turn @ ops.skew(W[3:])
        zero = jnp.zeros((3, 1), by_moment.dtype)
        moment = jnp.concatenate([zero, by_moment, turn @ inertia_columns(W[:3])], axis=1)
        force = jnp.concatenate([zero, turn @ reference, jnp.zeros((3, 6), by_moment.dtype)], axis=1)
        return link_regressor(jnp.zeros_like(V[:3]), alpha) + jnp.concatenate([moment, force])

    return carried_inboard(robot, kin, jax.vmap(of_link)(kin.rotation, V, W, alpha))
