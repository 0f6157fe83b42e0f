"""What can be set from outside, read once per process and never part of a traced program."""

from __future__ import annotations

import os
from pathlib import Path

KERNELS = "JAXSOA_KERNELS"
"""Environment variable: 0 leaves every program to XLA."""

CACHE = "JAXSOA_KERNEL_CACHE"
"""Environment variable: a folder for compiled kernels, or 0 for none. Default: `jaxsoa` in the user's cache folder."""

MEMORY = "JAXSOA_KEEP_MEMORY"
"""Environment variable: 0 leaves the C library's allocator as it is (see `memory`)."""

LONGEST = 50_000
"""Operations up to which a function becomes a kernel; beyond, compiling it would take too long."""


def wanted() -> bool:
    return os.environ.get(KERNELS, "1") != "0"


def memory_kept() -> bool:
    return os.environ.get(MEMORY, "1") != "0"


def cache_folder() -> Path | None:
    given = os.environ.get(CACHE)
    if given == "0":
        return None
    if given:
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "jaxsoa" / "kernels"
    except RuntimeError:  # no home
        return None


def threads() -> int:
    """Processors that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1
