"""Archives of arrays (.npz) that depend on the arrays alone, appear whole or not at all, and show damage.

Types that NumPy does not know itself (bfloat16, float8) are written by their names, so that `np.load` gives them back
wherever `ml_dtypes` is imported, as it is with JAX, and refuses them elsewhere; NumPy's own way loses the type.
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

HEADER = "header.json"
"""Member of an archive that says what the arrays are; `np.load` shows it under this name, as bytes."""


class Damaged(ValueError):
    """An archive that cannot be read, or whose arrays are not those that were written."""


def save_archive(path: str | Path, arrays: Mapping[str, Any], *, header: Mapping[str, Any] | None = None) -> None:
    """An .npz file that depends on the arrays alone (no dates), and appears under its name only when complete.

    A `header`, as JSON, goes into the file with a digest of the arrays: `load_archive` checks it.

    >>> soa.simulate.save_archive("motion.npz", {"q": q}, header={"robot": "pendulum"})
    >>> print(np.load("motion.npz")["q"])
    [ 0.3 -0.5]
    """
    path = Path(path)
    arrays = {name: np.asarray(array) for name, array in arrays.items()}
    with AtomicFile(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        if header is not None:
            text = json.dumps({**header, "sha256": _digest(arrays)}, sort_keys=True)
            archive.writestr(_entry(HEADER), text)
        for name in sorted(arrays):
            with archive.open(_entry(f"{name}.npy"), "w", force_zip64=True) as member:
                _write_array(member, arrays[name])


def load_archive(path: str | Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Header and arrays of an archive saved with a header; raises `Damaged` if anything is not as it was written."""
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
            members = {name: archive[name] for name in archive.files}
        header = json.loads(members.pop(HEADER))
        written = header.pop("sha256")
    except FileNotFoundError:
        raise
    except Exception as error:  # damage shows in as many ways as there are bytes
        raise Damaged(f"{path} cannot be read: {type(error).__name__}: {error}") from error
    if written != _digest(members):
        raise Damaged(f"{path} is damaged: its arrays are not those that were written.")
    return header, members


class AtomicFile:
    """`with AtomicFile(path) as file`: a binary file that gets its name when it is complete and on the disk."""

    def __init__(self, path: Path):
        self.path, self.partial = path, path.with_name(f"{path.name}.{os.getpid()}.partial")

    def __enter__(self):
        self.file = open(self.partial, "wb")
        return self.file

    def __exit__(self, kind, *_) -> None:
        with self.file:
            if kind is None:
                self.file.flush()
                os.fsync(self.file.fileno())
        if kind is None:
            os.replace(self.partial, self.path)
            _sync_folder(self.path.parent)
        else:
            self.partial.unlink(missing_ok=True)


def _entry(name: str) -> zipfile.ZipInfo:
    return zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))


def _write_array(member: Any, array: np.ndarray) -> None:
    array = np.asarray(array, order="C")
    if array.dtype.hasobject or _known_to_numpy(array.dtype):
        np.lib.format.write_array(member, array, allow_pickle=False)
    elif array.dtype.names is not None:
        raise TypeError(f"Records with fields of types that NumPy does not know cannot be stored: {array.dtype}.")
    else:
        head = {"descr": array.dtype.name, "fortran_order": False, "shape": array.shape}
        np.lib.format.write_array_header_1_0(member, head)
        member.write(array.tobytes())


def _known_to_numpy(dtype: np.dtype) -> bool:
    return np.lib.format.descr_to_dtype(np.lib.format.dtype_to_descr(dtype)) == dtype


def _digest(arrays: Mapping[str, np.ndarray]) -> str:
    """SHA-256 of names, types, shapes and bytes."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"{name}\0{array.dtype.name}\0{array.dtype.byteorder}\0{array.shape}\0".encode())
        digest.update(np.asarray(array, order="C").tobytes())
    return digest.hexdigest()


def _sync_folder(folder: Path) -> None:
    """Make a rename last through a power failure, where the system can."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
