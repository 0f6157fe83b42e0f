"""A roofline of batched forward dynamics on this machine, float64: operations, bytes, fraction of the peak, and why.

    python experiments/benchmarks/roofline.py [--batch 4096] [--robots arm humanoid] [--repetitions 20]

Measured peaks, all cores: multiply-adds by a matrix product of the BLAS (the most the machine does) and by an
element-wise chain that XLA compiles (the most that code of this kind can do); bytes by sums of arrays in the
second-level cache and of arrays in memory. Operations and bytes of the compiled program are counted in its text
(hlo_costs.py): a sum that is fused with a product still counts as two operations. Needs only jaxsoa, and frax or
example-robot-data for the files of the robots.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

os.environ["JAX_ENABLE_X64"] = "1"
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import numpy as np
from contenders import CORES
from coordinates import arrange
from hlo_costs import count
from jax.sharding import NamedSharding, PartitionSpec
from machine import describe_machine
from robots import make_robot, make_states

import jaxsoa as soa

CHAIN = 64  # multiply-adds on each element of the element-wise chain


def least(run: Callable, repetitions: int) -> float:
    run()
    times = []
    for _ in range(repetitions):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def matrix_peak(repetitions: int, size: int = 1536) -> float:
    """Operations per second of a matrix product by NumPy's BLAS, on all its threads."""
    a, b = np.random.default_rng(0).normal(size=(2, size, size))
    return 2 * size**3 / least(lambda: a @ b, repetitions)


def elementwise_peak(mesh, repetitions: int, size: int = 2048, rounds: int = 2000) -> float:
    """Operations per second of x <- x a + b, many times over on arrays in the first-level cache, on all devices."""
    along = PartitionSpec("batch")

    def chain(x):
        def one_round(_, x):
            for _ in range(CHAIN):
                x = x * 0.999 + 0.001
            return x

        return jax.lax.fori_loop(0, rounds, one_round, x)

    x = jax.device_put(np.ones(size * mesh.size), NamedSharding(mesh, along))
    run = jax.jit(jax.shard_map(chain, mesh=mesh, in_specs=along, out_specs=along, check_vma=False)).lower(x).compile()
    seconds = least(lambda: jax.block_until_ready(run(x)), repetitions)
    return 2.0 * CHAIN * rounds * size * mesh.size / seconds


def bandwidth(size: int, sums: int, repetitions: int) -> float:
    """Bytes per second of c = a + b by NumPy, one thread a core, each on arrays of its own of `size` doubles."""
    arrays = [tuple(np.ones(size) for _ in range(3)) for _ in range(CORES)]

    def work(triple) -> None:
        a, b, c = triple
        for _ in range(sums):
            np.add(a, b, out=c)

    with ThreadPoolExecutor(CORES) as pool:
        return 24.0 * size * sums * CORES / least(lambda: list(pool.map(work, arrays)), repetitions)


def forward_dynamics(name: str, batch: int, mesh, repetitions: int) -> dict:
    """Time, operations and bytes of a batch shared out over the devices."""
    with tempfile.TemporaryDirectory() as folder:
        described = make_robot(name, Path(folder))
        robot = soa.load_urdf(described.urdf, floating_base=described.floating, validate="off").frictionless()
    joints = [joint for joint in robot.joint_names if joint != "floating_base"]
    states = arrange(make_states(described, batch), "body", described.floating, described.joints, joints)
    along = PartitionSpec("batch")
    arguments = [jax.device_put(states[key], NamedSharding(mesh, along)) for key in ("q", "v", "tau")]
    batched = jax.vmap(lambda q, v, tau: soa.forward_dynamics(robot, q, v, tau))
    sharded = jax.shard_map(batched, mesh=mesh, in_specs=along, out_specs=along, check_vma=False)
    compiled = jax.jit(sharded).lower(*arguments).compile()
    seconds = least(lambda: jax.block_until_ready(compiled(*arguments)), repetitions)
    costs = count(compiled.as_text())  # of one device: of batch / devices states
    once = count(compiled.as_text(), repeat=False)
    theirs = compiled.cost_analysis() or {}
    share = batch / mesh.size
    io = sum(x.nbytes for x in arguments) / batch + 8 * robot.nv
    return {
        "robot": name,
        "dofs": robot.nv,
        "batch": batch,
        "microseconds_per_state": 1e6 * seconds / batch,
        "operations_per_state": costs.operations / share,
        "multiply_add_share": 2 * costs.multiply_adds / max(costs.operations, 1.0),
        "bytes_per_state": costs.bytes / share,
        "input_output_bytes_per_state": io,
        "loops_of_unknown_length": costs.unknown_loops,
        # How our count compares with XLA's where the two mean the same.
        "bodies_once": {
            "operations": once.operations,
            "operations_by_xla": theirs.get("flops"),
            "bytes": once.bytes,
            "bytes_by_xla": theirs.get("bytes accessed"),
        },
        "operations_per_second": costs.operations * mesh.size / seconds,
        "bytes_per_second": costs.bytes * mesh.size / seconds,
    }


def verdict(row: dict, peaks: dict) -> str:
    """What limits this program, from the figures alone."""
    compute = row["operations_per_second"] / peaks["elementwise"]
    cache = row["bytes_per_second"] / peaks["cache"]
    memory = row["input_output_bytes_per_state"] / row["microseconds_per_state"] * 1e6 / peaks["memory"]
    bound = "the traffic of intermediate results with the cache" if cache > compute else "arithmetic"
    text = (
        f"{row['robot']}: {compute:.0%} of the element-wise peak, {cache:.0%} of the cache's bandwidth, inputs and "
        f"outputs {memory:.0%} of the memory's. The nearer roof is {bound}; "
    )
    if cache > 1:
        text += "above 100 % the first-level cache serves a part of it; "
    if max(compute, cache) < 0.4:
        text += "neither is near: the rest is latency of short loops (dependent steps, divisions, sines and cosines)."
    else:
        text += "the rest is loop overhead, divisions, sines and cosines, and steps that wait for each other."
    if row["multiply_add_share"] < 0.95:
        text += (
            f" At most {row['multiply_add_share']:.0%} of the operations pair up into multiply-adds; the peaks' all do."
        )
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--robots", nargs="+", default=["arm", "humanoid"])
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--output", type=Path, help="a JSON file for the figures")
    options = parser.parse_args()
    soa.fast_cpu(devices=CORES)
    mesh = jax.make_mesh((CORES,), ("batch",))
    if options.batch % CORES:
        parser.error(f"--batch must be a multiple of the {CORES} cores")

    machine = describe_machine(CORES)
    print(f"{CORES} cores of {machine['cpu']}, jax {jax.__version__}, float64, all cores", flush=True)
    few = max(3, options.repetitions // 2)
    peaks = {
        "matrix": matrix_peak(few),
        "elementwise": elementwise_peak(mesh, few),
        "cache": bandwidth(2**14, 500, few),
        "memory": bandwidth(2**23, 2, few),
    }
    print(
        f"peaks: {peaks['matrix'] / 1e9:.1f} Gop/s matrix product, {peaks['elementwise'] / 1e9:.1f} Gop/s "
        f"element-wise, {peaks['cache'] / 1e9:.0f} GB/s in cache, {peaks['memory'] / 1e9:.0f} GB/s in memory\n",
        flush=True,
    )
    print("| robot | us per state | operations | bytes | op/byte | Gop/s | of matrix peak | of element-wise | GB/s |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    rows = []
    for name in options.robots:
        row = forward_dynamics(name, options.batch, mesh, options.repetitions)
        rows.append(row)
        speed = row["operations_per_second"]
        print(
            f"| {name} | {row['microseconds_per_state']:.3g} | {row['operations_per_state']:.0f} | "
            f"{row['bytes_per_state']:.0f} | {row['operations_per_state'] / row['bytes_per_state']:.2f} | "
            f"{speed / 1e9:.2f} | {speed / peaks['matrix']:.1%} | {speed / peaks['elementwise']:.1%} | "
            f"{row['bytes_per_second'] / 1e9:.1f} |",
            flush=True,
        )
    print()
    for row in rows:
        row["verdict"] = verdict(row, peaks)
        print(row["verdict"])
        once = row["bodies_once"]
        print(
            f"  (loop bodies counted once: {once['operations']:.3g} operations and {once['bytes']:.3g} bytes; XLA's "
            f"cost_analysis says {once['operations_by_xla'] or 0:.3g} and {once['bytes_by_xla'] or 0:.3g})"
        )
    if options.output:
        document = {"machine": machine, "peaks": peaks, "rows": rows}
        options.output.write_text(json.dumps(document, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
