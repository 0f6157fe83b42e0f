"""How many states a batch should take at a time: forward dynamics in chunks of different sizes.

    pip install -e ".[bench]" && python experiments/chunk_sizes.py [--robot quadruped] [--sizes 128 136 256 264 512 520]

One component of a chunk is a row of memory. Rows that are a power of two long begin in the same few sets of the cache
and drive each other out; rows of an odd number of cache lines (of 64 bytes, eight numbers) spread over all of them.
Batch of 4096, float64, one device with `soa.fast_cpu`; minima over interleaved repetitions.
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

import jaxsoa as soa

soa.fast_cpu()

import jax  # noqa: E402
import numpy as np  # noqa: E402
from robots import make_robot  # noqa: E402

from jaxsoa import batching  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--robot", default="quadruped", choices=["arm", "quadruped", "humanoid"])
    parser.add_argument("--sizes", type=int, nargs="+", default=[128, 136, 256, 264, 512, 520])
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--repetitions", type=int, default=30)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = make_robot(options.robot, Path(folder))
        robot = soa.load_urdf(file.urdf, floating_base=file.floating, validate="off").frictionless()
    q = jax.vmap(robot.random)(jax.random.split(jax.random.key(0), options.batch))
    v, tau = jax.random.normal(jax.random.key(1), (2, options.batch, robot.nv))
    own_choice, runs = batching.chunk_of, {}
    for size in (None, *options.sizes):
        batching.chunk_of = own_choice if size is None else lambda *_, size=size, **__: size
        function = jax.vmap(lambda q, v, tau: soa.forward_dynamics(robot, q, v, tau))
        runs[size] = jax.jit(function).lower(q, v, tau).compile()
        print(f"compiled {len(runs)} of {len(options.sizes) + 1}", file=sys.stderr)
    best = dict.fromkeys(runs, np.inf)
    for _ in range(options.repetitions):
        for size, run in runs.items():
            start = time.perf_counter()
            jax.block_until_ready(run(q, v, tau))
            best[size] = min(best[size], time.perf_counter() - start)
    chosen = own_choice(options.batch, batching.SWEEP_CHUNK, 8)
    print(f"{options.robot}, forward dynamics, batch {options.batch}: us per state")
    for size, seconds in best.items():
        name = f"{chosen} (chosen)" if size is None else str(size)
        print(f"  chunks of {name:14s} {1e6 * seconds / options.batch:8.3f}")


if __name__ == "__main__":
    main()
