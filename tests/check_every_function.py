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
from helpers.transformed import compiled_together, complaints  # noqa: E402
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

    def one_at_a_time(f):
        return lambda: jax.lax.map(lambda s: f(model, s), batch)

    def mapped(f):
        local = jax.shard_map(jax.vmap(f, (None, 0)), mesh=mesh, in_specs=(whole, split), out_specs=split)
        return lambda: local(everywhere, spread)

    def divided(f):
        return lambda: jax.vmap(f, (None, 0))(everywhere, spread)

    wrong = {}
    expected, _ = compiled_together(names, one_at_a_time)
    for how, run in (("shard_map", mapped), ("sharded inputs", divided)):
        actual, bad = compiled_together(names, run)
        found = {**bad, **complaints(actual, expected, "float64")}
        wrong.update({f"{name} ({how})": what for name, what in found.items()})
    return wrong


if __name__ == "__main__":
    devices, model, which = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    chosen = {"core": CORE, "all": entries_on(model)}.get(which, which.split(";"))
    wrong = check(devices, model, list(chosen))
    for name, what in wrong.items():
        print(f"{name}: {what}")
    sys.exit(bool(wrong))
