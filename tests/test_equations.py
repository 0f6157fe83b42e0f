"""The table of equations is true: its names exist, its tests exist, no numbered equation of the papers is missing."""

from __future__ import annotations

import ast
import functools
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.equation_table import EQUATIONS, ROOT, resolve, tables

import jaxsoa as soa
from jaxsoa.algebra.rules import OPTIONAL, RULES

#: Chapters of each paper with the number of their last equation.
NUMBERED = {
    "JPL 88-11, part I": {"2": 32, "3": 23, "4": 23, "5": 17, "a": 51, "b": 8},
    "JPL 88-11, part II": {"2": 15, "3": 6, "4": 9, "5": 14, "6": 22, "a": 10, "b": 14},
    "Overview": {"2": 1, "3": 6, "4": 8, "5": 11},
    "JPL 86-48": {"3": 6, "4": 12, "5": 16, "6": 6, "7": 11, "8": 25, "9": 21, "10": 31},
    "DARTS course, unit 7": {},  # its slides number few equations, and cite those of a book
    "Linearization": {"1": 6, "2": 20, "3": 8, "4": 26, "A": 24},
}
NAMED = {
    "JPL 88-11, part I": [*(f"algorithm FD{k}" for k in range(1, 5)), "theorem 4.1", "identity 5.1", "lemma A.1"],
    "JPL 88-11, part II": ["algorithm RCCFD1", "algorithm RCCFD2", "algorithm RCCFD3"],
    "Overview": [
        *(f"lemma {k}" for k in ("4.1", "4.2", "4.3", "5.1", "A.1")),
        *(f"application {k}" for k in (1, 2, 3)),
    ],
    "JPL 86-48": ["table 6.1"],
    "DARTS course, unit 7": ["(7.12)", "(7.15)", "(7.30)", "(17.11)", "algorithm 7.1", "hybrid algorithm"],
    "Linearization": [
        *(f"algorithm {k}" for k in range(1, 7)),
        *(f"lemma {k}" for k in ("3.1", "3.2", *(f"4.{n}" for n in range(1, 10)), "A.1", "A.2")),
    ],
}


ROWS = [(section, row) for section, rows in tables().items() for row in rows]


@functools.cache
def defined_in(path: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize(("section", "row"), ROWS, ids=[f"{s}: {row[0]}" for s, row in ROWS])
def test_every_name_exists(section, row):
    assert len(row) == 4, row
    _, what, code, tests = row
    if (code, tests) == ("-", "-"):
        assert what == "not implemented"
        return
    names, checks = re.findall(r"`([^`]+)`", code), re.findall(r"`([^`]+)`", tests)
    assert names and checks, "a row names a function and a test"
    for name in names:
        resolve(name)
    for check in checks:
        file, _, test = check.partition("::")
        assert test in defined_in(ROOT / file), check


@pytest.mark.parametrize("section", NUMBERED)
def test_no_numbered_equation_is_missing(section):
    places = [row[0] for row in tables()[section]]
    found: set[tuple[str, int]] = set()
    for first, last in re.findall(r"\((\w+\.\d+)\)(?:-\((\w+\.\d+)\))?", " ".join(places)):
        chapter, number = first.split(".")
        end = last.split(".")[1] if last else number
        assert not last or last.split(".")[0] == chapter, f"({first})-({last})"
        found |= {(chapter, k) for k in range(int(number), int(end) + 1)}
    wanted = {(chapter, k) for chapter, last in NUMBERED[section].items() for k in range(1, last + 1)}
    assert not wanted - found, f"missing: {sorted(wanted - found)}"
    text = " | ".join(places)
    assert all(name in text for name in NAMED[section]), [name for name in NAMED[section] if name not in text]


EVERYTHING = "JAXSOA_EVERY_COMBINATION" in os.environ
FEW = ("tests/dynamics/test_papers.py", "tests/linearized/test_lemmas.py", "tests/spatial")


@pytest.mark.slow
@pytest.mark.parametrize(
    "parts",
    [FEW, pytest.param((), marks=pytest.mark.skipif(not EVERYTHING, reason="set JAXSOA_EVERY_COMBINATION"))],
    ids=["few", "all"],
)
def test_the_named_tests_run_the_named_functions(parts):
    command = [sys.executable, str(Path(__file__).with_name("check_equations.py")), *parts]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-1000:]


def test_every_identity_of_the_registry_is_in_the_table():
    listed = set(re.findall(r'jaxsoa\.IDENTITIES\["([^"]+)"\]', EQUATIONS.read_text(encoding="utf-8")))
    rules = {rule.name for rule in (*RULES, *OPTIONAL.values())}  # of the same equations, which they name themselves
    assert rules <= set(soa.IDENTITIES) and listed == set(soa.IDENTITIES) - rules


# --- docstrings -------------------------------------------------------------------------------------------------------


def public(module) -> dict[str, object]:
    """The functions and classes that a module offers as its own, by the name a user writes."""
    return {
        f"{module.__name__}.{name}": thing
        for name, thing in vars(module).items()
        if not name.startswith("_")
        and (inspect.isfunction(thing) or inspect.isclass(thing))
        and thing.__module__.startswith("jaxsoa")
    }


MODULES = (soa, soa.closed_chain, soa.convert, soa.identify, soa.models, soa.optimize, soa.simulate, soa.viz)
PUBLIC = {name: thing for module in MODULES for name, thing in public(module).items()}
#: How a shape looks in an annotation, and in a text: (n, 3), (nv,), (6m, 6m).
SHAPED = re.compile(r"\b(?:Float|Shaped|Bool|Int|Inexact)\[")
SHAPE = re.compile(r"\(\s*[\w\s+*]+(?:,\s*[\w\s+*.]*)+\)")


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_says_what_it_is(name):
    """A docstring; and where arrays go in or out, their shapes, in the annotations or in the text."""
    thing = PUBLIC[name]
    text = inspect.getdoc(thing)
    assert text, f"{name} has no docstring"
    if text.startswith(f"{thing.__name__}("):
        # The generated docstring of a named tuple: its annotations must say everything.
        fields = inspect.get_annotations(thing).values()
        assert fields and all(SHAPED.search(str(field)) for field in fields), f"{name} has no docstring"
        return
    assert len(text) > 20, f"{name} has hardly a docstring: {text!r}"
    if inspect.isfunction(thing):
        annotations = " ".join(str(a) for a in thing.__annotations__.values())
        assert "return" in thing.__annotations__, f"{name} does not say what it returns"
        arrays = re.findall(r"\bArray\b|ndarray", annotations)
        assert not arrays or SHAPED.search(annotations) or SHAPE.search(text), f"{name}: arrays of unsaid shape"


@pytest.mark.parametrize("name", [name for name, thing in PUBLIC.items() if inspect.isclass(thing)])
def test_every_public_method_says_what_it_does(name):
    thing = PUBLIC[name]
    kinds = (property, classmethod, staticmethod)
    for key, value in vars(thing).items():
        if not key.startswith("_") and (inspect.isfunction(value) or isinstance(value, kinds)):
            assert inspect.getdoc(getattr(thing, key)), f"{name}.{key} has no docstring"
