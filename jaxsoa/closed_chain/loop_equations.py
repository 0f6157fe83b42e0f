"""The equations of a tree with loops at a motion and forces at hand, without a Jacobian: what derivatives are taken of.

    ID(q, v, a) - J* f,     J a + bias,     J u,     J* y

by sweeps over the links (J a is a relative acceleration of frames, J* f the torques of forces on them), so that a
tangent of them costs O(N) and the derivative of J is never formed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxsoa.closed_chain.constraints import Constraint, Coupling
from jaxsoa.closed_chain.frames import MovingFrame, accelerated_frames
from jaxsoa.closed_chain.loops import Between, between, cuts_of
from jaxsoa.dynamics.articulated import carry_force
from jaxsoa.dynamics.inverse import project, sum_outboard
from jaxsoa.dynamics.kinematics import Kinematics
from jaxsoa.model.multibody import Multibody

Stabilization = tuple[float | Array, float | Array]


class Cuts(NamedTuple):
    """The cut points at a motion: frames a and b of every loop, and b seen from a."""

    ends: list[tuple[MovingFrame, MovingFrame]]
    seen: list[Between]
    kin: Kinematics


def moving_cuts(robot: Multibody, loops: Sequence[Constraint], q: Array, v: Array, a: Array) -> Cuts:
    cuts, names = cuts_of(loops)
    frames, kin = accelerated_frames(robot, q, v, a, names)
    ends = [(frames[c.frame_a].at_point(c.point_a), frames[c.frame_b].at_point(c.point_b)) for c in cuts]
    return Cuts(ends, [between(*pair) for pair in ends], kin)


def relative_accelerations(
    robot: Multibody,
    loops: Sequence[Constraint],
    q: Array,
    v: Array,
    a: Array,
    at: Cuts,
    stabilization: Stabilization | None = None,
) -> Float[Array, " m"]:
    """J a + bias, rows as in `loop_rows`, and Baumgarte's term if asked for."""
    rows, rates, errors = [jnp.zeros(0, a.dtype)], [jnp.zeros(0, a.dtype)], [jnp.zeros(0, a.dtype)]
    for loop, seen in zip(cuts_of(loops)[0], at.seen, strict=True):
        N, bias = loop.selection(seen.relative)
        rows.append(N @ seen.bias + bias)
        rates.append(N @ seen.relative.rate)
        errors.append(loop.error(seen.relative))
    for loop in loops:
        if isinstance(loop, Coupling):
            row, bias, error = loop.equation(robot, q, v)
            rows.append((jnp.sum(row * a) + bias)[None])
            rates.append(jnp.sum(row * v)[None])
            errors.append(error[None])
    total = jnp.concatenate(rows)
    if stabilization is None:
        return total
    damping, frequency = stabilization
    return total + 2 * damping * jnp.concatenate(rates) + frequency**2 * jnp.concatenate(errors)


def relative_rates(robot: Multibody, loops: Sequence[Constraint], q: Array, u: Array) -> Float[Array, " m"]:
    """J u."""
    at = moving_cuts(robot, loops, q, u, jnp.zeros_like(u))
    rows = [jnp.zeros(0, u.dtype)]
    for loop, seen in zip(cuts_of(loops)[0], at.seen, strict=True):
        rows.append(loop.selection(seen.relative)[0] @ seen.relative.rate)
    for loop in loops:
        if isinstance(loop, Coupling):
            rows.append(jnp.sum(loop.equation(robot, q, u)[0] * u)[None])
    return jnp.concatenate(rows)


def wrenches(loops: Sequence[Constraint], at: Cuts, f: Array) -> Float[Array, "loops 6"]:
    """(moment, force) on the frames b at their origins, world axes, of the multipliers f."""
    cuts = cuts_of(loops)[0]
    rows = [
        seen.to_world @ (loop.selection(seen.relative)[0] @ f[6 * k : 6 * k + 6])
        for k, (loop, seen) in enumerate(zip(cuts, at.seen, strict=True))
    ]
    return jnp.stack(rows) if rows else jnp.zeros((0, 6), f.dtype)


def link_forces_of(robot: Multibody, loops: Sequence[Constraint], at: Cuts, on_b: Array) -> Float[Array, "n 6"]:
    """Wrenches on the frames b, and their opposites on the frames a, as external forces on the links."""
    total = jnp.zeros((robot.n_links, 6), on_b.dtype)
    topology = robot.topology
    for loop, (_, b), wrench in zip(cuts_of(loops)[0], at.ends, on_b, strict=True):
        for name, sign in ((loop.frame_a, -1), (loop.frame_b, 1)):
            link = topology.frame_links[topology.frame_number(name)]
            if link >= 0:  # both act at b's origin
                arm = b.position - robot.base_position - at.kin.position[link]
                total = total.at[link].add(sign * carry_force(arm, wrench))
    return total


def coupling_torques(robot: Multibody, loops: Sequence[Constraint], q: Array, f: Array) -> Float[Array, " nv"]:
    """J* f of the couplings alone; f holds all multipliers."""
    torque = jnp.zeros(robot.nv, f.dtype)
    couplings = [loop for loop in loops if isinstance(loop, Coupling)]
    for loop, multiplier in zip(couplings, f[len(f) - len(couplings) :], strict=True):
        torque = torque + multiplier * loop.equation(robot, q, torque)[0]
    return torque


def torques_of(robot: Multibody, loops: Sequence[Constraint], q: Array, at: Cuts, y: Array) -> Float[Array, " nv"]:
    """J* y: the joint torques that forces y at the cuts amount to."""
    forces = link_forces_of(robot, loops, at, wrenches(loops, at, y))
    by_links = project(robot, at.kin.axes, sum_outboard(robot, at.kin.offset, forces))
    return by_links + coupling_torques(robot, loops, q, y)
