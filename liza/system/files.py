"""Files that appear whole or not at all: written under another name, then named in one step.

For Liza's own directories. What is written where agents write goes through `no_follow`, which trusts no
name on the way there.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

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
