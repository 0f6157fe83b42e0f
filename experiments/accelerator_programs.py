"""The programs that an A100 would run: kernel launches, memory traffic, registers and spills, compiled without a GPU.

    pip install -e ".[test]" "jax==0.10.2" "jaxlib==0.10.2" nvidia-cuda-nvcc-cu12
    pip install --no-deps jax-cuda12-plugin==0.10.2 jax-cuda12-pjrt==0.10.2
    python experiments/accelerator_programs.py --robots arm humanoid

Compiled ahead of time for a described device, in float32, one process per program, `--patience` seconds each. Launches
count every kernel of one call, those of loops as often as the loop turns. Nothing here has run on a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

A100 = """
gpu_device_info {
  threads_per_block_limit: 1024  threads_per_warp: 32  shared_memory_per_block: 49152  shared_memory_per_core: 167936
  threads_per_core_limit: 2048  core_count: 108  fpus_per_core: 64  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535  block_dim_limit_z: 65535  memory_bandwidth: 2039040000000  l2_cache_size: 41943040
  clock_rate_ghz: 1.41  device_memory_size: 85100068864  shared_memory_per_block_optin: 166912
  cuda_compute_capability { major: 8 feature_extension: NONE }  registers_per_core_limit: 65536
  registers_per_block_limit: 65536  dnn_version: "9.8.0"  runtime_version: "12.9.0"  driver_version: "12.9.0"
  compile_time_toolkit_version: "12.9.0"  thread_dim_limit_x: 1024  thread_dim_limit_y: 1024  thread_dim_limit_z: 64
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 8 patch: 0 }
runtime_version { major: 12 minor: 9 patch: 0 }
device_description_str: "NVIDIA A100-SXM4-80GB"
"""
ROBOTS = {
    "arm": "panda_description/urdf/panda.urdf",  # its fingers locked
    "quadruped": "go2_description/urdf/go2.urdf",
    "humanoid": "g1_description/urdf/g1_29dof_rev_1_0.urdf",
}
FUNCTIONS = ("forward_dynamics", "inverse_dynamics", "mass_matrix", "linearization", "gradient", "step")
BYTES = {"f64": 8, "s64": 8, "u64": 8, "f32": 4, "s32": 4, "u32": 4, "f16": 2, "bf16": 2, "pred": 1, "s8": 1, "u8": 1}
NO_KERNEL = {
    "parameter", "tuple", "get-tuple-element", "bitcast", "constant", "opt-barrier", "after-all", "partition-id",
    "async-done",
}  # fmt: skip


def compile_one(robot: str, function: str, batch: int, dump: Path) -> dict:
    """In a process of its own: compile for the described device and count what came out."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["XLA_FLAGS"] = f"--xla_dump_to={dump} --xla_dump_hlo_as_text"
    import jax
    import jax.numpy as jnp
    from jax.experimental import topologies
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    import jaxsoa as soa

    model = soa.load_urdf(find(ROBOTS[robot]), floating_base=robot != "arm", validate="off")
    if robot == "arm":
        model = model.lock(["panda_finger_joint1", "panda_finger_joint2"])
    model = jax.tree.map(lambda x: x.astype(jnp.float32) if jnp.issubdtype(x.dtype, jnp.floating) else x, model)
    acceleration = lambda q, v, tau: soa.forward_dynamics(model, q, v, tau)  # noqa: E731
    work = {
        "forward_dynamics": jax.vmap(acceleration),
        "inverse_dynamics": jax.vmap(lambda q, v, a: soa.inverse_dynamics(model, q, v, a)),
        "mass_matrix": jax.vmap(lambda q, v, tau: soa.mass_matrix(model, q)),
        "linearization": jax.vmap(lambda q, v, tau: soa.linearize_forward_dynamics(model, q, v, tau)),
        "gradient": jax.grad(lambda *x: (jax.vmap(acceleration)(*x) ** 2).sum(), (0, 1, 2)),
        "step": jax.vmap(lambda q, v, tau: soa.step(model, q, v, tau, 0.01)),
    }[function]
    device = topologies.get_topology_desc(platform="cuda", topology="1x1x1", target_config=A100).devices[0]
    whole = NamedSharding(Mesh([device], ("x",)), PartitionSpec())
    inputs = [jax.ShapeDtypeStruct((batch, n), jnp.float32) for n in (model.nq, model.nv, model.nv)]
    begun = time.perf_counter()
    traced = jax.jit(work, in_shardings=whole, out_shardings=whole).trace(*inputs)
    lowered = traced.lower(lowering_platforms=("cuda",))
    between = time.perf_counter()
    program = lowered.compile().as_text()
    computations, entry = parse(program)
    kinds, traffic = count(computations, entry)
    return {
        "launches": sum(kinds.values()),
        "megabytes": traffic / 1e6,
        "traced": between - begun,
        "compiled": time.perf_counter() - between,
    } | registers(dump)


def find(inside: str) -> Path:
    for folder in sys.path:
        path = Path(folder) / "cmeel.prefix/share/example-robot-data/robots" / inside
        if path.is_file():
            return path
    raise FileNotFoundError(f"{inside} is a file of example-robot-data, which is not installed")


def parse(program: str) -> tuple[dict[str, list[dict]], str]:
    """The computations of an optimized program, each a list of instructions, and the name of the one that runs."""
    computations: dict[str, list[dict]] = {}
    entry, body = "", None
    for line in program.splitlines():
        if head := re.match(r"^(ENTRY )?%?([\w.\-]+) \(.*\) -> .*\{$", line):
            body = computations[head[2]] = []
            entry = head[2] if head[1] else entry
        elif line.startswith("}"):
            body = None
        elif body is not None and (found := re.match(r"^\s+(ROOT )?%?([\w.\-]+) = (.*)$", line)):
            kind, rest = _split_type(found[3])
            operation = re.match(r"[\w\-]+", rest)[0]
            inside = rest[len(operation) : _closing(rest, len(operation)) + 1]
            body.append({
                "name": found[2], "root": bool(found[1]), "type": kind, "operation": operation,
                "operands": re.findall(r"%([\w.\-]+)", inside), "attributes": rest[len(operation) + len(inside) :],
            })  # fmt: skip
    return computations, entry


def _closing(text: str, start: int) -> int:
    depth = 0
    for place in range(start, len(text)):
        depth += (text[place] == "(") - (text[place] == ")")
        if depth == 0 and text[place] == ")":
            return place
    return len(text)


def _split_type(text: str) -> tuple[str, str]:
    if text.startswith("("):
        end = _closing(text, 0) + 1
        return text[:end], text[end:].strip()
    kind, rest = text.split(" ", 1)
    return kind, rest


def size(kind: str) -> int:
    total = 0
    for dtype, shape in re.findall(r"\b(\w+)\[([\d,]*)\]", kind):
        number = BYTES.get(dtype, 0)
        for extent in filter(None, shape.split(",")):
            number *= int(extent)
        total += number
    return total


def count(computations: dict, name: str, times: int = 1) -> tuple[Counter, float]:
    """Kernels by kind and bytes through memory of one call: a fusion reads its operands and writes its result."""
    kinds: Counter = Counter()
    traffic = 0.0
    types = {x["name"]: x["type"] for x in computations[name]}

    def go_into(inner: str, turns: int) -> None:
        nonlocal traffic
        more, bytes_ = count(computations, inner, turns)
        kinds.update(more)
        traffic += bytes_

    for x in computations[name]:
        operation, attributes = x["operation"], x["attributes"]
        if operation == "while":
            known = re.search(r'known_trip_count":\{"n":"?(\d+)', attributes)
            if known is None:
                raise ValueError("a loop of unknown length: its launches cannot be counted")
            go_into(re.search(r"body=%?([\w.\-]+)", attributes)[1], times * int(known[1]))
        elif operation in ("call", "async-start"):
            go_into(re.search(r"(?:to_apply|calls|called_computations)=\{?%?([\w.\-]+)", attributes)[1], times)
        elif operation == "conditional":
            for inner in re.findall(r"%([\w.\-]+)", attributes[attributes.index("_computation") :]):
                if inner in computations:
                    go_into(inner, times)
        elif operation not in NO_KERNEL:
            kinds[operation] += times
            traffic += times * (size(x["type"]) + sum(size(types.get(y, "")) for y in x["operands"]))
    return kinds, traffic


def registers(dump: Path) -> dict:
    """The most registers and spilled bytes of any kernel, by NVIDIA's own assembler where it is installed."""
    import importlib.util

    place = importlib.util.find_spec("nvidia.cuda_nvcc") if importlib.util.find_spec("nvidia") else None
    if place is None:
        return {}
    assembler = Path(next(iter(place.submodule_search_locations or []))) / "bin" / "ptxas"
    used, spilled = [0], [0]
    for source in dump.glob("*.ptx"):
        if not source.stat().st_size:  # a module of constants
            continue
        command = [assembler, "-v", "--gpu-name", "sm_80", source, "-o", os.devnull]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
        used += map(int, re.findall(r"Used (\d+) registers", said))
        spilled += map(int, re.findall(r"(\d+) bytes spill stores", said))
    return {"registers": max(used), "spilled": max(spilled)}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--robots", nargs="+", choices=ROBOTS, default=["arm", "humanoid"])
    options.add_argument("--functions", nargs="+", choices=FUNCTIONS, default=FUNCTIONS)
    options.add_argument("--batch", type=int, default=4096)
    options.add_argument("--patience", type=float, default=600.0, help="seconds until a program is given up")
    options.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.one:
        with tempfile.TemporaryDirectory() as dump:
            print(json.dumps(compile_one(given.robots[0], given.functions[0], given.batch, Path(dump))))
        return
    print(f"A100, float32, batch {given.batch}; compiled for, not run")
    print(f"{'robot':10} {'function':18} launches      MB  registers  spilled bytes  traced s  compiled s")
    for robot in given.robots:
        for function in given.functions:
            command = [sys.executable, __file__, "--one", "--robots", robot, "--functions", function]
            try:
                done = subprocess.run(
                    [*command, "--batch", str(given.batch)], capture_output=True, text=True, timeout=given.patience
                )
            except subprocess.TimeoutExpired:
                print(f"{robot:10} {function:18} not compiled within {given.patience:.0f} s", flush=True)
                continue
            if done.returncode:
                print(f"{robot:10} {function:18} failed: {done.stderr.strip().splitlines()[-1]}", flush=True)
                continue
            x = json.loads(done.stdout.splitlines()[-1])
            print(
                f"{robot:10} {function:18} {x['launches']:8} {x['megabytes']:7.1f}  {x.get('registers', '-'):>9}  "
                f"{x.get('spilled', '-'):>13}  {x['traced']:8.1f}  {x['compiled']:10.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
