"""What a stranger installs: the wheel, alone, in a fresh environment, with nothing of the tests beside it."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
#: The fresh environment must see neither this one nor its settings for tests.
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "XLA_", "VIRTUAL_ENV"))}


def run(*command: str | Path, code: int = 0, **more) -> subprocess.CompletedProcess:
    done = subprocess.run(list(map(str, command)), env=CLEAN, capture_output=True, text=True, check=False, **more)
    assert done.returncode == code, f"{command}\n{done.stdout}\n{done.stderr}"
    return done


@pytest.mark.slow
def test_the_wheel_works_alone(tmp_path):
    run(sys.executable, "-m", "build", "--wheel", "--outdir", tmp_path, ROOT)
    (wheel,) = tmp_path.glob("jaxsoa-*.whl")
    venv.create(tmp_path / "venv", with_pip=True)
    scripts = tmp_path / "venv" / ("Scripts" if os.name == "nt" else "bin")
    python = scripts / "python"
    run(python, "-m", "pip", "install", "-q", wheel)
    where = {"cwd": tmp_path}  # not the repository: its folder would be imported instead

    listed = run(python, "-m", "pip", "list", "--format=freeze", **where).stdout
    installed = {line.split("==")[0].lower() for line in listed.splitlines()}
    assert not installed & {"pytest", "pin", "mujoco", "matplotlib", "viser", "pillow", "hypothesis"}
    assert (
        Path(run(python, "-c", "import jaxsoa; print(jaxsoa.__file__)", **where).stdout.strip()).parent / "EQUATIONS.md"
    ).exists()

    out = run(scripts / "jaxsoa", "demo", "--batch", "8", "--seconds", "0.1", **where).stdout
    assert "energy drift" in out
    assert (tmp_path / "jaxsoa-demo.png").read_bytes().startswith(b"\x89PNG")
    # What needs an extra says which.
    error = run(scripts / "jaxsoa", "view", "puma560", "--no-browser", "--seconds", "1", code=2, **where).stderr
    assert "jaxsoa[viz]" in error and error.count("\n") == 1
