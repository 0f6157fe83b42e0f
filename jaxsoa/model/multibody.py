"""`Multibody`: a robot as a pytree. Everything physical is a leaf, everything structural is static."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from jaxsoa.eager import compiled
from jaxsoa.indexing import owned, take_rows
from jaxsoa.model import checks
from jaxsoa.model.joints import Joint, JointGeometry
from jaxsoa.model.topology import JointGroup, Topology


class Limits(eqx.Module):
    """Joint limits as the model file gives them; infinite where it gives none. No dynamics function uses them."""

    lower: Float[Array, " nv"]
    upper: Float[Array, " nv"]
    velocity: Float[Array, " nv"]
    effort: Float[Array, " nv"]


class RestSprings(eqx.Module):
    """Springs in the joints: a stiffness per degree of freedom, and the configuration in which none pulls."""

    stiffness: Float[Array, " nv"]
    rest: Float[Array, " nq"]


class Multibody(eqx.Module):
    """A tree of rigid links. Build one with `load_urdf`, `Builder`, `from_arrays` or take one of `models`.

    Rows of the link arrays are the moving links in `link_names` order (base to tip, parents before children).
    """

    topology: Topology = eqx.field(static=True)
    # Joint frame in the parent link's frame.
    joint_rotation: Float[Array, "n 3 3"]
    joint_position: Float[Array, "n 3"]
    # Joint geometry in the joint frame; normalized where it is used, so an optimizer may move it freely.
    axis: Float[Array, "n 3"]
    axis2: Float[Array, "n 3"]
    pitch: Float[Array, " n"]
    # Inertia: mass, centre of mass in link axes, inertia about the centre of mass in link axes.
    mass: Float[Array, " n"]
    com: Float[Array, "n 3"]
    inertia: Float[Array, "n 3 3"]
    # What acts in the joints, per degree of freedom.
    armature: Float[Array, " nv"]
    damping: Float[Array, " nv"]
    friction: Float[Array, " nv"]
    friction_velocity: Float[Array, ""]
    limits: Limits
    # Surroundings.
    gravity: Float[Array, "3"]
    base_rotation: Float[Array, "3 3"]
    base_position: Float[Array, "3"]
    # Frames fixed to links (or to the base), row by row of `frame_names`.
    frame_rotation: Float[Array, "f 3 3"]
    frame_position: Float[Array, "f 3"]
    # What is fixed to the base, base axes: at rest in every function here; it moves once `merge` mounts the robot.
    base_mass: Float[Array, ""]
    base_com: Float[Array, "3"]
    base_inertia: Float[Array, "3 3"]
    # Springs of the joints; None, which costs nothing, where no joint has one. See `stiffness` and `rest`.
    springs: RestSprings | None = None

    # --- sizes and names ---------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The robot's name, as its file gives it."""
        return self.topology.name

    @property
    def nq(self) -> int:
        """Length of a configuration q."""
        return self.topology.nq

    @property
    def nv(self) -> int:
        """Length of a velocity v: the degrees of freedom."""
        return self.topology.nv

    @property
    def n_links(self) -> int:
        """Number of moving links, one per non-fixed joint."""
        return self.topology.n_links

    @property
    def link_names(self) -> tuple[str, ...]:
        """The moving links, one per joint that is not fixed; parents before children."""
        return self.topology.link_names

    @property
    def joint_names(self) -> tuple[str, ...]:
        """The joints that move, each that of the link of the same number."""
        return self.topology.joint_names

    @property
    def frame_names(self) -> tuple[str, ...]:
        """Every link of the file, the root and those on fixed joints included, and extra frames."""
        return self.topology.frame_names

    @property
    def dtype(self):
        """That of every array of the model."""
        return self.mass.dtype

    @property
    def stiffness(self) -> Float[Array, " nv"]:
        """Stiffness of the springs in the joints, per degree of freedom; `replace(stiffness=...)` sets it."""
        return jnp.zeros(self.nv, self.dtype) if self.springs is None else self.springs.stiffness

    @property
    def rest(self) -> Float[Array, " nq"]:
        """The configuration in which no spring pulls; `replace(rest=...)` sets it."""
        return self.neutral() if self.springs is None else self.springs.rest

    def q_index(self, joint: str) -> slice:
        """Where a joint's coordinates stand in q."""
        return self.topology.q_slices[self.topology.joint_number(joint)]

    def v_index(self, joint: str) -> slice:
        """Where a joint's velocities stand in v (and accelerations, torques)."""
        return self.topology.v_slices[self.topology.joint_number(joint)]

    def __repr__(self) -> str:
        frames = len(self.frame_names)
        return f"Multibody({self.name!r}: {self.n_links} links, nq={self.nq}, nv={self.nv}, {frames} frames)"

    # --- configurations ----------------------------------------------------------------------------------------

    def neutral(self) -> Float[Array, " nq"]:
        """Zero for every coordinate, the identity for every quaternion."""
        values = [x for joint in self.topology.joints for x in joint.neutral()]
        return jnp.asarray(values, self.dtype)

    def random(self, key: Array) -> Float[Array, " nq"]:
        """A random configuration: uniform angles and displacements (inside finite limits), uniform rotations."""
        if isinstance(key, int):
            key = jax.random.key(key)
        keys = jax.random.split(key, self.n_links)
        parts = []
        for joint, dofs, k in zip(self.topology.joints, self.topology.v_slices, keys, strict=True):
            q = joint.random(k, self.dtype)
            if joint.nq == joint.nv:
                low, high = self.limits.lower[dofs], self.limits.upper[dofs]
                limited = jnp.isfinite(low) & jnp.isfinite(high)
                inside = jax.random.uniform(jax.random.fold_in(k, 1), q.shape, self.dtype)
                q = jnp.where(limited, jnp.where(limited, low, 0) + inside * jnp.where(limited, high - low, 1), q)
            parts.append(q)
        return jnp.concatenate(parts)

    @compiled
    def integrate(self, q: Shaped[Array, " nq"], dv: Shaped[Array, " nv"]) -> Float[Array, " nq"]:
        """Move q by the tangent vector dv (a velocity times a time): exact for constant joint velocities."""
        q, dv = self.check_q(q), self.check_v(dv, "dv")
        parts = [(lambda q, dv, joint=g.joint: joint.integrate(q, dv)) for g in self.topology.groups]
        moved = [
            jax.vmap(f)(take_rows(q, g.q_index), take_rows(dv, g.v_index))
            for f, g in zip(parts, self.topology.groups, strict=True)
        ]
        return self._join_q(moved)

    @compiled
    def difference(self, q0: Shaped[Array, " nq"], q1: Shaped[Array, " nq"]) -> Float[Array, " nv"]:
        """The tangent vector that moves q0 to q1: `integrate(q0, difference(q0, q1))` is q1."""
        q0, q1 = self.check_q(q0, "q0"), self.check_q(q1, "q1")
        parts = [jax.vmap(g.joint.difference)(q0[g.q_index], q1[g.q_index]) for g in self.topology.groups]
        return self.join_dofs(parts)

    def normalize(self, q: Shaped[Array, " nq"]) -> Float[Array, " nq"]:
        """q with unit quaternions."""
        return self.check_q(q)

    def _join_q(self, parts: list[Array]) -> Array:
        flat = jnp.concatenate([part.reshape(-1) for part in parts])
        index = np.concatenate([g.q_index.ravel() for g in self.topology.groups])
        return take_rows(flat, np.argsort(index))

    # --- arrays by kind of joint, joined in the order of links or of degrees of freedom -------------------------

    def geometry(self, group: JointGroup) -> JointGeometry:
        """The differentiable geometry of a group's joints, axes normalized, stacked."""

        def unit(axis: Array) -> Array:
            x, y, z = (axis[:, i : i + 1] for i in range(3))  # spelled out, it fuses and fits into a kernel
            return axis / jnp.sqrt(x * x + y * y + z * z)

        links = group.links
        axis, axis2, pitch = (take_rows(x, links) for x in (self.axis, self.axis2, self.pitch))
        return JointGeometry(unit(axis), unit(axis2), pitch)

    def join_links(self, parts: list[Array]) -> Array:
        """Per-group arrays (n, ...) to one array in link order."""
        return take_rows(jnp.concatenate(parts) if len(parts) > 1 else parts[0], self.topology.link_order)

    def join_dofs(self, parts: list[Array]) -> Array:
        """Per-group arrays (n, nv of the kind, ...) to one array in the order of v."""
        flat = [part.reshape(-1, *part.shape[2:]) for part in parts]
        return take_rows(jnp.concatenate(flat) if len(flat) > 1 else flat[0], self.topology.dof_order)

    # --- changed copies ----------------------------------------------------------------------------------------

    def replace(self, **leaves) -> Multibody:
        """A copy with some leaves replaced (shapes are checked)."""
        known = {f.name for f in dataclasses.fields(self)} - {"topology", "springs"} | {"stiffness", "rest"}
        arrays = {}
        for key, value in leaves.items():
            if key not in known:
                raise TypeError(f"Multibody has no leaf {key!r}; it has {', '.join(sorted(known))}.")
            old = getattr(self, key)
            if key == "limits":
                arrays[key] = value
                continue
            value = jnp.asarray(owned(value), self.dtype)
            if value.shape != old.shape:
                raise ValueError(f"{key} of {self.name!r} has shape {old.shape}, got {value.shape}.")
            checks.check_values(self, key, value)
            arrays[key] = value
        if "stiffness" in arrays or "rest" in arrays:
            pair = [arrays.pop(name) if name in arrays else getattr(self, name) for name in ("stiffness", "rest")]
            return self.with_springs(RestSprings(*pair)).replace(**arrays)
        names = tuple(arrays)
        return eqx.tree_at(lambda m: [getattr(m, n) for n in names], self, [arrays[n] for n in names])

    def with_springs(self, springs: RestSprings | None) -> Multibody:
        """The same model with these springs in its joints, or (None) without any."""
        leaves = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return Multibody(**{**leaves, "springs": springs})

    def frictionless(self) -> Multibody:
        """The same model without damping and Coulomb friction (armature and springs stay)."""
        return self.replace(damping=jnp.zeros_like(self.damping), friction=jnp.zeros_like(self.friction))

    def with_base(self, rotation: Array, position: Array) -> Multibody:
        """The same model with its base placed at (rotation, position) in the world."""
        return self.replace(base_rotation=rotation, base_position=position)

    def with_gravity(self, gravity: Array) -> Multibody:
        """The same robot in another gravity (3,), world axes."""
        return self.replace(gravity=gravity)

    # What follows is written in `model.edit`, which knows this class.

    def with_payload(self, frame: str, mass, com=(0.0, 0.0, 0.0), inertia=None) -> Multibody:
        """The robot with a rigid body fixed to a frame: inertia (3, 3) about `com` (3,), both in the frame's axes."""
        from jaxsoa.model import edit

        return edit.with_payload(self, frame, mass, com, inertia)

    def with_frame(self, name: str, parent: str, rotation=None, position=(0.0, 0.0, 0.0)) -> Multibody:
        """The robot with one more frame, placed by `rotation` and `position` in the frame `parent`."""
        from jaxsoa.model import edit

        return edit.with_frame(self, name, parent, rotation, position)

    def lock(self, joints: Sequence[str] | str, q: Shaped[Array, " nq"] | None = None) -> Multibody:
        """The reduced robot whose named joints stay as they are in q (default: neutral), inertias folded in."""
        from jaxsoa.model import edit

        return edit.lock(self, joints, q)

    def subtree(self, root: str, tips: Sequence[str] | str | None = None) -> Multibody:
        """What hangs on the link that carries the frame `root`, on that link as a base; only as far as `tips`."""
        from jaxsoa.model import edit

        return edit.subtree(self, root, tips)

    def rename(self, names: Mapping[str, str] | None = None, *, prefix: str = "", name: str | None = None) -> Multibody:
        """The robot with joints, links and frames under new names, all with a prefix, itself under a new name."""
        from jaxsoa.model import edit

        return edit.rename(self, names, prefix=prefix, name=name)

    # --- values by joint name ----------------------------------------------------------------------------------

    def q_from(self, values: Mapping[str, Any], q: Shaped[Array, " nq"] | None = None) -> Float[Array, " nq"]:
        """A configuration from values by joint name; other joints are as in q (default neutral), mimics follow."""
        from jaxsoa.model import by_name

        return by_name.q_from(self, values, q)

    def describe(self, q: Shaped[Array, " nq"]) -> dict[str, Any]:
        """q by joint name: a number, or an array where a joint has several. `q_from` is its inverse."""
        from jaxsoa.model import by_name

        return by_name.describe(self, q)

    def joint_limits(self, joint: str) -> Limits:
        """Position, velocity and effort limits of one joint, by its name; a number each where it has one degree."""
        from jaxsoa.model import by_name

        return by_name.joint_limits(self, joint)

    def table(self):
        """Joints, kinds, places in q and v, limits and masses, as text or (in a notebook) as HTML."""
        from jaxsoa.model import by_name

        return by_name.table(self)

    def astype(self, dtype) -> Multibody:
        """The same model in another floating-point type.

        Asking for float64 while `jax_enable_x64` is off gives float32 and one warning.
        """
        available = jax.dtypes.canonicalize_dtype(dtype)
        if available != jnp.dtype(dtype):
            message = f"{jnp.dtype(dtype)} is not available while jax_enable_x64 is off; the model stays {available}."
            warnings.warn(message, UserWarning, stacklevel=2)
        return jax.tree.map(lambda leaf: jnp.asarray(leaf, available), self)

    # --- checks, at trace time ----------------------------------------------------------------------------------
    # One rule for types: the model's floating type is that of every computation and of every result. Whatever else is
    # given (lists, integers, weak or strong types, more or less precise ones; states, torques, forces, time steps, what
    # controllers answer) is converted to it here. To compute in another type, convert the model: `robot.astype(...)`.

    def check_q(self, q, name: str = "q") -> Array:
        """q in the model's dtype, of the right shape, quaternions normalized; the message names nq and nv."""
        return checks.check_q(self, q, name)

    def check_rotations(self, q, name: str = "q") -> None:
        """Raise where q, an array whose values are known, holds a quaternion of zeros. Shapes are another check's."""
        checks.check_rotations(self, q, name)

    def check_v(self, v, name: str = "v") -> Array:
        """v (nv,) as an array of the model's dtype; anything else raises, under the name given."""
        return checks.check_v(self, v, name)

    def check_number(self, x, name: str = "dt"):
        """One real number, a time step say; Python's own stay as they are, since they take any type."""
        return checks.check_number(self, x, name)

    def convert(self, x, name: str) -> Array:
        """An array of any shape in the model's floating type."""
        return checks.convert(self, x, name)

    def check_f_ext(self, f_ext) -> Array | None:
        """f_ext (n_links, 6) or None."""
        return checks.check_f_ext(self, f_ext)

    def joint_of(self, link: int) -> Joint:
        """The kind of joint that moves a link, by the link's number."""
        return self.topology.joints[link]
