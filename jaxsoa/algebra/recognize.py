"""Seeing the mass matrix in an expression that was written out, so that its inverse is the innovations one."""

from __future__ import annotations

from jaxsoa.algebra import terms as t
from jaxsoa.algebra.bundle import mass
from jaxsoa.algebra.state import State
from jaxsoa.algebra.terms import Atom, Term
from jaxsoa.algebra.words import Words, expand


def recognized(term: Term, data: tuple) -> Term:
    """The mass matrix under its name, if the product or sum is one when multiplied out; else the term as it is.

    With armature the mass matrix is H phi M phi* H* + A, without it H phi M phi* H* (JPL 88-11, 3.20).
    """
    if not isinstance(term, t.Product | t.Sum):
        return term
    return mass_among(expand(term), data) or term


def mass_among(words: Words, data: tuple) -> Term | None:
    """The mass matrix that the words are the definition of."""
    for letter in {x for word in words.weights for x in word}:
        if isinstance(letter, Atom) and letter.name == "H" and isinstance(data[letter.slot], State):
            named = mass(letter, data[letter.slot].has_armature)
            if expand(named.definition).weights == words.weights:
                return named
    return None
