"""The scalar elements of a robot's equations, printed: the straight-line program of a function as expressions.

A function of arrays becomes operations on scalars (`kernels.reader`): numbers fold, equal operations are kept once.
What is left are the formulas of M, M^-1, C ... of this robot, in q and in the symbols asked for (JPL 86-48, 11-12, and
the introduction of JPL 88-11 name this use of the recursions).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxsoa.kernels.program import Straight, operands
from jaxsoa.kernels.reader import read
from jaxsoa.model.multibody import Multibody

_SIGNS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "lt": "<", "gt": ">", "le": "<=", "ge": ">=", "eq": "=="}
_LONGEST = 100_000


class Symbolic(NamedTuple):
    """The elements of one result as text, in a list like its array, and the terms that they share, in order.

    Everything is Python: `sin(q[0])`, `m_link1`; so `eval` computes it and a computer algebra system reads it.
    """

    elements: list[Any]
    shared: list[tuple[str, str]]

    def __str__(self) -> str:
        lines = [f"{name} = {text}" for name, text in self.shared]
        array = np.array(self.elements, object)
        lines += [f"{list(index)}: {array[index]}" for index in np.ndindex(array.shape)]
        return "\n".join(lines)


def symbolic(
    function: Callable,
    robot: Multibody,
    inputs: str = "q",
    *,
    symbols: Sequence[str] = (),
) -> Symbolic:
    """The elements of `function(robot, *inputs)` (one array) as expressions: for small robots.

        soa.symbolic(soa.mass_matrix, soa.models.planar_arm(2), symbols=["mass"])

    `inputs` names each argument after the robot by a letter, "q" (nq,) or "v" (nv,); a second one of a kind is v2.
    `symbols` names leaves of the model whose numbers other than zero stay symbols: `mass[0]`, `com[1, 2]`; all others
    are numbers. What is used more than once becomes a shared term t0, t1, ...

    >>> mass = soa.symbolic(soa.mass_matrix, soa.models.planar_arm(1), symbols=["mass"])
    >>> print("mass[0]" in str(mass))
    True
    """
    sizes, names = {"q": robot.nq, "v": robot.nv}, []
    if set(inputs) - set(sizes):
        raise ValueError(f"inputs must be letters of 'q' and 'v', one per argument, got {inputs!r}.")
    leaves = {name: np.asarray(getattr(robot, name)) for name in symbols}
    places = [(name, tuple(int(i) for i in at)) for name, x in leaves.items() for at in np.argwhere(x != 0)]
    for k, letter in enumerate(inputs):
        count = inputs[:k].count(letter)
        names.append([f"{letter}{count + 1 if count else ''}[{i}]" for i in range(sizes[letter])])
    names.append([f"{name}[{', '.join(map(str, at))}]" if at else name for name, at in places])

    def flat(*arguments: Any) -> Any:
        *states, values = arguments
        made = {}
        for name, x in leaves.items():
            mine = [k for k, (owner, _) in enumerate(places) if owner == name]
            where = tuple(np.array([places[k][1] for k in mine], int).reshape(len(mine), x.ndim).T)
            made[name] = jnp.asarray(x).at[where].set(values[np.array(mine, int)]) if mine else jnp.asarray(x)
        return function(robot.replace(**made) if made else robot, *states)

    shapes = [jax.ShapeDtypeStruct((len(part),), robot.dtype) for part in names]
    program = jax.make_jaxpr(flat)(*shapes)
    results = jax.eval_shape(flat, *shapes)
    if not hasattr(results, "shape"):
        raise ValueError("symbolic prints functions with one array as their result.")
    straight = read(program, [None] * len(shapes), robot.dtype, _LONGEST)
    texts, shared = _printed(straight, names)
    return Symbolic(np.array(texts, object).reshape(results.shape).tolist(), shared)


def _printed(straight: Straight, names: list[list[str]]) -> tuple[list[str], list[tuple[str, str]]]:
    """Expressions of the first result's elements, and the shared terms."""
    uses = [0] * len(straight.operations)
    for op in straight.operations:
        for x in operands(op):
            if type(x) is int:
                uses[x] += 1
    for x in straight.results[0]:
        if type(x) is int:
            uses[x] += 1
    texts: list[str] = []
    shared: list[tuple[str, str]] = []

    def text(x: Any) -> str:
        return texts[x] if type(x) is int else repr(x)

    for k, op in enumerate(straight.operations):
        name, *rest = op
        if name == "in":
            texts.append(names[rest[0]][rest[1]])
            continue
        if name in ("product", "item"):
            raise ValueError("The robot is too large to be printed: its formulas hold products of matrices.")
        if name in _SIGNS:
            expression = f"({text(rest[0])} {_SIGNS[name]} {text(rest[1])})"
        elif name == "neg":
            expression = f"(-{text(rest[0])})"
        elif name == "select":
            expression = f"({text(rest[2])} if {text(rest[0])} else {text(rest[1])})"
        else:
            expression = f"{name}({', '.join(map(text, rest))})"
        if uses[k] > 1:
            shared.append((f"t{len(shared)}", expression))
            expression = shared[-1][0]
        texts.append(expression)
    return [text(x) for x in straight.results[0]], shared
