"""jaxsoa/EQUATIONS.md as data: its rows, and the things that their names stand for. Imports nothing of the package."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
EQUATIONS = ROOT / "jaxsoa" / "EQUATIONS.md"


def tables() -> dict[str, list[list[str]]]:
    """Rows (where, what, code, test) by section."""
    sections: dict[str, list[list[str]]] = {}
    rows: list[list[str]] = []
    for line in EQUATIONS.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            rows = sections.setdefault(line[3:], [])
        elif line.startswith("| ") and not line.startswith(("| where", "| ---")):
            rows.append([cell.strip() for cell in line.strip("|").split(" | ")])
    return sections


def named_in_rows() -> list[tuple[str, list[str], list[str]]]:
    """(place, functions, tests) of every row that names code."""
    found = []
    for section, rows in tables().items():
        for place, _, *cells in rows:
            functions, tests = (re.findall(r"`([^`]+)`", cell) for cell in cells)
            if functions:
                found.append((f"{section} {place}", functions, tests))
    return found


def resolve(name: str) -> object:
    """`jaxsoa.module.thing.attribute["key"]` by import."""
    match = re.fullmatch(r'(jaxsoa(?:\.\w+)+)(?:\["([^"]+)"\])?', name)
    assert match, f"{name} is no name"
    path, key = match.groups()
    parts = path.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[cut:]:
            found = getattr(found, attribute)
        return found if key is None else found[key]  # pyright: ignore[reportIndexIssue]
    raise AssertionError(name)
