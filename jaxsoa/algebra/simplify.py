"""Rewriting an expression to fewer sweeps by the papers' identities, with the derivation on record.

An expression is multiplied out into words; rules replace runs of letters until none fits; the words are factored back.
Every rule replaces a word by words that are smaller in (sweeps, letters), a well-founded order, so rewriting ends; no
rule changes the value. `simplify` returns the step that needs the fewest sweeps, and among those the least arithmetic.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Sequence
from functools import partial

from jax.core import Tracer

from jaxsoa.algebra import terms as t
from jaxsoa.algebra.expression import Operator, merge, trim
from jaxsoa.algebra.own_blocks import LEMMA_A1, decomposed
from jaxsoa.algebra.program import compile_program
from jaxsoa.algebra.recognize import mass_among, recognized
from jaxsoa.algebra.rules import OPTIONAL, RULES, Rule, with_adjoints
from jaxsoa.algebra.state import State
from jaxsoa.algebra.terms import Atom, Term
from jaxsoa.algebra.words import Word, Words, expand, factor, word_size


@dataclasses.dataclass(frozen=True)
class Step:
    """One line of a derivation: by which rule (of which equation) one came to the expression."""

    rule: str
    equation: str
    expression: Operator

    def __str__(self) -> str:
        source = f"  [{self.equation}]" if self.equation else ""
        return f"= {self.expression}\n      {self.rule}{source}; {_count(self.expression)}"


@dataclasses.dataclass(frozen=True)
class Derivation:
    """An expression rewritten step by step. `result` is the last expression; printing shows every step."""

    start: Operator
    steps: tuple[Step, ...]

    @property
    def result(self) -> Operator:
        """The last expression, or the first if no identity applied."""
        return self.steps[-1].expression if self.steps else self.start

    def __str__(self) -> str:
        return "\n".join([f"  {self.start}\n      {_count(self.start)}", *(str(step) for step in self.steps)])

    def _repr_latex_(self) -> str:
        rows = [rf"&{self.start.latex()}"]
        for step in self.steps:
            rows.append(rf"={{}}&{step.expression.latex()} && \text{{{step.rule}}}")
        return "$$\\begin{aligned}" + r" \\ ".join(rows) + "\\end{aligned}$$"


def _count(operator: Operator) -> str:
    return "1 sweep" if operator.sweeps == 1 else f"{operator.sweeps} sweeps"


def simplify(operator: Operator, *, prefer: Sequence[str] = ()) -> Operator:
    """The expression rewritten to the fewest sweeps the rules reach; the value never changes.

    >>> o = soa.operators(robot, q)
    >>> print(soa.simplify((o.identity - o.H @ o.psi @ o.K) @ o.H @ o.phi))
    H ψ
    """
    derivation = derive(operator, prefer=prefer)
    return min((operator, *(step.expression for step in derivation.steps)), key=lambda op: _size(op.term))


def derive(operator: Operator, *, prefer: Sequence[str] = ()) -> Derivation:
    """Rewrite and keep every step. `prefer` puts rules of `rules.OPTIONAL` (such as "a.50") before the others.

    >>> o = soa.operators(robot, q)
    >>> print(soa.derive((o.identity - o.H @ o.psi @ o.K) @ o.H @ o.phi))
      (I - H ψ K) H φ
          2 sweeps
    = H ψ
          filter absorbs propagation  [JPL 88-11 (5.4), (a.35), overview (5.1)]; 1 sweep
    """
    rules = with_adjoints((*(OPTIONAL[name] for name in prefer), *RULES))
    _warn_of_strangers(operator)
    rewriter = _Rewriter(operator, rules)
    rewriter.run()
    return Derivation(operator, tuple(rewriter.steps))


def _warn_of_strangers(operator: Operator) -> None:
    """Operators that came into a jitted function as separate arguments share no arrays there, so no rule joins them."""
    states = [item for item in operator.data if isinstance(item, State)]
    traced = [item.topology for item in states if isinstance(item.offset, Tracer)]
    if len(set(traced)) < len(traced):
        warnings.warn(
            "The expression mixes operators of several bundles of one robot, which no identity joins. Operators that "
            "go into a jitted function as separate arguments become such: hand it the bundle, or one expression.",
            UserWarning,
            stacklevel=3,
        )


def _size(term: Term) -> tuple[int, int, int]:
    program = compile_program(term)
    return program.sweeps, program.cost, sum(1 for _ in t.atoms(term))


class _Rewriter:
    def __init__(self, operator: Operator, rules: tuple[Rule, ...], wrap: Callable[[Term], Term] = lambda term: term):
        self.data, self.rules, self.wrap = operator.data, rules, wrap
        self.words = expand(_without_names(operator.term))
        self.term = operator.term
        self.steps: list[Step] = []

    def run(self) -> None:
        self._inner_inverses()
        while self._definitions():
            pass
        moves = (self._cancel, *self._rule_moves(), self._tips, self._own_blocks)
        while any(move() for move in moves):
            pass
        self._gather_filters()

    def _record(self, rule: str, equation: str, term: Term | None = None) -> bool:
        term = factor(self.words) if term is None else term
        if term == self.term:
            return False
        self.term = term
        self.steps.append(Step(rule, equation, trim(Operator(self.wrap(term), self.data))))
        return True

    def _replace(self, change: Callable[[Word], list[tuple[float, Word]] | None]) -> bool:
        """Rewrite every word that `change` has an answer for."""
        result = Words(self.words.codomain, self.words.domain, {})
        changed = False
        for word, weight in self.words.weights.items():
            answer = change(word)
            if answer is None:
                result = result.plus(self.words._replace(weights={word: weight}))
                continue
            changed = True
            for c, new in answer:
                assert word_size(new) < word_size(word), "a rule must make words smaller"
                result = result.plus(self.words._replace(weights={new: c * weight}))
        self.words = result
        return changed

    # --- moves -------------------------------------------------------------------------------------------------

    def _inner_inverses(self) -> None:
        """What stands inside an inverse that the algebra has no rule for is simplified on its own."""
        for letter in dict.fromkeys(x for word in self.words.weights for x in word):
            if not isinstance(letter, t.Inverse):
                continue
            known, self.data = recognized(letter.term, self.data)
            if known != letter.term:
                self.words = _exchanged(self.words, letter, t.inverse(known))
                if isinstance(known, t.Named) and known.symbol == "Mass":
                    self._record("the mass matrix, written out", "JPL 88-11 (3.20)")
                else:
                    self._record("factors of a Riccati sweep of its own", "JPL 88-11 (4.16)")
            elif isinstance(letter.term, t.Sum):
                wrap = partial(_with_inverse_of, self.words, letter, self.wrap)
                inside = _Rewriter(Operator(letter.term, self.data), self.rules, wrap)
                inside.run()
                self.data = inside.data
                self.steps.extend(inside.steps)
                self.words = _exchanged(self.words, letter, t.inverse(inside.term))

    def _definitions(self) -> bool:
        """Names other than the mass matrix and the filter are written out."""
        named = _names_in(self.words)
        if not named:
            return False
        symbol = named[0].symbol
        new = Words(self.words.codomain, self.words.domain, {})
        for word, weight in self.words.weights.items():
            parts = [_written_out(letter, symbol) for letter in word]
            new = new.plus(expand(t.product(t.Identity(self.words.codomain), *parts)).times(weight))
        self.words = new
        equation = "JPL 88-11 (3.13)" if symbol == "J" else "JPL 88-11 (a.3), (5.11)"
        self._record(f"definition of {symbol}", equation)
        return True

    def _cancel(self) -> bool:
        """X X^-1 = I."""

        def change(word: Word):
            for k in range(len(word) - 1):
                square = word[k + 1].domain == word[k + 1].codomain
                if square and word[k] == t.inverse(word[k + 1]):
                    return [(1.0, word[:k] + word[k + 2 :])]
            return None

        return self._replace(change) and (self._record("an operator times its inverse", "") or True)

    def _rule_moves(self) -> list[Callable[[], bool]]:
        return [lambda rule=rule: self._apply(rule) for rule in self.rules]

    def _apply(self, rule: Rule) -> bool:
        def change(word: Word):
            found = rule.match(word, self.data)
            if found is None:
                return None
            start, stop, replacement = found
            return [(c, word[:start] + new + word[stop:]) for c, new in replacement]

        changed = self._replace(change)
        while self._replace(change):  # several places in one word
            pass
        return changed and (self._record(rule.name, rule.equation) or True)

    def _tips(self) -> bool:
        """B* psi* H* D^-1 H psi B = B* Y B for frames on one link: the operational-space recursion."""

        def change(word: Word):
            for start in range(len(word) - 6):
                left, right = _frames(word[start]), _frames(word[start + 6])
                if left is None or right is None or len({*left, *right}) != 1:
                    continue
                found = _OMEGA.match(word[start + 1 : start + 6], self.data)
                if found is not None:
                    return [(1.0, word[: start + 1] + found[2][0][1] + word[start + 6 :])]
            return None

        return self._replace(change) and (self._record(_OMEGA.name, _OMEGA.equation) or True)

    def _own_blocks(self) -> bool:
        """psi X phi* = psi S + S phi* - S for blocks X of one's own, S by a recursion whose results join the data."""

        def change(word: Word):
            found, self.data = decomposed(word, self.data)
            return found

        return self._replace(change) and (self._record("decomposition of blocks of one's own", LEMMA_A1) or True)

    def _gather_filters(self) -> None:
        """W x - H psi y = x - H psi (K x + y), one recursion instead of two side by side."""
        term = _merge_filter(self.term if self.steps else factor(self.words))
        if _size(term) < _size(self.term) or (self.steps and term != self.term):
            self._record("one filter for all inputs", "JPL 88-11 (5.9), DARTS (7.25)", term)


_OMEGA = Rule(
    "operational-space recursion",
    "overview, application 2; JPL 88-11 part II (6.10)",
    "psi* H* D^-1 H psi",
    ((1, "Upsilon"),),
    condition="frames on one link",
)


def _exchanged(words: Words, old: Term, new: Term) -> Words:
    return words._replace(weights={tuple(new if x == old else x for x in w): c for w, c in words.weights.items()})


def _with_inverse_of(words: Words, letter: Term, wrap: Callable[[Term], Term], inner: Term) -> Term:
    """The whole expression with another expression inside one of its inverses."""
    return wrap(factor(_exchanged(words, letter, t.inverse(inner))))


def _frames(letter: Term) -> tuple[int, ...] | None:
    if isinstance(letter, t.Adjoint):
        letter = letter.term
    return letter.extra[0] if isinstance(letter, Atom) and letter.name == "B" else None


def _without_names(term: Term) -> Term:
    """Phi and Psi as phi S and psi S, so that I - H Psi L is seen to be the filter."""

    def go(x: Term) -> Term:
        if isinstance(x, Atom) and x.name in ("Phi", "Psi"):
            return t.product(dataclasses.replace(x, name=x.name.lower()), dataclasses.replace(x, name="S"))
        x = t.rebuild(x, go)
        return _join_shifts(x) if isinstance(x, t.Product) else x

    return go(term)


def _join_shifts(term: t.Product) -> Term:
    """S L = K inside a product."""
    factors = list(term.factors)
    for k in range(len(factors) - 1):
        a, b = factors[k], factors[k + 1]
        if isinstance(a, Atom) and isinstance(b, Atom) and (a.name, b.name) == ("S", "L"):
            factors[k : k + 2] = [dataclasses.replace(b, name="K")]
            return _join_shifts(t.Product(tuple(factors))) if len(factors) > 1 else factors[0]
        if isinstance(a, t.Adjoint) and isinstance(b, t.Adjoint) and _is(a.term, "L") and _is(b.term, "S"):
            assert isinstance(a.term, Atom)
            factors[k : k + 2] = [t.adjoint(dataclasses.replace(a.term, name="K"))]
            return _join_shifts(t.Product(tuple(factors))) if len(factors) > 1 else factors[0]
    return term


def _is(term: Term, name: str) -> bool:
    return isinstance(term, Atom) and term.name == name


def _names_in(words: Words) -> list[t.Named]:
    found = []
    for word in words.weights:
        for letter in word:
            inner = letter.term if isinstance(letter, t.Adjoint) else letter
            if isinstance(inner, t.Named) and inner.symbol not in ("W", "Mass"):
                found.append(inner)
    return found


def _written_out(letter: Term, symbol: str) -> Term:
    if isinstance(letter, t.Adjoint) and isinstance(letter.term, t.Named) and letter.term.symbol == symbol:
        return t.adjoint(letter.term.definition)
    return letter.definition if isinstance(letter, t.Named) and letter.symbol == symbol else letter


def _merge_filter(term: Term) -> Term:
    """Find c W x + d H psi y in a sum and write it as c x + H psi (d y - c K x)."""
    term = t.rebuild(term, _merge_filter)
    if not isinstance(term, t.Sum):
        return term
    filtered = swept = None
    for k, (_, part) in enumerate(term.terms):
        if isinstance(part, t.Product) and len(part.factors) == 2 and _is_filter(part.factors[0]):
            filtered = k
        if (
            isinstance(part, t.Product)
            and len(part.factors) > 2
            and _is(part.factors[0], "H")
            and _is(part.factors[1], "psi")
        ):
            swept = k
    if filtered is None or swept is None:
        return term
    (c, left), (d, right) = term.terms[filtered], term.terms[swept]
    assert isinstance(left, t.Product) and isinstance(right, t.Product)
    W, x = left.factors
    H, psi, *y = right.factors
    assert isinstance(H, Atom)
    if {atom.slot for atom in t.atoms(W)} != {H.slot}:
        return term
    K = Atom("K", H.slot, H.domain, H.codomain)
    sign = 1.0 if c > 0 else -1.0
    inputs = t.add((sign * c, t.product(K, x)), (-sign * d, t.product(t.Identity(psi.domain), *y)))
    rest = [part for k, part in enumerate(term.terms) if k not in (filtered, swept)]
    return t.add((c, x), (-sign, t.product(H, psi, inputs)), *rest)


def _is_filter(term: Term) -> bool:
    return isinstance(term, t.Named) and term.symbol == "W"


def solve_for(unknown: Operator, left: Operator, right: Operator) -> Derivation:
    """Solve the linear equation left = right for a named vector that `right` contains.

    The unknown is collected, what multiplies it is recognized as the mass matrix if it is one (JPL 88-11, 3.20), and
    the solution is the first expression of the derivation; go on with `derive(solution)`.

    >>> o = soa.operators(robot, q)
    >>> T, a = o.vector("T", tau), o.vector("a", jnp.zeros(2))  # the torques, and what is asked for
    >>> print(soa.solve_for(a, T, o.H @ o.phi @ o.M @ o.phi.T @ o.H.T @ a + o.armature @ a).result)
    (H φ M φ* H* + A)⁻¹ T
    """
    data, x, a, b = merge(unknown, left, right)
    words = expand(b).plus(expand(a).times(-1.0))
    inside = {word[:-1]: c for word, c in words.weights.items() if word and word[-1] == x}
    rest = {word: c for word, c in words.weights.items() if not (word and word[-1] == x)}
    if not inside or any(x in word for word in rest):
        raise ValueError(f"The equation is not linear in {unknown}, or does not contain it on the right.")
    coefficient = Words(b.codomain, x.codomain, inside)
    known = factor(Words(b.codomain, b.domain, {w: -c for w, c in rest.items()}))
    solution = t.product(t.inverse(mass_among(coefficient, data) or factor(coefficient)), known)
    start = trim(Operator(solution, data))
    return Derivation(start, ())
