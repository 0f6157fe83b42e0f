"""Memory of large results, kept from one call to the next.

XLA takes memory for the results of every call from the C library and gives it back when nobody reads them any more.
glibc hands what is over 32 MiB back to the system at once, whatever it has seen, and the fresh pages of the next call
have to be cleared: for 4096 mass matrices of a humanoid (40 MB) that takes as long as computing them. So when the first
program is compiled that has a kernel with larger results, glibc is asked once to keep arrays of up to `LARGEST`.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache

from jaxsoa.kernels import settings

HANDED_BACK = 32 << 20
"""Bytes from which glibc hands an array back to the system however often one of that size has been asked for."""

LARGEST = 64 << 20
"""Bytes of an array up to which its memory is kept: what one heap of a thread holds."""


def keep_for(bytes_of_results: int) -> None:
    """Keep freed memory, from now on, if a call has so large results."""
    if bytes_of_results > HANDED_BACK and settings.memory_kept():
        keep()


@cache
def keep() -> None:
    """MALLOC_MMAP_THRESHOLD_=64 MiB MALLOC_TRIM_THRESHOLD_=128 MiB MALLOC_TOP_PAD_=65 MiB, for this process.

    Arrays of up to `LARGEST` bytes come from heaps, of which glibc keeps at most twice as much free: the rule that it
    follows itself up to 32 MiB. Threads other than the first have heaps of 64 MiB, and an empty one goes back whatever
    the threshold, unless less than the padding is free below it. (A single arena for all threads would need no padding,
    but XLA's compiler threads would wait for each other: that takes longer to compile.) An older glibc refuses the
    first of the three; there arrays of all sizes come from heaps.
    """
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # other C libraries have none, or ignore it
    M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD, M_MMAP_MAX = -1, -2, -3, -4  # of malloc.h
    if mallopt is not None:
        if not mallopt(M_MMAP_THRESHOLD, LARGEST):
            mallopt(M_MMAP_MAX, 0)
        mallopt(M_TRIM_THRESHOLD, 2 * LARGEST)
        mallopt(M_TOP_PAD, LARGEST + (1 << 20))
