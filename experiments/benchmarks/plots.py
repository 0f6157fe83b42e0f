"""Pictures of results.json: bars for each operation, growth with the batch and with the links, compile times."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

COLORS = {
    "jaxsoa": "#c0392b",
    "jaxsoa-sharded": "#7b241c",
    "jaxsoa-latency": "#e67e22",
    "pinocchio": "#5d6d7e",
    "pinocchio-threads": "#2c3e50",
    "frax": "#2e86c1",
    "mjx": "#28b463",
    "brax": "#d4ac0d",
    "adam": "#8e44ad",
    "jaxsim": "#ca6f1e",
}
STYLE = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "axes.axisbelow": True,
    "figure.dpi": 110,
    "savefig.bbox": "tight",
}


def draw(results: dict, folder: Path) -> list[Path]:
    """The pictures that the results have enough cases for; their paths."""
    links = "links of the chain"
    with plt.rc_context(STYLE):
        made = [
            _bars(results, folder / "operations.svg"),
            _growth(results, folder / "batches.svg", _batch_lines(results), "states in the batch", "us per state"),
            _growth(results, folder / "chains.svg", _chain_lines(results), links, "us per evaluation"),
            _growth(results, folder / "compile.svg", _compile_lines(results), links, "seconds to compile"),
        ]
    return [path for path in made if path is not None]


def _bars(results: dict, path: Path) -> Path | None:
    """One panel a case of a large batch: time per state of everybody."""
    panels = [c for c in results["cases"] if c["batch"] > 1 and len(_timed(c)) > 1 and not _links(c)]
    largest = {}
    for case in panels:  # of each operation on each robot the largest batch but one that others were left out of
        key = case["robot"], case["operation"], case["dtype"]
        best = largest.get(key)
        if best is None or (len(_timed(case)), case["batch"]) > (len(_timed(best)), best["batch"]):
            largest[key] = case
    panels = list(largest.values())
    if not panels:
        return None
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(4.2 * columns, 2.5 * rows), squeeze=False)
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    for axis, case in zip(axes.flat, panels, strict=False):
        timed = sorted(_timed(case).items(), key=lambda pair: -pair[1])
        names, values = zip(*timed, strict=True)
        axis.barh(names, values, color=[COLORS.get(name, "gray") for name in names])
        axis.set_xscale("log")
        axis.set_xlim(min(values) / 3, max(values) * 6)
        for row, value in enumerate(values):
            axis.text(value * 1.1, row, f"{value:.3g}", va="center", fontsize=8)
        axis.set_title(f"{case['robot']}: {case['operation'].replace('_', ' ')}, {case['batch']}, {case['dtype']}")
        axis.grid(axis="y", visible=False)
        axis.set_xlabel("us per state")
    figure.suptitle(_caption(results), fontsize=8, y=1.0)
    figure.tight_layout()
    return _save(figure, path)


def _growth(results: dict, path: Path, panels: dict[str, dict[str, dict[int, float]]], x: str, y: str) -> Path | None:
    """Log-log lines; panels = {title: {contender: {size: value}}}. Nothing is drawn of fewer than two sizes."""
    panels = {
        title: lines for title, lines in panels.items() if len({size for line in lines.values() for size in line}) > 1
    }
    if not panels:
        return None
    figure, axes = plt.subplots(1, len(panels), figsize=(4.6 * len(panels), 3.4), squeeze=False)
    for axis, (title, lines) in zip(axes.flat, panels.items(), strict=True):
        for name, line in lines.items():
            sizes = sorted(line)
            axis.plot(sizes, [line[size] for size in sizes], "o-", color=COLORS.get(name, "gray"), label=name, ms=4)
        axis.set(xscale="log", yscale="log", xlabel=x, ylabel=y, title=title)
        axis.legend(fontsize=7, frameon=False)
    figure.suptitle(_caption(results), fontsize=8, y=1.02)
    figure.tight_layout()
    return _save(figure, path)


def _batch_lines(results: dict) -> dict:
    panels: dict = {}
    for case in results["cases"]:
        if not _links(case):
            title = f"{case['robot']}: {case['operation'].replace('_', ' ')}, {case['dtype']}"
            for name, value in _timed(case).items():
                panels.setdefault(title, {}).setdefault(name, {})[case["batch"]] = value
    most = sorted(panels, key=lambda title: -max(len(line) for line in panels[title].values()))
    return {title: panels[title] for title in most[:4]}  # more do not fit on a page


def _chain_lines(results: dict) -> dict:
    panels: dict = {}
    for case in results["cases"]:
        if _links(case) and case["batch"] == 1:
            title = f"chain: {case['operation'].replace('_', ' ')}, {case['dtype']}"
            for name, value in _timed(case).items():
                panels.setdefault(title, {}).setdefault(name, {})[_links(case)] = value
    return panels


def _compile_lines(results: dict) -> dict:
    panels: dict = {}
    for case in results["cases"]:
        if _links(case) and case["batch"] == 1:
            title = f"chain: {case['operation'].replace('_', ' ')}, {case['dtype']}"
            for name, entry in case["entries"].items():
                if "compile_seconds" in entry:
                    panels.setdefault(title, {}).setdefault(name, {})[_links(case)] = entry["compile_seconds"]
    return panels


def _timed(case: dict) -> dict[str, float]:
    return {n: x["microseconds_per_state"] for n, x in case["entries"].items() if "microseconds_per_state" in x}


def _links(case: dict) -> int:
    return int(case["robot"].split("-")[1]) if case["robot"].startswith("chain-") else 0


def _caption(results: dict) -> str:
    machine = results["machine"]
    jax = machine["versions"].get("jax", "")
    return f"{machine['cores']} cores of {machine['cpu']}, jax {jax}, least of interleaved repetitions"


def _save(figure, path: Path) -> Path:
    figure.savefig(path)
    plt.close(figure)
    return path


if __name__ == "__main__":  # python plots.py FOLDER: draw again
    where = Path(sys.argv[1])
    for picture in draw(json.loads((where / "results.json").read_text(encoding="utf-8")), where):
        print(picture)
