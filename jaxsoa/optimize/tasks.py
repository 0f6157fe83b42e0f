"""Ready trajectory problems, as `jaxsoa.models` are ready robots: swing-ups, reaching, a space arm, a closed chain.

Every task is least squares: weighted distances of the state from a goal, efforts, and where a frame is to go. The
weights are kept beside the problem, so that other solvers can be given the same one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxsoa import closed_chain as cc
from jaxsoa.dynamics.forward import forward_dynamics
from jaxsoa.dynamics.inverse import bias_force
from jaxsoa.dynamics.kinematics import frame_pose
from jaxsoa.mesh_axes import scan
from jaxsoa.model.builder import Builder
from jaxsoa.model.multibody import Multibody
from jaxsoa.models import cart_pole, pendulum
from jaxsoa.optimize.costs import LeastSquares
from jaxsoa.optimize.problem import Problem, robot_problem
from jaxsoa.simulate.integrators import State
from jaxsoa.simulate.linearized_step import Step, semi_implicit_euler
from jaxsoa.simulate.momentum import conserving_momentum, with_momentum


class Weights(NamedTuple):
    """Of squared deviations: state and final per entry of (dq, dv), control per entry, hand per metre."""

    state: Array
    control: Array
    final: Array
    hand: float = 0.0


class Task(NamedTuple):
    """A problem with its initial state, a first guess, and the numbers it was made of."""

    robot: Multibody
    problem: Problem
    start: State
    controls: Array
    goal: State
    weights: Weights
    hand: str | None = None  # the frame to bring to `target` at the end
    target: Array | None = None

    def error(self, state: State) -> Array:
        """Distance of the hand from its target, or of the state from its goal where no hand was named."""
        if self.hand is not None and self.target is not None:
            return jnp.linalg.norm(frame_pose(self.robot, state.q, self.hand)[1] - self.target)
        return jnp.linalg.norm(_deviation(self.robot, self.goal, state))


def _deviation(robot: Multibody, goal: State, state: State) -> Array:
    return jnp.concatenate([robot.difference(goal.q, state.q), state.v - goal.v])


def regulation(
    robot: Multibody,
    start: State,
    goal: State,
    weights: Weights,
    *,
    horizon: int,
    dt: float,
    controls: Array | None = None,
    hand: str | None = None,
    target: Array | None = None,
    torque_limits=None,
    actuated: Sequence[str] | None = None,
    step: Step = semi_implicit_euler,
    analytical: bool = True,
) -> Task:
    """Bring a robot from `start` to `goal` (and its hand to `target`) at the least weighted sum of squares."""
    final = [LeastSquares(lambda x: jnp.sqrt(weights.final) * _deviation(robot, goal, x))]
    if hand is not None and target is not None:
        final.append(LeastSquares(lambda x: jnp.sqrt(weights.hand) * (frame_pose(robot, x.q, hand)[1] - target)))
    running = LeastSquares(
        lambda x, u: jnp.concatenate(
            [jnp.sqrt(weights.state) * _deviation(robot, goal, x), jnp.sqrt(weights.control) * u]
        )
    )
    problem = robot_problem(
        robot,
        horizon=horizon,
        dt=dt,
        running_cost=running,
        final_cost=tuple(final),
        torque_limits=torque_limits,
        actuated=actuated,
        step=step,
        analytical=analytical,
    )
    controls = problem.check_controls(controls, robot.dtype)
    return Task(robot, problem, start, controls, goal, weights, hand, target)


def pendulum_swing_up(*, torque: float = 2.0, horizon: int = 100, dt: float = 0.03) -> Task:
    """A 1 kg, 1 m rod with a motor too weak to lift it (4.9 N m would hold it level): it has to swing."""
    robot = pendulum()
    still = jnp.zeros(1, robot.dtype)
    weights = Weights(jnp.array([0.0, 0.02]), jnp.array([0.1]), jnp.array([400.0, 40.0]))
    goal = State(still + jnp.pi, still)
    return regulation(robot, State(still, still), goal, weights, horizon=horizon, dt=dt, torque_limits=torque)


def cart_pole_swing_up(*, force: float | None = 15.0, horizon: int = 100, dt: float = 0.02) -> Task:
    """A pole on a cart, hanging at first; only the cart is driven."""
    robot = cart_pole()
    still = jnp.zeros(2, robot.dtype)
    weights = Weights(jnp.array([0.1, 0.1, 0.01, 0.01]), jnp.array([0.01]), jnp.array([100.0, 400.0, 20.0, 20.0]))
    start = State(still.at[1].set(jnp.pi), still)
    return regulation(
        robot, start, State(still, still), weights, horizon=horizon, dt=dt, torque_limits=force, actuated=["joint1"]
    )


def reaching(
    robot: Multibody,
    q: Array,
    hand: str,
    target: Array,
    *,
    torque_limits="model",
    horizon: int = 100,
    dt: float = 0.01,
    analytical: bool = True,
) -> Task:
    """An arm at rest at q brings a frame to a point of the world, at rest; the first guess holds it where it is."""
    still = jnp.zeros(robot.nv, robot.dtype)
    weights = Weights(
        jnp.concatenate([still + 1e-2, still + 1.0]),
        still + 1e-2,
        jnp.concatenate([still, still + 10.0]),
        1e4,
    )
    holding = jax.jit(bias_force)(robot, q, still)  # compiled: op by op it would take longer
    controls = jnp.broadcast_to(holding, (horizon, robot.nv))
    return regulation(
        robot,
        State(q, still),
        State(q, still),
        weights,
        horizon=horizon,
        dt=dt,
        controls=controls,
        hand=hand,
        target=jnp.asarray(target),
        torque_limits=torque_limits,
        analytical=analytical,
    )


def space_arm(joints: int = 6) -> Multibody:
    """A 40 kg satellite, free in space (no gravity), with an arm of 2 kg rods on alternating hinges, frame `hand`."""
    builder = Builder("space_arm")
    builder.link("satellite", joint="free", joint_name="floating_base", mass=40.0, inertia=np.diag([2.0, 2.5, 3.0]))
    parent, place = "satellite", (0.4, 0.0, 0.0)
    rod = {"mass": 2.0, "com": (0.2, 0, 0), "inertia": np.diag([2e-3, 0.03, 0.03])}
    for k in range(joints):
        axis = (0, 0, 1) if k % 2 == 0 else (0, 1, 0)
        builder.link(f"arm{k + 1}", joint="continuous", parent=parent, position=place, axis=axis, **rod)
        parent, place = f"arm{k + 1}", (0.4, 0.0, 0.0)
    builder.frame("hand", link=parent, position=place)
    return builder.build(gravity=(0.0, 0.0, 0.0))


def momentum_keeping_step(robot: Multibody, q, v, tau, dt, *, dynamics=forward_dynamics):
    """Semi-implicit Euler, corrected so that a free-flying robot keeps its momentum to rounding."""
    return _KEEPING(robot, lambda q, v: dynamics(robot, q, v, tau), q, v, dt)


_KEEPING = conserving_momentum("semi_implicit_euler")


def reorient(robot: Multibody, q: Array, turn: Array, *, steps: int = 20) -> Array:
    """Where a free-flying robot at q comes to if its joints turn by `turn` and it stays without momentum.

    The satellite yields to every motion of the joints, so this is another place than the joints alone would say.
    """

    def rate(q):
        wanted = jnp.concatenate([jnp.zeros(6, q.dtype), turn])
        return with_momentum(robot, q, wanted, jnp.zeros(6, q.dtype)) / steps

    def midpoint(q, _):
        return robot.integrate(q, rate(robot.integrate(q, rate(q) / 2))), None

    return scan(midpoint, q, length=steps)[0]


def space_reaching(
    *,
    joints: int = 6,
    torque: float | None = 2.0,
    horizon: int = 100,
    dt: float = 0.02,
    step: Step = momentum_keeping_step,
) -> Task:
    """A free-flying arm brings its hand to a point with its arm motors alone: the satellite yields, momentum stays.

    The target lies where the hand can come without momentum (`reorient`). One that only a standing satellite could
    reach has to be swum for, by turns of the arm that do not commute, and no solver finds that easily.
    """
    robot = space_arm(joints)
    q = robot.neutral().at[7:].set(jnp.resize(jnp.array([0.6, -0.9, 0.5, 0.8, -0.4, 0.3]), (joints,)))
    still = jnp.zeros(robot.nv, robot.dtype)
    satellite = jnp.arange(robot.nv) < 6
    weights = Weights(
        jnp.concatenate([jnp.where(satellite, 0.0, 1e-2), jnp.where(satellite, 0.0, 1.0)]),
        jnp.full(joints, 1e-2),
        jnp.concatenate([still, jnp.where(satellite, 0.0, 10.0)]),
        1e4,
    )
    turn = jnp.resize(jnp.array([0.6, -0.4, -0.6]), (joints,))
    target = jax.jit(lambda q: frame_pose(robot, reorient(robot, q, turn), "hand")[1])(q)
    return regulation(
        robot,
        State(q, still),
        State(q, still),
        weights,
        horizon=horizon,
        dt=dt,
        hand="hand",
        target=target,
        torque_limits=torque,
        actuated=robot.joint_names[1:],
        step=step,
    )


SHOULDERS, UPPER, FORE, BAR = 1.0, 0.5, 0.5, 0.6


def two_arms() -> tuple[Multibody, cc.Loop]:
    """Two planar arms (x-z plane, hinges about y) that hold a 2 kg bar by its ends: a closed chain of five joints.

    The bar hangs on the left arm by a hinge without a motor (`grip`); the loop hinges its end to the right hand.
    """

    def rod(length, mass):
        across = mass * length**2 / 12
        return {"mass": mass, "com": (length / 2, 0, 0), "inertia": np.diag([1e-3, across, across])}

    builder = Builder("two_arms")
    for side, x in (("left", 0.0), ("right", SHOULDERS)):
        upper, fore = f"{side}_upper", f"{side}_fore"
        hinge = {"joint": "continuous", "axis": (0, 1, 0)}
        builder.link(upper, joint_name=f"{side}_shoulder", position=(x, 0, 0), **hinge, **rod(UPPER, 1.5))
        place = {"parent": upper, "position": (UPPER, 0, 0)}
        builder.link(fore, joint_name=f"{side}_elbow", **place, **hinge, **rod(FORE, 1.0))
        if side == "left":
            place = {"parent": fore, "position": (FORE, 0, 0)}
            builder.link("bar", joint_name="grip", **place, **hinge, **rod(BAR, 2.0))
            builder.frame("bar_end", link="bar", position=(BAR, 0, 0))
            builder.frame("bar_middle", link="bar", position=(BAR / 2, 0, 0))
    builder.frame("right_hand", link="right_fore", position=(FORE, 0, 0))
    return builder.build(), cc.hinge("bar_end", "right_hand", (0, 1, 0))


def holding_angles(x: float, z: float, tilt: float) -> np.ndarray:
    """Joint angles (shoulder, elbow, grip, shoulder, elbow) with the bar's middle at (x, z), elbows outward.

    A turn by q about y takes x to (cos q, -sin q) in the x-z plane.
    """

    def two_link(dx, dz, bend):
        reach = np.hypot(dx, dz)
        if reach > UPPER + FORE:
            raise ValueError(f"The bar at ({x}, {z}) is out of reach.")
        elbow = bend * (np.pi - np.arccos((UPPER**2 + FORE**2 - reach**2) / (2 * UPPER * FORE)))
        return -np.arctan2(dz, dx) - np.arctan2(FORE * np.sin(elbow), UPPER + FORE * np.cos(elbow)), elbow

    half = BAR / 2 * np.array([np.cos(tilt), -np.sin(tilt)])
    left = two_link(x - half[0], z - half[1], 1.0)
    right = two_link(x + half[0] - SHOULDERS, z + half[1], -1.0)
    return np.array([*left, tilt - sum(left), *right])


def closed_step(loops: Sequence[cc.Constraint]) -> Step:
    """Semi-implicit Euler for a tree with loops; gaps that the discretization opens close within 0.1 s."""

    def step(robot, q, v, tau, dt):
        v = v + dt * cc.loop_forward_dynamics(robot, loops, q, v, tau, stabilization=(25.0, 25.0)).a
        return robot.integrate(q, dt * v), v

    return step


def carrying(*, torque: float | None = 40.0, horizon: int = 50, dt: float = 0.02) -> Task:
    """Two arms lift a bar and turn it: linearized by forward mode through the closed chain's own derivative rules."""
    robot, loop = two_arms()
    still = jnp.zeros(robot.nv, robot.dtype)
    start = State(jnp.asarray(holding_angles(0.5, 0.35, 0.0), robot.dtype), still)
    goal = State(jnp.asarray(holding_angles(0.45, 0.65, -0.4), robot.dtype), still)
    weights = Weights(jnp.concatenate([still + 0.1, still + 0.01]), jnp.full(4, 1e-3), jnp.full(2 * robot.nv, 500.0))
    motors = [name for name in robot.joint_names if name != "grip"]
    driven = np.array([name in motors for name in robot.joint_names])
    hold = jax.jit(lambda q: cc.loop_inverse_dynamics(robot, (loop,), q, still, still, driven).tau)(start.q)
    step = closed_step((loop,))
    return regulation(
        robot,
        start,
        goal,
        weights,
        horizon=horizon,
        dt=dt,
        controls=jnp.broadcast_to(hold[driven], (horizon, len(motors))),
        torque_limits=torque,
        actuated=motors,
        step=step,
        analytical=False,
    )
