"""What closes a loop: two frames with some relative motion left free, a distance, or two coupled joints.

Every constraint speaks of frame b as seen from frame a, in a's axes: its pose (R, s), its twist nu = (angular, linear)
at b's origin. A constraint holds the directions that its projector N selects:  N nu = 0,  N nu' + bias = 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxsoa.closed_chain.algebra import complement, is_concrete
from jaxsoa.indexing import owned
from jaxsoa.model.description import ModelError
from jaxsoa.model.multibody import Multibody
from jaxsoa.spatial import ops, rotation


class Relative(NamedTuple):
    """Frame b seen from frame a, in a's axes."""

    rotation: Float[Array, "3 3"]
    position: Float[Array, "3"]
    rate: Float[Array, "6"]


def _vector(name: str, x, size: int) -> Array:
    x = jnp.asarray(owned(x), float)
    if x.shape != (size,):
        raise ModelError(f"{name} must be {size} numbers, got shape {x.shape}.")
    return x


class Loop(eqx.Module):
    """Frame b may move relative to frame a along `free` only: (k, 6) axes (angular, linear) at b's origin, in a's axes.

    Forward dynamics holds the relative pose it finds. Closing, stabilizing and projecting need to know which pose is
    meant: `rotation` and `position` of b seen from a (default: the frames coincide), up to the free motion;
    `holding(robot, q, loops)` fills in the pose at q. `point_a` and `point_b` move the two origins within their frames.
    """

    frame_a: str = eqx.field(static=True)
    frame_b: str = eqx.field(static=True)
    free: Float[Array, "k 6"]
    rotation: Float[Array, "3 3"]
    position: Float[Array, "3"]
    point_a: Float[Array, "3"]
    point_b: Float[Array, "3"]
    turns: int = eqx.field(static=True)  # independent rotations among the free axes

    def __init__(
        self,
        frame_a: str,
        frame_b: str,
        free=(),
        *,
        rotation=None,
        position=(0.0, 0.0, 0.0),
        point_a=(0.0, 0.0, 0.0),
        point_b=(0.0, 0.0, 0.0),
    ):
        self.frame_a, self.frame_b = frame_a, frame_b
        free = jnp.asarray(owned(free), float)
        free = jnp.zeros((0, 6)) if free.size == 0 else free
        if free.ndim != 2 or free.shape[1] != 6:
            raise ModelError(f"free must be (k, 6) axes of relative motion (angular, linear), got shape {free.shape}.")
        if is_concrete(free):
            rows = np.asarray(free)
            if not np.isfinite(rows).all() or np.linalg.matrix_rank(rows) < len(rows):
                raise ModelError(f"The free axes must be finite and linearly independent, got {rows.tolist()}.")
            self.turns = int(np.linalg.matrix_rank(rows[:, :3])) if len(rows) else 0
        else:
            self.turns = min(3, free.shape[0])
        self.free = free
        self.rotation = jnp.eye(3) if rotation is None else jnp.asarray(owned(rotation), float)
        if self.rotation.shape != (3, 3):
            raise ModelError(f"rotation must be (3, 3), got {self.rotation.shape}.")
        self.position = _vector("position", position, 3)
        self.point_a, self.point_b = _vector("point_a", point_a, 3), _vector("point_b", point_b, 3)

    def selection(self, relative: Relative) -> tuple[Array, Array]:
        """(N, bias), a's axes."""
        return complement(self.free), jnp.zeros(6, relative.rate.dtype)

    def error(self, relative: Relative) -> Float[Array, "6"]:
        """How far the relative pose is from what the loop allows; its rate is N nu where it vanishes."""
        turn = rotation_error(relative.rotation @ self.rotation.T, self.free, self.turns)
        return complement(self.free) @ jnp.concatenate([turn, relative.position - self.position])

    def held_at(self, relative: Relative) -> Loop:
        """The same loop, closed at the relative pose given."""
        return eqx.tree_at(lambda x: (x.rotation, x.position), self, (relative.rotation, relative.position))


def rotation_error(R: Array, free: Array, turns: int) -> Float[Array, "3"]:
    """A rotation as a vector that any rotation about a free axis leaves within that axis.

    About one free axis: the twist about it plus the tilt n x R n away from it, which no number of turns disturbs.
    """
    quaternion = rotation.to_quaternion(R)
    if turns != 1:
        return rotation.logarithm(quaternion)
    angular = jnp.asarray(free)[:, :3]
    n = angular[jnp.argmax(jnp.sum(angular * angular, axis=1))]
    n = n / jnp.sqrt(ops.dot(n, n))
    along, w = ops.dot(quaternion[1:], n), quaternion[0]
    flipped = w * w + along * along < 1e-12  # upside down: no twist is defined, any will do
    twist = 2 * jnp.arctan2(jnp.where(flipped, 0, along), jnp.where(flipped, 1, w))
    return twist * n + ops.cross(n, ops.matvec(R, n))


def weld(frame_a: str, frame_b: str, **places) -> Loop:
    """b is fast to a: nothing is free.

    >>> print(soa.closed_chain.weld("link1", "tip").free.shape)
    (0, 6)
    """
    return Loop(frame_a, frame_b, **places)


def hinge(frame_a: str, frame_b: str, axis, **places) -> Loop:
    """Free to turn about `axis` (a's axes) through b's origin.

    >>> print(soa.closed_chain.hinge("link1", "tip", (0, 1, 0)).free)  # (angular, linear) per free axis
    [[0. 1. 0. 0. 0. 0.]]
    """
    return Loop(frame_a, frame_b, _turn(axis), **places)


def ball(frame_a: str, frame_b: str, **places) -> Loop:
    """Free to turn about b's origin in any way.

    >>> loop = soa.closed_chain.ball("link1", "tip")  # its three free axes are turns
    >>> print(loop.free)
    [[1. 0. 0. 0. 0. 0.]
     [0. 1. 0. 0. 0. 0.]
     [0. 0. 1. 0. 0. 0.]]
    """
    return Loop(frame_a, frame_b, np.eye(3, 6), **places)


def slider(frame_a: str, frame_b: str, axis, **places) -> Loop:
    """Free to slide along `axis` (a's axes), not to turn.

    >>> print(soa.closed_chain.slider("link1", "tip", (0, 0, 1)).free)  # (angular, linear) per free axis
    [[0. 0. 0. 0. 0. 1.]]
    """
    return Loop(frame_a, frame_b, _slide(axis), **places)


def cylinder(frame_a: str, frame_b: str, axis, **places) -> Loop:
    """Free to slide along `axis` and to turn about it.

    >>> print(soa.closed_chain.cylinder("link1", "tip", (0, 0, 1)).free)  # (angular, linear) per free axis
    [[0. 0. 1. 0. 0. 0.]
     [0. 0. 0. 0. 0. 1.]]
    """
    return Loop(frame_a, frame_b, np.concatenate([_turn(axis), _slide(axis)]), **places)


def screw(frame_a: str, frame_b: str, axis, pitch: float, **places) -> Loop:
    """Turning about `axis` advances along it by `pitch` per radian. Its position is known within half a turn only.

    >>> print(soa.closed_chain.screw("link1", "tip", (0, 0, 1), pitch=0.01).free)  # pitch in m/rad
    [[0.   0.   1.   0.   0.   0.01]]
    """
    return Loop(frame_a, frame_b, _turn(axis) + pitch * _slide(axis), **places)


def planar(frame_a: str, frame_b: str, normal, **places) -> Loop:
    """Free to slide in the plane normal to `normal` and to turn about it.

    >>> print(soa.closed_chain.planar("link1", "tip", (0, 1, 0)).free.shape)  # two slides and a turn
    (3, 6)
    """
    n = _axis(normal)
    first = np.cross(n, np.eye(3)[np.argmin(np.abs(n))])
    first /= np.linalg.norm(first)
    return Loop(frame_a, frame_b, np.concatenate([_turn(n), _slide(first), _slide(np.cross(n, first))]), **places)


def _axis(axis) -> np.ndarray:
    axis = np.asarray(axis, float)
    if axis.shape != (3,) or not np.isfinite(axis).all() or not axis.any():
        raise ModelError(f"The axis of a loop must be three finite numbers, not all zero; got {axis.tolist()}.")
    return axis / np.linalg.norm(axis)


def _turn(axis) -> np.ndarray:
    return np.concatenate([_axis(axis), np.zeros(3)])[None]


def _slide(axis) -> np.ndarray:
    return np.concatenate([np.zeros(3), _axis(axis)])[None]


class Distance(eqx.Module):
    """The origins of two frames stay at one distance: a massless rod with ball joints. They must not coincide.

    `length` is what closing, stabilizing and projecting aim at; forward dynamics holds the distance it finds.
    """

    frame_a: str = eqx.field(static=True)
    frame_b: str = eqx.field(static=True)
    length: Float[Array, ""]
    point_a: Float[Array, "3"]
    point_b: Float[Array, "3"]

    def __init__(self, frame_a: str, frame_b: str, length=1.0, *, point_a=(0.0, 0.0, 0.0), point_b=(0.0, 0.0, 0.0)):
        self.frame_a, self.frame_b = frame_a, frame_b
        self.length = jnp.asarray(owned(length), float)
        if is_concrete(self.length) and not (self.length.shape == () and float(self.length) > 0):
            raise ModelError(f"The length of a distance constraint must be one positive number, got {length}.")
        self.point_a, self.point_b = _vector("point_a", point_a, 3), _vector("point_b", point_b, 3)

    def selection(self, relative: Relative) -> tuple[Array, Array]:
        """N = n n* for the line's direction n; bias: |rate across the line|^2 / length along n."""
        s, u = relative.position, relative.rate[3:]
        length = jnp.sqrt(ops.dot(s, s))
        n = s / length
        across = u - ops.dot(n, u) * n
        N = jnp.zeros((6, 6), s.dtype).at[3:, 3:].set(ops.outer(n, n))
        return N, jnp.concatenate([jnp.zeros_like(n), n * (ops.dot(across, across) / length)])

    def error(self, relative: Relative) -> Float[Array, "6"]:
        """How far the distance is from `length`, along the line between the origins."""
        s = relative.position
        length = jnp.sqrt(ops.dot(s, s))
        return jnp.concatenate([jnp.zeros_like(s), s / length * (length - self.length)])

    def held_at(self, relative: Relative) -> Distance:
        """The same rod, as long as the distance given."""
        return eqx.tree_at(lambda x: x.length, self, jnp.sqrt(ops.dot(relative.position, relative.position)))


def distance(frame_a: str, frame_b: str, length: float = 1.0, **places) -> Distance:
    """A rigid massless rod between two points.

    >>> rod = soa.closed_chain.distance("base", "tip", length=1.5)  # m
    >>> print(soa.closed_chain.loop_errors(robot, (rod,), q).shape)
    (6,)
    """
    return Distance(frame_a, frame_b, length, **places)


class Coupling(eqx.Module):
    """One joint follows another: q[joint] = offset + ratio q[target] + higher[0] q[target]^2 + ...

    Gears, belts, the mimic joints of URDF, the joint and tendon equalities of MuJoCo. All joints have one degree of
    freedom. `target` None couples the joint to nothing: it is locked at `offset`. `others`, a dict of joint names and
    ratios, adds multiples of further joints: a differential, or a tendon over several joints.
    """

    joint: str = eqx.field(static=True)
    target: str | None = eqx.field(static=True)
    others: tuple[str, ...] = eqx.field(static=True)
    coefficients: Float[Array, " c"]
    other_ratios: Float[Array, " o"]

    def __init__(
        self,
        joint: str,
        target: str | None,
        ratio=1.0,
        offset=0.0,
        higher=(),
        others: Mapping[str, Any] | None = None,
    ):
        self.joint, self.target, self.others = joint, target, tuple(others or ())
        names = [joint, *([] if target is None else [target]), *self.others]
        if target == joint or joint in self.others:
            raise ModelError(f"Joint {joint!r} cannot be coupled to itself.")
        if len(set(names)) < len(names):
            raise ModelError(f"The coupling of joint {joint!r} names its target {target!r} twice.")
        self.other_ratios = jnp.asarray(list((others or {}).values()), float).reshape(len(self.others))
        self.coefficients = jnp.stack([jnp.asarray(c, float) for c in (offset, ratio, *higher)])
        if is_concrete(self.coefficients) and not np.isfinite(self.coefficients).all():
            raise ModelError(f"The coefficients of a coupling must be finite, got {self.coefficients.tolist()}.")

    @property
    def joints(self) -> tuple[str, ...]:
        """All joints that take part, the coupled one first."""
        return self.joint, *(() if self.target is None else (self.target,)), *self.others

    def places(self, robot: Multibody) -> list[tuple[int, int]]:
        """Where the joints stand in q and in v."""
        found = []
        for name in self.joints:
            at_q, at_v = robot.q_index(name), robot.v_index(name)
            if at_v.stop - at_v.start != 1:
                kind = robot.topology.kinds[robot.topology.joint_number(name)]
                raise ModelError(f"A coupling needs joints of one degree of freedom; {name!r} is {kind}.")
            found.append((at_q.start, at_v.start))
        return found

    def equation(self, robot: Multibody, q: Array, v: Array) -> tuple[Array, Array, Array]:
        """Row J (nv,), bias and error: J v = 0, J a + bias = 0, error = 0."""
        (q_joint, v_joint), *rest = self.places(robot)
        error, bias, row = q[q_joint], jnp.zeros_like(v[v_joint]), jnp.zeros_like(v).at[v_joint].set(1)
        if self.target is None:
            error = error - self.coefficients[0]
        else:
            (q_target, v_target), *rest = rest
            value, slope, bend = self.value(q[q_target])
            error, bias, row = error - value, -bend * v[v_target] ** 2, row.at[v_target].set(-slope)
        for (q_other, v_other), ratio in zip(rest, self.other_ratios, strict=True):
            error, row = error - ratio * q[q_other], row.at[v_other].set(-ratio)
        return row, bias, error

    def value(self, x: Array) -> tuple[Array, Array, Array]:
        """The polynomial in the target and its first two derivatives."""
        c = self.coefficients
        value, slope, bend = c[-1] + 0 * x, 0 * x, 0 * x
        for coefficient in c[-2::-1]:  # Horner
            value, slope, bend = value * x + coefficient, slope * x + value, bend * x + 2 * slope
        return value, slope, bend


def mimic_couplings(robot: Multibody) -> tuple[Coupling, ...]:
    """The couplings that a URDF file's <mimic> elements ask for.

    >>> print(soa.closed_chain.mimic_couplings(robot))  # no joint mimics another
    ()
    """
    return tuple(Coupling(joint, target, ratio, offset) for joint, target, ratio, offset in robot.topology.mimics)


Constraint = Loop | Distance | Coupling
