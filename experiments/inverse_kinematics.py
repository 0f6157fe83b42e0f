"""How many random reachable poses inverse kinematics solves, and how many a second.

    python experiments/inverse_kinematics.py [--poses 1000] [--seeds 16] [--robots panda ur5 baxter] [--peer 100]

Needs example-robot-data. Poses are those of random configurations within the limits; a pose counts as solved when the
norm of its error (radians and metres) is below 1e-6 and every joint is within its limits. The dual-arm torso (baxter)
must hold both hands at once. With `--peer` Pink (`pip install pin-pink quadprog`) solves the first poses of the same
targets, one after another as it does: Gauss-Newton steps by a quadratic program within the limits, as many restarts.
Both are timed in this one run, in processor time of the process: seconds on all cores it takes.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import time
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import jaxsoa as soa
from jaxsoa.model.mimics import follow_mimics

ROBOTS = {
    "panda": ("panda.urdf", ["panda_hand"]),
    "ur5": ("ur5_robot.urdf", ["tool0"]),
    "baxter": ("baxter.urdf", ["left_gripper_base_link", "right_gripper_base_link"]),
}


def find(name: str) -> Path:
    files = importlib.metadata.files("example-robot-data") or []
    return Path(str(next(file.locate() for file in files if file.name == name)))


def pink(path: Path, frames: list[str], robot: soa.Multibody, q0, targets, seeds: int, steps: int = 100) -> None:
    """The same targets by Pink: from q0, then from random configurations, until one is met to 1e-6."""
    import pinocchio
    from pink import Configuration, solve_ik
    from pink.limits import ConfigurationLimit
    from pink.tasks import FrameTask

    model = pinocchio.buildModelFromUrdf(str(path))
    data, limits = model.createData(), [ConfigurationLimit(model, 1.0)]
    theirs, rng = soa.convert.PinocchioMap(robot, model), np.random.default_rng(0)
    tasks = [FrameTask(frame, 1.0, 1.0, lm_damping=1e-6, gain=1.0) for frame in frames]
    ends = (-1, robot.limits.lower), (1, robot.limits.upper)
    low, high = (np.where(np.isfinite(x), x, 3.14 * sign) for sign, x in ends)
    solved, took = 0, []
    for goals in zip(*targets, strict=True):
        for task, (R, p) in zip(tasks, goals, strict=True):
            task.set_target(pinocchio.SE3(R, p))
        began = time.process_time()
        for seed in range(seeds):
            start = np.asarray(q0) if seed == 0 else rng.uniform(low, high)
            at = Configuration(model, data, theirs.q_to(start))
            for _ in range(steps):
                missed = np.linalg.norm(np.concatenate([task.compute_error(at) for task in tasks]))
                if missed < 1e-6:
                    break
                try:
                    at.integrate_inplace(solve_ik(at, tasks, 1.0, solver="quadprog", limits=limits, damping=1e-9), 1.0)
                except Exception:  # it has left the limits, or its quadratic program has no solution: the next seed
                    break
            if missed < 1e-6:
                solved += 1
                break
        took.append(time.process_time() - began)
    share, rate = 100 * solved / len(took), len(took) / sum(took)
    print(f"{robot.name:8} Pink: {share:.1f} % of {len(took)} poses, {rate:.1f} poses a second", flush=True)


def ours(path: Path, frames: list[str], poses: int, seeds: int, peer: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", soa.ModelWarning)
        robot = soa.load_urdf(path, validate="off")
    lower, upper = robot.limits.lower, robot.limits.upper
    middle = jnp.where(jnp.isfinite(lower + upper), (lower + upper) / 2, 0)
    q0, _ = follow_mimics(robot, middle, middle)

    def one(key):
        q, _ = follow_mimics(robot, robot.random(key), q0)
        targets = [soa.frame_pose(robot, q, frame) for frame in frames]
        return soa.inverse_kinematics(robot, q0, frames, targets, seeds=seeds)

    keys = jax.random.split(jax.random.key(1), poses)
    began = time.perf_counter()
    solve = jax.jit(jax.vmap(one)).lower(keys).compile()
    compiled = time.perf_counter() - began
    best = np.inf
    for _ in range(3):
        began = time.process_time()
        found = jax.block_until_ready(solve(keys))
        best = min(best, time.process_time() - began)
    inside = np.asarray((found.q >= lower) & (found.q <= upper)).all(axis=1)
    solved = np.asarray(found.residual < 1e-6) & inside
    if peer:
        configurations = jax.jit(jax.vmap(lambda key: follow_mimics(robot, robot.random(key), q0)[0]))(keys[:peer])
        place = jax.jit(jax.vmap(lambda q: [soa.frame_pose(robot, q, frame) for frame in frames]))
        targets = [list(zip(*map(np.asarray, poses), strict=True)) for poses in place(configurations)]
        pink(path, frames, robot, q0, targets, seeds)
    print(
        f"{robot.name:8} {len(frames)} frame(s), {robot.nv} joints, {poses} poses, {seeds} seeds: "
        f"{100 * solved.mean():.1f} % solved to 1e-6 within limits, {poses / best:.0f} poses a second "
        f"(compiled in {compiled:.1f} s)",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Random reachable poses, solved and timed.")
    parser.add_argument("--poses", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=16)
    parser.add_argument("--robots", nargs="+", default=list(ROBOTS), choices=list(ROBOTS))
    parser.add_argument("--peer", type=int, default=0, metavar="POSES", help="how many of them Pink solves too")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    for name in options.robots:
        file, frames = ROBOTS[name]
        ours(find(file), frames, options.poses, options.seeds, options.peer)


if __name__ == "__main__":
    main()
