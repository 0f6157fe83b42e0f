"""Running a program on numbers: one `scatter` or `gather` per group of sweeps, the rest vectorized in between."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxsoa.algebra.actions import apply_memoryless, columns, fields_of, rows, update, update_adjoint
from jaxsoa.algebra.program import Program, compile_program
from jaxsoa.algebra.schedule import Group, Node
from jaxsoa.algebra.spaces import compact, pack, unpack, with_degrees
from jaxsoa.algebra.state import full_block
from jaxsoa.algebra.terms import Term
from jaxsoa.dynamics.articulated import carry_force, carry_motion
from jaxsoa.sweeps import gather, scatter


def apply_term(term: Term, data: tuple, x: Array) -> Array:
    """The expression applied to one flat vector."""
    program = compile_program(term)
    run = _Run(program, data, x)
    for group in program.groups:
        run.scan(group)
    return unpack(term.codomain, run.value(program.output))


class _Run:
    def __init__(self, program: Program, data: tuple, x: Array):
        self.nodes, self.data = program.nodes, data
        self.values: dict[int, Array] = {0: pack(program.nodes[0].space, x)}
        self.dtype = jnp.result_type(x, *(leaf.dtype for leaf in jax.tree.leaves(data)))
        self.fields: dict[tuple[int, str], Any] = {}

    def field(self, slot: int, name: str):
        if (slot, name) not in self.fields:
            self.fields[slot, name] = self.data[slot].field(name)
        return self.fields[slot, name]

    # --- between scans -----------------------------------------------------------------------------------------

    def value(self, i: int) -> Array:
        """A node's value for all links at once."""
        if i not in self.values:
            self.values[i] = self._compute(self.nodes[i])
        return self.values[i]

    def _compute(self, node: Node) -> Array:
        match node.kind:
            case "memoryless":
                slot, name, adjoint, inverse = node.info
                fields = fields_of(name, inverse)

                def each(blocks, x):
                    full = tuple(full_block(f, block) for f, block in zip(fields, blocks, strict=True))
                    return _laid_out(node, apply_memoryless(name, adjoint, inverse, full, with_degrees(x)))

                return jax.vmap(each)(tuple(self.field(slot, f) for f in fields), self.value(node.inputs[0]))
            case "sum":
                return _combine(node.info, [self.value(i) for i in node.inputs])
            case "zero":
                return pack(node.space, jnp.zeros(node.space.size, self.dtype))
            case "shift":
                return self._shift(node)
            case "place":
                return self._place(node)
            case "pick":
                return self._pick(node)
            case "matrix":
                return self._matrix(node)
            case "dense_inverse":
                return self._dense_inverse(node)
        raise AssertionError(f"{node.kind} is not computed between scans.")

    def _shift(self, node: Node) -> Array:
        """E_phi or S: every link's value to its parent; adjoint: every parent's value to its children."""
        slot, name, adjoint = node.info
        x = self.value(node.inputs[0])
        assert node.space.topology is not None
        parents = np.array(node.space.topology.parents)
        has_parent = parents >= 0
        if adjoint:
            received = jnp.where(has_parent[:, None], x[np.maximum(parents, 0)], 0)
            return jax.vmap(carry_motion)(self.field(slot, "offset"), received) if name == "E_phi" else received
        sent = jax.vmap(carry_force)(self.field(slot, "offset"), x) if name == "E_phi" else x
        if np.array_equal(parents, np.arange(len(parents)) - 1):
            return jnp.concatenate([sent[1:], jnp.zeros_like(sent[:1])])
        segments = np.where(has_parent, parents, len(parents))
        return jax.ops.segment_sum(sent, jnp.asarray(segments), num_segments=len(parents) + 1)[:-1]

    def _place(self, node: Node) -> Array:
        """B f: each frame's force, carried to the origin of the link that bears it."""
        slot, links = node.info
        forces = jax.vmap(carry_force)(self.data[slot].arms, self.value(node.inputs[0]))
        placed = jnp.zeros((node.space.size // 6, 6), self.dtype)
        moving = np.array([k for k, link in enumerate(links) if link >= 0], int)
        return placed.at[np.array(links, int)[moving]].add(forces[moving])

    def _pick(self, node: Node) -> Array:
        """B* v: the links' motion at the frames."""
        slot, links = node.info
        link = np.array(links, int)
        motion = jnp.where((link >= 0)[:, None], self.value(node.inputs[0])[np.maximum(link, 0)], 0)
        return jax.vmap(carry_motion)(self.data[slot].arms, motion)

    def _matrix(self, node: Node) -> Array:
        slot, kind, adjoint, inverse = node.info
        value, source = self.data[slot].value, self.nodes[node.inputs[0]].space
        x = self.value(node.inputs[0])
        if kind == "number":
            return x / value if inverse else x * value
        flat = unpack(source, x)
        if kind == "vector":
            result = jnp.sum(value * flat)[None] if adjoint else value * flat[0]
        else:
            m = value.T if adjoint else value
            result = jnp.linalg.solve(m, flat) if inverse else m @ flat
        return pack(node.space, result)

    def _dense_inverse(self, node: Node) -> Array:
        """An inverse the algebra does not know: solve with the dense matrix."""
        term, adjoint = node.info
        matrix = dense(term, self.data, self.dtype)
        flat = unpack(self.nodes[node.inputs[0]].space, self.value(node.inputs[0]))
        return pack(node.space, jnp.linalg.solve(matrix.T if adjoint else matrix, flat))

    # --- scans -------------------------------------------------------------------------------------------------

    def scan(self, group: Group) -> None:
        blocks = {key: self.field(*key) for key in self._blocks(group)}
        topology = self.nodes[group.sweeps[0]].space.topology
        assert topology is not None
        keys = list(blocks)
        xs = (tuple(blocks.values()), tuple(self.value(i) for i in group.reads))
        zero = tuple(jnp.zeros(6, self.dtype) for _ in group.sweeps)

        def body(carry, x):
            block = {key: full_block(key[1], value) for key, value in zip(keys, x[0], strict=True)}
            known = {i: with_degrees(value) for i, value in zip(group.reads, x[1], strict=True)}
            return _Link(self.nodes, block, known).step(group, carry)

        if group.outward:
            results = scatter(topology.link_plan, body, zero, xs)
        else:
            _, results = gather(topology.link_plan, body, zero, xs)
        self.values.update(zip(group.results, results, strict=True))

    def _blocks(self, group: Group) -> dict[tuple[int, str], None]:
        """Which per-link arrays the body needs."""
        found: dict[tuple[int, str], None] = {}
        seen = set(group.reads)
        stack = [*group.results, *group.sweeps]
        while stack:
            i = stack.pop()
            if i in seen:
                continue
            seen.add(i)
            node = self.nodes[i]
            if node.kind == "memoryless":
                slot, name, _, inverse = node.info
                found.update({(slot, f): None for f in fields_of(name, inverse)})
            elif node.kind == "sweep":
                slot, name = node.info[:2]
                found.update({(slot, f): None for f in (("offset", "H", "G") if name == "psi" else ("offset",))})
            stack.extend(node.inputs)
        return found


class _Link:
    """One link inside a scan: its blocks, and what is known there so far."""

    def __init__(self, nodes: tuple[Node, ...], blocks: dict, known: dict[int, Array]):
        self.nodes, self.blocks, self.known = nodes, blocks, known

    def value(self, i: int) -> Array:
        if i not in self.known:
            node = self.nodes[i]
            if node.kind == "sum":
                self.known[i] = _combine(node.info, [self.value(d) for d in node.inputs])
            else:
                slot, name, adjoint, inverse = node.info
                blocks = tuple(self.blocks[slot, f] for f in fields_of(name, inverse))
                self.known[i] = apply_memoryless(name, adjoint, inverse, blocks, self.value(node.inputs[0]))
        return self.known[i]

    def step(self, group: Group, carry: tuple) -> tuple[tuple, tuple]:
        """Inward: z = children + u, handed on as phi ((I - G H) z + w). Outward: l = (I - G H)* phi* parent + u."""
        sent = []
        for i, arrived in zip(group.sweeps, carry, strict=True):
            slot = self.nodes[i].info[0]
            offset = self.blocks[slot, "offset"]
            received = carry_motion(offset, arrived) if group.outward else arrived
            carried = [k for k, n in enumerate(self.nodes) if n.kind == "carried" and n.inputs[0] == i]
            self.known.update({k: received for k in carried})
            if group.outward:
                self.known[i] = self._outward(self.nodes[i], received)
                sent.append(self.known[i])
            else:
                out = self._inward(i, self.nodes[i], received)
                sent.append(carry_force(offset, out))
        return tuple(sent), tuple(_laid_out(self.nodes[i], self.value(i)) for i in group.results)

    def _outward(self, node: Node, received: Array) -> Array:
        slot, name = node.info[:2]
        if name == "phi":
            return received + self.value(node.inputs[0])
        H, G = self.blocks[slot, "H"], self.blocks[slot, "G"]
        source = self.nodes[node.inputs[0]]
        unknown = node.inputs[0] not in self.known  # what another part of the expression needs too is computed before
        if unknown and source.info == (slot, "H", True, False):  # (I - G H)* m + H* n = m + H* (n - G* m)
            return received + columns(H, self.value(source.inputs[0]) - columns(G, received))
        return update_adjoint(H, G, received) + self.value(node.inputs[0])

    def _inward(self, i: int, node: Node, received: Array) -> Array:
        slot, name, _, has_direct, has_handed = node.info
        state = received + self.value(node.inputs[0]) if has_direct else received
        self.known[i] = state
        handed = node.inputs[-1] if has_handed else None
        if name == "psi":
            H, G = self.blocks[slot, "H"], self.blocks[slot, "G"]
            if handed is not None and handed not in self.known and self.nodes[handed].info == (slot, "G", False, False):
                # (I - G H) z + G x = z + G (x - H z)
                return state + rows(G, self.value(self.nodes[handed].inputs[0]) - rows(H, state))
            state = update(H, G, state)
        return state if handed is None else state + self.value(handed)


def _laid_out(node: Node, x: Array) -> Array:
    """One link's value as it is stored."""
    return x[0] if compact(node.space) else x


def _combine(coefficients: tuple[float, ...], values: list[Array]) -> Array:
    """Linear combination, free of multiplications by one."""
    total = None
    for c, value in zip(coefficients, values, strict=True):
        if total is None:
            total = value if c == 1 else -value if c == -1 else c * value
        else:
            total = total + value if c == 1 else total - value if c == -1 else total + c * value
    assert total is not None
    return total


def dense(term: Term, data: tuple, dtype=None) -> Array:
    """The matrix of an expression, (codomain size, domain size)."""
    dtype = jnp.result_type(*(leaf.dtype for leaf in jax.tree.leaves(data))) if dtype is None else dtype
    each = jax.vmap(lambda x: apply_term(term, data, x), in_axes=1, out_axes=1)
    return each(jnp.eye(term.domain.size, dtype=dtype))
