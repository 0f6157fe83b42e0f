"""Many steps: a scan over time."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PyTree, Shaped

from jaxsoa.closed_chain.constraints import Constraint
from jaxsoa.closed_chain.loops import check_loops
from jaxsoa.eager import compiled
from jaxsoa.kernels.jax_interface import nothing_traced
from jaxsoa.mesh_axes import scan
from jaxsoa.model.mimics import check_mimics, follow_mimics
from jaxsoa.model.multibody import Multibody
from jaxsoa.simulate.actuators import Actuators
from jaxsoa.simulate.control import Actuator, Controller, call_actuators, call_controller, command_size, initial_memory
from jaxsoa.simulate.equations import ExternalForce, Prescribed, as_prescribed, check_prescription, check_start
from jaxsoa.simulate.integrators import Integrator, Passive, State, as_tuple, check_contact, step, step_with_contact
from jaxsoa.simulate.joint_limits import JointLimits, prepared
from jaxsoa.simulate.mimics import with_mimics
from jaxsoa.simulate.progress import ProgressBar
from jaxsoa.simulate.segments import in_blocks, segment_length, segmented_scan


class Sample(NamedTuple):
    """What `record` may look at, after a step."""

    time: Float[Array, ""]
    q: Float[Array, " nq"]
    v: Float[Array, " nv"]
    tau: Float[Array, " nv"]  # what the actuators gave during the step
    memory: PyTree  # of controller and actuators; hand it to the next rollout's `memory` to go on
    contact: Any = None  # the `contact.Step` that led here, where a scene is given: impulses, gaps, residual


class _Carry(NamedTuple):
    state: State
    memory: PyTree
    residual: Any = None  # the largest of the contact solver so far
    broken: Any = None  # the first step whose state is not finite, -1 so far; only where somebody will be told


def rollout(
    robot: Multibody,
    q: Shaped[Array, " nq"],
    v: Shaped[Array, " nv"],
    control: Float[Array, "steps nv"] | Controller | None,
    dt: float | Array,
    *,
    steps: int | None = None,
    integrator: str | Integrator = "semi_implicit_euler",
    actuators: Actuator | Sequence[Actuator] = (),
    passive: Passive | Sequence[Passive] = (),
    f_ext: ExternalForce | None = None,
    loops: Sequence[Constraint] | Constraint = (),
    prescribed: Any = None,
    contact: Any = None,
    record: Callable[[Sample], Any] | Literal["final"] | None = None,
    every: int = 1,
    checkpoint: bool | Literal["segments"] = True,
    progress: bool = False,
    time: float | Array = 0.0,
    memory: PyTree = None,
    mimics: Literal["coupled", "free"] = "coupled",
) -> Any:
    """Simulate from (q, v). Returns the states after each step, stacked: q (steps, nq), v (steps, nv).

    - `control`: an array of torques (one row per step; of commands, where the first actuator takes others), a function
      `(time, q, v) -> tau`, a controller with memory (see `control.py`), or None for no torque; all but the array need
      `steps`. The torque is held through a step.
    - `integrator`: one of those of `step`, or a function `(robot, acceleration, q, v, dt) -> (q, v)`.
    - `actuators`: what the command passes through before it is a torque: `Saturation`, `Lag`, `Gear`, ...
    - `passive`: forces that follow the state inside a step, such as `JointLimits`.
    - `f_ext`: external forces (n_links, 6), (steps, n_links, 6), or a function `(robot, q, v)` that gives them (see
      `external_forces`) and follows the state inside a step.
    - `loops`: what closes the loops of a mechanism (`closed_chain`). Every step ends on them, by projection; a start
      that is not closed raises (inside jit it is pulled onto them by the first step).
    - `prescribed`: joints whose motion is given: a mask (bool (nv,): velocities stay), a pair (mask, accelerations),
      each (nv,) or (steps, nv), or a function `(time, q, v)` that gives the pair, held through a step.
    - `contact`: a `contact.Scene`; every step enforces its contacts (by semi-implicit Euler), loops and mimic joints in
      the same solve. Outside of jit a step that was not solved warns; inside, record `sample.contact.residual`.
    - `record`: a function of a `Sample` whose results are stacked and returned instead of the states, or "final" for
      the last state alone. With `every` = k only every k-th step is recorded; k must divide `steps`.
    - `checkpoint`: what reverse mode keeps. True: the state of every step, and each step is computed again. "segments":
      the states of about sqrt(steps) steps, at one more evaluation; worth it for long rollouts of large batches whose
      record is short. False: everything that the derivative needs.
    - `progress`: draw a bar on the terminal; works under jit, vmap and sharding.
    - `time` and `memory`: where to start from, to go on from the `Sample` of an earlier rollout.
    - `mimics`: the mimic joints of a URDF file follow their targets ("coupled", from the start on), or are "free".

    A state that is not finite (gains too high for dt, say) is returned as it is; outside of jit a warning names the
    first step that led to one.

    Outside of `jax.jit` one program serves all calls, unless Python functions are among the arguments (a controller, a
    record): what they close over may have changed, so they are traced and compiled anew by every call, a tenth of a
    second or more. Put `jax.jit` around a rollout that is called often.

    Units: rad, rad/s, N m, s.

    >>> motion = soa.rollout(robot, q, v, None, 0.01, steps=100)  # one second, no torque
    >>> print(motion.q.shape, motion.q[-1].round(3))
    (100, 2) [ 0.129 -0.553]
    """
    given = locals()
    found, broken = _simulated(**given, watched=nothing_traced())
    if broken is not None and int(broken) >= 0:
        number = int(broken) + 1
        message = (
            f"The rollout of {robot.name!r} is not finite from step {number} on (at "
            f"{float(time) + number * float(dt):g} s): are gains, stiffnesses or torques too high for a step of "
            f"{float(dt):g} s?"
        )
        warnings.warn(message, UserWarning, stacklevel=2)
    return found


@compiled(through_door=False, not_with=("passive", "contact", "loops", "prescribed", "actuators", "progress"))
def _simulated(
    robot: Multibody,
    q: Any,
    v: Any,
    control: Any,
    dt: Any,
    *,
    steps: Any,
    integrator: Any,
    actuators: Any,
    passive: Any,
    f_ext: Any,
    loops: Any,
    prescribed: Any,
    contact: Any,
    record: Any,
    every: Any,
    checkpoint: Any,
    progress: Any,
    time: Any,
    memory: Any,
    mimics: Any,
    watched: bool,
) -> tuple[Any, Any]:
    """What `rollout` returns; and if `watched`, the number of the first step whose state is not finite, or -1."""
    q, v, dt, time = robot.check_q(q), robot.check_v(v), robot.check_number(dt), robot.check_number(time, "time")
    if check_mimics(mimics) == "coupled" and robot.topology.mimics:
        q, v = follow_mimics(robot, q, v)
        integrator, loops, contact = with_mimics(robot, integrator, loops, prescribed, contact)
    torques = None
    if control is not None and not callable(control):
        torques = robot.convert(control, "control")
        width = command_size(robot, as_tuple(actuators))
        if torques.ndim != 2 or torques.shape[1] != width or steps not in (None, torques.shape[0]):
            raise ValueError(f"control must have shape (steps, nv) = ({steps}, {width}), got {torques.shape}.")
        steps = torques.shape[0]
    if steps is None:
        raise ValueError("rollout needs `steps` when control is a function or None.")
    if every < 1 or steps % every:
        raise ValueError(f"`every` must divide the number of steps, {steps}; got {every}.")
    if checkpoint not in (True, False, "segments"):
        raise ValueError(f'checkpoint must be True, False or "segments"; got {checkpoint!r}.')
    if not (record is None or record == "final" or callable(record)):
        raise ValueError(f'record must be None, "final" or a function of a Sample; got {record!r}.')
    actuators, forces = as_tuple(actuators), prepared(as_tuple(passive), robot, dt)
    for force in as_tuple(passive):
        if isinstance(force, JointLimits):
            force.warn_if_stiff(robot, dt)
    for part in actuators:
        if isinstance(part, Actuators):
            part.warn_if_stiff(dt)
    if contact is not None:
        check_contact(contact, integrator)
    loops = check_loops(robot, loops)
    check_start(robot, loops, q)
    external = f_ext if callable(f_ext) or f_ext is None else _rows(f_ext, steps, (robot.n_links, 6), "f_ext")
    given = prescribed if callable(prescribed) else _prescribed_rows(robot, prescribed, steps)
    if isinstance(given, Prescribed):
        check_prescription(robot, loops, q, v, jax.tree.map(lambda x: x[0], given))
    state = State(q, v)
    counting = watched and not (record is None and every == 1)  # else the record tells
    if memory is None:
        memory = (initial_memory(control, *state), tuple(initial_memory(part, *state) for part in actuators))
    memory = jax.tree.map(jnp.asarray, memory)

    def advance(carry: _Carry, x):
        (q, v), (own, parts) = carry.state, carry.memory
        number, command, pushed, held = x
        if callable(control):
            command, own = call_controller(control, time + number * dt, q, v, own, dt)
        elif command is None:
            command = jnp.zeros(command_size(robot, actuators), v.dtype)
        command = jax.tree.map(lambda x: robot.convert(x, "the controller's command"), command)
        tau, parts = call_actuators(actuators, command, q, v, parts, dt)
        pushed = external if callable(external) else pushed
        held = as_prescribed(robot, given(time + number * dt, q, v), v) if callable(given) else held
        options = {"integrator": integrator, "passive": forces, "f_ext": pushed, "loops": loops, "prescribed": held}
        options["mimics"] = "free"  # they follow already
        touched, residual = None, None
        if contact is None:
            after = State(*step(robot, q, v, tau, dt, **options))
        else:
            touched = step_with_contact(
                robot, q, v, robot.convert(tau, "tau"), dt, contact, pushed, forces, loops, held
            )
            after, residual = (
                State(touched.q, touched.v),
                jnp.maximum(carry.residual, lax.stop_gradient(touched.residual)),
            )
        # What is remembered keeps the type it started with.
        memory = jax.tree.map(lambda x, old: x if old is x else jnp.asarray(x, old.dtype), (own, parts), carry.memory)
        broken = carry.broken
        if counting:
            broken = jnp.where((broken < 0) & ~_finite(after), number, broken)
        return _Carry(after, memory, residual, broken), (robot.convert(tau, "tau"), touched)

    if checkpoint:
        advance = jax.checkpoint(advance, prevent_cse=False)  # inside a scan nothing could be merged anyway

    def observe(carry: _Carry, number, tau, touched):
        if record == "final":
            return None
        if record is None:
            return carry.state
        return record(Sample(time + (number + 1) * dt, *carry.state, tau, carry.memory, touched))

    def one_record(carry: _Carry, xs):
        if every == 1:
            carry, found = advance(carry, xs)
            return carry, observe(carry, xs[0], *found)
        carry, found = scan(advance, carry, xs)
        return carry, observe(carry, xs[0][-1], *jax.tree.map(lambda x: x[-1], found))

    rows = tuple(None if callable(x) else x for x in (external, given))
    xs = (jnp.arange(steps), torques, *rows)
    if every > 1:
        xs = in_blocks(xs, every)
    records = steps // every
    segment = segment_length(records) if checkpoint == "segments" and every == 1 else 1
    if checkpoint == "segments" and every > 1:
        one_record = jax.checkpoint(one_record, prevent_cse=False)  # the blocks between records are the segments
    report = _reporter(steps, every) if progress else None
    solved = None if contact is None else jnp.zeros((), robot.dtype)
    unbroken = jnp.asarray(-1, xs[0].dtype) if counting else None
    last, recorded = segmented_scan(one_record, _Carry(state, memory, solved, unbroken), xs, records, segment, report)
    if contact is not None:
        contact.warn_unsolved(last.residual, stacklevel=5)
    broken = last.broken
    if watched and not counting:
        finite = jax.vmap(_finite)(recorded)
        broken = jnp.where(jnp.all(finite), -1, jnp.argmin(finite))
    return (last.state if record == "final" else recorded), broken


def _finite(state: State) -> Array:
    return jnp.all(jnp.isfinite(state.q)) & jnp.all(jnp.isfinite(state.v))


def _rows(x: Any, steps: int, shape: tuple[int, ...], name: str) -> Array:
    """One row per step, from rows or from one for all steps."""
    if isinstance(x, dict):
        raise TypeError(
            f"{name} must be an array {shape}, or a function (robot, q, v) that gives one, got a dict: "
            "pass lambda robot, q, v: soa.external_forces(robot, q, {frame: wrench})."
        )
    x = jnp.asarray(x)
    if x.shape not in (shape, (steps, *shape)):
        raise ValueError(f"{name} must have shape {shape}, or {(steps, *shape)} for one row per step; got {x.shape}.")
    return jnp.broadcast_to(x, (steps, *shape))


def _prescribed_rows(robot: Multibody, prescribed: Any, steps: int) -> Prescribed | None:
    if prescribed is None:
        return None
    mask, a = prescribed if isinstance(prescribed, tuple) else (prescribed, jnp.zeros(robot.nv, robot.dtype))
    shape = (robot.nv,)
    return Prescribed(_rows(mask, steps, shape, "prescribed"), _rows(a, steps, shape, "prescribed accelerations"))


def _reporter(steps: int, every: int) -> Callable:
    """A function of the records made before and after, called inside the scan; a hundred drawings are enough."""
    bar = ProgressBar(steps, "simulating")
    records = steps // every
    stride = max(1, records // 100)

    def report(before, after):
        due = (after // stride > before // stride) | (after == records)
        lax.cond(due, lambda: jax.debug.callback(bar.update, after * every), lambda: None)

    return report
