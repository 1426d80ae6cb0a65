"""Every step by which the board touches the disk, so that a test can die at each of them."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from liza.system.files import link_new
from liza.system.host import host


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
        if host().exchange_names(new, current):
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
        if not host().rename_to_free(new, current):
            link_new(new, current)


def can_exchange(directory: Path) -> bool:
    """Return whether two files in *directory* can change names in one step, by trying it."""
    try:
        with TemporaryDirectory(prefix=".liza-try-", dir=directory) as place:
            one, other = Path(place) / "one", Path(place) / "other"
            one.touch()
            other.touch()
            return host().exchange_names(one, other)
    except OSError:
        return False


def file_id_of(found: os.stat_result) -> FileId:
    return FileId(found.st_ino, found.st_mtime_ns, found.st_size)


def file_id_at(path: Path) -> FileId | None:
    """Return the print of the file at *path*, or None where there is none."""
    try:
        return file_id_of(path.lstat())
    except FileNotFoundError:
        return None


def has_no_writer(path: Path) -> bool:
    """Return whether nobody is known to have the file open for writing."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except PermissionError:
        return True  # nobody knows
    try:
        return not host().may_have_writer(descriptor)
    finally:
        os.close(descriptor)
