"""Which links a loop makes into one body: the graph side of constraint embedding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from jaxsoa.closed_chain.constraints import Constraint, Coupling
from jaxsoa.model.multibody import Multibody


class AggregateBody(NamedTuple):
    """An aggregate body (or a single link): its links, its degrees of freedom, and what closes its loops."""

    links: tuple[int, ...]
    dofs: tuple[int, ...]
    independent: tuple[int, ...]  # degrees of freedom, numbers in v
    loops: tuple[int, ...]
    parent_link: int


def _path(parents: Sequence[int], link: int) -> list[int]:
    path = []
    while link >= 0:
        path.append(link)
        link = parents[link]
    return path


def aggregate_links(robot: Multibody, loops: tuple[Constraint, ...]) -> list[tuple[set[int], list[int]]]:
    """Sets of links that loops tie together, each closed upwards to one common parent, with the loops' numbers."""
    parents = robot.topology.parents

    def span(links: set[int]) -> set[int]:
        """Everything between the links and their last common ancestor, which itself stays outside."""
        paths = [_path(parents, k) for k in links]
        common = set(paths[0]).intersection(*map(set, paths[1:])) - links if links else set()
        return {k for path in paths for k in path} - common

    groups: list[tuple[set[int], list[int]]] = []
    for number, loop in enumerate(loops):
        if isinstance(loop, Coupling):
            links = {robot.topology.joint_number(name) for name in loop.joints}
        else:
            links = {robot.topology.frame_links[robot.topology.frame_number(f)] for f in (loop.frame_a, loop.frame_b)}
            links -= {-1}
        ends, on_base = links, not isinstance(loop, Coupling) and len(links) < 2
        if on_base and links:  # the other end is the base (or the same link): everything down to it moves in the loop
            links = set(_path(parents, *links))
        else:
            first, second = (set(_path(parents, k)) for k in (min(ends), max(ends)))
            # A loop between a link and its own ancestor closes below the ancestor.
            links = (first ^ second) if not isinstance(loop, Coupling) else span(ends)
        numbers = [number]
        while touching := [g for g in groups if g[0] & links]:
            for g in touching:
                groups.remove(g)
                links, numbers = span(links | g[0]), numbers + g[1]
        groups.append((links, sorted(numbers)))
    return groups
