#!/usr/bin/env python3
"""Time and memory of the steps of `.ci/run`, with the standard library alone.

    measure.py run FOLDER NAME COMMAND...    run COMMAND; write its time and peak memory to FOLDER/NAME.json
    measure.py report FOLDER                 the steps, and the ten slowest tests of FOLDER/*.xml (pytest --junitxml)

Memory is the resident memory of the command and all processes below it together, sampled every half second (Linux only;
elsewhere it is not known). Pages that processes share are counted in each of them: it is never less than the truth.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

INTERVAL = 0.5  # s
SLOWEST = 10


def resident(root: int) -> int:
    """Bytes resident in process `root` and all processes below it."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            # The name, in brackets, may itself hold brackets and blanks; after it: state, parent.
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # ended meanwhile
        children.setdefault(parent, []).append(int(folder.name))
    total, waiting = 0, [root]
    while waiting:
        process = waiting.pop()
        waiting += children.get(process, [])
        try:
            total += int(Path(f"/proc/{process}/statm").read_text().split()[1])
        except OSError:
            continue
    return total * os.sysconf("SC_PAGE_SIZE")


def run(folder: Path, name: str, command: list[str]) -> int:
    start, peak, done = time.monotonic(), 0, threading.Event()
    process = subprocess.Popen(command)

    def sample() -> None:
        nonlocal peak
        while not done.wait(INTERVAL):
            peak = max(peak, resident(process.pid))

    watcher = threading.Thread(target=sample, daemon=True)
    if Path("/proc/self/statm").exists():
        watcher.start()
    code = process.wait()
    done.set()
    result = {"seconds": time.monotonic() - start, "bytes": peak, "started": time.time(), "code": code}
    (folder / f"{name}.json").write_text(json.dumps(result))
    return code if code >= 0 else 128 - code


def report(folder: Path) -> int:
    steps = {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json")}
    for name, step in sorted(steps.items(), key=lambda item: item[1]["started"]):
        memory = f"{step['bytes'] / 1e9:5.2f} GB at most" if step["bytes"] else "memory not known"
        print(f"{name:<10} {step['seconds'] / 60:5.1f} min   {memory}")
    tests = []
    for path in folder.glob("*.xml"):
        for case in ElementTree.parse(path).iter("testcase"):
            where = case.get("classname", "").replace(".", "/")
            tests.append((float(case.get("time", 0)), path.stem, f"{where}.py::{case.get('name')}"))
    print(f"\nThe {SLOWEST} slowest of {len(tests)} tests:")
    for seconds, step, test in sorted(tests, reverse=True)[:SLOWEST]:
        print(f"{seconds:7.1f} s  {step:<10} {test}")
    return 0


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["run", folder, name, *command] if command:
            sys.exit(run(Path(folder), name, command))
        case ["report", folder]:
            sys.exit(report(Path(folder)))
    sys.exit(__doc__)
