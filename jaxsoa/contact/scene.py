"""A scene: which points of the robot may touch which surfaces, and by what law."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxsoa.closed_chain.algebra import is_concrete
from jaxsoa.contact.solver import Settings, default_tolerance
from jaxsoa.contact.surfaces import Surface, numbers
from jaxsoa.model.multibody import Multibody

LAWS = ("coulomb", "convex")
GRADIENTS = ("exact", "relaxed", "distance")


class Points(eqx.Module):
    """Points, or spheres of `radii` (m,) about them, at `positions` (m, 3) in the robot's frames named (m).

    With `ends` (m, 3) each is a capsule: all within its radius of the segment from its position to its end. It touches
    at one point, the nearest to the surface, which may be a ball, a capsule or a plane; a capsule that is to lie on the
    ground wants its two ends as spheres instead.
    """

    frames: tuple[str, ...] = eqx.field(static=True)
    positions: Float[Array, "m 3"]
    radii: Float[Array, " m"]
    ends: Float[Array, "m 3"] | None

    def __init__(self, frames: str | Sequence[str], positions=None, radii=None, ends=None):
        self.frames = (frames,) if isinstance(frames, str) else tuple(frames)
        m = len(self.frames)
        if m == 0:
            raise ValueError("Points needs at least one frame.")
        positions = jnp.zeros((m, 3)) if positions is None else positions
        self.positions = numbers("positions", positions, (m, 3))
        radii = numbers("radii", jnp.zeros(m) if radii is None else radii)
        if radii.shape not in ((), (m,)):
            raise ValueError(f"radii must be one number or one per point, ({m},); got shape {radii.shape}.")
        if is_concrete(radii) and not (np.asarray(radii) >= 0).all():
            raise ValueError(f"radii must not be negative, got {np.asarray(radii).tolist()}.")
        self.radii = jnp.broadcast_to(radii, (m,))
        self.ends = None if ends is None else numbers("ends", ends, (m, 3))

    def __len__(self) -> int:
        return len(self.frames)


class Pair(NamedTuple):
    """A contact that may happen: a point, a surface, and the links that carry them (-1: the world)."""

    point: int
    surface: int
    link: int
    other: int


class Scene(eqx.Module):
    """Points of a robot, the surfaces they may touch, and the laws of contact.

    - `friction`, `restitution`, `compliance`: one number, one per point (m,), or one per surface and point (s, m).
      Compliance is in m/N: a contact pressed with f gives way by compliance times f; zero is rigid.
    - `law`: "coulomb", or "convex" (the relaxation of MuJoCo, Drake's SAP and Anitescu: a sliding contact floats at a
      gap of about dt mu |v|).
    - `gradient`: "exact" (contacts break, stick or slide as they do), "relaxed" (hard contact forward; backward every
      cone is smoothed over velocities of `relaxation`, so that forces answer also where a contact is about to open or
      slip), or "distance" (exact for contacts that carry, and smoothed over the length `reach` for those that do not:
      a signal from contacts not yet made).
    - `recovery`: the part of a penetration that one step removes, at no more than `recovery_speed` (m/s). Deeper
      penetration is not an error: bodies come apart at that speed.
    - `limits`: joints whose limits act as one-sided constraints; True: all that have a coordinate per velocity.

    Contacts are numbered surface by surface, points in order; a point never touches a surface of its own link. With a
    restitution that is the number zero the step solves one problem; with any other two (see `stepping`).
    """

    points: Points
    surfaces: tuple[Surface, ...]
    friction: Float[Array, "..."]
    restitution: Float[Array, "..."]
    compliance: Float[Array, "..."]
    recovery: Float[Array, ""]
    recovery_speed: Float[Array, ""]
    relaxation: Float[Array, ""]
    reach: Float[Array, ""]
    law: str = eqx.field(static=True)
    gradient: str = eqx.field(static=True)
    bounces: bool = eqx.field(static=True)
    limits: tuple[str, ...] | bool = eqx.field(static=True)
    settings: Settings

    def __init__(
        self,
        points: Points,
        ground: Surface | Sequence[Surface],
        friction=0.8,
        restitution=0.0,
        compliance=0.0,
        law: str = "coulomb",
        *,
        gradient: str = "exact",
        relaxation=0.02,
        reach=0.01,
        recovery=0.2,
        recovery_speed=1.0,
        limits: Sequence[str] | bool = (),
        settings: Settings | None = None,
    ):
        if not isinstance(points, Points):
            raise TypeError(f"points must be contact.Points, got {type(points).__name__}.")
        surfaces = (ground,) if isinstance(ground, Surface) else tuple(ground)
        if not surfaces or not all(isinstance(surface, Surface) for surface in surfaces):
            raise TypeError(
                "ground must be one or several of contact.Plane, HeightField, Ball, Capsule, Box; meshes are not "
                f"supported: describe them by points and such bodies. Got {ground!r}."
            )
        if points.ends is not None:
            for surface in surfaces:
                if type(surface).nearest is Surface.nearest:
                    raise ValueError(
                        f"Capsules against a {type(surface).__name__} are not supported: describe the capsule by "
                        "spheres along it (contact.Points without ends), or the surface by planes, balls and capsules."
                    )
        self.points, self.surfaces = points, surfaces
        self.law, self.gradient = _choice("law", law, LAWS), _choice("gradient", gradient, GRADIENTS)
        self.bounces = not (is_concrete(restitution) and not np.any(np.asarray(restitution)))
        self.limits = limits if isinstance(limits, bool) else tuple(limits)
        self.settings = Settings() if settings is None else settings
        shapes = ((), (len(points),), (len(surfaces), len(points)))
        self.friction = _coefficient("friction", friction, 0, np.inf, shapes)
        self.restitution = _coefficient("restitution", restitution, 0, 1, shapes)
        self.compliance = _coefficient("compliance", compliance, 0, np.inf, shapes)
        self.recovery = _coefficient("recovery", recovery, 0, 1, ((),))
        self.recovery_speed = _coefficient("recovery_speed", recovery_speed, 0, np.inf, ((),))
        self.relaxation = _coefficient("relaxation", relaxation, 0, np.inf, ((),))
        self.reach = _coefficient("reach", reach, 0, np.inf, ((),))

    def replace(self, **changes) -> Scene:
        """A copy with some fields replaced, checked as at the start."""
        names = "points friction restitution compliance law gradient relaxation reach recovery recovery_speed limits"
        given = {name: getattr(self, name) for name in (*names.split(), "settings")}
        if not self.bounces:
            given["restitution"] = 0.0
        given["ground"] = self.surfaces
        unknown = set(changes) - set(given)
        if unknown:
            raise TypeError(f"A scene has no {sorted(unknown)[0]!r}; it has {', '.join(sorted(given))}.")
        return Scene(**{**given, **changes})

    def advance(self, robot: Multibody, q, v, tau, dt, f_ext=None, loops=(), prescribed=None) -> tuple[Array, Array]:
        """(q, v) after `contact.step`: what linearizations and problems of optimal control ask of a scene."""
        after = self.stepped(robot, q, v, tau, dt, f_ext, loops, prescribed)
        return after.q, after.v

    def stepped(self, robot: Multibody, q, v, tau, dt, f_ext=None, loops=(), prescribed=None) -> Any:
        """`contact.step`: what integrators ask of a scene."""
        from jaxsoa.contact.stepping import step  # which itself builds on this module

        return step(robot, self, q, v, tau, dt, f_ext, loops, prescribed=prescribed)

    def linearized(self, robot: Multibody, q, v, tau, dt) -> Any:
        """(v after the step, its derivatives by dq, dv and dtau side by side), or None: one tangent at a time then."""
        if self.bounces:
            return None
        from jaxsoa.contact.linearized import linearized_velocity

        return linearized_velocity(robot, self, q, v, tau, dt)

    def warn_unsolved(self, residual: Array, stacklevel: int = 4) -> None:
        """A warning where a residual (the largest of several) is above the solver's tolerance, outside of jit."""
        if not is_concrete(residual):
            return
        tolerance = self.settings.tolerance or default_tolerance(residual.dtype)
        if float(np.max(np.asarray(residual))) > tolerance:
            message = (
                f"The contact solver stopped at a residual of {float(np.max(np.asarray(residual))):.1e} m/s (tolerance "
                f"{tolerance:.0e}); give the scene more iterations by settings=contact.Settings(...)."
            )
            warnings.warn(message, UserWarning, stacklevel=stacklevel)

    def pairs(self, robot: Multibody) -> tuple[Pair, ...]:
        """The contacts that may happen, in order; unknown frames raise with close matches."""
        links = [_link_of(robot, frame, "contact point") for frame in self.points.frames]
        for frame, link in zip(self.points.frames, links, strict=True):
            if link < 0:
                raise ValueError(f"Contact point on {frame!r}: that frame is fixed to the world and cannot move.")
        found = []
        for number, surface in enumerate(self.surfaces):
            other = -1 if surface.frame is None else _link_of(robot, surface.frame, "surface")
            found += [Pair(k, number, link, other) for k, link in enumerate(links) if link != other]
        if not found:
            raise ValueError(f"No point of this scene can touch a surface of another link of {robot.name!r}.")
        return tuple(found)

    def per_contact(self, value: Array, pairs: tuple[Pair, ...], dtype) -> Float[Array, " c"]:
        """A coefficient for each pair."""
        full = jnp.broadcast_to(value.astype(dtype), (len(self.surfaces), len(self.points)))
        return full.reshape(-1)[np.array([p.surface * len(self.points) + p.point for p in pairs])]

    def limited(self, robot: Multibody) -> np.ndarray:
        """Degrees of freedom whose limits act."""
        topology = robot.topology
        if self.limits is True:
            names = [n for n, joint in zip(topology.joint_names, topology.joints, strict=True) if joint.nq == joint.nv]
        else:
            names = self.limits or ()
        slices = [robot.v_index(name) for name in names]
        return np.array([i for s in slices for i in range(s.start, s.stop)], int)


def _choice(name: str, value: str, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(repr(c) for c in choices)}; got {value!r}.")
    return value


def _coefficient(name: str, value, low: float, high: float, shapes) -> Array:
    value = jnp.asarray(value)
    value = value if jnp.issubdtype(value.dtype, jnp.floating) else value.astype(float)
    if value.shape not in shapes:
        raise ValueError(f"{name} must have a shape of {', '.join(map(str, shapes))}; got {value.shape}.")
    if is_concrete(value) and not ((np.asarray(value) >= low) & (np.asarray(value) <= high)).all():
        bound = "not be negative" if np.isinf(high) else f"lie between {low} and {high}"
        raise ValueError(f"{name} must {bound}; got {np.asarray(value).tolist()}.")
    return value


def _link_of(robot: Multibody, frame: str, what: str) -> int:
    if frame not in robot.frame_names:
        near = difflib.get_close_matches(frame, robot.frame_names, 3)
        hint = f" Did you mean {', '.join(map(repr, near))}?" if near else ""
        raise ValueError(
            f"Robot {robot.name!r} has no frame {frame!r} for a {what}; was the scene made for another robot?{hint}"
        )
    return robot.topology.frame_links[robot.topology.frame_number(frame)]
