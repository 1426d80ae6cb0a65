"""Files below a directory that agents may write to: reached part by part, and never through a link.

A path that is checked and then used can be another one by then, and one whose last part is checked can lead
elsewhere by its first. So every part is opened in the directory that was opened before it (`openat` with
O_NOFOLLOW). The directory itself is ours, and so is every path above it.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from liza.errors import DiskTrouble

LONGEST_LINE: Final = 8192  # bytes; longer than any path
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe must not hold us
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def read_file(root: Path, name: str, most: int = -1) -> bytes:
    """Return the file *name* below *root*, or its first *most* bytes; raise OSError where it is none."""
    with _open_parent(root, name) as (directory, last):
        descriptor = os.open(last, _READ, dir_fd=directory)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "is no plain file", name)
        return file.read(most)


def first_line(path: Path) -> str:
    """Return what a small file says; nothing where it is none, or went while we looked."""
    try:
        content = read_file(path.parent, path.name, LONGEST_LINE)
    except OSError:
        return ""
    return content.partition(b"\n")[0].decode("utf-8", "surrogateescape")


def stamp_of(path: Path) -> tuple[int, ...]:
    """Return what tells one version of a file from the next that replaces it; () where there is none."""
    try:
        facts = path.stat()
    except OSError:
        return ()
    return (facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)


def write_file(
    root: Path, name: str, content: bytes, *, mode: int = 0o666, modified: int | None = None
) -> None:
    """Put *content* at *name* below *root* in one step; what is no directory on the way there goes.

    *modified* is the time that the file gets, in nanoseconds; if not given, it is now.
    """
    make_directory(root, os.path.dirname(name))  # noqa: PTH120 - a name, no path of its own
    with _open_parent(root, name) as (directory, last):
        fresh = f"{last}.liza-{os.getpid()}"
        _unlink(fresh, directory)
        descriptor = os.open(fresh, _NEW, mode, dir_fd=directory)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            if modified is not None:
                os.utime(descriptor, ns=(modified, modified))
        if _is_directory(last, directory):
            shutil.rmtree(last, dir_fd=directory)
        os.replace(fresh, last, src_dir_fd=directory, dst_dir_fd=directory)


def remove_file(root: Path, name: str) -> None:
    """Remove what is at *name* below *root*, or the link that is in the way there."""
    try:
        with _open_parent(root, name) as (directory, last):
            if _is_directory(last, directory):
                shutil.rmtree(last, dir_fd=directory)
            else:
                _unlink(last, directory)
    except NotADirectoryError:
        _clear_way(root, os.path.dirname(name))  # noqa: PTH120 - as above
    except FileNotFoundError:
        return


def remove_empty(root: Path, name: str) -> None:
    """Remove the directory or file *name* below *root* if nothing is in it; raise OSError where it is not."""
    with _open_parent(root, name) as (directory, last):
        facts = os.stat(last, dir_fd=directory, follow_symlinks=False)
        if stat.S_ISDIR(facts.st_mode):
            os.rmdir(last, dir_fd=directory)
        elif stat.S_ISREG(facts.st_mode) and facts.st_size == 0:
            os.unlink(last, dir_fd=directory)


def make_directory(root: Path, name: str) -> None:
    """Have a directory at *name* below *root*; what is none on the way there goes."""
    _clear_way(root, name)
    parts = Path(name).parts
    for count in range(1, len(parts) + 1):
        with _open_parent(root, os.path.join(*parts[:count])) as (directory, last), suppress(FileExistsError):  # noqa: PTH118 - as above
            os.mkdir(last, dir_fd=directory)


def _clear_way(root: Path, name: str) -> None:
    """Remove the first part of *name* that is there and no directory."""
    parts = Path(name).parts
    for count in range(1, len(parts) + 1):
        with _open_parent(root, os.path.join(*parts[:count])) as (directory, last):  # noqa: PTH118 - as above
            try:
                facts = os.stat(last, dir_fd=directory, follow_symlinks=False)
            except FileNotFoundError:
                return
            if not stat.S_ISDIR(facts.st_mode):
                os.unlink(last, dir_fd=directory)
                return


@contextmanager
def _open_parent(root: Path, name: str) -> Iterator[tuple[int, str]]:
    """Give a descriptor of the directory that *name* is in, and its last part."""
    *parts, last = Path(name).parts
    if not last or last == os.pardir or os.pardir in parts or Path(name).is_absolute():
        raise OSError(errno.EINVAL, "leads out of its directory", name)
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts:
            inner = os.open(part, _DIRECTORY, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        yield descriptor, last
    finally:
        os.close(descriptor)


def _is_directory(name: str, directory: int) -> bool:
    try:
        return stat.S_ISDIR(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


def _unlink(name: str, directory: int) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=directory)


def plain_files(root: Path, name: str = "") -> list[str]:
    """Return the names of the plain files directly in *name* below *root*; none where it is no directory."""
    return [entry for entry, mode in _entries_in(root, name) if stat.S_ISREG(mode)]


def directories(root: Path, name: str = "") -> list[str]:
    """Return the names of the directories directly in *name* below *root*; links to one are none."""
    return [entry for entry, mode in _entries_in(root, name) if stat.S_ISDIR(mode)]


def _entries_in(root: Path, name: str) -> Iterator[tuple[str, int]]:
    try:
        with _open_parent(root, os.path.join(name, "x")) as (directory, _):  # noqa: PTH118 - as above
            for entry in sorted(os.listdir(directory)):  # noqa: PTH208 - of a descriptor
                try:
                    mode = os.stat(entry, dir_fd=directory, follow_symlinks=False).st_mode
                except FileNotFoundError:  # such as a lock that went meanwhile; all others are there
                    continue
                yield entry, mode
    except (FileNotFoundError, NotADirectoryError):
        return


def remove_special(root: Path, *, and_links: bool = False) -> None:
    """Remove what is no file, directory or link below *root*, or no link either: git would wait for a pipe
    for ever, and follow a link.
    """
    waiting = [str(root)]
    while waiting:
        directory = waiting.pop()
        with suppress(FileNotFoundError):
            try:
                waiting += _remove_special_in(directory, and_links=and_links)
            except PermissionError:  # git opens files by name in a directory that it cannot list
                os.chmod(directory, stat.S_IRWXU)  # noqa: PTH101 - a hundred thousand times a walk
                waiting += _remove_special_in(directory, and_links=and_links)


def _remove_special_in(directory: str, *, and_links: bool) -> list[str]:
    """Remove what is special directly in *directory*, and return the directories in it."""
    inner = []
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                inner.append(entry.path)
            elif not entry.is_file(follow_symlinks=False) and (and_links or not entry.is_symlink()):
                with suppress(FileNotFoundError):  # else all that is behind it would stay
                    os.unlink(entry.path)  # noqa: PTH108 - as above
    return inner


def remove_others(root: Path, kept: Collection[str]) -> None:
    """Remove what is below *root* and neither one of *kept*, by their names from there, nor a way to one."""
    folders = {folder for name in kept for folder in _parents_of(name)}
    waiting = ["."]
    while waiting:
        inside = waiting.pop()
        with _open_parent(root, f"{inside}/x") as (directory, _), os.scandir(directory) as entries:
            for entry in entries:
                name = entry.name if inside == "." else f"{inside}/{entry.name}"
                if name in folders and entry.is_dir(follow_symlinks=False):
                    waiting.append(name)
                elif name not in kept and entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.name, dir_fd=directory)
                elif name not in kept:
                    os.unlink(entry.name, dir_fd=directory)


def _parents_of(name: str) -> Iterator[str]:
    while name := name.rpartition("/")[0]:
        yield name


def remove(path: Path) -> None:
    """Remove a file, a link or a whole directory, also a read-only one; links are never followed."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return
    with suppress(OSError):
        shutil.rmtree(path)
        return
    try:
        make_writable(path)
        shutil.rmtree(path)
    except OSError as error:
        raise DiskTrouble(f"remove {path}", error) from error


def make_writable(directory: Path) -> None:
    """Let us list, enter and change every directory below *directory*; links are never followed."""
    directory.chmod(directory.stat().st_mode | stat.S_IRWXU)
    for parent, names, _ in os.walk(directory):
        for name in names:
            path = Path(parent) / name
            if not path.is_symlink():
                path.chmod(path.stat().st_mode | stat.S_IRWXU)
