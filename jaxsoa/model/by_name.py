"""Joint values and limits by name, and a robot's joints as a table for people."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Shaped

from jaxsoa.model.multibody import Limits, Multibody


def q_from(robot: Multibody, values: Mapping[str, Any], q: Shaped[Array, " nq"] | None = None) -> Float[Array, " nq"]:
    """A configuration from values by joint name, (nq,).

    Joints that are not named are as in q (default: neutral), but joints that mimic a named one follow it. A joint of
    several coordinates takes that many numbers. Values may be traced.
    """
    q = robot.neutral() if q is None else robot.check_q(q)
    named = {name: jnp.asarray(value, q.dtype) for name, value in values.items()}
    for name in named:
        robot.q_index(name)  # a KeyError with suggestions
    for _ in robot.topology.mimics:  # a chain of mimics is no longer than their number
        for joint, target, ratio, offset in robot.topology.mimics:
            if target in named and joint not in named:
                named[joint] = ratio * named[target] + offset
    for name, value in named.items():
        where = robot.q_index(name)
        size = where.stop - where.start
        if value.shape not in ((size,), () if size == 1 else (size,)):
            raise ValueError(f"Joint {name!r} has {size} coordinates in q, got shape {value.shape}.")
        q = q.at[where].set(value.reshape(size))
    return robot.check_q(q)


def describe(robot: Multibody, q: Shaped[Array, " nq"]) -> dict[str, Any]:
    """q by joint name, a number or an array each: `q_from(robot, describe(robot, q))` is q."""
    q = robot.check_q(q)
    return {name: _plain(q[robot.q_index(name)]) for name in robot.joint_names}


def joint_limits(robot: Multibody, joint: str) -> Limits:
    """Lower and upper position, velocity and effort of one joint; infinite where the file gives none."""
    dofs = robot.v_index(joint)
    lower, upper, velocity, effort = (
        _plain(x[dofs]) for x in (robot.limits.lower, robot.limits.upper, robot.limits.velocity, robot.limits.effort)
    )
    return Limits(lower, upper, velocity, effort)


def _plain(x: Array) -> Any:
    if x.shape != (1,):
        return x
    return x[0] if isinstance(x, Tracer) else float(x[0])


class Table(NamedTuple):
    """Rows of text under headings; prints as columns, and as HTML in a notebook."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def __str__(self) -> str:
        widths = [max(map(len, column)) for column in zip(self.headings, *self.rows, strict=True)]
        lines = ["  ".join(x.ljust(w) for x, w in zip(row, widths, strict=True)) for row in (self.headings, *self.rows)]
        return "\n".join(line.rstrip() for line in (self.title, *lines))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        def cells(row: tuple[str, ...], tag: str) -> str:
            return "<tr>" + "".join(f"<{tag}>{html.escape(x)}</{tag}>" for x in row) + "</tr>"

        body = "".join(cells(row, "td") for row in self.rows)
        return f"<table><caption>{html.escape(self.title)}</caption>{cells(self.headings, 'th')}{body}</table>"


def table(robot: Multibody) -> Table:
    """One row per joint: name, kind, parent link, link, where it stands in q and v, limits, mass of the link."""
    topology = robot.topology
    mimics = {joint: f"{ratio:g} * {target} + {offset:g}" for joint, target, ratio, offset in topology.mimics}
    lower, upper, velocity, effort, mass = (
        np.asarray(x)
        for x in (robot.limits.lower, robot.limits.upper, robot.limits.velocity, robot.limits.effort, robot.mass)
    )
    rows = []
    for k, name in enumerate(robot.joint_names):
        dofs, parent = topology.v_slices[k], topology.parents[k]
        row = (
            name,
            topology.kinds[k] + (f" (= {mimics[name]})" if name in mimics else ""),
            "" if parent < 0 else robot.link_names[parent],
            robot.link_names[k],
            _places(topology.q_slices[k]),
            _places(dofs),
            *(_numbers(x[dofs]) for x in (lower, upper, velocity, effort)),
            f"{mass[k]:.4g}",
        )
        rows.append(row)
    headings = ("joint", "kind", "parent", "link", "q", "v", "lower", "upper", "velocity", "effort", "mass [kg]")
    title = f"{robot.name}: {robot.n_links} links, nq = {robot.nq}, nv = {robot.nv}, {mass.sum():.4g} kg moving"
    return Table(title, headings, tuple(rows))


def _places(where: slice) -> str:
    return str(where.start) if where.stop - where.start == 1 else f"{where.start}:{where.stop}"


def _numbers(x: np.ndarray) -> str:
    if not np.isfinite(x).any():
        return "-"
    return f"{x[0]:.4g}" if (x == x[0]).all() else " ".join(f"{value:.4g}" for value in x)
