"""How the linearized forward model grows with the number of links: run time, and time to trace and compile.

    python experiments/linearization_growth.py [--links 8 16 32 64 128 256 512]

Serial chains in float64, one state. Algorithm 5 (the perturbation of the accelerations along one direction) is to grow
linearly, Algorithm 6 (three n by n matrices) quadratically, and compilation not at all. Run times are minima over
interleaved repetitions. An exponent is the slope of log time over log n, fitted to the upper half of the sizes: the
lower half is overhead of the call. Algorithm 6 changes its last products at the size that is printed, so compile times
are to be compared on either side of it.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

os.environ["JAX_ENABLE_X64"] = "1"

import jax
import numpy as np

import jaxsoa as soa
from jaxsoa.linearized.forward import DENSE_UP_TO


def perturbation(robot, x):
    return soa.forward_dynamics_perturbation(robot, *x)


def matrices(robot, x):
    return soa.linearize_forward_dynamics(robot, *x[:3])


ALGORITHMS = {"Algorithm 5": perturbation, "Algorithm 6": matrices}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--links", type=int, nargs="+", default=[8, 16, 32, 64, 128, 256, 512])
    parser.add_argument("--repetitions", type=int, default=10)
    options = parser.parse_args()
    compiled, compile_time = {}, {}
    for name, algorithm in ALGORITHMS.items():
        for n in options.links:
            robot = soa.models.chain(n)
            x = jax.random.normal(jax.random.key(n), (6, n)) / 2
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
    print(f"chains, float64, one state; Algorithm 6 multiplies dense matrices up to n = {DENSE_UP_TO}")
    print(f"{'n':>5s}", *(f"{name + ', us':>16s} {'trace+compile, s':>17s}" for name in ALGORITHMS))
    for n in options.links:
        columns = (f"{1e6 * best[name, n]:16.0f} {compile_time[name, n]:17.2f}" for name in ALGORITHMS)
        print(f"{n:5d}", *columns)
    upper = options.links[len(options.links) // 2 :]
    for name in ALGORITHMS:
        if len(upper) > 1:
            slope = np.polyfit(np.log(upper), np.log([best[name, n] for n in upper]), 1)[0]
            print(f"{name}: time grows as n^{slope:.2f} from n = {upper[0]} to {upper[-1]}")


if __name__ == "__main__":
    main()
