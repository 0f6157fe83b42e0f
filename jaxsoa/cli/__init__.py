"""The `jaxsoa` command: `demo`, `info`, `simulate`, `linearize`, `view`, `benchmark`.

Each command is a module with the same three names: `HELP` (one line), `configure(parser)` and `run(options)`, which
returns the exit code: 0 done, 1 done but a check failed, 2 could not be done (one line on stderr says why), 130
interrupted.
"""

from __future__ import annotations

import argparse
import io
import os
import sys

from jaxsoa.cli import benchmark, demo, info, linearize, simulate, view
from jaxsoa.cli.robots import BUILT_IN
from jaxsoa.model.description import ModelError, plain

COMMANDS = {
    "demo": demo,
    "info": info,
    "simulate": simulate,
    "linearize": linearize,
    "view": view,
    "benchmark": benchmark,
}

DESCRIPTION = f"""Differentiable multibody dynamics by the spatial operator algebra.

ROBOT is a URDF file (.urdf), an MJCF file (.xml), a saved model (.npz), or one of the
built-in robots: {", ".join(BUILT_IN)}
(with a number of links where the robot has a choice: chain:20, pendulum:3).
"""

EXAMPLES = """examples:
  jaxsoa demo                                  simulate and check a built-in arm, and draw it
  jaxsoa info robot.urdf                       tree, joints, masses and warnings
  jaxsoa simulate robot.urdf -o motion.npz     let it fall, keep the motion
  jaxsoa linearize cart_pole -o model.npz      A and B about a state, and eigenvalues
  jaxsoa view robot.urdf                       look at it in the browser
  jaxsoa benchmark robot.urdf                  microseconds per state
  jaxsoa COMMAND --help                        everything a command can do
"""


def main(arguments: list[str] | None = None) -> int:
    parser = _parser()
    if not (sys.argv[1:] if arguments is None else arguments):
        parser.print_help(sys.stderr)
        return 2
    options = parser.parse_args(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that has no box characters shows question marks
    try:
        return COMMANDS[options.command].run(options)
    except (ModelError, OSError, ValueError, KeyError, ImportError, OverflowError, MemoryError, RuntimeError) as error:
        too_large = isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error)
        if hasattr(options, "traceback") or (isinstance(error, RuntimeError) and not too_large):
            raise
        return _fail(error)
    except KeyboardInterrupt:
        print("jaxsoa: interrupted", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    raw = argparse.RawDescriptionHelpFormatter
    # Before the command or after it: people write options where they think of them.
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--traceback", action="store_true", default=argparse.SUPPRESS, help="show the traceback of an error"
    )
    parser = argparse.ArgumentParser(
        prog="jaxsoa", description=DESCRIPTION, epilog=EXAMPLES, formatter_class=raw, parents=[common]
    )
    parser.add_argument("--version", action="version", version=f"jaxsoa {_version()}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, module in COMMANDS.items():
        each = commands.add_parser(
            name,
            help=module.HELP,
            description=module.HELP,
            epilog=module.__doc__,
            formatter_class=raw,
            parents=[common],
        )
        module.configure(each)
    return parser


def _version() -> str:
    from jaxsoa import __version__

    return __version__


def _fail(error: BaseException) -> int:
    # A KeyError's text is the repr of its message; an OSError's is made of number, reason and file.
    text = error.args[0] if isinstance(error, KeyError) and error.args else error
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.strerror}: {os.fsdecode(error.filename)!r}" if error.filename else error.strerror
    if isinstance(error, MemoryError | RuntimeError):
        text = f"not enough memory ({str(text) or 'nothing more is known'})"
    print(f"jaxsoa: {plain(' '.join(str(text).split()))}", file=sys.stderr)
    return 2
