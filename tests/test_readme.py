"""The README's Python runs as it stands, block after block, and what it says of the results is true."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers.example_robots import EXAMPLE_ROBOTS
from helpers.markdown import run_python_blocks

README = Path(__file__).parent.parent / "README.md"


@pytest.mark.slow
def test_every_python_block_runs(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # some blocks write pictures
    names, count = run_python_blocks(README)
    assert count >= 3
    np.testing.assert_allclose(names["tau_again"], names["tau"], rtol=1e-9, atol=1e-9)
    assert names["A"].shape == (6, 6)
    out = capsys.readouterr().out
    assert "2" in out.splitlines()[0] and out.splitlines()[-1] == "H ψ"


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
