"""The URDF files of the package `example-robot-data`, by file name."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path


def example_robots() -> dict[str, Path]:
    """File name to path; two different robots call their file anymal.urdf, these two get their folder in front."""
    try:
        files = importlib.metadata.files("example-robot-data") or []
    except importlib.metadata.PackageNotFoundError:
        return {}
    return {
        file.name if file.name != "anymal.urdf" else f"{file.parts[-3]}/{file.name}": Path(str(file.locate()))
        for file in files
        if file.suffix == ".urdf"
    }


EXAMPLE_ROBOTS = example_robots()
