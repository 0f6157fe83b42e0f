"""The contenders: which worker, with which arguments and environment, and the parent's side of the protocol."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

FRAX = {  # the README of frax, for CPUs
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false --xla_cpu_scheduler_type=CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED",
    "OPENBLAS_NUM_THREADS": "1",
}

FORMS = ("parallel", "operators", "jacfwd")
"""Other ways of jaxsoa to the same answers, measured where they are asked for by name."""

WAYS = ("argument", "eager", "empty")
"""Other ways to call the same: the robot as an argument of `jit`, no `jit`, an addition of the same arguments."""


@dataclass(frozen=True)
class Entry:
    worker: str
    arguments: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)


ENTRIES = {
    "jaxsoa": Entry("worker_jaxsoa.py"),
    "jaxsoa-sharded": Entry("worker_jaxsoa.py", ("--devices", str(CORES))),
    "jaxsoa-fast": Entry("worker_jaxsoa.py", ("--fast",)),
    "jaxsoa-latency": Entry("worker_jaxsoa.py", ("--latency",)),
    **{f"jaxsoa-{form}": Entry("worker_jaxsoa.py", ("--form", form)) for form in FORMS},
    **{f"jaxsoa-{way}": Entry("worker_jaxsoa.py", ("--way", way)) for way in WAYS},
    "pinocchio": Entry("worker_pinocchio.py"),
    "pinocchio-threads": Entry("worker_pinocchio.py", ("--threads", str(CORES))),
    "pinocchio-loops": Entry("worker_native.py"),
    "pinocchio-loops-threads": Entry("worker_native.py", ("--threads", str(CORES))),
    "pinocchio-templates": Entry("worker_native.py", ("--kind", "templates")),
    "pinocchio-templates-threads": Entry("worker_native.py", ("--kind", "templates", "--threads", str(CORES))),
    "pinocchio-casadi": Entry("worker_native.py", ("--kind", "casadi")),
    "frax": Entry("worker_frax.py", environment=FRAX),
    "mjx": Entry("worker_mjx.py"),
    "brax": Entry("worker_brax.py"),
    "adam": Entry("worker_adam.py"),
    "jaxsim": Entry("worker_jaxsim.py"),
}
QUICK = ("jaxsoa", "jaxsoa-sharded", "jaxsoa-latency", "pinocchio", "pinocchio-threads", "frax")
JAX_PEERS = ("frax", "mjx", "brax", "adam", "jaxsim")


class WorkerFailed(Exception):
    """The worker died or did not answer in time."""


class Worker:
    """One contender in one precision, in a process of its own; what it prints goes to a log."""

    def __init__(self, name: str, dtype: str, logs: Path, keep_cache: bool = False):
        self.name, entry = name, ENTRIES[name]
        environment = {**os.environ, "JAX_PLATFORMS": os.environ.get("JAX_PLATFORMS", "cpu")}
        environment.pop("XLA_FLAGS", None)  # each contender runs with its own and nothing else
        if not keep_cache:  # compile times would not be those of compiling
            environment.pop("JAX_COMPILATION_CACHE_DIR", None)
            environment["JAXSOA_KERNEL_CACHE"] = "0"
        environment["JAX_ENABLE_X64"] = "1" if dtype == "float64" else "0"
        environment.update(entry.environment)
        self._log = open(logs / f"{name}-{dtype}.log", "a", encoding="utf-8")
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / entry.worker), *entry.arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=environment,
        )
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._process.stdout, selectors.EVENT_READ)
        self._buffer = b""

    def ask(self, timeout: float, **request) -> dict:
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except (BrokenPipeError, OSError) as error:
            raise WorkerFailed(f"the worker died: {self._end()}") from error
        deadline = time.monotonic() + timeout
        while b"\n" not in self._buffer:
            if not self._selector.select(max(0.0, deadline - time.monotonic())):
                self.kill()
                raise WorkerFailed(f"no answer to {request['command']!r} within {timeout:.0f} s")
            part = os.read(self._process.stdout.fileno(), 65536)
            if not part:
                raise WorkerFailed(f"the worker died: {self._end()}")
            self._buffer += part
        line, self._buffer = self._buffer.split(b"\n", 1)
        return json.loads(line)

    def _end(self) -> str:
        code = self._process.wait()
        return f"signal {-code}" if code < 0 else f"exit code {code}"

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def stop(self) -> None:
        if self.alive:
            try:
                self._process.stdin.write(b'{"command": "stop"}\n')
                self._process.stdin.flush()
                self._process.wait(20)
            except (OSError, subprocess.TimeoutExpired):
                self.kill()
        self._close()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._close()

    def _close(self) -> None:
        for stream in (self._process.stdin, self._process.stdout, self._log):
            try:
                stream.close()
            except OSError:
                pass
