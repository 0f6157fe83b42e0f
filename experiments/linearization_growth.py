"""How the linearized forward model grows with the number of links: operations, run time, time to trace and compile.

    python experiments/linearization_growth.py [--links 8 16 32 64 96 128 ... 512] [--whole-loops]

Serial chains in float64, one state. Algorithm 5 (the perturbation of the accelerations along one direction) is to grow
linearly, Algorithm 6 (three n by n matrices) quadratically, and compilation not at all. Operations (multiplications and
additions) are counted in the program as in `operation_counts.py`; run times are minima over interleaved repetitions. An
exponent is the slope of log time over log n from the first size above 64 on.

Two things change between 64 and 65 links, and neither is work that grows:
- Algorithm 6 stops multiplying dense matrices and takes two sweeps more (n^3 operations become n^2).
- Algorithm 5 is many kernels (the sweeps of Algorithm 6 are one). XLA's CPU runtime runs those of a loop's step one
  after another while every array that they touch has at most 512 bytes: 64 numbers in float64, 128 in float32. Above,
  it hands each step to a scheduler for several threads, and a step of a sweep, a few microseconds of work, then takes
  about twice as long. Algorithm 5 jumps at 65 links in float64 and at 129 in float32 (`--float32`).
With `--whole-loops` XLA compiles each sweep into one kernel (its option xla_cpu_small_while_loop_byte_threshold) and
schedules nothing inside: that jump is gone.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--links", type=int, nargs="+", default=[8, 16, 32, 64, 65, 96, 128, 192, 256, 384, 512])
parser.add_argument("--repetitions", type=int, default=30)
parser.add_argument("--whole-loops", action="store_true", help="have XLA compile each sweep into one kernel")
parser.add_argument("--float32", action="store_true")
options = parser.parse_args()
if options.whole_loops:
    loops = "--xla_backend_extra_options=xla_cpu_small_while_loop_byte_threshold=1000000000"
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {loops}".strip()
os.environ["JAX_ENABLE_X64"] = "0" if options.float32 else "1"

import jax  # noqa: E402
import numpy as np  # noqa: E402
from operation_counts import count  # noqa: E402

import jaxsoa as soa  # noqa: E402
from jaxsoa.linearized.forward import DENSE_UP_TO  # noqa: E402


def perturbation(robot, x):
    return soa.forward_dynamics_perturbation(robot, *x)


def matrices(robot, x):
    return soa.linearize_forward_dynamics(robot, *x[:3])


ALGORITHMS = {"Algorithm 5": perturbation, "Algorithm 6": matrices}


def main() -> None:
    compiled, compile_time, operations = {}, {}, {}
    for name, algorithm in ALGORITHMS.items():
        for n in options.links:
            robot = soa.models.chain(n)
            x = jax.random.normal(jax.random.key(n), (6, n)) / 2
            operations[name, n] = count(jax.make_jaxpr(algorithm)(robot, x).jaxpr).sum()
            start = time.perf_counter()
            compiled[name, n] = (jax.jit(algorithm).lower(robot, x).compile(), robot, x)
            compile_time[name, n] = time.perf_counter() - start
            print(f"\rcompiled {len(compiled)} of {len(ALGORITHMS) * len(options.links)}", end="", file=sys.stderr)
    print(file=sys.stderr)
    best = dict.fromkeys(compiled, np.inf)
    for _ in range(options.repetitions):
        for case, (function, *arguments) in compiled.items():
            start = time.perf_counter()
            jax.block_until_ready(function(*arguments))
            best[case] = min(best[case], time.perf_counter() - start)
    loops = "each sweep one kernel" if options.whole_loops else "XLA's defaults"
    dtype = "float32" if options.float32 else "float64"
    print(f"chains, {dtype}, one state, {loops}; Algorithm 6 multiplies dense matrices up to n = {DENSE_UP_TO}")
    print(f"{'':5s}", *(f"{name:^41s}" for name in ALGORITHMS))
    print(f"{'n':>5s}", *(f"{'operations':>11s} {'us':>8s} {'trace+compile, s':>20s}" for _ in ALGORITHMS))
    for n in options.links:
        columns = (
            f"{operations[name, n]:11.0f} {1e6 * best[name, n]:8.0f} {compile_time[name, n]:20.2f}"
            for name in ALGORITHMS
        )
        print(f"{n:5d}", *columns)
    upper = [n for n in options.links if n > DENSE_UP_TO]
    for name in ALGORITHMS:
        if len(upper) > 1:
            slopes = [
                np.polyfit(np.log(upper), np.log([table[name, n] for n in upper]), 1)[0] for table in (operations, best)
            ]
            each = 1e6 * (best[name, upper[-1]] - best[name, upper[-2]]) / (upper[-1] - upper[-2])
            print(
                f"{name}, n = {upper[0]} to {upper[-1]}: operations grow as n^{slopes[0]:.2f}, time as "
                f"n^{slopes[1]:.2f}; from {upper[-2]} to {upper[-1]} links each link adds {each:.1f} us"
            )


if __name__ == "__main__":
    main()
