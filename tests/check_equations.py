"""Does each test of jaxsoa/EQUATIONS.md run the functions of its row? Run by test_equations.py in a process of its own.

    python tests/check_equations.py [PART OF A TEST'S NAME ...]

Named tests run with a trace of calls, every one after all compiled programs have been forgotten, so that a function is
called again to be compiled; what a shared fixture ran counts for the tests that ask for it. Of a test with parameters,
only as many run as it takes.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from helpers.equation_table import ROOT, named_in_rows, resolve


def codes(thing: object, depth: int = 0) -> Iterator[CodeType]:
    """The code that runs when a thing is used: of a class its methods, of a record the functions that it holds."""
    if isinstance(thing, functools.partial | functools.cached_property):
        thing = thing.func
    if isinstance(thing, property):
        thing = thing.fget
    if isinstance(thing, staticmethod | classmethod):
        thing = thing.__func__
    if callable(thing):
        thing = inspect.unwrap(thing)
    if isinstance(thing, FunctionType):
        yield thing.__code__
    elif inspect.ismethod(thing):
        yield thing.__func__.__code__
    elif inspect.isclass(thing):
        for kind in thing.__mro__:
            if kind.__module__.startswith("jaxsoa"):
                for value in vars(kind).values():
                    if depth == 0:
                        yield from codes(value, 1)
    elif depth == 0:
        for value in (getattr(thing, name, None) for name in ("__wrapped__", "fun", "func", "left", "right", "method")):
            if value is not None:
                yield from codes(value, 1)


class Tracing:
    """Which code ran in which test and fixture."""

    def __init__(self, named: dict[str, set[str]]):
        self.named = named  # functions by test
        self.missing: dict[str, dict[str, set[CodeType]]] = {}
        self.every: set[CodeType] = set()
        self.fixtures: dict[tuple[str, str], set[CodeType]] = {}
        self.now: set[CodeType] = set()
        self.failed: list[str] = []
        self.begun: set[str] = set()

    def trace(self, frame, event, argument):
        if frame.f_code in self.every:
            self.now.add(frame.f_code)

    def name(self, item) -> str:
        return f"{item.path.relative_to(ROOT).as_posix()}::{item.originalname}"

    def pytest_collection(self, session):
        import hypothesis

        quick = hypothesis.settings.get_profile("jaxsoa")
        hypothesis.settings.register_profile("traced", parent=quick, max_examples=2)
        hypothesis.settings.load_profile("traced")

    def pytest_collection_modifyitems(self, config, items):
        """Parameters that are in the default run, and of a test that has none there the others."""
        chosen = [item for item in items if self.name(item) in self.named]
        quick = {self.name(item) for item in chosen if item.get_closest_marker("slow") is None}
        items[:] = [x for x in chosen if self.name(x) not in quick or x.get_closest_marker("slow") is None]

    def pytest_collection_finish(self, session):
        for test, functions in self.named.items():
            self.missing[test] = {name: set(codes(resolve(name))) for name in functions}
            self.every.update(*self.missing[test].values())

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef, request):
        before, self.now = self.now, set()
        try:
            return (yield)
        finally:
            key = (fixturedef.baseid, fixturedef.argname)
            self.fixtures[key] = self.fixtures.get(key, set()) | self.now
            self.now = before | self.now

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item):
        if not self.missing[self.name(item)]:
            pytest.skip("what is wanted of it has run")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item, nextitem):
        import jaxsoa as soa

        name = self.name(item)
        if name not in self.begun:  # its other parameters have programs of their own, or nothing new to show
            self.begun.add(name)
            soa.clear_caches()
        self.now = set()
        sys.settrace(self.trace)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            for definitions in item._fixtureinfo.name2fixturedefs.values():
                for one in definitions:
                    self.now |= self.fixtures.get((one.baseid, one.argname), set())
            self.missing[name] = {f: c for f, c in self.missing[name].items() if not c & self.now}

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.failed.append(report.nodeid)

    def complaints(self, rows: list[tuple[str, list[str], list[str]]]) -> list[str]:
        """Every function of a row is run by one of its tests, and every test of a row runs one of its functions."""
        found = [f"{test} fails" for test in self.failed]
        for place, functions, tests in rows:
            ran = [test for test in tests if test in self.named]
            for function in functions if len(ran) == len(tests) else ():
                if all(function in self.missing[test] for test in tests):
                    found.append(f"{place}: no test named there runs {function}")
            for test in ran:
                if all(function in self.missing[test] for function in functions):
                    found.append(f"{place}: {test} runs nothing that is named there")
        return found


def main(chosen: list[str]) -> int:
    rows, named = named_in_rows(), {}
    for _, functions, tests in rows:
        for test in tests:
            if not chosen or any(part in test for part in chosen):
                named.setdefault(test, set()).update(functions)
    tracing = Tracing(named)
    options = ["-q", "-m", "", "-p", "no:cacheprovider", "--durations=25", "--rootdir", str(ROOT)]
    pytest.main([*options, *named], plugins=[tracing])
    complaints = tracing.complaints(rows)
    print("\n".join(complaints))
    return bool(complaints)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
