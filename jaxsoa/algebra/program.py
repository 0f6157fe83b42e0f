"""From an expression to a program: which sweeps run when, and what runs inside them.

`compile_program` walks an expression right to left into a graph of small steps, then groups the sweeps. Sweeps of one
direction that are ready together share one scan; memoryless steps run in the body of the scan that makes their inputs
(or feed it). The number of scans is the expression's `sweeps`. Nothing here touches numbers, so programs are cached by
the expression.

The shifts fold into sweeps where they can: psi K x feeds G x into what a link hands inboard, and K* psi* x reads what
a link receives from its parent, so neither needs a step of its own.
"""

from __future__ import annotations

import dataclasses
from functools import lru_cache

from jaxsoa.algebra import terms as t
from jaxsoa.algebra.actions import COMPOSITE, MEMORYLESS
from jaxsoa.algebra.schedule import Group, Node, reachable, schedule
from jaxsoa.algebra.spaces import Space, joint_layout
from jaxsoa.algebra.terms import Term


@dataclasses.dataclass(frozen=True)
class Program:
    nodes: tuple[Node, ...]
    output: int
    groups: tuple[Group, ...]

    @property
    def sweeps(self) -> int:
        """Scans, and for a dense inverse those of every column of its matrix."""
        dense = [n for n in self.used() if n.kind == "dense_inverse"]
        return len(self.groups) + sum(compile_program(n.info[0]).sweeps * n.space.size for n in dense)

    @property
    def dense_solves(self) -> int:
        """Inverses without a rule, those inside of inverses included."""
        dense = [n for n in self.used() if n.kind == "dense_inverse"]
        return sum(1 + compile_program(n.info[0]).dense_solves for n in dense)

    def used(self) -> list[Node]:
        return [self.nodes[i] for i in sorted(reachable(self.nodes, self.output))]

    @property
    def cost(self) -> int:
        """Floating-point operations of one application (factors at hand)."""
        return sum(_flops(node, self.nodes) for node in self.used())


class _Builder:
    def __init__(self):
        self.nodes: list[Node] = []
        self.known: dict[Node, int] = {}

    def add(self, kind: str, inputs: tuple[int, ...], info: tuple, space: Space) -> int:
        node = Node(kind, inputs, info, space)
        if node not in self.known:
            self.known[node] = len(self.nodes)
            self.nodes.append(node)
        return self.known[node]

    # --- linear combinations -----------------------------------------------------------------------------------

    def parts(self, node: int) -> list[tuple[float, int]]:
        n = self.nodes[node]
        return list(zip(n.info, n.inputs, strict=True)) if n.kind == "sum" else [(1.0, node)]

    def sum(self, parts: list[tuple[float, int]]) -> int:
        merged: dict[int, float] = {}
        for coefficient, node in parts:
            for c, inner in self.parts(node):
                merged[inner] = merged.get(inner, 0.0) + coefficient * c
        space = self.nodes[parts[0][1]].space
        kept = [(c, n) for n, c in merged.items() if c != 0]
        if not kept:
            return self.add("zero", (), (), space)
        if len(kept) == 1 and kept[0][0] == 1.0:
            return kept[0][1]
        return self.add("sum", tuple(n for _, n in kept), tuple(c for c, _ in kept), space)

    # --- expressions -------------------------------------------------------------------------------------------

    def apply(self, term: Term, x: int, adjoint: bool = False, inverse: bool = False) -> int:
        match term:
            case t.Identity():
                return x
            case t.Zero():
                return self.add("zero", (), (), term.domain if adjoint else term.codomain)
            case t.Adjoint(inner):
                return self.apply(inner, x, not adjoint, inverse)
            case t.Inverse(inner):
                return self.apply(inner, x, adjoint, not inverse)
            case t.Named() if inverse and term.known_inverse is not None:
                return self.apply(term.known_inverse, x, adjoint)
            case t.Named():
                return self.apply(term.definition, x, adjoint, inverse)
            case t.Product(factors) if not inverse:
                for factor in factors if adjoint else reversed(factors):
                    x = self.apply(factor, x, adjoint)
                return x
            case t.Sum(terms) if not inverse:
                return self.sum([(c, self.apply(inner, x, adjoint)) for c, inner in terms])
            case t.Atom():
                return self.atom(term, x, adjoint, inverse)
        return self.add("dense_inverse", (x,), (term, adjoint), term.codomain if adjoint else term.domain)

    def atom(self, atom: t.Atom, x: int, adjoint: bool, inverse: bool) -> int:
        target = atom.domain if adjoint != inverse else atom.codomain
        if atom.name in COMPOSITE:
            if inverse:
                return self.add("dense_inverse", (x,), (atom, adjoint), target)
            names = COMPOSITE[atom.name]
            for name in names if adjoint else reversed(names):
                x = self.simple(name, atom.slot, self.space_after(name, atom, adjoint), x, adjoint)
            return x
        if atom.name in ("phi", "psi") and inverse:  # I - E, local
            shifted = self.simple("E_phi" if atom.name == "phi" else "E_psi", atom.slot, target, x, adjoint)
            return self.sum([(1.0, x), (-1.0, shifted)])
        if atom.name == "B":
            return self.add("pick" if adjoint else "place", (x,), (atom.slot, *atom.extra), target)
        if atom.name in ("matrix", "vector", "number"):
            return self.add("matrix", (x,), (atom.slot, atom.name, adjoint, inverse), target)
        if atom.name in ("E_phi", "S") and inverse:
            raise ValueError(f"The shift {atom.name} is nilpotent and has no inverse.")
        return self.simple(atom.name, atom.slot, target, x, adjoint, inverse)

    def space_after(self, name: str, atom: t.Atom, adjoint: bool) -> Space:
        link, joint = atom.codomain, atom.domain  # of K and L; for the others both are link space
        return joint if adjoint and name == "G" else link

    def simple(self, name: str, slot: int, space: Space, x: int, adjoint: bool, inverse: bool = False) -> int:
        if name in MEMORYLESS:
            return self.add("memoryless", (x,), (slot, name, adjoint, inverse), space)
        if name == "E_psi":
            if adjoint:
                return self.simple("tau_bar", slot, space, self.simple("E_phi", slot, space, x, True), True)
            return self.simple("E_phi", slot, space, self.simple("tau_bar", slot, space, x, False), False)
        if name in ("phi", "psi"):
            return self.sweep(name, slot, space, x, adjoint)
        return self.shift(name, slot, space, x, adjoint)

    def sweep(self, name: str, slot: int, space: Space, x: int, adjoint: bool) -> int:
        """Sweeps of the same kind on parts of a sum stay one sweep; shifted inputs go in where links hand inboard."""
        if self.nodes[x].kind == "zero":
            return x
        direct, handed = [], []
        for coefficient, part in self.parts(x):
            node = self.nodes[part]
            if not adjoint and node.kind == "shift" and node.info == (slot, "E_phi", False):
                handed.append((coefficient, node.inputs[0]))
            else:
                direct.append((coefficient, part))
        inputs = [self.sum(parts) for parts in (direct, handed) if parts]
        return self.add("sweep", tuple(inputs), (slot, name, adjoint, bool(direct), bool(handed)), space)

    def shift(self, name: str, slot: int, space: Space, x: int, adjoint: bool) -> int:
        if self.nodes[x].kind == "zero":
            return x
        moved = []
        for coefficient, part in self.parts(x):
            node = self.nodes[part]
            if name == "E_phi" and node.kind == "sweep" and self._carries(node, slot, adjoint):
                moved.append((coefficient, self.add("carried", (part,), (), space)))
            elif name == "S" and not adjoint and node.info == (slot, "Delta_phi", False, False):  # S Delta_phi = E_phi
                moved.append((coefficient, self.add("shift", node.inputs, (slot, "E_phi", False), space)))
            else:
                moved.append((coefficient, self.add("shift", (part,), (slot, name, adjoint), space)))
        return self.sum(moved)

    @staticmethod
    def _carries(node: Node, slot: int, adjoint: bool) -> bool:
        """Whether E_phi (or its adjoint) of a sweep's result is what the sweep carries between links anyway."""
        sweep_slot, name, sweep_adjoint, _, handed = node.info
        if sweep_slot != slot or sweep_adjoint != adjoint:
            return False
        return adjoint or (name == "phi" and not handed)


@lru_cache(maxsize=4096)
def compile_program(term: Term) -> Program:
    builder = _Builder()
    source = builder.add("input", (), (), term.domain)
    output = builder.apply(term, source)
    nodes = tuple(builder.nodes)
    return Program(nodes, output, schedule(nodes, output))


# --- counting ---------------------------------------------------------------------------------------------------------


def _flops(node: Node, nodes: tuple[Node, ...]) -> int:
    topology = node.space.topology
    n = 0 if topology is None else topology.n_links
    r = 1 if topology is None or not n else joint_layout(topology)[0].shape[1]
    size = node.space.size
    match node.kind:
        case "memoryless":
            return n * (MEMORYLESS[node.info[1]].flops(r) if not node.info[3] else 2 * r * r)
        case "sum":
            return 2 * size * len(node.inputs) - size
        case "sweep":
            return n * (12 + 6 * len(node.inputs) + (24 * r + 6 if node.info[1] == "psi" else 0))
        case "shift":
            return n * 18
        case "place" | "pick":
            return 18 * len(node.info[1])
        case "matrix":
            return 2 * size * nodes[node.inputs[0]].space.size
        case "dense_inverse":
            return compile_program(node.info[0]).cost * size + 2 * size**3 // 3
    return 0
