"""Lemma A.1 of the linearization paper as a rule for any block-diagonal letter, the one with numbers of its own.

    psi X phi* = S + psi~ S + S phi~* = psi S + S phi* - S,      S = E_psi S E_phi* + X       (A.2)

so that the two sweeps no longer wait for each other: what makes lemma 4.7 of lemma 4.6. S is found by one recursion
over 6x6 blocks, which joins the operator's data.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp

from jaxsoa.algebra import terms as t
from jaxsoa.algebra.state import Blocks, State, inboard_blocks
from jaxsoa.algebra.terms import Adjoint, Atom, Term
from jaxsoa.algebra.words import Word

LEMMA_A1 = "linearization lemma A.1 (A.2), lemma 4.7"


def decomposed(word: Word, data: tuple) -> tuple[list[tuple[float, Word]] | None, tuple]:
    """The word with its first psi X phi* (or phi X psi*) taken apart, and the data that this needs."""
    for start in range(len(word) - 2):
        run = word[start : start + 3]
        slot = _slot(run, data)
        if slot is None:
            continue
        left, block, right = run
        flipped = isinstance(left, Atom) and left.name == "phi"
        X = block.term if isinstance(block, Adjoint) else block
        assert isinstance(X, Atom)
        value = data[X.slot].value
        turned = isinstance(block, Adjoint) != flipped  # psi X* phi* of a plain letter, or the adjoint of psi X phi*
        S = _swept(data[slot], jnp.swapaxes(value, 1, 2) if turned else value)
        name, star = X.extra[0], "*" if turned else ""
        letter: Term = Atom("block", len(data), X.codomain, X.domain, (f"[{name}{star}]", False))
        letter = t.adjoint(letter) if flipped else letter
        head, tail = word[:start], word[start + 3 :]
        parts = [(1.0, (left, letter)), (1.0, (letter, right)), (-1.0, (letter,))]
        return [(c, (*head, *part, *tail)) for c, part in parts], (*data, Blocks(S))
    return None, data


def _slot(run: Word, data: tuple) -> int | None:
    """The bundle whose psi and phi stand on both sides of a block letter of link space."""
    left, block, right = run
    inner = block.term if isinstance(block, Adjoint) else block
    if not isinstance(inner, Atom) or inner.name != "block" or inner.domain != inner.codomain:
        return None
    if not isinstance(left, Atom) or not isinstance(right, Adjoint) or not isinstance(right.term, Atom):
        return None
    if {left.name, right.term.name} != {"psi", "phi"} or left.slot != right.term.slot:
        return None
    return left.slot if isinstance(data[left.slot], State) else None


@partial(jax.jit, inline=True)
def _swept(state: State, X):
    return inboard_blocks(state, X, "psi", "phi")
