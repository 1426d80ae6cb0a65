"""Every step by which the board touches the disk, so that a test can die at each of them."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import signal
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final, NamedTuple

from liza.system.files import link_new

if TYPE_CHECKING:
    from collections.abc import Callable

_AT_FDCWD: Final = -100
_NO_REPLACE: Final = 1
_EXCHANGE: Final = 2
_UNKNOWN_TO_THE_FILE_SYSTEM: Final = {errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP}


class FileId(NamedTuple):
    """Identifies a version of a file without reading it."""

    inode: int
    mtime_ns: int
    size: int


class Disk:
    """The steps of an update, one method each; nothing here decides anything."""

    def lock(self, descriptor: int) -> None:
        # Blocking, because the kernel queues whoever waits; a lock that polls starves some writers.
        fcntl.flock(descriptor, fcntl.LOCK_EX)

    def unlock(self, descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)

    def append(self, descriptor: int, data: bytes) -> None:
        while data:
            data = data[os.write(descriptor, data) :]

    def sync(self, descriptor: int) -> None:
        os.fdatasync(descriptor)

    def truncate(self, descriptor: int, size: int) -> None:
        os.ftruncate(descriptor, size)

    def overwrite(self, descriptor: int, data: bytes) -> None:
        """Make *data* the whole content of an open file."""
        done = 0
        view = memoryview(data)
        while done < len(data):
            done += os.pwrite(descriptor, view[done:], done)
        os.ftruncate(descriptor, len(data))

    def exchange(self, new: Path, current: Path) -> None:
        """Let two names trade places in one step, so that whatever *current* was is kept as *new*."""
        if _rename_with_flag(new, current, _EXCHANGE):
            return
        # Without the system call a save in the gap between the two steps is lost; it is microseconds wide.
        kept = new.with_name(new.name + ".kept")
        kept.unlink(missing_ok=True)
        if current.exists():
            os.link(current, kept)
        new.replace(current)
        if kept.exists():
            kept.replace(new)

    def place(self, new: Path, current: Path) -> None:
        """Give *new* the name *current*, which nobody has; raise FileExistsError if somebody has it."""
        if not _rename_with_flag(new, current, _NO_REPLACE):
            link_new(new, current)


def _rename_with_flag(new: Path, current: Path, flag: int) -> bool:
    """Rename as *flag* says; return False where that is not to be had."""
    call = _renameat2()
    if call is None:
        return False
    if call(_AT_FDCWD, os.fsencode(new), _AT_FDCWD, os.fsencode(current), flag) == 0:
        return True
    error = ctypes.get_errno()
    if error in _UNKNOWN_TO_THE_FILE_SYSTEM:
        return False
    raise OSError(error, os.strerror(error), str(current))


def can_exchange(directory: Path) -> bool:
    """Return whether two files in *directory* can change names in one step, by trying it."""
    try:
        with TemporaryDirectory(prefix=".liza-try-", dir=directory) as place:
            one, other = Path(place) / "one", Path(place) / "other"
            one.touch()
            other.touch()
            return _rename_with_flag(one, other, _EXCHANGE)
    except OSError:
        return False


@cache
def _renameat2() -> Callable[[int, bytes, int, bytes, int], int] | None:
    return getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)


def file_id_of(found: os.stat_result) -> FileId:
    return FileId(found.st_ino, found.st_mtime_ns, found.st_size)


def file_id_at(path: Path) -> FileId | None:
    """Return the print of the file at *path*, or None where there is none."""
    try:
        return file_id_of(path.lstat())
    except FileNotFoundError:
        return None


def is_ours_alone(descriptor: int) -> bool:
    """Ask the kernel whether nobody else has this file open: only then will it grant a write lease."""
    return _is_lease_granted(descriptor, fcntl.F_WRLCK)


def has_no_writer(path: Path) -> bool:
    """Ask the kernel whether nobody has the file open for writing: only then will it grant a read lease."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except PermissionError:
        return True  # nobody knows
    try:
        return _is_lease_granted(descriptor, fcntl.F_RDLCK)
    finally:
        os.close(descriptor)


def _is_lease_granted(descriptor: int, kind: int) -> bool:
    try:
        # Whoever opens the file meanwhile makes the kernel signal us: by SIGIO, which kills, if not told so.
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, kind)
    except OSError as error:
        # EAGAIN is the answer no; anything else means that leases are not to be had here, so nobody knows.
        return error.errno != errno.EAGAIN and kind == fcntl.F_RDLCK
    fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return True
