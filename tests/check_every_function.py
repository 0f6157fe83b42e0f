"""Run by test_every_function.py in a process of its own: functions sharded over devices, against one state at a time.

Usage: check_every_function.py devices model names ("core", "all", or names separated by semicolons).
"""

from __future__ import annotations

import sys
from pathlib import Path

import jax

jax.config.update("jax_enable_x64", True)
sys.path.insert(0, str(Path(__file__).parent))

import numpy as np  # noqa: E402
from helpers.every_function import CORE, entries_on  # noqa: E402
from helpers.function_states import MODELS, states  # noqa: E402
from helpers.numpy_programs import evaluated  # noqa: E402
from helpers.transformed import error_of, row, tolerance_of, traced_once  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402


def check(devices: int, model_name: str, names: list[str]) -> dict[str, str]:
    """What is wrong: with `shard_map` (types of devices' axes checked), and with jit over sharded states."""
    assert jax.device_count() == devices, jax.devices()
    mesh = Mesh(np.asarray(jax.devices()), ("batch",))
    split, whole = PartitionSpec("batch"), PartitionSpec()
    model = MODELS[model_name]()
    batch = states(model, devices)
    spread = jax.device_put(batch, NamedSharding(mesh, split))
    everywhere = jax.device_put(model, NamedSharding(mesh, whole))

    wrong = {}
    for name in names:
        f = traced_once(name)
        program = jax.make_jaxpr(f)(model, row(batch, 0))
        each = [evaluated(program, jax.tree.leaves((model, row(batch, k)))) for k in range(devices)]
        expected = [np.stack(x) for x in zip(*each, strict=True)]
        mapped = jax.shard_map(jax.vmap(f, (None, 0)), mesh=mesh, in_specs=(whole, split), out_specs=split)
        for how, run in (("shard_map", mapped), ("sharded inputs", jax.vmap(f, (None, 0)))):
            try:
                error = error_of(jax.jit(run)(everywhere, spread), expected)
                complaint = "" if error <= tolerance_of(name, "float64") else f"relative error {error:.1e}"
            except Exception as raised:  # whatever it is, it goes into the report
                complaint = f"{type(raised).__name__}: {raised}".split("\n")[0][:300]
            if complaint:
                wrong[f"{name} ({how})"] = complaint
    return wrong


if __name__ == "__main__":
    devices, model, which = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    chosen = {"core": CORE, "all": entries_on(model)}.get(which, which.split(";"))
    wrong = check(devices, model, list(chosen))
    for name, what in wrong.items():
        print(f"{name}: {what}")
    sys.exit(bool(wrong))
