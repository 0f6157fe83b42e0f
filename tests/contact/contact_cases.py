"""Bodies and scenes that the tests of contacts share."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import jaxsoa as soa
from jaxsoa import contact

G = 9.81


def block(size=(0.2, 0.2, 0.1), mass: float = 1.0) -> soa.Multibody:
    """A free uniform box."""
    x, y, z = size
    inertia = mass / 12 * np.diag([y * y + z * z, x * x + z * z, x * x + y * y])
    return soa.Builder("block").link("block", joint="free", mass=mass, inertia=inertia).build()


def bottom(size=(0.2, 0.2, 0.1)) -> np.ndarray:
    """The four lower corners."""
    return np.array([[x * size[0] / 2, y * size[1] / 2, -size[2] / 2] for x in (-1, 1) for y in (-1, 1)])


def ball(radius: float = 0.1, mass: float = 1.0) -> soa.Multibody:
    """A free uniform sphere."""
    inertia = 0.4 * mass * radius**2 * np.eye(3)
    return soa.Builder("ball").link("ball", joint="free", mass=mass, inertia=inertia).build()


def simulate(robot, scene, q, v, dt, steps):
    """States after each step, with residual and impulses."""
    tau = jnp.zeros(robot.nv, q.dtype)

    def one(state, _):
        s = contact.step(robot, scene, *state, tau, dt)
        return (s.q, s.v), (s.q, s.v, s.residual, s.impulses)

    return jax.lax.scan(one, (q, v), length=steps)[1]


def about_y(angle: float) -> np.ndarray:
    """Rotation matrix and quaternion (w, x, y, z) of a turn about y."""
    return np.array([np.cos(angle / 2), 0, np.sin(angle / 2), 0])
