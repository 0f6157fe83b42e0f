"""A seven-joint arm reaches past an obstacle within its joint limits, and follows a moving target by receding horizons.

    [taskset -c 0] python experiments/constrained_reaching.py [--batch 64] [--steps 200]

Prints cost, violation, iterations and time of one problem, how many of a batch converge and how many a second, and the
times of the receding horizon's steps: median and 95th percentile. `taskset -c 0` keeps it on one core.
"""

from __future__ import annotations

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np

import jaxsoa as soa
from jaxsoa import optimize
from jaxsoa.optimize import Equality, LeastSquares


def arm() -> soa.Multibody:
    """Seven hinges, a metre and a half of 1.5 kg rods, limits of +-2.5 rad, frame `hand`."""
    builder = soa.Builder("arm")
    parent, place = None, (0.0, 0.0, 0.3)
    for k in range(7):
        axis = (0, 0, 1) if k % 2 == 0 else (0, 1, 0)
        body = {"mass": 1.5, "com": (0.1, 0, 0), "inertia": np.diag([2e-3, 8e-3, 8e-3]), "damping": 0.1}
        builder.link(
            f"link{k + 1}", joint="revolute", parent=parent, position=place, axis=axis, lower=-2.5, upper=2.5, **body
        )
        parent, place = f"link{k + 1}", (0.2, 0.0, 0.0)
    return builder.frame("hand", link="link7", position=(0.2, 0, 0)).build()


START = jnp.array([0.9, 0.3, 0.0, 0.9, 0.0, 0.5, 0.0])
CENTER, RADIUS = jnp.array([0.95, 0.12, 0.05]), 0.25
HORIZON, DT = 40, 0.025


def reaching(robot: soa.Multibody, start: jax.Array, target: jax.Array):
    holding = soa.bias_force(robot, start, jnp.zeros(7))
    running = LeastSquares(lambda x, u: jnp.concatenate([0.3 * x.v, 0.05 * (u - holding)]))
    problem = optimize.robot_problem(robot, horizon=HORIZON, dt=DT, running_cost=running, torque_limits=80.0)
    path = (
        optimize.clear_of_sphere(robot, "hand", CENTER, RADIUS),
        optimize.clear_of_sphere(robot, "link6", CENTER, RADIUS),
        optimize.within_joint_limits(robot),
    )
    arrive = Equality(lambda x: jnp.concatenate([soa.frame_pose(robot, x.q, "hand")[1] - target, x.v]), "arrive")
    guess = jnp.broadcast_to(holding, (HORIZON, 7))
    return optimize.constrained(problem, soa.State(start, jnp.zeros(7)), guess, path=path, final=arrive)


def timed(function, *arguments, repeats: int = 3):
    """The answer, and the least (processor time, wall time) of some calls."""
    compiled = jax.jit(function).lower(*arguments).compile()
    taken = []
    for _ in range(repeats):
        began = time.process_time(), time.perf_counter()
        found = jax.block_until_ready(compiled(*arguments))
        taken.append((time.process_time() - began[0], time.perf_counter() - began[1]))
    return found, np.min(taken, axis=0)


def track(robot: soa.Multibody, steps: int) -> None:
    """Receding horizon: 20 steps of 20 ms ahead, one iteration each 10 ms, after a hand target on a circle.

    Each plan starts from the one before, whose feedback steers the first trajectory from the state found. Motors are
    as strong as their joints need, and the hand begins on the circle: a far jump at full torque would spin the light
    outer links faster than a step can follow.
    """
    horizon, ahead, period = 20, 0.02, 0.01
    torques = jnp.array([80.0, 80.0, 60.0, 40.0, 15.0, 8.0, 2.0])

    def target(t):
        return jnp.stack([0.8 + 0.15 * jnp.cos(2 * t), 0.5 + 0.15 * jnp.sin(2 * t), 0.2 + 0 * t], axis=-1)

    def problem(t):
        references = target(t + ahead * jnp.arange(1, horizon + 1))
        running = LeastSquares(
            lambda x, u, goal: jnp.concatenate(
                [20 * (soa.frame_pose(robot, x.q, "hand")[1] - goal), 0.2 * x.v, 0.02 * u]
            )
        )
        final = LeastSquares(lambda x: 20 * (soa.frame_pose(robot, x.q, "hand")[1] - references[-1]))
        return optimize.robot_problem(
            robot, horizon=horizon, dt=ahead, running_cost=running, final_cost=final, torque_limits=torques,
            per_step=references,
        )  # fmt: skip

    @jax.jit
    def plan(t, q, v, before):
        return optimize.ilqr(problem(t), soa.State(q, v), before, max_iterations=1)

    @jax.jit
    def settle(q, v):
        guess = jnp.broadcast_to(soa.bias_force(robot, q, v), (horizon, 7))
        return optimize.ilqr(problem(0.0), soa.State(q, v), guess, max_iterations=50)

    advance = jax.jit(lambda q, v, tau: soa.step(robot, q, v, tau, period))
    hand = jax.jit(lambda q: soa.frame_pose(robot, q, "hand")[1])
    reach = jax.jit(lambda q: soa.inverse_kinematics(robot, q, "hand", target(0.0), seeds=1, rest=START))
    q, v = reach(START).q, jnp.zeros(7)
    found = settle(q, v)
    plan(0.0, q, v, found)
    times, busy, errors = [], [], []
    for k in range(steps):
        t = k * period
        began, busy_before = time.perf_counter(), time.process_time()
        found = jax.block_until_ready(plan(t, q, v, found))
        times.append(time.perf_counter() - began)
        busy.append(time.process_time() - busy_before)
        q, v = advance(q, v, found.controls[0])
        errors.append(float(jnp.linalg.norm(hand(q) - target(t + period))))
    if not np.isfinite(errors).all():
        raise RuntimeError("The receding horizon has lost the arm: its state is not finite.")
    late = np.array(errors[len(errors) // 2 :])
    print(
        f"tracking at 100 Hz, {steps} periods, horizon {horizon} x {ahead} s: {1e3 * np.median(times):.2f} ms a step, "
        f"95th percentile {1e3 * np.percentile(times, 95):.2f} ms (of processor time {1e3 * np.median(busy):.2f} and "
        f"{1e3 * np.percentile(busy, 95):.2f} ms); hand within {1e3 * late.max():.1f} mm"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Constrained reaching and receding horizons of a seven-joint arm.")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    robot = arm()
    target = jnp.array([0.95, -0.45, 0.1])
    found, seconds = timed(lambda q, x: reaching(robot, q, x), START, target)
    print(
        f"one problem: cost {found.cost:.6f}, violation {found.violation:.1e}, {int(found.iterations)} iterations in "
        f"{int(found.rounds)} rounds, converged {bool(found.converged)}, {1e3 * seconds[0]:.1f} ms of processor time, "
        f"{1e3 * seconds[1]:.1f} of the wall",
        flush=True,
    )
    hands = target + 0.05 * jax.random.normal(jax.random.key(0), (options.batch, 3))
    many, seconds = timed(jax.vmap(lambda x: reaching(robot, START, x)), hands)
    print(
        f"{options.batch} at once: {np.mean(many.converged) * 100:.0f} % converged, largest violation "
        f"{many.violation.max():.1e}, {options.batch / seconds[0]:.1f} problems a second of processor time, "
        f"{options.batch / seconds[1]:.1f} of the wall",
        flush=True,
    )
    track(robot, options.steps)


if __name__ == "__main__":
    main()
