"""Tells without a git process that a small checkout is just what its index says.

Only a plain yes counts: every file is in the index and as it was when the index was written, and there is no
other file. Whatever else is found, git is asked, who knows about filters, ignored files and modules.
"""

from __future__ import annotations

import hashlib
import os
import stat
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

LARGEST_INDEX: Final = 1 << 16  # bytes, some 700 files; git is quicker with more
LARGEST_FILE: Final = 1 << 20  # bytes of a file whose content is compared
_HEADER: Final = struct.Struct(">4sII")
_FACTS: Final = struct.Struct(">10I")
_VERSION: Final = 2  # the format that git writes where nobody asks for another
_NAME_LENGTH: Final = 0x0FFF  # all other bits of an entry's flags are for what is not plain
_ALIGNMENT: Final = 8
_HASHES: Final = {20: hashlib.sha1, 32: hashlib.sha256}  # by the bytes of a name
_SECOND: Final = 10**9
_WORD: Final = 0xFFFFFFFF


class _Entry(NamedTuple):
    """What the index remembers of a file; times in nanoseconds."""

    ctime: int
    mtime: int
    inode: int
    mode: int
    owner: tuple[int, int]
    size: int
    blob: bytes


def is_unchanged(directory: Path, index: Path, width: int) -> bool:
    """Return whether *directory* is surely what *index* says; names of objects have *width* bytes."""
    with suppress(OSError, ValueError, struct.error):
        written = index.stat()
        if written.st_size > LARGEST_INDEX or width not in _HASHES:
            return False
        entries = dict(_entries(index.read_bytes(), width))
        return (
            all(
                name in entries and _is_same(path, entries.pop(name), written.st_mtime_ns)
                for name, path in _files(str(directory), entries)
            )
            and not entries
        )
    return False


def _entries(content: bytes, width: int) -> Iterator[tuple[str, _Entry]]:
    signature, version, count = _HEADER.unpack_from(content)
    if signature != b"DIRC" or version != _VERSION:
        raise ValueError(version)
    at = _HEADER.size
    for _ in range(count):
        ctime, cnano, mtime, mnano, _device, inode, mode, user, group, size = _FACTS.unpack_from(content, at)
        name_at = at + _FACTS.size + width + 2
        flags = int.from_bytes(content[name_at - 2 : name_at], "big")
        length = flags & _NAME_LENGTH
        if flags != length or length == _NAME_LENGTH:  # half merged, hidden, or very long
            raise ValueError(flags)
        blob = content[at + _FACTS.size : name_at - 2]
        times = ctime * _SECOND + cnano, mtime * _SECOND + mnano
        yield (
            os.fsdecode(content[name_at : name_at + length]),
            _Entry(*times, inode, mode, (user, group), size, blob),
        )
        at += (name_at + length - at) // _ALIGNMENT * _ALIGNMENT + _ALIGNMENT


def _files(directory: str, entries: dict[str, _Entry]) -> Iterator[tuple[str, str]]:
    """Yield every file with its name in the index; raise ValueError for a folder that the index has not."""
    folders = {name[:end] for name in entries for end, sign in enumerate(name) if sign == "/"}
    waiting = [("", directory)]
    while waiting:
        inside, path = waiting.pop()
        with os.scandir(path) as found:
            for entry in found:
                name = inside + entry.name
                if not inside and entry.name == ".git":
                    continue
                if not entry.is_dir(follow_symlinks=False):
                    yield name, entry.path
                elif name in folders:
                    waiting.append((f"{name}/", entry.path))
                else:
                    raise ValueError(name)


def _is_same(path: str, entry: _Entry, index_written: int) -> bool:
    facts = os.lstat(path)
    seen = (facts.st_ctime_ns, facts.st_mtime_ns, facts.st_ino & _WORD, _git_mode(facts.st_mode))
    if seen != (entry.ctime, entry.mtime, entry.inode, entry.mode):
        return False
    if (facts.st_uid, facts.st_gid) != entry.owner or facts.st_size & _WORD != entry.size:
        return False
    # What changed after the index was written has a later time; within one tick of the clock nobody can tell.
    if max(entry.ctime, entry.mtime) < index_written:
        return True
    return facts.st_size <= LARGEST_FILE and _blob_of(path, facts.st_mode, len(entry.blob)) == entry.blob


def _git_mode(mode: int) -> int:
    if stat.S_ISREG(mode):
        return 0o100755 if mode & stat.S_IXUSR else 0o100644
    return 0o120000 if stat.S_ISLNK(mode) else 0


def _blob_of(path: str, mode: int, width: int) -> bytes:
    if stat.S_ISLNK(mode):
        content = os.fsencode(os.readlink(path))  # noqa: PTH115 - as bytes
    else:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            content = file.read(LARGEST_FILE)
    return _HASHES[width](b"blob %d\0%s" % (len(content), content)).digest()
