"""iLQR here against crocoddyl's C++ solvers on the same problems: costs, iterations, time, and a convergence plot.

    pip install crocoddyl==3.2.1 pin==4.0.0 libpinocchio==4.0.0 matplotlib
    python experiments/ilqr_against_crocoddyl.py [--output PNG] [--repetitions N] [--only NAME]

(An environment of its own: crocoddyl 3.2.1 is compiled against Pinocchio 4.0 and beside 4.1 it loses gravity without a
word. The comparison at the start would stop the script.)

Same robots, same discretization (crocoddyl's `IntegratedActionModelEuler` is semi-implicit Euler; compared at a random
state before anything is solved), same costs (Gauss-Newton on both sides), same initial state and first guess, same
stopping rule, one thread for crocoddyl and XLA's default for us. The times are those of whole solves, minimum of
interleaved repetitions, compilation apart. Last, an iteration with analytical derivatives is timed beside the same
iteration with `jax.jacfwd` through the articulated-body sweeps.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

os.environ["JAX_ENABLE_X64"] = "1"

import jax
import jax.numpy as jnp
import numpy as np

import jaxsoa as soa
from jaxsoa.dynamics.motion import _sweeps  # the sweeps under the derivative rule
from jaxsoa.optimize import tasks
from jaxsoa.simulate.linearized_step import semi_implicit_euler

try:
    import crocoddyl
    import pinocchio as pin
except ImportError as reason:
    sys.exit(f"skipped: crocoddyl cannot be imported ({reason}); pip install crocoddyl")


def panda_urdf() -> str:
    """The Panda's URDF with its fingers fixed: seven joints. Leaves with a message where the file is missing."""
    for package in ("example-robot-data", "example-robot-data-loaders"):
        try:
            files = importlib.metadata.files(package) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        for file in files:
            if file.name == "panda.urdf":
                text = Path(str(file.locate())).read_text()
                text = re.sub(r'(name="panda_finger_joint\d" type=)"prismatic"', r'\1"fixed"', text)
                return re.sub(r"<mimic[^>]*/>", "", text)
    sys.exit("skipped: the Panda's URDF is missing; pip install example-robot-data")


def panda_reaching(robot: soa.Multibody, torque_limits="model") -> tasks.Task:
    q = jnp.array([0.0, -0.6, 0.0, -2.2, 0.0, 1.7, 0.8])
    return tasks.reaching(robot, q, "panda_hand_tcp", jnp.array([0.3, 0.5, 0.6]), torque_limits=torque_limits)


class Race(NamedTuple):
    """One problem in both libraries."""

    name: str
    task: tasks.Task
    model: pin.Model
    limited: bool


def pinocchio_twin(robot: soa.Multibody) -> pin.Model:
    """The same tree in Pinocchio, for robots of hinges, sliders and free joints."""
    kinds = {
        "continuous": pin.JointModelRevoluteUnaligned,
        "revolute": pin.JointModelRevoluteUnaligned,
        "prismatic": pin.JointModelPrismaticUnaligned,
    }
    model = pin.Model()
    model.gravity.linear = np.asarray(robot.gravity)
    for k, (name, kind) in enumerate(zip(robot.joint_names, robot.topology.kinds, strict=True)):
        joint = pin.JointModelFreeFlyer() if kind == "free" else kinds[kind](np.asarray(robot.axis[k], float))
        place = pin.SE3(np.asarray(robot.joint_rotation[k]), np.asarray(robot.joint_position[k]))
        number = model.addJoint(robot.topology.parents[k] + 1, joint, place, "root_joint" if kind == "free" else name)
        inertia = pin.Inertia(float(robot.mass[k]), np.asarray(robot.com[k]), np.asarray(robot.inertia[k]))
        model.appendBodyToJoint(number, inertia, pin.SE3.Identity())
    for k, name in enumerate(robot.frame_names):
        link = robot.topology.frame_links[k]
        if link >= 0 and name not in robot.link_names:
            place = pin.SE3(np.asarray(robot.frame_rotation[k]), np.asarray(robot.frame_position[k]))
            model.addFrame(pin.Frame(name, link + 1, 0, place, pin.FrameType.OP_FRAME))
    return model


def panda() -> tuple[soa.Multibody, pin.Model]:
    """The seven arm joints of the Panda, read by each library's own URDF reader."""
    text = panda_urdf()
    with tempfile.NamedTemporaryFile("w", suffix=".urdf") as file:
        file.write(text)
        file.flush()
        model = pin.buildModelFromUrdf(file.name)
    return soa.load_urdf(text, validate="off").frictionless(), model


def pendulum_race(name: str) -> Race:
    task = tasks.pendulum_swing_up()
    return Race(name, task, pinocchio_twin(task.robot), True)


def cart_race(name: str) -> Race:
    task = tasks.cart_pole_swing_up(force=None)
    return Race(name, task, pinocchio_twin(task.robot), False)


def panda_race(name: str) -> Race:
    robot, model = panda()
    limits = np.array([25.0, 25, 25, 25, 3, 3, 3]) if "limits" in name else None
    return Race(name, panda_reaching(robot, limits), model, limits is not None)


def space_race(name: str) -> Race:
    task = tasks.space_reaching(step=semi_implicit_euler, torque=None)
    return Race(name, task, pinocchio_twin(task.robot), False)


RACES = {
    "pendulum swing-up, 2 N m": pendulum_race,
    "cart-pole swing-up": cart_race,
    "Panda reaching": panda_race,
    "Panda reaching, limits": panda_race,
    "free-flying arm": space_race,
}


class CartOnly(crocoddyl.ActuationModelAbstract):
    """The first joint driven, the others not: crocoddyl has this only for a free base, so it runs in Python."""

    def __init__(self, state):
        crocoddyl.ActuationModelAbstract.__init__(self, state, 1)

    def calc(self, data, x, u=None):
        if u is not None:
            data.tau = np.concatenate([u, np.zeros(self.state.nv - 1)])

    def calcDiff(self, data, x, u=None):
        data.dtau_du = np.eye(self.state.nv, 1)

    def commands(self, data, x, tau):
        data.u = tau[:1]

    def torqueTransform(self, data, x, u):
        data.Mtau = np.eye(1, self.state.nv)


def crocoddyl_problem(race: Race):
    """The task of a race as a crocoddyl solver, with the first guess for its controls."""
    task, model = race.task, race.model
    there = soa.convert.PinocchioMap(task.robot, model)
    nv = task.robot.nv
    order = np.asarray(there.v_to(np.arange(nv, dtype=float), np.asarray(task.start.q))).round().astype(int)

    def x_of(state):
        q = np.asarray(state.q)
        return np.concatenate([there.q_to(q), there.v_to(np.asarray(state.v), q)])

    def reordered(weights):
        weights = np.asarray(weights)
        return np.concatenate([weights[:nv][order], weights[nv:][order]])

    state = crocoddyl.StateMultibody(model)
    actuated = task.problem.dynamics.actuated
    if actuated == tuple(range(nv)):
        actuation = crocoddyl.ActuationModelFull(state)
    elif actuated == tuple(range(6, nv)):
        actuation = crocoddyl.ActuationModelFloatingBase(state)
    else:
        actuation = CartOnly(state)
    nu = actuation.nu

    def from_goal(weights):
        activation = crocoddyl.ActivationModelWeightedQuad(reordered(weights))
        return crocoddyl.CostModelResidual(state, activation, crocoddyl.ResidualModelState(state, x_of(task.goal), nu))

    running, final = crocoddyl.CostModelSum(state, nu), crocoddyl.CostModelSum(state, nu)
    running.addCost("state", from_goal(task.weights.state), 1.0)
    efforts = crocoddyl.ActivationModelWeightedQuad(np.asarray(task.weights.control))
    running.addCost("u", crocoddyl.CostModelResidual(state, efforts, crocoddyl.ResidualModelControl(state, nu)), 1.0)
    final.addCost("state", from_goal(task.weights.final), 1.0)
    if task.hand is not None:
        frame = model.getFrameId(task.hand)
        residual = crocoddyl.ResidualModelFrameTranslation(state, frame, np.asarray(task.target), nu)
        final.addCost("hand", crocoddyl.CostModelResidual(state, residual), float(task.weights.hand))

    def action(costs, dt):
        differential = crocoddyl.DifferentialActionModelFreeFwdDynamics(state, actuation, costs)
        model = crocoddyl.IntegratedActionModelEuler(differential, dt)
        if race.limited:
            model.u_lb, model.u_ub = (np.asarray(limit) for limit in task.problem.limits)
        return model

    knot, last = action(running, float(task.problem.dt)), action(final, 0.0)
    problem = crocoddyl.ShootingProblem(x_of(task.start), [knot] * task.problem.horizon, last)
    problem.nthreads = 1
    return problem, x_of, [np.array(u) for u in np.asarray(task.controls)]


class Log(crocoddyl.CallbackAbstract):
    def __init__(self):
        crocoddyl.CallbackAbstract.__init__(self)
        self.costs = []

    def __call__(self, solver):
        self.costs.append(solver.cost)


def crocoddyl_solve(race: Race, problem, guess, iterations: int, log: Log | None = None):
    solver = (crocoddyl.SolverBoxDDP if race.limited else crocoddyl.SolverDDP)(problem)
    solver.th_stop = 1e-9
    if log is not None:
        solver.setCallbacks([log])
    start = time.perf_counter()
    states = problem.rollout(guess)
    solver.solve(states, guess, iterations, True)
    return solver, time.perf_counter() - start


def check_same_problem(race: Race, problem, x_of, guess) -> None:
    """One step and the cost of a trajectory agree in both libraries."""
    task = race.task
    controls = jnp.asarray(guess) + 0.1 * jax.random.normal(jax.random.key(0), (len(guess), len(guess[0])))
    controls = task.problem.clip(controls)

    def ours(start, u):
        states = soa.optimize.simulate_controls(task.problem, start, u)
        return states, soa.optimize.total_cost(task.problem, states, u)

    states, cost = jax.jit(ours)(task.start, controls)
    theirs = problem.rollout([np.array(u) for u in np.asarray(controls)])
    their_cost = problem.calc(theirs, [np.array(u) for u in np.asarray(controls)])
    apart = max(np.abs(x_of(jax.tree.map(lambda x, k=k: x[k], states)) - theirs[k]).max() for k in (1, 5))
    assert apart < 1e-10, f"{race.name}: states differ by {apart}"
    assert abs(float(cost) - their_cost) < 1e-6 * abs(their_cost), f"{race.name}: costs {cost} and {their_cost}"


def through_sweeps(robot, q, v, tau, dt):
    """Semi-implicit Euler whose dynamics have no derivative rule."""
    v = v + dt * _sweeps(robot, q, v, jnp.zeros_like(tau), tau, None, None, False)[0]
    return robot.integrate(q, dt * v), v


def per_iteration(task: tasks.Task, repetitions: int) -> dict[str, float]:
    """Seconds per iteration of the same solve with derivatives taken in different ways, steps the same."""
    from dataclasses import replace

    ways = {
        "analytical": {},
        "jacfwd, with the rule of forward dynamics": {"analytical": False},
        "jacfwd, through the articulated-body sweeps": {"analytical": False, "integrator": through_sweeps},
    }
    iterations, solvers = 10, {}
    for name, changes in ways.items():
        problem = replace(task.problem, dynamics=replace(task.problem.dynamics, **changes))
        if "integrator" in changes:  # the rollouts stay as they are: only the derivatives differ
            problem = replace(problem, dynamics=Mixed(task.problem.dynamics, problem.dynamics))

        def solve(start, controls, problem=problem):
            return soa.optimize.ilqr(problem, start, controls, max_iterations=iterations, tolerance=0.0)

        solvers[name] = jax.jit(solve).lower(task.start, task.controls).compile()
    best, costs = dict.fromkeys(ways, np.inf), {}
    for _ in range(repetitions):
        for name, solve in solvers.items():
            start = time.perf_counter()
            solution = jax.block_until_ready(solve(task.start, task.controls))
            best[name] = min(best[name], (time.perf_counter() - start) / int(solution.iterations))
            costs[name] = float(solution.cost)
    assert np.ptp(list(costs.values())) < 1e-6 * max(costs.values()), costs
    return best


class Mixed(soa.optimize.Dynamics):
    """Steps of one, derivatives of another."""

    steps: soa.optimize.RobotDynamics
    derivatives: soa.optimize.RobotDynamics

    @property
    def nu(self):
        return self.steps.nu

    def step(self, state, control):
        return self.steps.step(state, control)

    def integrate(self, state, dx):
        return self.steps.integrate(state, dx)

    def difference(self, start, end):
        return self.steps.difference(start, end)

    def linearize(self, state, control):
        return self.derivatives.linearize(state, control)


def draw(curves: dict[str, tuple[np.ndarray, np.ndarray]], output: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(curves), figsize=(4 * len(curves), 3.4), layout="constrained")
    for axis, (name, (ours, theirs)) in zip(np.atleast_1d(axes), curves.items(), strict=True):
        least = min(ours.min(), theirs.min())
        for label, costs, style in (("jaxsoa", ours, "o-"), ("crocoddyl", theirs, "x--")):
            axis.semilogy((costs - least) / least + 1e-10, style, markersize=4, label=label)
        axis.set(title=name, xlabel="iteration", ylabel="cost above the best, relative")
        axis.legend()
    output.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(output, dpi=120)
    print(f"convergence plot: {output}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("outputs/ilqr_against_crocoddyl.png"))
    parser.add_argument("--repetitions", type=int, default=10)
    parser.add_argument("--iterations", type=int, default=300, help="at most, per solve")
    parser.add_argument("--only", default="", help="problems whose name holds this")
    options = parser.parse_args()
    curves, rows = {}, []
    arms = {}
    for race in [make(name) for name, make in RACES.items() if options.only in name]:
        if race.name in ("Panda reaching", "free-flying arm"):
            arms[race.name] = race.task
        problem, x_of, guess = crocoddyl_problem(race)
        check_same_problem(race, problem, x_of, guess)
        task = race.task

        def solve(start, controls, problem=task.problem):
            return soa.optimize.ilqr(problem, start, controls, max_iterations=options.iterations)

        begin = time.perf_counter()
        solver = jax.jit(solve).lower(task.start, task.controls).compile()
        compiled = time.perf_counter() - begin
        ours, theirs = np.inf, np.inf
        for _ in range(options.repetitions):
            begin = time.perf_counter()
            found = jax.block_until_ready(solver(task.start, task.controls))
            ours = min(ours, time.perf_counter() - begin)
            other, seconds = crocoddyl_solve(race, problem, guess, options.iterations)
            theirs = min(theirs, seconds)
        log = Log()
        crocoddyl_solve(race, problem, guess, options.iterations, log)
        costs = np.asarray(found.history.cost)[: int(found.iterations) + 1]
        first = problem.calc(problem.rollout(guess), guess)
        curves[race.name] = costs, np.array([first, *log.costs])
        counts = int(found.iterations), other.iter
        rows.append((race.name, float(found.cost), other.cost, *counts, ours, theirs, compiled))
        print(f"solved {race.name}: {float(found.cost):.6g} and {other.cost:.6g}", flush=True)
    print("\nleft jaxsoa, right crocoddyl:")
    print(
        f"{'':26s} {'final cost':>23s} {'relative':>10s} {'iterations':>11s} {'ms a solve':>15s} {'ms an iter.':>17s}"
    )
    for name, cost, their_cost, count, their_count, ours, theirs, compiled in rows:
        print(
            f"{name:26s} {cost:11.6g} {their_cost:11.6g} {(cost - their_cost) / their_cost:10.1e} "
            f"{count:5d} {their_count:5d} {1e3 * ours:7.1f} {1e3 * theirs:7.1f} "
            f"{1e3 * ours / max(count, 1):8.2f} {1e3 * theirs / max(their_count, 1):8.2f}"
            f"   (compiled in {compiled:.0f} s)"
        )
    for name, arm in arms.items():
        steps, nv = arm.problem.horizon, arm.robot.nv
        print(f"\n{name}, one iteration ({steps} steps, {nv} degrees of freedom), ms:")
        times = per_iteration(arm, options.repetitions)
        for way, seconds in times.items():
            print(f"{way:48s} {1e3 * seconds:8.2f}   {seconds / times['analytical']:5.2f} times")
    worst = max(abs(cost - their_cost) / their_cost for _, cost, their_cost, *_ in rows)
    print(f"\nlargest relative difference of final costs: {worst:.1e}")
    try:
        draw(curves, options.output)
    except ModuleNotFoundError:
        print("no plot: matplotlib is missing")
    if worst > 0.01:
        sys.exit("a final cost differs by more than 1 %")


if __name__ == "__main__":
    main()
