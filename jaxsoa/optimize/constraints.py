"""What a trajectory must satisfy: equalities and inequalities along its path and at its end.

A constraint is a function with a vector of values: `Equality` wants them zero, `Inequality` at most zero. On the path
it is called as `(state, control)` (and with the row of `per_step`, where the problem has one), at the end as `(state)`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Shaped

from jaxsoa.closed_chain.algebra import is_concrete, safe_norm
from jaxsoa.dynamics.kinematics import frame_pose
from jaxsoa.model.multibody import Multibody


class Equality(eqx.Module):
    """function(...) = 0, entry by entry."""

    function: Callable[..., Array]
    name: str = eqx.field(static=True, default="equality")


class Inequality(eqx.Module):
    """function(...) <= 0, entry by entry."""

    function: Callable[..., Array]
    name: str = eqx.field(static=True, default="inequality")


Condition = Equality | Inequality


def conditions(given: Condition | Sequence[Condition]) -> tuple[Condition, ...]:
    """One or several as a tuple; anything else is refused."""
    found = (given,) if isinstance(given, Equality | Inequality) else tuple(given)
    for one in found:
        if not isinstance(one, Equality | Inequality):
            raise ValueError(f"A constraint is an Equality or an Inequality of a function, got {one!r}.")
    return found


def within_joint_limits(robot: Multibody, margin: float | Shaped[Array, "..."] = 0.0) -> Inequality:
    """Joints of plain coordinates stay inside the limits of the model file; unlimited ones are left out.

    >>> arm = soa.models.puma560()
    >>> inside = soa.optimize.within_joint_limits(arm, margin=0.1)  # rad
    >>> print((inside.function(soa.State(arm.neutral(), jnp.zeros(6))) <= 0).all())
    True
    """
    lower, upper = (np.asarray(x, float) for x in (robot.limits.lower, robot.limits.upper))
    place, dof = [], []
    for joint, at_q, at_v in zip(robot.topology.joints, robot.topology.q_slices, robot.topology.v_slices, strict=True):
        if joint.nq == joint.nv:
            place += range(at_q.start, at_q.stop)
            dof += range(at_v.start, at_v.stop)
    limited = [k for k, d in enumerate(dof) if np.isfinite(lower[d]) or np.isfinite(upper[d])]
    if not limited:
        raise ValueError(f"No joint of robot {robot.name!r} has a limit.")
    low = [k for k in limited if np.isfinite(lower[dof[k]])]
    high = [k for k in limited if np.isfinite(upper[dof[k]])]
    q_low, q_high = np.array([place[k] for k in low], int), np.array([place[k] for k in high], int)
    v_low, v_high = np.array([dof[k] for k in low], int), np.array([dof[k] for k in high], int)

    def beyond(state: Any, *_: Any) -> Array:
        below = robot.limits.lower[v_low] + margin - state.q[q_low]
        return jnp.concatenate([below, state.q[q_high] - robot.limits.upper[v_high] + margin])

    return Inequality(beyond, "joint limits")


def clear_of_sphere(robot: Multibody, frame: str, center: Any, radius: Any, name: str | None = None) -> Inequality:
    """A frame's origin stays out of a ball: radius - |p - center| <= 0, metres.

    >>> ball = soa.optimize.clear_of_sphere(robot, "tip", (0.0, 0.0, -2.0), 0.1)  # m
    >>> print(ball.function(soa.State(q, v)).round(3))  # negative outside, m
    [-0.016]
    """
    robot.topology.frame_number(frame)
    center = jnp.asarray(center)
    if center.shape != (3,):
        raise ValueError(f"The centre of a ball must be a world position (3,), got shape {center.shape}.")

    def inside(state: Any, *_: Any) -> Array:
        away = frame_pose(robot, state.q, frame)[1] - center
        return jnp.atleast_1d(radius - safe_norm(away))  # at the very centre no direction leads out

    return Inequality(inside, name or f"obstacle at {frame}")


def friction_cone(force: Callable[..., Array], coefficient: float | Array, normal: Any = (0, 0, 1)) -> Inequality:
    """A contact force (3,), as a function of state and control, presses, and within its cone of friction.

    |tangential| <= coefficient * normal part; squared, so that it is smooth where the force points along the normal.

    >>> grip = soa.optimize.friction_cone(lambda state, force: force, 0.5)  # force: N
    >>> print((grip.function(None, jnp.array([1.0, 0.0, 4.0])) <= 0).all())
    True
    """
    axis = jnp.asarray(normal, float)
    axis = axis / jnp.sqrt(jnp.sum(axis * axis))

    def outside(*arguments: Any) -> Array:
        f = force(*arguments)
        along = f @ axis
        across = f - along * axis
        return jnp.stack([across @ across - (coefficient * along) ** 2, -along])

    return Inequality(outside, "friction cone")


def violated(
    solution: Any,
    path: Condition | Sequence[Condition] = (),
    final: Condition | Sequence[Condition] = (),
    *,
    tolerance: float = 1e-6,
) -> dict[str, float]:
    """Which constraints a `ConstrainedSolution` does not satisfy, and by how much: names of the constraints it was
    solved under, those of the path first. Empty where all are satisfied.

    Where two have one name the later gets a number: "obstacle at hand (2)". Of a batch give one problem at a time.

    >>> miss = lambda x: x @ x
    >>> problem = soa.optimize.step_problem(lambda x, u: x + 0.1 * u, controls=1, horizon=10, final_cost=miss)
    >>> ends = soa.optimize.Equality(lambda x: x - 0.5, "half way")
    >>> print(soa.optimize.violated(soa.optimize.constrained(problem, jnp.ones(1), final=ends), final=ends))
    {}
    """
    found = (*conditions(path), *conditions(final))
    if not is_concrete(solution.violations):
        raise ValueError("violated looks at values: call it outside of jit, or use solution.violations.")
    if np.shape(solution.violations) != (len(found),):
        raise ValueError(
            f"The solution has violations of shape {np.shape(solution.violations)}, and there are {len(found)} "
            "constraints: give those it was solved under, and of a batch one problem at a time."
        )
    names, report = [one.name for one in found], {}
    for k, size in enumerate(np.asarray(solution.violations)):
        if not size <= tolerance:  # NaN is no satisfaction
            before = names[:k].count(names[k])
            report[names[k] + (f" ({before + 1})" if before else "")] = float(size)
    return report
