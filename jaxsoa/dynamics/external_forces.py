"""Forces at named frames, as the dynamics functions take them: one wrench per moving link, about its origin."""

from __future__ import annotations

from collections.abc import Mapping

import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

from jaxsoa.dynamics.articulated import carry_force
from jaxsoa.dynamics.kinematics import frame_placement, kinematics
from jaxsoa.eager import compiled
from jaxsoa.model.multibody import Multibody


@compiled
def external_forces(
    robot: Multibody, q: Shaped[Array, " nq"], wrenches: Mapping[str, Shaped[Array, "6"]]
) -> Float[Array, "n_links 6"]:
    """f_ext of wrenches on frames: f_ext(k) = sum over the link's frames i of phi(k, i) f_i (DARTS unit 7).

    `wrenches` maps the names of frames to (moment, force) (6,), world axes, at the frame's origin. What pushes on a
    frame of the base moves nothing. The result (n_links, 6) is about each link's origin, at this configuration.

    Units: N m and N, world axes.

    >>> f_ext = soa.external_forces(robot, q, {"tip": jnp.array([0, 0, 0, 10.0, 0, 0])})  # 10 N along x
    >>> print(f_ext[1].round(2))  # about the origin of the second link
    [ 0.  -9.8  0.  10.   0.   0. ]
    """
    q = robot.check_q(q)
    kin = kinematics(robot, q)
    f_ext = jnp.zeros((robot.n_links, 6), kin.axes.dtype)
    for frame, wrench in wrenches.items():
        _, point, link = frame_placement(robot, kin, frame)
        wrench = robot.convert(wrench, f"the wrench on frame {frame!r}")
        if wrench.shape != (6,):
            raise ValueError(
                f"The wrench on frame {frame!r} must have shape (6,): moment, then force, world axes; "
                f"got {wrench.shape}."
            )
        if link >= 0:
            f_ext = f_ext.at[link].add(carry_force(point - kin.position[link], wrench))
    return f_ext
