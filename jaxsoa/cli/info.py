"""examples:
jaxsoa info robot.urdf
jaxsoa info quadruped.urdf --floating-base
jaxsoa info puma560
"""

from __future__ import annotations

import argparse

from jaxsoa.cli import robots
from jaxsoa.model.multibody import Multibody

HELP = "describe a robot: its tree, joints, masses, and what is doubtful about it"


def configure(parser: argparse.ArgumentParser) -> None:
    robots.configure(parser)
    parser.add_argument("--joints", action="store_true", help="also a table of the joints: axes, limits, damping, ...")


def run(options: argparse.Namespace) -> int:
    robot, warnings = robots.load_with_warnings(options)
    print(f"{robot.name}: {robot.n_links} moving links, nq {robot.nq}, nv {robot.nv}, mass {robot.mass.sum():.3f} kg")
    print("\n".join(_tree(robot)))
    others = [name for name in robot.frame_names if name not in robot.link_names]
    if others:
        shown = ", ".join(others[:12]) + (f" and {len(others) - 12} more" if len(others) > 12 else "")
        print(f"frames on these links or the base: {shown}")
    if options.joints:
        print("\n".join(_joint_table(robot)))
    for message in warnings:
        print(f"warning: {message}")
    return 0


def _tree(robot: Multibody) -> list[str]:
    """The tree with one line a link; a chain goes straight down, a branch is indented."""
    children: dict[int, list[int]] = {}
    for link, parent in enumerate(robot.topology.parents):
        children.setdefault(parent, []).append(link)
    lines = []
    stack = [(link, "", link == children[-1][-1]) for link in reversed(children[-1])]
    while stack:
        link, indent, last = stack.pop()
        kind, mass = robot.topology.kinds[link], float(robot.mass[link])
        lines.append(
            f"{indent}{'└─' if last else '├─'} {robot.link_names[link]}"
            f"  ({kind} {robot.joint_names[link]}, {mass:.3f} kg)"
        )
        own = children.get(link, [])
        below = indent + ("   " if last else "│  ")
        stack.extend((child, below, child == own[-1]) for child in reversed(own))
    return lines


def _joint_table(robot: Multibody) -> list[str]:
    header = ("joint", "kind", "q", "v", "axis", "lower", "upper", "effort", "damping", "friction", "armature")
    rows: list[tuple[str, ...]] = [header]
    for link, name in enumerate(robot.joint_names):
        q, v = robot.q_index(name), robot.v_index(name)
        axis = " ".join(f"{x:.3g}" for x in robot.axis[link].tolist())
        limits, first = robot.limits, v.start
        numbers = (limits.lower, limits.upper, limits.effort, robot.damping, robot.friction, robot.armature)
        span = [f"{s.start}" if s.stop - s.start == 1 else f"{s.start}-{s.stop - 1}" for s in (q, v)]
        rows.append((name, robot.topology.kinds[link], *span, axis, *(f"{float(x[first]):.4g}" for x in numbers)))
    widths = [max(len(row[k]) for row in rows) for k in range(len(header))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
