"""A `Multibody` as a file of arrays: NumPy's npz, without pickle.

    header          JSON as bytes: format, version, topology (names, parents, joint kinds, frames, mimics)
    mass, com, ...  one array per leaf, called as in `Multibody`; `limits.lower` and so on for the limits

Nothing in such a file is executed. Reading is bounded (`MAX_BYTES`), and every array is checked against the topology
before a model is made: a file is a whole model, or a `ModelError`.
"""

from __future__ import annotations

import io
import json
import os
import warnings
import zipfile
import zlib
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsoa.io._leaves import LATER, LIMITS, SPRINGS, leaf_shapes, leaves_of
from jaxsoa.model.description import ModelError, abbreviated
from jaxsoa.model.joints import JOINT_KINDS
from jaxsoa.model.multibody import Limits, Multibody, RestSprings
from jaxsoa.model.topology import Topology

FORMAT = "jaxsoa.Multibody"
VERSION = 1

#: Documented limit, on the arrays as they are in memory: a model of 10,000 links takes less than 10 MB.
MAX_BYTES = 2**30

_TYPES = ("float16", "float32", "float64")
#: What zipfile, zlib and NumPy raise on files that are not what they seem.
_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    ValueError,
    LookupError,
    EOFError,
    SyntaxError,
    TypeError,
    NotImplementedError,
    RuntimeError,
    MemoryError,
)


def save(robot: Multibody, path: str | os.PathLike[str]) -> None:
    """Write a model as an npz file that `load` reads back leaf by leaf, each in its own floating-point type.

    >>> soa.save(robot, "robot.npz")
    >>> print(soa.load("robot.npz").link_names)
    ('link1', 'link2')
    """
    arrays = leaves_of(robot)
    for key, array in arrays.items():
        if array.dtype.name not in _TYPES:
            raise ModelError(f"{key} of robot {robot.name!r} is {array.dtype}; only {', '.join(_TYPES)} can be saved.")
    header = {"format": FORMAT, "version": VERSION, "topology": _topology_record(robot.topology)}
    encoded = np.frombuffer(json.dumps(header, ensure_ascii=True, allow_nan=False).encode(), np.uint8)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, header=encoded, **arrays)  # pyright: ignore[reportArgumentType]
    Path(path).write_bytes(buffer.getvalue())  # at once: an error above leaves no half of a file


def load(path: str | os.PathLike[str]) -> Multibody:
    """Read a model that `save` wrote. Anything else, whole or damaged, is a `ModelError`.

    With `jax_enable_x64` off, doubles become float32 with one warning.

    >>> soa.save(robot, "robot.npz")
    >>> print(soa.load("robot.npz"))
    Multibody('pendulum': 2 links, nq=2, nv=2, 4 frames)
    """
    if not isinstance(path, str | os.PathLike):
        raise ModelError(f"The path of a saved model must be a path, not a {type(path).__name__}.")
    name = os.fsdecode(path)
    arrays = _read_arrays(Path(name), name)
    try:
        header = json.loads(arrays.pop("header").tobytes(), parse_constant=_refuse_constant)
    except KeyError:
        raise ModelError(f"{name}: there is no header in it; save writes one.") from None
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{name}: the header is not JSON ({error}).") from error
    topology = _topology_from(_checked_header(header, name), name)
    expected = leaf_shapes(topology)
    if not set(SPRINGS) & arrays.keys():
        expected = {key: shape for key, shape in expected.items() if key not in SPRINGS}
    if "mass" in arrays:
        arrays |= {key: np.zeros(expected[key], arrays["mass"].dtype) for key in LATER if key not in arrays}
    missing, unknown = sorted(expected.keys() - arrays.keys()), sorted(arrays.keys() - expected.keys())
    if missing or unknown:
        fault = "; ".join(
            f"{what} {abbreviated(keys)}" for what, keys in (("missing", missing), ("unknown", unknown)) if keys
        )
        raise ModelError(f"{name}: the arrays are not those of a Multibody: {fault}.")
    for key, shape in expected.items():
        _check_array(arrays[key], key, shape, name)
    double = any(array.dtype == np.float64 for array in arrays.values())
    if double and jax.dtypes.canonicalize_dtype(np.float64) != np.float64:
        message = f"{name}: float64 is not available while jax_enable_x64 is off; the model becomes float32."
        warnings.warn(message, UserWarning, stacklevel=2)
    leaves = {key: jnp.asarray(array.astype(array.dtype.name)) for key, array in arrays.items()}  # native byte order
    limits = Limits(*(leaves.pop(f"limits.{field}") for field in LIMITS))
    springs = RestSprings(*(leaves.pop(key) for key in SPRINGS)) if "stiffness" in leaves else None
    return Multibody(topology=topology, limits=limits, springs=springs, **leaves)


# Arrays ----------------------------------------------------------------------------------------------------------


def _read_arrays(path: Path, name: str) -> dict[str, np.ndarray]:
    try:
        with zipfile.ZipFile(path) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > MAX_BYTES:
                raise ModelError(f"{name}: the arrays take more than the limit of {MAX_BYTES} bytes.")
            keys = [entry.filename.removesuffix(".npy") for entry in archive.infolist()]
            if len(set(keys)) < len(keys):
                raise ModelError(f"{name}: arrays occur twice in it.")
        with np.load(path, allow_pickle=False) as file:
            arrays = {key: file[key] for key in keys}
    except ModelError:
        raise
    except OSError as error:
        raise ModelError(f"{name!r} cannot be read ({error.strerror or error}).") from error
    except _DAMAGE as error:
        if "pickle" in str(error):
            raise ModelError(f"{name}: it holds Python objects (pickles), which are refused.") from error
        raise ModelError(f"{name}: the file is damaged, or no npz file ({error}).") from error
    for key, array in arrays.items():
        if not isinstance(array, np.ndarray):
            raise ModelError(f"{name}: {key} is no array.")
    return arrays


def _check_array(array: np.ndarray, key: str, shape: tuple[int, ...], name: str) -> None:
    if array.dtype.name not in _TYPES:
        raise ModelError(f"{name}: {key} is {array.dtype}, not one of {', '.join(_TYPES)}.")
    if array.shape != shape:
        raise ModelError(f"{name}: {key} has shape {array.shape}; the topology needs {shape}.")
    limit = key.startswith("limits.")
    if np.isnan(array).any() or (not limit and np.isinf(array).any()):
        raise ModelError(f"{name}: {key} holds numbers that are not finite.")
    positive = ("mass", "base_mass", "armature", "damping", "friction", "stiffness", "limits.effort", "limits.velocity")
    if key in positive and (array < 0).any():
        raise ModelError(f"{name}: {key} holds a negative number ({array.min()}).")


# Topology --------------------------------------------------------------------------------------------------------

_LISTS = {"parents": int, "kinds": str, "link_names": str, "joint_names": str, "frame_names": str, "frame_links": int}


def _topology_record(topology: Topology) -> dict[str, Any]:
    lists = {key: list(getattr(topology, key)) for key in _LISTS}
    return {"name": topology.name, **lists, "mimics": [list(mimic) for mimic in topology.mimics]}


def _refuse_constant(word: str):
    raise ValueError(f"{word} is not a JSON number")


def _checked_header(header: Any, name: str) -> dict[str, Any]:
    """The record of the topology in a header of this format and version."""
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise ModelError(f"{name}: this is not a saved Multibody (the header does not say {FORMAT!r}).")
    if header.get("version") != VERSION:
        raise ModelError(
            f"{name}: the file is of version {header.get('version')!r}, and this package reads version {VERSION}."
        )
    if header.keys() != {"format", "version", "topology"}:
        raise ModelError(
            f"{name}: the header has unknown fields or lacks some: {abbreviated(sorted(map(str, header)))}."
        )
    record = header["topology"]
    if not isinstance(record, dict) or record.keys() != {"name", "mimics", *_LISTS}:
        fields = abbreviated(sorted(map(str, record))) if isinstance(record, dict) else repr(record)[:80]
        raise ModelError(f"{name}: the topology has unknown fields or lacks some: {fields}.")
    return record


def _topology_from(record: dict[str, Any], name: str) -> Topology:
    def refuse(fault: str):
        raise ModelError(f"{name}: {fault}.")

    for key, kind in _LISTS.items():
        if not isinstance(record[key], list) or not all(type(x) is kind for x in record[key]):
            refuse(f"{key} must be a list of {kind.__name__}")
    if not isinstance(record["name"], str):
        refuse("the name of the robot must be a string")
    parents, kinds, frames = record["parents"], record["kinds"], record["frame_names"]
    n = len(parents)
    if n == 0 or any(len(record[key]) != n for key in ("kinds", "link_names", "joint_names")):
        refuse(f"{n} parents need {n} kinds, link names and joint names (and at least one)")
    if any(not -1 <= parent < link for link, parent in enumerate(parents)):
        refuse("links must come after their parents")
    unknown = sorted({kind for kind in kinds if kind not in JOINT_KINDS or JOINT_KINDS[kind].nv == 0})
    if unknown:
        refuse(f"unknown joint kinds {abbreviated(unknown)}")
    for key in ("link_names", "joint_names", "frame_names"):
        if len(set(record[key])) < len(record[key]):
            refuse(f"{key} are not all different")
    if len(record["frame_links"]) != len(frames) or any(not -1 <= link < n for link in record["frame_links"]):
        refuse("every frame needs a link, or -1 for the base")
    return Topology(**{key: record[key] for key in ("name", *_LISTS)}, mimics=_mimics(record["mimics"], record, name))


def _mimics(mimics: Any, record: dict[str, Any], name: str) -> list[tuple[str, str, float, float]]:
    degrees = {j: JOINT_KINDS[kind].nv for j, kind in zip(record["joint_names"], record["kinds"], strict=True)}

    def is_mimic(entry: Any) -> bool:
        if not isinstance(entry, list) or len(entry) != 4 or not all(isinstance(x, str) for x in entry[:2]):
            return False
        numbers = all(type(x) in (int, float) for x in entry[2:])
        return numbers and all(degrees.get(joint) == 1 for joint in entry[:2]) and entry[0] != entry[1]

    if not isinstance(mimics, list) or not all(is_mimic(entry) for entry in mimics):
        raise ModelError(
            f"{name}: mimics must be (joint, joint, multiplier, offset) of joints of one degree of freedom."
        )
    return [(joint, target, float(a), float(b)) for joint, target, a, b in mimics]
