"""The linearized model of a tree with loops: full matrices from the equations differentiated once (`perturbed.py`).

The dynamics' part is the papers' O(N^2) algorithm for the linearized inverse model, taken at the motion and the loop
forces found; the constraints' part is a tangent of the kinematic sweep per column, a kernel, so all columns, and those
of many states, are a batch of it. All are solved for by the factors of the one forward dynamics and the pseudo-inverse
that found the forces: neither the derivative of J nor that of Omega exists anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

from jaxsoa.closed_chain.constraints import Constraint
from jaxsoa.closed_chain.loop_dynamics import answers, loop_solution
from jaxsoa.closed_chain.loop_equations import (
    Stabilization,
    coupling_torques,
    link_forces_of,
    moving_cuts,
    relative_accelerations,
    relative_rates,
    torques_of,
    wrenches,
)
from jaxsoa.closed_chain.loops import check_loops, check_prescribed, held_basis, split_forces
from jaxsoa.closed_chain.perturbed import Changes, perturbed_columns
from jaxsoa.dynamics.inverse import project, sum_outboard
from jaxsoa.eager import compiled
from jaxsoa.kernels import door
from jaxsoa.linearized.inverse import linearize_inverse_dynamics
from jaxsoa.model.multibody import Multibody


class LinearizedLoopDynamics(NamedTuple):
    """Derivatives of `loop_forward_dynamics`: of accelerations, of the loops' forces, of couplings' torques.

    `tau_wrt_...` are those of the complete torques, which matter where joints are prescribed; `wrt_a` is by the
    prescribed accelerations.
    """

    wrt_q: Float[Array, "nv nv"]
    wrt_v: Float[Array, "nv nv"]
    wrt_tau: Float[Array, "nv nv"]
    wrt_a: Float[Array, "nv nv"]
    forces_wrt_q: Float[Array, "loops 6 nv"]
    forces_wrt_v: Float[Array, "loops 6 nv"]
    forces_wrt_tau: Float[Array, "loops 6 nv"]
    forces_wrt_a: Float[Array, "loops 6 nv"]
    torques_wrt_q: Float[Array, "couplings nv"]
    torques_wrt_v: Float[Array, "couplings nv"]
    torques_wrt_tau: Float[Array, "couplings nv"]
    torques_wrt_a: Float[Array, "couplings nv"]
    tau_wrt_q: Float[Array, "nv nv"]
    tau_wrt_v: Float[Array, "nv nv"]
    tau_wrt_tau: Float[Array, "nv nv"]
    tau_wrt_a: Float[Array, "nv nv"]


@compiled(through_door=False)
def linearize_loop_forward_dynamics(
    robot: Multibody,
    loops: Sequence[Constraint],
    q: Shaped[Array, " nq"],
    v: Shaped[Array, " nv"],
    tau: Shaped[Array, " nv"],
    f_ext: Shaped[Array, "n 6"] | None = None,
    *,
    a: Shaped[Array, " nv"] | None = None,
    prescribed: Shaped[Array, " nv"] | None = None,
    stabilization: tuple[float, float] | None = None,
    rtol: float | None = None,
) -> LinearizedLoopDynamics:
    """Derivatives of `loop_forward_dynamics` by q (along `robot.integrate(q, dq)`), v, tau and prescribed `a`.

    Exact where constraints are redundant: then of the least forces, at constant rank. Where the rank changes along a
    direction (a stretched linkage on its way out of the singularity) there is no derivative; the one given is that of
    motions which keep the rank. All columns along which the loops open are derivatives too: of the accelerations that
    hold the relative pose found.

    >>> rod = soa.closed_chain.holding(robot, q, (soa.closed_chain.distance("base", "tip"),))
    >>> found = jax.jit(soa.closed_chain.linearize_loop_forward_dynamics)(robot, rod, q, v, tau)
    >>> print(found.wrt_q[0].round(3))  # of the first joint, 1/s^2
    [-7.414 -1.728]
    """
    loops = check_loops(robot, loops)
    q, v, tau, f_ext = robot.check_q(q), robot.check_v(v), robot.check_v(tau, "tau"), robot.check_f_ext(f_ext)
    mask = check_prescribed(robot, prescribed)
    given = jnp.zeros_like(tau) if a is None else robot.check_v(a, "a")
    basis = held_basis(robot, loops)
    found = loop_solution(robot, loops, q, v, given, tau, f_ext, mask, stabilization, rtol, basis)
    rows, solve, response = answers(robot, loops, q, v, found, mask)
    S = response.compliance.inverse()
    pushed = _pushed(robot, loops, q, v, found.a, found.forces)
    of_torque = linearize_inverse_dynamics(robot, q, v, found.a, pushed if f_ext is None else f_ext + pushed)
    at = _At(found.a, found.f, found.residual, response.columns @ (S @ found.f))

    nv, J = robot.nv, rows.jacobian
    one, none = jnp.eye(nv, dtype=found.a.dtype), jnp.zeros((nv, nv), found.a.dtype)
    directions = jnp.eye(2 * nv, dtype=found.a.dtype)
    columns = jax.vmap(lambda d: _by_state(robot, (loops, stabilization), q, v, at, d), out_axes=-1)
    d, d_forces = columns(directions)
    # Then torques and, where some are prescribed, accelerations: they change neither poses nor rates.
    held = none if mask is None else jnp.where(mask, one, 0)  # da where prescribed, from da
    inputs = (held - one,) if mask is None else (held - one, of_torque.wrt_a @ held)
    torque = jnp.concatenate([d.torque + jnp.concatenate([of_torque.wrt_q, of_torque.wrt_v], 1), *inputs], axis=1)
    count = nv * len(inputs)
    d = Changes(torque, *(jnp.pad(x, ((0, 0), (0, count))) for x in d[1:]))
    if mask is not None:
        d = d._replace(gap=d.gap.at[:, 3 * nv :].set(J @ held))
    da, df = perturbed_columns(solve, response.columns, response.compliance, d)
    forces = jnp.pad(d_forces, ((0, 0), (0, 0), (0, count)))
    forces = forces + jax.vmap(lambda f: split_forces(rows, f)[0], in_axes=-1, out_axes=-1)(df)
    wrt = [jnp.split(x, 2 + len(inputs), axis=-1) for x in (da, forces, df[6 * len(found.forces) :])]
    if mask is None:
        nothing = [*wrt, [none, none, one]]
        return LinearizedLoopDynamics(*(x for of_one in nothing for x in (*of_one, jnp.zeros_like(of_one[0]))))
    wrt[0][3] = wrt[0][3] + held
    needed = jnp.split(of_torque.wrt_a @ da - J.T @ df + torque, 4, axis=-1)
    needed = [jnp.where(mask[:, None], x, 0) for x in needed]
    needed[2] = needed[2] + one - held
    return LinearizedLoopDynamics(*(x for of_one in (*wrt, needed) for x in of_one))


class _At(NamedTuple):
    """What the forward dynamics found; u = M^-1 J* Omega^+ f."""

    a: Array
    f: Array
    residual: Array
    u: Array


@partial(door, constants=(0, 1))
def _pushed(robot: Multibody, loops: tuple[Constraint, ...], q: Array, v: Array, a: Array, forces: Array) -> Array:
    return link_forces_of(robot, loops, moving_cuts(robot, loops, q, v, a), forces)


@partial(door, constants=(0, 1))
def _by_state(
    robot: Multibody,
    closed: tuple[tuple[Constraint, ...], Stabilization | None],
    q: Array,
    v: Array,
    at: _At,
    direction: Array,
) -> tuple[Changes, Array]:
    """One column: along (dq, dv) what changes but for inverse dynamics, and the forces at fixed multipliers."""
    loops, stabilization = closed
    kin = moving_cuts(robot, loops, q, v, at.a).kin

    def by_kinematics(moved: Array):
        dq, dv = jnp.split(moved, 2)
        q_moved, v_moved = robot.integrate(q, dq), v + dv
        now = moving_cuts(robot, loops, q_moved, v_moved, at.a)
        on_b = wrenches(loops, now, at.f)
        links = link_forces_of(robot, loops, now, on_b)
        pulled = -project(robot, kin.axes, sum_outboard(robot, kin.offset, links))
        pulled = pulled - coupling_torques(robot, loops, q_moved, at.f)
        gap = relative_accelerations(robot, loops, q_moved, v_moved, at.a, now, stabilization)
        pull = torques_of(robot, loops, q_moved, now, at.residual)
        return Changes(pulled, gap, relative_rates(robot, loops, q_moved, at.u), pull), on_b

    return jax.jvp(by_kinematics, (jnp.zeros_like(direction),), (direction,))[1]
