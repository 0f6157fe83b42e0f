"""Springs in joints of every kind, on the manifold of configurations.

With x = difference(rest, q) the displacement from the rest configuration (a rotation vector where the joint turns
freely) and k a stiffness per degree of freedom, a spring stores sum k x^2 / 2. Its torque is minus the gradient of that
along tangents of q: -k x for coordinates that add, and for rotations -J* k x with J the derivative of the logarithm,
which where the stiffness is the same about all axes is -k x again (as MuJoCo has it for ball joints).
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxsoa.model.multibody import Multibody


def spring_energy(robot: Multibody, stiffness: Array, rest: Array, q: Array) -> Float[Array, ""]:
    """What the springs have stored; stiffness (nv,), rest and q (nq,)."""
    x = robot.difference(rest, q)
    return jnp.sum(stiffness * x * x) / 2


def spring_torque(robot: Multibody, stiffness: Array, rest: Array, q: Array) -> Float[Array, " nv"]:
    """Torque (nv,) of the springs on the joints: minus the gradient of `spring_energy` along tangents of q."""
    still = jnp.zeros(robot.nv, jnp.result_type(q, robot.dtype))
    return -jax.grad(lambda dq: spring_energy(robot, stiffness, rest, robot.integrate(q, dq)))(still)


class JointSprings(eqx.Module):
    """Springs (and dampers) as a passive force: `rollout(passive=springs)`, `springs(robot, q, v)` in a torque (nv,).

    `stiffness` and `damping` are per degree of freedom (nv,) or one number, `rest` a configuration (nq,); all leaves.
    """

    stiffness: Float[Array, "*nv"]
    rest: Float[Array, " nq"]
    damping: Float[Array, "*nv"] | float = 0.0

    def __call__(self, robot: Multibody, q: Array, v: Array) -> Float[Array, " nv"]:
        return spring_torque(robot, self.stiffness, self.rest, q) - self.damping * v

    def energy(self, robot: Multibody, q: Array) -> Float[Array, ""]:
        """What the springs have stored at q."""
        return spring_energy(robot, self.stiffness, self.rest, q)
