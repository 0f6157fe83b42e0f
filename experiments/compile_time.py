"""How long forward dynamics takes to compile, tracing included: one state and a batch, by robot.

    pip install -e ".[bench]" && python experiments/compile_time.py [--repetitions 5] [--dtype float32]

Every compilation is in a fresh process, as a user meets it, with the settings meant for it (`soa.low_latency_cpu` for
one state, `soa.fast_cpu` for a batch); least, median and largest of the interleaved repetitions are printed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "benchmarks"))

ROBOTS = ("arm", "quadruped", "humanoid", "chain-8", "chain-1024")
BATCHES = (1, 4096)


def measure(robot_name: str, batch: int) -> dict[str, float]:
    """Seconds to trace and to compile, in this process."""
    import time

    import jax
    import jax.numpy as jnp
    from robots import make_robot

    import jaxsoa as soa

    if batch == 1:
        soa.low_latency_cpu()
    else:
        soa.fast_cpu()
    with tempfile.TemporaryDirectory() as folder:
        file = make_robot(robot_name, Path(folder))
        robot = soa.load_urdf(file.urdf, floating_base=file.floating, validate="off")

    def dynamics(q, v, tau):
        return soa.forward_dynamics(robot, q, v, tau)

    q, v = jnp.zeros((batch, robot.nq)), jnp.zeros((batch, robot.nv))
    run, arguments = (dynamics, (q[0], v[0], v[0])) if batch == 1 else (jax.vmap(dynamics), (q, v, v))
    begin = time.perf_counter()
    lowered = jax.jit(run).lower(*arguments)
    traced = time.perf_counter()
    lowered.compile()
    return {"trace": traced - begin, "total": time.perf_counter() - begin}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--robots", nargs="+", default=ROBOTS)
    parser.add_argument("--dtype", choices=("float64", "float32"), default="float64")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure[0], int(options.measure[1]))))
        return
    environment = {**os.environ, "JAX_ENABLE_X64": "1" if options.dtype == "float64" else "0"}
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)  # it would not compile then
    cases = {(robot, batch): [] for robot in options.robots for batch in BATCHES if batch == 1 or "chain" not in robot}
    for repetition in range(options.repetitions):
        for robot, batch in cases:
            print(f"\r{repetition + 1}/{options.repetitions} {robot}, batch {batch}\x1b[K", end="", file=sys.stderr)
            command = [sys.executable, __file__, "--measure", robot, str(batch)]
            answer = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
            cases[robot, batch].append(json.loads(answer.splitlines()[-1]))
    print(f"\r\x1b[Kseconds, {options.dtype}{'':18s} least  median  largest  (tracing, least)")
    for (robot, batch), found in cases.items():
        total = [x["total"] for x in found]
        trace = min(x["trace"] for x in found)
        what = f"{robot}, {'one state' if batch == 1 else f'batch of {batch}'}"
        print(f"{what:32s} {min(total):6.2f}  {statistics.median(total):6.2f}  {max(total):7.2f}  ({trace:.2f})")


if __name__ == "__main__":
    main()
