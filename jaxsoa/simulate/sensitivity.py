"""How a simulated motion depends on numbers of the model or of anything else it is made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

from jaxsoa.model.multibody import Multibody
from jaxsoa.simulate._rollout import rollout
from jaxsoa.simulate.integrators import State


class Sensitivity(NamedTuple):
    """A motion and its derivatives by the parameters, q's along tangents at the state of each step."""

    q: Float[Array, "steps nq"]
    v: Float[Array, "steps nv"]
    dq: Float[Array, "steps nv p"]
    dv: Float[Array, "steps nv p"]


def trajectory_sensitivity(
    model: Callable[[Array], Any],
    parameters: Shaped[Array, " p"],
    q: Shaped[Array, " nq"],
    v: Shaped[Array, " nv"],
    control: Any,
    dt: float | Array,
    **options: Any,
) -> Sensitivity:
    """The rollout of `model(parameters)` from (q, v) with its derivatives by each of the parameters (p,).

    The linear sensitivity model x' = A x + B dp is integrated beside the motion, all parameters at once: it is the
    forward derivative of every step, each in O(N) by the linearized equations of motion, and no step is stored.
    `model` returns a robot, or (robot, q, v) where the start depends on the parameters too. `options` are `rollout`'s
    (`steps`, `integrator`, `passive`, `loops`, ...; not `record`).

    >>> heavier = lambda mass: robot.replace(mass=mass)
    >>> found = soa.simulate.trajectory_sensitivity(heavier, robot.mass, q, v, None, 0.01, steps=2)
    >>> print(found.q.shape, found.dq.shape)  # steps, joints, masses
    (2, 2) (2, 2, 2)
    """
    parameters = jnp.asarray(parameters)
    if parameters.ndim != 1:
        raise ValueError(f"parameters must be one vector (p,), got shape {parameters.shape}.")

    def run(p: Array) -> tuple[Multibody, State]:
        made = model(p)
        robot, q_start, v_start = made if isinstance(made, tuple) else (made, q, v)
        return robot, rollout(robot, q_start, v_start, control, dt, **options)

    robot, path = run(parameters)  # not a constant: derivatives of what is found here look at it too

    def seen(p: Array) -> tuple[Array, Array]:
        _, moved = run(p)
        return jax.vmap(robot.difference)(path.q, moved.q), moved.v

    dq, dv = jax.jacfwd(seen)(parameters)
    return Sensitivity(path.q, path.v, dq, dv)
