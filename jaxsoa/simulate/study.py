"""Long studies in chunks that survive being killed: every finished chunk is on disk, whole or not at all.

    folder/study.json       what the study is: refused if a later run means another one
    folder/chunk_00000.npz  results of one chunk of items with what the study is, renamed into place when complete
    folder/result.npz       all chunks joined, in order
    folder/lock             held by the run that is at work here

The same study gives the same bytes, broken or not: archives carry no dates, and chunks are computed alike whether or
not others were found on disk.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxsoa.simulate.archive import AtomicFile, Damaged, load_archive, save_archive
from jaxsoa.simulate.folder_lock import FolderInUse, FolderLock
from jaxsoa.simulate.progress import ProgressBar
from jaxsoa.simulate.sharding import to_host

Chunk = Callable[[np.ndarray], Mapping[str, Any]]


def run_study(
    compute: Chunk, items: int, folder: str | Path, *, chunk: int, settings: Mapping[str, Any], progress: bool = True
) -> Path:
    """Run `compute` over items 0 ... items - 1, `chunk` at a time, and return the path of the joined results.

    `compute(indices)` returns named arrays whose first axis goes with the indices (or, of other length, is joined as it
    is); it may return sharded arrays. If `chunk` does not divide `items` the last chunk is smaller, and compiles anew.
    `settings` is everything the results depend on, as JSON (any keys, NaN too): a folder that holds another study, or
    chunks of one, is refused with a ValueError.

    Interrupted at any point, killed even, the same call goes on after the last finished chunk. Chunks found on disk are
    checked by their digests first; a damaged one is named in a warning and computed again. A folder in which another
    run is at work is refused with `FolderInUse`; a killed run's lock is not in the way. With several processes
    (`jax.distributed`) all call this alike; process 0 alone reads and writes the folder.

    >>> squares = lambda k: {"squares": k**2}
    >>> where = soa.simulate.run_study(squares, 5, "study", chunk=2, settings={"power": 2}, progress=False)
    >>> print(np.load(where)["squares"])
    [ 0  1  4  9 16]
    """
    if items < 1 or chunk < 1:
        raise ValueError(f"A study needs at least one item, in chunks of at least one; got {items} and {chunk}.")
    folder, chunks = Path(folder), -(-items // chunk)
    study = {"items": items, "chunk": chunk, "settings": _as_json(settings)}
    writes = jax.process_index() == 0
    done, lock, problem = np.zeros(chunks, bool), None, None
    if writes:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = FolderLock(folder)
            done = _open(folder, study, chunks)
        except (OSError, ValueError, FolderInUse) as error:
            problem = error
    try:
        done = _agree(done, problem)
        bar = ProgressBar(chunks, f"study in {folder.name}: chunk", lines=True) if progress and writes else None
        if writes and done.any():
            print(f"resuming: {int(done.sum())} of {chunks} chunks found in {folder}", file=sys.stderr, flush=True)
        for number in np.flatnonzero(~done).tolist():
            indices = np.arange(number * chunk, min(items, (number + 1) * chunk))
            results = to_host(dict(compute(indices)))
            if writes:
                save_archive(_chunk_path(folder, number), results, header={"study": study, "number": number})
                done[number] = True
                if bar is not None:
                    bar.update(done.sum())
        result = folder / "result.npz"
        if writes:
            parts = [load_archive(_chunk_path(folder, number))[1] for number in range(chunks)]
            save_archive(result, {name: np.concatenate([np.atleast_1d(p[name]) for p in parts]) for name in parts[0]})
        _agree(done, None)  # nobody leaves before the result is there
        return result
    finally:
        if lock is not None:
            lock.release()


def _as_json(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings as they will be read again."""
    try:
        return json.loads(json.dumps(dict(settings), sort_keys=True))
    except TypeError as error:
        raise TypeError(f"The settings of a study are stored as JSON, which these are not: {error}.") from error


def _chunk_path(folder: Path, number: int) -> Path:
    return folder / f"chunk_{number:05d}.npz"


def _open(folder: Path, study: dict[str, Any], chunks: int) -> np.ndarray:
    """Check the folder, which is ours alone now; returns which chunks are there and whole. ValueError if it holds
    another study."""
    for leftover in folder.glob("*.partial"):
        leftover.unlink()
    description = folder / "study.json"
    if description.exists():
        try:
            found = json.loads(description.read_text(encoding="utf-8"))
        except ValueError:
            warnings.warn(f"{description} is damaged and written again.", RuntimeWarning, stacklevel=3)
        else:
            _require_same(study, found, str(folder))
    paths = {_chunk_path(folder, number): number for number in range(chunks)}
    done = np.zeros(chunks, bool)
    for path in sorted(folder.glob("chunk_*.npz")):
        try:
            header, _ = load_archive(path)
        except Damaged as error:
            if path in paths:
                warnings.warn(f"{error} It is computed again.", RuntimeWarning, stacklevel=3)
            continue
        _require_same(study, header.get("study"), str(path))
        if path in paths and header.get("number") == paths[path]:
            done[paths[path]] = True
    with AtomicFile(description) as file:
        file.write(json.dumps(study, indent=1, sort_keys=True).encode())
    return done


def _require_same(study: dict[str, Any], found: Any, where: str) -> None:
    """Raise unless both are the same study; compared as text, in which NaN equals itself."""
    if not isinstance(found, dict) or not isinstance(found.get("settings"), dict):
        raise ValueError(f"{where} was not written by this version of run_study. Choose another folder, or delete it.")
    now, there = ({"items": s.get("items"), "chunk": s.get("chunk"), **_named(s["settings"])} for s in (study, found))
    missing = "nothing"
    texts = [{name: json.dumps(value, sort_keys=True) for name, value in s.items()} for s in (there, now)]
    pairs = [(name, *(s.get(name, missing) for s in texts)) for name in sorted(now.keys() | there.keys())]
    changed = ", ".join(f"{name}: {old} there, {new} now" for name, old, new in pairs if old != new)
    if changed:
        raise ValueError(f"{where} holds another study ({changed}). Choose another folder, or delete it.")


def _named(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {f"settings[{name!r}]": value for name, value in settings.items()}


def _agree(done: np.ndarray, problem: Exception | None) -> np.ndarray:
    """What process 0 found, on every process; all of them raise if it found a problem."""
    if jax.process_count() > 1:
        from jax.experimental import multihost_utils

        told = np.asarray(multihost_utils.broadcast_one_to_all(np.array([problem is not None, *done])))
        refused, done = told[0], told[1:]
        if refused and problem is None:
            problem = ValueError("Process 0 refused the study's folder; its message says why.")
    if problem is not None:
        raise problem
    return done.astype(bool)
