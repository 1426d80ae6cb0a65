"""Git's index without a git process: what it says of a checkout, and how that goes to another tree.

An index remembers of each file what tells one version from the next: inode, size and times, of which the
ctime cannot be set back. So one look at every file tells which were touched since it was written, and a
checkout goes from one tree to the next by these files and those that differ between the trees. Only what is
plain is done so: an index of another format, names that git refuses, and files that git would write otherwise
than they are stored are left to git.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

from liza.system.files import (
    directory_below,
    read_file,
    remove_empty,
    remove_entry,
    remove_file,
    stamp_of,
    write_file,
)

LARGEST_INDEX: Final = 1 << 24  # bytes, some 150,000 files; one that is larger would fill our memory
ATTRIBUTES: Final = ".gitattributes"
LARGEST_FILE: Final = 1 << 20  # bytes of a file whose content is compared
EXECUTABLE: Final = stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH
EXECUTABLE_MODE: Final = 0o100755  # what git knows a mode by
PLAIN_MODE: Final = 0o100644
LINK_MODE: Final = 0o120000
_HEADER: Final = struct.Struct(">4sII")
_FACTS: Final = struct.Struct(">10I")
_SIGNATURE: Final = b"DIRC"
_VERSION: Final = 2  # the format that git writes where nobody asks for another
_NAME_LENGTH: Final = 0x0FFF  # all other bits of an entry's flags are for what is not plain
_ALIGNMENT: Final = 8
_HASHES: Final = {20: hashlib.sha1, 32: hashlib.sha256}  # by the bytes of a name
_SECOND: Final = 10**9
_WORD: Final = 0xFFFFFFFF
# Names that lead into a repository somewhere, or could on some system: git knows all of them.
_ODD_NAME: Final = re.compile(
    r"(?:^|/)(?:\.git(?!(?:ignore|keep|hub|lab|lab-ci\.yml)(?:/|$))|git~)|\\", re.IGNORECASE
)

Stamp = tuple[int, int, int, int]  # ctime and mtime in nanoseconds, inode, size


class IndexEntry(NamedTuple):
    """A file as the index has it: what its stamp was, and the entry's bytes."""

    stamp: Stamp
    mode: int
    blob: bytes
    raw: bytes


@dataclass(frozen=True)
class Index:
    """An index: every entry by its path in git's order; *written* is when, in nanoseconds."""

    entries: Mapping[str, IndexEntry]
    written: int
    width: int
    folders: frozenset[str]  # on the way to an entry
    attributes: frozenset[bytes]  # the blobs that say how files are written
    # What may have been changed without another stamp: within the tick in which the index was written. What
    # changes after that gets a later time. Where a clock was put back, times in the future say nothing.
    doubtful: frozenset[str]


def read_index(path: Path, width: int) -> Index | None:
    """Return the index at *path*, of objects with names of *width* bytes; None where only git can read it."""
    with suppress(OSError, ValueError, struct.error):
        facts = path.stat()
        if facts.st_size <= LARGEST_INDEX and width in _HASHES:
            entries = dict(_entries(path.read_bytes(), width))
            attributes = (entry.blob for name, entry in entries.items() if name.endswith(ATTRIBUTES))
            doubtful = _doubtful(entries, entries, facts.st_mtime_ns)
            folders = frozenset(_folders_of(entries))
            return Index(entries, facts.st_mtime_ns, width, folders, frozenset(attributes), doubtful)
    return None


def _doubtful(entries: Mapping[str, IndexEntry], names: Iterable[str], written: int) -> frozenset[str]:
    return frozenset(name for name in names if name in entries and max(entries[name].stamp[:2]) >= written)


def _folders_of(names: Iterable[str]) -> set[str]:
    found: set[str] = set()
    level = {name.rpartition("/")[0] for name in names}
    while level := level - found - {""}:
        found |= level
        level = {name.rpartition("/")[0] for name in level}
    return found


def cached_index(path: Path, width: int) -> Index | None:
    """Do as `read_index`, at once for the one that was read or written last: it takes long to read."""
    known = _LATEST.get(path)
    if known is not None and known[0] == stamp_of(path) and known[1].width == width:
        return known[1]
    index = read_index(path, width)
    return index and _remember(path, index)


_LATEST: Final[dict[Path, tuple[tuple[int, ...], Index]]] = {}


def _remember(path: Path, index: Index) -> Index:
    _LATEST.clear()  # one is enough: whoever goes from tree to tree does so in one directory
    _LATEST[path] = (stamp_of(path), index)
    return index


def write_index(index: Index, path: Path) -> tuple[Index, bytes]:
    """Write *index* to *path* and return it with its time, and what was written."""
    raw = b"".join(entry.raw for entry in index.entries.values())
    content = _HEADER.pack(_SIGNATURE, _VERSION, len(index.entries)) + raw
    content += _HASHES[index.width](content).digest()
    write_file(path.parent, path.name, content)
    written = path.stat().st_mtime_ns
    # What was certain stays so, unless the clock was put back.
    names = index.doubtful if written >= index.written else index.entries
    doubtful = _doubtful(index.entries, names, written)
    return _remember(path, replace(index, written=written, doubtful=doubtful)), content


def _entries(content: bytes, width: int) -> Iterator[tuple[str, IndexEntry]]:
    signature, version, count = _HEADER.unpack_from(content)
    if signature != _SIGNATURE or version != _VERSION:
        raise ValueError(version)
    at = _HEADER.size
    for _ in range(count):
        ctime, cnano, mtime, mnano, _, inode, mode, _, _, size = _FACTS.unpack_from(content, at)
        name_at = at + _FACTS.size + width + 2
        flags = int.from_bytes(content[name_at - 2 : name_at], "big")
        length = flags & _NAME_LENGTH
        # Half merged, hidden, very long, or a repository of its own.
        if flags != length or length == _NAME_LENGTH or mode not in (PLAIN_MODE, EXECUTABLE_MODE, LINK_MODE):
            raise ValueError(flags)
        end = _aligned(at, name_at + length)
        stamp = (ctime * _SECOND + cnano, mtime * _SECOND + mnano, inode, size)
        blob = content[at + _FACTS.size : name_at - 2]
        # One that is no UTF-8 is sorted otherwise than we would.
        name = content[name_at : name_at + length].decode()
        yield name, IndexEntry(stamp, mode, blob, content[at:end])
        at = end


def _aligned(start: int, end: int) -> int:
    """Return where the entry from *start* ends whose name ends at *end*: at least one zero follows that."""
    return end - (end - start) % _ALIGNMENT + _ALIGNMENT


def _entry_of(path: str, name: str, blob: bytes) -> IndexEntry:
    """Return the entry of the file at *path*, which is just *blob*."""
    facts, word = os.lstat(path), _WORD
    mode = git_mode(facts.st_mode)
    known = (
        *(part & word for part in (*divmod(facts.st_ctime_ns, _SECOND), *divmod(facts.st_mtime_ns, _SECOND))),
        *(facts.st_dev & word, facts.st_ino & word, mode, facts.st_uid, facts.st_gid, facts.st_size & word),
    )
    words = name.encode()
    if len(words) >= _NAME_LENGTH:
        raise ValueError(name)
    raw = _FACTS.pack(*known) + blob + len(words).to_bytes(2, "big") + words
    return IndexEntry(stamp_in(facts), mode, blob, raw.ljust(_aligned(0, len(raw)), b"\0"))


def stamp_in(facts: os.stat_result) -> Stamp:
    """Return what an index remembers of a file with these *facts*."""
    return (facts.st_ctime_ns, facts.st_mtime_ns, facts.st_ino & _WORD, facts.st_size & _WORD)


def git_mode(mode: int) -> int:
    """Return *mode* as git knows it; 0 for what it does not store."""
    if stat.S_ISREG(mode):
        return EXECUTABLE_MODE if mode & stat.S_IXUSR else PLAIN_MODE
    return LINK_MODE if stat.S_ISLNK(mode) else 0


def usual_mode(mode: int, usual: int) -> int:
    """Return the permissions that a checkout gives a file of *mode*, where directories get *usual*."""
    return usual if mode & stat.S_IXUSR else usual & ~EXECUTABLE


def _has_content(path: str, entry: IndexEntry, usual: int) -> bool:
    """Return whether the file at *path* surely is what *entry* says, by its content."""
    facts = os.lstat(path)
    if git_mode(facts.st_mode) != entry.mode or facts.st_size > LARGEST_FILE:
        return False
    if stat.S_ISREG(facts.st_mode) and stat.S_IMODE(facts.st_mode) != usual_mode(facts.st_mode, usual):
        return False
    return _blob_of(path, facts.st_mode, len(entry.blob)) == entry.blob


def _blob_of(path: str, mode: int, width: int) -> bytes:
    if stat.S_ISLNK(mode):
        content = os.fsencode(os.readlink(path))  # noqa: PTH115 - as bytes
    else:
        content = read_file(Path(os.path.dirname(path)), os.path.basename(path), LARGEST_FILE)  # noqa: PTH119, PTH120 - text
    return _HASHES[width](b"blob %d\0%s" % (len(content), content)).digest()


# Tells without a git process that a small checkout is just what its index says.
#
# Only a plain yes counts: every file is in the index and as it was when the index was written, and there is
# no other file. Whatever else is found, git is asked, who knows about filters, ignored files and modules.

LARGEST_COMPARED: Final = 1 << 16  # bytes of an index, some 700 files; git is quicker with more


def is_unchanged(directory: Path, path: Path, width: int, usual: int) -> bool:
    """Return whether *directory* is surely what the index at *path* says; directories there are *usual*."""
    with suppress(OSError):
        index = read_index(path, width) if path.stat().st_size <= LARGEST_COMPARED else None
        return index is not None and _is_unchanged(directory, index, usual)
    return False


def _is_unchanged(directory: Path, index: Index, usual: int) -> bool:
    seen = 0
    waiting = [("", str(directory))]
    while waiting:
        inside, path = waiting.pop()
        with os.scandir(path) as found:
            for entry in found:
                name = inside + entry.name
                known = index.entries.get(name)
                if known is None:
                    if name == ".git":
                        continue
                    if name not in index.folders or not entry.is_dir(follow_symlinks=False):
                        return False
                    waiting.append((f"{name}/", entry.path))
                elif known.stamp != stamp_in(entry.stat(follow_symlinks=False)):
                    return False
                else:
                    seen += 1
    places = ((str(directory / name), index.entries[name]) for name in index.doubtful)
    return seen == len(index.entries) and all(_has_content(*place, usual) for place in places)


# Leads a checkout of ours, in which anything may have been done, to another tree.


def find_touched(root: Path, index: Index, usual: int) -> list[str]:
    """Return which files below *root* are not as *index* remembers them, after all others were removed.

    Directories get the permissions *usual* again, since git does not look at them.
    """
    left, touched, waiting = dict(index.entries), list[str](), [""]
    while waiting:
        inside = waiting.pop()
        with directory_below(root, inside) as directory, os.scandir(directory) as found:
            if stat.S_IMODE(os.fstat(directory).st_mode) != usual:
                os.fchmod(directory, usual)
            for entry in found:
                name = inside + entry.name
                known = left.pop(name, None)
                if known is not None:
                    facts = entry.stat(follow_symlinks=False)
                    now = (facts.st_ctime_ns, facts.st_mtime_ns, facts.st_ino & _WORD, facts.st_size & _WORD)
                    if known.stamp != now:
                        touched.append(name)
                elif name in index.folders and entry.is_dir(follow_symlinks=False):
                    waiting.append(f"{name}/")
                elif name != ".git":
                    remove_entry(entry.name, directory)
    known_touched = {*touched, *left}
    unsure = (name for name in index.doubtful if name not in known_touched)
    wrong = [name for name in unsure if not _has_content(str(root / name), index.entries[name], usual)]
    return [*touched, *left, *wrong]


class PlainFile(NamedTuple):
    """A file as a tree has it."""

    mode: int
    blob: str
    content: bytes


def is_plain_name(name: str) -> bool:
    """Return whether *name* surely is one that git would check out."""
    return not _ODD_NAME.search(name)


def put_files(root: Path, index: Index, files: Mapping[str, PlainFile | None]) -> Index:
    """Write *files* below *root*, or remove those that are None; return *index* with them."""
    entries, fresh = dict(index.entries), {name: file for name, file in files.items() if file is not None}
    gone = files.keys() - fresh.keys()
    for name in gone:
        remove_file(root, name)
        entries.pop(name, None)
    folders = index.folders - _remove_folders(root, _folders_of(gone))
    is_ordered = all(name in entries for name in fresh)
    for name, file in fresh.items():
        write_file(root, name, file.content, mode=0o777 if file.mode == EXECUTABLE_MODE else 0o666)
        entries[name] = _entry_of(str(root / name), name, bytes.fromhex(file.blob))
    return replace(
        index,
        entries=entries if is_ordered else dict(sorted(entries.items())),  # as text: the order of its bytes
        folders=folders | _folders_of(fresh),
        doubtful=index.doubtful | fresh.keys(),
    )


def _remove_folders(root: Path, folders: Iterable[str]) -> set[str]:
    """Remove those of *folders* in which nothing is, and return them."""
    gone = set()
    for folder in sorted(folders, key=len, reverse=True):
        try:
            remove_empty(root, folder)
        except FileNotFoundError:
            pass
        except OSError:  # something is in it
            continue
        gone.add(folder)
    return gone
