"""The README's Python and commands run as they stand, and print what the comments beside them say."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers.example_robots import EXAMPLE_ROBOTS
from helpers.markdown import run_python_blocks

import jaxsoa as soa

README = Path(__file__).parent.parent / "README.md"


@pytest.mark.slow
def test_every_python_block_runs_and_prints_what_it_says(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # one block writes a picture
    with np.printoptions():  # what the README sets ends here
        names, count = run_python_blocks(README)
    assert count == 3 and (tmp_path / "motion.png").stat().st_size > 500
    promised = re.findall(r"^print\(.*\)  # (.*)$", README.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert len(promised) >= 8
    # Rounding alone decides whether NumPy writes 0. or -0.
    printed, promised = (
        [re.sub(r"-0\.(?=[ \]])", " 0.", line) for line in lines]
        for lines in (capsys.readouterr().out.splitlines(), promised)
    )
    assert printed == promised

    # What is written of the algebra: the operator is the mass matrix, armature included.
    robot, q, v, tau = (names[name] for name in ("robot", "q", "v", "tau"))
    assert robot.armature.max() > 0 and abs(v).min() > 0
    np.testing.assert_allclose(names["Mass"] @ v, soa.mass_matrix(robot, q) @ v, rtol=1e-10)
    np.testing.assert_allclose(names["Mass"] @ v, soa.mass_times(robot, q, v), rtol=1e-10)
    np.testing.assert_allclose(names["Mass"].inv @ -tau, names["a"], rtol=1e-8, atol=1e-10)


@pytest.mark.slow
def test_every_command_runs(tmp_path):
    """The lines of the command-line section, on a real URDF called robot.urdf; `view` serves until it is stopped."""
    section = README.read_text(encoding="utf-8").split("## Command line")[1].split("\n## ")[0]
    commands = [line.split("#")[0].split() for line in section.split("```bash\n")[1].split("```")[0].splitlines()]
    assert {"demo", "info", "simulate", "view", "linearize", "benchmark"} <= {command[1] for command in commands}
    shutil.copy(EXAMPLE_ROBOTS["ur5_robot.urdf"], tmp_path / "robot.urdf")
    for command in commands:
        if command[1] != "view":
            run = [sys.executable, "-m", "jaxsoa.cli", *command[1:]]
            subprocess.run(run, check=True, cwd=tmp_path, capture_output=True, timeout=300)
    for name in ("jaxsoa-demo.png", "motion.npz", "motion.gif", "model.npz"):
        assert (tmp_path / name).stat().st_size > 500
