"""The whole of the operational-space formulation (overview, application 2): what frames feel of a moving robot.

For F forces at the frames and x'' = J a + J' v their accelerations,

    F = Lambda x'' + mu + p,    Lambda = (J M^-1 J*)^+,    J-bar = M^-1 J* Lambda,
    mu = J-bar* C v - Lambda J' v,    p = J-bar* g(q).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Shaped

from jaxsoa.closed_chain.algebra import pseudo_inverse
from jaxsoa.closed_chain.frames import moving_frames
from jaxsoa.dynamics.coriolis import coriolis_times
from jaxsoa.dynamics.inverse import inverse_dynamics_raw
from jaxsoa.dynamics.mass import constant_factors
from jaxsoa.dynamics.motion import differentiable_solve
from jaxsoa.eager import compiled
from jaxsoa.model.multibody import Multibody


class OperationalSpaceDynamics(NamedTuple):
    """Terms of F = Lambda x'' + mu + p for m frames, six rows each (moment, then force; world axes)."""

    inertia: Float[Array, "six_m six_m"]  # Lambda
    coriolis: Float[Array, " six_m"]  # mu
    gravity: Float[Array, " six_m"]  # p
    inverse: Float[Array, "nv six_m"]  # J-bar, the dynamically consistent inverse of J
    jacobian: Float[Array, "six_m nv"]
    rank: Int[Array, ""]  # of J; below 6 m Lambda is the pseudo-inverse: zero along directions out of reach

    @property
    def null_space(self) -> Float[Array, "nv nv"]:
        """I - J* J-bar*: torques that pass it do not accelerate the frames."""
        return jnp.eye(self.jacobian.shape[1], dtype=self.jacobian.dtype) - self.jacobian.T @ self.inverse.T


@compiled
def operational_space_dynamics(
    robot: Multibody, q: Shaped[Array, " nq"], v: Shaped[Array, " nv"], frames: str | Sequence[str]
) -> OperationalSpaceDynamics:
    """Lambda, mu, p and J-bar of one frame or of several stacked, in O(N m) sweeps and one (6m, 6m) inverse.

    Torques J* F + (I - J* J-bar*) tau_0 with F = Lambda x'' + mu + p give the frames the accelerations x'' wherever J
    has full rank, whatever tau_0 is. Friction in the joints is left out.

    Units: rad, rad/s; Lambda in kg, kg m and kg m^2, mu and p in N and N m.

    >>> arm = soa.models.chain(6)
    >>> terms = soa.operational_space_dynamics(arm, 0.4 * jnp.arange(1.0, 7), jnp.ones(6), "tip")
    >>> print(terms.inertia.shape)
    (6, 6)
    """
    q, v = robot.check_q(q), robot.check_v(v)
    names = (frames,) if isinstance(frames, str) else tuple(frames)
    found = moving_frames(robot, q, v, names)
    J = jnp.concatenate([found[name].jacobian for name in names])
    bias = jnp.concatenate([found[name].bias for name in names])
    factors = constant_factors(robot, q)
    columns = jax.vmap(lambda row: differentiable_solve(robot, q, factors, row), out_axes=1)(J)
    compliance = pseudo_inverse(J @ columns)
    Lambda = jax.vmap(compliance.solve, in_axes=1, out_axes=1)(jnp.eye(len(J), dtype=J.dtype))
    inverse = columns @ Lambda
    still = jnp.zeros_like(v)
    gravity = inverse_dynamics_raw(robot, q, still, still, None)
    coriolis = inverse.T @ coriolis_times(robot, q, v, v) - Lambda @ bias
    return OperationalSpaceDynamics(Lambda, coriolis, inverse.T @ gravity, inverse, J, compliance.rank)
