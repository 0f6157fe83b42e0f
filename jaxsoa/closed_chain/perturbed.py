"""The constrained equations of motion differentiated once, for least constraint forces at any constant rank.

A system M a + C - tau - J* f = 0, J a + bias = 0 with f = -Omega^+ b, Omega = J Z J*, Z the inverse of M (of its free
block, where joints are prescribed) and b = J a0 + bias the gap of the free motion a0. Along any tangent, with d1 and d2
the changes of both equations at fixed a and f,

    df = -S (d2 - J Z d1) + (I - P) d(J u) - S S J Z d(J* y),       da = -Z d1 + Z J* df,

S = Omega^+, P its projector, u = Z J* S f, y = J a + bias what redundant constraints that contradict each other leave.
(Golub and Pereyra 1973, with d Omega never formed: of its three terms each loses all but one factor to d1, d2 or to the
projectors.) Where the constraints are independent only the first term is left.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array

from jaxsoa.closed_chain.algebra import PseudoInverse


class Changes(NamedTuple):
    """How the equations change along a tangent, at a fixed motion and fixed forces."""

    torque: Any  # d1
    gap: Array  # d2
    rates: Array  # d(J u)
    pull: Any  # d(J* y)


class LinearMaps(NamedTuple):
    """J, J*, Z and Omega's pseudo-inverse."""

    rows: Callable[[Any], Array]  # J x
    columns: Callable[[Array], Any]  # J* f
    solve: Callable[[Any], Any]  # Z x
    compliance: PseudoInverse


def perturbed_forces(maps: LinearMaps, d: Changes) -> Array:
    """df."""
    S = maps.compliance
    by_motion = S.solve(d.gap - maps.rows(maps.solve(d.torque)))
    by_residual = S.solve(S.solve(maps.rows(maps.solve(d.pull))))
    return S.unreached(d.rates) - by_motion - by_residual


def perturbed_motion(maps: LinearMaps, d: Changes) -> tuple[Any, Array]:
    """(da without what is prescribed, df)."""
    df = perturbed_forces(maps, d)
    rest = jax.tree.map(lambda pulled, torque: pulled - torque, maps.columns(df), d.torque)
    return maps.solve(rest), df


def perturbed_columns(
    solve: Callable[[Array], Array], responses: Array, compliance: PseudoInverse, d: Changes
) -> tuple[Array, Array]:
    """The same along many tangents, the last axis of `d`, as products of matrices; `responses` is Z J*, (nv, m)."""
    S = compliance.inverse()
    by_motion = S @ (responses.T @ d.torque - d.gap)
    df = by_motion + compliance.null() @ d.rates - S @ (S @ (responses.T @ d.pull))
    return responses @ df - solve(d.torque), df


def along(function: Callable, primals: tuple, tangents: tuple) -> Any:
    """The change of `function(*primals)` along tangents of which many may be symbolic zeros, and then cost nothing."""
    leaves, structure = jax.tree.flatten(primals)
    moved = jax.tree.leaves(tangents, is_leaf=lambda t: isinstance(t, SymbolicZero))
    varying = [i for i, t in enumerate(moved) if not isinstance(t, SymbolicZero)]
    if not varying:
        return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(function, *primals))

    def of_varying(*values):
        full = list(leaves)
        for i, value in zip(varying, values, strict=True):
            full[i] = value
        return function(*jax.tree.unflatten(structure, full))

    return jax.jvp(of_varying, tuple(leaves[i] for i in varying), tuple(moved[i] for i in varying))[1]
