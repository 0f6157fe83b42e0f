"""Expressions multiplied out: sums of words, a word being a product of letters, and back to factored form.

Rules match runs of letters. The filter I - H psi K is a letter of its own (W), its inverse I + H phi K is W^-1: kept
whole they make the papers' forms; multiplied out they would hide them.
"""

from __future__ import annotations

from typing import NamedTuple

from jaxsoa.algebra import terms as t
from jaxsoa.algebra.bundle import whitening
from jaxsoa.algebra.program import compile_program
from jaxsoa.algebra.spaces import Space
from jaxsoa.algebra.terms import Term

Word = tuple[Term, ...]


class Words(NamedTuple):
    """Linear combination of words between two spaces."""

    codomain: Space
    domain: Space
    weights: dict[Word, float]

    def times(self, coefficient: float) -> Words:
        return self._replace(weights={w: coefficient * c for w, c in self.weights.items()})

    def plus(self, other: Words) -> Words:
        weights = dict(self.weights)
        for word, c in other.weights.items():
            weights[word] = weights.get(word, 0.0) + c
        return self._replace(weights={w: c for w, c in weights.items() if c != 0})

    def adjoint(self) -> Words:
        flipped = {tuple(t.adjoint(letter) for letter in reversed(w)): c for w, c in self.weights.items()}
        return Words(self.domain, self.codomain, flipped)


def expand(term: Term) -> Words:
    """Multiply out. Sums that are the whitening filter or its inverse become single letters."""
    one = {(): 1.0}
    match term:
        case t.Identity():
            return Words(term.space, term.space, one)
        case t.Zero():
            return Words(term.codomain, term.domain, {})
        case t.Product(factors):
            result = expand(factors[0])
            for factor in factors[1:]:
                right = expand(factor)
                weights: dict[Word, float] = {}
                for a, x in result.weights.items():
                    for b, y in right.weights.items():
                        weights[a + b] = weights.get(a + b, 0.0) + x * y
                result = Words(result.codomain, right.domain, {w: c for w, c in weights.items() if c != 0})
            return result
        case t.Sum(parts):
            recognized = recognize(term)
            if recognized is not None:
                return Words(term.codomain, term.domain, {(recognized,): 1.0})
            result = Words(term.codomain, term.domain, {})
            for c, part in parts:
                result = result.plus(expand(part).times(c))
            return result
        case t.Adjoint(inner) if isinstance(inner, t.Sum | t.Inverse):
            return expand(inner).adjoint()
        case t.Inverse(inner) if isinstance(inner, t.Sum) and recognize(inner) is not None:
            letter = recognize(inner)
            assert letter is not None
            return Words(term.codomain, term.domain, {(t.inverse(letter),): 1.0})
    return Words(term.codomain, term.domain, {(term,): 1.0})


def recognize(term: t.Sum) -> Term | None:
    """W for I - H psi K, W^-1 for I + H phi K, and their adjoints."""
    for atom in t.atoms(term):
        if atom.name == "H":
            W = whitening(atom)
            assert W.known_inverse is not None
            for known, letter in ((W.definition, W), (W.known_inverse, t.Inverse(W))):
                if _same(term, known):
                    return letter
                assert isinstance(known, t.Sum)
                flipped = t.add(*((c, t.adjoint(part)) for c, part in known.terms))
                if _same(term, flipped):
                    return t.adjoint(letter)
    return None


def _same(a: Term, b: Term) -> bool:
    return (
        isinstance(a, t.Sum)
        and isinstance(b, t.Sum)
        and dict((p, c) for c, p in a.terms) == dict((p, c) for c, p in b.terms)
    )


# --- back to an expression --------------------------------------------------------------------------------------------


def factor(words: Words) -> Term:
    """Common first factors to the front, then common last factors to the back."""
    if not words.weights:
        return t.Zero(words.codomain, words.domain)
    return _factor(list(words.weights.items()), words.codomain, words.domain)


def _factor(items: list[tuple[Word, float]], codomain: Space, domain: Space) -> Term:
    if len(items) == 1:
        word, c = items[0]
        return t.scale(c, t.product(t.Identity(codomain), *word))
    for end in (0, -1):
        groups: dict[Term | None, list[tuple[Word, float]]] = {}
        for word, c in items:
            groups.setdefault(word[end] if word else None, []).append((word, c))
        if any(len(group) > 1 and letter is not None for letter, group in groups.items()):
            return _sum([_one_group(letter, group, end, codomain, domain) for letter, group in groups.items()])
    return _sum([(c, t.product(t.Identity(codomain), *word)) for word, c in items])


def _sum(parts: list[tuple[float, Term]]) -> Term:
    """Parts with a plus sign first."""
    return t.add(*sorted(parts, key=lambda part: part[0] < 0))


def _one_group(
    letter: Term | None, group: list[tuple[Word, float]], end: int, codomain: Space, domain: Space
) -> tuple[float, Term]:
    if letter is None or len(group) == 1:
        word, c = group[0]
        return c, t.product(t.Identity(codomain), *word)
    sign = -1.0 if all(c < 0 for _, c in group) else 1.0
    if end == 0:
        rest = _factor([(word[1:], sign * c) for word, c in group], letter.domain, domain)
        return sign, t.product(letter, rest)
    rest = _factor([(word[:-1], sign * c) for word, c in group], codomain, letter.codomain)
    return sign, t.product(rest, letter)


# --- how large a word is ----------------------------------------------------------------------------------------------


def letter_size(letter: Term) -> tuple[int, int]:
    """(sweeps, weight) of a letter; names weigh more than what they stand for, so that writing them out is progress."""
    inner = letter
    while isinstance(inner, t.Adjoint | t.Inverse):
        inner = inner.term
    sweeps = compile_program(letter).sweeps
    if isinstance(inner, t.Named):
        return sweeps, 3 if inner.symbol == "W" else 20
    return sweeps, 1


def word_size(word: Word) -> tuple[int, int]:
    sizes = [letter_size(letter) for letter in word]
    return sum(s for s, _ in sizes), sum(w for _, w in sizes)
