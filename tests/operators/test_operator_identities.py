"""Every identity of the registry, both sides dense, on random trees with mixed joints; lemmas for arbitrary blocks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from operator_oracle import case, close

import jaxsoa as soa
from jaxsoa.algebra.identities import IDENTITIES

CASES = {
    "all": ("tree", "noisy", "chain", "base", "hybrid"),
    "bare": ("tree", "chain", "base"),
    "chain": ("chain",),
    "hybrid": ("hybrid",),
}


@pytest.mark.parametrize("name", IDENTITIES)
def test_identity(name):
    identity = IDENTITIES[name]
    for where in CASES[identity.scope]:
        c = case(where)
        left, right = identity.left(c.o), identity.right(c.o)
        assert (left.domain, left.codomain) == (right.domain, right.codomain)
        dense = c.dense(left)
        assert np.abs(dense).max() > 1e-3, "an identity between zeros says nothing"
        close(dense, c.dense(right))


def test_the_registry_covers_the_papers():
    numbers = {int(k) for name in IDENTITIES for k in [name.removeprefix("a.").split(" ")[0]] if k.isdigit()}
    assert set(range(6, 19)) | set(range(22, 29)) | set(range(32, 44)) | {46, 47, 48, 50, 51} <= numbers


@pytest.mark.parametrize("name", [k for k, i in IDENTITIES.items() if i.scope == "bare"])
def test_scope_of_identities_that_need_no_armature(name):
    c = case("noisy")
    left, right = c.dense(IDENTITIES[name].left(c.o)), c.dense(IDENTITIES[name].right(c.o))
    assert np.abs(left - right).max() > 1e-6


@pytest.mark.parametrize("name", [k for k, i in IDENTITIES.items() if i.scope == "chain"])
def test_scope_of_identities_of_chains(name):
    c = case("tree")
    left, right = c.dense(IDENTITIES[name].left(c.o)), c.dense(IDENTITIES[name].right(c.o))
    assert np.abs(left - right).max() > 1e-6


def test_mass_is_the_mass_matrix():
    for where in ("tree", "noisy", "base"):
        c = case(where)
        M = jax.jit(soa.mass_matrix)(c.robot, c.q)
        close(c.dense(c.o.Mass), M)
        close(c.o.Mass.dense(), M)


# --- lemmas that hold for any block-diagonal matrices (linearization, A.1-A.5, 4.6, 4.7, 4.9) -------------------------


def blocks(c, name):
    X = c.rng.normal(size=(c.robot.n_links, 6, 6))
    return X, c.o.block(name, X)


@pytest.mark.parametrize("where", ["tree", "noisy", "chain"])
@pytest.mark.parametrize("left", ["phi", "psi"])
@pytest.mark.parametrize("right", ["phi", "psi"])
def test_inboard_decomposition(where, left, right):
    """Lemma A.1 of JPL 88-11, (A.1)-(A.2) of the linearization paper, on trees."""
    c = case(where)
    _, op = blocks(c, "X")
    parts = soa.decomposition.decompose(c.o, op, left, right)
    l, r = c.dense.atoms[left], c.dense.atoms[right]
    whole = l @ c.dense(op) @ r.T
    close(c.dense(parts.operator), whole)
    close(c.dense(parts.memoryless), c.dense.block_diagonal(whole))
    assert parts.cross is None
    support = np.kron(c.robot.topology.link_support, np.ones((6, 6)))
    assert not np.any(c.dense(parts.causal) * (support + c.dense.block_diagonal(support) > 0))


@pytest.mark.parametrize("where", ["chain", "tree"])
@pytest.mark.parametrize("left", ["phi", "psi"])
def test_outboard_decomposition(where, left):
    """(A.3), lemma 4.8; on trees the cross part couples only links of different branches."""
    c = case(where)
    _, op = blocks(c, "X")
    parts = soa.decomposition.decompose_outboard(c.o, op, left, "psi")
    whole = c.dense.atoms[left].T @ c.dense(op) @ c.dense.atoms["psi"]
    close(c.dense(parts.operator), whole)
    close(c.dense(parts.memoryless), c.dense.block_diagonal(whole))
    related = np.kron(c.robot.topology.link_support | c.robot.topology.link_support.T, np.ones((6, 6)))
    three = c.dense(parts.memoryless + parts.causal + parts.anticausal)
    close(three, whole * related)
    assert (parts.cross is None) == (where == "chain")


@pytest.mark.parametrize("where", ["chain", "tree", "noisy"])
@pytest.mark.parametrize("left", ["phi", "psi"])
def test_commuted_decomposition(where, left):
    """(A.4), (A.5): l* X phi~* = S phi* - l* S."""
    c = case(where)
    X, op = blocks(c, "X")
    S = c.dense(soa.decomposition.commuted(c.o, jnp.asarray(X), left))
    l, phi = c.dense.atoms[left], c.dense.atoms["phi"]
    close(l.T @ c.dense(op) @ (phi - np.eye(len(phi))).T, S @ phi.T - l.T @ S)


def test_riccati_is_a_decomposition():
    """(4.5): the memoryless part of psi M phi* is P, of phi M phi* the composite inertia R."""
    c = case("noisy")
    close(c.dense(soa.decomposition.decompose(c.o, c.o.M, "psi", "phi").memoryless), c.dense.atoms["P"])
    close(c.dense(soa.decomposition.decompose(c.o, c.o.M).memoryless), c.dense.atoms["R"])


@pytest.mark.parametrize("where", ["chain", "noisy"])
def test_linearization_lemmas_4_6_and_4_7(where):
    """M^-1 [H phi (2 Mbar phi* H* + 2 M phi* H'* )] in the two forms, for any Mbar (6x6 blocks) and H' (like H)."""
    c, o = case(where), case(where).o
    Mbar_blocks, Mbar = blocks(c, "M̄")
    Hdot = o.joint_map("Ḣ", c.rng.normal(size=(c.robot.nv, 6)))
    W, D_inv = o.whitening, o.D.inv
    given = o.Mass.inv @ o.H @ o.phi @ (o.M @ o.phi.T @ Hdot.T + Mbar @ o.phi.T @ o.H.T) * 2
    form_46 = 2 * (W.T @ D_inv @ o.H @ o.psi @ (Mbar @ o.phi.T @ o.H.T + o.P @ Hdot.T)) + 2 * (o.K.T @ o.psi.T @ Hdot.T)
    close(c.dense(form_46), c.dense(given))
    # 4.7: psi Mbar phi* = psi Phat + Phat phi~*; D^-1 H Phat E_phi* is the adjoint of Khat, Phat not being symmetric.
    Phat = soa.decomposition.inboard(o, jnp.asarray(Mbar_blocks), "psi", "phi", "P̂")
    Khat_adjoint = D_inv @ o.H @ Phat @ o.E_phi.T
    Y_A = 2 * (o.P @ Hdot.T) + 2 * (Phat @ o.H.T)
    form_47 = W.T @ (D_inv @ o.H @ o.psi @ Y_A + 2 * (Khat_adjoint @ o.phi.T @ o.H.T)) + 2 * (o.K.T @ o.psi.T @ Hdot.T)
    close(c.dense(form_47), c.dense(given))
    # The same found by rewriting: 4.6 with the papers' identities, 4.7 with lemma A.1 for the blocks M-bar.
    derivation = soa.derive(given)
    for step in derivation.steps:
        close(c.dense(step.expression), c.dense(given))
    close(derivation.result.dense(), c.dense(given))  # by sweeps
    forms = [str(step.expression) for step in derivation.steps]
    assert forms[-2] == "(I - H ψ K)* D⁻¹ H ψ (2 P Ḣ* + 2 M̄ φ* H*) + 2 K* ψ* Ḣ*"  # (4.11)
    # (4.12): psi (Y_A) with Y_A = 2 P H'* + 2 P-ring H*, and P-ring phi~* H* beside it.
    assert forms[-1] == "(I - H ψ K)* D⁻¹ H (ψ (2 P Ḣ* + 2 [M̄] H*) + [M̄] (2 φ* - 2 I) H*) + 2 K* ψ* Ḣ*"
    assert derivation.steps[-1].equation.endswith("lemma 4.7")
    backwards = soa.derive(given.T)
    close(backwards.result.dense(), c.dense(given).T)
    assert backwards.steps[-1].equation.endswith("lemma 4.7")


def test_linearization_lemma_4_9():
    """M^-1 and A_C from block-diagonal L, U, E_A, J and Q, on a chain of mixed joints."""
    c, o = case("chain"), case("chain").o
    dec = soa.decomposition
    parts = dec.mass_inverse_decomposition(o)
    assert parts.cross is None
    close(c.dense(parts.operator), np.linalg.inv(c.dense(o.Mass)))
    plus = dec.upsilon_plus(o)
    L = o.D.inv + o.G.T @ plus @ o.G
    U = o.D.inv @ o.H - o.G.T @ plus @ o.tau_bar
    close(c.dense(U), c.dense(L @ o.H - o.G.T @ plus))
    close(c.dense(o.whitening.T @ o.D.inv @ o.H @ o.psi), c.dense(U @ o.psi - o.K.T @ o.psi.T @ o.Upsilon))  # (A.23)
    Mbar_blocks, Mbar = blocks(c, "M̄")
    Hdot = o.joint_map("Ḣ", c.rng.normal(size=(c.robot.nv, 6)))
    A_C = 2 * (o.Mass.inv @ o.H @ o.phi @ (o.M @ o.phi.T @ Hdot.T + Mbar @ o.phi.T @ o.H.T))
    Phat = dec.inboard(o, jnp.asarray(Mbar_blocks), "psi", "phi", "P̂")
    Y_A = 2 * (o.P @ Hdot.T) + 2 * (Phat @ o.H.T)
    Ghat_adjoint = o.D.inv @ o.H @ Phat
    # J of (4.22) solves psi* [H* Ghat*] phi~* = J phi* - psi* J.
    J = dec.commuted(o, dec.blocks_of(o.H.T @ Ghat_adjoint, o), "psi", "J")
    E_A = 2 * Hdot.T - o.Upsilon @ Y_A + 2 * (J @ o.H.T)
    Q_adjoint = 2 * (Ghat_adjoint @ o.E_phi.T) - 2 * (o.K.T @ J)
    close(c.dense(U @ o.psi @ Y_A + o.K.T @ o.psi.T @ E_A + Q_adjoint @ o.phi.T @ o.H.T), c.dense(A_C))


@pytest.mark.parametrize("where", ["tree", "noisy", "chain"])
def test_dense_matrices_in_quadratic_time(where):
    c = case(where)
    M = c.dense(c.o.Mass)
    close(soa.decomposition.dense_mass(c.o), M)
    close(soa.decomposition.dense_mass_inverse(c.o), np.linalg.inv(M))
    a = c.dense.atoms
    close(soa.decomposition.dense_omega(c.o), a["psi"].T @ a["H"].T @ np.linalg.inv(a["D"]) @ a["H"] @ a["psi"])


def test_omega_decomposition_on_a_tree():
    c = case("tree")
    parts = soa.decomposition.omega_decomposition(c.o)
    a = c.dense.atoms
    omega = a["psi"].T @ a["H"].T @ np.linalg.inv(a["D"]) @ a["H"] @ a["psi"]
    related = np.kron(c.robot.topology.link_support | c.robot.topology.link_support.T, np.ones((6, 6)))
    close(c.dense(parts.memoryless + parts.causal + parts.anticausal), omega * related)
    close(c.dense(parts.operator), omega)
