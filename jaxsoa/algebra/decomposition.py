"""Splitting X = memoryless + strictly causal + strictly anticausal, by recursions for the memoryless part.

With block-diagonal X and propagations l, r (each phi or psi), E_l and E_r their shifts to the parent:

    inboard    l X r* = S + l~ S + S r~*,     S = E_l S E_r* + X       (JPL 88-11, lemma A.1; linearization A.1, A.2)
    outboard   l* X r = S + l~* S + S r~,     S = E_l* S E_r + X, per link    (linearization A.3, lemma 4.8)
    commuted   l* X phi~* = S phi* - l* S,    S(k) = l*(p, k) S(p) phi*(p, k)^-1 + X(k)   (linearization A.4, A.5)

The first and the third hold on trees as they stand. The second is the whole truth on chains; on trees links of
different branches are coupled through the link j where their branches part: block [k, i] is l*(j, k) S(j) r(j, i), and
`Decomposition.cross` is that part. Dense matrices then cost O(N^2).
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxsoa.algebra.bundle import Bundle
from jaxsoa.algebra.expression import Operator
from jaxsoa.algebra.state import Propagation, inboard_blocks, outboard_blocks, steps
from jaxsoa.eager import compiled
from jaxsoa.spatial import pairs
from jaxsoa.sweeps import scatter


class Decomposition(NamedTuple):
    """The parts as operators; they add up to the operator decomposed. `cross` is None where it vanishes."""

    memoryless: Operator
    causal: Operator
    anticausal: Operator
    cross: Operator | None = None

    @property
    def operator(self) -> Operator:
        total = self.memoryless + self.causal + self.anticausal
        return total if self.cross is None else total + self.cross

    def dense(self) -> Array:
        """The matrix in O(N^2): one sweep over the columns of each part."""
        return self.operator.dense()


def blocks_of(operator: Operator, bundle: Bundle) -> Float[Array, "n 6 6"]:
    """The diagonal blocks of a memoryless operator of link space, by six applications.

    >>> o = soa.operators(robot, q)
    >>> print(soa.decomposition.blocks_of(o.M, o).shape)  # kg m^2, kg m, kg
    (2, 6, 6)
    """
    n = bundle.robot.n_links
    columns = operator(jnp.tile(jnp.eye(6, dtype=bundle.state.G.dtype), (n, 1)))
    return columns.reshape(n, 6, 6)


def inboard(bundle: Bundle, X: Array, left: Propagation, right: Propagation, name: str = "S") -> Operator:
    """S of the inboard recursion for blocks X (n, 6, 6), as a block-diagonal operator.

    >>> o = soa.operators(robot, q)
    >>> R = soa.decomposition.inboard(o, soa.decomposition.blocks_of(o.M, o), "phi", "phi")
    >>> print(soa.decomposition.blocks_of(R, o)[0, 5, 5].round(3))  # of the composite body on the first link: mass, kg
    2.0
    """
    return bundle.block(name, inboard_blocks(bundle.state, X, left, right))


def outboard(bundle: Bundle, X: Array, left: Propagation, right: Propagation, name: str = "S") -> Operator:
    """S of the outboard recursion for blocks X.

    >>> o = soa.operators(robot, q)
    >>> S = soa.decomposition.outboard(o, soa.decomposition.blocks_of(o.M, o), "phi", "phi")
    >>> print(jnp.allclose(soa.decomposition.blocks_of(S, o)[0], soa.decomposition.blocks_of(o.M, o)[0]))
    True
    """
    state = bundle.state
    return bundle.block(name, outboard_blocks(state, X, steps(state, left), steps(state, right)))


def commuted(bundle: Bundle, X: Array, left: Propagation, name: str = "S") -> Operator:
    """S with l* X phi~* = S phi* - l* S. A translation is inverted by turning it round.

    >>> o = soa.operators(robot, q)
    >>> S = soa.decomposition.commuted(o, soa.decomposition.blocks_of(o.M, o), "psi")
    >>> print(S.shape)
    (12, 12)
    """
    state = bundle.state

    back = pairs.phi(-state.offset).mT
    return bundle.block(name, outboard_blocks(state, X, steps(state, left), back))


def _propagation(bundle: Bundle, kind: Propagation) -> tuple[Operator, Operator]:
    return (bundle.phi, bundle.phi_tilde) if kind == "phi" else (bundle.psi, bundle.psi_tilde)


def decompose(bundle: Bundle, X: Operator, left: Propagation = "phi", right: Propagation = "phi") -> Decomposition:
    """l X r* for a memoryless X of link space; `decompose(o, o.M, "psi", "phi")` has P for its memoryless part.

    >>> o = soa.operators(robot, q)
    >>> parts = soa.decomposition.decompose(o, o.M, "psi", "phi")  # psi M phi*, whose middle is P
    >>> print(jnp.allclose(parts.memoryless.dense(), o.P.dense()))
    True
    """
    S = inboard(bundle, blocks_of(X, bundle), left, right)
    return Decomposition(S, _propagation(bundle, left)[1] @ S, S @ _propagation(bundle, right)[1].T)


def _is_chain(bundle: Bundle) -> bool:
    parents = bundle.robot.topology.parents
    return len(set(parents)) == len(parents)


def decompose_outboard(
    bundle: Bundle, X: Operator, left: Propagation = "psi", right: Propagation = "psi"
) -> Decomposition:
    """l* X r; on trees with the part between branches.

    >>> o = soa.operators(robot, q)
    >>> parts = soa.decomposition.decompose_outboard(o, o.M)
    >>> print(jnp.allclose(parts.dense(), (o.psi.T @ o.M @ o.psi).dense()))
    True
    """
    S = outboard(bundle, blocks_of(X, bundle), left, right)
    (l, l_tilde), (r, r_tilde) = _propagation(bundle, left), _propagation(bundle, right)
    parts = (S, S @ r_tilde, l_tilde.T @ S)
    cross = None if _is_chain(bundle) else l.T @ X @ r - (S + S @ r_tilde + l_tilde.T @ S)
    return Decomposition(*parts, cross)


def mass_decomposition(bundle: Bundle) -> Decomposition:
    """H phi M phi* H* + A = H [R + phi~ R + R phi~*] H* + A: composite bodies (linearization, lemma 3.2).

    >>> o = soa.operators(robot, q)
    >>> print(jnp.allclose(soa.decomposition.mass_decomposition(o).dense(), soa.mass_matrix(robot, q)))
    True
    """
    H, R = bundle.H, bundle.R
    causal = H @ bundle.phi_tilde @ R @ H.T
    return Decomposition(H @ R @ H.T + bundle.armature, causal, causal.T)


def omega_decomposition(bundle: Bundle) -> Decomposition:
    """Omega = psi* H* D^-1 H psi, its memoryless part the operational-space compliance of every link (lemma 4.8).

    >>> o = soa.operators(robot, q)
    >>> print(jnp.allclose(soa.decomposition.omega_decomposition(o).dense(), soa.decomposition.dense_omega(o)))
    True
    """
    Y = bundle.Upsilon
    causal = Y @ bundle.psi_tilde
    cross = None
    if not _is_chain(bundle):
        cross = bundle.psi.T @ bundle.H.T @ bundle.D.inv @ bundle.H @ bundle.psi - (Y + causal + causal.T)
    return Decomposition(Y, causal, causal.T, cross)


def mass_inverse_decomposition(bundle: Bundle) -> Decomposition:
    """M^-1 = L - U psi K - K* psi* U*, L = D^-1 + G* Y+ G, U = D^-1 H - G* Y+ tau_bar (linearization, lemma 4.9).

    Y+(k) = phi*(p, k) Y(p) phi(p, k).

    >>> o = soa.operators(robot, q)
    >>> print(jnp.allclose(soa.decomposition.mass_inverse_decomposition(o).dense(), soa.mass_matrix_inverse(robot, q)))
    True
    """
    plus = upsilon_plus(bundle)
    L = bundle.D.inv + bundle.G.T @ plus @ bundle.G
    U = bundle.D.inv @ bundle.H - bundle.G.T @ plus @ bundle.tau_bar
    causal = -(U @ bundle.psi @ bundle.K)
    cross = None if _is_chain(bundle) else bundle.Mass.inv - (L + causal + causal.T)
    return Decomposition(L, causal, causal.T, cross)


def upsilon_plus(bundle: Bundle) -> Operator:
    """Y+ of every link: its parent's Y seen from the inboard side of its joint.

    >>> o = soa.operators(robot, q)
    >>> print(soa.decomposition.blocks_of(soa.decomposition.upsilon_plus(o), o)[0].max())  # before the first link
    0.0
    """
    parents = np.array(bundle.robot.topology.parents)
    Y = jnp.where((parents >= 0)[:, None, None], bundle.state.field("Upsilon")[np.maximum(parents, 0)], 0)
    rigid = pairs.phi(bundle.state.offset)
    return bundle.block("Υ⁺", jnp.einsum("nji,njk,nkl->nil", rigid, Y, rigid), symmetric=True)


# --- dense matrices ---------------------------------------------------------------------------------------------------


@compiled(through_door=False)
def dense_mass(bundle: Bundle) -> Float[Array, "nv nv"]:
    """The mass matrix in O(N^2): one sweep over columns, and its transpose.

    >>> o = soa.operators(robot, q)
    >>> print(soa.decomposition.dense_mass(o).round(3))  # kg m^2
    [[2.544 0.772]
     [0.772 0.333]]
    """
    parts = mass_decomposition(bundle)
    half = parts.causal.dense()
    return parts.memoryless.dense() + half + half.T


@compiled(through_door=False)
def dense_omega(bundle: Bundle) -> Float[Array, "n6 n6"]:
    """Omega in O(N^2) on any tree: rows base to tip.

    Outboard of link k (columns of its subtree) the row is Y(k) psi(k, .); elsewhere it comes from the parent.

    >>> o = soa.operators(robot, q)
    >>> print(soa.decomposition.dense_omega(o).shape)
    (12, 12)
    """
    state, topology = bundle.state, bundle.robot.topology
    n = topology.n_links
    psi = bundle.psi.dense().reshape(n, 6, 6 * n)
    subtree = jnp.asarray(np.repeat(topology.link_support.T, 6, axis=1))

    def step(parent, x):
        Y, F, step_psi, inside = x
        row = jnp.where(inside, Y @ F, step_psi.T @ parent)
        return row, row

    xs = (state.field("Upsilon"), psi, steps(state, "psi"), subtree)
    rows = scatter(topology.link_plan, step, jnp.zeros((6, 6 * n), psi.dtype), xs)
    return rows.reshape(6 * n, 6 * n)


@compiled(through_door=False)
def dense_mass_inverse(bundle: Bundle) -> Float[Array, "nv nv"]:
    """M^-1 = D^-1 - D^-1 H psi K - (...)* + K* Omega K in O(N^2) on any tree.

    >>> o = soa.operators(robot, q)
    >>> print(soa.decomposition.dense_mass_inverse(o).round(3))  # 1/(kg m^2)
    [[ 1.323 -3.063]
     [-3.063 10.094]]
    """
    half = (bundle.D.inv @ bundle.H @ bundle.psi @ bundle.K).dense()
    rows = bundle.K.T(dense_omega(bundle))
    return bundle.D.inv.dense() - half - half.T + bundle.K.T(rows.T)
