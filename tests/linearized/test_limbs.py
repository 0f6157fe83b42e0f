"""Columns that travel down a limb's own path, put back into a matrix."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import jaxsoa as soa
from jaxsoa.linearized.limbs import limb_paths


def inboard(topology) -> np.ndarray:
    """[i, j]: degree i is degree j or lies between it and the base."""
    table = np.eye(topology.nv, dtype=bool)
    for dof, parent in enumerate(topology.dof_parents):
        if parent >= 0:
            table[:, dof] |= table[:, parent]
    return table


@pytest.mark.parametrize("seed", range(6))
def test_every_pair_on_a_path_gets_its_entry_and_no_other(seed):
    topology = soa.models.random_tree(seed, 9).topology
    paths = limb_paths(topology)
    nv = topology.nv
    dofs = np.arange(nv) if paths.dofs is None else paths.dofs
    columns = np.zeros(paths.unit.shape, int)
    ends = [*paths.starts[1:], len(dofs)]
    for start, end, limb in zip(paths.starts, ends, paths.limbs, strict=True):
        columns[start:end, : len(limb)] = limb
    codes = 1.0 + dofs[:, None] * nv + columns  # of the pair (i, j)
    expected = np.where(inboard(topology), 1.0 + np.arange(nv)[:, None] * nv + np.arange(nv), 0)
    # Above the diagonal of a limb a column has not begun: its entry is zero in a sweep, and here.
    codes = np.where(inboard(topology)[dofs[:, None], columns], codes, 0)
    np.testing.assert_array_equal(paths.matrix(jnp.asarray(codes)), expected)
    np.testing.assert_array_equal(paths.matrix(jnp.asarray(paths.unit, float)), np.eye(nv))


def test_trees_come_in_every_form():
    """Chains need no chains of their own; trees may number their limbs out of order."""
    assert limb_paths(soa.models.puma560().topology).dofs is None
    trees = [limb_paths(soa.models.random_tree(seed, 9).topology) for seed in range(6)]
    assert any(np.any(np.diff(np.concatenate(tree.limbs)) < 0) for tree in trees)
