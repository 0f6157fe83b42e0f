"""A progress bar on a terminal; elsewhere plain lines if asked for, so that logs stay readable."""

from __future__ import annotations

import sys
import threading
import time

WIDTH = 30


class ProgressBar:
    """`update(done)` draws; a smaller `done` than before starts the bar again, so one bar serves repeated runs.

    Several devices may report at once: only advances are drawn. `stream` is stderr unless given. If it is no terminal
    nothing is written, or with `lines` at most a hundred lines.
    """

    def __init__(self, total: int, label: str = "", *, stream=None, lines: bool = False):
        self.total, self.label, self.stream, self.lines = total, label, stream, lines
        self.done, self.began, self.lock = 0, time.monotonic(), threading.Lock()

    def update(self, done) -> None:
        """Show that `done` of the total are done."""
        done = int(done)
        with self.lock:
            if done < self.done and self.done == self.total:
                self.done, self.began = 0, time.monotonic()
            if done <= self.done:
                return
            before, self.done = self.done, done
            stream = self.stream or sys.stderr
            if stream.isatty():
                self._draw(stream)
            elif self.lines and 100 * before // self.total < 100 * done // self.total:
                spent = time.monotonic() - self.began
                print(f"{self.label} {done}/{self.total}, {spent:.1f} s", file=stream, flush=True)

    def _draw(self, stream) -> None:
        filled = round(WIDTH * self.done / self.total)
        spent = time.monotonic() - self.began
        left = spent * (self.total - self.done) / self.done
        clock = f"{spent:.0f} s" if self.done == self.total else f"{spent:.0f} s, {left:.0f} s left"
        end = "\n" if self.done == self.total else ""
        bar = f"[{'#' * filled}{'.' * (WIDTH - filled)}]"
        print(f"\r{self.label} {bar} {self.done}/{self.total}, {clock}   ", end=end, file=stream, flush=True)
