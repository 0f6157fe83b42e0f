"""The identities of the papers as checked equations: both sides are operators, equal for every robot in their scope.

`IDENTITIES` maps a name to an `Identity` with its equation number. They hold on trees with any joints and with armature
(the measurement noise of the filter) unless `scope` says otherwise:

    "bare"   no armature. With it, psi M psi* gains psi K A K* psi*; the general form is listed beside.
    "chain"  serial chains. On trees the co-state decompositions gain blocks between branches (see `decomposition`).

The rules of `simplify` are among them, under their names. The papers number links tip to base and use serial chains;
here E_phi and S lead from each link to its parent.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Literal

from jaxsoa.algebra.bundle import Bundle
from jaxsoa.algebra.expression import Operator
from jaxsoa.algebra.rules import OPTIONAL, RULES

Side = Callable[[Bundle], Operator]
Scope = Literal["all", "bare", "chain", "hybrid"]


@dataclasses.dataclass(frozen=True)
class CheckedIdentity:
    name: str
    equation: str
    left: Side
    right: Side
    scope: Scope = "all"

    def show(self, bundle: Bundle) -> str:
        return f"{self.left(bundle)} = {self.right(bundle)}   [{self.equation}]"


IDENTITIES: dict[str, CheckedIdentity] = {}


def _add(name: str, equation: str, left: Side, right: Side, scope: Scope = "all") -> None:
    if name in IDENTITIES:
        raise ValueError(f"Two identities are called {name!r}.")
    IDENTITIES[name] = CheckedIdentity(name, equation, left, right, scope)


def _I(o: Bundle) -> Operator:
    return o.identity


def _E(o: Bundle) -> Operator:
    return o.link_identity


def _W(o: Bundle) -> Operator:
    """I - H psi K, written out (the same as o.whitening)."""
    return o.identity - o.H @ o.psi @ o.K


def _V(o: Bundle) -> Operator:
    """I + H phi K."""
    return o.identity + o.H @ o.phi @ o.K


def _mass(o: Bundle) -> Operator:
    """H phi M phi* H* + armature, written out."""
    return o.H @ o.phi @ o.M @ o.phi.T @ o.H.T + o.armature


def _pp(o: Bundle) -> Operator:
    """M + K A K*: what the Riccati equation sees in place of M when there is measurement noise."""
    return o.M + o.K @ o.armature @ o.K.T


# --- JPL 88-11, part I ------------------------------------------------------------------------------------------------

_J = "JPL 88-11 "
_add("a.1", _J + "(4.6), (a.1)", lambda o: o.D, lambda o: o.H @ o.P @ o.H.T + o.armature)
_add("a.2", _J + "(5.12), (a.2)", lambda o: o.G, lambda o: o.P @ o.H.T @ o.D.inv)
_add(
    "4.5", _J + "(4.5)", lambda o: o.P, lambda o: o.E_phi @ (o.P - o.P @ o.H.T @ o.D.inv @ o.H @ o.P) @ o.E_phi.T + o.M
)
_add("4.7", _J + "(4.7)", lambda o: o.Delta_psi, lambda o: o.Delta_phi - o.L @ o.H)
_add("4.11", _J + "fact 4.1 (4.11)", _mass, lambda o: _V(o) @ o.D @ _V(o).T)
_add("4.14", _J + "fact 4.2 (4.14)", lambda o: (_I(o) + o.H @ o.Phi @ o.L) @ (_I(o) - o.H @ o.Psi @ o.L), _I)
_add("4.16", _J + "theorem 4.1 (4.16)", lambda o: _mass(o) @ _W(o).T @ o.D.inv @ _W(o), _I)
_add("5.4", _J + "identity 5.1 (5.4)", lambda o: (_I(o) - o.H @ o.Psi @ o.L) @ o.H @ o.phi, lambda o: o.H @ o.psi)
_add("a.6", _J + "(a.6)", lambda o: o.Phi, lambda o: o.phi @ o.S)
_add("a.7", _J + "(a.7)", lambda o: o.Psi, lambda o: o.psi @ o.S)
_add("a.8", _J + "(a.8)", lambda o: o.Psi @ o.Delta_psi, lambda o: o.psi_tilde)
_add("a.9", _J + "(a.9)", lambda o: o.Phi @ o.Delta_phi, lambda o: o.phi_tilde)
_add("a.10", _J + "(a.10)", lambda o: o.psi @ (_E(o) - o.S @ o.Delta_psi), _E)
_add("a.11", _J + "(a.11)", lambda o: o.phi @ (_E(o) - o.S @ o.Delta_phi), _E)
_add("a.12", _J + "(a.12)", lambda o: o.L, lambda o: o.Delta_phi @ o.G)
_add("a.13", _J + "(a.13)", lambda o: o.phi_tilde @ o.G, lambda o: o.Phi @ o.L)
_add("a.14", _J + "(a.14)", lambda o: o.phi, lambda o: o.psi @ (_E(o) + o.S @ o.L @ o.H @ o.phi))
_add("a.15", _J + "(a.15)", lambda o: o.psi, lambda o: (_E(o) - o.Psi @ o.L @ o.H) @ o.phi)
_add("a.16", _J + "(a.16)", lambda o: o.Phi, lambda o: o.Psi @ (_E(o) + o.L @ o.H @ o.Phi))
_add("a.17", _J + "(a.17)", lambda o: o.Psi, lambda o: (_E(o) - o.Psi @ o.L @ o.H) @ o.Phi)
_add("a.18", _J + "(a.18)", lambda o: o.phi - o.psi, lambda o: o.Psi @ o.L @ o.H @ o.phi)
_add("a.22", _J + "(a.22)", lambda o: o.phi, lambda o: (_E(o) + o.Phi @ o.L @ o.H) @ o.psi)
_add("a.23", _J + "(a.23)", lambda o: o.psi, lambda o: o.phi @ (_E(o) - o.S @ o.L @ o.H @ o.psi))
_add("a.24", _J + "(a.24)", lambda o: o.Phi, lambda o: (_E(o) + o.Phi @ o.L @ o.H) @ o.Psi)
_add("a.25", _J + "(a.25)", lambda o: o.Psi, lambda o: o.Phi @ (_E(o) - o.L @ o.H @ o.Psi))
_add("a.26", _J + "(a.26)", lambda o: o.Phi @ o.L @ o.H @ o.psi, lambda o: o.Psi @ o.L @ o.H @ o.phi)
_add("a.27", _J + "(a.27)", lambda o: o.Phi @ o.L @ o.H @ o.Psi, lambda o: o.Psi @ o.L @ o.H @ o.Phi)
_add("a.28", _J + "(a.28)", lambda o: o.phi - o.psi, lambda o: o.Phi @ o.L @ o.H @ o.psi)
_add("a.32", _J + "(a.32)", lambda o: o.H @ o.phi, lambda o: (_I(o) + o.H @ o.Phi @ o.L) @ o.H @ o.psi)
_add("a.33", _J + "(a.33)", lambda o: o.H @ o.Phi, lambda o: (_I(o) + o.H @ o.Phi @ o.L) @ o.H @ o.Psi)
_add("a.34", _J + "(a.34)", lambda o: o.H @ o.Psi, lambda o: o.H @ o.Phi @ (_E(o) - o.L @ o.H @ o.Psi))
_add("a.35", _J + "(a.35)", lambda o: o.H @ o.psi, lambda o: (_I(o) - o.H @ o.Psi @ o.L) @ o.H @ o.phi)
_add("a.36", _J + "(a.36)", lambda o: o.H @ o.Psi, lambda o: (_I(o) - o.H @ o.Psi @ o.L) @ o.H @ o.Phi)
_add("a.37", _J + "(a.37)", lambda o: o.H @ o.Phi, lambda o: o.H @ o.Psi @ (_E(o) + o.L @ o.H @ o.Phi))
_add("a.38", _J + "(a.38)", lambda o: o.H @ o.Phi @ o.L @ o.H @ o.Psi, lambda o: o.H @ o.Psi @ o.L @ o.H @ o.Phi)
_add("a.39", _J + "(a.39)", lambda o: o.Phi @ o.L, lambda o: o.Psi @ o.L @ (_I(o) + o.H @ o.Phi @ o.L))
_add("a.40", _J + "(a.40)", lambda o: o.Psi @ o.L, lambda o: (_E(o) - o.Psi @ o.L @ o.H) @ o.Phi @ o.L)
_add("a.41", _J + "(a.41)", lambda o: o.Psi @ o.L, lambda o: o.Phi @ o.L @ (_I(o) - o.H @ o.Psi @ o.L))
_add("a.42", _J + "(a.42)", lambda o: o.Phi @ o.L, lambda o: (_E(o) + o.Phi @ o.L @ o.H) @ o.Psi @ o.L)
_add("a.43", _J + "(a.43)", lambda o: o.Psi @ o.L @ o.H @ o.Phi @ o.L, lambda o: o.Phi @ o.L @ o.H @ o.Psi @ o.L)
_add("a.46", _J + "(a.46)", lambda o: o.psi @ o.M @ o.phi.T, lambda o: o.P + o.psi_tilde @ o.P + o.P @ o.phi_tilde.T)
_add(
    "a.47",
    _J + "(a.47)",
    lambda o: o.psi @ o.M @ o.psi.T,
    lambda o: o.P + o.psi_tilde @ o.P + o.P @ o.psi_tilde.T,
    "bare",
)
_add(
    "a.47 with armature",
    _J + "(a.47), measurement noise included",
    lambda o: o.psi @ _pp(o) @ o.psi.T,
    lambda o: o.P + o.psi_tilde @ o.P + o.P @ o.psi_tilde.T,
)
_add(
    "a.48",
    _J + "(a.48)",
    lambda o: o.phi @ o.M @ o.phi.T,
    lambda o: (
        o.P + o.phi_tilde @ o.P + o.P @ o.phi_tilde.T + o.phi_tilde @ o.P @ o.H.T @ o.D.inv @ o.H @ o.P @ o.phi_tilde.T
    ),
)
_add(
    "a.50",
    _J + "(a.50)",
    lambda o: (_I(o) - o.H @ o.Psi @ o.L).T @ o.D.inv @ o.H @ o.psi @ o.M @ o.phi.T,
    lambda o: (
        (_I(o) - o.H @ o.Psi @ o.L).T @ o.D.inv @ o.H @ o.psi_tilde @ o.P
        + o.L.T @ o.Psi.T @ (_E(o) - o.G @ o.H).T
        + o.G.T
    ),
)
_add(
    "a.51",
    _J + "(a.51)",
    lambda o: _W(o).T @ o.D.inv @ o.H @ o.P + _W(o).T @ o.D.inv @ o.H @ o.P @ o.phi_tilde.T,
    lambda o: o.L.T @ o.Psi.T @ (_E(o) - o.G @ o.H).T + o.G.T,
)

# --- the overview -----------------------------------------------------------------------------------------------------

_O = "overview "
_add("overview 4.1", _O + "(4.1)", lambda o: o.P, lambda o: o.E_psi @ o.P @ o.E_psi.T + o.M, "bare")
_add(
    "overview 4.1 with armature",
    _O + "(4.1), noise included",
    lambda o: o.P,
    lambda o: o.E_psi @ o.P @ o.E_psi.T + _pp(o),
)
_add("overview 4.3", _O + "(4.3)", lambda o: o.E_psi, lambda o: o.E_phi @ (_E(o) - o.G @ o.H))
_add("overview 4.3b", _O + "(4.3)", lambda o: o.E_psi, lambda o: o.E_phi - o.K @ o.H)
_add("overview lemma 4.1", _O + "lemma 4.1 (4.4)", lambda o: o.Mass, lambda o: _V(o) @ o.D @ _V(o).T)
_add("overview lemma 4.2", _O + "lemma 4.2 (4.5)", lambda o: _V(o) @ _W(o), _I)
_add("overview lemma 4.3", _O + "lemma 4.3 (4.6)", lambda o: o.Mass.inv, lambda o: _W(o).T @ o.D.inv @ _W(o))
_add("overview lemma 5.1", _O + "lemma 5.1 (5.1)", lambda o: _W(o) @ o.H @ o.phi, lambda o: o.H @ o.psi)
_add("overview lemma A.1", _O + "lemma A.1", lambda o: o.psi.inv, lambda o: o.phi.inv + o.K @ o.H)
_add("overview projection", _O + "appendix", lambda o: o.tau_bar @ o.P @ o.tau_bar.T, lambda o: o.tau_bar @ o.P, "bare")
_add(
    "Joseph form",
    _O + "appendix, noise included",
    lambda o: o.tau_bar @ o.P @ o.tau_bar.T + o.G @ o.armature @ o.G.T,
    lambda o: o.tau_bar @ o.P,
)
_add("overview Riccati", _O + "appendix", lambda o: o.M, lambda o: o.P - o.E_psi @ o.P @ o.E_phi.T)
_add(
    "overview Riccati 2", _O + "appendix", lambda o: o.M, lambda o: o.P - o.E_phi @ o.P @ o.E_phi.T + o.K @ o.D @ o.K.T
)
_add(
    "overview phi M phi*",
    _O + "appendix",
    lambda o: o.phi @ o.M @ o.phi.T,
    lambda o: o.P + o.phi_tilde @ o.P + o.P @ o.phi_tilde.T + o.phi @ o.K @ o.D @ o.K.T @ o.phi.T,
)
_add(
    "overview 5.3",
    _O + "(5.2)-(5.3)",
    lambda o: o.Mass.inv @ o.H @ o.phi,
    lambda o: _W(o).T @ o.D.inv @ o.H @ o.psi,
)
_add(
    "overview 5.5",
    _O + "(5.4)-(5.5)",
    lambda o: o.phi.T @ o.H.T @ o.Mass.inv @ o.H @ o.phi,
    lambda o: o.psi.T @ o.H.T @ o.D.inv @ o.H @ o.psi,
)

# --- the DARTS course -------------------------------------------------------------------------------------------------

_T = "DARTS unit 7, "
_add("darts KH", _T + "identities", lambda o: o.psi.inv - o.phi.inv, lambda o: o.K @ o.H)
_add("darts psi^-1 phi", _T + "identities", lambda o: o.psi.inv @ o.phi, lambda o: _E(o) + o.K @ o.H @ o.phi)
_add("darts phi psi^-1", _T + "identities", lambda o: o.phi @ o.psi.inv, lambda o: _E(o) + o.phi @ o.K @ o.H)
_add("darts phi^-1 psi", _T + "identities", lambda o: o.phi.inv @ o.psi, lambda o: _E(o) - o.K @ o.H @ o.psi)
_add("darts psi phi^-1", _T + "identities", lambda o: o.psi @ o.phi.inv, lambda o: _E(o) - o.psi @ o.K @ o.H)
_add("darts 7.12", _T + "(7.12)", lambda o: _W(o) @ o.H @ o.phi, lambda o: o.H @ o.psi)
_add("darts 7.12b", _T + "(7.12)", lambda o: o.phi @ o.K @ _W(o), lambda o: o.psi @ o.K)
_add("darts 7.12c", _T + "(7.12)", lambda o: _V(o) @ o.H @ o.psi, lambda o: o.H @ o.phi)
_add("darts 7.12d", _T + "(7.12)", lambda o: o.psi @ o.K @ _V(o), lambda o: o.phi @ o.K)
_add("darts 7.15", _T + "(7.15)", lambda o: o.psi @ o.M @ o.phi.T, lambda o: o.psi @ o.P + o.P @ o.phi_tilde.T)
_add("darts D", _T + "another identity", lambda o: o.H @ o.psi @ o.M @ o.psi.T @ o.H.T, lambda o: o.D, "bare")
_add(
    "darts D with armature",
    _T + "noise included",
    lambda o: o.H @ o.psi @ o.M @ o.psi.T @ o.H.T + _W(o) @ o.armature @ _W(o).T,
    lambda o: o.D,
)
_add(
    "darts 7.24",
    _T + "step 2",
    lambda o: _W(o) @ o.H @ o.phi @ o.M @ o.phi.T,
    lambda o: o.H @ o.psi @ o.P + o.D @ o.K.T @ o.phi.T,
)
_add("darts 7.30", _T + "(7.30)", lambda o: o.phi.T @ (_E(o) - o.H.T @ o.K.T @ o.psi.T), lambda o: o.psi.T)
_add("darts 7.33", _T + "(7.33): nu = G*(alpha - a)", lambda o: o.G.T @ o.psi.T @ o.H.T, _I, "bare")
_add("darts 7.33b", _T + "(7.33): what a adds to alpha is not seen", lambda o: o.G.T @ o.psi.T, lambda o: o.G.T, "bare")
_add(
    "darts 7.36",
    _T + "(7.36)-(7.38): gravity by nu-bar = nu - K* phi* E g",
    lambda o: o.psi.T @ o.E,
    lambda o: o.phi.T @ o.E - o.psi.T @ o.H.T @ o.K.T @ o.phi.T @ o.E,
)
_add("darts 7.26", _T + "(7.26)", lambda o: o.psi @ o.K @ _V(o), lambda o: o.phi @ o.K)
_add("darts 7.26b", _T + "(7.26)", lambda o: o.psi @ o.K @ o.H @ o.phi + o.psi, lambda o: o.phi)


def _omega(o: Bundle) -> Operator:
    return o.psi.T @ o.H.T @ o.D.inv @ o.H @ o.psi


def _full(o: Bundle) -> Operator:
    """phi M phi*: blocks of the mass matrix before projection on active and passive degrees."""
    return o.phi @ o.M @ o.phi.T


def _S_pp(o: Bundle) -> Operator:
    return o.pi_p @ _W(o).T @ o.D.inv @ _W(o) @ o.pi_p


_add("S_pp", _T + "(17.11a)", lambda o: o.pi_p @ (o.H @ _full(o) @ o.H.T + o.armature).inv @ o.pi_p, _S_pp, "hybrid")
_add(
    "S_ap",
    _T + "(17.11b)",
    lambda o: o.H_a @ _full(o) @ o.H.T @ _S_pp(o),
    lambda o: o.H_a @ (o.psi @ o.K + o.P @ o.psi.T @ o.H.T @ o.D.inv @ _W(o)) @ o.pi_p,
    "hybrid",
)
_add(
    "S_ap 2",
    _T + "(17.11b), second form",
    lambda o: o.H_a @ _full(o) @ o.H.T @ _S_pp(o),
    lambda o: o.H_a @ ((o.psi - o.P @ _omega(o)) @ o.K + o.P @ o.psi.T @ o.H.T @ o.D.inv) @ o.pi_p,
    "hybrid",
)
_add(
    "S_aa",
    _T + "(17.11c), noise included",
    lambda o: o.H_a @ (_full(o) - _full(o) @ o.H.T @ _S_pp(o) @ o.H @ _full(o)) @ o.H_a.T,
    lambda o: o.H_a @ (o.psi @ _pp(o) @ o.psi.T - o.P @ _omega(o) @ o.P) @ o.H_a.T,
    "hybrid",
)
_add(
    "S_aa 2",
    _T + "(17.11c), second form",
    lambda o: o.H_a @ (_full(o) - _full(o) @ o.H.T @ _S_pp(o) @ o.H @ _full(o)) @ o.H_a.T,
    lambda o: o.H_a @ ((o.psi - o.P @ _omega(o)) @ o.P + o.P @ o.psi_tilde.T) @ o.H_a.T,
    "hybrid",
)
_add(
    "passive Riccati",
    _T + "passive system",
    lambda o: o.M,
    lambda o: o.P - o.E_phi @ o.P @ o.E_psi.T,
    "hybrid",
)

# --- the linearization paper (lemmas 4.6, 4.7, 4.9 and A.1-A.5 take blocks of one's own: see `decomposition`) ---------

_N = "linearization "
_add("linearization 2.18", _N + "(2.18)", lambda o: o.E_phi @ o.phi, lambda o: o.phi @ o.E_phi)
_add("linearization 2.18b", _N + "(2.18)", lambda o: o.E_phi @ o.phi, lambda o: o.phi_tilde)
_add(
    "linearization 3.6",
    _N + "lemma 3.2 (3.6)",
    lambda o: o.phi @ o.M @ o.phi.T,
    lambda o: o.phi @ o.R + o.R @ o.phi_tilde.T,
)
_add("linearization 4.2", _N + "lemma 4.2 (4.6)", _mass, lambda o: _V(o) @ o.D @ _V(o).T)
_add("linearization 4.3", _N + "lemma 4.3 (4.7)", lambda o: _V(o).inv, _W)
_add("linearization 4.4", _N + "lemma 4.4 (4.8)", lambda o: _mass(o).inv, lambda o: _W(o).T @ o.D.inv @ _W(o))
_add("linearization 4.5a", _N + "lemma 4.5 (4.9)", lambda o: _W(o) @ o.H @ o.phi, lambda o: o.H @ o.psi)
_add(
    "linearization 4.5b",
    _N + "lemma 4.5 (4.9)",
    lambda o: o.Mass.inv @ o.H @ o.phi @ o.M @ o.phi.T,
    lambda o: _W(o).T @ o.D.inv @ o.H @ o.psi @ o.P + o.K.T @ o.psi.T,
)
_add(
    "linearization 4.8",
    _N + "lemma 4.8 (4.20)",
    _omega,
    lambda o: o.Upsilon + o.psi_tilde.T @ o.Upsilon + o.Upsilon @ o.psi_tilde,
    "chain",
)
_add(
    "linearization 4.19",
    _N + "(4.19)",
    lambda o: o.Upsilon,
    lambda o: o.E_psi.T @ o.Upsilon @ o.E_psi + o.H.T @ o.D.inv @ o.H,
    "chain",
)
_add(
    "linearization A.21",
    _N + "(A.21)",
    lambda o: _W(o).T @ o.D.inv @ o.H @ o.P @ o.phi_tilde.T,
    lambda o: o.K.T @ o.psi.T,
)

# --- what rewriting uses, each in the direction of fewer sweeps: see `rules` ------------------------------------------

for _rule in (*RULES, *OPTIONAL.values()):
    _add(_rule.name, _rule.equation, _rule.left, _rule.right, "bare" if _rule.condition else "all")
