"""The equations of motion as a step sees them: torques, external forces, loops, prescribed joints.

A tree with loops is kept on them by projection (`closed_chain.project`): after every step one Newton iteration for
the positions, in the metric of kinetic energy, and the velocities as an inelastic impact would leave them. An
integrator's error in a step is small, so one iteration leaves its square; no constant is to be tuned, and the order
of the integrator stays what it is. (Baumgarte's term, an option of `loop_forward_dynamics`, is what an adaptive
solver gets, which has no steps of its own to project after.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxsoa.closed_chain.algebra import is_concrete
from jaxsoa.closed_chain.close import close_loops_report
from jaxsoa.closed_chain.constraints import Constraint, Coupling
from jaxsoa.closed_chain.loop_dynamics import loop_forward_dynamics
from jaxsoa.closed_chain.loops import check_loops, check_prescribed, loop_errors, loop_jacobian
from jaxsoa.closed_chain.stabilize import project
from jaxsoa.dynamics.forward import forward_dynamics, hybrid_dynamics
from jaxsoa.model.multibody import Multibody

ExternalForce = Array | Callable[[Multibody, Array, Array], Array]  # (n_links, 6), or (robot, q, v) -> that


class Prescribed(NamedTuple):
    """Which degrees of freedom have a prescribed motion, and their accelerations (the other entries are not read)."""

    mask: Bool[Array, " nv"]
    a: Float[Array, " nv"]


def as_prescribed(robot: Multibody, prescribed: Any, like: Array) -> Prescribed | None:
    """From None, a mask (nv,) (zero acceleration: velocities stay) or a pair (mask, accelerations)."""
    if prescribed is None:
        return None
    mask, a = prescribed if isinstance(prescribed, tuple) else (prescribed, jnp.zeros_like(like))
    mask = check_prescribed(robot, mask)
    assert mask is not None
    return Prescribed(mask, robot.check_v(a, "a").astype(like.dtype))


def accelerations_of(
    robot: Multibody,
    tau: Array,
    forces: tuple,
    f_ext: ExternalForce | None = None,
    loops: Sequence[Constraint] = (),
    prescribed: Prescribed | None = None,
    stabilization: tuple[float, float] | None = None,
) -> Callable[[Array, Array], Array]:
    """acceleration(q, v) (nv,) under constant torques; passive forces and external ones may follow the state."""
    loops = check_loops(robot, loops)
    mask, given = (None, None) if prescribed is None else prescribed

    def acceleration(q: Array, v: Array) -> Array:
        return found(q, v).astype(v.dtype)  # external forces may be more precise than the model

    def found(q: Array, v: Array) -> Array:
        torque = sum((force(robot, q, v) for force in forces), tau)
        external = f_ext(robot, q, v) if callable(f_ext) else f_ext
        if loops:
            return loop_forward_dynamics(
                robot, loops, q, v, torque, external, a=given, prescribed=mask, stabilization=stabilization
            ).a
        if mask is None or given is None:
            return forward_dynamics(robot, q, v, torque, external)
        return hybrid_dynamics(robot, q, v, given, torque, mask, external)[0]

    return acceleration


def onto_loops(
    robot: Multibody,
    loops: Sequence[Constraint],
    q: Array,
    v: Array,
    prescribed: Prescribed | None,
    iterations: int = 1,
) -> tuple[Array, Array]:
    """(q, v) back on the loops, prescribed joints left as they are; unchanged without loops."""
    if not loops:
        return q, v
    mask = None if prescribed is None else prescribed.mask
    return project(robot, loops, q, v, iterations=iterations, prescribed=mask)


def check_prescription(
    robot: Multibody, loops: Sequence[Constraint], q: Array, v: Array, prescribed: Prescribed | None
) -> None:
    """Raise ValueError where the loops cannot follow the prescribed joints; inside jit nothing is looked at."""
    loops = check_loops(robot, loops)
    if not loops or prescribed is None or not is_concrete(robot, loops, q, v, prescribed):
        return
    with jax.ensure_compile_time_eval():
        found = eqx.filter_jit(loop_forward_dynamics)(
            robot, loops, q, v, jnp.zeros_like(v), a=prescribed.a, prescribed=prescribed.mask
        )
        left, rank = float(found.residual), int(found.rank)
    mask = np.asarray(prescribed.mask)
    size = 1 + float(np.max(np.abs(v), initial=0)) ** 2 + float(np.max(np.abs(prescribed.a)[mask], initial=0))
    if left > 1e-3 * size:
        owners = robot.topology.dof_link
        names = dict.fromkeys(robot.joint_names[owners[k]] for k in np.flatnonzero(mask))
        raise ValueError(
            f"The loops cannot follow the prescribed joints {', '.join(names)}: {left:.3g} of the constraints' "
            f"acceleration remains. The other joints satisfy {rank} independent constraints."
        )


def check_start(robot: Multibody, loops: Sequence[Constraint], q: Array, tolerance: float = 1e-4) -> None:
    """Raise ValueError where a loop is open at q; inside jit nothing is looked at."""
    loops = check_loops(robot, loops)
    if not loops or not is_concrete(robot, loops, q):
        return
    with jax.ensure_compile_time_eval():  # constants inside a jitted function may be looked at too
        errors = np.asarray(eqx.filter_jit(loop_errors)(robot, loops, q))
    cuts = [loop for loop in loops if not isinstance(loop, Coupling)]
    couplings = [loop for loop in loops if isinstance(loop, Coupling)]
    sizes = [float(np.linalg.norm(errors[6 * k : 6 * k + 6])) for k in range(len(cuts))]
    sizes += [float(abs(x)) for x in errors[6 * len(cuts) :]]
    names = [f"{loop.frame_a!r} - {loop.frame_b!r}" for loop in cuts] + [repr(loop.joint) for loop in couplings]
    bad = [f"{name}: {size:.3g}" for name, size in zip(names, sizes, strict=True) if not size <= tolerance]
    if bad:
        raise ValueError(
            f"The start is not closed; errors (m, rad) above {tolerance:.0e}: {', '.join(bad)}. "
            + _remedy(robot, loops, q, tolerance)
        )


def _remedy(robot: Multibody, loops: Sequence[Constraint], q: Array, tolerance: float) -> str:
    """What to do about an open start; that the loops contradict each other where nothing closes them."""
    with jax.ensure_compile_time_eval():
        nearest = eqx.filter_jit(close_loops_report)(robot, loops, q)
        J = np.asarray(eqx.filter_jit(loop_jacobian)(robot, loops, nearest.q))
    left = float(nearest.error)
    if left <= tolerance:
        return "`closed_chain.close_loops` finds a closed configuration, `closed_chain.holding` loops that hold it."
    rank = int(np.linalg.matrix_rank(J, tol=1e-8))
    return (
        f"Nothing near closes them: the best configuration found leaves {left:.3g}, where {rank} of the constraints "
        "are independent. The loops contradict each other, or are out of reach; `closed_chain.holding` gives loops "
        "that hold this configuration."
    )
