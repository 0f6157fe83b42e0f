"""The benchmark suite runs, its answers agree with Pinocchio's and its files are whole. Times are never looked at."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

FOLDER = Path(__file__).parent.parent / "experiments" / "benchmarks"


def run(*arguments: str) -> subprocess.CompletedProcess:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(FOLDER.parent.parent), *sys.path])}
    command = [sys.executable, str(FOLDER / "run.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)


@pytest.mark.slow
def test_jaxsoa_beside_pinocchio(tmp_path):
    """Two robots, two precisions; the joints of the quadruped (floating base) stand in another order in Pinocchio."""
    peers = ("pinocchio", "pinocchio-threads")
    common = ("--peers", *peers, "--batches", "8", "--repetitions", "2", "--patience", "300", "--minutes", "10")
    chain = ("--robots", "chain-8", "--operations", "forward_dynamics", "linearization", "perturbation", "mass_matrix")
    for name, arguments in {
        "chain": chain,
        "quadruped": ("--robots", "quadruped", "--operations", "inverse_dynamics", "--no-plots"),
    }.items():
        folder = tmp_path / name
        done = run(*arguments, *common, "--output", str(folder))
        assert done.returncode == 0, done.stderr
        results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
        assert results["schema"] == 1 and results["machine"]["cores"] >= 1
        assert set(results["contenders"]) == {"jaxsoa", *peers}
        assert len(results["cases"]) == (4 if name == "chain" else 1)
        for case in results["cases"]:
            assert "skip" not in case and case["batch"] == 8
            for contender, entry in case["entries"].items():
                if contender == "pinocchio-threads" and "skip" in entry and results["machine"]["cores"] == 1:
                    continue
                assert "skip" not in entry, entry
                assert entry["difference"] < 1e-10, (case, contender)
                seconds = entry["seconds"]
                assert 0 < seconds["min"] <= seconds["median"] <= seconds["max"] and seconds["repetitions"] == 2
                assert entry["peak_bytes"] > 0
            assert case["entries"]["jaxsoa"]["compile_seconds"] > 0
        table = (folder / "table.md").read_text(encoding="utf-8")
        assert "jaxsoa" in table and "| pinocchio |" in table
    assert not list((tmp_path / "quadruped").glob("*.svg"))


def test_unknown_robots_are_refused():
    done = run("--robots", "chain-0")
    assert done.returncode == 2 and "chain-N" in done.stderr


def test_operations_and_bytes_of_a_compiled_loop():
    """x <- x a + b, 10 times over 1000 numbers: 20,000 operations; each time x is read and written."""
    spec = importlib.util.spec_from_file_location("hlo_costs", FOLDER / "hlo_costs.py")
    assert spec is not None and spec.loader is not None
    hlo_costs = importlib.util.module_from_spec(spec)
    sys.modules["hlo_costs"] = hlo_costs  # dataclasses look their module up
    spec.loader.exec_module(hlo_costs)

    def chain(x):
        return jax.lax.fori_loop(0, 10, lambda _, x: x * 0.5 + 1.0, x)

    x = np.ones(1000)
    costs = hlo_costs.count(jax.jit(chain).lower(x).compile().as_text())
    assert costs.unknown_loops == 0
    assert costs.operations == 20_000
    assert costs.multiply_adds == 10_000
    assert 10 * 2 * 8000 <= costs.bytes <= 10 * 2 * 8000 + 40_000  # and once more to copy the argument, and counters
    a, b = np.ones((20, 30)), np.ones((30, 40))
    product = hlo_costs.count(jax.jit(lambda a, b: a @ b).lower(a, b).compile().as_text())
    assert product.operations == 2 * 20 * 30 * 40


def test_the_rows_of_targets():
    """Every row is in some case, and ratios are of the right figures."""
    code = """
import json, targets
grid = targets.cases_of(targets.ROBOTS, None, True)
assert all(any(c.operation == t.operation and c.batch == t.batch and t.ours in n for c, n in grid.items())
           for t in targets.TARGETS)
def entry(us):
    return {"seconds": {"min": us * 1e-6}, "processor_seconds": us * 2e-6, "compile_seconds": 1.5}
names = {name for each in grid.values() for name in each} - {"jaxsoa-before"}
entries = {name: entry(20.0 if name.startswith("pinocchio") else 5.0 + (name != "jaxsoa-empty")) for name in names}
results = {"cases": [{"robot": c.robot, "operation": c.operation, "batch": c.batch, "entries": entries} for c in grid]}
print(json.dumps(targets.lines(results)))
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(FOLDER), str(FOLDER.parent.parent), *sys.path])}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=60)
    assert done.returncode == 0, done.stderr
    rows = [[x.strip() for x in line.split("|")] for line in json.loads(done.stdout)]
    reached = {row[1]: row[2:5] for row in rows if len(row) == 9}  # arm and humanoid: what is aimed at, two clocks
    assert reached["forward dynamics, batch 4096"] == [">= 10", "3.33", "3.33"]
    assert reached["a jitted call over an empty one, us"] == ["<= 3", "1", "2"]
    assert reached["eager call after the first, us"] == ["<= 150", "6", "12"]
    assert reached["first call, linearization, s"][:2] == ["<= 1.5", "1.50"]
    assert "jaxsoa-before: not run" in reached["1,000-step rollout, batch 64"][1]
