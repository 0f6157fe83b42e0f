"""What is asked of arrays that are given to a model: shape, type, sign, rotation. Methods of `Multibody` lead here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jaxtyping import Array

from jaxsoa.model.description import ModelError

if TYPE_CHECKING:
    from jaxsoa.model.multibody import Multibody


def check_q(robot: Multibody, q, name: str) -> Array:
    """q in the model's dtype, of the right shape, quaternions normalized; the message names nq and nv."""
    q = _check(robot, q, name, robot.nq, "configuration", "nq")
    check_rotations(robot, q, name)
    groups = [g for g in robot.topology.groups if g.joint.quaternion is not None]
    if sum(len(g.links) for g in groups) > 8:
        for g in groups:
            q = q.at[g.q_index].set(jax.vmap(g.joint.normalize)(q[g.q_index]))
        return q
    # A few quaternions (a floating base, say): slices joined again run faster in a batch than a scatter.
    pieces, end = [], 0
    for joint, where in zip(robot.topology.joints, robot.topology.q_slices, strict=True):
        if joint.quaternion is not None:
            pieces += [q[end : where.start], joint.normalize(q[where])]
            end = where.stop
    return jnp.concatenate([*pieces, q[end:]]) if pieces else q


def check_rotations(robot: Multibody, q, name: str) -> None:
    """Raise where q, an array whose values are known, holds a quaternion of zeros. Shapes are another check's."""
    if robot.nq == robot.nv or isinstance(q, Tracer) or getattr(q, "shape", None) != (robot.nq,):
        return
    for g in robot.topology.groups:
        where = g.joint.quaternion
        if where is not None and (np.asarray(q)[g.q_index[:, where]] == 0).all(axis=1).any():
            raise ValueError(f"{name} holds a quaternion of zeros, no rotation at all ({g.joint.name} joint).")


def check_v(robot: Multibody, v, name: str) -> Array:
    """v (nv,) as an array of the model's dtype; anything else raises, under the name given."""
    return _check(robot, v, name, robot.nv, "velocity-like vector", "nv")


def check_number(robot: Multibody, x, name: str):
    """One real number, a time step say; Python's own stay as they are, since they take any type."""
    if isinstance(x, int | float) and not isinstance(x, np.number):
        return x
    x = jnp.asarray(x)
    if x.shape != ():
        raise ValueError(f"{name} must be one number, got shape {x.shape}.")
    return convert(robot, x, name)


def convert(robot: Multibody, x, name: str) -> Array:
    """An array of any shape in the model's floating type."""
    if jax.dtypes.canonicalize_dtype(robot.dtype) != robot.dtype:
        raise TypeError(
            f"Robot {robot.name!r} is {robot.dtype}, which is not available while jax_enable_x64 is off: turn it on, "
            f"or take `robot.astype(jnp.float32)`."
        )
    x = jnp.asarray(x)
    if not any(jnp.issubdtype(x.dtype, kind) for kind in (jnp.floating, jnp.integer, jnp.bool_)):
        raise TypeError(f"{name} must hold real numbers, got {x.dtype}.")
    return as_float(x, robot.dtype)


def _check(robot: Multibody, x, name: str, size: int, what: str, size_name: str) -> Array:
    x = jnp.asarray(x)
    if x.shape != (size,):
        other = robot.nv if size_name == "nq" else robot.nq
        swapped = " Were q and v exchanged?" if x.shape == (other,) and other != size else ""
        batched = " Batch with jax.vmap." if x.ndim > 1 and x.shape[-1] == size else ""
        raise ValueError(
            f"{name} must be one {what} of shape ({size_name},) = ({size},) for robot {robot.name!r} "
            f"(nq={robot.nq}, nv={robot.nv}), got shape {x.shape}.{swapped}{batched}"
        )
    return convert(robot, x, name)


def check_f_ext(robot: Multibody, f_ext) -> Array | None:
    """f_ext (n_links, 6) or None."""
    if f_ext is None:
        return None
    if isinstance(f_ext, dict):
        raise TypeError(
            "f_ext is an array (n_links, 6), got a dict; soa.external_forces(robot, q, {frame: wrench}) makes one."
        )
    f_ext = jnp.asarray(f_ext)
    if f_ext.shape != (robot.n_links, 6):
        raise ValueError(
            f"f_ext must have shape (n_links, 6) = ({robot.n_links}, 6) for robot {robot.name!r}: moment then force "
            f"on each moving link, world axes, about the link's origin; got {f_ext.shape}."
        )
    return convert(robot, f_ext, "f_ext")


def check_values(robot: Multibody, key: str, value: Array) -> None:
    """Concrete values must be finite and of the right sign; inside jit nothing is checked."""
    if isinstance(value, Tracer):
        return
    bad = ~np.isfinite(value)
    what = "not finite"
    per_dof = ("armature", "damping", "friction", "stiffness")
    if not bad.any() and key in ("mass", "base_mass", *per_dof):
        bad, what = np.asarray(value) < 0, "negative"
    if bad.any():
        first = int(np.flatnonzero(bad)[0])
        at = ""
        if key == "mass":
            at = f" (link {robot.link_names[first]!r})"
        elif key in per_dof:
            at = f" (joint {robot.joint_names[robot.topology.dof_link[first]]!r})"
        raise ModelError(f"{key} of {robot.name!r} is {what} at {first}{at}: {np.asarray(value)}.")


def as_float(x: Array, dtype) -> Array:
    """x in the model's floating type, and not a weak one."""
    return lax.convert_element_type(x, dtype)
