"""The linearized step of a robot with its actuators: their memories (a lag's torque, say) are part of the state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Shaped

from jaxsoa.model.multibody import Multibody
from jaxsoa.simulate.control import Actuator, call_actuators, command_size, initial_memory
from jaxsoa.simulate.integrators import as_tuple, step
from jaxsoa.simulate.linearized_step import LinearizedStep


def linearize_actuated_step(
    robot: Multibody,
    q: Shaped[Array, " nq"],
    v: Shaped[Array, " nv"],
    command: Shaped[Array, " nu"],
    dt: float | Array,
    actuators: Actuator | Sequence[Actuator],
    *,
    memory: Any = None,
    **options: Any,
) -> LinearizedStep:
    """A and B of one step of `rollout` with actuators, in x = (dq, dv, dm) with m (k,) what the actuators remember.

    A is (2 nv + k, 2 nv + k), B (2 nv + k, nu) by the command. `memory` is as in `rollout` (a tuple, one entry per
    actuator; None: as they start). `options` are those of `soa.step`.

    >>> drive = soa.simulate.actuator_set(robot, [soa.simulate.motor("joint1", gear=5.0)])
    >>> found = jax.jit(soa.simulate.linearize_actuated_step)(robot, q, v, jnp.zeros(1), 0.01, drive)
    >>> print(found.A.shape, found.B.shape)  # with what the actuators remember
    (6, 6) (6, 1)
    """
    q, v, dt = robot.check_q(q), robot.check_v(v), robot.check_number(dt)
    actuators = as_tuple(actuators)
    command = robot.convert(command, "command")
    if command.shape != (command_size(robot, actuators),):
        raise ValueError(f"command must have shape ({command_size(robot, actuators)},), got {command.shape}.")
    if memory is None:
        memory = tuple(initial_memory(part, q, v) for part in actuators)
    remembered, restored = ravel_pytree(memory)
    nv = robot.nv

    def after(x: Array, du: Array) -> tuple[Array, Array, Array]:
        at, moving = robot.integrate(q, x[:nv]), v + x[nv : 2 * nv]
        tau, kept = call_actuators(actuators, command + du, at, moving, restored(remembered + x[2 * nv :]), dt)
        state = step(robot, at, moving, tau, dt, **options)
        return state.q, state.v, ravel_pytree(kept)[0]

    zero, still = jnp.zeros(2 * nv + len(remembered), v.dtype), jnp.zeros_like(command)
    arrived = after(zero, still)[0]

    def moved(x: Array, du: Array) -> Array:
        q_next, v_next, kept = after(x, du)
        return jnp.concatenate([robot.difference(arrived, q_next), v_next, kept])

    return LinearizedStep(*jax.jacfwd(moved, argnums=(0, 1))(zero, still))
