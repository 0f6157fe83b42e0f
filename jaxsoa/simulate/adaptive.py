"""Adaptive solvers: the equations of motion as a vector field for diffrax (or any solver of y' = f(t, y))."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Shaped

from jaxsoa.closed_chain.constraints import Constraint
from jaxsoa.closed_chain.loops import check_loops
from jaxsoa.mesh_axes import inside_shard_map, refuse_varying
from jaxsoa.model.multibody import Multibody
from jaxsoa.simulate.control import Controller, has_memory
from jaxsoa.simulate.equations import ExternalForce, accelerations_of, as_prescribed, check_start, onto_loops
from jaxsoa.simulate.integrators import Passive, State, as_tuple


def vector_field(
    robot: Multibody,
    control: Controller | None = None,
    *,
    passive: Passive | Sequence[Passive] = (),
    f_ext: ExternalForce | None = None,
    loops: Sequence[Constraint] | Constraint = (),
    prescribed: Any = None,
    stabilization: tuple[float, float] | None = (10.0, 10.0),
) -> Callable[[Any, State, Any], State]:
    """f(t, State(q, v), args) -> State(q', a), for `diffrax.ODETerm`. `control` is a function `(time, q, v) -> tau`.

    q' is the derivative of the coordinates: for quaternions q (0, w) / 2, taken at the normalized quaternion, so it is
    always at right angles to it and the exact flow keeps the norm; a solver's error in the norm does no harm.

    `f_ext`, `loops`, `prescribed` as in `rollout` (without rows per step). An error of the loops decays by Baumgarte's
    `stabilization` (damping, frequency) in 1/s.

    >>> print(soa.simulate.vector_field(robot)(0.0, soa.State(q, v), None).q)  # rad/s
    [0.4 0.2]
    """
    if has_memory(control):
        raise ValueError("An adaptive solver chooses its own times: the controller must be a function (time, q, v).")
    forces, closed = as_tuple(passive), check_loops(robot, loops)

    def field(time, state: State, args=None) -> State:
        q, v = robot.check_q(state[0]), robot.check_v(state[1])
        tau = jnp.zeros_like(v) if control is None else control(time, q, v)
        held = as_prescribed(robot, prescribed(time, q, v) if callable(prescribed) else prescribed, v)
        accelerate = accelerations_of(robot, tau, forces, f_ext, closed, held, stabilization if closed else None)
        zero = jnp.zeros((), v.dtype)
        _, rate = jax.jvp(lambda t: robot.integrate(q, t * v), (zero,), (jnp.ones_like(zero),))
        return State(rate, accelerate(q, v))

    return field


def solve_adaptively(
    robot: Multibody,
    q: Shaped[Array, " nq"],
    v: Shaped[Array, " nv"],
    control: Controller | None,
    times: Shaped[Array, " times"],
    *,
    rtol: float = 1e-8,
    atol: float = 1e-8,
    solver: Any = None,
    passive: Passive | Sequence[Passive] = (),
    f_ext: ExternalForce | None = None,
    loops: Sequence[Constraint] | Constraint = (),
    prescribed: Any = None,
    max_steps: int = 100_000,
    **options: Any,
) -> State:
    """The states at the given times, from (q, v) at times[0], by a diffrax solver (Dopri8 unless given) to a tolerance.

    `f_ext`, `loops` and `prescribed` as in `vector_field`; the states returned are projected onto the loops (not where
    joints are prescribed: which of them moves freely may change between the times).

    Inside `jax.shard_map` it needs `check_vma=False`, as the loops of diffrax do (`sharded_map` does that).
    Needs diffrax (`pip install jaxsoa[ode]`). Further `options` go to `diffrax.diffeqsolve` (adjoint, dt0, ...).

    Units: rad, rad/s, s.

    >>> states = soa.simulate.solve_adaptively(robot, q, v, None, jnp.array([0.0, 0.5, 1.0]))
    >>> print(states.q.shape)
    (3, 2)
    """
    try:
        import diffrax
    except ImportError as error:
        raise ImportError("solve_adaptively needs diffrax: pip install 'jaxsoa[ode]'.") from error
    q, v = robot.check_q(q), robot.check_v(v)
    dtype = jnp.result_type(q, v, robot.mass)
    times = jnp.asarray(times, dtype)
    if times.ndim != 1 or times.shape[0] < 2:
        raise ValueError(f"times must be at least two increasing times, the first that of (q, v); got {times.shape}.")
    closed = check_loops(robot, loops)
    check_start(robot, closed, q)
    settings = {"dt0": None, "stepsize_controller": diffrax.PIDController(rtol=rtol, atol=atol), **options}
    field = vector_field(robot, control, passive=passive, f_ext=f_ext, loops=closed, prescribed=prescribed)
    begin = State(q.astype(dtype), v.astype(dtype))
    if inside_shard_map():
        seen = (begin, times, jax.eval_shape(field, times[0], begin))
        refuse_varying("solve_adaptively", seen, "the loops of diffrax do not keep these types")
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(field),
        diffrax.Dopri8() if solver is None else solver,
        times[0],
        times[-1],
        y0=begin,
        saveat=diffrax.SaveAt(ts=times),
        max_steps=max_steps,
        **settings,
    )
    states: Any = solution.ys
    q = jax.vmap(robot.normalize)(states.q)
    if not closed or prescribed is not None:
        return State(q, states.v)
    return State(*jax.vmap(lambda q, v: onto_loops(robot, closed, q, v, None, iterations=2))(q, states.v))
