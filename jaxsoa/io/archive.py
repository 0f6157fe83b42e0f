"""A `Multibody` as a file of arrays: NumPy's npz, without pickle.

    header          JSON as bytes: format, version, topology (names, parents, joint kinds, frames, mimics)
    mass, com, ...  one array per leaf, called as in `Multibody`; `limits.lower` and so on for the limits

Nothing in such a file is executed. Reading is bounded (`MAX_BYTES`), and every array is checked against the topology
before a model is made: a file is a whole model, or a `ModelError`.
"""

from __future__ import annotations

import io
import json
import math
import os
import tokenize
import warnings
import zipfile
import zlib
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxsoa.io._leaves import LATER, LIMITS, SPRINGS, leaf_shapes, leaves_of
from jaxsoa.model.description import ModelError, abbreviated, is_plain, plain
from jaxsoa.model.joints import JOINT_KINDS
from jaxsoa.model.magnitudes import check_arrays, description_of
from jaxsoa.model.multibody import Limits, Multibody, RestSprings
from jaxsoa.model.topology import Topology
from jaxsoa.model.validation import MAX_LINKS, MAX_NAME, check_placement, validate_description

FORMAT = "jaxsoa.Multibody"
VERSION = 1

#: Documented limit, on the arrays as they are in memory: a model of 10,000 links takes less than 10 MB.
MAX_BYTES = 2**30
#: Of the header, which is read first: it says how large everything else may be.
MAX_HEADER = 2**24

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


def load(path: str | os.PathLike[str], *, validate: str = "warn") -> Multibody:
    """Read a model that `save` wrote. Anything else, whole or damaged, is a `ModelError`.

    Its numbers are checked as those of any robot file, `validate` being as for `load_urdf`. With `jax_enable_x64` off,
    doubles become float32 with one warning.

    >>> soa.save(robot, "robot.npz")
    >>> print(soa.load("robot.npz"))
    Multibody('pendulum': 2 links, nq=2, nv=2, 4 frames)
    """
    if not isinstance(path, str | os.PathLike):
        raise ModelError(f"The path of a saved model must be a path, not a {type(path).__name__}.")
    name = os.fsdecode(path)
    topology, given = _read(Path(name), name)
    double = any(array.dtype == np.float64 for array in given.values())
    if double and jax.dtypes.canonicalize_dtype(np.float64) != np.float64:
        message = f"{plain(name)}: float64 is not available while jax_enable_x64 is off; the model becomes float32."
        warnings.warn(message, UserWarning, stacklevel=2)
    with np.errstate(over="ignore", under="ignore"):
        arrays = {key: x.astype(jax.dtypes.canonicalize_dtype(x.dtype.name)) for key, x in given.items()}
    check_arrays(name, topology, arrays)
    resolution = max(float(np.finfo(array.dtype).eps) for array in arrays.values())
    validate_description(description_of(name, topology, arrays), validate, resolution=resolution)
    placements = [("the base", arrays["base_rotation"], arrays["base_position"])]
    frames = zip(topology.frame_names, arrays["frame_rotation"], arrays["frame_position"], strict=True)
    for what, R, p in [*placements, *((f"frame {frame!r}", R, p) for frame, R, p in frames)]:
        check_placement(R, p, f"{name}: {what}", 8 * resolution)
    leaves = {key: jax.device_put(array) for key, array in arrays.items()}  # not `jnp.asarray`, which compiles
    limits = Limits(*(leaves.pop(f"limits.{field}") for field in LIMITS))
    springs = RestSprings(*(leaves.pop(key) for key in SPRINGS)) if "stiffness" in leaves else None
    return Multibody(topology=topology, limits=limits, springs=springs, **leaves)


# Arrays ----------------------------------------------------------------------------------------------------------
# The header comes first, and with it the shape of everything else: nothing larger is unpacked.


def _read(path: Path, name: str) -> tuple[Topology, dict[str, np.ndarray]]:
    try:
        if path.exists() and not path.is_file():
            raise ModelError(f"{name!r} cannot be read (it is no regular file).")
        with zipfile.ZipFile(path) as archive:
            return _read_members(archive, name)
    except ModelError:
        raise
    except OSError as error:
        raise ModelError(f"{name!r} cannot be read ({error.strerror or error}).") from error
    except _DAMAGE as error:
        raise ModelError(f"{name}: the file is damaged, or no npz file ({error}).") from error


def _read_members(archive: zipfile.ZipFile, name: str) -> tuple[Topology, dict[str, np.ndarray]]:
    members = {entry.filename.removesuffix(".npy"): entry for entry in archive.infolist()}
    if sum(entry.file_size for entry in archive.infolist()) > MAX_BYTES:
        raise ModelError(f"{name}: the arrays take more than the limit of {MAX_BYTES} bytes.")
    if len(members) < len(archive.infolist()):
        raise ModelError(f"{name}: arrays occur twice in it.")
    if "header" not in members:
        raise ModelError(f"{name}: there is no header in it; save writes one.")
    encoded = _member(archive, members.pop("header"), "header", None, name)
    try:
        header = json.loads(encoded.tobytes(), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{name}: the header is not JSON ({error}).") from error
    topology = _topology_from(_checked_header(header, name), name)
    expected = leaf_shapes(topology)
    if not set(SPRINGS) & members.keys():
        expected = {key: shape for key, shape in expected.items() if key not in SPRINGS}
    missing = sorted(expected.keys() - members.keys() - set(LATER))
    unknown = sorted(members.keys() - expected.keys())
    if missing or unknown:
        fault = "; ".join(
            f"{what} {abbreviated(keys)}" for what, keys in (("missing", missing), ("unknown", unknown)) if keys
        )
        raise ModelError(f"{name}: the arrays are not those of a Multibody: {fault}.")
    arrays = {key: _member(archive, entry, key, expected[key], name) for key, entry in members.items()}
    return topology, {key: np.zeros(expected[key], arrays["mass"].dtype) for key in LATER} | arrays


def _member(
    archive: zipfile.ZipFile, entry: zipfile.ZipInfo, key: str, shape: tuple[int, ...] | None, name: str
) -> np.ndarray:
    """The array in a member of the archive, if it has this shape; without one, that of the header, which is bytes."""
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ModelError(f"{name}: {key} is packed in a way that save does not use.")
    with archive.open(entry) as file:
        try:
            read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
            given, by_columns, dtype = read[np.lib.format.read_magic(file)](file)
        except (*_DAMAGE, tokenize.TokenError) as error:
            raise ModelError(f"{name}: {key} is damaged, or no array ({error}).") from error
        if dtype.hasobject:
            raise ModelError(f"{name}: {key} holds Python objects (pickles), which are refused.")
        if shape is None:
            if dtype != np.uint8 or len(given) != 1 or given[0] > MAX_HEADER:
                raise ModelError(f"{name}: the header is not JSON in at most {MAX_HEADER} bytes, but {dtype} {given}.")
        elif dtype.name not in _TYPES:
            raise ModelError(f"{name}: {key} is {dtype}, not one of {', '.join(_TYPES)}.")
        elif given != shape:
            raise ModelError(f"{name}: {key} has shape {given}; the topology needs {shape}.")
        count = math.prod(given) * dtype.itemsize
        content = file.read(count)
        if len(content) != count or file.read(1):  # at its end the checksum is compared
            raise ModelError(f"{name}: {key} is damaged: it has not the {count} bytes that it claims.")
    return np.frombuffer(content, dtype).reshape(given, order="F" if by_columns else "C")


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
        version = repr(header.get("version"))[:80]
        raise ModelError(f"{name}: the file is of version {version}, and this package reads version {VERSION}.")
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
    if n > MAX_LINKS:
        refuse(f"{n} links are more than the limit of {MAX_LINKS}")
    if max(map(len, [record["name"], *kinds, *record["link_names"], *record["joint_names"], *frames])) > MAX_NAME:
        refuse(f"a name has more than {MAX_NAME} characters")
    if not all(is_plain(character) for frame in frames for character in frame):
        refuse("the name of a frame holds control characters")
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
        numbers = all(type(x) in (int, float) and abs(x) < 1e300 for x in entry[2:])
        return numbers and all(degrees.get(joint) == 1 for joint in entry[:2]) and entry[0] != entry[1]

    followers = [entry[0] for entry in mimics if is_mimic(entry)] if isinstance(mimics, list) else []
    if not isinstance(mimics, list) or len(set(followers)) < len(mimics):
        raise ModelError(
            f"{name}: mimics must be (joint, joint, multiplier, offset) of joints of one degree of freedom, one each."
        )
    return [(joint, target, float(a), float(b)) for joint, target, a, b in mimics]
