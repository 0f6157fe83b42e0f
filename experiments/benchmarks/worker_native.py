"""Pinocchio called from C++ (`--kind loops`, `templates`) or as generated C (`--kind casadi`); answers written out."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
from cases import ROLLOUT_DT, ROLLOUT_STEPS
from operations import ARGUMENTS
from worker import CHECKED, Unsupported, load_states, serve

LONGEST_GENERATED = 10
"""Joints up to which derivatives are generated: beyond, C compilers take very long."""


class Native:
    def __init__(self, kind: str, threads: int):
        import pinocchio as pin

        self.kind, self.threads, self.version = kind, threads, pin.__version__
        how = {"loops": "the library as installed", "templates": "g++ -O3 -march=native", "casadi": "gcc -O2"}[kind]
        self.settings = f"C++ loops, {how}, {threads} thread(s), answers written out, always float64"
        self.folder = tempfile.TemporaryDirectory()

    def prepare(self, case):
        from native_pinocchio import OPERATIONS, Generated, Loops, Missing
        from pinocchio_robot import PinocchioRobot

        operation, batch = case["operation"], case["batch"]
        operation = "rollout" if operation == "scan" else operation
        if operation not in OPERATIONS or batch < self.threads:
            raise Unsupported(f"no {operation} of a batch of {batch} here")
        robot = PinocchioRobot(case["urdf"], case["floating"], case["joints"])
        states = robot.arrange(load_states(case))
        q, v = (np.ascontiguousarray(states[key]) for key in ("q", "v"))
        x = np.ascontiguousarray(states[ARGUMENTS[operation][2]]) if len(ARGUMENTS[operation]) > 2 else np.zeros_like(v)
        nv, n = robot.model.nv, len(q)
        try:
            if self.kind == "casadi":
                if operation == "rollout" or (operation == "linearization" and nv > LONGEST_GENERATED):
                    raise Unsupported("not generated")
                shape = (n, nv, nv) if operation in ("mass_matrix", "linearization") else (n, nv)
                outs = [np.zeros(shape) for _ in range(3 if operation == "linearization" else 1)]
                generated = Generated(robot.model, Path(self.folder.name), operation)

                def run():
                    generated.run(q, v, x, outs)

                def rows():
                    return [out[:CHECKED] for out in outs]
            else:
                shape = {"mass_matrix": (n, nv, nv), "linearization": (n, 3, nv, nv), "rollout": q.shape}
                out = np.zeros(shape.get(operation, (n, nv)))
                loops = Loops(self.kind, robot.model, Path(self.folder.name), self.threads)

                def run():
                    loops.run(operation, q, v, x, out, ROLLOUT_STEPS, ROLLOUT_DT)

                def rows():
                    return np.moveaxis(out[:CHECKED], 1, 0) if operation == "linearization" else [out[:CHECKED]]
        except Missing as error:
            raise Unsupported(f"needs {error}") from error

        def answer():
            run()
            parts = rows()
            each = [tuple(row) for row in zip(*parts, strict=True)] if len(parts) > 1 else list(parts[0])
            return robot.joint_part(operation, each)

        return run, answer, {"how": self.settings}


def start():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", choices=("loops", "templates", "casadi"), default="loops")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    return Native(options.kind, options.threads)


if __name__ == "__main__":
    serve(start)
