"""Contact as a passive force: Hunt and Crossley's spring with damping, and Coulomb friction made smooth.

    f_N = stiffness d^(3/2) (1 - damping u_N), not below zero,   f_T = -friction f_N u_T / sqrt(|u_T|^2 + slip_speed^2)

for a depth d and a velocity u of the robot's point relative to the surface (Hunt and Crossley 1975).

Beware of derivatives. Through a stiff contact at a fixed step automatic differentiation gives the derivative of the
discretization, not of the motion: the step in which bodies meet is frozen, and an elastic bounce gets dz/dz0 = +1
instead of -1 (arXiv 2506.14186). Resolve the contact with `simulate.solve_adaptively`, or use `contact.Scene`, which
knows the time of impact.
"""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxsoa.closed_chain.algebra import is_concrete
from jaxsoa.contact.cone import dot, tangential
from jaxsoa.contact.rows import contact_jacobian, touching
from jaxsoa.contact.scene import Points, Scene
from jaxsoa.contact.surfaces import Surface, numbers
from jaxsoa.dynamics.kinematics import kinematics
from jaxsoa.model.multibody import Multibody


class Compliant(eqx.Module):
    """A passive force for `rollout(passive=...)`; see the head of this file. Every number is a leaf.

    `stiffness` in N/m^(3/2), `damping` in s/m, each one number or one per point, as `friction` is; `slip_speed` (m/s)
    is where friction has 0.7 of its full size. Explicit integrators need a step well below that of the bounce.
    """

    scene: Scene  # geometry and friction
    stiffness: Float[Array, "*m"]
    damping: Float[Array, "*m"]
    slip_speed: Float[Array, ""]

    def __init__(
        self,
        points: Points,
        ground: Surface | tuple[Surface, ...],
        stiffness,
        damping=0.0,
        friction=0.8,
        slip_speed=1e-2,
    ):
        self.scene = Scene(points, ground, friction)
        self.stiffness, self.damping = numbers("stiffness", stiffness), numbers("damping", damping)
        self.slip_speed = numbers("slip_speed", slip_speed, ())
        for name, value in (("stiffness", self.stiffness), ("damping", self.damping)):
            if value.shape not in ((), (len(points),)):
                raise ValueError(f"{name} must be one number or one per point, got shape {value.shape}.")
            if is_concrete(value) and not (np.asarray(value) >= 0).all():
                raise ValueError(f"{name} must not be negative, got {np.asarray(value).tolist()}.")

    def __call__(self, robot: Multibody, q: Array, v: Array) -> Float[Array, " nv"]:
        """Generalized force (nv,)."""
        forces, J = self._forces(robot, robot.check_q(q), robot.check_v(v))
        return robot.convert(jnp.einsum("ci,cij->j", forces, J), "force")

    def forces(self, robot: Multibody, q: Array, v: Array) -> Float[Array, "c 3"]:
        """Forces on the points' bodies, world axes (N), in the order of `Scene.pairs`."""
        return self._forces(robot, robot.check_q(q), robot.check_v(v))[0]

    def _forces(self, robot: Multibody, q: Array, v: Array) -> tuple[Array, Array]:
        pairs, scene = self.scene.pairs(robot), self.scene
        kin = kinematics(robot, q)
        touch = touching(robot, scene, kin, pairs)
        J = contact_jacobian(robot, kin, touch.positions, pairs)
        u = J @ v
        stiffness, damping, friction = (
            scene.per_contact(x, pairs, q.dtype) for x in (self.stiffness, self.damping, scene.friction)
        )
        touches = touch.gaps < 0
        depth = jnp.where(touches, -touch.gaps, 1)  # so that no derivative meets the root of a negative number
        spring = jnp.where(touches, stiffness * depth * jnp.sqrt(depth), 0)
        pressing = spring * jnp.maximum(1 - damping * dot(u, touch.normals), 0)
        slip = tangential(u, touch.normals)
        slow = jnp.sqrt(dot(slip, slip) + self.slip_speed.astype(q.dtype) ** 2)
        return pressing[:, None] * touch.normals - (friction * pressing / slow)[:, None] * slip, J
