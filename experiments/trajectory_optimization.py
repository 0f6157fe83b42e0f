"""Trajectory optimization on five robots and on a batch: a table, and one picture per task.

    python experiments/trajectory_optimization.py [pendulum|cart-pole|panda|space-arm|two-arms|batch|all] [--output DIR]

pendulum, cart-pole: swing-ups with limited torque. panda: reaching a point with the arm's own torque limits (needs the
package example-robot-data). space-arm: a free-flying satellite whose base has no motors; its momentum is printed.
two-arms: a closed chain lifts and turns a bar. batch: 256 pendulum swing-ups from different states, solved at once.
`--second-order` adds the curvature of the dynamics, `--shooting` solves with L-BFGS instead of iLQR.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import re
import sys
import time
from pathlib import Path

os.environ.setdefault("JAX_ENABLE_X64", "1")

import jax
import jax.numpy as jnp
import numpy as np

import jaxsoa as soa
from jaxsoa import closed_chain as cc
from jaxsoa.optimize import tasks


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


def panda() -> tasks.Task:
    return panda_reaching(soa.load_urdf(panda_urdf(), validate="off").frictionless())


TASKS = {
    "pendulum": tasks.pendulum_swing_up,
    "cart-pole": tasks.cart_pole_swing_up,
    "panda": panda,
    "space-arm": tasks.space_reaching,
    "two-arms": tasks.carrying,
}


def timed(function, *arguments):
    """(result, seconds to compile, seconds to run)."""
    begin = time.perf_counter()
    compiled = jax.jit(function).lower(*arguments).compile()
    middle = time.perf_counter()
    result = jax.block_until_ready(compiled(*arguments))
    return result, middle - begin, time.perf_counter() - middle


def solver(task: tasks.Task, options):
    def solve(start, controls):
        if options.shooting:
            return soa.optimize.shooting(task.problem, start, controls, max_iterations=options.iterations)
        return soa.optimize.ilqr(
            task.problem, start, controls, max_iterations=options.iterations, second_order=options.second_order
        )

    return solve


def remarks(name: str, task: tasks.Task, solution) -> str:
    """What else is worth knowing about a task's solution."""
    if name == "space-arm":
        drift = jax.jit(jax.vmap(lambda x: soa.momentum(task.robot, x.q, x.v)))(solution.states)
        return f"momentum within {float(jnp.abs(drift).max()):.0e}"
    if name == "two-arms":
        robot, loop = tasks.two_arms()
        gaps = jax.jit(jax.vmap(lambda x: cc.loop_errors(robot, (loop,), x.q)))(solution.states)
        return f"grip within {1e3 * float(jnp.abs(gaps).max()):.2f} mm"
    if task.problem.limits is None:
        return ""
    held = jnp.mean((solution.controls <= task.problem.limits[0]) | (solution.controls >= task.problem.limits[1]))
    return f"{100 * float(held):.0f} % of torques at a limit"


@jax.jit
def _places(robot: soa.Multibody, q):
    """Origins of the links, and of every frame by name."""
    tips = {name: soa.frame_pose(robot, q, name)[1] for name in robot.frame_names if name not in robot.link_names}
    return soa.forward_kinematics(robot, q).position, tips


def segments(robot: soa.Multibody, q) -> list[np.ndarray]:
    """The robot as lines (2, 3): from each link's origin to its children's, and to the frames fixed to it."""
    at, tips = _places(robot, q)
    base = np.asarray(robot.base_position)
    parents = robot.topology.parents
    lines = [np.stack([base if p < 0 else at[p], at[k]]) for k, p in enumerate(parents)]
    if "free" in robot.topology.kinds:
        lines = lines[1:]  # nothing ties a satellite to the origin
    for name, link in zip(robot.frame_names, robot.topology.frame_links, strict=True):
        if link >= 0 and name not in robot.link_names:
            lines.append(np.stack([at[link], tips[name]]))
    return lines


def draw(name: str, task: tasks.Task, solution, folder: Path) -> Path:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure = plt.figure(figsize=(15, 4), layout="constrained")
    flat = name in ("pendulum", "cart-pole", "two-arms")
    scene = figure.add_subplot(1, 4, 1, projection=None if flat else "3d")
    steps = len(solution.controls)
    for index in np.linspace(0, steps, 7).astype(int):
        color = plt.get_cmap("viridis")(index / steps)
        for line in segments(task.robot, solution.states.q[index]):
            scene.plot(*(line[:, [0, 2]].T if flat else line.T), "o-", color=color, markersize=3)
    scene.set(title=f"{name}: from dark to light", aspect="equal")
    t = float(task.problem.dt) * np.arange(steps + 1)
    motion, torque, progress = (figure.add_subplot(1, 4, k) for k in (2, 3, 4))
    joints = solution.states.q[:, 7:] if name == "space-arm" else solution.states.q
    motion.plot(t, joints)
    motion.set(title="joints", xlabel="t, s", ylabel="rad, m")
    lines = torque.step(t[:-1], np.asarray(solution.controls), where="post")
    if task.problem.limits is not None:
        for line, low, high in zip(lines, *(np.asarray(limit) for limit in task.problem.limits), strict=True):
            reached = max(abs(np.asarray(line.get_ydata()).min()), abs(np.asarray(line.get_ydata()).max()))
            if reached > 0.5 * high:
                torque.axhline(low, color=line.get_color(), linestyle=":")
                torque.axhline(high, color=line.get_color(), linestyle=":")
    torque.set(title="controls (dotted: limits)", xlabel="t, s", ylabel="N m, N")
    costs = np.asarray(solution.history.cost)[: int(solution.iterations) + 1]
    progress.semilogy(costs, "o-", markersize=3)
    progress.set(title="convergence", xlabel="iteration", ylabel="cost")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"trajectory_{name}.png"
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return path


def run(name: str, options) -> None:
    task = TASKS[name]()
    solution, compiling, running = timed(solver(task, options), task.start, task.controls)
    error = float(jax.jit(lambda x: task.error(x))(jax.tree.map(lambda x: x[-1], solution.states)))
    print(
        f"{name:10s} {float(solution.cost):12.6g} {int(solution.iterations):6d} {bool(solution.converged)!s:>6s}"
        f" {1e3 * running:10.1f} {compiling:8.1f} {error:11.1e}   {remarks(name, task, solution)}",
        flush=True,
    )
    try:
        print(f"{'':10s} {draw(name, task, solution, options.output)}")
    except ModuleNotFoundError:
        print("no picture: matplotlib is missing")


class Bar:
    """A progress line for a batch: the callback is called once per problem and iteration."""

    def __init__(self, size: int):
        self.size, self.calls = size, 0

    def __call__(self, iteration, cost) -> None:
        self.calls += 1
        if self.calls % self.size == 0 and sys.stderr.isatty():
            print(f"\rbatch: iteration {self.calls // self.size - 1}", end="", file=sys.stderr, flush=True)


def run_batch(options) -> None:
    task = tasks.pendulum_swing_up()
    size = options.size
    angle, rate = 2 * jax.random.normal(jax.random.key(0), (2, size, 1))
    starts = soa.State(angle, rate)
    bar = Bar(size)

    def solve(start):
        return soa.optimize.ilqr(task.problem, start, max_iterations=options.iterations, callback=bar)

    solutions, compiling, running = timed(jax.vmap(solve), starts)
    jax.effects_barrier()
    print("", file=sys.stderr)
    ends = jax.tree.map(lambda x: x[:, -1], solutions.states)
    errors = np.asarray(jax.jit(jax.vmap(lambda x: task.error(x)))(ends))
    print(
        f"batch of {size} pendulums: {1e3 * running:.0f} ms, {1e3 * running / size:.2f} ms per problem (compiled in"
        f" {compiling:.1f} s); {int(solutions.converged.sum())} converged, at most {int(solutions.iterations.max())}"
        f" iterations; final error median {np.median(errors):.1e}, worst {errors.max():.1e}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", nargs="?", default="all", choices=[*TASKS, "batch", "all"])
    parser.add_argument("--output", type=Path, default=Path("outputs"))
    parser.add_argument("--iterations", type=int, default=300, help="at most")
    parser.add_argument("--size", type=int, default=256, help="of the batch")
    parser.add_argument("--second-order", action="store_true")
    parser.add_argument("--shooting", action="store_true")
    options = parser.parse_args()
    chosen = [*TASKS, "batch"] if options.task == "all" else [options.task]
    if chosen != ["batch"]:
        print(f"{'':10s} {'cost':>12s} {'iter.':>6s} {'conv.':>6s} {'ms':>10s} {'s comp.':>8s} {'final error':>11s}")
    for name in chosen:
        run_batch(options) if name == "batch" else run(name, options)


if __name__ == "__main__":
    main()
