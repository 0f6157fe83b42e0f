"""A URDF file's own visuals are shown where its mesh files are found, simple shapes elsewhere.
With one pose the page has a slider for each joint; with a trajectory it plays. The page is served to this machine only.

examples:
  jaxsoa view robot.urdf
  jaxsoa view dual_arm --q random --frames
  jaxsoa simulate puma560 -o motion.npz && jaxsoa view puma560 --trajectory motion.npz
"""

from __future__ import annotations

import argparse
import zipfile
from pathlib import Path

import numpy as np

from jaxsoa.cli import robots, states, tables

MAX_SECONDS = 1e8  # three years
HELP = "look at a robot, or at a simulated motion, in the browser"


def configure(parser: argparse.ArgumentParser) -> None:
    robots.configure(parser)
    states.configure(parser, tau=None)
    parser.add_argument("--trajectory", type=Path, help="motion.npz or motion.csv, written by `jaxsoa simulate`")
    parser.add_argument("--frames", action="store_true", help="show the axes of every link")
    parser.add_argument("--simple", action="store_true", help="simple shapes, even if there are meshes")
    parser.add_argument("--port", type=int, default=8080, help="the first port to try (default 8080)")
    parser.add_argument("--no-browser", action="store_true", help="print the address, open nothing")
    parser.add_argument("--seconds", type=float, help="stop serving after so long (default: at Ctrl-C)")


def run(options: argparse.Namespace) -> int:
    if not 0 <= options.port <= 65535:
        raise ValueError(f"--port must be from 0 to 65535, got {str(options.port)[:20]}.")
    if options.seconds is not None and not 0 < options.seconds <= MAX_SECONDS:
        raise ValueError(f"--seconds must be positive and at most {MAX_SECONDS:g}, got {options.seconds:g}.")
    from jaxsoa import viz

    states.use_precision(options)
    robot = robots.load(options)
    dt = 0.01
    if options.trajectory is None:
        q = np.asarray(states.configuration(robot, options))
    else:
        q, dt = _trajectory(options.trajectory, robot)
    shapes = None if options.simple else robots.urdf_path(options)
    with robots.plain_warnings():
        viewer = viz.view(
            robot,
            q,
            dt=dt,
            shapes=shapes,
            frames=options.frames,
            port=options.port,
            open_browser=not options.no_browser,
        )
    with viewer:
        if options.trajectory is not None:
            viewer.play()
        if options.seconds is None:
            print("Ctrl-C to stop")
        viewer.wait(options.seconds)
    return 0


def _trajectory(path: Path, robot) -> tuple[np.ndarray, float]:
    times, q = _from_csv(path, robot) if path.suffix.lower() == ".csv" else _from_npz(path)
    if q.ndim != 2 or q.shape != (len(times), robot.nq) or len(times) < 2:
        raise ValueError(f"{path}: q has shape {q.shape}, but {robot.name!r} needs (times, {robot.nq}).")
    return q, float(times[1] - times[0])


def _from_csv(path: Path, robot) -> tuple[np.ndarray, np.ndarray]:
    names = ["time", *tables.coordinate_names(robot)[0]]
    columns = tables.read_csv(path)
    missing = [name for name in names if name not in columns]
    if missing:
        raise ValueError(f"{path}: no column {missing[0]!r}, which a motion of {robot.name!r} has.")
    return columns["time"], np.stack([columns[name] for name in names[1:]], axis=1)


def _from_npz(path: Path) -> tuple[np.ndarray, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as file:
            return np.asarray(file["time"], float), np.asarray(file["q"], float)
    except KeyError as error:
        raise ValueError(f"{path}: no array {error}; write the file with `jaxsoa simulate -o`.") from None
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, AttributeError, TypeError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise ValueError(f"{path} is not a motion that `jaxsoa simulate` writes (.npz or .csv).") from None
