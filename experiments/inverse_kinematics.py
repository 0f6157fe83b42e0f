"""How many random reachable poses inverse kinematics solves, and how many a second.

    python experiments/inverse_kinematics.py [--poses 1000] [--seeds 16] [--robots panda ur5 baxter]

Needs example-robot-data. Poses are those of random configurations within the limits; a pose counts as solved when the
norm of its error (radians and metres) is below 1e-6 and every joint is within its limits. The dual-arm torso (baxter)
must hold both hands at once.
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


def ours(path: Path, frames: list[str], poses: int, seeds: int) -> None:
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
        began = time.perf_counter()
        found = jax.block_until_ready(solve(keys))
        best = min(best, time.perf_counter() - began)
    inside = np.asarray((found.q >= lower) & (found.q <= upper)).all(axis=1)
    solved = np.asarray(found.residual < 1e-6) & inside
    print(
        f"{robot.name:8} {len(frames)} frame(s), {robot.nv} joints, {poses} poses, {seeds} seeds: "
        f"{100 * solved.mean():.1f} % solved to 1e-6 within limits, {poses / best:.0f} poses/s "
        f"(compiled in {compiled:.1f} s)",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Random reachable poses, solved and timed.")
    parser.add_argument("--poses", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=16)
    parser.add_argument("--robots", nargs="+", default=list(ROBOTS), choices=list(ROBOTS))
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    for name in options.robots:
        file, frames = ROBOTS[name]
        ours(find(file), frames, options.poses, options.seeds)


if __name__ == "__main__":
    main()
