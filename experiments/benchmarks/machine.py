"""The machine and the versions that figures were measured with."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path

PACKAGES = ("jax", "jaxlib", "numpy", "pin", "frax", "mujoco", "mujoco-mjx", "brax", "adam-robotics", "jaxsim")


def describe_machine(cores: int) -> dict:
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            pass
    load = os.getloadavg() if hasattr(os, "getloadavg") else (float("nan"),) * 3
    return {
        "cpu": _cpu(),
        "cores": cores,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "memory_gib": _memory(),
        "load_before": round(load[0], 2),
        "commit": _commit(),
        "versions": versions,
    }


def _commit() -> str | None:
    """Of the source tree this file is in; a plus sign where files have been changed since."""
    try:
        here = Path(__file__).resolve().parent
        command = ["git", "describe", "--always", "--dirty=+"]
        return subprocess.run(command, cwd=here, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _memory() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (ValueError, OSError, AttributeError):
        return None
