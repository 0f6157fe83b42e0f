"""What runs as what: which functions became kernels, which were left to XLA, and why."""

from __future__ import annotations

import threading
from collections import deque
from typing import NamedTuple


class Entry(NamedTuple):
    function: str
    form: str  # "one state" or "batch"
    runs_as: str  # "kernel" or "xla"
    reason: str
    operations: int
    seconds: float

    def __str__(self) -> str:
        if self.runs_as == "kernel":
            return f"{self.function} ({self.form}): kernel, {self.operations} operations, {self.seconds:.2f} s to build"
        return f"{self.function} ({self.form}): XLA, because of {self.reason}"


class Report(tuple[Entry, ...]):
    """Entries, printed a line each."""

    def __str__(self) -> str:
        return "\n".join(map(str, self)) or "No function has been compiled yet."

    __repr__ = __str__


_entries: deque[Entry] = deque(maxlen=1000)
_lock = threading.Lock()


def record(function: str, form: str, runs_as: str, reason: str, operations: int, seconds: float) -> None:
    with _lock:
        _entries.append(Entry(function, form, runs_as, reason, operations, seconds))


def report() -> Report:
    """The last thousand functions that were compiled: as a kernel or by XLA, why, how large, how long it took."""
    with _lock:
        return Report(_entries)
