"""Shared by all tests: double precision, a hypothesis profile without deadlines (compilation takes time), and a memory
that does not grow with the number of tests."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import time
from importlib.metadata import version
from pathlib import Path

# What one test compiled, another (also in another process, or tomorrow) need not compile again.
cache = Path(__file__).parent.parent / ".pytest_cache"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(cache / "compiled"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
os.environ.setdefault("JAXSOA_KERNEL_CACHE", str(cache / "kernels"))
# XLA compiles faster without optimizing, and tests compile more than they run. Kernels, through which the
# dynamics go, are not touched by this. Set XLA_FLAGS (to nothing, say) to test all of what users compile.
flags = "--xla_backend_optimization_level=0"
if version("jaxlib").startswith("0.10."):  # newer ones do not know the older, quicker way to write loops
    flags += " --xla_cpu_use_fusion_emitters=false"
os.environ.setdefault("XLA_FLAGS", flags)

import jax  # noqa: E402

jax.config.update("jax_enable_x64", True)

import hypothesis  # noqa: E402
import pytest  # noqa: E402

import jaxsoa as soa  # noqa: E402

hypothesis.settings.register_profile(
    "jaxsoa",
    deadline=None,
    print_blob=True,
    derandomize=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.data_too_large],
)
hypothesis.settings.load_profile("jaxsoa")

# Programs that were compiled stay in memory, and each takes memory maps (a tree's sweeps over a hundred), of which
# Linux allows a process 65,530 and kills the compiler at the next one. So forget them before either is used up; the
# cache on disk gives back the larger ones. Two workers fit into 3 GB.
MUCH_MEMORY = 1_050_000_000  # bytes
MANY_MAPS = 20_000


def resident() -> int:
    """Bytes of this process in memory; zero where /proc does not tell."""
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if statm.exists() else 0


def memory_maps() -> int:
    maps = Path("/proc/self/maps")
    return maps.read_bytes().count(b"\n") if maps.exists() else 0


def give_back_freed_memory() -> None:
    """To the system: glibc keeps it otherwise, and compilers free much."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


@pytest.fixture(autouse=True, scope="module")
def _few_memory_maps():
    yield
    give_back_freed_memory()
    if memory_maps() > MANY_MAPS:
        soa.clear_caches()


@pytest.fixture(autouse=True)
def _little_memory():
    yield
    if resident() > MUCH_MEMORY:
        give_back_freed_memory()
        if resident() > MUCH_MEMORY:
            soa.clear_caches()


def pytest_collection_finish(session):
    """What is here by now stays: the collector of garbage need not look at it, nor come every 700 objects, of which
    tracing a sweep makes thousands."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def pytest_runtest_setup(item):
    """Where time is limited (JAXSOA_TEST_DEADLINE, seconds since 1970), tests not begun by then are skipped, aloud."""
    deadline = os.environ.get("JAXSOA_TEST_DEADLINE")
    if deadline and time.time() > float(deadline):
        pytest.skip("OUT OF TIME: not run")


def available_memory() -> int:
    """Bytes that programs may still take; a great many where /proc does not tell."""
    info = Path("/proc/meminfo")
    lines = info.read_text().splitlines() if info.exists() else []
    found = [int(line.split()[1]) for line in lines if line.startswith("MemAvailable")]
    return 1024 * found[0] if found else sys.maxsize


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config):
    """`-n auto`: one for each core, as far as there is memory for each and what it starts."""
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None  # xdist's own way
    return max(1, min(os.cpu_count() or 1, available_memory() // (2 * MUCH_MEMORY)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Workers start with whole stretches of files, whose tests share compiled functions, and at the end help out."""
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log)
