"""A tree as limbs: the degrees of freedom between two branchings, each limb with its path to the base.

A matrix such as I - H psi K has an entry [i, j] only where degree i lies on the path from j to the base. The degrees of
one limb share that path, so the columns of a limb travel together down a chain of their own. On a humanoid that is a
third of the work of carrying every column through every branch.
"""

from __future__ import annotations

import dataclasses
from functools import cache

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxsoa.indexing import take_rows
from jaxsoa.model.topology import Topology
from jaxsoa.sweep_plan import SweepPlan


@dataclasses.dataclass(frozen=True)
class LimbPaths:
    """One chain per limb, from the base to the limb's end, all swept side by side."""

    plan: SweepPlan
    dofs: np.ndarray | None  # the degree of freedom at each node of the chains; None: the robot is one limb
    unit: np.ndarray  # (nodes, columns): 1 where a column's own degree of freedom stands
    starts: tuple[int, ...]  # the first node of each chain
    limbs: tuple[np.ndarray, ...]

    def matrix(self, entries: Array) -> Array:
        """(nodes, columns, ...) as a matrix (nv, nv, ...), zero between degrees that share no path."""
        if self.dofs is None:
            return entries
        nv = sum(map(len, self.limbs))
        blocks = []
        for start, stop, limb in zip(self.starts, (*self.starts[1:], len(self.dofs)), self.limbs, strict=True):
            rows = np.full(nv, stop - start)
            rows[self.dofs[start:stop]] = np.arange(stop - start)
            block = entries[start:stop, : len(limb)]
            blocks.append(take_rows(jnp.concatenate([block, jnp.zeros_like(block[:1])]), rows))
        joined = jnp.concatenate(blocks, axis=1)
        order = np.argsort(np.concatenate(self.limbs))
        return joined if np.array_equal(order, np.arange(nv)) else jnp.take(joined, order, axis=1)


@cache
def limb_paths(topology: Topology) -> LimbPaths:
    parents = topology.dof_parents
    children = np.bincount([p for p in parents if p >= 0], minlength=topology.nv)
    limbs: list[list[int]] = []
    limb_of: dict[int, int] = {}
    for dof, parent in enumerate(parents):
        if parent >= 0 and children[parent] == 1:
            limb_of[dof] = limb_of[parent]
            limbs[limb_of[dof]].append(dof)
        else:
            limb_of[dof] = len(limbs)
            limbs.append([dof])
    dofs: list[int] = []
    starts, chain_parents = [], []
    columns = max(map(len, limbs))
    units = []
    for limb in limbs:
        path = [limb[-1]]
        while parents[path[-1]] >= 0:
            path.append(parents[path[-1]])
        path.reverse()
        starts.append(len(dofs))
        chain_parents += [-1, *range(len(dofs), len(dofs) + len(path) - 1)]
        dofs += path
        units.append(np.array(path)[:, None] == np.array([*limb, *[-1] * (columns - len(limb))]))
    one = len(limbs) == 1
    plan = topology.dof_plan if one else SweepPlan(chain_parents)
    return LimbPaths(
        plan, None if one else np.array(dofs), np.concatenate(units), tuple(starts), tuple(map(np.array, limbs))
    )
