"""results.json and the table."""

from __future__ import annotations

import json
import os
from pathlib import Path

from contenders import JAX_PEERS


def write_results(results: dict, path: Path) -> None:
    """At once or not at all, so that an interrupted run leaves a whole file."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps(results, indent=1), encoding="utf-8")
    os.replace(new, path)


def write_table(results: dict, path: Path) -> str:
    text = table(results)
    path.write_text(text, encoding="utf-8")
    return text


def table(results: dict) -> str:
    """Markdown: the machine, one table for each case, the headline ratios, who was skipped and why."""
    machine = results["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    lines = [
        "# Benchmarks",
        "",
        f"{results['started']}, `{results['command']}`, {machine['cores']} cores of {machine['cpu']}, load "
        f"{machine['load_before']} before the run. jaxsoa {machine['commit']}, {versions}.",
        "",
        "Time is the least of the interleaved repetitions; difference is that of the joints' answers from Pinocchio's "
        "float64, relative to the largest entry.",
        "",
    ]
    lines += _ratios(results)
    for case in results["cases"]:
        title = f"{case['robot']}, {case['operation'].replace('_', ' ')}, batch {case['batch']}, {case['dtype']}"
        lines += [f"## {title}", ""]
        if "skip" in case:
            lines += [f"Not run: {case['skip']}.", ""]
        else:
            lines += [*_rows(case), ""]
    lines += ["## Contenders", "", "| | version | settings |", "| --- | --- | --- |"]
    for name, entry in results["contenders"].items():
        skipped = f"skipped: {entry.get('skip')}"
        lines.append(f"| {name} | {entry.get('version', '')} | {entry.get('settings', skipped)} |")
    return "\n".join(lines) + "\n"


BLOCK = ("<!-- written by run.py --readme: begin -->", "<!-- end -->")


def update_readme(results: dict, path: Path) -> None:
    """Put the figures of one run into the marked block of a Markdown file."""
    before, begin, rest = path.read_text(encoding="utf-8").partition(BLOCK[0])
    _, end, after = rest.partition(BLOCK[1])
    if not begin or not end:
        raise ValueError(f"{path} has no block between {BLOCK[0]!r} and {BLOCK[1]!r}.")
    path.write_text("\n".join([before + begin, *_one_table(results), end + after]), encoding="utf-8")


def _one_table(results: dict) -> list[str]:
    """Microseconds per state, a row for each case and a column for each contender that was timed in any."""
    machine, cases = results["machine"], [case for case in results["cases"] if "entries" in case]
    timed = {name for case in cases for name, x in case["entries"].items() if "seconds" in x}
    names = [name for name in results["contenders"] if name in timed]
    found = [x.get("difference") for case in cases for x in case["entries"].values()]
    difference = max((x for x in found if x is not None), default=0.0)
    lines = [
        "",
        f"{results['started']}, jaxsoa {machine['commit']}, {machine['cores']} cores of {machine['cpu']}, load "
        f"{machine['load_before']} before the run: `{results['command']}`. Microseconds per state, least of "
        f"interleaved repetitions. Answers differ from Pinocchio's by at most {difference:.1e}, relative.",
        "",
        f"| | to compile, s | {' | '.join(names)} |",
        f"| --- | --- |{' --- |' * len(names)}",
    ]
    for case in cases:
        seconds = (_seconds(case, (name,)) for name in names)
        figures = [_figure(1e6 * x / case["batch"]) if x else "" for x in seconds]
        compiled = case["entries"].get("jaxsoa", {}).get("compile_seconds")
        what = f"{case['operation'].replace('_', ' ')}, {case['robot']}, batch {case['batch']}, {case['dtype']}"
        lines.append(f"| {what} | {'' if compiled is None else f'{compiled:.1f}'} | {' | '.join(figures)} |")
    return [*lines, ""]


def _rows(case: dict) -> list[str]:
    head = [
        "| | us per state | median, max | times jaxsoa | compile s | peak MiB | temporaries MiB | difference |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    timed = {name: x for name, x in case["entries"].items() if "seconds" in x}
    ours = _seconds(case, ("jaxsoa",))
    rows = []
    for name, x in sorted(timed.items(), key=lambda pair: pair[1]["seconds"]["min"]):
        seconds, scale = x["seconds"], 1e6 / case["batch"]
        ratio = f"{seconds['min'] / ours:.2f}" if ours else ""
        compiled = f"{x['compile_seconds']:.1f}" if "compile_seconds" in x else ""
        temporary = f"{x['temporary_bytes'] / 2**20:.1f}" if "temporary_bytes" in x else ""
        difference = f"{x['difference']:.1e}" if x.get("difference") is not None else ""
        rows.append(
            f"| {name} | {_figure(scale * seconds['min'])} | {_figure(scale * seconds['median'])}, "
            f"{_figure(scale * seconds['max'])} | {ratio} | {compiled} | {x.get('peak_bytes', 0) / 2**20:.0f} | "
            f"{temporary} | {difference} |"
        )
    for name, x in case["entries"].items():
        if "skip" in x:
            rows.append(f"| {name} | {x['skip'].replace('|', '/')} | | | | | | |")
    return head + rows


def _ratios(results: dict) -> list[str]:
    """How many times as long the fastest JAX peer, and the fastest Pinocchio, take as the faster of our two entries."""
    lines = ["| case | jaxsoa, us per state | fastest JAX peer | Pinocchio, all cores |", "| --- | --- | --- | --- |"]
    for case in results["cases"]:
        ours = _seconds(case, ("jaxsoa", "jaxsoa-sharded", "jaxsoa-latency"))
        if not ours:
            continue
        peers = {name: _seconds(case, (name,)) for name in JAX_PEERS}
        peers = {name: x for name, x in peers.items() if x}
        best = min(peers, key=peers.__getitem__, default=None)
        theirs = f"{peers[best] / ours:.2f} x ({best})" if best else ""
        pinocchio = _seconds(case, ("pinocchio", "pinocchio-threads"))
        other = f"{pinocchio / ours:.2f} x" if pinocchio else ""
        what = f"{case['robot']}, {case['operation'].replace('_', ' ')}, {case['batch']}, {case['dtype']}"
        lines.append(f"| {what} | {_figure(1e6 * ours / case['batch'])} | {theirs} | {other} |")
    return [*lines, ""]


def _seconds(case: dict, names: tuple[str, ...]) -> float | None:
    found = [case["entries"][x]["seconds"]["min"] for x in names if "seconds" in case.get("entries", {}).get(x, {})]
    return min(found, default=None)


def _figure(x: float) -> str:
    return f"{x:.0f}" if x >= 1000 else f"{x:.3g}"
