"""What a surrounding medium does to the bodies of a robot, as passive forces of `rollout`: drag, and buoyancy.

Forces f on the links become torques by the transpose of the map from v to the links' velocities, since both spend the
same power: tau . v = f . V.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxsoa.dynamics.kinematics import forward_kinematics, link_velocities
from jaxsoa.model.multibody import Multibody


class Bodies(eqx.Module):
    """Rigid parts of links (numbers): the axes and the centre of each, seen from its link."""

    links: tuple[int, ...] = eqx.field(static=True)
    rotation: Float[Array, "b 3 3"]
    position: Float[Array, "b 3"]


def _torques(robot: Multibody, bodies: Bodies, q: Array, v: Array, force_of) -> Float[Array, " nv"]:
    """Torques of `force_of(R, twist)`: from world axes and twist of each body to its wrench there; world axes."""
    links = np.array(bodies.links, int)
    velocities, pull = jax.vjp(lambda v: link_velocities(robot, q, v), v)
    turns = forward_kinematics(robot, q).rotation[links]
    arms = jnp.einsum("kij,kj->ki", turns, bodies.position)
    w = velocities[links, :3]
    twists = jnp.concatenate([w, velocities[links, 3:] + jnp.cross(w, arms)], axis=1)
    wrenches = force_of(jnp.einsum("kij,kjl->kil", turns, bodies.rotation), twists)
    moments = wrenches[:, :3] + jnp.cross(arms, wrenches[:, 3:])
    on_links = jnp.zeros_like(velocities).at[links].add(jnp.concatenate([moments, wrenches[:, 3:]], axis=1))
    return pull(on_links)[0]


class Fluid(eqx.Module):
    """Resistance of a fluid at rest, or moving with `wind`: MuJoCo's model of boxes of the bodies' inertias.

    Every body is the box of `sizes` (edges, m) in its own axes. In these, with the relative velocity (w, u),

        f_i = -density/2 A_i |u_i| u_i - 3 pi d viscosity u_i
        m_i = -density/64 a_i (a_j^4 + a_k^4) |w_i| w_i - pi d^3 viscosity w_i

    A_i the area across axis i and d the mean edge. Every number is a leaf.
    """

    bodies: Bodies
    sizes: Float[Array, "b 3"]
    density: Float[Array, ""]  # kg/m^3
    viscosity: Float[Array, ""]  # Pa s
    wind: Float[Array, "3"]  # m/s, world axes

    def __call__(self, robot: Multibody, q: Array, v: Array) -> Float[Array, " nv"]:
        """Generalized force in the state (q, v)."""

        def force_of(R: Array, twists: Array) -> Array:
            w = jnp.einsum("kji,kj->ki", R, twists[:, :3])
            u = jnp.einsum("kji,kj->ki", R, twists[:, 3:] - self.wind)
            a, b, c = self.sizes, jnp.roll(self.sizes, -1, axis=1), jnp.roll(self.sizes, -2, axis=1)
            d = jnp.mean(a, axis=1, keepdims=True)
            moment = -self.density / 64 * a * (b**4 + c**4) * jnp.abs(w) * w - jnp.pi * d**3 * self.viscosity * w
            force = -self.density / 2 * b * c * jnp.abs(u) * u - 3 * jnp.pi * d * self.viscosity * u
            return jnp.concatenate([jnp.einsum("kij,kj->ki", R, moment), jnp.einsum("kij,kj->ki", R, force)], axis=1)

        return _torques(robot, self.bodies, q, v, force_of)


class GravityCompensation(eqx.Module):
    """Bodies held against gravity, at their centres of mass: 1 times the mass floats, 2 rises as fast as it would fall.

    `masses` are what is held: the masses times the compensation.
    """

    bodies: Bodies
    masses: Float[Array, " b"]

    def __call__(self, robot: Multibody, q: Array, v: Array) -> Float[Array, " nv"]:
        """Generalized force in the state (q, v)."""

        def force_of(R: Array, twists: Array) -> Array:
            lift = -self.masses[:, None] * robot.gravity
            return jnp.concatenate([jnp.zeros_like(lift), lift], axis=1)

        return _torques(robot, self.bodies, q, v, force_of)
