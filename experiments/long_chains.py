"""Ropes: chains of many links, serial sweeps beside log-depth ones, in single and double precision.

    pip install -e . && python experiments/long_chains.py [--links 64 256 1024 4096]
    pip install -e ".[test]" && python experiments/long_chains.py --real-robots

A rope of one metre hangs in a curve and moves; errors are relative to the serial sweeps in double precision. Depth is
the number of steps that must follow each other: in the three serial sweeps, and in the associative scans.

With `--real-robots` both are compared in double precision on every URDF file of the package example-robot-data instead,
the model an argument of the jitted functions; files that are refused are listed with the first words of the reason.
`--only icub human` takes the files whose names contain one of these, `--single` also single precision, relative to the
serial sweeps in double precision, and the gradients by all masses. (XLA_FLAGS=--xla_backend_optimization_level=0 saves
half of the compiling.)
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from functools import partial
from itertools import zip_longest
from pathlib import Path

os.environ["JAX_ENABLE_X64"] = "1"

import jax
import jax.numpy as jnp
import numpy as np

import jaxsoa as soa
from jaxsoa.parallel_sweeps import PathPlan

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--links", type=int, nargs="+", default=[64, 256, 1024, 4096])
parser.add_argument("--repetitions", type=int, default=5)
parser.add_argument("--real-robots", action="store_true", help="every file of example-robot-data instead of ropes")
parser.add_argument("--only", nargs="*", default=[""], help="real robots whose file names contain one of these")
parser.add_argument("--single", action="store_true", help="real robots in single precision and by mass too")
options = parser.parse_args()

serial, parallel = (jax.jit(partial(soa.forward_dynamics, method=method)) for method in ("articulated", "parallel"))


def real_robots() -> None:
    """Serial beside parallel: the largest difference, relative to the largest acceleration."""
    inside = Path("cmeel.prefix/share/example-robot-data/robots")
    folder = next((Path(f) / inside for f in sys.path if (Path(f) / inside).is_dir()), None)
    if folder is None:
        sys.exit("example-robot-data is not installed")
    worst, refused = 0.0, []
    folders: dict[str, list[Path]] = {}
    for path in sorted(path for path in folder.rglob("*.urdf") if any(x in path.name for x in options.only)):
        folders.setdefault(path.relative_to(folder).parts[0], []).append(path)
    # One file of every folder first: the others of a folder are mostly the same robot with other hands.
    for path in (path for row in zip_longest(*folders.values()) for path in row if path):
        try:
            with warnings.catch_warnings(action="ignore"):  # of unphysical inertias: both methods get the same
                robot = soa.load_urdf(path, floating_base=True)
        except soa.ModelError as reason:
            refused.append(f"{path.name}: {str(reason).removeprefix(f'{path}: ')[:160]}")
            continue
        v, tau = jax.random.normal(jax.random.key(1), (2, robot.nv))
        state = robot.random(jax.random.key(0)), v, tau
        expected = serial(robot, *state)

        def error(actual, expected=expected):
            return float(jnp.max(jnp.abs(actual - expected)) / jnp.max(jnp.abs(expected)))

        found = error(parallel(robot, *state))
        worst = max(worst, found if np.isfinite(found) else np.inf)
        further = ""
        if options.single:
            low = jax.tree.map(lambda x: x.astype(jnp.float32), (robot, *state))
            by_mass = [
                jax.jit(jax.grad(lambda mass, f=f, x=(robot, *state): jnp.sum(f(x[0].replace(mass=mass), *x[1:]))))
                for f in (serial, parallel)
            ]
            slopes = [f(robot.mass) for f in by_mass]
            further = f"  float32 serial {error(serial(*low)):.1e} parallel {error(parallel(*low)):.1e}"
            further += f"  by mass {error(slopes[1], slopes[0]):.1e}"
        print(f"{path.name:40s} {robot.n_links:4d} links {found:10.1e}{further}", flush=True)
        jax.clear_caches()
    print(f"largest difference {worst:.1e}; refused: {len(refused)}", *refused, sep="\n    ")
    sys.exit(0 if worst < 1e-7 else 1)


if options.real_robots:
    real_robots()


def timed(function, *arguments) -> float:
    best = np.inf
    for _ in range(options.repetitions):
        start = time.perf_counter()
        jax.block_until_ready(function(*arguments))
        best = min(best, time.perf_counter() - start)
    return best


print(f"{'':6s} {'float32 error':>24s} {'float64':>10s} {'steps in sequence':>20s} {'ms, float64':>18s} {'':4s}")
print(
    f"{'links':6s} {'serial':>12s} {'parallel':>11s} {'parallel':>10s} {'serial':>10s} {'parallel':>9s} "
    f"{'serial':>9s} {'parallel':>8s}"
)
for n in options.links:
    robot = soa.models.chain(n, length=1.0 / n, mass=0.1 / n)
    phase = np.arange(n) / n
    q = jnp.asarray(2.0 / n * np.cos(2 * np.pi * phase))
    v = jnp.asarray(3.0 / n * np.sin(4 * np.pi * phase))
    tau = jnp.zeros(n)

    single = robot.astype(jnp.float32)
    small = [x.astype(jnp.float32) for x in (q, v, tau)]
    exact = serial(robot, q, v, tau)

    def error(a, exact=exact):
        return float(jnp.max(jnp.abs(a - exact)) / jnp.max(jnp.abs(exact)))

    row = [error(serial(single, *small)), error(parallel(single, *small)), error(parallel(robot, q, v, tau))]
    steps = [3 * robot.topology.dof_plan.sequential_steps, PathPlan(robot.topology.parents).sequential_steps]
    times = [1e3 * timed(f, robot, q, v, tau) for f in (serial, parallel)]
    print(
        f"{n:<6d} {row[0]:12.1e} {row[1]:11.1e} {row[2]:10.1e} {steps[0]:10d} {steps[1]:9d} "
        f"{times[0]:9.2f} {times[1]:8.2f}"
    )
