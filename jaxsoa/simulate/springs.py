"""Springs and dampers of joints and of fixed tendons, as a passive force; a robot's own are its `stiffness`."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxsoa.model.multibody import Multibody


class Springs(eqx.Module):
    """tau = -stiffness (q - rest) - sum over tendons c (k e + d l'), with l = c . q and e its excess of the rest range.

    The difference q - rest is taken on the manifold, so ball joints may have springs. A tendon's spring is slack
    between the two ends of its rest range.
    """

    stiffness: Float[Array, " nv"]
    rest: Float[Array, " nq"]
    tendons: Float[Array, "t nq"]  # coefficients c, by coordinate
    tendon_moments: Float[Array, "t nv"]  # the same, by rate
    tendon_stiffness: Float[Array, " t"]
    tendon_damping: Float[Array, " t"]
    tendon_rest: Float[Array, "t 2"]

    def __call__(self, robot: Multibody, q: Array, v: Array) -> Float[Array, " nv"]:
        """Generalized force in the state (q, v)."""
        tau = -self.stiffness * robot.difference(self.rest, q)
        length, rate = self.tendons @ q, self.tendon_moments @ v
        low, high = self.tendon_rest[:, 0], self.tendon_rest[:, 1]
        excess = jnp.maximum(length - high, 0) + jnp.minimum(length - low, 0)
        return tau - self.tendon_moments.T @ (self.tendon_stiffness * excess + self.tendon_damping * rate)
