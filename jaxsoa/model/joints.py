"""The joint kinds. Each is a class with the same few methods; algorithms never ask which kind they have.

A joint moves its child link's frame relative to the *joint frame*, which is fixed in the parent link. Per kind:

    transform(geometry, q) -> R, p      pose of the child frame in the joint frame
    subspace(geometry, q) -> (nv, 6)    rows H(k): the child's relative spatial velocity is H* v, child axes, child origin
    bias(geometry, q, v) -> (6,)        derivative of H* at fixed v, as seen from the joint frame, child axes
    integrate(q, dv) -> q               move by a tangent vector (exact for a constant velocity)
    difference(q0, q1) -> dv            its inverse

Spatial vectors are angular first. `geometry` holds the joint's differentiable parameters: a unit `axis`, a second
axis `axis2` (universal: second axis, fixed in the child; planar: the in-plane x direction) and a helical `pitch`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxsoa.spatial import ops, rotation


class JointGeometry(NamedTuple):
    axis: Float[Array, "3"]
    axis2: Float[Array, "3"]
    pitch: Float[Array, ""]


def _angular(*axes) -> Array:
    return jnp.stack([jnp.concatenate([a, jnp.zeros_like(a)]) for a in axes])


def _linear(*axes) -> Array:
    return jnp.stack([jnp.concatenate([jnp.zeros_like(a), a]) for a in axes])


class Joint:
    """Common behaviour: coordinates that add, no bias."""

    name: str
    nq: int
    nv: int
    translates: bool = True  # whether transform's p can differ from zero
    rotates: bool = True
    has_bias: bool = False
    # The letters of the coordinates, for people: what each entry of v is.
    coordinates: tuple[str, ...]

    def transform(self, geometry: JointGeometry, q) -> tuple[Array, Array]:
        raise NotImplementedError

    def subspace(self, geometry: JointGeometry, q) -> Array:
        raise NotImplementedError

    def bias(self, geometry: JointGeometry, q, v) -> Array:
        return jnp.zeros(6, v.dtype)

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


class Revolute(Joint):
    name, nq, nv, translates, coordinates = "revolute", 1, 1, False, ("angle",)

    def transform(self, geometry, q):
        return rotation.from_axis_angle(geometry.axis, q[0]), jnp.zeros_like(geometry.axis)

    def subspace(self, geometry, q):
        return _angular(geometry.axis)


class Continuous(Revolute):
    name = "continuous"


class Prismatic(Joint):
    name, nq, nv, rotates, coordinates = "prismatic", 1, 1, False, ("displacement",)

    def transform(self, geometry, q):
        return jnp.eye(3, dtype=q.dtype), geometry.axis * q[0]

    def subspace(self, geometry, q):
        return _linear(geometry.axis)

    def random(self, key, dtype):
        return jax.random.uniform(key, (1,), dtype, -1, 1)


class Helical(Joint):
    name, nq, nv, coordinates = "helical", 1, 1, ("angle",)

    def transform(self, geometry, q):
        return rotation.from_axis_angle(geometry.axis, q[0]), geometry.axis * (geometry.pitch * q[0])

    def subspace(self, geometry, q):
        return jnp.concatenate([geometry.axis, geometry.axis * geometry.pitch])[None]


class Cylindrical(Joint):
    name, nq, nv, coordinates = "cylindrical", 2, 2, ("angle", "displacement")

    def transform(self, geometry, q):
        return rotation.from_axis_angle(geometry.axis, q[0]), geometry.axis * q[1]

    def subspace(self, geometry, q):
        return jnp.concatenate([_angular(geometry.axis), _linear(geometry.axis)])


class Universal(Joint):
    """Two crossing axes: the first fixed in the joint frame, the second in the child."""

    name, nq, nv, translates, has_bias, coordinates = "universal", 2, 2, False, True, ("angle 1", "angle 2")

    def _first_axis(self, geometry, q):
        return ops.matvec_t(rotation.from_axis_angle(geometry.axis2, q[1]), geometry.axis)

    def transform(self, geometry, q):
        first = rotation.from_axis_angle(geometry.axis, q[0])
        return ops.matmul(first, rotation.from_axis_angle(geometry.axis2, q[1])), jnp.zeros_like(geometry.axis)

    def subspace(self, geometry, q):
        return _angular(self._first_axis(geometry, q), geometry.axis2)

    def bias(self, geometry, q, v):
        turning = ops.cross(self._first_axis(geometry, q), geometry.axis2) * (v[0] * v[1])
        return jnp.concatenate([turning, jnp.zeros_like(turning)])


class Planar(Joint):
    """Motion in the plane normal to `axis`: q = (x, y, angle), x along `axis2`, rates in the joint frame."""

    name, nq, nv, coordinates = "planar", 3, 3, ("x", "y", "angle")

    def _plane(self, geometry):
        x = geometry.axis2 - ops.dot(geometry.axis2, geometry.axis) * geometry.axis
        x = x / jnp.sqrt(ops.dot(x, x))
        return x, ops.cross(geometry.axis, x)

    def transform(self, geometry, q):
        x, y = self._plane(geometry)
        return rotation.from_axis_angle(geometry.axis, q[2]), x * q[0] + y * q[1]

    def subspace(self, geometry, q):
        turn = rotation.from_axis_angle(geometry.axis, q[2])
        x, y = (ops.matvec_t(turn, e) for e in self._plane(geometry))
        return jnp.concatenate([_linear(x, y), _angular(geometry.axis)])

    def random(self, key, dtype):
        return jax.random.uniform(key, (3,), dtype, -1, 1) * jnp.asarray([1, 1, jnp.pi], dtype)


class Spherical(Joint):
    """q = (w, x, y, z); v is the angular velocity in child axes."""

    name, nq, nv, translates, coordinates = "spherical", 4, 3, False, ("wx", "wy", "wz")

    def transform(self, geometry, q):
        return rotation.from_quaternion(q), jnp.zeros_like(geometry.axis)

    def subspace(self, geometry, q):
        return jnp.eye(3, 6, dtype=q.dtype)

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


class Free(Joint):
    """q = (w, x, y, z, px, py, pz), position in the joint frame; v = (angular, linear) in child axes.

    `integrate` follows a constant body velocity exactly: it is the exponential of SE(3), and `difference` its logarithm.
    """

    name, nq, nv, has_bias = "free", 7, 6, True
    coordinates = ("wx", "wy", "wz", "vx", "vy", "vz")
    _sphere = Spherical()

    def transform(self, geometry, q):
        return rotation.from_quaternion(q[:4]), q[4:]

    def subspace(self, geometry, q):
        return jnp.eye(6, dtype=q.dtype)

    def bias(self, geometry, q, v):
        # The linear axes turn with the child.
        return jnp.concatenate([jnp.zeros(3, v.dtype), ops.cross(v[:3], v[3:])])

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

    name, nq, nv, coordinates = "fixed", 0, 0, ()


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
