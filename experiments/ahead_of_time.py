"""How soon a controller has its first accelerations: traced and compiled, from an exported file, with a warm cache.

    pip install -e ".[export]" && python experiments/ahead_of_time.py

Each way runs in a process of its own. Seconds are from the start of the work (JAX imported) to the first answer.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

SETUP = """
import time, jax, jax.export, numpy as np
jax.config.update("jax_enable_x64", True)
cache = {cache!r}
if cache:
    jax.config.update("jax_compilation_cache_dir", cache)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.numpy.zeros(1).block_until_ready()
state = np.zeros(6), np.zeros(6), np.ones(6)
start = time.perf_counter()
"""
TRACED = """
import jaxsoa as soa
robot = soa.models.puma560()
a = jax.jit(lambda q, v, tau: soa.forward_dynamics(robot, q, v, tau))(*state).block_until_ready()
"""
LOADED = """
from pathlib import Path
program = jax.export.deserialize(bytearray(Path({path!r}).read_bytes()))
a = jax.jit(program.call)(*state).block_until_ready()
"""
REPORT = """
print(time.perf_counter() - start)
"""


def seconds(work: str, cache: str = "", path: str = "") -> float:
    script = (SETUP + work + REPORT).format(cache=cache, path=path)
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return float(out.stdout)


with tempfile.TemporaryDirectory() as folder:
    import jax

    jax.config.update("jax_enable_x64", True)
    import jaxsoa as soa

    path, cache = str(Path(folder) / "forward.bin"), str(Path(folder) / "cache")
    begin = time.perf_counter()
    soa.export_function(path, soa.forward_dynamics, soa.models.puma560())
    print(f"exported in {time.perf_counter() - begin:.2f} s, {Path(path).stat().st_size / 1024:.0f} kB")
    print(f"imported, traced and compiled     {seconds(TRACED):6.2f} s to the first answer")
    print(f"loaded from the file, compiled    {seconds(LOADED, path=path):6.2f} s")
    seconds(LOADED, cache=cache, path=path)
    print(f"loaded from the file, warm cache  {seconds(LOADED, cache=cache, path=path):6.2f} s")
