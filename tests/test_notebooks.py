"""Every notebook runs from top to bottom, and holds small outputs of the code that stands in it."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


@every_notebook
def test_its_outputs_are_those_of_its_code(path):
    """As `.ci/notebooks` stores them; it also writes the digest."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    digest = hashlib.sha256("\0".join("".join(cell["source"]) for cell in code).encode()).hexdigest()
    assert notebook["metadata"].get("outputs_of") == digest, f"run .ci/notebooks {path.stem}"
    outputs = [output for cell in code for output in cell["outputs"]]
    assert all(cell["execution_count"] for cell in code)
    assert any({"image/png", "image/gif", "text/latex"} & output.get("data", {}).keys() for output in outputs)
    text = json.dumps(outputs)
    assert not any(output["output_type"] == "error" for output in outputs)
    assert not re.search(r"/(?:home|tmp|root|usr)/|0x[0-9a-f]{8}", text), "of the machine it ran on"


def test_they_are_small():
    assert sum(path.stat().st_size for path in NOTEBOOKS) < 2_000_000


@pytest.mark.slow
@every_notebook
def test_runs(path):
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(notebook, timeout=1200, resources={"metadata": {"path": str(path.parent)}}).execute()
