"""Forward dynamics against the number of links: compile time stays, run time grows linearly.

    python experiments/scaling.py

Chains of 8 to 4096 links, float64, one evaluation, serial sweeps and logarithmic-depth scans. Compilation is repeated
from scratch and run times are interleaved; both report minima, because machines are noisy.
"""

from __future__ import annotations

import argparse
import time
from functools import partial

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

import jaxsoa as soa  # noqa: E402

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--links", type=int, nargs="+", default=[8, 64, 512, 1024, 4096])
parser.add_argument("--repetitions", type=int, default=5)
parser.add_argument("--parallel", action="store_true", help="also the logarithmic-depth method (compiles slowly)")
options = parser.parse_args()

methods = ["articulated", "parallel"] if options.parallel else ["articulated"]
cases = {}
for n in options.links:
    robot = soa.models.chain(n)
    rng = np.random.default_rng(0)
    state = (robot.random(jax.random.key(0)), *(jnp.asarray(rng.normal(size=robot.nv)) for _ in range(2)))
    for method in methods:
        cases[n, method] = (robot, state)

compile_time = {case: np.inf for case in cases}
compiled = {}
for _ in range(3):
    for (n, method), (robot, state) in cases.items():
        jax.clear_caches()
        function = jax.jit(partial(soa.forward_dynamics, method=method))
        start = time.perf_counter()
        compiled[n, method] = function.lower(robot, *state).compile()
        compile_time[n, method] = min(compile_time[n, method], time.perf_counter() - start)

run_time = {case: np.inf for case in cases}
for _ in range(options.repetitions):
    for case, (robot, state) in cases.items():
        compiled[case](robot, *state).block_until_ready()
        start = time.perf_counter()
        compiled[case](robot, *state).block_until_ready()
        run_time[case] = min(run_time[case], time.perf_counter() - start)

print(f"{'links':>6} {'method':>12} {'trace+compile, s':>17} {'ratio':>6} {'run, us':>10} {'us per link':>12}")
for (n, method), seconds in compile_time.items():
    base = compile_time[options.links[0], method]
    run = run_time[n, method] * 1e6
    print(f"{n:6d} {method:>12} {seconds:17.2f} {seconds / base:6.2f} {run:10.0f} {run / n:12.2f}")
