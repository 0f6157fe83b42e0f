"""Constrained reaching here and by mim_solvers' C++ (CSQP on crocoddyl): cost, violation, time of one, of many.

    pip install crocoddyl==3.2.1 pin==4.0.0 libpinocchio==4.0.0 mim_solvers==0.3.0
    python experiments/constrained_against_mim_solvers.py [--batch 256] [--peer 16] [--repetitions 3]

A seven-joint arm, 40 steps of 25 ms: the hand arrives at a target and everything is at rest there (equalities);
joints, speeds and torques stay in their limits and the hand behind a wall (inequalities). Same discretization, same
costs, same first guess. The violation of both is measured by simulating their torques here. One thread for mim_solvers,
XLA's default for us, so processor time is compared; minimum of interleaved repetitions, compilation apart.
"""

from __future__ import annotations

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np
from constrained_reaching import DT, HORIZON, START, arm
from ilqr_against_crocoddyl import crocoddyl, pinocchio_twin

import jaxsoa as soa
from jaxsoa import optimize
from jaxsoa.optimize import Equality, Inequality, LeastSquares

WALL, TORQUE, SPEED, MARGIN = 0.96, 80.0, 1.3, 1.2


class Clock:
    """Seconds since it was made: of this process on all cores, and of the wall."""

    def __init__(self):
        self.began = np.array([time.process_time(), time.perf_counter()])

    def read(self) -> np.ndarray:
        return np.array([time.process_time(), time.perf_counter()]) - self.began


def ours(robot: soa.Multibody, target):
    """The problem, its constraints and the guess."""
    holding = soa.bias_force(robot, START, jnp.zeros(7))
    running = LeastSquares(lambda x, u: jnp.concatenate([0.3 * x.v, 0.05 * (u - holding)]))
    problem = optimize.robot_problem(robot, horizon=HORIZON, dt=DT, running_cost=running, torque_limits=TORQUE)
    wall = Inequality(lambda x, u: soa.frame_pose(robot, x.q, "hand")[1][:1] - WALL, "wall")
    arrive = Equality(lambda x: jnp.concatenate([soa.frame_pose(robot, x.q, "hand")[1] - target, x.v]), "arrive")
    slow = Inequality(lambda x, u: jnp.concatenate([x.v - SPEED, -x.v - SPEED]), "speed")
    path = (wall, slow, optimize.within_joint_limits(robot, MARGIN))
    return problem, path, arrive, jnp.broadcast_to(holding, (HORIZON, 7))


def theirs(robot: soa.Multibody, target):
    """The same as a shooting problem, with the guess."""
    model = pinocchio_twin(robot)
    state = crocoddyl.StateMultibody(model)
    actuation, hand = crocoddyl.ActuationModelFull(state), model.getFrameId("hand")
    holding = np.asarray(soa.bias_force(robot, START, jnp.zeros(7)))
    none = np.full(7, np.inf)

    def costs():
        return crocoddyl.CostModelSum(state, 7)

    def within(residual, low, high):
        return crocoddyl.ConstraintModelResidual(state, residual, np.asarray(low, float), np.asarray(high, float))

    at_rest = crocoddyl.ResidualModelState(state, np.zeros(14), 7)
    effort, place = crocoddyl.ResidualModelControl(state, holding), crocoddyl.ResidualModelFrameTranslation
    running, path, end = costs(), crocoddyl.ConstraintModelManager(state, 7), crocoddyl.ConstraintModelManager(state, 7)
    speeds = crocoddyl.ActivationModelWeightedQuad(np.r_[np.zeros(7), np.full(7, 0.09)])
    running.addCost("v", crocoddyl.CostModelResidual(state, speeds, at_rest), 1.0)
    running.addCost("u", crocoddyl.CostModelResidual(state, effort), 0.0025)
    bound = np.r_[np.asarray(robot.limits.upper) - MARGIN, np.full(7, SPEED)]
    path.addConstraint("limits", within(at_rest, -bound, bound))
    path.addConstraint("torque", within(effort, -TORQUE - holding, TORQUE - holding))
    path.addConstraint("wall", within(place(state, hand, np.zeros(3), 7), [-np.inf] * 3, [WALL, np.inf, np.inf]))
    end.addConstraint("hand", within(place(state, hand, np.asarray(target), 7), np.zeros(3), np.zeros(3)))
    end.addConstraint("rest", within(at_rest, np.r_[-none, np.zeros(7)], np.r_[none, np.zeros(7)]))

    def action(sum_of_costs, constraints, dt):
        differential = crocoddyl.DifferentialActionModelFreeFwdDynamics(state, actuation, sum_of_costs, constraints)
        return crocoddyl.IntegratedActionModelEuler(differential, dt)

    start = np.r_[np.asarray(START), np.zeros(7)]
    problem = crocoddyl.ShootingProblem(start, [action(running, path, DT)] * HORIZON, action(costs(), end, 0.0))
    problem.nthreads = 1
    return problem, [holding.copy() for _ in range(HORIZON)]


def csqp(problem, guess):
    import mim_solvers

    solver = mim_solvers.SolverCSQP(problem)
    # The fastest of eight settings tried (1e-4 to 1e-2, 1e-5 to 1e-3, 200 to 1000) that arrives at a violation of 1e-6.
    solver.termination_tolerance, solver.eps_abs, solver.eps_rel, solver.max_qp_iters = 1e-4, 1e-4, 0.0, 1000
    solver.use_filter_line_search = True
    clock = Clock()
    solver.solve(problem.rollout(guess), guess, 100, False)
    return solver, clock.read()


def main() -> None:
    parser = argparse.ArgumentParser(description="Constrained reaching beside mim_solvers.")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--peer", type=int, default=16, help="how many of the batch mim_solvers solves")
    parser.add_argument("--repetitions", type=int, default=3)
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    robot, target = arm().frictionless(), jnp.array([0.95, -0.45, 0.1])
    start = soa.State(START, jnp.zeros(7))

    def solve(target):
        problem, path, arrive, guess = ours(robot, target)
        return optimize.constrained(problem, start, guess, path=path, final=arrive)

    @jax.jit
    def judge(controls, target):
        problem, path, arrive, _ = ours(robot, target)
        states = optimize.simulate_controls(problem, start, controls)
        before, last = jax.tree.map(lambda x: x[:-1], states), jax.tree.map(lambda x: x[-1], states)
        beyond = [jnp.max(jax.vmap(one.function)(before, controls), initial=0) for one in path]
        beyond += [jnp.max(jnp.abs(arrive.function(last))), jnp.max(jnp.abs(controls)) - TORQUE]
        return optimize.total_cost(problem, states, controls), jnp.max(jnp.stack(beyond))

    one = jax.jit(solve).lower(target).compile()
    shooting, guess = theirs(robot, target)
    mine, other = [], []
    for _ in range(options.repetitions):
        clock = Clock()
        found = jax.block_until_ready(one(target))
        mine.append(clock.read())
        solver, seconds = csqp(shooting, guess)
        other.append(seconds)
    mine, other = np.min(mine, axis=0), np.min(other, axis=0)
    for name, controls, seconds, count in (
        ("here", found.controls, mine, int(found.iterations)),
        ("mim_solvers", jnp.asarray(np.array(list(solver.us))), other, solver.iter),
    ):
        cost, violation = judge(controls, target)
        cpu, wall = 1e3 * seconds
        times = f"{cpu:.1f} ms, of the wall {wall:.1f}"
        print(f"{name:12} cost {cost:.6f}, violation {violation:.1e}, {count} iterations, {times}")
    prices = ", ".join(f"{float(y.max()):.3f}" for y in found.multipliers.path)
    print(f"one problem: {mine[0] / other[0]:.3f} times their time; prices of wall, speed, joints {prices}", flush=True)
    targets = target + jnp.array([0.0, 0.05, 0.05]) * jax.random.normal(jax.random.key(0), (options.batch, 3))
    many = jax.jit(jax.vmap(solve)).lower(targets).compile()
    mine, other = [], []
    for _ in range(options.repetitions):
        clock = Clock()
        found = jax.block_until_ready(many(targets))
        mine.append(clock.read())
    some = targets[: min(options.peer, options.batch)]
    for goal in some:
        solver, seconds = csqp(*theirs(robot, goal))
        other.append([*seconds, judge(jnp.asarray(np.array(list(solver.us))), goal)[1] < 1e-6])
    rate, theirs_rate = options.batch / np.min(mine, axis=0), len(some) / np.sum(other, axis=0)[:2]
    share, their_share = 100 * np.mean(found.converged), 100 * np.mean([x[2] for x in other])
    print(
        f"{options.batch} at once: {share:.0f} % converged, violation up to {found.violation.max():.1e}, problems a "
        f"second of processor time {rate[0]:.1f}, of the wall {rate[1]:.1f}; mim_solvers ({len(some)}, "
        f"{their_share:.0f} % to 1e-6) {theirs_rate[0]:.2f}, {theirs_rate[1]:.2f}: {rate[0] / theirs_rate[0]:.0f} times"
    )


if __name__ == "__main__":
    main()
