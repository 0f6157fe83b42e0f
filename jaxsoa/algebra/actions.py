"""What each atom does to the vector of one link, and how composite atoms are made of simple ones.

A memoryless (block-diagonal) atom is a small product with that link's own block, so it can run inside any sweep's body
or, vectorized, between sweeps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp

from jaxsoa.dynamics.articulated import carry_force, carry_motion


def rows(m, x):
    """m x as a broadcast product."""
    if m.shape[-1] == 1:
        return m[:, 0] * x[0]
    return jnp.sum(m * x, axis=-1)


def columns(m, x):
    """m* x."""
    if m.shape[0] == 1:
        return m[0] * x[0]
    return jnp.sum(m * x[:, None], axis=0)


class Memoryless(NamedTuple):
    """`apply` and `adjoint` take the blocks named in `fields` and one link's vector; `flops(r)` are per link."""

    fields: tuple[str, ...]
    apply: Callable
    adjoint: Callable
    flops: Callable[[int], int]
    inverse_field: str | None = None


def _inertia_times(inertia, x):
    return jnp.concatenate(inertia.times(x[:3], x[3:]))


def update(h, g, x):
    """(I - G H) x."""
    return x - rows(g, rows(h, x))


def update_adjoint(h, g, x):
    """(I - G H)* x."""
    return x - columns(h, columns(g, x))


def _diagonal(d, x):
    return d * x


MEMORYLESS: dict[str, Memoryless] = {
    "H": Memoryless(("H",), rows, columns, lambda r: 12 * r),
    "H_a": Memoryless(("H_a",), rows, columns, lambda r: 12 * r),
    "G": Memoryless(("G",), rows, columns, lambda r: 12 * r),
    "M": Memoryless(("rigid",), _inertia_times, _inertia_times, lambda r: 42, "M_inverse"),
    "P": Memoryless(("inertia",), _inertia_times, _inertia_times, lambda r: 66, "P_inverse"),
    "R": Memoryless(("R",), rows, rows, lambda r: 66, "R_inverse"),
    "Upsilon": Memoryless(("Upsilon",), rows, rows, lambda r: 66, "Upsilon_inverse"),
    "D": Memoryless(("D",), rows, rows, lambda r: 2 * r * r, "D_inverse"),
    "A": Memoryless(("A",), _diagonal, _diagonal, lambda r: r, "A_inverse"),
    "pi_a": Memoryless(("prescribed",), _diagonal, _diagonal, lambda r: r),
    "pi_p": Memoryless(("free",), _diagonal, _diagonal, lambda r: r),
    "tau_bar": Memoryless(("H", "G"), update, update_adjoint, lambda r: 24 * r + 6),
    "block": Memoryless(("value",), rows, columns, lambda r: 72),
    "Delta_phi": Memoryless(("offset",), carry_force, carry_motion, lambda r: 12),
}

COMPOSITE: dict[str, tuple[str, ...]] = {
    "K": ("E_phi", "G"),
    "L": ("Delta_phi", "G"),
    "E_psi": ("E_phi", "tau_bar"),
    "Delta_psi": ("Delta_phi", "tau_bar"),
    "Phi": ("phi", "S"),
    "Psi": ("psi", "S"),
}
"""Atoms that are products of others (JPL 88-11, a.5-a.7, a.12; overview, 4.3)."""


def apply_memoryless(name: str, adjoint: bool, inverse: bool, blocks: tuple, x):
    if inverse:
        (block,) = blocks
        return _diagonal(block, x) if name == "A" else columns(block, x) if adjoint else rows(block, x)
    action = MEMORYLESS[name]
    return (action.adjoint if adjoint else action.apply)(*blocks, x)


def fields_of(name: str, inverse: bool) -> tuple[str, ...]:
    if not inverse:
        return MEMORYLESS[name].fields
    field = MEMORYLESS[name].inverse_field
    if field is None:
        raise ValueError(f"The operator {name} has no inverse.")
    return (field,)
