"""A robot's dynamics as C99: source and header that need no library, from the straight-line program of the kernels."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxsoa.kernels import c99
from jaxsoa.kernels.program import Unreadable
from jaxsoa.kernels.reader import read
from jaxsoa.model.multibody import Multibody

LONGEST_C = 200_000
"""Operations up to which a function is written as C: beyond, compilers take minutes and gigabytes."""

_SHAPES = {"q": "nq", "q0": "nq", "q1": "nq"} | dict.fromkeys(("v", "a", "tau", "x", "w", "dv"), "nv")
"""What arguments of these names hold, in every function of this package."""


class ExportedC(NamedTuple):
    """What `export_c` wrote: two files, and the function in them."""

    source: Path
    header: Path
    name: str
    arguments: tuple[tuple[str, tuple[int, ...]], ...]  # name and shape, in the order of the C function
    results: tuple[tuple[str, tuple[int, ...]], ...]
    operations: dict[str, int]  # by kind

    def __str__(self) -> str:
        counts = ", ".join(f"{n} {kind}" for kind, n in self.operations.items()) or "none"
        arrays = ", ".join(name for name, _ in (*self.arguments, *self.results))
        return f"{self.name}({arrays}) in {self.source}: {sum(self.operations.values())} operations ({counts})"


def export_c(
    path: str | os.PathLike,
    function: Callable,
    robot: Multibody,
    inputs: str | Sequence[str | tuple[int, ...]] | None = None,
    *,
    dtype: Any = None,
) -> ExportedC:
    """Write `function(robot, *inputs)` as C99, source at `path` (name.c) and header beside it (name.h).

    The C function has the name of the file: arrays of the inputs, then of the results, in order (the header lists
    names and sizes). It calls nothing but <math.h>, allocates nothing, keeps nothing and can be called from C++. The
    robot's numbers are constants in it. `inputs` gives a shape to each argument: "q" (nq,), "v" (nv,), or a tuple; by
    default it is read off the names of the function's arguments that have no default. What else a function takes is
    fixed beforehand: `functools.partial(soa.jacobian, frame="tool")`. `dtype` is that of the C arrays, the robot's
    by default. Raises `ValueError` for functions that are no straight-line program (loops whose end depends on values,
    eigenvalues, integers computed from the state), with the reason.

    >>> print(soa.export_c("mass.c", soa.mass_matrix, robot))
    mass(q, result) in mass.c: 61 operations (21 additions, 33 multiplications, 4 sines and cosines, 3 others)
    """
    path = Path(path)
    name = path.stem
    if path.suffix != ".c" or not c99.identifier(name):
        raise ValueError(f"path must end in the name of a C function and .c, such as forward_dynamics.c, got {path}.")
    if dtype is not None:
        robot = _in_type(robot, np.dtype(dtype))
    shapes = _input_shapes(function, robot, inputs)
    arguments = [jax.ShapeDtypeStruct(shape, robot.dtype) for _, shape in shapes]
    program, form = jax.make_jaxpr(lambda *x: function(robot, *x), return_shape=True)(*arguments)
    results = _named_results(form, {x for x, _ in shapes})
    try:
        kinds = {np.dtype(leaf.dtype) for leaf in jax.tree.leaves(form)} - {np.dtype(bool), np.dtype(robot.dtype)}
        if kinds:
            raise Unreadable(f"results of type {', '.join(sorted(map(str, kinds)))}")
        straight = read(program, [None] * len(arguments), robot.dtype, LONGEST_C, batches=True)
        given, found = ([c99.Array(*x) for x in part] for part in (shapes, results))
        about = f"{_function_name(function)} of {c99.comment(robot.name)} (nq = {robot.nq}, nv = {robot.nv})."
        written = c99.write(straight, name, given, found, np.dtype(robot.dtype), about)
    except Unreadable as reason:
        raise ValueError(f"{_function_name(function)} cannot be written as C, because of {reason}.") from None
    header = path.with_suffix(".h")
    path.write_text(written.source)
    header.write_text(written.header)
    return ExportedC(path, header, name, tuple(shapes), tuple(results), written.operations)


def _in_type(robot: Multibody, dtype: np.dtype) -> Multibody:
    if dtype not in (np.float32, np.float64):
        raise ValueError(f"dtype must be float32 or float64, got {dtype}.")
    if jax.dtypes.canonicalize_dtype(dtype) != dtype:
        raise ValueError("float64 needs jax.config.update('jax_enable_x64', True).")
    return robot.astype(dtype)


def _function_name(function: Any) -> str:
    while hasattr(function, "func"):
        function = function.func
    return getattr(function, "__name__", type(function).__name__)


def _input_shapes(function: Callable, robot: Multibody, inputs: Any) -> list[tuple[str, tuple[int, ...]]]:
    """Name and shape of every argument after the robot."""
    parameters = [p for p in inspect.signature(function).parameters.values() if p.kind in (p.POSITIONAL_ONLY,
                  p.POSITIONAL_OR_KEYWORD)][1:]  # fmt: skip
    names = [p.name for p in parameters]
    if inputs is None:
        asked = [p.name for p in parameters if p.default is p.empty]
        unknown = [n for n in asked if n not in _SHAPES]
        if unknown:
            raise ValueError(
                f"What shape has {unknown[0]!r} of {_function_name(function)}? Give `inputs`, one letter ('q' or 'v') "
                f"or shape per argument, or fix it with functools.partial."
            )
        inputs = ["q" if _SHAPES[n] == "nq" else "v" for n in asked]
    found = []
    for k, given in enumerate(inputs):
        if given not in ("q", "v") and not isinstance(given, tuple):
            raise ValueError(f"inputs must be letters 'q' and 'v' or shapes, one per argument, got {given!r}.")
        shape = {"q": (robot.nq,), "v": (robot.nv,)}[given] if isinstance(given, str) else given
        found.append((_unused(names[k] if k < len(names) else f"x{k}", {n for n, _ in found}), shape))
    return found


def _named_results(form: Any, taken: set[str]) -> list[tuple[str, tuple[int, ...]]]:
    """Results by the names of their fields."""
    found = []
    for where, leaf in jax.tree_util.tree_leaves_with_path(form):
        parts = [str(getattr(key, "name", getattr(key, "key", getattr(key, "idx", "")))) for key in where]
        name = "_".join(f"result{part}" if part.isdigit() else part for part in parts) or "result"
        found.append((_unused(name, taken | {n for n, _ in found}), tuple(leaf.shape)))
    return found


def _unused(name: str, taken: set[str]) -> str:
    """A name that C accepts and nothing else has; v1, m1, b and j are those of the program itself."""
    name = "".join(c if c.isalnum() and c.isascii() else "_" for c in name)
    own = name in ("b", "j") or (name[:1] in "vm" and name[1:].isdigit())
    if own or not c99.identifier(name):
        name = f"x_{name}"
    while name in taken:
        name += "_"
    return name
