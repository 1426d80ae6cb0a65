"""Files that appear whole or not at all, locks on them, and secrets masked before they get there.

Files of agents are never reached through a link: what is written where agents write is reached part by part,
which trusts no name on the way there.
"""

from __future__ import annotations

import ast
import errno
import fcntl
import json
import os
import re
import shutil
import stat
import threading
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote

from liza.errors import AlreadyRunning, DiskTrouble, LizaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import datetime

    from filelock import FileLock


_NO_LINKS: Final = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


def write_new(path: Path, content: str | bytes) -> bool:
    """Write a file where there is none; return False, and leave what is there, where there is one."""
    with _write_draft(path, content) as draft:
        try:
            link_new(draft, path)
        except FileExistsError:
            return False
    return True


def overwrite(path: Path, content: str | bytes) -> None:
    """Write a file in place of whatever has its name."""
    with _write_draft(path, content) as draft:
        draft.replace(path)


def append_line(path: Path, line: str) -> None:
    """Add one line to a file that several processes write; no other is in it, and none is lost."""
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        except FileNotFoundError:
            if write_new(path, f"{line}\n"):
                return
            continue
        try:
            # A long line grows page by page: whoever looks meanwhile would take it for cut short.
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            _append(descriptor, _encode(f"{line}\n"))
        finally:
            os.close(descriptor)
        return


def link_new(draft: Path, path: Path) -> None:
    """Give *draft* the name *path*; raise FileExistsError where something has it."""
    try:
        os.link(draft, path)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # A file system without links: the name is taken first, so that nobody's file is replaced.
        path.open("x").close()
        draft.replace(path)
        return
    draft.unlink(missing_ok=True)


def _append(descriptor: int, data: bytes) -> None:
    size = os.fstat(descriptor).st_size
    # A full disk may have cut the line before short: what is new must not become a part of it.
    is_torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
    data = b"\n" + data if is_torn else data
    if os.write(descriptor, data) < len(data):  # once: two writes could have another's between them
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@contextmanager
def _write_draft(path: Path, content: str | bytes) -> Iterator[Path]:
    """Give a file of this thread's own beside *path*, with *content* in it; what is left of it goes."""
    draft = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_native_id()}.draft")
    try:
        draft.unlink(missing_ok=True)  # a process that had our number may have died over it
        with draft.open("xb") as file:  # never through a link that somebody put there
            file.write(content if isinstance(content, bytes) else _encode(content))
        yield draft
    finally:
        draft.unlink(missing_ok=True)


def _encode(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


# Files below a directory that agents may write to: reached part by part, and never through a link.
#
# A path that is checked and then used can be another one by then, and one whose last part is checked can
# lead elsewhere by its first. So every part is opened in the directory that was opened before it (`openat`
# with O_NOFOLLOW). The directory itself is ours, and so is every path above it.

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
            _remove_tree(last, directory)
        os.replace(fresh, last, src_dir_fd=directory, dst_dir_fd=directory)


def remove_file(root: Path, name: str) -> None:
    """Remove what is at *name* below *root*, or the link that is in the way there."""
    try:
        with _open_parent(root, name) as (directory, last):
            if _is_directory(last, directory):
                _remove_tree(last, directory)
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


@contextmanager
def directory_below(root: Path, name: str) -> Iterator[int]:
    """Give a descriptor of the directory *name* below *root*; an empty name is *root* itself."""
    with _open_parent(root, os.path.join(name, "x")) as (directory, _):  # noqa: PTH118 - as above
        yield directory


def remove_entry(name: str, directory: int) -> None:
    """Remove what is at *name* directly in *directory*, a descriptor."""
    if _is_directory(name, directory):
        _remove_tree(name, directory)
    else:
        _unlink(name, directory)


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
            except OSError as error:
                if error.errno != errno.ENAMETOOLONG:
                    raise
                # Deeper than any path can name, for git as for us.
                remove_file(Path(os.path.dirname(directory)), os.path.basename(directory))  # noqa: PTH119, PTH120 - as above


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
    """Remove what is below *root* and neither one of *kept*, by their names from there, nor a way to one;
    and one of *kept* that is no file, directory or link.
    """
    folders = {folder for name in kept for folder in _parents_of(name)}
    waiting = ["."]
    while waiting:
        inside = waiting.pop()
        with _open_parent(root, f"{inside}/x") as (directory, _), os.scandir(directory) as entries:
            for entry in entries:
                name = entry.name if inside == "." else f"{inside}/{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    if name in folders:
                        waiting.append(name)
                    elif name not in kept:
                        _remove_tree(entry.name, directory)
                elif name not in kept or not (entry.is_file(follow_symlinks=False) or entry.is_symlink()):
                    os.unlink(entry.name, dir_fd=directory)


def _parents_of(name: str) -> Iterator[str]:
    while name := name.rpartition("/")[0]:
        yield name


def remove(path: Path) -> None:
    """Remove a file, a link or a whole directory, also a read-only one; links are never followed."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return
    try:
        _remove_tree(str(path))
    except OSError as error:
        raise DiskTrouble(f"remove {path}", error) from error


def _remove_tree(name: str, directory: int | None = None) -> None:
    """Remove the directory *name*, which is in *directory*, also where it is read-only or very deep."""
    # A tree deeper than Python's stack is none that `rmtree` can remove, and anybody can make one.
    with suppress(OSError, RecursionError):
        shutil.rmtree(name, dir_fd=directory)
        return
    with suppress(FileNotFoundError):
        _empty_tree(_open_directory(name, directory))
        os.rmdir(name, dir_fd=directory)


def _open_directory(name: str, directory: int | None) -> int:
    os.chmod(name, stat.S_IRWXU, dir_fd=directory)
    return os.open(name, _DIRECTORY, dir_fd=directory)


def _empty_tree(here: int) -> None:
    """Remove all that is below the directory *here*, and close it, with one directory open at a time."""
    above: list[tuple[str, list[str], tuple[int, int]]] = []  # the way back: names, what is left, who it is
    inner = _unlink_files(here)
    try:
        while inner or above:
            if inner:
                name = inner.pop()
                deeper = _open_directory(name, here)
                above.append((name, inner, _identity_of(here)))
                os.close(here)
                here, inner = deeper, _unlink_files(deeper)
            else:
                name, inner, known = above.pop()
                back = os.open(os.pardir, _DIRECTORY, dir_fd=here)
                os.close(here)
                here = back
                if _identity_of(here) != known:
                    raise OSError(errno.ESTALE, "was moved while it was removed", name)
                os.rmdir(name, dir_fd=here)
    finally:
        os.close(here)


def _unlink_files(directory: int) -> list[str]:
    """Remove what is no directory in *directory*, and return the names of those that are."""
    with os.scandir(directory) as entries:
        kinds = {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
    for name, is_directory in kinds.items():
        if not is_directory:
            os.unlink(name, dir_fd=directory)
    return [name for name, is_directory in kinds.items() if is_directory]


def _identity_of(descriptor: int) -> tuple[int, int]:
    facts = os.fstat(descriptor)
    return facts.st_dev, facts.st_ino


def make_writable(directory: Path) -> None:
    """Let us list, enter and change every directory below *directory*; links are never followed."""
    waiting = [str(directory)]
    while waiting:
        path = waiting.pop()
        os.chmod(path, os.stat(path).st_mode | stat.S_IRWXU)  # noqa: PTH101, PTH116 - as above
        with os.scandir(path) as entries:
            waiting += [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]


def files_below(directory: Path) -> Iterator[Path]:
    """Yield what is below *directory* and no directory, however deep; links are never followed."""
    waiting = [str(directory)]
    while waiting:
        with suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                else:
                    yield Path(entry.path)


# Locks between processes, on files, released when their holder dies; and one around Python's parser.
#
# Those that are tried once are `filelock.FileLock`s. Those that are waited for are taken blocking, since
# filelock polls, and polling starved writers. All of them are one kind of lock for the kernel, so that any
# program with a FileLock on the same file contends for them.

# Python's own parser, one thread at a time.
#
# CPython counts the depth of a tree once for all threads while it builds one, so that two threads that parse
# at once end each other with `SystemError: AST constructor recursion depth mismatch` (seen with 3.11.7).

_PARSER_LOCK: Final = Lock()


def parse_python(text: str) -> ast.Module:
    """Return the tree of *text*, as `ast.parse` does."""
    with _PARSER_LOCK:
        return ast.parse(text)


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
    line = f"{os.getpid()} {os.uname().nodename} {at:%Y-%m-%dT%H:%M:%SZ}\n"

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


# Secrets that an agent prints, says or commits are masked before the bytes reach the disk.

MASKED: Final = b"[masked]"
SHORTEST: Final = 8  # characters: a shorter value is a word that would be masked everywhere
LONGEST: Final = 256  # bytes of a token that are looked for; also what is held back while a line is not whole

_SECRET_NAME: Final = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|AUTH(?!OR)", re.IGNORECASE)
_IN_ADDRESS: Final = re.compile(r"://[^/@\s:]*:([^/@\s]+)@")  # the password in an address, as of a database
# What a token of a well-known service begins with, and the rest of it. `task-…` must not be taken for sk-….
_TOKENS: Final = {
    b"sk-": rb"[\w-]{20,200}",
    b"ghp_": rb"\w{36,200}",
    b"gho_": rb"\w{36,200}",
    b"ghs_": rb"\w{36,200}",
    b"ghu_": rb"\w{36,200}",
    b"ghr_": rb"\w{36,200}",
    b"hf_": rb"\w{30,200}",
    b"npm_": rb"\w{36,200}",
    b"pypi-": rb"[\w-]{50,200}",
    b"xapp-": rb"[\w-]{10,200}",
    b"gsk_": rb"\w{40,200}",
    b"github_pat_": rb"\w{22,200}",
    b"glpat-": rb"[\w-]{20,200}",
    b"xoxb-": rb"[\w-]{10,200}",
    b"xoxp-": rb"[\w-]{10,200}",
    b"AKIA": rb"[0-9A-Z]{16}",
    b"AIza": rb"[\w-]{35}",
}

_SHORTEST_TOKEN: Final = 15  # bytes of the shortest that one of the patterns above takes for a token


def secrets_of(environment: Mapping[str, str]) -> list[str]:
    """Return the values in *environment* that nobody should read in a transcript."""
    # Where a secret is kept is none: masking it would make a path in a transcript unreadable.
    named = [
        value for name, value in environment.items() if _SECRET_NAME.search(name) and not Path(value).exists()
    ]
    return [*named, *(word for value in environment.values() for word in _IN_ADDRESS.findall(value))]


def spellings_of(secret: str) -> set[bytes]:
    """Return the ways in which *secret* may be written, line by line: as it is, in JSON, in an address."""
    forms = {secret, json.dumps(secret)[1:-1], quote(secret, safe="")}
    return {line.encode(errors="replace") for form in forms for line in form.splitlines()}


class Mask:
    """Masks a stream: a secret is found also where it arrives in pieces."""

    def __init__(self, secrets: Iterable[str]) -> None:
        lines = {line for secret in secrets for line in spellings_of(secret)}
        values = sorted((line for line in lines if len(line) >= SHORTEST), key=len, reverse=True)
        self._values = tuple(values)
        self._marks = (*values, *_TOKENS)
        tokens = [rb"(?<![\w-])" + re.escape(start) + rest for start, rest in _TOKENS.items()]
        self._pattern = re.compile(b"|".join([*map(re.escape, values), *tokens]), re.ASCII)
        self.longest = max([LONGEST, *map(len, values)])
        self._shortest = min([_SHORTEST_TOKEN, *map(len, values)])
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """Return what is safe to write of *data* and of what was held back before."""
        data = self._held + data
        end = max(data.rfind(b"\n") + 1, len(data) - self.longest)
        done, at = [], 0
        for start, stop in self._found(data):
            if stop > end:
                end = min(end, start)
                break
            done += [data[at:start], MASKED]
            at = stop
        self._held = data[end:]
        return b"".join([*done, data[at:end]])

    def rest(self) -> bytes:
        """Return what was held back; only for where the stream ends."""
        held, self._held = self._held, b""
        return self._pattern.sub(MASKED, held)

    def whole(self, data: bytes) -> bytes:
        """Return *data*, which is all there is, masked."""
        if len(data) < self._shortest:  # most of what is masked are names and numbers
            return data
        return self._pattern.sub(MASKED, data) if any(mark in data for mark in self._marks) else data

    def has_value(self, data: bytes) -> bool:
        """Return whether *data* holds a secret that is known, not only what looks like one."""
        return any(value in data for value in self._values)

    def text(self, text: str) -> str:
        data = text.encode(errors="surrogatepass")
        masked = self.whole(data)
        return text if masked is data else masked.decode(errors="surrogatepass")

    def values(self, value: Any) -> Any:  # noqa: ANN401 - whatever JSON can say
        """Return *value* with every string in it masked, keys included."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.values(key): self.values(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(map(self.values, value))
        return value

    def drop_held(self) -> int:
        """Forget what was held back, and return how much it was: the stream is cut here."""
        held, self._held = self._held, b""
        return len(held)

    def _found(self, data: bytes) -> Iterable[tuple[int, int]]:
        # Searching for fixed bytes is a hundred times faster than the pattern, and mostly there are none.
        if not any(mark in data for mark in self._marks):
            return ()
        return (match.span() for match in self._pattern.finditer(data))


@lru_cache(8)
def _mask_of(environment: tuple[tuple[bytes, bytes], ...]) -> Mask:
    known = {os.fsdecode(name): os.fsdecode(value) for name, value in environment}
    return Mask(frozenset(secrets_of(known)))


def environment_mask() -> Mask:
    """Return the mask of what is secret in our own environment; for whole texts."""
    return _mask_of(tuple(os.environb.items()))
