"""Coordinates and spatial vectors of Pinocchio and MuJoCo, from and to ours.

    theirs = soa.convert.PinocchioMap(robot, pin_model)        # or MujocoMap(robot, mj_model)
    pin.aba(pin_model, data, theirs.q_to(q), theirs.v_to(v, q), theirs.tau_to(tau, q))

Joints are matched by name. Neither library is imported: a map only reads attributes of the model it is given. NumPy
arrays (and lists) in, NumPy out; JAX arrays in, JAX out, so every method may be jitted, mapped and differentiated.

| | here | Pinocchio | MuJoCo |
| --- | --- | --- | --- |
| quaternion | w, x, y, z | x, y, z, w | w, x, y, z |
| free joint, q | quaternion, position | position, quaternion | position, quaternion |
| free joint, v | angular, linear; body axes | linear, angular; body axes | linear in world axes, angular in body axes |
| continuous joint, q | angle | cosine, sine | angle |
| planar joint, q | x, y, angle | x, y, cosine, sine | none |
| planar joint, v | x and y rates in the joint's axes | linear rates in the body's axes | none |
| spatial vectors | angular, linear | linear, angular | varies |
"""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxsoa.io._mujoco import joint_names
from jaxsoa.model.joints import JOINT_KINDS
from jaxsoa.model.multibody import Multibody
from jaxsoa.spatial.rotation import from_quaternion

__all__ = [
    "CoordinateMap",
    "MujocoMap",
    "PinocchioMap",
    "angular_first",
    "force_at",
    "linear_first",
    "local_to_world",
    "motion_at",
    "world_to_local",
]

# Spatial vectors -------------------------------------------------------------------------------------------------


def linear_first(x, axis: int = 0) -> Any:
    """(angular, linear) to (linear, angular) along an axis of length six: vectors, rows of Jacobians (6, nv).

    >>> print(soa.convert.linear_first(np.arange(6)))
    [3. 4. 5. 0. 1. 2.]
    """
    xp, (x,) = _arrays(x)
    if x.ndim == 0 or not -x.ndim <= axis < x.ndim or x.shape[axis] != 6:
        raise ValueError(f"x must have length 6 along axis {axis}, got shape {x.shape}.")
    return xp.roll(x, 3, axis)


def angular_first(x, axis: int = 0) -> Any:
    """(linear, angular) to (angular, linear): its own inverse is `linear_first`.

    >>> print(soa.convert.angular_first(np.array([3, 4, 5, 0, 1, 2])))
    [0. 1. 2. 3. 4. 5.]
    """
    return linear_first(x, axis)


def world_to_local(x, rotation) -> Any:
    """Spatial vectors (6,) or (6, n) in world axes to those of a frame with the given rotation (3, 3); same point.

    >>> R, _ = soa.frame_pose(robot, q, "tip")
    >>> twist = soa.jacobian(robot, q, "tip") @ v
    >>> print(jnp.allclose(soa.convert.local_to_world(soa.convert.world_to_local(twist, R), R), twist))
    True
    """
    xp, (x, rotation) = _arrays(x, rotation)
    _check_spatial(x, rotation)
    return xp.concatenate([rotation.T @ x[:3], rotation.T @ x[3:]])


def local_to_world(x, rotation) -> Any:
    """Spatial vectors (6,) or (6, n) in the axes of a frame to world axes: the inverse of `world_to_local`.

    >>> quarter_turn = np.array([[0.0, -1, 0], [1, 0, 0], [0, 0, 1]])  # about z
    >>> print(soa.convert.local_to_world(np.array([0, 0, 0, 1.0, 0, 0]), quarter_turn))
    [0. 0. 0. 0. 1. 0.]
    """
    xp, (x, rotation) = _arrays(x, rotation)
    _check_spatial(x, rotation)
    return xp.concatenate([rotation @ x[:3], rotation @ x[3:]])


def motion_at(x, offset) -> Any:
    """Velocities or Jacobians (6,) or (6, n), angular first, of the point of the same body at `offset` (3,) from here.

    With `offset` = -position of the frame this is the velocity of the point at the world's origin, which is what
    Pinocchio calls the reference frame WORLD; LOCAL_WORLD_ALIGNED is `linear_first` alone, LOCAL `world_to_local` too.

    >>> spin = np.array([0, 0, 2.0, 0, 0, 0])  # 2 rad/s about z through the point of reference
    >>> print(soa.convert.motion_at(spin, np.array([1.0, 0, 0])))  # 1 m beside it: 2 m/s along y
    [0. 0. 2. 0. 2. 0.]
    """
    xp, (x, offset) = _arrays(x, offset)
    _check_spatial(x, offset=offset)
    return xp.concatenate([x[:3], x[3:] + xp.cross(x[:3], offset, axisa=0, axisb=0, axisc=0)])


def force_at(x, offset) -> Any:
    """Forces (6,) or (6, n), moment first, taken about the point at `offset` (3,) from here instead.

    `xfrc_applied` of MuJoCo is `linear_first(force_at(f, xipos - position))` of our `f_ext`.

    >>> push = np.array([0, 0, 0, 0, 3.0, 0])  # 3 N along y
    >>> print(soa.convert.force_at(push, np.array([1.0, 0, 0])))  # its moment about a point 1 m beside
    [ 0.  0. -3.  0.  3.  0.]
    """
    xp, (x, offset) = _arrays(x, offset)
    _check_spatial(x, offset=offset)
    return xp.concatenate([x[:3] + xp.cross(x[3:], offset, axisa=0, axisb=0, axisc=0), x[3:]])


def _check_spatial(x, rotation=None, offset=None) -> None:
    if x.ndim not in (1, 2) or x.shape[0] != 6:
        raise ValueError(f"x must be a spatial vector (6,) or columns (6, n), got shape {x.shape}.")
    if rotation is not None and rotation.shape != (3, 3):
        raise ValueError(f"rotation must be (3, 3), got shape {rotation.shape}.")
    if offset is not None and offset.shape != (3,):
        raise ValueError(f"offset must be (3,), got shape {offset.shape}.")


# Joint coordinates -----------------------------------------------------------------------------------------------


class _Turn(NamedTuple):
    """Linear rates that the two libraries see from different axes: entries of our q and v, and of their v."""

    by: str  # "quaternion": theirs = R(q) ours; "angle": theirs = R(angle)^T ours
    q: slice
    ours: slice
    theirs: slice
    spin: slice  # the angular rates, in ours


class CoordinateMap:
    """Coordinates of one robot here and in another library.

    Velocities are related by theirs = T(q) ours, with T orthogonal (a permutation, but for rates seen from other axes),
    so torques transform with T as well, and accelerations with T and the drift T'(q) v. q and v are always ours.
    """

    robot: Multibody
    nq: int  # theirs
    nv: int  # theirs

    def __init__(self, robot: Multibody, library: str, nq: int, nv: int):
        self.robot, self._library, self.nq, self.nv = robot, library, int(nq), int(nv)
        if self.nv != robot.nv:
            raise ValueError(
                f"The model of {library} has nv = {nv}, but robot {robot.name!r} has nv = {robot.nv}: not the same."
            )
        # Both ways q is one gather: from q itself, and behind it what must be computed from it.
        self._angles = np.zeros(0, int)  # entries of our q that are (cosine, sine) there
        self._to = np.full(self.nq, -1)  # entry of [q, cos, sin] that each of theirs is
        self._from = np.full(robot.nq, -1)  # entry of [theirs, angles] that each of ours is
        self._permutation = np.zeros((self.nv, robot.nv))
        self._turns: list[_Turn] = []

    def _tie_q(self, ours: slice, theirs: list[int]) -> None:
        """Our entries are the ones of theirs that are listed."""
        self._to[theirs] = np.arange(ours.start, ours.stop)
        self._from[ours] = theirs

    def _tie_angle(self, ours: int, cosine: int) -> None:
        """One angle of ours is a cosine and a sine there, at `cosine` and behind it."""
        number = len(self._angles)
        self._angles = np.append(self._angles, ours)
        # Which angles there are is known at the end: until then they are counted downward from -2.
        self._to[cosine], self._to[cosine + 1] = -2 - 2 * number, -3 - 2 * number
        self._from[ours] = -2 - number

    def _tie_v(self, ours: slice, theirs: list[int]) -> None:
        self._permutation[theirs, np.arange(ours.start, ours.stop)] = 1

    def _finish(self) -> None:
        """Resolve the angles, now that all are known."""
        n, a = self.robot.nq, len(self._angles)
        cosines = {-2 - 2 * k: n + k for k in range(a)} | {-3 - 2 * k: n + a + k for k in range(a)}
        self._cosines = np.array([np.flatnonzero(self._to == -2 - 2 * k)[0] for k in range(a)], int)
        self._to = np.array([cosines.get(k, k) for k in self._to.tolist()])
        self._from = np.array([self.nq - 2 - k if k < -1 else k for k in self._from.tolist()])
        if (self._to < 0).any() or (self._from < 0).any():
            raise ValueError(f"Coordinates of the {self._library} model belong to no joint of {self.robot.name!r}.")

    # --- positions ---------------------------------------------------------------------------------------------

    def q_to(self, q):
        """Our q (nq,) in the other library's coordinates."""
        xp, (q,) = self._checked(q=(q, self.robot.nq))
        angles = q[self._angles]
        return xp.concatenate([q, xp.cos(angles), xp.sin(angles)])[self._to]

    def q_from(self, theirs):
        """Their q in ours; angles given by cosine and sine come back between -pi and pi."""
        xp, (x,) = self._checked(q=(theirs, self.nq))
        return xp.concatenate([x, xp.arctan2(x[self._cosines + 1], x[self._cosines])])[self._from]

    # --- velocities, accelerations, torques ----------------------------------------------------------------------

    def velocity_matrix(self, q):
        """T (nv, nv), orthogonal: their velocity is T times ours. Their mass matrix is T M T*."""
        xp, (q,) = self._checked(q=(q, self.robot.nq))
        T = xp.asarray(self._permutation, q.dtype)
        for turn in self._turns:
            where = (turn.theirs, turn.ours)
            if xp is np:
                T = T.copy()
                T[where] = self._block(xp, turn, q)
            else:
                T = T.at[where].set(self._block(xp, turn, q))
        return T

    @staticmethod
    def _block(xp: ModuleType, turn: _Turn, q):
        if turn.by == "quaternion":
            quaternion = q[turn.q][:4]
            return xp.asarray(from_quaternion(tuple(quaternion / xp.sqrt(xp.sum(quaternion * quaternion)))))
        c, s = xp.cos(q[turn.q.stop - 1]), xp.sin(q[turn.q.stop - 1])
        return xp.stack([xp.stack([c, s]), xp.stack([-s, c])])

    def _drift(self, xp: ModuleType, q, v):
        """T'(q) v."""
        drift = xp.zeros(self.nv, v.dtype)
        for turn in self._turns:
            block, rate, spin = self._block(xp, turn, q), v[turn.ours], v[turn.spin]
            if turn.by == "quaternion":
                value = block @ xp.cross(spin, rate)
            else:
                moved = block @ rate
                value = spin[0] * xp.stack([moved[1], -moved[0]])
            if xp is np:
                drift[turn.theirs] = value
            else:
                drift = drift.at[turn.theirs].set(value)
        return drift

    def v_to(self, v, q):
        """Our velocity (nv,) at our q, in theirs."""
        _, (v, q) = self._checked(v=(v, self.robot.nv), q=(q, self.robot.nq))
        return self.velocity_matrix(q) @ v

    def v_from(self, theirs, q):
        """Their velocity, at our q, in ours."""
        _, (x, q) = self._checked(v=(theirs, self.nv), q=(q, self.robot.nq))
        return self.velocity_matrix(q).T @ x

    def a_to(self, a, q, v):
        """Our acceleration at our (q, v): the rate of their velocity, T a + T'(q) v."""
        xp, (a, q, v) = self._checked(a=(a, self.nv), q=(q, self.robot.nq), v=(v, self.nv))
        return self.velocity_matrix(q) @ a + self._drift(xp, q, v)

    def a_from(self, theirs, q, v):
        """The rate of their velocity at our (q, v): our acceleration."""
        xp, (x, q, v) = self._checked(a=(theirs, self.nv), q=(q, self.robot.nq), v=(v, self.nv))
        return self.velocity_matrix(q).T @ (x - self._drift(xp, q, v))

    def tau_to(self, tau, q):
        """Joint torques, ours to theirs: the same power."""
        _, (tau, q) = self._checked(tau=(tau, self.nv), q=(q, self.robot.nq))
        return self.velocity_matrix(q) @ tau

    def tau_from(self, theirs, q):
        """Joint torques, theirs to ours."""
        _, (x, q) = self._checked(tau=(theirs, self.nv), q=(q, self.robot.nq))
        return self.velocity_matrix(q).T @ x

    def _checked(self, **vectors: tuple[Any, int]) -> tuple[ModuleType, list]:
        xp, arrays = _arrays(*(x for x, _ in vectors.values()))
        for (name, (_, size)), x in zip(vectors.items(), arrays, strict=True):
            if x.shape != (size,):
                raise ValueError(f"{name} must have shape ({size},) for robot {self.robot.name!r}, got {x.shape}.")
        return xp, arrays


class PinocchioMap(CoordinateMap):
    """Coordinates of a `pinocchio.Model` of the same robot.

    `names` maps our joint names to theirs where they differ; `floating_base` is taken to be `root_joint`, which is what
    `buildModelFromUrdf(path, pin.JointModelFreeFlyer())` calls it. A planar joint must be in its xy plane, which is the
    only one that Pinocchio has.
    """

    def __init__(self, robot: Multibody, model: Any, names: Mapping[str, str] | None = None):
        super().__init__(robot, "Pinocchio", model.nq, model.nv)
        names = dict(names or {})
        if not model.existJointName("floating_base") and model.existJointName("root_joint"):
            names.setdefault("floating_base", "root_joint")
        for link, (name, kind) in enumerate(zip(robot.joint_names, robot.topology.kinds, strict=True)):
            theirs = names.get(name, name)
            if not model.existJointName(theirs):
                raise ValueError(f"The Pinocchio model has no joint {theirs!r}; pass names={{{name!r}: ...}}.")
            joint = model.joints[model.getJointId(theirs)]
            own = robot.topology.joints[link]
            cos_sin = joint.nq == own.nq + 1 and own.coordinates[-1] == "angle"
            if joint.nv != own.nv or not (joint.nq == own.nq or cos_sin):
                raise ValueError(f"Joint {name!r} is {kind} here and {joint.shortname()} in Pinocchio.")
            q, v = robot.q_index(name), robot.v_index(name)
            at, rates = joint.idx_q, list(range(joint.idx_v, joint.idx_v + joint.nv))
            if own.position is not None:
                self._tie_q(q, [at + k for k in (6, 3, 4, 5, 0, 1, 2)])
                self._tie_v(v, rates[3:] + rates[:3])
            elif own.quaternion is not None:
                self._tie_q(q, [at + k for k in (3, 0, 1, 2)])
                self._tie_v(v, rates)
            elif own.nv == 3:
                if not np.allclose([robot.axis[link], robot.axis2[link]], [[0, 0, 1], [1, 0, 0]], atol=1e-6):
                    raise ValueError(f"Planar joint {name!r} is not in its xy plane, which Pinocchio requires.")
                self._tie_q(slice(q.start, q.start + 2), [at, at + 1])
                self._tie_angle(q.stop - 1, at + 2)
                self._tie_v(slice(v.stop - 1, v.stop), rates[2:])
                linear, spin = slice(v.start, v.start + 2), slice(v.stop - 1, v.stop)
                self._turns.append(_Turn("angle", q, linear, slice(rates[0], rates[0] + 2), spin))
            elif cos_sin:
                self._tie_angle(q.start, at)
                self._tie_v(v, rates)
            else:
                self._tie_q(q, list(range(at, at + joint.nq)))
                self._tie_v(v, rates)
        self._finish()


class MujocoMap(CoordinateMap):
    """Coordinates of a `mujoco.MjModel` of the same robot, such as the one `load_mjcf` read.

    `names` maps our joint names to theirs where they differ.
    """

    def __init__(self, robot: Multibody, model: Any, names: Mapping[str, str] | None = None):
        super().__init__(robot, "MuJoCo", model.nq, model.nv)
        numbers = {name: k for k, name in enumerate(joint_names(model))}
        for name, kind in zip(robot.joint_names, robot.topology.kinds, strict=True):
            theirs = (names or {}).get(name, name)
            if theirs not in numbers:
                raise ValueError(f"The MuJoCo model has no joint {theirs!r}; pass names={{{name!r}: ...}}.")
            number = numbers[theirs]
            like = [
                k for k, joint in JOINT_KINDS.items() if JOINT_KINDS[joint.motion].mujoco == int(model.jnt_type[number])
            ]
            if kind not in like:
                raise ValueError(f"Joint {name!r} is {kind} here and {' or '.join(like)} in MuJoCo.")
            q, v = robot.q_index(name), robot.v_index(name)
            at, rates = int(model.jnt_qposadr[number]), int(model.jnt_dofadr[number])
            if JOINT_KINDS[kind].position is not None:
                self._tie_q(q, [at + k for k in (3, 4, 5, 6, 0, 1, 2)])
                self._tie_v(slice(v.start, v.start + 3), [rates + 3, rates + 4, rates + 5])
                spin, linear = slice(v.start, v.start + 3), slice(v.start + 3, v.stop)
                self._turns.append(_Turn("quaternion", q, linear, slice(rates, rates + 3), spin))
            else:
                self._tie_q(q, list(range(at, at + q.stop - q.start)))
                self._tie_v(v, list(range(rates, rates + v.stop - v.start)))
        self._finish()


def _arrays(*values) -> tuple[ModuleType, list]:
    """The values as floating-point arrays of JAX if one of them is, else of NumPy."""
    if any(isinstance(x, jax.Array) for x in values):
        arrays: list = [jnp.asarray(x) for x in values]
        return jnp, [x if jnp.issubdtype(x.dtype, jnp.floating) else x.astype(float) for x in arrays]
    arrays = [np.asarray(x) for x in values]
    return np, [x if np.issubdtype(x.dtype, np.floating) else x.astype(float) for x in arrays]
