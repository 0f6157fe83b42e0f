"""Compiled kernels kept on disk, by content: found again by the next process in a millisecond.

A file holds a digest and the object code. The folder must be the user's own and closed to everybody else, because what
is in it is executed; a folder or file that is not, or a damaged file, is left alone as if it were not there.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
from pathlib import Path

from jaxsoa.kernels import settings

_MAGIC = b"jaxsoa kernel 1\n"


def load(key: str) -> bytes | None:
    folder = settings.cache_folder()
    if folder is None or not _private(folder):
        return None
    try:
        path = folder / key
        if not _own(path.lstat()):
            return None
        content = path.read_bytes()
    except OSError:
        return None
    head = len(_MAGIC) + 32
    code = content[head:]
    if not content.startswith(_MAGIC) or hashlib.sha256(code).digest() != content[len(_MAGIC) : head]:
        return None
    return code


def store(key: str, code: bytes) -> None:
    """Write a kernel so that a reader sees all of it or nothing; a disk that is full or closed is no error."""
    folder = settings.cache_folder()
    if folder is None:
        return
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not _private(folder):
            return
        handle, temporary = tempfile.mkstemp(dir=folder)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_MAGIC + hashlib.sha256(code).digest() + code)
            os.replace(temporary, folder / key)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def _own(found: os.stat_result) -> bool:
    if os.name != "posix":
        return True
    return found.st_uid == os.getuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _private(folder: Path) -> bool:
    try:
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and _own(found)
