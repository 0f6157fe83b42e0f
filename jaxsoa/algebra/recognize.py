"""Seeing the mass matrix in an expression that was written out, and what else its factorization inverts."""

from __future__ import annotations

from jaxsoa.algebra import terms as t
from jaxsoa.algebra.bundle import mass
from jaxsoa.algebra.own_inertia import factored
from jaxsoa.algebra.state import State
from jaxsoa.algebra.terms import Atom, Term
from jaxsoa.algebra.words import Words, expand


def recognized(term: Term, data: tuple) -> tuple[Term, tuple]:
    """(term, data): under a name with a known inverse, if the product or sum is one; else as it is.

    With armature the mass matrix is H phi M phi* H* + A, without it H phi M phi* H* (JPL 88-11, 3.20). Other sums of
    the kind (J* J, M + k I) get a Riccati sweep of their own, whose results are added to the data.
    """
    if not isinstance(term, t.Product | t.Sum):
        return term, data
    known = mass_among(expand(term), data)
    if known is not None:
        return known, data
    own = factored(term, data)
    return (term, data) if own is None else (own[0], (*data, own[1]))


def mass_among(words: Words, data: tuple) -> Term | None:
    """The mass matrix that the words are the definition of."""
    for letter in {x for word in words.weights for x in word}:
        if isinstance(letter, Atom) and letter.name == "H" and isinstance(data[letter.slot], State):
            named = mass(letter, data[letter.slot].has_armature)
            if expand(named.definition).weights == words.weights:
                return named
    return None
