"""What runs as what: which functions became kernels, which were left to XLA, and why."""

from __future__ import annotations

import threading
from collections import deque
from typing import NamedTuple

LISTED = 8
"""Shapes of inputs that a line names."""


class Entry(NamedTuple):
    function: str
    form: str  # "one state" or "batch"
    runs_as: str  # "kernel", "element-wise" or "xla"
    reason: str  # why it runs so; of a kernel: "loops over rows", where it is not straight-line
    operations: int
    seconds: float
    inputs: tuple[tuple[int, ...], ...]  # shapes for one state: they tell which robot
    constants: int  # arrays compiled into the program: leaves of a model that is known

    def __str__(self) -> str:
        form = self.reason and f" of {self.reason}"
        what = {
            "kernel": f"kernel{form}, {self.operations} operations, {self.seconds:.2f} s to build",
            "element-wise": f"element-wise, {self.operations} operations",
        }.get(self.runs_as, f"XLA, because of {self.reason}")
        shapes = " ".join("x".join(map(str, shape)) or "1" for shape in self.inputs[:LISTED])
        rest = f" and {len(self.inputs) - LISTED} more" if len(self.inputs) > LISTED else ""
        known = f", {self.constants} arrays known" if self.constants else ""
        return f"{self.function} ({self.form}): {what}; inputs {shapes or 'none'}{rest}{known}"


class Report(tuple[Entry, ...]):
    """Entries, printed a line each."""

    def __str__(self) -> str:
        return "\n".join(map(str, self)) or "No function has been compiled yet."

    __repr__ = __str__


_entries: deque[Entry] = deque(maxlen=1000)
_lock = threading.Lock()


def record(entry: Entry) -> None:
    with _lock:
        _entries.append(entry)


def report() -> Report:
    """The last thousand functions that were compiled: as a kernel or by XLA, why, of what inputs, how long it took."""
    with _lock:
        return Report(_entries)
