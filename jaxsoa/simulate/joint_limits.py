"""Joint limits as smooth one-sided springs and dampers: differentiable, and exactly nothing inside the limits."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jaxtyping import Array, Float

from jaxsoa.dynamics.mass import mass_matrix
from jaxsoa.model.multibody import Multibody

FREQUENCY = 100.0
"""Of stops whose stiffness is chosen (rad/s): a joint that meets one at 1 rad/s goes about 0.01 rad past it."""
SAMPLES = 8
WIDTH = 1e-2


class JointLimits(eqx.Module):
    """A passive force that pushes joints back when they pass `robot.limits`; hand it to `rollout(passive=...)`.

    With x the way beyond a limit, in the direction x grows, the force is

        -(stiffness s(x) + damping s'(x) x'),   s(x) = 0 (x < 0),  x^2 / 2w (0 < x < w),  x - w/2 (x > w):

    continuously differentiable everywhere, linear after the `width` w over which it sets in. Infinite limits, and
    joints with quaternions (which have none), feel nothing. Scalars or one value per degree of freedom; all are leaves.

    Explicit integrators are stable while dt is below about 2 sqrt(inertia / stiffness), with the inertia that a joint
    feels when all others are free. Without a `stiffness` it is chosen for the robot and the step (`for_step`, which
    `step` and `rollout` call); one that is too high for the step is told by `rollout` in a warning.
    """

    stiffness: Float[Array, "*nv"] | float | None = None
    damping: Float[Array, "*nv"] | float | None = None  # None: 0, or critical where the stiffness is chosen
    width: Float[Array, "*nv"] | float | None = None  # None: 0.01, or less where the range is below 0.5

    def for_step(self, robot: Multibody, dt: float | Array) -> JointLimits:
        """With a stiffness: its own, or one that gives each joint's stop FREQUENCY rad/s, less where dt is long.

        It is a setting of the integrator, like the step: derivatives by the robot take it as given.
        """
        if self.stiffness is not None:
            return self
        inertia = least_inertia(robot)
        rate = jnp.minimum(FREQUENCY, 0.2 / dt)
        damping = 2 * rate * inertia if self.damping is None else self.damping
        span = robot.limits.upper - robot.limits.lower
        width = jnp.where(jnp.isfinite(span), jnp.clip(0.02 * span, 1e-6, 1e-2), 1e-2)
        return JointLimits(rate**2 * inertia, damping, width if self.width is None else self.width)

    def warn_if_stiff(self, robot: Multibody, dt: float | Array) -> None:
        """Where all numbers are known: is the step short enough for the springs?"""
        if isinstance(robot.mass, Tracer):
            return
        limited = np.isfinite(as_known(robot.limits.lower)) | np.isfinite(as_known(robot.limits.upper))
        k, c, h = (as_known(x if x is not None else 0.0) for x in (self.stiffness, self.damping, dt))
        if self.stiffness is None or not limited.any() or any(np.isnan(x).any() for x in (k, c, h)):
            return
        inertia = as_known(least_inertia(robot))
        fast = limited & ((h**2 * k > 4 * inertia) | (h * c > 2 * inertia))
        if fast.any():
            dof = int(np.argmax(fast * (dt**2 * k + dt * c) / inertia))
            joint = next(name for name in robot.joint_names if dof in range(*robot.v_index(name).indices(robot.nv)))
            k, c = (float(np.broadcast_to(x, inertia.shape)[dof]) for x in (k, c))
            warnings.warn(
                f"JointLimits of stiffness {k:g} and damping {c:g} are unstable at a step of {float(dt):g} s: joint "
                f"{joint!r} of {robot.name!r} can feel as little inertia as {inertia[dof]:.3g}. Take a smaller step, "
                "or leave the stiffness out.",
                UserWarning,
                stacklevel=3,
            )

    def __call__(self, robot: Multibody, q: Array, v: Array) -> Float[Array, " nv"]:
        v = robot.convert(v, "v")
        below, above = beyond_limits(robot, q)
        stiffness, damping = self._given, 0.0 if self.damping is None else self.damping
        push_up = stiffness * ramp(below, self._w) - damping * slope(below, self._w) * v
        push_down = stiffness * ramp(above, self._w) + damping * slope(above, self._w) * v
        return push_up - push_down

    def energy(self, robot: Multibody, q: Array) -> Float[Array, ""]:
        """What the springs have stored: minus the work of the force without its damping."""
        below, above = beyond_limits(robot, q)
        return jnp.sum(self._given * (stored(below, self._w) + stored(above, self._w)))

    @property
    def _given(self) -> Float[Array, "*nv"] | float:
        if self.stiffness is None:
            raise ValueError("JointLimits without a stiffness need a step: use JointLimits().for_step(robot, dt).")
        return self.stiffness

    @property
    def _w(self) -> Float[Array, "*nv"] | float:
        return WIDTH if self.width is None else self.width


def ramp(x: Array, w: Any) -> Array:
    """s(x): nothing below zero, a parabola over the width w, then a line."""
    inside = jnp.clip(x, 0, w)
    return inside * inside / (2 * w) + jnp.maximum(x - w, 0)


def slope(x: Array, w: Any) -> Array:
    """s'(x)."""
    return jnp.clip(x / w, 0, 1)


def stored(x: Array, w: Any) -> Array:
    """The integral of s up to x."""
    inside, outside = jnp.clip(x, 0, w), jnp.maximum(x - w, 0)
    return inside**3 / (6 * w) + outside * (outside + w) / 2


@jax.jit
def least_inertia(robot: Multibody) -> Float[Array, " nv"]:
    """The inertia that each degree of freedom feels while all others are free, 1 / (M^-1)_ii: the least of some
    configurations that are spread over what the joints can reach."""
    q = jax.vmap(robot.random)(jax.random.split(jax.random.key(0), SAMPLES))
    inverses = jax.vmap(lambda q: jnp.linalg.inv(mass_matrix(robot, q)))(q)
    return lax.stop_gradient(1 / jnp.max(jnp.diagonal(inverses, axis1=1, axis2=2), axis=0))


def as_known(x: Any) -> np.ndarray:
    """A number on the host; NaN where it is only being traced."""
    return np.array(np.nan) if isinstance(x, Tracer) else np.asarray(x, float)


def prepared(forces: Sequence[Any], robot: Multibody, dt: float | Array) -> tuple[Any, ...]:
    """Passive forces, those that depend on the step (`for_step`) made for it."""
    return tuple(force.for_step(robot, dt) if hasattr(force, "for_step") else force for force in forces)


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
