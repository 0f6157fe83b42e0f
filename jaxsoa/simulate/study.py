"""Long studies in chunks that survive being killed: every finished chunk is on disk, whole or not at all.

    folder/study.json       what the study is: refused if a later run means another one
    folder/chunk_00000.npz  results of one chunk of items, renamed into place when complete
    folder/result.npz       all chunks joined, in order

The same study gives the same bytes, broken or not: archives carry no dates, and chunks are computed alike whether or
not others were found on disk.
"""

from __future__ import annotations

import json
import os
import sys
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxsoa.simulate.progress import ProgressBar
from jaxsoa.simulate.sharding import to_host

Chunk = Callable[[np.ndarray], Mapping[str, Any]]


def run_study(
    compute: Chunk, items: int, folder: str | Path, *, chunk: int, settings: Mapping[str, Any], progress: bool = True
) -> Path:
    """Run `compute` over items 0 ... items - 1, `chunk` at a time, and return the path of the joined results.

    `compute(indices)` returns named arrays whose first axis goes with the indices (or, of other length, is joined as it
    is); it may return sharded arrays. If `chunk` does not divide `items` the last chunk is smaller, and compiles anew.
    `settings` is everything the results depend on, as JSON: a folder that holds another study is refused.

    Interrupted at any point, killed even, the same call goes on after the last finished chunk. With several processes
    (`jax.distributed`) all call this alike; process 0 alone reads and writes the folder.
    """
    folder = Path(folder)
    chunks = -(-items // chunk)
    writes = jax.process_index() == 0
    problem = _open(folder, {"items": items, "chunk": chunk, **settings}) if writes else ""
    done = _agree(_finished(folder, chunks) if writes and not problem else np.zeros(chunks, bool), problem)
    bar = ProgressBar(chunks, f"study in {folder.name}: chunk", lines=True) if progress and writes else None
    if writes and done.any():
        print(f"resuming: {int(done.sum())} of {chunks} chunks found in {folder}", file=sys.stderr, flush=True)
    for number in np.flatnonzero(~done).tolist():
        indices = np.arange(number * chunk, min(items, (number + 1) * chunk))
        results = to_host(dict(compute(indices)))
        if writes:
            save_archive(_chunk_path(folder, number), results)
            done[number] = True
            if bar is not None:
                bar.update(done.sum())
    result = folder / "result.npz"
    if writes:
        parts = [dict(np.load(_chunk_path(folder, number))) for number in range(chunks)]
        save_archive(result, {name: np.concatenate([np.atleast_1d(p[name]) for p in parts]) for name in parts[0]})
    _agree(done, "")  # nobody leaves before the result is there
    return result


def save_archive(path: str | Path, arrays: Mapping[str, Any]) -> None:
    """An .npz file that depends on the arrays alone (no dates), and appears under its name only when complete."""
    path = Path(path)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    with open(partial, "wb") as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            for name in sorted(arrays):
                entry = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
                with archive.open(entry, "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, np.ascontiguousarray(arrays[name]), allow_pickle=False)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Make a rename last through a power failure, where the system can."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _chunk_path(folder: Path, number: int) -> Path:
    return folder / f"chunk_{number:05d}.npz"


def _open(folder: Path, settings: Mapping[str, Any]) -> str:
    """Create or check the folder; returns what is wrong with it, or nothing."""
    folder.mkdir(parents=True, exist_ok=True)
    for leftover in folder.glob("*.partial"):
        leftover.unlink()
    text = json.dumps(settings, indent=1, sort_keys=True)
    description = folder / "study.json"
    if not description.exists():
        partial = folder / f"study.json.{os.getpid()}.partial"
        partial.write_text(text, encoding="utf-8")
        os.replace(partial, description)
        return ""
    found = json.loads(description.read_text(encoding="utf-8"))
    wanted = json.loads(text)
    names = sorted(n for n in found.keys() | wanted.keys() if found.get(n) != wanted.get(n))
    if not names:
        return ""
    changed = ", ".join(f"{name}: {found.get(name)!r} there, {wanted.get(name)!r} now" for name in names)
    return f"{folder} holds another study ({changed}). Choose another folder, or delete it."


def _finished(folder: Path, chunks: int) -> np.ndarray:
    return np.array([_chunk_path(folder, number).exists() for number in range(chunks)])


def _agree(done: np.ndarray, problem: str) -> np.ndarray:
    """What process 0 found, on every process; all of them raise if it found a problem."""
    if jax.process_count() > 1:
        from jax.experimental import multihost_utils

        told = np.asarray(multihost_utils.broadcast_one_to_all(np.array([bool(problem), *done])))
        refused, done = told[0], told[1:]
        if refused and not problem:
            problem = "Process 0 refused the study's folder; its message says why."
    if problem:
        raise ValueError(problem)
    return done.astype(bool)
