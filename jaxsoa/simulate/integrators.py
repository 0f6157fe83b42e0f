"""One step in time: whatever acts on a robot, put together for the integrators of `schemes.py`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Literal

import jax.numpy as jnp
from jaxtyping import Array, Shaped

from jaxsoa.closed_chain.constraints import Constraint
from jaxsoa.eager import compiled
from jaxsoa.kernels import by_jax, door, ruled
from jaxsoa.model.mimics import check_mimics, follow_mimics
from jaxsoa.model.multibody import Multibody
from jaxsoa.simulate.equations import ExternalForce, accelerations_of, as_prescribed, onto_loops
from jaxsoa.simulate.joint_limits import prepared
from jaxsoa.simulate.linearized_step import Step, runge_kutta_4, semi_implicit_euler
from jaxsoa.simulate.schemes import INTEGRATORS, Integrator as Integrator, State as State, find_integrator

Passive = Callable[[Multibody, Array, Array], Array]  # (robot, q, v) -> generalized force (nv,)


def _state(robot: Multibody, found: Any) -> State:
    """What an integrator returns, if it is a state."""
    shapes = [jnp.shape(x) for x in found] if isinstance(found, tuple | list) else jnp.shape(found)
    if shapes != [(robot.nq,), (robot.nv,)]:
        raise ValueError(
            f"An integrator returns the next q ({robot.nq},) and v ({robot.nv},) of {robot.name!r}; this one returned "
            f"{'shapes ' + str(shapes) if isinstance(shapes, list) else 'one array of shape ' + str(shapes)}."
        )
    return State(*found)


def as_step(integrator: str | Integrator) -> Step:
    """A whole step `(robot, q, v, tau, dt) -> (q, v)` by an integrator, for `linearize_step`; equal for equal ones."""
    named = {"semi_implicit_euler": semi_implicit_euler, "rk4": runge_kutta_4}  # of closed or cheaper linearization
    if isinstance(integrator, str) and integrator in named:
        return named[integrator]
    find_integrator(integrator)
    return _Stepper(integrator)


@dataclasses.dataclass(frozen=True)
class _Stepper:
    integrator: str | Integrator

    def __call__(self, robot: Multibody, q, v, tau, dt) -> State:
        return step(robot, q, v, tau, dt, integrator=self.integrator, mimics="free")


def check_contact(contact: Any, integrator: str | Integrator = "semi_implicit_euler") -> None:
    """A scene of `jaxsoa.contact`, with the one integrator that knows contacts."""
    if not hasattr(contact, "advance"):
        raise TypeError(f"contact must be a contact.Scene, got {type(contact).__name__}.")
    if integrator != "semi_implicit_euler":
        raise ValueError(f"With contacts the integrator is 'semi_implicit_euler', got {integrator!r}.")


def as_tuple(one_or_several) -> tuple:
    """Callables given one by one or in a sequence, as a tuple."""
    return (one_or_several,) if callable(one_or_several) else tuple(one_or_several)


def step_with_contact(robot: Multibody, q, v, tau, dt, contact: Any, f_ext, forces, loops, given) -> Any:
    """The `contact.Step` of a scene under all that pushes: checked arguments of `step`, passive forces prepared."""
    torque = sum((force(robot, q, v) for force in forces), tau)
    external = f_ext(robot, q, v) if callable(f_ext) else f_ext
    return contact.stepped(robot, q, v, torque, dt, external, loops, given)


@cache
def _free_step(name: str) -> Callable[..., State]:
    """The step of a tree that nothing else acts on, as one kernel: in a loop over time nothing is left to start."""

    def stepped(robot: Multibody, q, v, tau, dt, f_ext) -> State:
        after = INTEGRATORS[name](robot, accelerations_of(robot, tau, (), f_ext, (), None), q, v, dt)
        return State(robot.convert(after[0], "q"), robot.convert(after[1], "v"))

    return ruled(by_jax(stepped))(door(stepped))


@compiled(not_with=("passive", "contact", "loops", "prescribed"))
def step(
    robot: Multibody,
    q: Shaped[Array, " nq"],
    v: Shaped[Array, " nv"],
    tau: Shaped[Array, " nv"],
    dt: float | Array,
    *,
    integrator: str | Integrator = "semi_implicit_euler",
    f_ext: ExternalForce | None = None,
    passive: Passive | Sequence[Passive] = (),
    loops: Sequence[Constraint] = (),
    prescribed: Any = None,
    contact: Any = None,
    mimics: Literal["coupled", "free"] = "coupled",
) -> State:
    """The state a time dt later under constant torques, by one of `INTEGRATORS` (or a function, see `Integrator`):

    - "semi_implicit_euler": first order, one evaluation of the dynamics; energy drifts (see there)
    - "leapfrog": second order, two evaluations; drift of third order
    - "variational_euler": first order, symplectic; an evaluation, five mass solves and two mass products; no drift
    - "implicit_midpoint": second order, symmetric, ten evaluations
    - "rk4": fourth order, four evaluations

    - `passive` forces, functions `(robot, q, v) -> (nv,)` such as `JointLimits`, follow the state inside the step: a
      method of order four stays one.
    - `f_ext`: external forces (n_links, 6), or a function `(robot, q, v)` that gives them.
    - `loops`: what closes the tree's loops; the step ends with a projection onto them (see `equations.py`).
    - `prescribed`: a pair (bool (nv,), accelerations (nv,)): where True the acceleration is given and the torque not
      read; the mask alone means zero accelerations. Both are held through the step and may change from step to step.
    - `contact`: a `contact.Scene` whose contacts are enforced (by semi-implicit Euler: other integrators are refused).
      Loops are closed in the same solve then, their drift removed by the scene's `recovery` and not by projection.
    - `mimics`: the mimic joints of a URDF file follow their targets ("coupled"), or are "free".

    Units: rad, rad/s, N m, s.

    >>> state = soa.step(robot, q, v, tau, 0.01)
    >>> print(state.q.round(4), state.v.round(4))
    [ 0.3032 -0.4957] [0.3216 0.4269]
    """
    q, v, tau, dt = robot.check_q(q), robot.check_v(v), robot.check_v(tau, "tau"), robot.check_number(dt)
    if check_mimics(mimics) == "coupled" and robot.topology.mimics:
        from jaxsoa.simulate.mimics import with_mimics  # which builds on this module

        q, v = follow_mimics(robot, q, v)
        integrator, loops, contact = with_mimics(robot, integrator, loops, prescribed, contact)
    given, forces = as_prescribed(robot, prescribed, v), prepared(as_tuple(passive), robot, dt)
    if integrator == "variational_euler" and (loops or given is not None):
        raise ValueError("variational_euler is for the free motion of a tree, not for loops or prescribed joints.")
    if contact is not None:
        check_contact(contact, integrator)
        touched = step_with_contact(robot, q, v, tau, dt, contact, f_ext, forces, loops, given)
        return State(touched.q, touched.v)
    alone = not (forces or loops or given is not None or callable(f_ext))
    if alone and integrator in ("semi_implicit_euler", "leapfrog"):
        return _free_step(integrator)(robot, q, v, tau, robot.convert(dt, "dt"), f_ext)
    acceleration = accelerations_of(robot, tau, forces, f_ext, loops, given)
    after = _state(robot, find_integrator(integrator)(robot, acceleration, q, v, dt))
    if loops:
        after = State(*onto_loops(robot, loops, *after, given))
    return State(robot.convert(after.q, "q"), robot.convert(after.v, "v"))
