"""What one kernel per evaluation is worth: forward dynamics inside a loop and alone, with and without.

    pip install -e ".[bench]" && python experiments/one_kernel_speed.py [--links 8 64 512]

A 7-joint arm, a humanoid and chains, float64, one state, XLA's default flags; minima over interleaved repetitions.
"Inside a loop" is what a rollout or an optimizer sees; "alone" has JAX's own cost of a call in it, here without the
change of threads (`soa.low_latency_cpu`).
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

os.environ["JAX_ENABLE_X64"] = "1"
sys.path.insert(0, str(Path(__file__).parent / "benchmarks"))

import jax
import jax.numpy as jnp
from robots import make_robot

import jaxsoa as soa
from jaxsoa.one_kernel import OFF

LOOPS = 1000


def compiled(robot: soa.Multibody, one_kernel: bool) -> tuple:
    """(1,000 evaluations in a loop, one alone, the state)."""
    q, v = robot.random(jax.random.key(0)), jax.random.normal(jax.random.key(1), (robot.nv,))

    def alone(q, v, tau):
        return soa.forward_dynamics(robot, q, v, tau)

    def loop(q, v, tau):
        return jax.lax.fori_loop(0, LOOPS, lambda _, tau: alone(q, v, 1e-3 * tau), tau)

    os.environ[OFF] = str(int(one_kernel))
    return *(jax.jit(f).lower(q, v, v).compile() for f in (loop, alone)), (q, v, v)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--links", type=int, nargs="+", default=[8, 64, 512])
    parser.add_argument("--repetitions", type=int, default=15)
    options = parser.parse_args()
    soa.low_latency_cpu()
    robots = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in ("arm", "humanoid"):
            file = make_robot(name, Path(folder))
            robots[name] = soa.load_urdf(file.urdf, floating_base=file.floating, validate="off").frictionless()
    robots |= {f"chain of {n}": soa.models.chain(n) for n in options.links}
    print(f"{'us per evaluation':16s} {'in a loop':>22s} {'alone':>22s}")
    print(f"{'':16s} {'many':>10s} {'one kernel':>11s} {'many':>10s} {'one kernel':>11s}")
    for name, robot in robots.items():
        ways = {way: compiled(robot, way) for way in (False, True)}
        best = {}
        for _ in range(options.repetitions):
            for way, (loop, alone, state) in ways.items():
                for what, run, count in (("loop", loop, 1), ("alone", alone, 200)):
                    start = time.perf_counter()
                    for _ in range(count):
                        jax.block_until_ready(run(*state))
                    seconds = (time.perf_counter() - start) / (count if what == "alone" else LOOPS)
                    best[what, way] = min(best.get((what, way), jnp.inf), seconds)
        row = [1e6 * best[what, way] for what in ("loop", "alone") for way in (False, True)]
        print(f"{name:16s} {row[0]:10.2f} {row[1]:11.2f} {row[2]:10.1f} {row[3]:11.1f}", flush=True)


if __name__ == "__main__":
    main()
