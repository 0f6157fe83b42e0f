"""The equations of motion of a grasp: what every method and the linearized model solve from.

JPL 88-11, Part II, (2.10) and with contact freedom (b.1), at a state of arms and object (`grasp`).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxsoa.closed_chain.algebra import motion_shift
from jaxsoa.closed_chain.grasp import GraspState, GraspSystem, RigidBody, along, check_pose, grasp_state
from jaxsoa.closed_chain.loops import check_prescribed
from jaxsoa.spatial import ops
from jaxsoa.spatial.inertia import rigid_inertia


class GraspProblem(NamedTuple):
    """Everything the methods solve from: one instance of (2.10) or, with contact freedom, (b.1)."""

    system: GraspSystem
    q: tuple[Array, ...]
    v: tuple[Array, ...]
    tau: tuple[Array, ...]
    f_ext: tuple
    state: GraspState
    A: Float[Array, "l 6 6"]  # phi*(C, O_i)
    centripetal: Float[Array, "l 6"]  # a(C)
    slip_bias: Float[Array, "l 6"]  # (H*)' W
    inertia: Float[Array, "6 6"]  # M(C)
    compliance: Float[Array, "6 6"]  # M(C)^-1
    bias: Float[Array, "6"]  # b(C), gravity included
    given: tuple  # accelerations of prescribed joints, per arm; None where nothing is
    prescribed: tuple  # bool (nv,) or None, per arm

    @property
    def jacobians(self) -> tuple[Array, ...]:
        return tuple(self.state.tips.jacobian)

    @property
    def free_object(self) -> Float[Array, "6"]:
        """The object's acceleration without arms."""
        return -self.compliance @ self.bias

    def free_gap(self, alpha: Float[Array, "l 6"]) -> Float[Array, "l 6"]:
        """alpha_f(0) + (H*)' W - a(C) + A M(C)^-1 b(C): how fast tips and object, all free, would part (4.9d, b.4)."""
        return alpha + self.slip_bias - self.centripetal - jnp.einsum("lij,j->li", self.A, self.free_object)


def object_inertia(body: RigidBody, R: Array) -> tuple[Array, Array]:
    """M(C) and its inverse about the origin of the object's frame, world axes."""
    inertia = (body.inertia + body.inertia.T) / 2
    spatial = rigid_inertia(R, body.mass, body.com, inertia).spatial().matrix()
    c = ops.matvec(R, body.com)
    zero = jnp.zeros((3, 3), spatial.dtype)
    one = jnp.eye(3, dtype=spatial.dtype)
    inverse = jax.scipy.linalg.solve(inertia, one, assume_a="pos")
    at_com = jnp.block([[R @ inverse @ R.T, zero], [zero, one / body.mass]])
    to_origin = motion_shift(-c)
    return spatial, to_origin @ at_com @ to_origin.T


def check_prescription(system: GraspSystem, a, prescribed) -> tuple[tuple, tuple]:
    """(accelerations, masks), each one per arm with None for arms of which nothing is prescribed."""
    none = (None,) * system.n_arms
    if prescribed is None:
        return none, none
    if isinstance(prescribed, jax.Array | np.ndarray) or len(prescribed) != system.n_arms:
        raise ValueError(f"prescribed must hold bool (nv,) or None per arm ({system.n_arms}), got {prescribed!r}.")
    masks = tuple(check_prescribed(arm.robot, m) for arm, m in zip(system.arms, prescribed, strict=True))
    given = tuple(jnp.zeros(arm.robot.nv, arm.robot.dtype) for arm in system.arms)
    given = given if a is None else system.check("a", a, "check_v")
    return tuple(None if m is None else x for x, m in zip(given, masks, strict=True)), masks


def grasp_problem(
    system: GraspSystem,
    q,
    v,
    tau,
    object_pose,
    *,
    contact_rates=None,
    object_velocity=None,
    f_ext=None,
    a=None,
    prescribed=None,
) -> GraspProblem:
    q, v = system.check("q", q, "check_q"), system.check("v", v, "check_v")
    tau = system.check("tau", tau, "check_v")
    if f_ext is None:
        f_ext = (None,) * system.n_arms
    elif len(f_ext) != system.n_arms:
        raise ValueError(f"f_ext must hold one array (n_links, 6) or None per arm ({system.n_arms}), got {len(f_ext)}.")
    f_ext = tuple(arm.robot.check_f_ext(f) for arm, f in zip(system.arms, f_ext, strict=True))
    given, prescribed = check_prescription(system, a, prescribed)
    state = grasp_state(system, q, v, object_pose, contact_rates=contact_rates, object_velocity=object_velocity)
    terms = grasp_terms(system, check_pose(system, object_pose)[0], state)
    return GraspProblem(system, q, v, tau, f_ext, state, *terms, given, prescribed)


class GraspTerms(NamedTuple):
    """What the object and the contacts add to the equations; as in `GraspProblem`."""

    A: Float[Array, "l 6 6"]
    centripetal: Float[Array, "l 6"]
    slip_bias: Float[Array, "l 6"]
    inertia: Float[Array, "6 6"]
    compliance: Float[Array, "6 6"]
    bias: Float[Array, "6"]


def grasp_terms(system: GraspSystem, R: Array, state: GraspState) -> GraspTerms:
    w = state.object_velocity[:3]
    body = system.body
    inertia, compliance = object_inertia(body, R)
    rigid = rigid_inertia(R, body.mass, body.com, (body.inertia + body.inertia.T) / 2)
    gyroscopic = jnp.concatenate(rigid.gyroscopic(w))
    weight = jnp.concatenate([ops.cross(rigid.first_moment, system.gravity), body.mass * system.gravity])
    swing = jax.vmap(lambda r: ops.cross(w, ops.cross(w, r)))(state.offsets)
    centripetal = jnp.concatenate([jnp.zeros_like(swing), swing], axis=1)
    slip = along(state.axes, state.contact_rates, swing.dtype)
    # Axes turn with the object; a sliding contact also feels the Coriolis acceleration, hence the factor 2.
    slip_bias = jax.vmap(lambda s: jnp.concatenate([ops.cross(w, s[:3]), 2 * ops.cross(w, s[3:])]))(slip)
    A = jax.vmap(motion_shift)(state.offsets)
    return GraspTerms(A, centripetal, slip_bias, inertia, compliance, gyroscopic - weight)
