"""Files that commands write: arrays as .npz (all of them) or .csv (one table with a header), and pictures.

A file that is there is left alone unless --force is given, and appears whole or not at all.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

SUFFIXES = (".npz", ".csv")


def configure(parser: argparse.ArgumentParser) -> None:
    """The option that goes with every file that is written."""
    parser.add_argument("--force", action="store_true", help="overwrite files that exist")


def check_output(path: Path | None, allowed: tuple[str, ...] = SUFFIXES, *, force: bool = False) -> None:
    """Whether a command may write here, before any work is done."""
    if path is None:
        return
    if path.suffix.lower() not in allowed:
        raise ValueError(f"{str(path)!r} must end in one of {', '.join(allowed)}.")
    if not path.resolve().parent.is_dir():
        raise ValueError(f"The folder of {str(path)!r} does not exist.")
    if path.is_dir() and not path.is_symlink():
        raise ValueError(f"{str(path)!r} is a folder.")
    if os.path.lexists(path) and not force:
        what = f"is a link to {str(path.resolve())!r}" if path.is_symlink() else "exists"
        raise ValueError(f"{str(path)!r} {what}: --force replaces it.")


@contextlib.contextmanager
def written_at_once(path: Path) -> Iterator[Path]:
    """Where to write; it becomes `path` when all is there. A link of that name is replaced, not followed."""
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".jaxsoa-") as folder:
        partial = Path(folder) / f"written{path.suffix.lower()}"
        yield partial
        os.replace(partial, path)


def write_csv(path: Path, columns: dict[str, np.ndarray]) -> None:
    """Named columns of equal length, seventeen digits: what brings a double back."""
    rows = np.stack([np.asarray(column, float) for column in columns.values()], axis=1)
    names = ",".join(f'"{name}"' if "," in name else name for name in columns)
    with written_at_once(path) as partial:
        np.savetxt(partial, rows, fmt="%.17g", delimiter=",", header=names, comments="", encoding="utf-8")


def write_npz(path: Path, **arrays) -> None:
    """All arrays by their names."""
    with written_at_once(path) as partial:
        np.savez_compressed(partial, **arrays)


def read_csv(path: Path) -> dict[str, np.ndarray]:
    """The columns of `write_csv`, by name."""
    with path.open(newline="", encoding="utf-8") as file:
        header, *rows = list(csv.reader(file)) or [[]]
    try:
        table = np.array(rows, float).reshape(len(rows), len(header))
    except ValueError:
        raise ValueError(f"{path}: not a table of numbers under a header of names.") from None
    return dict(zip(header, table.T, strict=True))


def coordinate_names(robot) -> tuple[list[str], list[str]]:
    """Column names of q and of v: `q.joint`, or `q.joint.w` where a joint has several."""
    q_names, v_names = [], []
    for joint, name in zip(robot.topology.joints, robot.joint_names, strict=True):
        of_v = joint.coordinates
        of_q = of_v if joint.nq == joint.nv else ("w", "x", "y", "z", "px", "py", "pz")[: joint.nq]
        q_names += [f"q.{name}" if joint.nq == 1 else f"q.{name}.{what}" for what in of_q]
        v_names += [f"v.{name}" if joint.nv == 1 else f"v.{name}.{what}" for what in of_v]
    return q_names, v_names
