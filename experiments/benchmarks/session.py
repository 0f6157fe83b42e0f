"""One run: workers started, cases prepared by each contender in turn, repetitions interleaved, answers compared."""

from __future__ import annotations

import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from cases import SIMULATED, Case
from contenders import Worker, WorkerFailed
from report import write_results
from robots import Robot, make_robot, make_states
from worker import CHECKED

ENOUGH_REPETITIONS = 3
SECONDS_PER_CONTENDER = 2.0  # of measuring, in one case
START = 300.0  # seconds a worker may take to import its library


@dataclass(frozen=True)
class Limits:
    repetitions: int
    seconds: float  # of the whole run
    patience: float  # seconds to prepare one case


class Session:
    """Fills `results` as it goes, and writes it after every case."""

    def __init__(
        self,
        names: list[str],
        limits: Limits,
        scratch: Path,
        output: Path,
        keep_cache: bool,
        results: dict,
        names_of: dict[Case, list[str]] | None = None,
    ):
        """`names_of`: the contenders of each case, where they differ."""
        self.names_of = names_of
        self.names, self.limits, self.scratch, self.output = names, limits, scratch, output
        self.keep_cache, self.results = keep_cache, results
        self.workers: dict[str, Worker] = {}
        self.unusable: dict[str, str] = {}  # contender: reason, for the whole run
        self.gave_up: dict[tuple, int] = {}  # (contender, operation, dtype): links of the chain that took too long
        self.robots: dict[str, Robot | str] = {}
        self.references: dict[tuple[str, str], np.ndarray | str] = {}
        self.began = time.monotonic()

    def run(self, grid: list[Case]) -> None:
        for dtype in dict.fromkeys(case.dtype for case in grid):  # precision is a setting of a process
            self.close()
            for number, case in enumerate(grid):
                if case.dtype != dtype:
                    continue
                done, total = number + 1, len(grid)
                record = {**case.as_dict(), "entries": {}}
                self.results["cases"].append(record)
                spent = time.monotonic() - self.began
                if spent > self.limits.seconds:
                    record["skip"] = f"the time of the run ({self.limits.seconds / 60:.0f} min) was used up"
                else:
                    self._case(case, record, f"[{done}/{total}, {spent / 60:.1f} min] {case.title}")
                write_results(self.results, self.output / "results.json")
        _say("")

    def close(self) -> None:
        for worker in self.workers.values():
            worker.stop()
        self.workers.clear()

    # One case ----------------------------------------------------------------------------------------------------

    def _case(self, case: Case, record: dict, title: str) -> None:
        robot = self._robot(case.robot)
        if isinstance(robot, str):
            record["skip"] = robot
            _say(f"{title}: skipped, {robot}\n")
            return
        request = self._request(case, robot)
        ready: dict[str, list[float]] = {}
        for name in self.names if self.names_of is None else self.names_of[case]:
            _say(f"{title}: {name} prepares")
            entry = self._prepare(name, case, request)
            record["entries"][name] = entry
            if "skip" not in entry:
                if not entry.pop("answerless", False):
                    self._agreement(entry, case, robot, request)
                ready[name] = []
        self._measure(ready, record, title)
        for name, times in ready.items():
            entry = record["entries"][name]
            if times:
                entry["seconds"] = {
                    "min": min(times),
                    "median": statistics.median(times),
                    "max": max(times),
                    "repetitions": len(times),
                }
                entry["processor_seconds"] = min(entry["processor_seconds"])
                entry["microseconds_per_state"] = 1e6 * min(times) / case.batch
            self._release(name, entry)
        _say(f"{title}: " + _summary(record) + "\n")

    def _request(self, case: Case, robot: Robot) -> dict:
        states = self.scratch / "states.npz"
        np.savez(states, **make_states(robot, case.batch, slow=case.operation in SIMULATED))
        return {
            **case.as_dict(),
            "urdf": robot.urdf,
            "floating": robot.floating,
            "joints": list(robot.joints),
            "states": str(states),
            "answer": str(self.scratch / "answer.npy"),
        }

    def _prepare(self, name: str, case: Case, request: dict) -> dict:
        key, links = (name, case.operation, case.dtype), _links(case.robot)
        if links and links >= self.gave_up.get(key, np.inf):
            return {"skip": f"it already took too long at {self.gave_up[key]} links"}
        try:
            worker = self._worker(name, case.dtype)
            if worker is None:
                return {"skip": self.unusable[name]}
            return worker.ask(self.limits.patience, command="prepare", case=request)
        except WorkerFailed as error:
            self.workers.pop(name, None)  # a new one is started for the next case
            if links:
                self.gave_up[key] = links
            return {"skip": str(error)}

    def _measure(self, ready: dict[str, list[float]], record: dict, title: str) -> None:
        spent = dict.fromkeys(ready, 0.0)
        for repetition in range(self.limits.repetitions):
            _say(f"{title}: repetition {repetition + 1}")
            for name, times in ready.items():
                entry = record["entries"][name]
                if "skip" in entry or (len(times) >= ENOUGH_REPETITIONS and spent[name] > SECONDS_PER_CONTENDER):
                    continue
                try:
                    start = time.monotonic()
                    reply = self.workers[name].ask(self.limits.patience, command="time")
                    spent[name] += time.monotonic() - start
                except WorkerFailed as error:
                    reply = {"skip": str(error)}
                    self.workers.pop(name, None)
                if "skip" in reply:
                    entry["skip"] = reply["skip"]
                else:
                    times.append(reply["seconds"])
                    entry.setdefault("processor_seconds", []).append(reply["processor"])

    def _release(self, name: str, entry: dict) -> None:
        if name in self.workers:
            try:
                entry.update(self.workers[name].ask(self.limits.patience, command="release"))
            except WorkerFailed:
                self.workers.pop(name, None)

    def _worker(self, name: str, dtype: str) -> Worker | None:
        if name in self.unusable:
            return None
        if name not in self.workers:
            worker = Worker(name, dtype, self.output, self.keep_cache)
            try:
                reply = worker.ask(START, command="hello")
            except WorkerFailed as error:
                reply = {"skip": str(error)}
            self.results["contenders"][name] = reply
            if "skip" in reply:
                self.unusable[name] = reply["skip"]
                if worker.alive:
                    worker.stop()
                _say(f"{name} is skipped: {reply['skip']}\n")
                return None
            self.workers[name] = worker
        return self.workers[name]

    # Robots and references ---------------------------------------------------------------------------------------

    def _robot(self, name: str) -> Robot | str:
        if name not in self.robots:
            try:
                robot = make_robot(name, self.scratch)
                self.results["robots"][name] = {"joints": len(robot.joints), "floating": robot.floating}
            except FileNotFoundError as error:
                robot = str(error)
            self.robots[name] = robot
        return self.robots[name]

    def _agreement(self, entry: dict, case: Case, robot: Robot, request: dict) -> None:
        reference = self._reference(case, robot)
        if isinstance(reference, str):
            entry["difference"], entry["difference_note"] = None, reference
            return
        answer = np.load(request["answer"]).astype(np.float64)
        wanted = reference[: len(answer)]
        entry["difference"] = float(np.max(np.abs(answer - wanted)) / np.max(np.abs(wanted)))
        if case.operation in SIMULATED and robot.floating:
            entry["difference_note"] = "steps of a base in other coordinates differ by the order of the time step"

    def _reference(self, case: Case, robot: Robot) -> np.ndarray | str:
        """Answers of the first states by Pinocchio, in float64; the reason where there are none."""
        key = case.robot, case.operation
        if key not in self.references:
            try:
                from operations import ARGUMENTS
                from pinocchio_robot import PinocchioRobot

                pin_robot = PinocchioRobot(robot.urdf, robot.floating, robot.joints)
                slow = case.operation in SIMULATED
                states = pin_robot.arrange(make_states(robot, CHECKED, slow=slow))
                function = getattr(pin_robot, case.operation)
                rows = zip(*(states[name] for name in ARGUMENTS[case.operation]), strict=True)
                self.references[key] = pin_robot.joint_part(case.operation, [function(*row) for row in rows])
            except (ImportError, MemoryError) as error:
                self.references[key] = f"no reference: {error}"
        return self.references[key]


def _links(robot: str) -> int:
    return int(robot.split("-")[1]) if robot.startswith("chain-") else 0


def _summary(record: dict) -> str:
    timed = {name: x["microseconds_per_state"] for name, x in record["entries"].items() if "seconds" in x}
    if not timed:
        return "nobody"
    return ", ".join(f"{name} {x:.3g}" for name, x in sorted(timed.items(), key=lambda pair: pair[1])) + " us a state"


def _say(line: str) -> None:
    """A line that the next one overwrites on a terminal; elsewhere only finished lines are written."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
    elif line.endswith("\n"):
        print(line, end="", file=sys.stderr, flush=True)
