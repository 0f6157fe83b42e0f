"""Pinocchio's C++. `--threads n`: its own pool of threads where it has one, else n processes that loop in Python.

aba and rnea of a batch run in C++ through `pin.ModelPool`. The mass matrix, derivatives, gradients and rollouts are
Python loops over C++ functions, so their times hold the cost of a call (about a microsecond) per state, or per step.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing

import numpy as np
from worker import CHECKED, Unsupported, load_states, serve

POOLED = {"forward_dynamics": "abaInParallel", "inverse_dynamics": "rneaInParallel"}
_loop = None  # what a child process runs: inherited, because it is set before the fork


def _run_chunk(chunk: range) -> None:
    assert _loop is not None
    _loop(chunk)


class Pinocchio:
    def __init__(self, threads: int):
        import pinocchio as pin

        self.pin, self.threads, self.version = pin, threads, pin.__version__
        self.settings = f"{threads} thread(s); derivatives, mass matrix and rollouts loop in Python; always float64"
        self.processes = None

    def prepare(self, case):
        from operations import ARGUMENTS
        from pinocchio_robot import PinocchioRobot

        operation, batch = case["operation"], case["batch"]
        if self.threads > 1 and batch < self.threads:
            raise Unsupported(f"a batch of {batch} cannot be shared out over {self.threads} threads")
        robot = PinocchioRobot(case["urdf"], case["floating"], case["joints"])
        states = robot.arrange(load_states(case))
        rows = [np.ascontiguousarray(states[key]) for key in ARGUMENTS[operation]]
        function = self._plain(robot, operation)
        if operation in POOLED and batch > 1:
            run, out = self._in_pool(robot, operation, rows, batch)

            def answer():
                run()
                return robot.joint_part(operation, list(out.T[:CHECKED]))

            return run, answer, {"how": "C++ threads"}
        checked = getattr(robot, operation)
        few = zip(*(x[:CHECKED] for x in rows), strict=True)
        run = self._in_loop(function, rows, batch)
        return run, lambda: robot.joint_part(operation, [checked(*x) for x in few]), {"how": "Python loop over C++"}

    def _plain(self, robot, operation: str):
        """The C++ function alone, without the copies that the answers need."""
        pin, model, data = self.pin, robot.model, robot.data
        return {
            "mass_matrix": lambda q: pin.crba(model, data, q),
            "linearization": lambda q, v, tau: pin.computeABADerivatives(model, data, q, v, tau),
        }.get(operation, getattr(robot, operation))

    def _in_pool(self, robot, operation: str, rows, batch: int):
        pool = self.pin.ModelPool(robot.model, self.threads)
        columns = [np.asfortranarray(x.T) for x in rows]
        out = np.zeros((robot.model.nv, batch), order="F")
        parallel = getattr(self.pin, POOLED[operation])
        return lambda: parallel(self.threads, pool, *columns, out), out

    def _in_loop(self, function, rows, batch: int):
        global _loop
        if self.processes is not None:
            self.processes.terminate()
            self.processes.join()
            self.processes = None
        states = list(zip(*rows, strict=True))

        def loop(chunk: range) -> None:
            for k in chunk:
                function(*states[k])

        if self.threads == 1:
            everything = range(batch)
            return lambda: loop(everything)
        _loop = loop
        self.processes = multiprocessing.get_context("fork").Pool(self.threads)
        bounds = np.linspace(0, batch, self.threads + 1).astype(int)
        chunks = [range(a, b) for a, b in itertools.pairwise(bounds)]
        return lambda: self.processes.map(_run_chunk, chunks, chunksize=1)


def start():
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=1)
    return Pinocchio(parser.parse_args().threads)


if __name__ == "__main__":
    serve(start)
