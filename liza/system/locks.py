"""Liveness as kernel locks: a file lock held from start to exit, released with its process.

The file names its holder for people; only the lock counts. Its descriptor is not inherited, so an orphan
cannot keep it.
"""

from __future__ import annotations

import fcntl
import os
import socket
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from liza.errors import AlreadyRunning, DiskTrouble

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime
    from pathlib import Path

SUPERVISOR_LOCK: Final = "supervisor.lock"
LOCK_IN_GIT: Final = "liza-supervisor.lock"  # in the git directory that all checkouts of a repository share
WORKERS_DIRECTORY: Final = "workers"  # the directory with a lock a worker

_LONGEST: Final = 1024  # bytes of a lock file that are read


class Holder(NamedTuple):
    pid: int
    host: str
    since: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} since {self.since}"


@contextmanager
def hold_for_life(path: Path, *, at: datetime) -> Iterator[None]:
    """Hold the lock *path* and say in it who does; raise AlreadyRunning where somebody else holds it."""
    descriptor = _open_locked(path)
    try:
        line = f"{os.getpid()} {socket.gethostname()} {at:%Y-%m-%dT%H:%M:%SZ}\n"
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, line.encode(), 0)
        yield
    finally:
        # While it is still ours: whoever opened it meanwhile sees that it is gone and makes another.
        path.unlink(missing_ok=True)
        os.close(descriptor)


def is_held(path: Path) -> bool:
    """Return whether a process holds *path*. It takes a shared lock for a moment, so call it rarely."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise DiskTrouble(f"open {path}", error) from error
    try:
        return not _try_lock(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


def holder_of(path: Path) -> Holder | None:
    """Return the holder that *path* names, or None where the lock is free."""
    return _read_holder(path) if is_held(path) else None


def live_workers(home: Path) -> frozenset[str]:
    """Return the names of the workers that hold their lock."""
    return frozenset(path.stem for path in (home / WORKERS_DIRECTORY).glob("*.lock") if is_held(path))


def remove_stale(home: Path) -> None:
    """Remove the lock files that dead workers left; nothing depends on it."""
    for path in (home / WORKERS_DIRECTORY).glob("*.lock"):
        with suppress(OSError, AlreadyRunning):
            descriptor = _open_locked(path)
            path.unlink(missing_ok=True)
            os.close(descriptor)


def _open_locked(path: Path) -> int:
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        except OSError as error:
            raise DiskTrouble(f"open {path}", error) from error
        if not _try_lock(descriptor, fcntl.LOCK_EX):
            os.close(descriptor)
            raise AlreadyRunning(path.stem, str(_read_holder(path) or "another process"))
        if os.fstat(descriptor).st_nlink:
            return descriptor
        os.close(descriptor)  # its holder ended between our two steps


def _try_lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read_holder(path: Path) -> Holder | None:
    try:
        with path.open("rb") as file:
            words = file.read(_LONGEST).decode(errors="replace").split()
    except OSError:
        return None
    match words:
        case [pid, host, since] if pid.isdecimal():
            return Holder(int(pid), host, since)
    return None
