"""Springs and dampers of joints and of tendons, as a passive force; a robot's own are its `stiffness`."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxsoa.model.multibody import Multibody
from jaxsoa.simulate.tendons import Tendons


class Springs(eqx.Module):
    """tau = -stiffness (q - rest) - sum over tendons J* (k e + d l'), with e the excess of l over the rest range.

    The difference q - rest is taken on the manifold, so ball joints may have springs. A tendon's spring is slack
    between the two ends of its rest range.
    """

    stiffness: Float[Array, " nv"]
    rest: Float[Array, " nq"]
    tendons: Tendons
    tendon_stiffness: Float[Array, " t"]
    tendon_damping: Float[Array, " t"]
    tendon_rest: Float[Array, "t 2"]

    def __call__(self, robot: Multibody, q: Array, v: Array) -> Float[Array, " nv"]:
        """Generalized force in the state (q, v)."""
        tau = -self.stiffness * robot.difference(self.rest, q)
        pull, moment = self._pull(robot, q, v)
        return tau - moment.T @ pull

    def on_links(self, robot: Multibody, q: Array, v: Array) -> Float[Array, "n_links 6"]:
        """What tendons from frame to frame do to links, as the `f_ext` of sensors: `Tendons.on_links`."""
        return self.tendons.on_links(robot, q, self._pull(robot, q, v)[0])

    def _pull(self, robot: Multibody, q: Array, v: Array) -> tuple[Array, Array]:
        length, moment = self.tendons(robot, q)
        low, high = self.tendon_rest[:, 0], self.tendon_rest[:, 1]
        excess = jnp.maximum(length - high, 0) + jnp.minimum(length - low, 0)
        return self.tendon_stiffness * excess + self.tendon_damping * (moment @ v), moment
