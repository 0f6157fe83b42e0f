"""Expressions as lineax operators, so that lineax's solvers, tags and transposes work on them.

Imported only when asked for (`Operator.to_lineax`, `to_lineax`), so lineax stays optional.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import lineax as lx
from jaxtyping import Array

from jaxsoa.algebra import terms as t
from jaxsoa.algebra.expression import Operator

_POSITIVE_ATOMS = frozenset({"M", "P", "D", "A", "R", "Upsilon"})


def is_symmetric_term(term: t.Term) -> bool:
    """Whether an expression reads the same backwards."""
    if isinstance(term, t.Sum):
        return all(is_symmetric_term(part) for _, part in term.terms)
    return t.adjoint(term) == term


def is_positive_term(term: t.Term) -> bool:
    """Whether an expression is positive semidefinite by its form: X Y X* with Y such, and sums of such."""
    match term:
        case t.Identity():
            return True
        case t.Atom():
            return term.name in _POSITIVE_ATOMS
        case t.Named():
            return term.symbol == "Mass" or is_positive_term(term.definition)
        case t.Inverse(inner):
            return is_positive_term(inner)
        case t.Sum(parts):
            return all(c > 0 and is_positive_term(part) for c, part in parts)
        case t.Product(factors):
            if not is_symmetric_term(term):
                return False
            return len(factors) % 2 == 0 or is_positive_term(factors[len(factors) // 2])
    return False


class SpatialLinearOperator(lx.AbstractLinearOperator):
    """A lineax operator that applies, transposes and materializes by the algebra."""

    operator: Operator

    def _dtype(self):
        return jnp.result_type(*(leaf.dtype for leaf in jax.tree.leaves(self.operator.data)))

    def mv(self, vector: Array) -> Array:
        return self.operator(vector)

    def as_matrix(self) -> Array:
        return self.operator.dense()

    def transpose(self) -> SpatialLinearOperator:
        return SpatialLinearOperator(self.operator.T)

    def in_structure(self) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((self.operator.shape[1],), self._dtype())

    def out_structure(self) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((self.operator.shape[0],), self._dtype())


@lx.is_symmetric.register(SpatialLinearOperator)
def _(operator: SpatialLinearOperator) -> bool:
    return is_symmetric_term(operator.operator.term)


@lx.is_positive_semidefinite.register(SpatialLinearOperator)
def _(operator: SpatialLinearOperator) -> bool:
    return is_positive_term(operator.operator.term)


for _check in (
    lx.is_negative_semidefinite,
    lx.is_diagonal,
    lx.is_tridiagonal,
    lx.is_lower_triangular,
    lx.is_upper_triangular,
    lx.has_unit_diagonal,
):
    _check.register(SpatialLinearOperator, lambda operator: False)


@lx.linearise.register(SpatialLinearOperator)
@lx.conj.register(SpatialLinearOperator)
def _(operator: SpatialLinearOperator) -> SpatialLinearOperator:
    return operator


@lx.materialise.register(SpatialLinearOperator)
def _(operator: SpatialLinearOperator) -> lx.MatrixLinearOperator:
    tags = lx.positive_semidefinite_tag if lx.is_positive_semidefinite(operator) else ()
    return lx.MatrixLinearOperator(operator.as_matrix(), tags)


@lx.diagonal.register(SpatialLinearOperator)
def _(operator: SpatialLinearOperator) -> Array:
    return jnp.diagonal(operator.as_matrix())


def to_lineax(operator: Operator) -> SpatialLinearOperator:
    """An expression for `lineax.linear_solve` and friends; the mass matrix is known to be positive semidefinite."""
    return SpatialLinearOperator(operator)
