"""`Operator`: an expression with its numbers. What users compose, apply, print and rewrite."""

from __future__ import annotations

import numbers
from functools import partial
from typing import Any, overload

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from jaxsoa.algebra import evaluate, printing, terms
from jaxsoa.algebra.program import compile_program
from jaxsoa.algebra.spaces import Space
from jaxsoa.algebra.state import Number
from jaxsoa.algebra.terms import SpaceError, Term


class Operator(eqx.Module):
    """A linear operator: `term` is the mathematics (static), `data` the arrays its symbols stand for.

    Compose with `@`, `+`, `-`, scalar `*`, `.T` (adjoint) and `.inv`; nothing is computed until it is applied to a
    vector (n,) or to a matrix of columns (n, m), by `@` or by calling it. A pytree: passes through jit, vmap and grad.
    """

    term: Term = eqx.field(static=True)
    data: tuple[Any, ...]

    # --- shape -------------------------------------------------------------------------------------------------

    @property
    def domain(self) -> Space:
        """The space it acts on."""
        return self.term.domain

    @property
    def codomain(self) -> Space:
        """The space it maps to."""
        return self.term.codomain

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns) of the dense matrix."""
        return self.codomain.size, self.domain.size

    @property
    def sweeps(self) -> int:
        """How many sweeps over the links one application takes, the factors (P, D, G) being at hand.

        An inverse that the algebra does not know is a dense solve (`dense_solves`): the sweeps of every column of its
        matrix are counted.
        """
        return compile_program(self.term).sweeps

    @property
    def dense_solves(self) -> int:
        """How many inverses fall back to a dense matrix, O(n^3); zero where everything runs by sweeps."""
        return compile_program(self.term).dense_solves

    @property
    def cost(self) -> int:
        """Floating-point operations of one application; linear in the number of links."""
        return compile_program(self.term).cost

    # --- composition -------------------------------------------------------------------------------------------

    @property
    def T(self) -> Operator:
        """The adjoint."""
        return Operator(terms.adjoint(self.term), self.data)

    @property
    def inv(self) -> Operator:
        """The inverse. Known ones (phi, psi, D, the mass matrix, also written out; J* J and M + k I, by a Riccati sweep
        of their own) cost O(N); others fall back to a dense solve, which `dense_solves` tells."""
        from jaxsoa.algebra.recognize import recognized  # which itself multiplies expressions out

        scale, term = 1.0, self.term
        if isinstance(term, terms.Sum) and len(term.terms) == 1:
            scale, term = term.terms[0]
        term, data = recognized(term, self.data)
        inverse = terms.inverse(term)
        return Operator(inverse if scale == 1 else terms.scale(1 / scale, inverse), data)

    @overload
    def __matmul__(self, other: Operator) -> Operator: ...

    @overload
    def __matmul__(self, other: ArrayLike) -> Array: ...

    def __matmul__(self, other):
        if isinstance(other, Operator):
            data, left, right = merge(self, other)
            return Operator(terms.product(left, right), data)
        return self(other)

    def __call__(self, x) -> Array:
        """Apply to a vector (n,) or to a matrix of columns (n, m)."""
        x = jnp.asarray(x)
        size = self.domain.size
        if x.ndim not in (1, 2) or x.shape[0] != size:
            batched = " Batch with jax.vmap." if x.ndim > 1 and x.shape[-1] == size else ""
            raise SpaceError(
                f"({self}) acts on {self.domain}: expected a vector ({size},) or a matrix of columns ({size}, m), "
                f"got shape {x.shape}.{batched}"
            )
        if not jnp.issubdtype(x.dtype, jnp.floating):
            x = x.astype(jnp.result_type(float))
        return _apply(self, x)

    def __add__(self, other: Operator) -> Operator:
        return _combine(self, 1.0, other)

    def __sub__(self, other: Operator) -> Operator:
        return _combine(self, -1.0, other)

    def __neg__(self) -> Operator:
        return Operator(terms.scale(-1.0, self.term), self.data)

    def __mul__(self, number) -> Operator:
        if isinstance(number, Operator):
            raise TypeError("Compose operators with @; * is for numbers.")
        if isinstance(number, numbers.Real):
            return Operator(terms.scale(float(number), self.term), self.data)
        value = jnp.asarray(number)
        if value.ndim:
            raise TypeError(f"* takes a number, got an array of shape {value.shape}; apply operators with @.")
        atom = terms.Atom("number", len(self.data), self.codomain, self.codomain, ("c",))
        return Operator(terms.product(atom, self.term), (*self.data, Number(value)))

    __rmul__ = __mul__

    def __truediv__(self, number) -> Operator:
        return self * (1 / number)

    # --- looking at it -----------------------------------------------------------------------------------------

    def dense(self) -> Float[Array, "rows columns"]:
        """The matrix."""
        return _dense(self)

    @property
    def value(self) -> Array:
        """The vector that an expression of named vectors stands for (an operator from the numbers)."""
        if self.domain.size != 1:
            raise SpaceError(f"({self}) is not a vector: it acts on {self.domain}.")
        return self(jnp.ones(1, jnp.result_type(*(leaf.dtype for leaf in jax.tree.leaves(self.data)))))

    def to_lineax(self):
        """This expression as a lineax operator (needs lineax)."""
        from jaxsoa.algebra.lineax_interop import to_lineax

        return to_lineax(self)

    def __str__(self) -> str:
        return printing.text(self.term)

    def __repr__(self) -> str:
        return f"Operator({self}: {self.domain} -> {self.codomain})"

    def latex(self) -> str:
        """The expression as LaTeX; a notebook shows it so."""
        return printing.latex(self.term)

    def _repr_latex_(self) -> str:
        return f"${self.latex()}$"


def merge(*operators: Operator) -> tuple:
    """(data, terms ...): one tuple of data for several operators; the same data keeps the same slot."""
    data: list[Any] = []
    merged = []
    for operator in operators:
        slots = {}
        for slot, item in enumerate(operator.data):
            found = next((k for k, known in enumerate(data) if known is item), None)
            if found is None:
                found = len(data)
                data.append(item)
            slots[slot] = found
        merged.append(terms.relabel(operator.term, slots))
    return tuple(data), *merged


def _combine(left: Operator, sign: float, right: Operator) -> Operator:
    if not isinstance(right, Operator):
        raise TypeError(f"Only operators can be added to operators, not {type(right).__name__}.")
    data, a, b = merge(left, right)
    return Operator(terms.add((1.0, a), (sign, b)), data)


def trim(operator: Operator) -> Operator:
    """The same operator without data that it no longer reads."""
    used = sorted({atom.slot for atom in terms.atoms(operator.term)})
    slots = {slot: k for k, slot in enumerate(used)}
    return Operator(terms.relabel(operator.term, slots), tuple(operator.data[slot] for slot in used))


@partial(jax.jit, inline=True)
def _apply(operator: Operator, x: Array) -> Array:
    if x.ndim == 2:
        return jax.vmap(lambda c: evaluate.apply_term(operator.term, operator.data, c), in_axes=1, out_axes=1)(x)
    return evaluate.apply_term(operator.term, operator.data, x)


@partial(jax.jit, inline=True)
def _dense(operator: Operator) -> Array:
    if not operator.data:  # identities and zeros carry no numbers
        return evaluate.dense(operator.term, (), jnp.result_type(float))
    return evaluate.dense(operator.term, operator.data)
