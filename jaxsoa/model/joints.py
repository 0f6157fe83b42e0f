"""The joint kinds. Each is a class with the same few methods; nothing else in the package knows a kind by its name.

A joint moves its child link's frame relative to the *joint frame*, which is fixed in the parent link. Per kind:

    pose(geometry, q) -> R, p               pose of the child frame in the joint frame; None for no turn or no shift
    axes(geometry, q) -> ((w, v), ...)      columns of H*, one per degree of freedom: the child's relative velocity is
                                            the sum of axes times rates, child axes, child origin; None for zero
    drift(geometry, q, v) -> (w, v)         derivative of the axes along the motion, as seen from the joint frame
    integrate(q, dv) -> q                   move by a tangent vector (exact for a constant velocity)
    difference(q0, q1) -> dv                its inverse

Spatial vectors are angular first. `geometry` holds the joint's differentiable parameters: a unit `axis`, a second
axis `axis2` (universal: second axis, fixed in the child; planar: the in-plane x direction) and a helical `pitch`.
`pose`, `axes` and `drift` are of one joint, in JAX's arrays or NumPy's (see `spatial.ops`); `transform`, `subspace` and
`bias` are the same without None.

What others must know of a kind (whether it reads an axis, has a range, floats, what URDF calls it) are attributes of
its class, with the answer of most kinds in `Joint`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxsoa.spatial import ops, rotation


class JointGeometry(NamedTuple):
    axis: Any
    axis2: Any
    pitch: Any


class Joint:
    """Common behaviour: coordinates that add, no drift."""

    name: str
    nq: int
    nv: int
    has_bias: bool = False  # whether `drift` can differ from zero
    angular_only: bool = False  # whether no axis has a linear part
    reads_axis: bool = True  # whether `pose` or `axes` read geometry.axis
    reads_axis2: bool = False  # whether they read geometry.axis2, which must not be parallel to the axis
    reads_pitch: bool = False
    has_range: bool = False  # whether files give it a lower and an upper limit
    rates_in_child_axes: bool = False  # whether every degree turns the axes of all, as of rates in the child's axes
    quaternion: slice | None = None  # entries of q that are a unit quaternion, in child axes
    position: slice | None = None  # entries of q that are the child's position in the joint frame: it floats
    urdf: str | None = None  # its type in a URDF file
    mujoco: int | None = None  # its mjtJoint
    moves_like: str | None = None  # another kind whose pose, axes and drift are the same: both are evaluated at once
    # The letters of the coordinates, for people: what each entry of v is.
    coordinates: tuple[str, ...]

    def pose(self, geometry: JointGeometry, q) -> tuple:
        raise NotImplementedError

    def axes(self, geometry: JointGeometry, q) -> tuple[tuple, ...]:
        raise NotImplementedError

    def drift(self, geometry: JointGeometry, q, v) -> tuple:
        return None, None

    def transform(self, geometry: JointGeometry, q: Array) -> tuple[Array, Array]:
        """`pose` as arrays (3, 3) and (3,)."""
        R, p = self.pose(geometry, q)
        return jnp.eye(3, dtype=q.dtype) if R is None else R, jnp.zeros(3, q.dtype) if p is None else p

    def subspace(self, geometry: JointGeometry, q: Array) -> Array:
        """`axes` as an array (nv, 6): the rows of H."""
        return jnp.stack([_spatial(w, v, q.dtype) for w, v in self.axes(geometry, q)])

    def bias(self, geometry: JointGeometry, q: Array, v: Array) -> Array:
        """`drift` as an array (6,)."""
        angular, linear = self.drift(geometry, q, v)
        return _spatial(angular, linear, q.dtype)

    @property
    def motion(self) -> str:
        """The kind that says how it moves: its own, or the one it moves like."""
        return self.moves_like or self.name

    def parts(self, axis: np.ndarray, axis2: np.ndarray) -> tuple[tuple[str, np.ndarray], ...]:
        """The chain of joints of one degree, (kind, axis), that moves as this one does; () where there is none."""
        return ()

    def neutral(self) -> tuple[float, ...]:
        return (0.0,) * self.nq

    def random(self, key: Array, dtype) -> Array:
        return jax.random.uniform(key, (self.nq,), dtype, -jnp.pi, jnp.pi)

    def integrate(self, q, dv) -> Array:
        return q + dv

    def difference(self, q0, q1) -> Array:
        return q1 - q0

    def normalize(self, q) -> Array:
        return q


def _spatial(w, v, dtype) -> Array:
    zero = jnp.zeros(3, dtype)
    return jnp.concatenate([zero if w is None else w, zero if v is None else v])


def on_host(
    joint: Joint, axis: np.ndarray, axis2: np.ndarray, pitch: float, q: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`transform` (3, 3), (3,) and `subspace` (nv, 6) in NumPy's doubles, whatever JAX computes in."""

    def vector(x) -> np.ndarray:
        return np.zeros(3) if x is None else np.asarray(x)

    geometry, q = JointGeometry(np.asarray(axis, float), np.asarray(axis2, float), float(pitch)), np.asarray(q, float)
    R, p = joint.pose(geometry, q)
    rows = [np.concatenate([vector(w), vector(v)]) for w, v in joint.axes(geometry, q)]
    return np.eye(3) if R is None else np.asarray(R), vector(p), np.array(rows).reshape(-1, 6)


class Revolute(Joint):
    name, nq, nv, angular_only, coordinates = "revolute", 1, 1, True, ("angle",)
    has_range, urdf, mujoco = True, "revolute", 3

    def pose(self, geometry, q):
        return rotation.from_axis_angle(geometry.axis, q[0]), None

    def axes(self, geometry, q):
        return ((geometry.axis, None),)


class Continuous(Revolute):
    """A revolute joint without a range."""

    name, has_range, urdf, mujoco, moves_like = "continuous", False, "continuous", None, "revolute"


class Prismatic(Joint):
    name, nq, nv, coordinates = "prismatic", 1, 1, ("displacement",)
    has_range, urdf, mujoco = True, "prismatic", 2

    def pose(self, geometry, q):
        return None, ops.scale(q[0], geometry.axis)

    def axes(self, geometry, q):
        return ((None, geometry.axis),)

    def random(self, key, dtype):
        return jax.random.uniform(key, (1,), dtype, -1, 1)


class Helical(Joint):
    name, nq, nv, reads_pitch, coordinates = "helical", 1, 1, True, ("angle",)

    def pose(self, geometry, q):
        return rotation.from_axis_angle(geometry.axis, q[0]), ops.scale(geometry.pitch * q[0], geometry.axis)

    def axes(self, geometry, q):
        return ((geometry.axis, ops.scale(geometry.pitch, geometry.axis)),)


class Cylindrical(Joint):
    name, nq, nv, coordinates = "cylindrical", 2, 2, ("angle", "displacement")

    def pose(self, geometry, q):
        return rotation.from_axis_angle(geometry.axis, q[0]), ops.scale(q[1], geometry.axis)

    def axes(self, geometry, q):
        return (geometry.axis, None), (None, geometry.axis)

    def parts(self, axis, axis2):
        return ("continuous", axis), ("prismatic", axis)


class Universal(Joint):
    """Two crossing axes: the first fixed in the joint frame, the second in the child."""

    name, nq, nv, has_bias, angular_only, coordinates = "universal", 2, 2, True, True, ("angle 1", "angle 2")
    reads_axis2 = True

    def _first_axis(self, geometry, q):
        return ops.matvec_t(rotation.from_axis_angle(geometry.axis2, q[1]), geometry.axis)

    def pose(self, geometry, q):
        first = rotation.from_axis_angle(geometry.axis, q[0])
        return ops.matmul(first, rotation.from_axis_angle(geometry.axis2, q[1])), None

    def axes(self, geometry, q):
        return (self._first_axis(geometry, q), None), (geometry.axis2, None)

    def parts(self, axis, axis2):
        return ("continuous", axis), ("continuous", axis2)

    def drift(self, geometry, q, v):
        return ops.scale(v[0] * v[1], ops.cross(self._first_axis(geometry, q), geometry.axis2)), None


class Planar(Joint):
    """Motion in the plane normal to `axis`: q = (x, y, angle), x along `axis2`, rates in the joint frame."""

    name, nq, nv, coordinates = "planar", 3, 3, ("x", "y", "angle")
    reads_axis2, urdf = True, "planar"

    def _plane(self, geometry):
        along = ops.dot(geometry.axis2, geometry.axis)
        x = geometry.axis2 - ops.scale(along, geometry.axis)
        square = ops.dot(x, x)
        x = ops.scale(1 / ops.library(square).sqrt(square), x)
        return x, ops.cross(geometry.axis, x)

    def pose(self, geometry, q):
        x, y = self._plane(geometry)
        return rotation.from_axis_angle(geometry.axis, q[2]), ops.scale(q[0], x) + ops.scale(q[1], y)

    def axes(self, geometry, q):
        turn = rotation.from_axis_angle(geometry.axis, q[2])
        x, y = (ops.matvec_t(turn, e) for e in self._plane(geometry))
        return (None, x), (None, y), (geometry.axis, None)

    def parts(self, axis, axis2):
        x = axis2 - axis * (axis @ axis2)
        x = x / np.linalg.norm(x)
        return ("prismatic", x), ("prismatic", np.cross(axis, x)), ("continuous", axis)

    def random(self, key, dtype):
        return jax.random.uniform(key, (3,), dtype, -1, 1) * jnp.asarray([1, 1, jnp.pi], dtype)


class Spherical(Joint):
    """q = (w, x, y, z); v is the angular velocity in child axes."""

    name, nq, nv, angular_only, coordinates = "spherical", 4, 3, True, ("wx", "wy", "wz")
    reads_axis, rates_in_child_axes, quaternion, mujoco = False, True, slice(0, 4), 1

    def pose(self, geometry, q):
        return rotation.from_quaternion(q), None

    def axes(self, geometry, q):
        return tuple((e, None) for e in _unit_vectors(q))

    def neutral(self):
        return (1.0, 0.0, 0.0, 0.0)

    def random(self, key, dtype):
        return rotation.normalize(jax.random.normal(key, (4,), dtype))

    def integrate(self, q, dv):
        return rotation.normalize(rotation.multiply(q, rotation.exponential(dv)))

    def difference(self, q0, q1):
        return rotation.logarithm(rotation.multiply(rotation.conjugate(q0), q1))

    def normalize(self, q):
        return rotation.normalize(q)


def _unit_vectors(like) -> tuple:
    """The three coordinate axes in the type of `like`."""
    return tuple(ops.library(like).eye(3, dtype=like.dtype))


class Free(Joint):
    """q = (w, x, y, z, px, py, pz), position in the joint frame; v = (angular, linear) in child axes.

    `integrate` follows a constant body velocity exactly: it is the exponential of SE(3); `difference` its logarithm.
    """

    name, nq, nv, has_bias = "free", 7, 6, True
    coordinates = ("wx", "wy", "wz", "vx", "vy", "vz")
    reads_axis, rates_in_child_axes, quaternion, position = False, True, slice(0, 4), slice(4, 7)
    urdf, mujoco = "floating", 0
    _sphere = Spherical()

    def pose(self, geometry, q):
        return rotation.from_quaternion(q[:4]), q[4:]

    def axes(self, geometry, q):
        unit = _unit_vectors(q)
        return (*((e, None) for e in unit), *((None, e) for e in unit))

    def drift(self, geometry, q, v):
        return None, ops.cross(v[:3], v[3:])  # the linear axes turn with the child

    def neutral(self):
        return (1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)

    def random(self, key, dtype):
        turn, shift = jax.random.split(key)
        return jnp.concatenate([self._sphere.random(turn, dtype), jax.random.uniform(shift, (3,), dtype, -1, 1)])

    def integrate(self, q, dv):
        shift = ops.matvec(rotation.from_quaternion(q[:4]), rotation.screw_translation(dv[:3], dv[3:]))
        return jnp.concatenate([self._sphere.integrate(q[:4], dv[:3]), q[4:] + shift])

    def difference(self, q0, q1):
        turn = self._sphere.difference(q0[:4], q1[:4])
        shift = ops.matvec_t(rotation.from_quaternion(q0[:4]), q1[4:] - q0[4:])
        return jnp.concatenate([turn, rotation.screw_velocity(turn, shift)])

    def normalize(self, q):
        return jnp.concatenate([rotation.normalize(q[:4]), q[4:]])


class Fixed(Joint):
    """No freedom. `assemble` merges such links into their parents, so no sweep ever meets one."""

    name, nq, nv, coordinates, reads_axis, urdf = "fixed", 0, 0, (), False, "fixed"

    def pose(self, geometry, q):
        return None, None

    def axes(self, geometry, q):
        return ()


JOINT_KINDS: dict[str, Joint] = {
    joint.name: joint
    for joint in (
        Revolute(),
        Continuous(),
        Prismatic(),
        Helical(),
        Universal(),
        Cylindrical(),
        Planar(),
        Spherical(),
        Free(),
        Fixed(),
    )
}
