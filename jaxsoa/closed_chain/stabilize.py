"""Back onto the constraints: projection of positions and velocities, differentiable.

Integration lets a closed chain drift. Stabilization (an option of `loop_forward_dynamics`) pulls errors back over time; projection removes them at once, by the shortest way in the metric of kinetic energy:

    dq = -M^-1 J* (J M^-1 J*)^+ error (Newton, repeated),    v <- v - M^-1 J* (J M^-1 J*)^+ J v.

The velocity projection is the impact that closing the loops would cause, so it never adds kinetic energy.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Shaped

from jaxsoa.closed_chain.constraints import Constraint
from jaxsoa.closed_chain.loops import check_loops, cut, loop_rows
from jaxsoa.dynamics.mass import articulated
from jaxsoa.model.multibody import Multibody


def project_position(
    robot: Multibody,
    loops: Sequence[Constraint],
    q: Shaped[Array, " nq"],
    *,
    iterations: int = 2,
    rtol: float | None = None,
) -> Float[Array, " nq"]:
    """The configuration that satisfies the loops, next to q. `iterations` Newton steps: two for a drift of 1e-4."""
    loops = check_loops(robot, loops)
    q = robot.check_q(q)

    def newton(q, _):
        rows = loop_rows(robot, loops, q, jnp.zeros(robot.nv, q.dtype))
        response = cut(robot, q, articulated(robot, q)[1].factors, rows.jacobian, rtol)
        return robot.integrate(q, -response.columns @ response.compliance.solve(rows.error)), None

    return lax.scan(newton, q, None, length=iterations)[0]


def project_velocity(
    robot: Multibody,
    loops: Sequence[Constraint],
    q: Shaped[Array, " nq"],
    v: Shaped[Array, " nv"],
    *,
    rtol: float | None = None,
) -> Float[Array, " nv"]:
    """The velocity that the loops allow next to v, as an inelastic impact would leave it."""
    loops = check_loops(robot, loops)
    q, v = robot.check_q(q), robot.check_v(v)
    rows = loop_rows(robot, loops, q, v)
    response = cut(robot, q, articulated(robot, q)[1].factors, rows.jacobian, rtol)
    return v - response.columns @ response.compliance.solve(rows.jacobian @ v)


def project(
    robot: Multibody,
    loops: Sequence[Constraint],
    q: Shaped[Array, " nq"],
    v: Shaped[Array, " nv"],
    *,
    iterations: int = 2,
    rtol: float | None = None,
) -> tuple[Float[Array, " nq"], Float[Array, " nv"]]:
    """(q, v) on the constraints: what a simulation calls after a step."""
    q = project_position(robot, loops, q, iterations=iterations, rtol=rtol)
    return q, project_velocity(robot, loops, q, v, rtol=rtol)
