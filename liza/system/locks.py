"""Locks between processes, on files: the kernel releases them when their holder dies, however it dies.

Those that are tried once are `filelock.FileLock`s. Those that are waited for are taken blocking, since
filelock polls, and polling starved writers. All of them are one kind of lock for the kernel, so that any
program with a FileLock on the same file contends for them.
"""

from __future__ import annotations

import fcntl
import os
import socket
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from liza.errors import AlreadyRunning, DiskTrouble, LizaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime
    from pathlib import Path

    from filelock import FileLock

SUPERVISOR_LOCK: Final = "supervisor.lock"
LOCK_IN_GIT: Final = "liza-supervisor.lock"  # in the git directory that all checkouts of a repository share
WORKERS_DIRECTORY: Final = "workers"  # the directory with a lock a worker

_LONGEST: Final = 1024  # bytes of a lock file that are read
_MODE: Final = 0o644
_POLL: Final = 0.2  # seconds between two tries of a lock that is held for minutes


class Holder(NamedTuple):
    pid: int
    host: str
    since: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} since {self.since}"


@contextmanager
def hold_for_life(path: Path, *, at: datetime) -> Iterator[None]:
    """Hold the lock *path* and say in it who does; raise AlreadyRunning where somebody else holds it.

    The file names its holder for people; only the lock counts. Its descriptor is not inherited, so an orphan
    cannot keep it.
    """
    line = f"{os.getpid()} {socket.gethostname()} {at:%Y-%m-%dT%H:%M:%SZ}\n"

    def sign(descriptor: int) -> None:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, line.encode(), 0)

    lock = try_lock(path, sign)
    if lock is None:
        raise AlreadyRunning(path.stem, str(_read_holder(path) or "another process"))
    try:
        yield
    finally:
        release_and_remove(lock)


def try_lock(path: Path, on_acquired: Callable[[int], None] | None = None) -> FileLock | None:
    """Return the lock at *path*, held until it is released; None where another has it."""
    from filelock import FileLock, Timeout  # noqa: PLC0415 - who only looks at locks does not pay for its import

    lock = FileLock(
        path,
        blocking=False,
        mode=_MODE,
        thread_local=False,
        fallback_to_soft=False,  # a soft lock would outlive its holder
        on_acquired=on_acquired,
    )
    while True:
        try:
            lock.acquire()
        except Timeout:
            if is_held(path):
                return None
            # Its holder ended between our two steps, or it was somebody who only looked.
        except OSError as error:
            raise DiskTrouble(f"lock {path}", error) from error
        else:
            return lock


def release_and_remove(lock: FileLock) -> None:
    # While it is still ours: whoever opened it meanwhile sees that it is gone and makes another.
    with suppress(FileNotFoundError):
        os.unlink(lock.lock_file)  # noqa: PTH108 - filelock knows it as text
    lock.release()


@contextmanager
def hold_patiently(path: Path, seconds: float) -> Iterator[None]:
    """Hold the lock *path*, asking now and then for *seconds*; for what is held for minutes."""
    from filelock import FileLock, Timeout  # noqa: PLC0415 - as above

    lock = FileLock(path, timeout=seconds, poll_interval=_POLL, mode=_MODE, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout as error:
        raise LizaError(f"another process still holds {path} after {seconds:g} seconds; try again") from error
    try:
        yield
    finally:
        lock.release()


@contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    """Wait in the kernel's queue for the lock at *path* and hold it; for what is held for milliseconds."""
    with closing(LockFile(path)) as file:
        file.lock()
        yield


class LockFile:
    """One lock file that is waited for, opened when it is needed and kept open."""

    def __init__(
        self,
        path: Path,
        take: Callable[[int], None] = lambda descriptor: fcntl.flock(descriptor, fcntl.LOCK_EX),
        give: Callable[[int], None] = lambda descriptor: fcntl.flock(descriptor, fcntl.LOCK_UN),
    ) -> None:
        self.path = path
        self._take = take
        self._give = give
        self._descriptor = -1

    def lock(self) -> int:
        """Wait for the lock; return the descriptor of its file."""
        while True:
            if self._descriptor < 0:
                self._descriptor = self._open_file()
            try:
                self._take(self._descriptor)
            except OSError as error:
                raise DiskTrouble(f"lock {self.path}", error) from error
            if os.fstat(self._descriptor).st_nlink:
                return self._descriptor
            self.close()  # somebody removed the file: whoever comes now locks another one

    def unlock(self) -> None:
        if self._descriptor < 0:
            return
        try:
            self._give(self._descriptor)
        except OSError:
            self.close()  # which gives the lock back as well

    def is_taken(self) -> bool:
        """Return whether another process holds the lock; this one does not."""
        if self._descriptor < 0:
            return False
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        self.unlock()
        return False

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1

    def _open_file(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            return os.open(self.path, flags, _MODE)
        except OSError as error:
            raise DiskTrouble(f"open {self.path}", error) from error


def is_held(path: Path) -> bool:
    """Return whether a process holds *path*. It takes a shared lock for a moment, so call it rarely.

    Not by filelock, which has no shared locks: two who look at once would take each other for the holder.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise DiskTrouble(f"open {path}", error) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def holder_of(path: Path) -> Holder | None:
    """Return the holder that *path* names, or None where the lock is free."""
    return _read_holder(path) if is_held(path) else None


def live_workers(home: Path) -> frozenset[str]:
    """Return the names of the workers that hold their lock."""
    return frozenset(path.stem for path in (home / WORKERS_DIRECTORY).glob("*.lock") if is_held(path))


def remove_stale(home: Path) -> None:
    """Remove the lock files that dead workers left; nothing depends on it."""
    for path in (home / WORKERS_DIRECTORY).glob("*.lock"):
        with suppress(OSError, DiskTrouble):
            if lock := try_lock(path):
                release_and_remove(lock)


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
