"""Joint limits as smooth one-sided springs and dampers: differentiable, and exactly nothing inside the limits."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxsoa.model.multibody import Multibody


class JointLimits(eqx.Module):
    """A passive force that pushes joints back when they pass `robot.limits`; hand it to `rollout(passive=...)`.

    With x the way beyond a limit, in the direction x grows, the force is

        -(stiffness s(x) + damping s'(x) x'),   s(x) = 0 (x < 0),  x^2 / 2w (0 < x < w),  x - w/2 (x > w):

    continuously differentiable everywhere, linear after the `width` w over which it sets in. Infinite limits, and
    joints with quaternions (which have none), feel nothing. Scalars or one value per degree of freedom; all are leaves.
    Explicit integrators need about dt < 1 / sqrt(stiffness / inertia).
    """

    stiffness: Float[Array, "*nv"] | float
    damping: Float[Array, "*nv"] | float = 0.0
    width: Float[Array, "*nv"] | float = 1e-2

    def __call__(self, robot: Multibody, q: Array, v: Array) -> Float[Array, " nv"]:
        v = robot.convert(v, "v")
        below, above = beyond_limits(robot, q)
        push_up = self.stiffness * self._ramp(below) - self.damping * self._slope(below) * v
        push_down = self.stiffness * self._ramp(above) + self.damping * self._slope(above) * v
        return push_up - push_down

    def energy(self, robot: Multibody, q: Array) -> Float[Array, ""]:
        """What the springs have stored: minus the work of the force without its damping."""
        below, above = beyond_limits(robot, q)
        return jnp.sum(self.stiffness * (self._stored(below) + self._stored(above)))

    def _ramp(self, x: Array) -> Array:
        w = self.width
        inside = jnp.clip(x, 0, w)
        return inside * inside / (2 * w) + jnp.maximum(x - w, 0)

    def _slope(self, x: Array) -> Array:
        return jnp.clip(x / self.width, 0, 1)

    def _stored(self, x: Array) -> Array:
        w = self.width
        inside, outside = jnp.clip(x, 0, w), jnp.maximum(x - w, 0)
        return inside**3 / (6 * w) + outside * (outside + w) / 2


def beyond_limits(robot: Multibody, q: Array) -> tuple[Float[Array, " nv"], Float[Array, " nv"]]:
    """How far each degree of freedom is below its lower and above its upper limit; -1 where it has none."""
    q = robot.convert(q, "q")
    position = robot.join_dofs(
        [
            q[g.q_index] if g.joint.nq == g.joint.nv else jnp.zeros(g.v_index.shape, q.dtype)
            for g in robot.topology.groups
        ]
    )
    lower, upper = robot.limits.lower, robot.limits.upper

    def past(x: Array, limit: Array) -> Array:
        return jnp.where(jnp.isfinite(limit), x, -1)

    # Infinities are replaced before the subtraction too, so that no derivative meets them.
    low, high = (jnp.where(jnp.isfinite(limit), limit, 0) for limit in (lower, upper))
    return past(low - position, lower), past(position - high, upper)
