"""Kernels where something is missing, killed, shared out or asked for by hundreds of robots, each in a process."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

SETUP = """
import warnings, jax, jax.numpy as jnp, numpy as np
jax.config.update("jax_enable_x64", True)
import jaxsoa as soa
from jaxsoa import kernels
from jaxsoa.kernels.machine import KernelNotice
robot = soa.models.random_tree(3, 2, ["revolute", "spherical"], damping=True)
q = jax.vmap(robot.random)(jax.random.split(jax.random.key(0), 16))
v, tau = jax.random.normal(jax.random.key(1), (2, 16, robot.nv))
def everything(robot, q, v, tau):
    def cost(robot, *state):
        return jnp.sum(soa.forward_dynamics(robot, *state) ** 2)
    by_robot, by_q = jax.grad(cost, argnums=(0, 1))(robot, q, v, tau)
    return soa.forward_dynamics(robot, q, v, tau), soa.mass_matrix(robot, q), by_robot.mass, by_q
"""


def run(script: str, code: int = 0, **environment: str) -> list[str]:
    """What a script prints, in a process with its own settings."""
    done = subprocess.run(
        [sys.executable, "-c", SETUP + script],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )
    assert done.returncode == code, done.stderr[-3000:]
    return done.stdout.splitlines()


@pytest.mark.slow
def test_without_llvmlite_everything_works_and_it_is_said_once(tmp_path):
    """The same numbers as with it, and one notice."""
    compute = """
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    found = jax.tree.leaves(jax.jit(jax.vmap(everything, in_axes=(None, 0, 0, 0)))(robot, q, v, tau))
    found.append(soa.inverse_dynamics(robot, q[0], v[0], tau[0]))
said = [str(w.message) for w in caught if issubclass(w.category, KernelNotice)]
print(len(said), "llvmlite" in "".join(said), {"kernel" in line for line in str(kernels.report()).splitlines()})
np.savez(PATH, *map(np.asarray, found))
"""
    with_it, without = tmp_path / "with.npz", tmp_path / "without.npz"
    assert run(f"PATH = {str(with_it)!r}\n{compute}") == ["0 False {True}"]
    hidden = "import sys; sys.modules['llvmlite'] = None; sys.modules['llvmlite.binding'] = None\n"
    assert run(f"PATH = {str(without)!r}\n{hidden}{compute}") == ["1 True {False}"]
    with np.load(with_it) as one, np.load(without) as other:
        for name in one.files:
            np.testing.assert_allclose(one[name], other[name], rtol=0, atol=1e-11 * np.abs(one[name]).max())


@pytest.mark.slow
@pytest.mark.parametrize("devices", [2, 8])
def test_a_jitted_call_on_sharded_inputs_is_computed_where_they_are(devices):
    """Without `shard_map`: results stay divided like the batch, and no device is sent another's states.

    For a known robot and for one that is an argument, whose numbers every device has.
    """
    lines = run(
        f"""
from jax.sharding import Mesh, NamedSharding, PartitionSpec
mesh = Mesh(np.array(jax.devices()), ("batch",))
assert mesh.size == {devices}
here = NamedSharding(mesh, PartitionSpec("batch"))
def one(robot, q, v, tau):
    return everything(robot, q, v, tau), soa.step(robot, q, v, tau, 0.01)
compute = jax.jit(lambda robot, *state: jax.vmap(one, in_axes=(None, 0, 0, 0))(robot, *state))
known = jax.jit(jax.vmap(lambda *state: one(robot, *state)))
expected = jax.tree.leaves(known(q, v, tau))
placed = [jax.device_put(x, here) for x in (q, v, tau)]
everywhere = jax.device_put(robot, NamedSharding(mesh, PartitionSpec()))
for run, arguments in ((known, placed), (compute, [everywhere, *placed])):
    program = run.lower(*arguments).compile()
    for x, y in zip(jax.tree.leaves(program(*arguments)), expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-11, atol=1e-11)
        assert x.sharding.is_equivalent_to(here, x.ndim), x.sharding
    print("all-gather" in program.as_text(), "jaxsoa" in program.as_text())
""",
        XLA_FLAGS=f"--xla_force_host_platform_device_count={devices}",
    )
    assert lines == ["False True"] * 2


def test_a_process_killed_while_it_writes_a_kernel_leaves_a_cache_that_works(tmp_path):
    call = "print(np.isfinite(jax.jit(soa.forward_dynamics)(robot, q[0], v[0], tau[0])).all())"
    killed = """
import os, signal
from jaxsoa.kernels import disk_cache
whole = os.fdopen
class Half:
    def __init__(self, file):
        self.file = file
    def __enter__(self):
        return self
    def __exit__(self, *_):
        pass
    def write(self, content):
        self.file.write(content[: len(content) // 2])
        self.file.flush()
        os.kill(os.getpid(), signal.SIGKILL)
disk_cache.os.fdopen = lambda handle, mode: Half(whole(handle, mode))
"""
    folder = tmp_path / "kernels"
    assert run(killed + call, code=-9, JAXSOA_KERNEL_CACHE=str(folder)) == []
    left = list(folder.iterdir())
    assert len(left) == 1  # half a file, under a name that nobody asks for
    for _ in range(2):  # written, and read
        assert run(call, JAXSOA_KERNEL_CACHE=str(folder)) == ["True"]
    assert left[0] in folder.iterdir() and len(list(folder.iterdir())) > 1


@pytest.mark.slow
def test_five_hundred_robots_in_one_process_take_little_more_than_their_code():
    """Machine code stays for the life of the process; all else is given back."""
    lines = run(
        """
import gc
from pathlib import Path
def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
def use(k):
    robot = soa.models.pendulum(1)
    robot = robot.replace(mass=robot.mass * (1 + 1e-3 * k))
    step = jax.jit(lambda q, v, tau: soa.forward_dynamics(robot, q, v, tau))
    return step(q[0, :1], v[0, :1], tau[0, :1]).block_until_ready()
for k in range(500):
    use(k)
    if k in (249, 499):
        jax.clear_caches(); soa.clear_caches(); gc.collect()
        print(resident())
"""
    )
    middle, end = map(int, lines)
    assert end - middle < 250 * 60_000, (end - middle) / 250


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="what glibc does with freed memory")
def test_memory_of_large_results_is_kept_unless_told_otherwise():
    """40 MB stay resident when the array is gone, so that the next call finds them; small results change nothing."""
    script = """
import ctypes, gc, sys
if not hasattr(ctypes.CDLL(None), "gnu_get_libc_version"):
    print("another"); sys.exit()
f = jax.jit(jax.vmap(kernels.door(lambda x: x[:, None] * x, constants=())))
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096 >> 20
x = jnp.ones((4096, 35))
f.lower(x).compile()
f(x[:8]).block_until_ready()
before = resident()
y = f(x).block_until_ready()
full = resident()
del y
gc.collect()
print(full - before > 30, resident() - before > 30)
"""
    kept = run(script)[0]
    if kept != "another":
        assert kept == "True True"
        assert run(script, JAXSOA_KEEP_MEMORY="0") == ["True False"]
