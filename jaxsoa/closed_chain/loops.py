"""Trees with loops: the rows of their constraints, and how the tree answers to forces at its cuts.

J v = 0 says that the cut points have no relative velocity along held directions; Y = M^-1 J* are the accelerations
that unit forces at the cuts give, Omega = J Y what the cuts feel of them. M^-1 is applied by the innovations factors of
one forward dynamics: O(n) sweeps that carry one column per constraint row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Shaped

from jaxsoa.closed_chain.algebra import PseudoInverse, is_concrete, motion_shift, pseudo_inverse, turned
from jaxsoa.closed_chain.constraints import Constraint, Coupling, Distance, Loop, Relative
from jaxsoa.closed_chain.frames import MovingFrame, moving_frames
from jaxsoa.dynamics.articulated import Factors
from jaxsoa.dynamics.kinematics import shift_acceleration
from jaxsoa.dynamics.motion import differentiable_solve, solve_motion
from jaxsoa.eager import compiled
from jaxsoa.model.description import ModelError
from jaxsoa.model.multibody import Multibody
from jaxsoa.spatial import ops


class LoopRows(NamedTuple):
    """All constraints stacked: six rows per loop or distance (in a's axes), then one per coupling.

    J v is the relative rate along held directions, J a + bias its derivative, `error` the position error.
    """

    jacobian: Float[Array, "m nv"]
    bias: Float[Array, " m"]
    error: Float[Array, " m"]
    to_world: Float[Array, "loops 6 6"]  # turns a loop's six rows into a wrench on b, world axes


def check_loops(robot: Multibody, loops: Sequence[Constraint] | Constraint) -> tuple[Constraint, ...]:
    """A tuple of constraints, in the robot's type, whose frames and joints exist (KeyError with close matches)."""
    loops = (loops,) if isinstance(loops, Loop | Distance | Coupling) else tuple(loops)
    for loop in loops:
        if isinstance(loop, Coupling):
            loop.places(robot)
        elif isinstance(loop, Loop | Distance):
            numbers = [robot.topology.frame_number(name) for name in (loop.frame_a, loop.frame_b)]
            links = [robot.topology.frame_links[number] for number in numbers]
            if links[0] == links[1]:
                carrier = "the base" if links[0] < 0 else f"link {robot.link_names[links[0]]!r}"
                raise ModelError(
                    f"A loop between {loop.frame_a!r} and {loop.frame_b!r} of {robot.name!r} holds nothing: both "
                    f"are fixed to {carrier}."
                )
        else:
            raise TypeError(f"loops must hold Loop, Distance or Coupling, got {loop!r}.")
    return jax.tree.map(lambda x: robot.convert(x, "loops"), loops)


def check_prescribed(robot: Multibody, prescribed) -> Array | None:
    """bool (nv,), or None for nothing."""
    if prescribed is None:
        return None
    prescribed = jnp.asarray(prescribed)
    if prescribed.shape != (robot.nv,) or prescribed.dtype != jnp.bool_:
        raise ValueError(
            f"prescribed must be bool of shape (nv,) = ({robot.nv},), got {prescribed.dtype} {prescribed.shape}."
        )
    return prescribed


class Between(NamedTuple):
    """Frame b seen from frame a, with what its relative rate nu depends on."""

    relative: Relative
    jacobian: Any  # of nu, a's axes; None where the frames have none
    size: Any  # (6,), of the frames' own Jacobians that it is the difference of, angular and linear rows
    bias: Array  # nu' at zero joint acceleration, or at the accelerations the frames were given
    to_world: Array


def between(a: MovingFrame, b: MovingFrame) -> Between:
    """b seen from a: p_b = p_a + R_a s, w_b = w_a + R_a nu_w, differentiated twice with a's axes turning."""
    d, w = b.position - a.position, a.velocity[:3]
    shift, turn = motion_shift(d), turned(a.rotation)
    rate = b.velocity - shift @ a.velocity
    carried = shift_acceleration(a.bias, w, d)
    turning = jnp.concatenate([ops.cross(w, rate[:3]), 2 * ops.cross(w, rate[3:])])
    relative = Relative(a.rotation.T @ b.rotation, ops.matvec_t(a.rotation, d), turn.T @ rate)
    jacobian = size = None
    if b.jacobian is not None:
        of_a = shift @ a.jacobian
        jacobian, own = turn.T @ (b.jacobian - of_a), jnp.maximum(jnp.abs(b.jacobian), jnp.abs(of_a))
        size = jnp.repeat(jnp.stack([jnp.max(own[:3]), jnp.max(own[3:])]), 3)
    return Between(relative, jacobian, size, turn.T @ (b.bias - carried - turning), turn)


ROUNDING = 16
"""Entries of a constraint's Jacobian below so many roundings of what they are differences of are zero."""


def without_rounding(J: Array, size: Array) -> Array:
    """J with exact zeros for entries that are rounding; its derivatives are those of J.

    Where a loop holds only what the mechanism cannot do anyway (a planar one, across its plane; two hands whose arms
    are prescribed) nothing else is left of its rows, and no tolerance relative to them could tell.
    """
    small = jnp.abs(J) <= ROUNDING * jnp.finfo(J.dtype).eps * size[:, None]
    return J - lax.stop_gradient(jnp.where(small, J, 0))


def cuts_of(loops: Sequence[Constraint]) -> tuple[list[Loop | Distance], list[str]]:
    """The constraints between frames, and the names of the frames."""
    cuts = [loop for loop in loops if not isinstance(loop, Coupling)]
    return cuts, [name for loop in cuts for name in (loop.frame_a, loop.frame_b)]


def _betweens(robot: Multibody, loops: tuple[Constraint, ...], q: Array, v: Array) -> list[Between]:
    cuts, names = cuts_of(loops)
    frames = moving_frames(robot, q, v, names) if cuts else {}
    return [between(frames[c.frame_a].at_point(c.point_a), frames[c.frame_b].at_point(c.point_b)) for c in cuts]


def loop_rows(robot: Multibody, loops: Sequence[Constraint], q: Array, v: Array) -> LoopRows:
    """Jacobian, bias and error of all constraints at a checked state."""
    loops = check_loops(robot, loops)
    cuts = [loop for loop in loops if not isinstance(loop, Coupling)]
    jacobians, biases, errors, turns = [jnp.zeros((0, robot.nv), v.dtype)], [], [], []
    for loop, b_from_a in zip(cuts, _betweens(robot, loops, q, v), strict=True):
        N, bias = loop.selection(b_from_a.relative)
        jacobians.append(without_rounding(N @ b_from_a.jacobian, jnp.abs(N) @ b_from_a.size))
        biases.append(N @ b_from_a.bias + bias)
        errors.append(loop.error(b_from_a.relative))
        turns.append(b_from_a.to_world @ N)
    for loop in loops:
        if isinstance(loop, Coupling):
            for rows, own in zip((jacobians, biases, errors), loop.equation(robot, q, v), strict=True):
                rows.append(own[None])
    empty = jnp.zeros(0, v.dtype)
    return LoopRows(
        jnp.concatenate(jacobians),
        jnp.concatenate([empty, *biases]),
        jnp.concatenate([empty, *errors]),
        jnp.stack(turns) if turns else jnp.zeros((0, 6, 6), v.dtype),
    )


def held_basis(robot: Multibody, loops: Sequence[Constraint]) -> Array:
    """(m, k): orthonormal columns within which the rows of all constraints lie.

    A hinge holds five directions of six: the rank of Omega is sought among these, not among six rows a loop. Where the
    axes are not known while a program is traced all six are.
    """
    blocks = []
    for loop in cuts_of(loops)[0]:
        free = loop.free if isinstance(loop, Loop) else None
        if free is None or not is_concrete(free):
            blocks.append(np.eye(6))
        else:
            blocks.append(np.linalg.svd(np.asarray(free, float).T)[0][:, len(free) :])
    blocks += [np.eye(1) for loop in loops if isinstance(loop, Coupling)]
    basis = np.zeros([sum(x.shape[i] for x in blocks) for i in (0, 1)])
    row = column = 0
    for x in blocks:
        basis[row : row + x.shape[0], column : column + x.shape[1]] = x
        row, column = row + x.shape[0], column + x.shape[1]
    return jnp.asarray(basis, robot.dtype)


@compiled(through_door=False)
def relative_poses(robot: Multibody, q: Shaped[Array, " nq"], loops: Sequence[Constraint]) -> list[Relative]:
    """Frame b seen from frame a at q, for every loop that is not a coupling."""
    loops = check_loops(robot, loops)
    q = robot.check_q(q)
    return [b_from_a.relative for b_from_a in _betweens(robot, loops, q, jnp.zeros(robot.nv, q.dtype))]


def loop_rows_at_rest(robot: Multibody, loops: Sequence[Constraint], q: Array) -> LoopRows:
    """Jacobian and error alone."""
    return loop_rows(robot, loops, q, jnp.zeros(robot.nv, q.dtype))


def holding(robot: Multibody, q: Shaped[Array, " nq"], loops: Sequence[Constraint]) -> tuple[Constraint, ...]:
    """The same loops, aimed at the relative poses (or distances) found at q. Couplings are kept as they are.

    >>> loop = soa.closed_chain.distance("base", "tip")
    >>> (held,) = soa.closed_chain.holding(robot, q, (loop,))
    >>> print(held.length.round(3))  # m
    1.938
    """
    loops = check_loops(robot, loops)
    found = iter(relative_poses(robot, q, loops))
    return tuple(loop if isinstance(loop, Coupling) else loop.held_at(next(found)) for loop in loops)


@compiled(through_door=False)
def loop_errors(robot: Multibody, loops: Sequence[Constraint], q: Shaped[Array, " nq"]) -> Float[Array, " m"]:
    """Position errors: six per loop or distance (rotation vector, metres; a's axes), then one per coupling.

    Units: m and rad, by the rows of the constraints.

    >>> mechanism = soa.closed_chain.mechanisms.four_bar()
    >>> print(soa.closed_chain.loop_errors(mechanism.robot, mechanism.loops, mechanism.q).round(6) + 0.0)
    [ 0.        0.        0.       -0.25865   0.       -0.149675]
    """
    return loop_rows_at_rest(robot, loops, robot.check_q(q)).error


@compiled(through_door=False)
def loop_jacobian(robot: Multibody, loops: Sequence[Constraint], q: Shaped[Array, " nq"]) -> Float[Array, "m nv"]:
    """Rows whose product with v vanishes when v is consistent with the loops.

    Units: m and rad per rad, by the rows of the constraints.

    >>> mechanism = soa.closed_chain.mechanisms.four_bar()
    >>> print(soa.closed_chain.loop_jacobian(mechanism.robot, mechanism.loops, mechanism.q).shape)
    (6, 3)
    """
    return loop_rows_at_rest(robot, loops, robot.check_q(q)).jacobian


class Cut(NamedTuple):
    """How the tree answers at its cuts: Y = M^-1 J* and Omega = J Y, factored."""

    columns: Float[Array, "nv m"]
    compliance: PseudoInverse


def cut(
    robot: Multibody,
    q: Array,
    factors: Factors,
    jacobian: Array,
    rtol: float | None = None,
    prescribed: Array | None = None,
    basis: Array | None = None,
) -> Cut:
    """Operational-space compliance of the cut points by two sweeps per column with factors at hand.

    With `prescribed` only the free degrees of freedom answer: M^-1 is the inverse of their block. `basis` as of
    `held_basis`.
    """
    factors = lax.stop_gradient(factors)
    columns = jax.vmap(lambda row: differentiable_solve(robot, q, factors, row, prescribed), out_axes=1)(jacobian)
    return Cut(columns, pseudo_inverse(jacobian @ columns, rtol, basis))


def cut_at_rest(
    robot: Multibody, q: Array, jacobian: Array, rtol: float | None = None, prescribed: Array | None = None
) -> Cut:
    """`cut` where no forward dynamics has left its factors."""
    still = jnp.zeros(robot.nv, q.dtype)
    fixed = lax.stop_gradient((robot, q))
    return cut(robot, q, solve_motion(*fixed, still, still, still, None, prescribed)[2], jacobian, rtol, prescribed)


def split_forces(rows: LoopRows, f: Array) -> tuple[Array, Array]:
    """Multipliers to wrenches on the frames b (world axes) and torques of couplings."""
    n = rows.to_world.shape[0]
    return jnp.einsum("lij,lj->li", rows.to_world, f[: 6 * n].reshape(n, 6)), f[6 * n :]


@compiled(through_door=False)
def loop_effective_inertia(
    robot: Multibody, loops: Sequence[Constraint], q: Shaped[Array, " nq"], *, rtol: float | None = None
) -> Float[Array, "m m"]:
    """Lambda_c: the inertia felt at the cuts along the constraint rows (overview, 5.11), the inverse of Omega.

    Where constraints are redundant or free axes leave rows empty it is the pseudo-inverse.

    >>> rod = soa.closed_chain.holding(robot, q, (soa.closed_chain.distance("base", "tip"),))
    >>> print(soa.closed_chain.loop_effective_inertia(robot, rod, q).max().round(3))  # felt along the rod, kg
    1.614
    """
    q = robot.check_q(q)
    rows = loop_rows_at_rest(robot, loops, q)
    inverse = cut_at_rest(robot, q, rows.jacobian, rtol).compliance
    return jax.vmap(inverse.solve, in_axes=1, out_axes=1)(jnp.eye(len(rows.error), dtype=q.dtype))
