"""What a trajectory problem consists of: dynamics in discrete time, costs, a horizon, limits on the controls.

    minimize   sum_k dt l(x_k, u_k) + l_f(x_N)      subject to   x_{k+1} = step(x_k, u_k),   lower <= u_k <= upper.

States may lie on a manifold (quaternions): derivatives and feedback live in tangent coordinates, and `integrate` and
`difference` move between the two.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from jaxsoa.closed_chain.loops import check_loops
from jaxsoa.model.mimics import check_mimics, follow_mimics
from jaxsoa.model.multibody import Multibody
from jaxsoa.optimize.costs import Cost, terms
from jaxsoa.protocols import check_takes
from jaxsoa.simulate.integrators import Integrator, State, as_step
from jaxsoa.simulate.linearized_step import Step, constrained_step, linearize_step
from jaxsoa.simulate.mimics import with_mimics


class Dynamics(eqx.Module):
    """One step in time. A subclass says how; states are added to as vectors unless it says otherwise."""

    @property
    @abc.abstractmethod
    def nu(self) -> int:
        """Number of controls."""

    @property
    def dtype(self) -> Any:
        """The floating type of states and controls; None where it is that of the initial state."""
        return None

    def check_start(self, start: Any) -> Any:
        """The initial state as `step` wants it; what cannot be one raises."""
        return start

    @abc.abstractmethod
    def step(self, state: Any, control: Array) -> Any:
        """The next state."""

    def integrate(self, state: Any, dx: Array) -> Any:
        """The state moved by a tangent vector."""
        flat, restore = ravel_pytree(state)
        return restore(flat + dx)

    def difference(self, start: Any, end: Any) -> Array:
        """The tangent vector that moves `start` to `end`."""
        return ravel_pytree(end)[0] - ravel_pytree(start)[0]

    def linearize(self, state: Any, control: Array) -> tuple[Array, Array]:
        """A (nx, nx) and B (nx, nu) in tangent coordinates, here by forward mode."""
        arrived = self.step(state, control)
        still = jnp.zeros_like(self.difference(state, state))
        return jax.jacfwd(lambda dx, u: self.moved(state, u, dx, arrived), argnums=(0, 1))(still, control)

    def moved(self, state: Any, control: Array, dx: Array, arrived: Any) -> Array:
        """Where the step leads from near `state`, as seen from `arrived`."""
        return self.difference(arrived, self.step(self.integrate(state, dx), control))


class RobotDynamics(Dynamics):
    """A robot under torques held over each step. States are `State(q, v)`, tangents (dq, dv)."""

    robot: Multibody
    dt: float | Array
    actuated: tuple[int, ...] = eqx.field(static=True)  # degrees of freedom that the controls drive
    integrator: Step = eqx.field(static=True)
    analytical: bool = eqx.field(static=True)
    contact: Any = None  # a contact.Scene, whose step replaces the integrator
    loops: Any = ()  # what closes a mechanism; every step ends on it
    prescribed: Any = None  # joints whose motion is given
    coupled: bool = eqx.field(static=True, default=False)  # mimic joints follow: the parts above see to it

    @property
    def nu(self) -> int:
        return len(self.actuated)

    @property
    def dtype(self) -> Any:
        return self.robot.dtype

    def torques(self, control: Array) -> Array:
        """Controls to torques of all degrees of freedom, zero where there is no motor."""
        if self.actuated == tuple(range(self.robot.nv)):
            return control
        place = np.full(self.robot.nv, self.nu)
        place[list(self.actuated)] = np.arange(self.nu)
        return jnp.concatenate([control, jnp.zeros(1, control.dtype)])[place]

    def step(self, state: State, control: Array) -> State:
        step = self.integrator if self.contact is None else self.contact.advance
        if self.loops or self.prescribed is not None:
            step = constrained_step(self.integrator, self.loops, self.prescribed)
        return State(*step(self.robot, state.q, state.v, self.torques(control), self.dt))

    def check_start(self, start: Any) -> State:
        """`soa.State(q, v)`, or the pair."""
        pair = tuple(start) if isinstance(start, tuple | list) else ()
        if len(pair) != 2:
            got = f"a {type(start).__name__}" + (f" of {len(pair)}" if pair else "")
            raise TypeError(f"The initial state of robot {self.robot.name!r} is soa.State(q, v), got {got}.")
        q, v = self.robot.check_q(pair[0]), self.robot.check_v(pair[1])
        return State(*(follow_mimics(self.robot, q, v) if self.coupled else (q, v)))

    @property
    def _step(self) -> dict:
        if self.contact is not None:
            return {"contact": self.contact, "mimics": "free"}
        return {"step": self.integrator, "loops": self.loops, "prescribed": self.prescribed, "mimics": "free"}

    def integrate(self, state: State, dx: Array) -> State:
        nv = self.robot.nv
        return State(self.robot.integrate(state.q, dx[:nv]), state.v + dx[nv:])

    def difference(self, start: State, end: State) -> Array:
        return jnp.concatenate([self.robot.difference(start.q, end.q), end.v - start.v])

    def linearize(self, state: State, control: Array) -> tuple[Array, Array]:
        """By `linearize_step` (the analytical model), or by plain forward mode through the integrator."""
        if not self.analytical:
            return super().linearize(state, control)
        A, B = linearize_step(self.robot, state.q, state.v, self.torques(control), self.dt, **self._step)
        return A, B if self.nu == self.robot.nv else B[:, np.array(self.actuated, int)]


class StepDynamics(Dynamics):
    """Any function `(state, control) -> state`. Give both `integrate` and `difference` for states on a manifold."""

    function: Callable[[Any, Array], Any]
    controls: int = eqx.field(static=True)
    integrator: Callable[[Any, Array], Any] | None = None
    comparison: Callable[[Any, Any], Array] | None = None

    @property
    def nu(self) -> int:
        return self.controls

    def step(self, state: Any, control: Array) -> Any:
        return self.function(state, control)

    def integrate(self, state: Any, dx: Array) -> Any:
        return super().integrate(state, dx) if self.integrator is None else self.integrator(state, dx)

    def difference(self, start: Any, end: Any) -> Array:
        return super().difference(start, end) if self.comparison is None else self.comparison(start, end)


class Problem(eqx.Module):
    """A trajectory problem; `robot_problem` and `step_problem` make one. Costs may be modules with arrays."""

    dynamics: Dynamics
    running_cost: tuple[Cost, ...]
    final_cost: tuple[Cost, ...]
    dt: float | Array
    horizon: int = eqx.field(static=True)
    limits: tuple[Array, Array] | None = None
    per_step: Any = None  # a pytree with a leading axis of `horizon`, a row of which each running cost takes third

    def check_controls(self, controls: Array | None, dtype) -> Float[Array, "horizon nu"]:
        """Controls of the right shape (zeros for None), inside the limits."""
        shape = (self.horizon, self.dynamics.nu)
        controls = jnp.zeros(shape, dtype) if controls is None else jnp.asarray(controls, dtype)
        if controls.shape != shape:
            raise ValueError(f"controls must have shape (horizon, nu) = {shape}, got {controls.shape}.")
        return self.clip(controls)

    def clip(self, control: Array) -> Array:
        """Controls (..., m) brought within the limits, if there are any."""
        limits = self.limits_as(control.dtype)
        return control if limits is None else jnp.clip(control, *limits)

    def limits_as(self, dtype) -> tuple[Array, Array] | None:
        """(lower, upper) in the floating type of the trajectory."""
        return None if self.limits is None else (self.limits[0].astype(dtype), self.limits[1].astype(dtype))


def step_problem(
    step: Callable[[Any, Array], Any],
    *,
    controls: int,
    horizon: int,
    dt: float | Array = 1.0,
    running_cost: Cost | Sequence[Cost] | None = None,
    final_cost: Cost | Sequence[Cost] | None = None,
    limits: Any = None,
    integrate: Callable[[Any, Array], Any] | None = None,
    difference: Callable[[Any, Any], Array] | None = None,
    per_step: Any = None,
) -> Problem:
    """A problem about any step function `(state, control) -> state`, linearized by automatic differentiation.

    `dt` only weighs the running cost. `limits` is as in `robot_problem`.

    >>> problem = soa.optimize.step_problem(
    ...     lambda x, u: x + 0.1 * u, controls=1, horizon=20, final_cost=lambda x: jnp.sum((x - 1) ** 2)
    ... )
    >>> print(problem.horizon)
    20
    """
    if (integrate is None) != (difference is None):
        raise ValueError("Give both integrate and difference, or neither (states that add like vectors).")
    dynamics = StepDynamics(step, controls, integrate, difference)
    return _problem(dynamics, horizon, dt, running_cost, final_cost, limits, per_step)


def robot_problem(
    robot: Multibody,
    *,
    horizon: int,
    dt: float | Array,
    running_cost: Cost | Sequence[Cost] | None = None,
    final_cost: Cost | Sequence[Cost] | None = None,
    torque_limits: Any = None,
    actuated: Sequence[str] | None = None,
    integrator: str | Integrator = "semi_implicit_euler",
    step: Step | None = None,
    analytical: bool = True,
    per_step: Any = None,
    contact: Any = None,
    loops: Any = (),
    prescribed: Any = None,
    mimics: Literal["coupled", "free"] = "coupled",
) -> Problem:
    """A problem about a robot's joint torques, held over `horizon` steps of `dt`. States are `soa.State(q, v)`.

        reach = LeastSquares(lambda state: 10 * (soa.frame_pose(robot, state.q, "tool")[1] - target))
        effort = LeastSquares(lambda state, torque: 0.1 * torque)
        problem = robot_problem(robot, horizon=100, dt=0.02, running_cost=effort, final_cost=reach)
        plan = ilqr(problem, soa.State(q, v))

    `running_cost(state, control)` is a rate (it is multiplied by dt), `final_cost(state)` is not; either may be a tuple
    of costs, and `LeastSquares` marks those to be modelled by Gauss-Newton. `actuated` names the joints that have
    motors (None: all), in the order of the controls. `torque_limits`: None, one number or one per control (both signs),
    a pair (lower, upper), or "model" for the efforts of the model file. `integrator` is a name or a function, as in
    `soa.step`; `step(robot, q, v, tau, dt) -> (q, v)`, as in `linearize_step`, takes its place where a whole step is
    something else. `analytical=False` differentiates by plain forward mode.
    With `loops` (what closes a mechanism) every step ends on them, and `prescribed` joints move as given, as in
    `soa.step`; the start must be closed.
    With `contact` (a `contact.Scene`; its gradient="relaxed" helps a search) every step enforces those contacts.
    Mimic joints follow, as in `rollout`, or are "free" (`mimics`); a `step` of your own does what it does.
    With `per_step` (a pytree of references, say) running costs are called as `(state, control, row of this step)`.

    Units: s, N m.

    >>> aim = soa.optimize.LeastSquares(lambda state, u: jnp.concatenate([state.q, 0.1 * state.v, 0.01 * u]))
    >>> problem = soa.optimize.robot_problem(robot, horizon=20, dt=0.05, running_cost=aim)
    >>> print(problem.horizon)
    20
    """
    if actuated is None:
        driven = tuple(range(robot.nv))
    else:
        slices = [robot.v_index(name) for name in actuated]
        driven = tuple(i for s in slices for i in range(s.start, s.stop))
        if len(set(driven)) != len(driven):
            raise ValueError(f"actuated names a joint twice: {tuple(actuated)}.")
    if isinstance(torque_limits, str):
        if torque_limits != "model":
            raise ValueError(f'torque_limits must be numbers or "model", got {torque_limits!r}.')
        torque_limits = robot.limits.effort[np.array(driven, int)]
    dt = robot.check_number(dt)
    if step is not None:
        hint = " An integrator's name goes to integrator=." if isinstance(step, str) else ""
        check_takes(step, "step", "(robot, q, v, tau, dt) -> (q, v)", hint)
        if integrator != "semi_implicit_euler":
            raise ValueError("Give an integrator or a step, not both: a step is the whole of it.")
    loops = check_loops(robot, loops)
    if contact is not None and (loops or prescribed is not None):
        raise ValueError("contact cannot be combined with loops or prescribed joints yet.")
    coupled = check_mimics(mimics) == "coupled" and bool(robot.topology.mimics) and step is None
    if coupled:
        integrator, loops, contact = with_mimics(robot, integrator, loops, prescribed, contact)
    advance: Any = as_step(integrator) if step is None else step
    dynamics = RobotDynamics(robot, dt, driven, advance, analytical, contact, loops, prescribed, coupled)
    return _problem(dynamics, horizon, dt, running_cost, final_cost, torque_limits, per_step)


def _problem(dynamics: Dynamics, horizon, dt, running_cost, final_cost, limits, per_step) -> Problem:
    if horizon < 1:
        raise ValueError(f"horizon must be at least one step, got {horizon}.")
    if not isinstance(dt, Tracer) and not np.all(np.asarray(dt) > 0):
        raise ValueError(f"dt must be positive, got {dt}.")
    for leaf in jax.tree.leaves(per_step):
        if jnp.shape(leaf)[:1] != (horizon,):
            raise ValueError(f"Arrays in per_step need a leading axis of horizon = {horizon}, got {jnp.shape(leaf)}.")
    running, final = terms(running_cost), terms(final_cost)  # type: ignore[arg-type]
    if not running and not final:
        raise ValueError("A problem needs a running_cost or a final_cost.")
    return Problem(dynamics, running, final, dt, horizon, _limits(limits, dynamics.nu), per_step)


def _limits(limits: Any, nu: int) -> tuple[Array, Array] | None:
    """(lower, upper), each (nu,); None where nothing is limited."""
    if limits is None:
        return None
    lower, upper = limits if isinstance(limits, tuple | list) else (-jnp.abs(jnp.asarray(limits)), jnp.asarray(limits))
    pair = []
    for side in (lower, upper):
        side = jnp.asarray(side, jnp.result_type(float))
        if side.shape not in ((), (nu,)):
            raise ValueError(f"Limits must be numbers or have one entry per control, ({nu},); got {side.shape}.")
        pair.append(jnp.broadcast_to(side, (nu,)))
    if not any(isinstance(side, Tracer) for side in pair) and not np.all(np.asarray(pair[0]) <= np.asarray(pair[1])):
        raise ValueError(f"The lower limits exceed the upper ones: {pair[0]} and {pair[1]}.")
    return pair[0], pair[1]
