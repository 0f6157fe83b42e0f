"""Giving back what this library keeps between calls: `soa.clear_caches()`."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import jax

_clearing: list[Callable[[], Any]] = []


def register(clear: Callable[[], Any]) -> Callable[[], Any]:
    """Have `clear()` called by `clear_caches`; for caches that are not `functools` caches at the top of a module.

    Those are found by themselves. Returns `clear`, so it can be used as a decorator.
    """
    _clearing.append(clear)
    return clear


def clear_caches() -> None:
    """Forget every compiled program, of this library and of JAX, and every plan made for a robot's topology.

    A process that goes through many robots keeps a program for each function, robot and shape that was ever called:
    some ten megabytes each, and a hundred or more memory maps, of which Linux allows a process 65,530. Call this when
    the robots used so far will not be used again; what is called afterwards compiles anew, and numbers do not change.
    It includes `jax.clear_caches()`, which alone leaves this library's own caches as they are. Freed memory is handed
    back to the system where the C library can do that (glibc). Functions that you jitted yourself stay valid, and
    compile anew too. The machine code of kernels stays (some megabytes for all functions of a robot), since programs
    that are still around may call it. Do not call it while other threads compute.

    >>> soa.clear_caches()  # what is called next compiles again
    >>> print(soa.mass_matrix(robot, q).shape)
    (2, 2)
    """
    for clear in (*_clearing, *(cache.cache_clear for cache in functools_caches())):
        clear()
    jax.clear_caches()
    gc.collect()  # programs hang on cycles of Python objects
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def functools_caches() -> Iterator[Any]:
    """Every `functools.cache` and `lru_cache` at the top of the modules of this library imported so far, once each."""
    seen: set[int] = set()
    for name, module in list(sys.modules.items()):
        if module is None or name.partition(".")[0] != __package__:
            continue
        for value in list(vars(module).values()):
            # Modules without a cache of their own may have imported one; `jax.jit` has `clear_cache`, and is JAX's.
            if hasattr(type(value), "cache_clear") and hasattr(type(value), "cache_info") and id(value) not in seen:
                seen.add(id(value))
                yield value
