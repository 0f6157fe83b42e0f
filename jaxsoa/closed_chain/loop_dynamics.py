"""Forward dynamics of any tree with loops: cut every loop, let the tree go, pull the cuts together again.

With J a + bias = 0 the condition on the cut points' relative accelerations (rows in a's axes, N applied):

    a_f = M^-1 (tau - C),   Y = M^-1 J*,   Omega = J Y,   f = -Omega^+ (J a_f + bias),   a = a_f + Y f.

This is the overview's application 3 (5.9-5.11) for any number of loops; Omega^+ is its Lambda_c. Derivatives, by state,
torques and every leaf of model and loops, are those of the equations (`perturbed.py`): O(N) per tangent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Float, Int, Shaped

from jaxsoa.closed_chain.algebra import PseudoInverse, safe_norm
from jaxsoa.closed_chain.constraints import Constraint
from jaxsoa.closed_chain.loop_equations import (
    coupling_torques,
    link_forces_of,
    moving_cuts,
    relative_accelerations,
    relative_rates,
    torques_of,
    wrenches,
)
from jaxsoa.closed_chain.loops import (
    Cut,
    LoopRows,
    check_loops,
    check_prescribed,
    cut,
    held_basis,
    loop_rows,
    split_forces,
)
from jaxsoa.closed_chain.perturbed import Changes, LinearMaps, along, perturbed_motion
from jaxsoa.dynamics.articulated import Factors
from jaxsoa.dynamics.inverse import inverse_dynamics_raw
from jaxsoa.dynamics.motion import differentiable_solve, mass_times, solve_motion
from jaxsoa.eager import compiled
from jaxsoa.kernels import door
from jaxsoa.model.multibody import Multibody


class LoopAcceleration(NamedTuple):
    """How a tree with loops moves."""

    a: Float[Array, " nv"]
    forces: Float[Array, "loops 6"]  # (moment, force) on frame b at its origin, world axes; frame a feels the opposite
    torques: Float[Array, " couplings"]  # on each coupled joint; its target feels -ratio times as much
    rank: Int[Array, ""]  # independent constraints at this configuration
    tau: Float[Array, " nv"]  # complete: as given, found where the motion is prescribed
    residual: Float[Array, ""]  # what is left of J a + bias: not zero where loops or prescribed joints contradict


class LoopSolution(NamedTuple):
    """Motion and forces, and the factors that found them (constants: they carry no derivatives)."""

    a: Array
    f: Array  # multipliers, rows as in `loop_rows`
    forces: Array
    tau: Array
    residual: Array  # J a + bias
    factors: Factors
    spectrum: tuple[Array, Array, Array]  # of Omega: vectors, inverse values, rank


@partial(door, constants=(0, 1))
def _rows(robot: Multibody, loops: tuple[Constraint, ...], q: Array, v: Array) -> LoopRows:
    return loop_rows(robot, loops, q, v)


@jax.custom_jvp
def loop_solution(
    robot: Multibody, loops: tuple[Constraint, ...], q, v, given, tau, f_ext, prescribed, stabilization, rtol, basis
) -> LoopSolution:
    """`loop_forward_dynamics` of checked arguments; `basis` as of `held_basis`."""
    free, torque, factors = solve_motion(robot, q, v, given, tau, f_ext, prescribed)
    rows = _rows(robot, loops, q, v)
    apart = rows.jacobian @ free + rows.bias
    if stabilization is not None:
        damping, frequency = stabilization
        apart = apart + 2 * damping * (rows.jacobian @ v) + frequency**2 * rows.error
    response = cut(robot, q, factors, rows.jacobian, rtol, prescribed, basis)
    f = -response.compliance.solve(apart)
    change = response.columns @ f
    if prescribed is not None:
        torque = torque + jnp.where(prescribed, mass_times(robot, q, change) - rows.jacobian.T @ f, 0)
    _, vectors, inverse_values, rank = response.compliance
    residual = apart + rows.jacobian @ change
    forces = split_forces(rows, f)[0]
    return LoopSolution(free + change, f, forces, torque, residual, factors, (vectors, inverse_values, rank))


class Answers(NamedTuple):
    """At a motion found: the constraints' rows, x -> Z x by the factors at hand, and the answer at the cuts."""

    rows: LoopRows
    solve: Callable[[Array], Array]  # of one vector or of columns
    response: Cut


def answers(
    robot: Multibody, loops: tuple[Constraint, ...], q: Array, v: Array, found: LoopSolution, prescribed: Array | None
) -> Answers:
    """Differentiable once more: factors and spectrum are looked at as constants, what they factor is not."""
    factors, spectrum = lax.stop_gradient((found.factors, found.spectrum))

    def solve(x):
        if x.ndim == 2:
            return jax.vmap(solve, in_axes=1, out_axes=1)(x)
        return differentiable_solve(robot, q, factors, x, prescribed)

    rows = _rows(robot, loops, q, v)
    columns = solve(rows.jacobian.T)
    return Answers(rows, solve, Cut(columns, PseudoInverse(rows.jacobian @ columns, *spectrum)))


def _loop_solution_jvp(primals, tangents):
    robot, loops, q, v, given, tau, f_ext, prescribed, stabilization, _, _ = primals
    d_robot, d_loops, d_q, d_v, d_given, d_tau, d_f_ext, _, d_stabilization, _, _ = tangents
    found = loop_solution(*primals)
    rows, solve, (columns, compliance) = answers(robot, loops, q, v, found, prescribed)
    maps = LinearMaps(lambda x: rows.jacobian @ x, lambda f: rows.jacobian.T @ f, solve, compliance)
    a, f = found.a, found.f
    u = columns @ compliance.solve(f)

    def equations(robot, loops, q, v, given, tau, f_ext, stabilization):
        moved = a if prescribed is None else jnp.where(prescribed, given, a)
        at = moving_cuts(robot, loops, q, v, moved)
        on_b = wrenches(loops, at, f)
        pushed = link_forces_of(robot, loops, at, on_b)
        pushed = pushed if f_ext is None else f_ext + pushed
        torque = inverse_dynamics_raw(robot, q, v, moved, pushed) - coupling_torques(robot, loops, q, f)
        gap = relative_accelerations(robot, loops, q, v, moved, at, stabilization)
        pull = torques_of(robot, loops, q, at, found.residual)
        return Changes(torque - tau, gap, relative_rates(robot, loops, q, u), pull), on_b, torque

    d, d_on_b, d_torque = along(
        equations,
        (robot, loops, q, v, given, tau, f_ext, stabilization),
        (d_robot, d_loops, d_q, d_v, d_given, d_tau, d_f_ext, d_stabilization),
    )
    d_a, d_f = perturbed_motion(maps, d)
    d_residual = d.gap + maps.rows(d_a)
    d_forces = d_on_b + split_forces(rows, d_f)[0]
    d_torque = d_torque + mass_times(robot, q, d_a) - maps.columns(d_f)
    given_tau = jnp.zeros_like(d_torque) if isinstance(d_tau, SymbolicZero) else d_tau
    if prescribed is None:
        d_torque = given_tau
    else:
        d_torque = jnp.where(prescribed, d_torque, given_tau)
        if not isinstance(d_given, SymbolicZero):
            d_a = jnp.where(prescribed, d_given, d_a)
    moved = (d_a, d_f, d_forces, d_torque, d_residual)
    moved = tuple(t.astype(x.dtype) for t, x in zip(moved, found[:5], strict=True))
    factors, spectrum = (jax.tree.map(_no_tangent, x) for x in (found.factors, found.spectrum))
    return found, LoopSolution(*moved, factors=factors, spectrum=spectrum)


def _no_tangent(x: Array) -> Any:
    if jnp.issubdtype(x.dtype, jnp.floating):
        return jnp.zeros_like(x)
    return np.zeros(x.shape, jax.dtypes.float0)


loop_solution.defjvp(_loop_solution_jvp, symbolic_zeros=True)


@compiled(through_door=False)
def loop_forward_dynamics(
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
) -> LoopAcceleration:
    """Accelerations and constraint forces of a tree whose loops are closed by `loops` (Loop, Distance, Coupling).

    Exact at the level of accelerations: (q, v) should satisfy the loops, and the pose found is held. With
    `stabilization` = (damping, frequency) in 1/s Baumgarte's term pulls errors back instead:
    J a + bias = -2 damping J v - frequency^2 error. Redundant or singular constraints give the least forces in the norm
    of the stacked rows; `rank` counts the independent ones (eigenvalues of the compliance above `rtol` of the largest).

    Where `prescribed` (bool (nv,), may change at run time) the acceleration `a` is given (zero for None) and the torque
    found, as in `hybrid_dynamics`. Prescribed joints that a loop cannot follow leave a `residual`.

    Units: rad, rad/s, N m; rad/s^2, forces in N m and N.

    >>> robot, loops, q = soa.closed_chain.mechanisms.four_bar()[:3]
    >>> found = soa.closed_chain.loop_forward_dynamics(robot, loops, q, jnp.zeros(robot.nv), jnp.zeros(robot.nv))
    >>> J = soa.closed_chain.loop_jacobian(robot, loops, q)
    >>> print(jnp.abs(J @ found.a).max() < 1e-9)  # from rest, the loop stays closed
    True
    """
    loops = check_loops(robot, loops)
    q, v, tau, f_ext = robot.check_q(q), robot.check_v(v), robot.check_v(tau, "tau"), robot.check_f_ext(f_ext)
    prescribed = check_prescribed(robot, prescribed)
    given = jnp.zeros_like(tau) if a is None else robot.check_v(a, "a")
    if not loops:
        free, torque, _ = solve_motion(robot, q, v, given, tau, f_ext, prescribed)
        nothing = jnp.zeros((), free.dtype)
        return LoopAcceleration(
            free, jnp.zeros((0, 6), free.dtype), jnp.zeros(0, free.dtype), jnp.zeros((), int), torque, nothing
        )
    basis = held_basis(robot, loops)
    found = loop_solution(robot, loops, q, v, given, tau, f_ext, prescribed, stabilization, rtol, basis)
    couplings = found.f[6 * len(found.forces) :]
    rank = found.spectrum[2]
    return LoopAcceleration(found.a, found.forces, couplings, rank, found.tau, safe_norm(found.residual))
