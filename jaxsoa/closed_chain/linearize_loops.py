"""The linearized model of a tree with loops: full matrices from the equations differentiated once (`perturbed.py`).

The dynamics' part is the papers' O(N^2) algorithm for the linearized inverse model, taken at the motion and the loop
forces found; the constraints' part is a tangent of the kinematic sweep per column. Everything is then solved with the
factors of the one forward dynamics: neither the derivative of J nor that of Omega exists anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

from jaxsoa.closed_chain.constraints import Constraint
from jaxsoa.closed_chain.loop_dynamics import linear_maps, loop_solution
from jaxsoa.closed_chain.loop_equations import (
    coupling_torques,
    link_forces_of,
    moving_cuts,
    relative_accelerations,
    relative_rates,
    torques_of,
    wrenches,
)
from jaxsoa.closed_chain.loops import check_loops, check_prescribed, loop_rows, split_forces
from jaxsoa.closed_chain.perturbed import Changes, perturbed_motion
from jaxsoa.dynamics.inverse import project, sum_outboard
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
    """
    loops = check_loops(robot, loops)
    q, v, tau, f_ext = robot.check_q(q), robot.check_v(v), robot.check_v(tau, "tau"), robot.check_f_ext(f_ext)
    mask = check_prescribed(robot, prescribed)
    given = jnp.zeros_like(tau) if a is None else robot.check_v(a, "a")
    found = loop_solution(robot, loops, q, v, given, tau, f_ext, mask, stabilization, rtol)
    rows = loop_rows(robot, loops, q, v)
    maps, u = linear_maps(robot, q, rows.jacobian, found, mask)
    motion, f = found.a, found.f
    at = moving_cuts(robot, loops, q, v, motion)
    pushed = link_forces_of(robot, loops, at, found.forces)
    of_torque = linearize_inverse_dynamics(robot, q, v, motion, pushed if f_ext is None else f_ext + pushed)

    def by_kinematics(dq: Array, dv: Array):
        """What changes at fixed motion and forces, but for inverse dynamics under fixed wrenches on the links."""
        q_moved, v_moved = robot.integrate(q, dq), v + dv
        now = moving_cuts(robot, loops, q_moved, v_moved, motion)
        on_b = wrenches(loops, now, f)
        links = link_forces_of(robot, loops, now, on_b)
        torque = -project(robot, at.kin.axes, sum_outboard(robot, at.kin.offset, links))
        torque = torque - coupling_torques(robot, loops, q_moved, f)
        gap = relative_accelerations(robot, loops, q_moved, v_moved, motion, now, stabilization)
        pull = torques_of(robot, loops, q_moved, now, found.residual)
        return Changes(torque, gap, relative_rates(robot, loops, q_moved, u), pull), on_b

    one, none = jnp.eye(robot.nv, dtype=motion.dtype), jnp.zeros((robot.nv, robot.nv), motion.dtype)
    held = none if mask is None else jnp.where(mask, one, 0)  # da where prescribed, from da
    by_state = jax.jacfwd(lambda x: by_kinematics(*jnp.split(x, 2)))(jnp.zeros(2 * robot.nv, motion.dtype))
    # Columns: dq, dv, dtau, da. The last two change neither poses nor rates.
    d = jax.tree.map(lambda x: jnp.concatenate([x, jnp.zeros_like(x)], axis=-1), by_state)
    torque = jnp.concatenate([of_torque.wrt_q, of_torque.wrt_v, held - one, of_torque.wrt_a @ held], axis=1)
    gap = jnp.concatenate([jnp.zeros((len(f), 3 * robot.nv), f.dtype), rows.jacobian @ held], axis=1)
    d = (d[0]._replace(torque=d[0].torque + torque, gap=d[0].gap + gap), d[1])
    columns = jax.vmap(lambda d: perturbed_motion(maps, d), in_axes=-1, out_axes=-1)
    d_a, d_f = columns(d[0])
    d_forces = d[1] + jax.vmap(lambda f: split_forces(rows, f)[0], in_axes=-1, out_axes=-1)(d_f)
    needed = of_torque.wrt_a @ d_a - rows.jacobian.T @ d_f + d[0].torque
    wrt = [jnp.split(x, 4, axis=-1) for x in (d_a, d_forces, d_f[6 * len(found.forces) :], needed)]
    wrt[0][3] = wrt[0][3] + held
    if mask is None:
        wrt[3] = [none, none, one, none]
    else:
        wrt[3] = [jnp.where(mask[:, None], x, 0) for x in wrt[3]]
        wrt[3][2] = wrt[3][2] + one - held
    return LinearizedLoopDynamics(*(x for of_one in wrt for x in of_one))
