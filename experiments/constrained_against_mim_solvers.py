"""Constrained reaching here and by mim_solvers' C++ (CSQP on crocoddyl): cost, violation, time of one, of many.

    pip install crocoddyl==3.2.1 pin==4.0.0 libpinocchio==4.0.0 mim_solvers==0.3.0
    python experiments/constrained_against_mim_solvers.py [--batch 64] [--repetitions 3]

A seven-joint arm, 40 steps of 25 ms: the hand arrives at a target and everything is at rest there (equalities), joints
and torques stay in their limits and the hand behind a wall (inequalities). Same discretization, same costs, same first
guess. The violation of both is measured by simulating their torques here. One thread for mim_solvers, XLA's default for
us; minimum of interleaved repetitions, compilation apart.
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

WALL, TORQUE = 0.96, 80.0


def ours(robot: soa.Multibody, target):
    """The problem, its constraints and the guess."""
    holding = soa.bias_force(robot, START, jnp.zeros(7))
    running = LeastSquares(lambda x, u: jnp.concatenate([0.3 * x.v, 0.05 * (u - holding)]))
    problem = optimize.robot_problem(robot, horizon=HORIZON, dt=DT, running_cost=running, torque_limits=TORQUE)
    wall = Inequality(lambda x, u: soa.frame_pose(robot, x.q, "hand")[1][:1] - WALL, "wall")
    arrive = Equality(lambda x: jnp.concatenate([soa.frame_pose(robot, x.q, "hand")[1] - target, x.v]), "arrive")
    path = (wall, optimize.within_joint_limits(robot))
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
    bound = np.r_[np.asarray(robot.limits.upper), none]
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
    solver.termination_tolerance, solver.eps_abs, solver.eps_rel, solver.max_qp_iters = 1e-6, 1e-9, 0.0, 2000
    solver.use_filter_line_search = True
    began = time.perf_counter()
    solver.solve(problem.rollout(guess), guess, 100, False)
    return solver, time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description="Constrained reaching beside mim_solvers.")
    parser.add_argument("--batch", type=int, default=64)
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
        began = time.perf_counter()
        found = jax.block_until_ready(one(target))
        mine.append(time.perf_counter() - began)
        solver, seconds = csqp(shooting, guess)
        other.append(seconds)
    for name, controls, seconds, count in (
        ("here", found.controls, mine, int(found.iterations)),
        ("mim_solvers", jnp.asarray(np.array(list(solver.us))), other, solver.iter),
    ):
        cost, violation = judge(controls, target)
        print(f"{name:12} cost {cost:.6f}, violation {violation:.1e}, {count} iterations, {1e3 * min(seconds):.1f} ms")
    print(f"one problem: {min(mine) / min(other):.2f} times the time of mim_solvers; price of the wall up to "
          f"{found.multipliers.path[0].max():.3f}", flush=True)  # fmt: skip
    targets = target + jnp.array([0.0, 0.05, 0.05]) * jax.random.normal(jax.random.key(0), (options.batch, 3))
    many = jax.jit(jax.vmap(solve)).lower(targets).compile()
    began = time.perf_counter()
    found = jax.block_until_ready(many(targets))
    seconds = time.perf_counter() - began
    took = [csqp(*theirs(robot, goal))[1] for goal in targets[: min(16, options.batch)]]
    share, rate = 100 * np.mean(found.converged), options.batch / seconds
    print(
        f"{options.batch} at once: {share:.0f} % converged, violation up to {found.violation.max():.1e}, "
        f"{rate:.1f} problems/s, mim_solvers {len(took) / sum(took):.1f}"
    )


if __name__ == "__main__":
    main()
