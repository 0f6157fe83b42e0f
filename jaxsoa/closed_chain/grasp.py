"""Several arms holding one rigid object: the system, its state, and the terms of its equations of motion.

JPL 88-11, Part II, section 2. C is the origin of the object's frame, O_i the contact of arm i. In world axes:

    V(0) = A V(C) - H*(0) W(0),    alpha(0) = A alpha(C) + a(C) - H* W' - (H*)' W,    f(C) = A* f(0),
    M(C) alpha(C) + b(C) = A* f(0),

with A the column of phi*(C, O_i). Accelerations are true ones throughout; gravity is a force, on the object inside b(C)
and on the arms inside their own dynamics, so that pseudo-accelerations never meet the constraints.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from jaxsoa.closed_chain.algebra import (
    PseudoInverse,
    complement,
    components,
    is_concrete,
    motion_shift,
    pseudo_inverse,
    stack,
    turned,
)
from jaxsoa.closed_chain.contacts import Contact, Rigid
from jaxsoa.closed_chain.frames import MovingFrame, moving_frame
from jaxsoa.eager import compiled
from jaxsoa.indexing import owned
from jaxsoa.model.description import ModelError
from jaxsoa.model.multibody import Multibody
from jaxsoa.spatial import ops

Pose = tuple[Array, Array]


class RigidBody(eqx.Module):
    """The object: mass, centre of mass in its own frame, inertia about the centre of mass in its own axes."""

    mass: Float[Array, ""]
    com: Float[Array, "3"]
    inertia: Float[Array, "3 3"]

    def __init__(self, mass, com=(0.0, 0.0, 0.0), inertia=None):
        if inertia is None:
            raise ModelError("A RigidBody needs its inertia about the centre of mass, (3, 3).")
        self.mass, self.com, self.inertia = (jnp.asarray(owned(x), float) for x in (mass, com, inertia))
        for name, value, shape in (("mass", self.mass, ()), ("com", self.com, (3,)), ("inertia", self.inertia, (3, 3))):
            if value.shape != shape:
                raise ModelError(f"The {name} of a RigidBody must have shape {shape}, got {value.shape}.")
        if is_concrete(self.mass, self.com, self.inertia):
            self._check()

    def _check(self) -> None:
        mass, com, inertia = (np.asarray(x) for x in (self.mass, self.com, self.inertia))
        if not (np.isfinite(mass) and mass > 0):
            raise ModelError(f"The object needs a positive, finite mass to be moved by contact forces; got {mass}.")
        if not (np.isfinite(com).all() and np.isfinite(inertia).all()):
            raise ModelError(f"The object's com and inertia must be finite; got {com.tolist()}, {inertia.tolist()}.")
        moments = np.linalg.eigvalsh((inertia + inertia.T) / 2)
        if not np.allclose(inertia, inertia.T) or moments[0] <= 0:
            raise ModelError(
                "The object's inertia must be symmetric and positive definite; its principal moments are "
                f"{moments.tolist()}."
            )


class Arm(eqx.Module):
    """A robot whose `frame` holds the object where `point` is (object frame), by a contact.

    The frame's origin is the contact point. A contact holds the relative orientation it finds.
    """

    robot: Multibody
    frame: str = eqx.field(static=True)
    point: Float[Array, "3"]
    contact: Contact

    def __init__(self, robot: Multibody, frame: str, point=(0.0, 0.0, 0.0), contact: Contact | None = None):
        robot.topology.frame_number(frame)  # KeyError with close matches
        if robot.topology.frame_links[robot.topology.frame_number(frame)] < 0:
            raise ModelError(f"Frame {frame!r} of {robot.name!r} is fixed to the base: it cannot hold an object.")
        self.robot, self.frame = robot, frame
        self.point = robot.convert(point, "point")
        if self.point.shape != (3,):
            raise ModelError(f"The contact point must be three numbers in the object's frame, got {self.point.shape}.")
        self.contact = Rigid() if contact is None else contact
        if not isinstance(self.contact, Contact):
            raise TypeError(f"contact must be one of the contacts (Rigid(), Hinge(axis), ...), got {contact!r}.")
        self.contact = jax.tree.map(lambda x: robot.convert(x, "contact"), self.contact)


class GraspSystem(eqx.Module):
    """Arms and the object they hold. `gravity` acts on the object; by default it is that of the first arm.

    The first arm's floating type is that of the object and of all that is computed.
    """

    arms: tuple[Arm, ...]
    body: RigidBody
    gravity: Float[Array, "3"]

    def __init__(self, arms: Sequence[Arm], body: RigidBody, gravity=None):
        self.arms = tuple(arms)
        if not self.arms:
            raise ModelError("A grasp needs at least one arm.")
        robot = self.arms[0].robot
        self.body = jax.tree.map(lambda x: robot.convert(x, "body"), body)
        self.gravity = robot.gravity if gravity is None else robot.convert(gravity, "gravity")

    @property
    def n_arms(self) -> int:
        """How many arms hold the object."""
        return len(self.arms)

    def check(self, name: str, values, check: str) -> tuple[Array, ...]:
        """One array per arm, each of the right shape for its robot."""
        if isinstance(values, jax.Array | np.ndarray) or len(values) != self.n_arms:
            got = getattr(values, "shape", None) or f"{len(values)} values"
            raise ValueError(f"{name} must be a sequence of one array per arm ({self.n_arms}), got {got}.")
        return tuple(getattr(arm.robot, check)(x, name) for arm, x in zip(self.arms, values, strict=True))

    def check_rotations(self, q, name: str) -> None:
        """As that of a robot, arm by arm."""
        for arm, x in zip(self.arms, q, strict=False):  # numbers are another check's
            arm.robot.check_rotations(x, name)


def check_pose(system: GraspSystem, pose) -> Pose:
    """(R, p) of the object, in the system's type."""
    try:
        R, p = pose
    except (TypeError, ValueError):
        raise ValueError("object_pose must be a pair (R, p) of a rotation (3, 3) and a position (3,).") from None
    R, p = (system.arms[0].robot.convert(x, "object_pose") for x in (R, p))
    if R.shape != (3, 3) or p.shape != (3,):
        raise ValueError(f"object_pose must be a rotation (3, 3) and a position (3,), got {R.shape} and {p.shape}.")
    return R, p


# --- arms, alike ones together ------------------------------------------------------------------------------------


def over_arms(system: GraspSystem, f: Callable, *per_arm: Sequence | Array) -> list[Any]:
    """[f(robot, frame, *args) for each arm], where arms of one topology are evaluated together under `jax.vmap`.

    So neither the compiled program nor the number of sequential steps grows with the number of like arms.
    """
    groups: dict[tuple, list[int]] = {}
    for i, arm in enumerate(system.arms):
        kinds = jax.tree.structure(tuple(x[i] for x in per_arm))
        groups.setdefault((arm.robot.topology, arm.frame, kinds), []).append(i)
    results: list[Any] = [None] * system.n_arms
    for (_, frame, _), members in groups.items():
        robots = [system.arms[i].robot for i in members]
        args = [tuple(x[i] for i in members) for x in per_arm]
        if len(members) == 1:
            results[members[0]] = f(robots[0], frame, *(x[0] for x in args))
            continue
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *zip(robots, *args, strict=True))
        out = jax.vmap(lambda robot, *args, frame=frame: f(robot, frame, *args))(*stacked)
        for row, i in enumerate(members):
            results[i] = jax.tree.map(lambda leaf, row=row: leaf[row], out)
    return results


# --- state --------------------------------------------------------------------------------------------------------


class GraspState(NamedTuple):
    """The closed chain's state, from joint data and the object's pose; world axes."""

    object_velocity: Float[Array, "6"]  # V(C): angular, linear of the object frame's origin
    contact_rates: tuple[Array, ...]  # W(0), one (k,) per arm
    position_error: Float[Array, "l 3"]  # contact frame less contact point, along held directions
    velocity_error: Float[Array, "l 6"]  # what V(0) + H* W - A V(C) leaves
    tips: MovingFrame  # rotation, position, velocity and bias stacked (l, ...); jacobian a tuple
    offsets: Float[Array, "l 3"]  # from C to the contacts
    axes: tuple[Array, ...]  # H(0), world axes, (k, 6) per arm
    held: Float[Array, "l 6 6"]  # projectors onto the directions held


@compiled(through_door=False)
def grasp_state(
    system: GraspSystem,
    q: Sequence[Array],
    v: Sequence[Array],
    object_pose: Pose,
    *,
    contact_rates: Sequence[Array] | None = None,
    object_velocity: Shaped[Array, "6"] | None = None,
) -> GraspState:
    """Velocities of a grasp from joint data (JPL 88-11, Part II, 2.8a; with contact freedom a.6).

    V(C) is the least-squares solution of A V(C) = V(0) + H* W. Without `contact_rates` only the directions the contacts
    hold are asked for; where those leave the object free (it may spin between two point contacts) the smallest
    velocity is taken, so give `object_velocity` then. A given `object_velocity` is taken as it is.

    >>> system, q, pose = soa.closed_chain.mechanisms.two_arm_grasp()
    >>> state = soa.closed_chain.grasp_state(system, q, [jnp.zeros(7)] * 2, pose)
    >>> print(state.object_velocity + 0.0)
    [0. 0. 0. 0. 0. 0.]
    """
    q, v = system.check("q", q, "check_q"), system.check("v", v, "check_v")
    pose = check_pose(system, object_pose)
    rates = None if contact_rates is None else check_rates(system, contact_rates)
    velocity = None if object_velocity is None else _six(system, object_velocity, "object_velocity")
    return state_of(system, q, v, pose, rates, velocity)


class _Held(NamedTuple):
    """Arms at the object: their tips, and the contacts' geometry."""

    tips: MovingFrame
    offsets: Array
    gap: Array
    axes: tuple[Array, ...]
    held: Array
    A: Array


def _held(system: GraspSystem, q: Sequence[Array], v: Sequence[Array], pose: Pose) -> _Held:
    R, p = pose
    tips = over_arms(system, moving_frame, q, v)
    stacked: MovingFrame = stack([t._replace(jacobian=None) for t in tips])
    points = jnp.stack([ops.matvec(R, arm.point) for arm in system.arms])
    gap = stacked.position - p - points
    slides = np.array([arm.contact.slides for arm in system.arms])
    offsets = jnp.where(slides[:, None], stacked.position - p, points)
    axes = tuple(arm.contact.axes @ turned(R).T for arm in system.arms)
    held = jnp.stack([complement(H) for H in axes])
    tips = stacked._replace(jacobian=tuple(t.jacobian for t in tips))
    return _Held(tips, offsets, gap, axes, held, jax.vmap(motion_shift)(offsets))


def velocity_gram(system: GraspSystem, q: Sequence[Array], v: Sequence[Array], pose: Pose) -> Float[Array, "6 6"]:
    """Of the equations for the object's velocity: sum of A* N A."""
    at = _held(system, q, v, pose)
    NA = at.held @ at.A
    return jnp.einsum("lij,lik->jk", NA, NA)


def state_of(
    system: GraspSystem,
    q: Sequence[Array],
    v: Sequence[Array],
    pose: Pose,
    rates: tuple[Array, ...] | None,
    V: Any,
    spectrum: tuple[Array, Array, Array] | None = None,
) -> GraspState:
    """`grasp_state` of checked arguments; `spectrum` is that of `velocity_gram`, where it is known."""
    tips, offsets, gap, axes, held, A = _held(system, q, v, pose)
    velocity = tips.velocity if rates is None else tips.velocity + along(axes, rates, tips.velocity.dtype)
    if V is None and rates is not None:
        V = jnp.linalg.solve(jnp.einsum("lij,lik->jk", A, A), jnp.einsum("lij,li->j", A, velocity))
    elif V is None:
        NA = held @ A
        gram = jnp.einsum("lij,lik->jk", NA, NA)
        inverse = pseudo_inverse(gram) if spectrum is None else PseudoInverse(gram, *spectrum)
        V = inverse.solve(jnp.einsum("lij,li->j", NA, velocity))
    if rates is None:
        slip = jnp.einsum("lij,j->li", A, V) - velocity
        rates = tuple(components(H, s) for H, s in zip(axes, slip, strict=True))
        velocity = velocity + along(axes, rates, velocity.dtype)
    error = jnp.einsum("lij,j->li", A, V) - velocity
    gap = jnp.einsum("lij,lj->li", held[:, 3:, 3:], gap)
    return GraspState(V, rates, gap, error, tips, offsets, axes, held)


def check_rates(system: GraspSystem, rates: Sequence[Array]) -> tuple[Array, ...]:
    if len(rates) != system.n_arms:
        raise ValueError(f"contact_rates must hold one array per arm ({system.n_arms}), got {len(rates)}.")
    checked = []
    for number, (arm, rate) in enumerate(zip(system.arms, rates, strict=True)):
        rate = arm.robot.convert(rate, "contact_rates")
        if rate.shape != (arm.contact.freedom,):
            raise ValueError(
                f"contact_rates[{number}] must have shape ({arm.contact.freedom},), the free axes of its "
                f"{arm.contact.name} contact; got {rate.shape}."
            )
        checked.append(rate)
    return tuple(checked)


def along(axes: Sequence[Array], rates: Sequence[Array], dtype) -> Float[Array, "l 6"]:
    """H* W per arm."""
    return jnp.stack([w @ H if len(w) else jnp.zeros(6, dtype) for H, w in zip(axes, rates, strict=True)])


def _six(system: GraspSystem, x, name: str) -> Array:
    x = system.arms[0].robot.convert(x, name)
    if x.shape != (6,):
        raise ValueError(f"{name} must have shape (6,): angular, then linear, world axes; got {x.shape}.")
    return x


def check_grasp(
    system: GraspSystem, q: Sequence[Array], object_pose: Pose, *, tolerance: float = 1e-6
) -> Float[Array, "l 3"]:
    """Raise ValueError where an arm's frame is not at its contact point; returns the gaps (l, 3), world axes.

    Looks at values, so it must not be traced; inside jit read `grasp_state(...).position_error`.

    >>> system, q, pose = soa.closed_chain.mechanisms.two_arm_grasp()
    >>> print(jnp.abs(soa.closed_chain.check_grasp(system, q, pose)).max() < 1e-9)  # m
    True
    """
    still = tuple(jnp.zeros(arm.robot.nv) for arm in system.arms)
    gaps = np.asarray(grasp_state(system, q, still, object_pose).position_error)
    lengths = np.linalg.norm(gaps, axis=1)
    bad = [i for i in range(system.n_arms) if not lengths[i] <= tolerance]
    if bad:
        places = ", ".join(f"arm {i} ({system.arms[i].frame!r}): {lengths[i]:.3g}" for i in bad)
        raise ValueError(
            f"The grasp is not closed: distance in metres from frame to contact point: {places}; the tolerance is "
            f"{tolerance:.3g}. `close_grasp` finds joint angles that close it."
        )
    return jnp.asarray(gaps)
