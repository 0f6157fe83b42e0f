"""One run at a time in a folder: a lock that dies with its owner.

The operating system holds the lock for the process and lets go of it when the process ends, however it ends, so a
killed run leaves nothing to clean up. Beside it the file says who holds it (host, process, when that process started),
for the message to others. Where the file system has no locks that record is all there is: an owner on this host that is
gone, or whose number another process has by now, has left a stale lock, which is taken over; of an owner on another
host nothing can be known, and the lock is respected.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

LOCK_FILE = "lock"
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}
_BEHIND_THE_RECORD = 1 << 20  # Windows locks bytes against reading too: one that is never read


class FolderInUse(RuntimeError):
    """Another run is at work in the folder."""


class FolderLock:
    """Held from `FolderLock(folder)` to `release()`; `FolderInUse` is raised where somebody else holds it.

    Two threads exclude each other as two processes do. A forked child does not hold its parent's lock.
    """

    def __init__(self, folder: Path):
        self.path = folder / LOCK_FILE
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o666)
        try:
            self._locked = _lock(self._file)
            record = _read(self._file)
            if self._locked is False or (self._locked is None and _alive(record)):
                raise FolderInUse(f"{folder} is in use by another run ({_describe(record)}). {_advice(self.path)}")
            _write(self._file, _this_process())
        except BaseException:
            os.close(self._file)
            raise
        _held.add(self)

    def release(self) -> None:
        """Let go; the file stays, empty, because a lock on a deleted file would exclude nobody."""
        if self in _held:
            _held.remove(self)
            os.ftruncate(self._file, 0)
            if self._locked:
                _unlock(self._file)  # said aloud: a child forked this moment has the file still open
            os.close(self._file)


_held: set[FolderLock] = set()


def _forget_in_child() -> None:
    for lock in _held:
        os.close(lock._file)  # the parent's stays locked: the lock belongs to the open file, which both had
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)


def _lock(file: int) -> bool | None:
    """Whether the lock is ours now; None where the file system has no locks."""
    try:
        if sys.platform == "win32":
            os.lseek(file, _BEHIND_THE_RECORD, os.SEEK_SET)
            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return None if error.errno in _NO_LOCKS else False
    return True


def _unlock(file: int) -> None:
    if sys.platform == "win32":
        os.lseek(file, _BEHIND_THE_RECORD, os.SEEK_SET)
        msvcrt.locking(file, msvcrt.LK_UNLCK, 1)
    else:
        fcntl.flock(file, fcntl.LOCK_UN)


def _read(file: int) -> dict[str, Any]:
    os.lseek(file, 0, os.SEEK_SET)
    try:
        record = json.loads(os.read(file, 4096))
    except ValueError:  # empty, or cut off
        return {}
    return record if isinstance(record, dict) else {}


def _write(file: int, record: dict[str, Any]) -> None:
    os.ftruncate(file, 0)
    os.lseek(file, 0, os.SEEK_SET)
    os.write(file, json.dumps(record).encode())
    os.fsync(file)


def _this_process() -> dict[str, Any]:
    return {"host": socket.gethostname(), "boot": _boot(), "pid": os.getpid(), "started": _started(os.getpid())}


def _alive(record: dict[str, Any]) -> bool:
    """Whether the process that wrote the record may still run."""
    if not record:
        return False
    if record.get("host") != socket.gethostname():
        return True
    pid = record.get("pid")
    if record.get("boot") != _boot() or not isinstance(pid, int):
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return _started(pid) == record.get("started")


def _boot() -> str | None:
    """What this start of the machine is called (Linux)."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None


def _started(pid: int) -> int | None:
    """When the process started, in clock ticks since the machine did (Linux): numbers of processes are used again."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[19])  # a zombie runs no longer


def _describe(record: dict[str, Any]) -> str:
    return f"process {record.get('pid')} on {record.get('host')}" if record else "which has not said its name yet"


def _advice(path: Path) -> str:
    return f"Wait until it has ended, or choose another folder. If it is surely gone, delete {path}."
