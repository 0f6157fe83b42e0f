"""A robot's dynamics as a file: traced once, loaded by a controller that never sees the model or traces anything."""

from __future__ import annotations

import hashlib
import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax import export as jax_export

from jaxsoa.model.description import ModelError
from jaxsoa.model.multibody import Multibody


def export_function(
    path: str | os.PathLike,
    function: Callable,
    robot: Multibody,
    inputs: str = "qvv",
    *,
    batch: int | None = None,
) -> None:
    """Write `function(robot, *inputs)` to a file, the robot's numbers inside it as constants.

    `inputs` names the shape of each input by a letter: "q" (nq,), "v" (nv,). So `forward_dynamics`, which takes q, v
    and tau, and `inverse_dynamics` are "qvv", `mass_matrix` is "q". With `batch`, every input has a leading axis of
    that length. The file is StableHLO for the platform JAX runs on: no Python of this package is needed to run it.
    Needs `pip install "jaxsoa[export]"` (flatbuffers, which JAX itself does not bring).

    >>> soa.export_function("forward.bin", soa.forward_dynamics, robot)
    >>> print(soa.load_function("forward.bin")(q, v, tau).round(3))
    [-7.838 22.691]
    """
    if importlib.util.find_spec("flatbuffers") is None:
        raise ImportError('export_function needs flatbuffers, which is not installed: pip install "jaxsoa[export]".')
    sizes = {"q": robot.nq, "v": robot.nv}
    unknown = set(inputs) - set(sizes)
    if unknown:
        raise ValueError(f"inputs must be letters of 'q' and 'v', one per argument, got {inputs!r}.")
    lead = () if batch is None else (batch,)
    shapes = [jax.ShapeDtypeStruct((*lead, sizes[letter]), robot.dtype) for letter in inputs]

    def closed(*arguments: Any) -> Any:
        return function(robot, *arguments)

    batched = closed if batch is None else jax.vmap(closed)
    # Batches ask for row-major arrays by a custom call, which XLA resolves while it compiles.
    checks = [jax_export.DisabledSafetyCheck.custom_call("LayoutConstraint")]
    # NamedTuples become dictionaries: a file cannot hold a Python class.
    program = jax_export.export(jax.jit(lambda *x: _plain(batched(*x))), disabled_checks=checks)(*shapes)
    content = bytes(program.serialize())
    Path(path).write_bytes(content + SEAL + hashlib.sha256(content).digest())


#: After the program, which ends where it says itself: this, and the digest of what stands before it.
SEAL = b"jaxsoa function\0"
MAX_BYTES = 2**30


def _plain(tree: Any) -> Any:
    fields = getattr(tree, "_fields", None)
    if fields is not None:
        return {name: _plain(value) for name, value in zip(fields, tree, strict=True)}
    return tree


def load_function(path: str | os.PathLike) -> Callable:
    """The function of a file written by `export_function`, jitted. Results that were named tuples are dictionaries.

    It is compiled at its first call. With JAX's persistent compilation cache (`jax.config.update(
    "jax_compilation_cache_dir", directory)`) even that happens once per machine.

    A file that is damaged, or made for another platform or precision than JAX runs with, is a `ModelError` at once.

    >>> soa.export_function("inverse.bin", soa.inverse_dynamics, robot)
    >>> print(soa.load_function("inverse.bin")(q, v, jnp.zeros(2)).round(3))
    [ 3.422 -1.013]
    """
    program = _checked(Path(path), repr(os.fspath(path)))
    return jax.jit(lambda *arguments: program.call(*(jnp.asarray(x) for x in arguments)))


def _checked(path: Path, name: str) -> jax_export.Exported:
    """The program in a file, if it is whole and can run here."""
    if path.exists() and not path.is_file():
        raise ModelError(f"{name} is no regular file.")
    with path.open("rb") as file:
        content = file.read(MAX_BYTES + 1)
    end = len(content) - hashlib.sha256().digest_size - len(SEAL)
    if end < 0 or len(content) > MAX_BYTES or content[end:].removeprefix(SEAL) == content[end:]:
        raise ModelError(f"{name} is not a file written by export_function, or it was cut off.")
    if hashlib.sha256(content[:end]).digest() != content[end + len(SEAL) :]:
        raise ModelError(f"{name} is damaged: its content is not what export_function wrote.")
    try:
        program = jax_export.deserialize(bytearray(content[:end]))
    except Exception as error:  # whatever a deserializer of another version stumbles over
        raise ModelError(
            f"{name} cannot be read by JAX {jax.__version__}: it was written by a version that is too old or too new "
            f"({type(error).__name__}: {error})."
        ) from error
    here = jax.default_backend()
    aliases = {"gpu": ("cuda", "rocm", "gpu")}
    if not any(platform in program.platforms for platform in aliases.get(here, (here,))):
        raise ModelError(
            f"{name} was exported for {', '.join(program.platforms)}, and JAX runs on {here} here. Export it there, or "
            "choose the platform by the variable JAX_PLATFORMS."
        )
    if any(x.dtype.itemsize > 4 and jax.dtypes.canonicalize_dtype(x.dtype) != x.dtype for x in program.in_avals):
        raise ModelError(
            f"{name} computes in double precision, which is off: jax.config.update('jax_enable_x64', True)."
        )
    return program
