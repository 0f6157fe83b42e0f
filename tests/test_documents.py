"""What the documents beside the README say is true: files exist, versions agree, the code of CONVENTIONS.md runs."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path

import pytest
from helpers.markdown import run_python_blocks

import jaxsoa as soa

ROOT = Path(__file__).parents[1]
DOCUMENTS = [
    *ROOT.glob("*.md"),
    ROOT / "jaxsoa" / "CONVENTIONS.md",
    ROOT / "experiments" / "README.md",
    ROOT / "notebooks" / "README.md",
]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_file_named_exists(path):
    text = path.read_text(encoding="utf-8")
    named = re.findall(r"`((?:jaxsoa|tests|experiments|notebooks|\.ci)/[\w./-]+)`", text)
    linked = re.findall(r"\]\(([\w./-]+)\)", text)
    missing = [name for name in named if not (ROOT / name).exists()]
    missing += [name for name in linked if not (path.parent / name).exists()]
    assert not missing


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 130


def test_versions_agree():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(r"^version: (.*)$", citation, re.MULTILINE).group(1) == soa.__version__
    assert re.search(r"^## (\S+)", changes, re.MULTILINE).group(1) == soa.__version__


def test_every_experiment_and_notebook_is_in_its_contents():
    for folder, pattern in (("experiments", "*.py"), ("notebooks", "*.ipynb")):
        text = (ROOT / folder / "README.md").read_text(encoding="utf-8")
        files = {path.name for path in (ROOT / folder).glob(pattern)}
        assert files and not [name for name in files if name not in text]
        listed = set(re.findall(r"^\| `(?:[\w/]+/)?(\w+\.py)|\((\w+\.ipynb)\)", text, re.MULTILINE))
        gone = [x or y for x, y in listed if not list((ROOT / folder).rglob(x or y))]
        assert not gone


def test_every_notebook_opens_with_what_the_reader_will_be_able_to_do():
    contents = (ROOT / "notebooks" / "README.md").read_text(encoding="utf-8")
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        opening = "".join(json.loads(path.read_text(encoding="utf-8"))["cells"][0]["source"])
        promise = re.search(r"\*\*After this notebook you can (.*)\.\*\*", opening)
        assert promise, f"{path.name} does not open with what the reader will be able to do"
        assert promise.group(1).replace("$", "") in contents


@pytest.mark.slow
def test_the_examples_of_the_conventions_run(tmp_path, monkeypatch, capsys):
    pytest.importorskip("pinocchio")
    monkeypatch.chdir(tmp_path)
    _, count = run_python_blocks(ROOT / "jaxsoa" / "CONVENTIONS.md")
    assert count == 2 and capsys.readouterr().out == "1 True\n"


def test_the_benchmark_writes_its_figures_between_the_marks(tmp_path, monkeypatch):
    folder = ROOT / "experiments" / "benchmarks"
    monkeypatch.syspath_prepend(str(folder))
    spec = importlib.util.spec_from_file_location("benchmark_report", folder / "report.py")
    assert spec is not None and spec.loader is not None
    report = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(report)
    sys.modules.pop("contenders", None)

    page = tmp_path / "README.md"
    text = (ROOT / "experiments" / "README.md").read_text(encoding="utf-8")
    page.write_text(text, encoding="utf-8")
    timed = {"seconds": {"min": 2e-3, "median": 3e-3, "max": 4e-3}}
    case = {"robot": "arm", "operation": "mass_matrix", "batch": 1000, "dtype": "float64"}
    case["entries"] = {"jaxsoa": {**timed, "compile_seconds": 1.26, "difference": 3e-12}, "frax": {"skip": "absent"}}
    machine = {"commit": "abc", "cores": 3, "cpu": "some CPU", "load_before": 0.1, "versions": {}}
    results = {"started": "2026", "command": "run.py", "machine": machine, "contenders": {"frax": {}, "jaxsoa": {}}}
    report.update_readme({**results, "cases": [case, {**case, "skip": "no time"} | {"entries": {}}]}, page)
    new = page.read_text(encoding="utf-8")
    begin, end = report.BLOCK
    assert "| mass matrix, arm, batch 1000, float64 | 1.3 | 2 |" in new and "| to compile, s | jaxsoa |" in new
    assert new.split(begin)[0] == text.split(begin)[0] and new.split(end)[1] == text.split(end)[1]
    assert json.dumps(results["machine"]["cpu"]).strip('"') in new
    page.write_text("nothing here", encoding="utf-8")
    with pytest.raises(ValueError, match="no block"):
        report.update_readme(results | {"cases": []}, page)
