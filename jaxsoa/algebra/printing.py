"""How expressions look: text with the papers' letters, and LaTeX for notebooks."""

from __future__ import annotations

from jaxsoa.algebra.terms import Adjoint, Atom, Identity, Inverse, Named, Product, Sum, Term, Zero

_TEXT = {
    "phi": "φ",
    "psi": "ψ",
    "E_phi": "E_φ",
    "E_psi": "E_ψ",
    "Phi": "Φ",
    "Psi": "Ψ",
    "tau_bar": "τ̄",
    "Delta_phi": "Δ_φ",
    "Delta_psi": "Δ_ψ",
    "Upsilon": "Υ",
    "pi_a": "Π_a",
    "pi_p": "Π_p",
    "Mass": "𝓜",
    "phi_tilde": "φ̃",
    "psi_tilde": "ψ̃",
}
_LATEX = {
    "phi": r"\phi",
    "psi": r"\psi",
    "E_phi": r"\mathcal{E}_\phi",
    "E_psi": r"\mathcal{E}_\psi",
    "Phi": r"\Phi",
    "Psi": r"\Psi",
    "tau_bar": r"\bar\tau",
    "Delta_phi": r"\Delta_\phi",
    "Delta_psi": r"\Delta_\psi",
    "Upsilon": r"\Upsilon",
    "pi_a": r"\Pi_a",
    "pi_p": r"\Pi_p",
    "Mass": r"\mathcal{M}",
    "phi_tilde": r"\tilde\phi",
    "psi_tilde": r"\tilde\psi",
}


def text(term: Term) -> str:
    """The mathematics in one line, such as (I - H ψ K)* D⁻¹ (I - H ψ K)."""
    return _Printer(_TEXT, "*", "⁻¹", "⁻*", " ", "({})").show(term)


def latex(term: Term) -> str:
    return _Printer(_LATEX, "^{*}", "^{-1}", "^{-*}", r"\,", r"\left({}\right)").show(term)


class _Printer:
    def __init__(self, names: dict[str, str], star: str, inv: str, inv_star: str, space: str, brackets: str):
        self.names, self.star, self.inv, self.inv_star = names, star, inv, inv_star
        self.space, self.opening, self.closing = space, *brackets.split("{}")

    def name(self, symbol: str) -> str:
        return self.names.get(symbol, symbol)

    def show(self, term: Term) -> str:
        match term:
            case Atom():
                return self.name(term.extra[0] if term.name in ("vector", "matrix", "number", "block") else term.name)
            case Identity():
                return "I"
            case Zero():
                return "0"
            case Named():
                return self.name(term.symbol) if term.opaque else self.bracketed(term.definition)
            case Adjoint(Inverse(inner)):
                return self.factor(inner) + self.inv_star
            case Adjoint(inner):
                return self.factor(inner) + self.star
            case Inverse(inner):
                return self.factor(inner) + self.inv
            case Product(factors):
                return self.space.join(self.factor(factor) for factor in factors)
            case Sum(terms):
                parts = []
                for number, (coefficient, part) in enumerate(terms):
                    sign = "-" if coefficient < 0 else "+" if number else ""
                    size = abs(coefficient)
                    shown = self.factor(part) if isinstance(part, Sum) or size != 1 else self.show(part)
                    if isinstance(part, Product) and size != 1:
                        shown = self.show(part)
                    number_text = "" if size == 1 else f"{size:g}{self.space}"
                    parts.append(f"{sign}{' ' if number else ''}{number_text}{shown}")
                return " ".join(parts)
        raise TypeError(f"Not a term: {term!r}")

    def bracketed(self, term: Term) -> str:
        return f"{self.opening}{self.show(term)}{self.closing}"

    def factor(self, term: Term) -> str:
        return self.bracketed(term) if isinstance(term, Sum | Product) else self.show(term)
