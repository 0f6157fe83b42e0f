"""The ROBOT argument: a file of any kind that can be read, or the name of a built-in robot."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import inspect
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from jaxsoa.model.description import plain
from jaxsoa.model.multibody import Multibody
from jaxsoa.model.validation import MAX_LINKS

BUILT_IN = ("puma560", "stanford_arm", "cart_pole", "pendulum", "planar_arm", "chain", "dual_arm", "random_tree")
DEFAULT_LINKS = {"chain": 7, "random_tree": 12}


def configure(parser: argparse.ArgumentParser, default: str | None = None) -> None:
    """Add ROBOT and what says how to read it."""
    more: dict[str, Any] = {} if default is None else {"nargs": "?", "default": default}
    parser.add_argument(
        "robot", metavar="ROBOT", help="robot.urdf, robot.xml (MJCF), robot.npz or a built-in name", **more
    )
    parser.add_argument("--floating-base", action="store_true", help="let the root of a URDF file move freely")


def load(options: argparse.Namespace) -> Multibody:
    """The robot asked for; what its reader warns of goes to stderr, one line each."""
    robot, messages = load_with_warnings(options)
    for message in messages:
        print(f"warning: {plain(message)}", file=sys.stderr)
    return robot


def load_with_warnings(options: argparse.Namespace) -> tuple[Multibody, list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        robot = _reader(options.robot, options.floating_base)()
    return robot, [plain(str(warning.message)) for warning in caught]


@contextlib.contextmanager
def plain_warnings() -> Iterator[None]:
    """Warnings as one line on stderr, without the place in the code that a newcomer has no use for."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = lambda message, *_, **__: print(f"warning: {plain(str(message))}", file=sys.stderr)
        yield


def urdf_path(options: argparse.Namespace) -> Path | None:
    """The URDF file that the robot was read from, if it was."""
    path = Path(options.robot)
    return path if path.is_file() and _kind(path) == "urdf" else None


def _reader(text: str, floating_base: bool) -> Callable[[], Multibody]:
    path = Path(text)
    if path.suffix.lower() in (".urdf", ".xml", ".mjcf", ".npz") or path.exists():
        kind = _kind(path)
        if kind == "urdf":
            import jaxsoa as soa

            return lambda: soa.load_urdf(path, floating_base=floating_base)
        _refuse_floating_base(floating_base, f"{text} is not a URDF file")
        reader = _public("load_mjcf" if kind == "mjcf" else "load")
        return lambda: reader(path)
    _refuse_floating_base(floating_base, f"{text} is a built-in robot")
    return lambda: _built_in(text)


def _kind(path: Path) -> str:
    """urdf, mjcf or npz: by the extension, and for .xml by the first element."""
    suffix = path.suffix.lower()
    if suffix in (".urdf", ".npz", ".mjcf"):
        return suffix[1:]
    with path.open("rb") as file:
        head = file.read(65536)
    robot, mujoco = head.find(b"<robot"), head.find(b"<mujoco")
    return "mjcf" if mujoco >= 0 and (robot < 0 or mujoco < robot) else "urdf"


def _refuse_floating_base(floating_base: bool, why: str) -> None:
    if floating_base:
        raise ValueError(f"--floating-base needs a URDF file, but {why}.")


def _public(name: str) -> Callable:
    import jaxsoa as soa

    reader = getattr(soa, name, None)
    if reader is None:
        raise ValueError(f"This version of jaxsoa has no {name}.")
    return reader


def _built_in(text: str) -> Multibody:
    from jaxsoa import models

    name, _, number = text.partition(":")
    if name not in BUILT_IN:
        near = difflib.get_close_matches(name[:50], BUILT_IN, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise ValueError(f"{text[:200]!r} is neither a file nor a built-in robot ({', '.join(BUILT_IN)}).{hint}")
    make = getattr(models, name)
    if not number and name not in DEFAULT_LINKS:
        return make()
    if "n" not in inspect.signature(make).parameters:
        raise ValueError(f"{name} has a fixed number of links: write {name}, not {text}.")
    try:
        links = int(number or DEFAULT_LINKS[name])
    except ValueError:
        raise ValueError(f"{text[:200]!r}: a number of links must follow the colon, as in {name}:5.") from None
    if not 1 <= links <= MAX_LINKS:
        raise ValueError(f"{name} can have from 1 to {MAX_LINKS} links.")
    return make(0, links) if name == "random_tree" else make(links)
