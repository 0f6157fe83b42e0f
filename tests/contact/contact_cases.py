"""Bodies and scenes that the tests of contacts share."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxsoa as soa
from jaxsoa import contact

G = 9.81
DT, STEPS = 1e-3, 420


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


class Place(NamedTuple):
    """Where in the world an experiment is done: turned (a quaternion), then shifted; and by how much less exactly."""

    turn: tuple[float, float, float, float]
    shift: tuple[float, float, float]
    rounding: float  # what a bound of rounding errors grows by

    @property
    def rotation(self) -> np.ndarray:
        """As a matrix."""
        w, *u = self.turn
        cross = np.cross(np.eye(3), u)
        return np.eye(3) + 2 * w * cross + 2 * cross @ cross

    def moved(self, robot: soa.Multibody) -> soa.Multibody:
        """The robot with its base and gravity there."""
        R, gravity = self.rotation, np.asarray(robot.gravity)
        return robot.replace(base_rotation=R, base_position=np.array(self.shift), gravity=R @ gravity)

    def plane(self, height: float = 0.0) -> contact.Plane:
        """The horizontal plane of home, there."""
        normal = self.rotation[:, 2]
        return contact.Plane(normal, height + float(normal @ np.array(self.shift)))


PLACES = {
    "home": Place((1, 0, 0, 0), (0, 0, 0), 1),
    "upside down": Place((0, 1, 0, 0), (0, 0, 0), 1),
    # Doubles know a kilometre to 1e-13 m, and a velocity is that over a step.
    "far away": Place((1, 0, 0, 0), (1000.0, -1000.0, 700.0), 1e4),
}


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


def _stack(trees, dtype):
    """A batch, its floating numbers of one type."""

    def stacked(*leaves):
        together = jnp.stack(leaves)
        return together.astype(dtype) if jnp.issubdtype(together.dtype, jnp.floating) else together

    return jax.tree.map(stacked, *trees)


def sliding_blocks(dtype):
    """One batch of blocks on planes: name to (q, v, residual, impulses) over time."""
    robot, points = block(), contact.Points(["block"] * 4, bottom())
    cases = {}

    def case(name, angle=0.0, speed=1.0, friction=0.5, up=1.0, shift=(0.0, 0.0, 0.0), lift=0.0):
        """A block on a plane that falls at `angle` along x, sliding downhill; `up` = -1 turns the world over."""
        angle = angle if up > 0 else angle + np.pi
        turn, normal, shift = about_y(angle), np.array([np.sin(angle), 0, np.cos(angle)]), np.asarray(shift)
        ground = contact.Plane(normal, float(normal @ shift))
        scene = contact.Scene(points, ground, friction=jnp.asarray(friction))
        q = np.concatenate([turn, shift + (0.05 + lift) * normal])
        v = np.array([0, 0, 0, speed, 0, 0.0])
        gravity = np.array([0, 0, -up * G])
        cases[name] = (robot.replace(gravity=gravity), scene, jnp.asarray(q), jnp.asarray(v))

    case("flat")
    case("down 20", angle=np.deg2rad(20))
    case("sticks", angle=np.deg2rad(26.5), speed=0.0)
    case("slides", angle=np.deg2rad(26.6), speed=0.0)
    for suffix, choices in (("upside down", {"up": -1.0}), ("far away", {"shift": (1000.0, -1000.0, 700.0)})):
        case(suffix, **choices)
        case(f"down 20, {suffix}", angle=np.deg2rad(20), **choices)
        case(f"sticks, {suffix}", angle=np.deg2rad(26.5), speed=0.0, **choices)
        case(f"slides, {suffix}", angle=np.deg2rad(26.6), speed=0.0, **choices)
    case("falls", lift=10.0)
    case("nan")
    robots, scenes, q, v = _stack(cases.values(), dtype)
    v = v.at[list(cases).index("nan")].set(jnp.nan)
    run = jax.jit(jax.vmap(lambda robot, scene, q, v: simulate(robot, scene, q, v, DT, STEPS)))
    found = jax.tree.map(np.asarray, run(robots, scenes, q, v))
    assert all(x.dtype == dtype for x in found)
    return {name: tuple(x[i] for x in found) for i, name in enumerate(cases)}


def thrown_balls(dtype, steps: int = 2000, place: Place = PLACES["home"]):
    """One batch of balls: name to (q, v, dq/dz0, residual) over time; the tangent is by the height at the start.

    Elsewhere q itself is there (the base stays at the origin); what is returned is seen from there."""
    R, shift = place.rotation, np.array(place.shift)
    robot, points = ball(), contact.Points(["ball"], radii=[0.1])
    cases = {}

    def case(name, dt, height, velocity, restitution, friction=0.0, gravity=G):
        # A number just above zero keeps the structure of a scene that may bounce.
        scene = contact.Scene(points, place.plane(), friction, restitution or 1e-30)
        q = jnp.asarray(np.concatenate([place.turn, R @ [0, 0, 0.1 + height] + shift]))
        v = jnp.zeros(6).at[jnp.array([3, 5])].set(jnp.array(velocity))
        cases[name] = (robot.replace(gravity=R @ [0, 0, -gravity]), scene, q, v, jnp.asarray(dt))

    case("rolls", 1e-4, 0.0, (1.0, 0.0), 0.0, friction=0.2)
    case("bounces", 7e-4, 1.0, (0.0, 0.0), 0.5)
    case("weightless", 1e-3, 1.0, (0.0, -1.0), 1.0, gravity=0.0)
    case("elastic", 5e-4, 1.0, (0.0, 0.0), 1.0)
    case("rests", 1e-3, 0.0, (0.0, 0.0), 0.9)

    def run(robot, scene, q, v, dt):
        dq = jnp.zeros_like(q).at[4:].set(jnp.asarray(R[:, 2], dtype))
        return jax.jvp(lambda q: simulate(robot, scene, q, v, dt, steps)[:3], (q,), (dq,))

    one_by_one = jax.jit(lambda cases: jax.lax.map(lambda case: run(*case), cases))  # compiles faster than a batch
    (q, v, residual), (dq, _, _) = jax.tree.map(np.array, one_by_one(_stack(cases.values(), dtype)))
    assert q.dtype == v.dtype == dq.dtype == dtype
    if place is not PLACES["home"]:
        q[..., 4:], dq[..., 4:] = (q[..., 4:] - shift) @ R, dq[..., 4:] @ R
    return {name: (q[i], v[i], dq[i], residual[i]) for i, name in enumerate(cases)}
