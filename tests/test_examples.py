"""The ten scripts of experiments/examples: each runs as it stands, is short, and checks the number that it prints."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
from helpers.example_robots import EXAMPLE_ROBOTS

FOLDER = Path(__file__).parents[1] / "experiments" / "examples"
SCRIPTS = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "robot_files")
QUICK = ("operators",)


def test_there_are_ten_and_none_is_long():
    assert len(SCRIPTS) == 10
    for script in SCRIPTS:
        lines = [line for line in (FOLDER / f"{script}.py").read_text(encoding="utf-8").splitlines() if line.strip()]
        assert len(lines) <= 25 and lines[0].startswith('"""') and lines[-1].startswith("assert ")


@pytest.mark.filterwarnings("ignore::jaxsoa.ModelWarning")
@pytest.mark.parametrize("script", [s if s in QUICK else pytest.param(s, marks=pytest.mark.slow) for s in SCRIPTS])
def test_runs_and_its_number_is_right(script, monkeypatch, capsys):
    if script == "humanoid":
        pytest.importorskip("mujoco")
        pytest.importorskip("gymnasium")
    if "PANDA" in (FOLDER / f"{script}.py").read_text(encoding="utf-8") and not EXAMPLE_ROBOTS:
        pytest.skip("the package example-robot-data is not installed")
    monkeypatch.syspath_prepend(str(FOLDER))
    runpy.run_path(str(FOLDER / f"{script}.py"), run_name="__main__")
    assert capsys.readouterr().out
