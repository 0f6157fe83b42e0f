"""Expressions as plain mathematics: hashable trees of symbols, without a number in them.

An operator is such a tree plus the arrays its atoms refer to by slot (see `Operator`). Being hashable, a tree is a
static argument of a compiled function, a cache key, and something rules can match by equality.

The constructors `product`, `add`, `scale`, `adjoint` and `inverse` keep trees tidy: products and sums are flat,
identities vanish in products, adjoints and inverses sit on single factors or on whole sums.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from itertools import pairwise
from typing import TypeAlias

from jaxsoa.algebra.spaces import Space


@dataclasses.dataclass(frozen=True)
class Atom:
    """A symbol of the algebra; `slot` says which of the operator's data it reads, `extra` what else is static."""

    name: str
    slot: int
    codomain: Space
    domain: Space
    extra: tuple = ()


@dataclasses.dataclass(frozen=True)
class Identity:
    space: Space

    @property
    def domain(self) -> Space:
        return self.space

    @property
    def codomain(self) -> Space:
        return self.space


@dataclasses.dataclass(frozen=True)
class Zero:
    codomain: Space
    domain: Space


@dataclasses.dataclass(frozen=True)
class Product:
    factors: tuple[Term, ...]

    @property
    def domain(self) -> Space:
        return self.factors[-1].domain

    @property
    def codomain(self) -> Space:
        return self.factors[0].codomain


@dataclasses.dataclass(frozen=True)
class Sum:
    """Linear combination: (coefficient, term) pairs; no term is itself a sum with coefficient one."""

    terms: tuple[tuple[float, Term], ...]

    @property
    def domain(self) -> Space:
        return self.terms[0][1].domain

    @property
    def codomain(self) -> Space:
        return self.terms[0][1].codomain


@dataclasses.dataclass(frozen=True)
class _Turned:
    """What leads back from where its term leads."""

    term: Term

    @property
    def domain(self) -> Space:
        return self.term.codomain

    @property
    def codomain(self) -> Space:
        return self.term.domain


class Adjoint(_Turned):
    """The adjoint of a term."""


class Inverse(_Turned):
    """The inverse of a term."""


@dataclasses.dataclass(frozen=True)
class Named:
    """A symbol that stands for an expression, with its inverse where the algebra knows one.

    `opaque` symbols print under their own name (the mass matrix); others print what they stand for.
    """

    symbol: str
    definition: Term
    known_inverse: Term | None = None
    symmetric: bool = False
    opaque: bool = True

    @property
    def domain(self) -> Space:
        return self.definition.domain

    @property
    def codomain(self) -> Space:
        return self.definition.codomain


Term: TypeAlias = Atom | Identity | Zero | Product | Sum | Adjoint | Inverse | Named

SYMMETRIC_ATOMS = frozenset({"M", "P", "D", "A", "R", "Upsilon", "pi_a", "pi_p"})


class SpaceError(ValueError):
    """Operators whose spaces do not fit were composed."""


def is_symmetric(term: Term) -> bool:
    if isinstance(term, Atom):
        return term.name in SYMMETRIC_ATOMS or (term.name in ("matrix", "block") and term.extra[1])
    return isinstance(term, Identity) or (isinstance(term, Named) and term.symmetric)


def product(*factors: Term) -> Term:
    flat: list[Term] = []
    for factor in factors:
        flat.extend(factor.factors if isinstance(factor, Product) else (factor,))
    for left, right in pairwise(flat):
        if left.domain != right.codomain:
            from jaxsoa.algebra.printing import text

            raise SpaceError(
                f"Cannot compose ({text(left)}) with ({text(right)}): the left one acts on {left.domain}, "
                f"the right one gives {right.codomain}."
            )
    if any(isinstance(factor, Zero) for factor in flat):
        return Zero(flat[0].codomain, flat[-1].domain)
    coefficient = 1.0
    kept: list[Term] = []
    for factor in flat:
        if isinstance(factor, Identity):
            continue
        if isinstance(factor, Sum) and len(factor.terms) == 1:
            coefficient *= factor.terms[0][0]
            inner = factor.terms[0][1]
            kept.extend(inner.factors if isinstance(inner, Product) else (inner,))
        else:
            kept.append(factor)
    kept = [factor for factor in kept if not isinstance(factor, Identity)]
    whole = Identity(flat[0].codomain) if not kept else kept[0] if len(kept) == 1 else Product(tuple(kept))
    return whole if coefficient == 1.0 else scale(coefficient, whole)


def add(*weighted: tuple[float, Term]) -> Term:
    """Linear combination, equal terms collected; order of first appearance is kept."""
    first = weighted[0][1]
    collected: dict[Term, float] = {}
    for coefficient, term in weighted:
        if term.domain != first.domain or term.codomain != first.codomain:
            from jaxsoa.algebra.printing import text

            raise SpaceError(
                f"Cannot add ({text(first)}) and ({text(term)}): the first maps {first.domain} to {first.codomain}, "
                f"the second {term.domain} to {term.codomain}."
            )
        inner = term.terms if isinstance(term, Sum) else ((1.0, term),)
        for c, t in inner:
            if not isinstance(t, Zero):
                collected[t] = collected.get(t, 0.0) + coefficient * c
    kept = tuple((c, t) for t, c in collected.items() if c != 0)
    if not kept:
        return Zero(first.codomain, first.domain)
    if len(kept) == 1 and kept[0][0] == 1.0:
        return kept[0][1]
    return Sum(kept)


def scale(coefficient: float, term: Term) -> Term:
    return add((float(coefficient), term))


def adjoint(term: Term) -> Term:
    if is_symmetric(term):
        return term
    match term:
        case Adjoint(inner):
            return inner
        case Product(factors):
            return product(*(adjoint(factor) for factor in reversed(factors)))
        case Zero(codomain, domain):
            return Zero(domain, codomain)
        case Sum(terms) if len(terms) == 1:
            return scale(terms[0][0], adjoint(terms[0][1]))
        case Inverse(inner) if is_symmetric(inner):
            return term
    return Adjoint(term)


def inverse(term: Term) -> Term:
    if term.domain.size != term.codomain.size:
        from jaxsoa.algebra.printing import text

        raise SpaceError(f"({text(term)}) has no inverse: it maps {term.domain} to {term.codomain}.")
    match term:
        case Identity():
            return term
        case Inverse(inner):
            return inner
        case Adjoint(inner):
            return adjoint(inverse(inner))
        case Product(factors) if all(f.domain == f.codomain for f in factors):
            return product(*(inverse(factor) for factor in reversed(factors)))
        case Sum(terms) if len(terms) == 1:
            return scale(1 / terms[0][0], inverse(terms[0][1]))
        case Zero():
            raise SpaceError("The zero operator has no inverse.")
    return Inverse(term)


def children(term: Term) -> tuple[Term, ...]:
    match term:
        case Product(factors):
            return factors
        case Sum(terms):
            return tuple(t for _, t in terms)
        case Adjoint(inner) | Inverse(inner):
            return (inner,)
    return ()


def atoms(term: Term) -> Iterable[Atom]:
    """Every atom, definitions of names included."""
    if isinstance(term, Atom):
        yield term
    elif isinstance(term, Named):
        yield from atoms(term.definition)
        if term.known_inverse is not None:
            yield from atoms(term.known_inverse)
    for child in children(term):
        yield from atoms(child)


def rebuild(term: Term, change: Callable[[Term], Term]) -> Term:
    """The term with `change` applied to its direct parts, tidied by the constructors."""
    match term:
        case Product(factors):
            return product(*(change(factor) for factor in factors))
        case Sum(terms):
            return add(*((c, change(t)) for c, t in terms))
        case Adjoint(inner):
            return adjoint(change(inner))
        case Inverse(inner):
            return inverse(change(inner))
    return term


def relabel(term: Term, slots: Mapping[int, int]) -> Term:
    """The same term with its atoms reading other slots. Nothing else changes, so no tidying."""
    if all(old == new for old, new in slots.items()):
        return term

    @cache
    def go(t: Term) -> Term:
        match t:
            case Atom():
                return dataclasses.replace(t, slot=slots[t.slot])
            case Product(factors):
                return Product(tuple(go(f) for f in factors))
            case Sum(terms):
                return Sum(tuple((c, go(s)) for c, s in terms))
            case Adjoint(inner):
                return Adjoint(go(inner))
            case Inverse(inner):
                return Inverse(go(inner))
            case Named():
                known = None if t.known_inverse is None else go(t.known_inverse)
                return dataclasses.replace(t, definition=go(t.definition), known_inverse=known)
        return t

    return go(term)
