"""jaxsoa beside Pinocchio, frax, MJX, Brax, adam and JaxSim: same robots, same states, one run.

    pip install -e ".[bench]" && python experiments/benchmarks/run.py            under an hour on two quiet cores
    python experiments/benchmarks/run.py --quick                                 about 4 minutes, fewer contenders
    python experiments/benchmarks/run.py --full                                  everything, many hours
    python experiments/benchmarks/run.py --robots arm --operations linearization --batches 64 1024 --peers frax
    ... --robots chain-8 chain-512 --operations forward_dynamics --batches 1 --peers jaxsoa-parallel jaxsoa-operators
    ... --targets --forms --before ../jaxsoa-before     ratios, what is aimed at, Pinocchio's forms (see targets.py)

Every contender is a process of its own (XLA reads its flags once a process) with the settings its own documentation
recommends. One works at a time while the others block; repetitions are interleaved over the contenders, so that all
see the same machine; minimum, median and maximum are kept. Answers are compared with Pinocchio's in float64. Contenders
that are not installed or fail are listed with the reason. The folder of `--output` gets `results.json` (rewritten after
every case), `table.md`, plots and the logs of the workers.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

import targets
from cases import DTYPES, OPERATIONS, ROBOTS, Case, cases, default_grid, full_grid, quick_grid
from contenders import CORES, ENTRIES, FORMS, QUICK, WAYS, Entry
from machine import describe_machine
from report import update_readme, write_results, write_table
from session import Limits, Session


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="five cases, jaxsoa, Pinocchio and frax")
    size.add_argument("--full", action="store_true", help="all robots, operations, batches and precisions")
    parser.add_argument("--robots", nargs="+", metavar="ROBOT", help=f"of {', '.join(ROBOTS)}, or any chain-N")
    parser.add_argument("--operations", nargs="+", choices=OPERATIONS)
    parser.add_argument("--batches", nargs="+", type=int)
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES)
    peers = [name for name in ENTRIES if name != "jaxsoa"]
    parser.add_argument("--peers", nargs="*", choices=peers, help="contenders beside jaxsoa; default: all libraries")
    parser.add_argument("--repetitions", type=int, default=15, help="at most, of each contender and case")
    parser.add_argument("--minutes", type=float, help="cases not begun by then are left out (60; quick 4; full: none)")
    parser.add_argument("--patience", type=float, help="seconds a contender may take to compile a case (30; full 600)")
    parser.add_argument("--output", type=Path, default=Path("benchmark-results"))
    parser.add_argument("--targets", action="store_true", help="ratios and what is aimed at: see targets.py")
    parser.add_argument("--before", type=Path, help="with --targets: a checkout from before there were kernels")
    parser.add_argument("--only", nargs="+", choices=OPERATIONS, help="with --targets: rows of these operations")
    parser.add_argument(
        "--forms", action="store_true", help="with --targets: Pinocchio's templates and generated C too"
    )
    parser.add_argument("--readme", action="store_true", help="put the figures into the table of experiments/README.md")
    parser.add_argument("--keep-cache", action="store_true", help="use JAX's compilation cache: no compile times")
    parser.add_argument("--no-plots", action="store_true")
    options = parser.parse_args(arguments)
    for name in options.robots or ():
        if name not in ROBOTS and not (name.startswith("chain-") and name[6:].isdigit() and int(name[6:]) > 0):
            parser.error(f"unknown robot {name!r}: choose from {', '.join(ROBOTS)}, or chain-N")
    return options


def chosen_cases(options: argparse.Namespace) -> list[Case]:
    """A preset; or, if any of the four lists is given, all combinations of them."""
    if not (options.robots or options.operations or options.batches or options.dtypes):
        return quick_grid() if options.quick else full_grid() if options.full else default_grid()
    robots = options.robots or ("arm", "humanoid")
    batches = options.batches or (1, 4096)
    return cases(robots, options.operations or OPERATIONS, batches, options.dtypes or ("float64",))


def main() -> int:
    options = parse()
    names_of = None
    if options.targets:
        names_of = targets.cases_of(options.robots or targets.ROBOTS, options.only, options.forms)
        grid = list(names_of)
    else:
        grid = chosen_cases(options)
    if options.before is not None:
        environment = {"PYTHONPATH": os.pathsep.join([str(options.before.resolve()), os.environ.get("PYTHONPATH", "")])}
        ENTRIES["jaxsoa-before"] = Entry("worker_jaxsoa.py", ("--devices", str(CORES)), environment)
    if options.peers is not None:
        names = ["jaxsoa", *options.peers]
    else:
        names = [
            x for x in (QUICK if options.quick else ENTRIES) if x.removeprefix("jaxsoa-") not in (*FORMS, *WAYS, "fast")
        ]
    minutes = options.minutes or (4.0 if options.quick else float("inf") if options.full else 60.0)
    patience = options.patience or (600.0 if options.full else 30.0)
    limits = Limits(options.repetitions, minutes * 60, patience)
    options.output.mkdir(parents=True, exist_ok=True)
    for log in options.output.glob("*.log"):
        log.unlink()
    results = {
        "schema": 1,
        "command": " ".join(["run.py", *sys.argv[1:]]),
        "started": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
        "machine": describe_machine(CORES),
        "compilation_cache": options.keep_cache,
        "contenders": {},
        "robots": {},
        "cases": [],
    }
    with tempfile.TemporaryDirectory() as scratch:
        session = Session(names, limits, Path(scratch), options.output, options.keep_cache, results, names_of)
        try:
            session.run(grid)
        except KeyboardInterrupt:
            print("\ninterrupted: what was measured so far is kept", file=sys.stderr)
        finally:
            session.close()
            write_results(results, options.output / "results.json")
    table = write_table(results, options.output / "table.md")
    if options.targets:
        table = "\n".join(targets.lines(results)) + "\n"
    print(table)
    if options.readme:
        update_readme(results, Path(__file__).parents[1] / "README.md")
    if not options.no_plots:
        try:
            from plots import draw
        except ImportError as error:
            print(f"no plots: {error} (pip install matplotlib)", file=sys.stderr)
        else:
            for path in draw(results, options.output):
                print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
