"""Shared by all tests: double precision, a hypothesis profile without deadlines (compilation takes time), and a memory
that does not grow with the number of tests."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from pathlib import Path

# What one test compiled, another (also in another process, or tomorrow) need not compile again.
cache = Path(__file__).parent.parent / ".pytest_cache"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(cache / "compiled"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
os.environ.setdefault("JAXSOA_KERNEL_CACHE", str(cache / "kernels"))
# XLA compiles faster without optimizing, and tests compile more than they run. Kernels, through which the
# dynamics go, are not touched by this. Set XLA_FLAGS (to nothing, say) to test all of what users compile.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")

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
# cache on disk gives back the larger ones. Two workers fit into some 4 GB.
MUCH_MEMORY = 2_000_000_000  # bytes
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


EXHAUSTIVE = ("test_types.py", "test_every_function.py", "test_every_derivative.py")
"""Every function in every combination: over an hour of compiling, run by hand with JAXSOA_EVERY_COMBINATION set."""


def pytest_collection_modifyitems(items):
    if "JAXSOA_EVERY_COMBINATION" in os.environ:
        return
    by_hand = pytest.mark.skip(reason="set JAXSOA_EVERY_COMBINATION: over an hour of compiling")
    for item in items:
        if item.path.name in EXHAUSTIVE and item.get_closest_marker("slow"):
            item.add_marker(by_hand)


def pytest_runtest_setup(item):
    """Where time is limited (JAXSOA_TEST_DEADLINE, seconds since 1970), tests not begun by then are skipped, aloud."""
    deadline = os.environ.get("JAXSOA_TEST_DEADLINE")
    if deadline and time.time() > float(deadline):
        pytest.skip("OUT OF TIME: not run")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Workers start with whole stretches of files, whose tests share compiled functions, and at the end help out."""
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log)
