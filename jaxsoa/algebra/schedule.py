"""Grouping a program's sweeps into scans, and deciding what runs inside each scan's body."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from jaxsoa.algebra.spaces import Space


@dataclasses.dataclass(frozen=True)
class Node:
    """One step. `kind` is input, memoryless, sum, sweep, carried, shift, place, pick, matrix, dense_inverse or zero;
    `inputs` are earlier nodes; `info` depends on the kind."""

    kind: str
    inputs: tuple[int, ...]
    info: tuple
    space: Space


class Group(NamedTuple):
    """One scan: its sweeps, the finished nodes it reads, and the nodes it hands on."""

    outward: bool
    sweeps: tuple[int, ...]
    reads: tuple[int, ...]
    results: tuple[int, ...]


def reachable(nodes: tuple[Node, ...], output: int) -> set[int]:
    seen: set[int] = set()
    stack = [output]
    while stack:
        i = stack.pop()
        if i not in seen:
            seen.add(i)
            stack.extend(nodes[i].inputs)
    return seen


def _direction(node: Node) -> tuple:
    """Sweeps with equal keys can share a scan: same way, same tree."""
    return (node.info[2], node.space.topology)


def schedule(nodes: tuple[Node, ...], output: int) -> tuple[Group, ...]:
    """The fewest scans, found breadth first over which direction to run next."""
    used = sorted(reachable(nodes, output))
    sweeps = [i for i in used if nodes[i].kind == "sweep"]

    def finish(done: frozenset[int]) -> frozenset[int]:
        reached = set(done)
        for i in used:  # inputs come before the nodes that use them
            if nodes[i].kind != "sweep" and all(d in reached for d in nodes[i].inputs):
                reached.add(i)
        return frozenset(reached)

    frontier: list[tuple[frozenset[int], tuple]] = [(finish(frozenset()), ())]
    seen: set[frozenset[int]] = set()
    while True:
        following = []
        for done, plan in frontier:
            ready = [i for i in sweeps if i not in done and all(d in done for d in nodes[i].inputs)]
            if not ready:
                return _fill(nodes, output, plan)
            for key in dict.fromkeys(_direction(nodes[i]) for i in ready):
                chosen = tuple(i for i in ready if _direction(nodes[i]) == key)
                state = finish(done | set(chosen))
                if state not in seen:
                    seen.add(state)
                    following.append((state, (*plan, (key[0], chosen))))
        frontier = following


def _fill(nodes: tuple[Node, ...], output: int, plan: tuple) -> tuple[Group, ...]:
    """What each scan reads and hands on."""
    used = reachable(nodes, output)
    stored: frozenset[int] = frozenset()  # nodes whose values some scan has handed on
    finished: frozenset[int] = frozenset()  # sweeps done
    groups = []
    for outward, chosen in plan:
        waiting = [i for i in used if nodes[i].kind == "sweep" and i not in finished and i not in chosen]
        outside = [i for i in used if nodes[i].kind in OUTSIDE]
        roots = [output, *(d for i in (*waiting, *outside) for d in nodes[i].inputs)]
        scan = _Scan(nodes, frozenset(chosen), stored, finished)
        results = scan.results(roots)
        groups.append(Group(bool(outward), chosen, scan.reads(results), results))
        stored |= frozenset(results)
        finished |= frozenset(chosen)
    return tuple(groups)


OUTSIDE = frozenset({"shift", "place", "pick", "matrix", "dense_inverse"})
"""Steps that are not done link by link and so never run inside a scan."""


class _Scan:
    """One scan while its interface is being found."""

    def __init__(self, nodes: tuple[Node, ...], own: frozenset[int], stored: frozenset[int], finished: frozenset[int]):
        self.nodes, self.own, self.stored, self.finished = nodes, own, stored, finished
        self._depends: dict[int, bool] = {}
        self._local: dict[int, bool] = {}
        self._earlier: dict[int, bool] = {}

    def depends(self, i: int) -> bool:
        """Whether a node needs this scan's sweeps."""
        if i not in self._depends:
            stop = i in self.stored
            self._depends[i] = i in self.own or (not stop and any(map(self.depends, self.nodes[i].inputs)))
        return self._depends[i]

    def earlier(self, i: int) -> bool:
        """Whether a node needs only sweeps of earlier scans."""
        if i not in self._earlier:
            sweep = self.nodes[i].kind == "sweep"
            self._earlier[i] = i in self.finished if sweep else all(map(self.earlier, self.nodes[i].inputs))
        return self._earlier[i]

    def local(self, i: int) -> bool:
        """Whether a node can be had inside this scan's body."""
        if i not in self._local:
            node = self.nodes[i]
            if node.kind == "carried" and node.inputs[0] in self.own:
                found = True
            elif i in self.own or self.earlier(i):
                found = node.space.per_link
            else:
                found = node.kind in ("memoryless", "sum") and node.space.per_link and all(map(self.local, node.inputs))
            self._local[i] = found
        return self._local[i]

    def results(self, roots: list[int]) -> tuple[int, ...]:
        """The last nodes inside the body on the way to each root."""
        found: dict[int, None] = {}
        seen: set[int] = set()
        stack = list(reversed(roots))
        while stack:
            i = stack.pop()
            if i in seen or not self.depends(i):
                continue
            seen.add(i)
            if self.local(i):
                found[i] = None
            else:
                stack.extend(self.nodes[i].inputs)
        return tuple(found)

    def reads(self, results: tuple[int, ...]) -> tuple[int, ...]:
        """Values the body starts from. Memoryless steps of finished values are done inside it."""
        found: dict[int, None] = {}
        seen: set[int] = set()
        stack = [*results, *(d for i in self.own for d in self.nodes[i].inputs)]
        while stack:
            i = stack.pop()
            node = self.nodes[i]
            if i in seen or i in self.own or (node.kind == "carried" and node.inputs[0] in self.own):
                continue
            seen.add(i)
            if i in self.stored or node.kind not in ("memoryless", "sum"):
                found[i] = None
            else:
                stack.extend(node.inputs)
        return tuple(sorted(found))
