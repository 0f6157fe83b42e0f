"""The protocol of a worker: one JSON object a line on stdin, one answer a line on stdout.

    {"command": "hello"}                  -> {"version": ..., "settings": ...}   or {"skip": reason}
    {"command": "prepare", "case": {...}} -> {"compile_seconds": ..., ...}       or {"skip": reason}
    {"command": "time"}                   -> {"seconds": of one evaluation of the whole batch, "processor": the same}
    {"command": "release"}                -> {"peak_bytes": ...}
    {"command": "stop"}

Every contender has a process of its own, because XLA reads its flags once a process; a worker that is not asked
anything blocks on stdin and leaves the machine to the others.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np

CHECKED = 8  # states whose answers are compared
ENOUGH = 0.01  # seconds: shorter evaluations are repeated within one measurement


class Unsupported(Exception):
    """This contender does not do this case; the message says why."""


class Contender(Protocol):
    version: str
    settings: str

    def prepare(self, case: dict[str, Any]) -> tuple[Callable[[], Any], Callable[[], np.ndarray], dict[str, Any]]:
        """(evaluate the batch once and wait, the answers of the first states, what there is to record)."""
        ...


def serve(start: Callable[[], Contender]) -> None:
    """Answer until told to stop. Libraries print what they like: their stdout becomes stderr."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    contender = run = None
    calls = 1
    for line in sys.stdin:
        request = json.loads(line)
        command = request["command"]
        if command == "stop":
            break
        try:
            if command == "hello":
                contender = start()
                reply = {"version": contender.version, "settings": contender.settings}
            elif command == "prepare":
                assert contender is not None, "say hello first"
                _reset_peak()
                run, answer, reply = contender.prepare(request["case"])
                np.save(request["case"]["answer"], answer())
                calls = _calls(run)
            elif command == "time":
                assert run is not None, "prepare first"
                began = time.process_time()
                seconds = _measure(run, calls)
                reply = {"seconds": seconds, "processor": (time.process_time() - began) / calls, "calls": calls}
            elif command == "release":
                reply = {"peak_bytes": _peak()}
                run = answer = None
                gc.collect()
            else:
                raise ValueError(f"unknown command {command!r}")
        except Unsupported as error:
            reply = {"skip": str(error)}
        except Exception as error:  # whatever a library throws becomes the reason why it was skipped
            traceback.print_exc()
            text = " ".join(str(error).split())
            reply = {"skip": f"{type(error).__name__}: {text[:200]}"}
        print(json.dumps(reply), file=answers, flush=True)


def _measure(run: Callable[[], Any], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        run()
    return (time.perf_counter() - start) / calls


def _calls(run: Callable[[], Any]) -> int:
    first = _measure(run, 1)
    if first > ENOUGH:
        return 1
    return max(1, min(2000, int(ENOUGH / max(_measure(run, 3), 1e-6))))


def _reset_peak() -> None:
    """Linux keeps the highest resident size since the last reset."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        pass  # then the peak is that of the whole life of the process


def _peak() -> int:
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def load_states(case: dict[str, Any]) -> dict[str, np.ndarray]:
    with np.load(case["states"]) as archive:
        return {key: archive[key][: case["batch"]] for key in archive.files}
