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

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxsoa.algebra.bundle import Bundle
from jaxsoa.algebra.expression import Operator
from jaxsoa.algebra.state import State, translation
from jaxsoa.sweeps import gather, scatter

Propagation = Literal["phi", "psi"]


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
    """The diagonal blocks of a memoryless operator of link space, by six applications."""
    n = bundle.robot.n_links
    columns = operator(jnp.tile(jnp.eye(6, dtype=bundle.state.G.dtype), (n, 1)))
    return columns.reshape(n, 6, 6)


def _steps(state: State, kind: Propagation) -> Float[Array, "n 6 6"]:
    """phi(p, k) or psi(p, k) of every link."""
    rigid = jax.vmap(translation)(state.offset)
    if kind == "phi":
        return rigid
    GH = jnp.einsum("nir,nrj->nij", state.blocks("G"), state.blocks("H"))
    return jnp.einsum("nij,njk->nik", rigid, jnp.eye(6, dtype=rigid.dtype) - GH)


def inboard(bundle: Bundle, X: Array, left: Propagation, right: Propagation, name: str = "S") -> Operator:
    """S of the inboard recursion for blocks X (n, 6, 6), as a block-diagonal operator."""
    state = bundle.state

    def step(children, x):
        X, l, r = x
        S = children + X
        return l @ S @ r.T, S

    zero = jnp.zeros((6, 6), X.dtype)
    _, S = gather(state.topology.link_plan, step, zero, (X, _steps(state, left), _steps(state, right)))
    return bundle.block(name, S)


def outboard(bundle: Bundle, X: Array, left: Propagation, right: Propagation, name: str = "S") -> Operator:
    """S of the outboard recursion for blocks X."""
    state = bundle.state

    def step(parent, x):
        X, l, r = x
        S = l.T @ parent @ r + X
        return S, S

    zero = jnp.zeros((6, 6), X.dtype)
    S = scatter(state.topology.link_plan, step, zero, (X, _steps(state, left), _steps(state, right)))
    return bundle.block(name, S)


def commuted(bundle: Bundle, X: Array, left: Propagation, name: str = "S") -> Operator:
    """S with l* X phi~* = S phi* - l* S. A translation is inverted by turning it round."""
    state = bundle.state

    def step(parent, x):
        X, l, back = x
        S = l.T @ parent @ back.T + X
        return S, S

    zero = jnp.zeros((6, 6), X.dtype)
    back = jax.vmap(translation)(-state.offset)
    S = scatter(state.topology.link_plan, step, zero, (X, _steps(state, left), back))
    return bundle.block(name, S)


def _propagation(bundle: Bundle, kind: Propagation) -> tuple[Operator, Operator]:
    return (bundle.phi, bundle.phi_tilde) if kind == "phi" else (bundle.psi, bundle.psi_tilde)


def decompose(bundle: Bundle, X: Operator, left: Propagation = "phi", right: Propagation = "phi") -> Decomposition:
    """l X r* for a memoryless X of link space; `decompose(o, o.M, "psi", "phi")` has P for its memoryless part."""
    S = inboard(bundle, blocks_of(X, bundle), left, right)
    return Decomposition(S, _propagation(bundle, left)[1] @ S, S @ _propagation(bundle, right)[1].T)


def _is_chain(bundle: Bundle) -> bool:
    parents = bundle.robot.topology.parents
    return len(set(parents)) == len(parents)


def decompose_outboard(
    bundle: Bundle, X: Operator, left: Propagation = "psi", right: Propagation = "psi"
) -> Decomposition:
    """l* X r; on trees with the part between branches."""
    S = outboard(bundle, blocks_of(X, bundle), left, right)
    (l, l_tilde), (r, r_tilde) = _propagation(bundle, left), _propagation(bundle, right)
    parts = (S, S @ r_tilde, l_tilde.T @ S)
    cross = None if _is_chain(bundle) else l.T @ X @ r - (S + S @ r_tilde + l_tilde.T @ S)
    return Decomposition(*parts, cross)


def mass_decomposition(bundle: Bundle) -> Decomposition:
    """H phi M phi* H* + A = H [R + phi~ R + R phi~*] H* + A: composite bodies (linearization, lemma 3.2)."""
    H, R = bundle.H, bundle.R
    causal = H @ bundle.phi_tilde @ R @ H.T
    return Decomposition(H @ R @ H.T + bundle.armature, causal, causal.T)


def omega_decomposition(bundle: Bundle) -> Decomposition:
    """Omega = psi* H* D^-1 H psi, its memoryless part the operational-space compliance of every link (lemma 4.8)."""
    Y = bundle.Upsilon
    causal = Y @ bundle.psi_tilde
    cross = None
    if not _is_chain(bundle):
        cross = bundle.psi.T @ bundle.H.T @ bundle.D.inv @ bundle.H @ bundle.psi - (Y + causal + causal.T)
    return Decomposition(Y, causal, causal.T, cross)


def mass_inverse_decomposition(bundle: Bundle) -> Decomposition:
    """M^-1 = L - U psi K - K* psi* U*, L = D^-1 + G* Y+ G, U = D^-1 H - G* Y+ tau_bar (linearization, lemma 4.9).

    Y+(k) = phi*(p, k) Y(p) phi(p, k).
    """
    plus = upsilon_plus(bundle)
    L = bundle.D.inv + bundle.G.T @ plus @ bundle.G
    U = bundle.D.inv @ bundle.H - bundle.G.T @ plus @ bundle.tau_bar
    causal = -(U @ bundle.psi @ bundle.K)
    cross = None if _is_chain(bundle) else bundle.Mass.inv - (L + causal + causal.T)
    return Decomposition(L, causal, causal.T, cross)


def upsilon_plus(bundle: Bundle) -> Operator:
    """Y+ of every link: its parent's Y seen from the inboard side of its joint."""
    parents = np.array(bundle.robot.topology.parents)
    Y = jnp.where((parents >= 0)[:, None, None], bundle.state.field("Upsilon")[np.maximum(parents, 0)], 0)
    rigid = jax.vmap(translation)(bundle.state.offset)
    return bundle.block("Υ⁺", jnp.einsum("nji,njk,nkl->nil", rigid, Y, rigid), symmetric=True)


# --- dense matrices ---------------------------------------------------------------------------------------------------


def dense_mass(bundle: Bundle) -> Float[Array, "nv nv"]:
    """The mass matrix in O(N^2): one sweep over columns, and its transpose."""
    parts = mass_decomposition(bundle)
    half = parts.causal.dense()
    return parts.memoryless.dense() + half + half.T


def dense_omega(bundle: Bundle) -> Float[Array, "n6 n6"]:
    """Omega in O(N^2) on any tree: rows base to tip.

    Outboard of link k (columns of its subtree) the row is Y(k) psi(k, .); elsewhere it comes from the parent.
    """
    state, topology = bundle.state, bundle.robot.topology
    n = topology.n_links
    psi = bundle.psi.dense().reshape(n, 6, 6 * n)
    subtree = jnp.asarray(np.repeat(topology.link_support.T, 6, axis=1))

    def step(parent, x):
        Y, F, step_psi, inside = x
        row = jnp.where(inside, Y @ F, step_psi.T @ parent)
        return row, row

    xs = (state.field("Upsilon"), psi, _steps(state, "psi"), subtree)
    rows = scatter(topology.link_plan, step, jnp.zeros((6, 6 * n), psi.dtype), xs)
    return rows.reshape(6 * n, 6 * n)


def dense_mass_inverse(bundle: Bundle) -> Float[Array, "nv nv"]:
    """M^-1 = D^-1 - D^-1 H psi K - (...)* + K* Omega K in O(N^2) on any tree."""
    half = (bundle.D.inv @ bundle.H @ bundle.psi @ bundle.K).dense()
    rows = bundle.K.T(dense_omega(bundle))
    return bundle.D.inv.dense() - half - half.T + bundle.K.T(rows.T)
