"""The rules that rewriting uses: each an identity of the papers read in the direction of fewer sweeps.

A rule replaces a run of letters by a sum of runs, each smaller in (sweeps, letters); its adjoint comes with it.
Notation: H, phi, psi, K ... are the operators of one bundle, `*` the adjoint, `^-1` the inverse, W = I - H psi K.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable
from functools import lru_cache

from jaxsoa.algebra import terms as t
from jaxsoa.algebra.bundle import Bundle, mass, whitening
from jaxsoa.algebra.expression import Operator
from jaxsoa.algebra.spaces import Space
from jaxsoa.algebra.state import State
from jaxsoa.algebra.terms import Atom, Term
from jaxsoa.algebra.words import Word

Replacement = list[tuple[float, Word]]


@dataclasses.dataclass(frozen=True)
class Rule:
    """`pattern` and `result` in the notation above; `holds` says for which robots."""

    name: str
    equation: str
    pattern: str
    result: tuple[tuple[float, str], ...]
    holds: Callable[[State], bool] = lambda state: True
    condition: str = ""

    def adjoint(self) -> Rule:
        result = tuple((c, _flip(text)) for c, text in self.result)
        return dataclasses.replace(self, pattern=_flip(self.pattern), result=result, name=f"{self.name}, adjoint")

    def left(self, o: Bundle) -> Operator:
        """The pattern as an operator."""
        return _operator(o, self.pattern)

    def right(self, o: Bundle) -> Operator:
        """The result as one, of the same spaces."""
        parts = [c * _operator(o, text, self.left(o)) for c, text in self.result]
        return functools.reduce(operator.add, parts)

    def __str__(self) -> str:
        right = " ".join(f"{'-' if c < 0 else '+'} {text or 'I'}" for c, text in self.result).removeprefix("+ ")
        condition = f" ({self.condition})" if self.condition else ""
        return f"{self.name}: {self.pattern} = {right}   [{self.equation}]{condition}"

    def match(self, word: Word, data: tuple) -> tuple[int, int, Replacement] | None:
        """(start, stop, replacement) of the first place in a word where the rule applies."""
        tokens = self.pattern.split()
        for start in range(len(word) - len(tokens) + 1):
            run = word[start : start + len(tokens)]
            slot = _common_slot(run, tokens)
            if slot is None or not isinstance(data[slot], State) or not self.holds(data[slot]):
                continue
            joints, links = _spaces(data[slot])
            if all(
                _letter(token, slot, joints, links, data[slot].has_armature) == x
                for token, x in zip(tokens, run, strict=True)
            ):
                replacement = [
                    (c, tuple(_letter(token, slot, joints, links, data[slot].has_armature) for token in text.split()))
                    for c, text in self.result
                ]
                return start, start + len(tokens), replacement
        return None


def _operator(o: Bundle, text: str, like: Operator | None = None) -> Operator:
    """A run of letters; nothing is the identity of the space that `like` leads to."""
    letters = [_letter(token, 0, o.joints, o.links, o.state.has_armature) for token in text.split()]
    nothing = t.Identity(o.joints if like is None else like.codomain)
    return Operator(t.product(*letters) if letters else nothing, (o.state,))


def _flip(text: str) -> str:
    """Adjoint of a run: reversed, stars toggled."""
    flipped = []
    for token in reversed(text.split()):
        base, inv = (token.removesuffix("^-1"), "^-1") if token.endswith("^-1") else (token, "")
        if base.rstrip("*") in t.SYMMETRIC_ATOMS | {"Mass"}:
            flipped.append(token)
        else:
            flipped.append((base.removesuffix("*") if base.endswith("*") else base + "*") + inv)
    return " ".join(flipped)


def _common_slot(run: Word, tokens: list[str]) -> int | None:
    for letter, token in zip(run, tokens, strict=True):
        if _base_name(letter) != token.removesuffix("^-1").removesuffix("*"):
            return None
    slots = {atom.slot for letter in run for atom in t.atoms(letter)}
    return slots.pop() if len(slots) == 1 else None


def _base_name(letter: Term) -> str | None:
    while isinstance(letter, t.Adjoint | t.Inverse):
        letter = letter.term
    if isinstance(letter, Atom):
        return letter.name
    return letter.symbol if isinstance(letter, t.Named) else None


def _spaces(state: State) -> tuple[Space, Space]:
    from jaxsoa.algebra.spaces import joint_space, link_space

    return joint_space(state.topology), link_space(state.topology)


_JOINT_TO_LINK = {"G", "K", "L"}
_LINK_TO_JOINT = {"H", "H_a"}
_JOINTS = {"D", "A", "pi_a", "pi_p"}


@lru_cache(maxsize=4096)
def _letter(token: str, slot: int, joints: Space, links: Space, has_armature: bool) -> Term:
    base, inverted = (token.removesuffix("^-1"), True) if token.endswith("^-1") else (token, False)
    name, starred = (base.removesuffix("*"), True) if base.endswith("*") else (base, False)
    H = Atom("H", slot, joints, links)
    if name == "W":
        letter: Term = whitening(H)
    elif name == "Mass":
        letter = mass(H, has_armature)
    elif name in ("phi_tilde", "psi_tilde"):
        sweep = Atom(name.removesuffix("_tilde"), slot, links, links)
        letter = t.Named(name, t.add((1.0, sweep), (-1.0, t.Identity(links))))
    elif name in _LINK_TO_JOINT:
        letter = Atom(name, slot, joints, links)
    elif name in _JOINT_TO_LINK:
        letter = Atom(name, slot, links, joints)
    else:
        letter = Atom(name, slot, joints, joints) if name in _JOINTS else Atom(name, slot, links, links)
    letter = t.inverse(letter) if inverted else letter
    return t.adjoint(letter) if starred else letter


def _no_armature(state: State) -> bool:
    return not state.has_armature


_BARE = {"holds": _no_armature, "condition": "no armature"}

RULES: tuple[Rule, ...] = (
    Rule("innovations inverse of the mass matrix", "JPL 88-11 (4.16), overview (4.6)", "Mass^-1", ((1, "W* D^-1 W"),)),
    Rule("whitened mass matrix", "JPL 88-11 (4.11)", "W Mass W*", ((1, "D"),)),
    Rule("filter absorbs propagation", "JPL 88-11 (5.4), (a.35), overview (5.1)", "W H phi", ((1, "H psi"),)),
    Rule("gain absorbs filter", "JPL 88-11 (a.41)", "phi K W", ((1, "psi K"),)),
    Rule("inverse filter on articulated propagation", "JPL 88-11 (a.32)", "W^-1 H psi", ((1, "H phi"),)),
    Rule("articulated gain on inverse filter", "JPL 88-11 (a.39)", "psi K W^-1", ((1, "phi K"),)),
    Rule("difference of propagations", "JPL 88-11 (a.18)", "psi K H phi", ((1, "phi"), (-1, "psi"))),
    Rule("difference of propagations, exchanged", "JPL 88-11 (a.28)", "phi K H psi", ((1, "phi"), (-1, "psi"))),
    Rule("whitened inertia collapses", "DARTS 7: H ψ M ψ* H* = D", "H psi M psi* H*", ((1, "D"),), **_BARE),
    Rule(
        "projected Riccati decomposition",
        "linearization (A.19)-(A.21), DARTS (7.15)",
        "H psi M phi*",
        ((1, "H psi P"), (1, "D K* phi*")),
    ),
    Rule("Riccati decomposition", "JPL 88-11 (a.46)", "psi M phi*", ((1, "psi P"), (1, "P phi*"), (-1, "P"))),
    Rule(
        "Riccati decomposition, twice articulated",
        "JPL 88-11 (a.47)",
        "psi M psi*",
        ((1, "psi P"), (1, "P psi*"), (-1, "P")),
        **_BARE,
    ),
    Rule("Kalman gain", "JPL 88-11 (5.12), (a.2)", "P H* D^-1", ((1, "G"),)),
    Rule("innovations covariance", "JPL 88-11 (4.6), (a.1)", "H P H*", ((1, "D"),), **_BARE),
    Rule("gain is a right inverse", "JPL 88-11 (a.1)-(a.2)", "H G", ((1, ""),), **_BARE),
    Rule("update is a projection", "overview, proof of lemma 4.1", "tau_bar P tau_bar*", ((1, "tau_bar P"),), **_BARE),
    Rule("strictly causal propagation", "JPL 88-11 (a.9)", "phi E_phi", ((1, "phi"), (-1, ""))),
    Rule("strictly causal propagation, before", "linearization (2.18)", "E_phi phi", ((1, "phi"), (-1, ""))),
    Rule("strictly causal articulated propagation", "JPL 88-11 (a.8)", "psi E_psi", ((1, "psi"), (-1, ""))),
    Rule("strictly causal articulated propagation, before", "DARTS (7.8)", "E_psi psi", ((1, "psi"), (-1, ""))),
    Rule("shift of phi", "JPL 88-11 (a.11)", "S Delta_phi", ((1, "E_phi"),)),
    Rule("shift of psi", "JPL 88-11 (a.10)", "S Delta_psi", ((1, "E_psi"),)),
    Rule("shifted gain", "JPL 88-11 (a.12)", "S L", ((1, "K"),)),
    Rule("gain before the shift", "JPL 88-11 (a.12)", "Delta_phi G", ((1, "L"),)),
    Rule("gain shifted", "overview, section 4", "E_phi G", ((1, "K"),)),
    Rule("articulated shift", "overview (4.3)", "E_phi tau_bar", ((1, "E_psi"),)),
)
"""Applied in this order, each to every place it fits, until none does."""

OPTIONAL: dict[str, Rule] = {
    "a.50": Rule(
        "identity A.7",
        "JPL 88-11 (a.50)",
        "W* D^-1 H psi M phi*",
        ((1, "W* D^-1 H psi_tilde P"), (1, "K* psi* tau_bar*"), (1, "G*")),
    ),
    "3.2": Rule(
        "composite-body decomposition",
        "linearization lemma 3.2, (A.1)",
        "phi M phi*",
        ((1, "phi R"), (1, "R phi*"), (-1, "R")),
    ),
}
"""Rules that lead elsewhere than the default ones; name them in `prefer`."""


def with_adjoints(rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
    result = []
    for rule in rules:
        flipped = rule.adjoint()
        result.append(rule)
        if flipped.pattern != rule.pattern:
            result.append(flipped)
    return tuple(result)
