"""Every change ever, one line of JSON each, chained by a sum; a change is done when its line is on disk."""

from __future__ import annotations

import hashlib
import json
import os
import re
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from liza.board.location import JOURNAL
from liza.board.protocol import JournalEntry
from liza.domain.version import VERSION
from liza.errors import READ_ONLY, DiskTrouble, JournalDamaged

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from liza.board.disk import Disk

NAME: Final = JOURNAL
_DIGEST: Final = 8  # bytes: enough to tell damage from luck
_TAIL: Final = len(b',"sum":""}\n') + 2 * _DIGEST
_CHUNK: Final = 1 << 20  # bytes read at once
_BEGIN: Final = b'{"revision":'
_ENDS: Final = re.compile(rb',"sum":"[0-9a-f]{16}"}\Z')


class JournalPosition(NamedTuple):
    """A place between two lines: where it is, and the sum of everything before it."""

    offset: int = 0
    sum: str = ""


class JournalLine(NamedTuple):
    entry: JournalEntry
    mark: JournalPosition  # the place behind the line


def encode_entry(
    entry: JournalEntry, before: JournalPosition, unsynced: int = 0
) -> tuple[bytes, JournalPosition]:
    """Return the line of *entry* and the place behind it; *unsynced* bytes before it may not be on disk."""
    fields = {
        "revision": entry.revision,
        # The first line says by which rules the whole journal is to be read; `location` looks for it there.
        **({"version": VERSION} if entry.revision == 1 else {}),
        "at": entry.at.isoformat().replace("+00:00", "Z"),
        "by": entry.by,
        "what": entry.what,
        "put": entry.put,
        **({"gone": entry.gone} if entry.gone else {}),
        **({"unsynced": unsynced} if unsynced else {}),
    }
    body = json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()[:-1]
    total = _chain_sum(before.sum, body)
    line = body + _line_end(total)
    return line, JournalPosition(before.offset + len(line), total)


def decode_line(line: bytes, before: JournalPosition) -> JournalLine | None:
    """Return what *line* says if it follows on *before*, else None."""
    body, tail = line[:-_TAIL], line[-_TAIL:]
    total = _chain_sum(before.sum, body)
    if tail != _line_end(total):
        return None
    fields = json.loads(body + b"}")
    entry = JournalEntry(
        revision=fields["revision"],
        at=datetime.fromisoformat(fields["at"]),
        by=fields["by"],
        what=fields["what"],
        put=fields["put"],
        gone=fields.get("gone", {}),
    )
    return JournalLine(entry, JournalPosition(before.offset + len(line), total))


def _line_end(total: str) -> bytes:
    return b',"sum":"%s"}\n' % total.encode()


def _is_whole(line: bytes) -> bool:
    """Return whether *line*, though wrong, is complete: without a hole, and with a valid start or end."""
    return b"\0" not in line and (line.startswith(_BEGIN) or _ENDS.search(line) is not None)


def _chain_sum(before: str, body: bytes) -> str:
    # A sum that a database server can make as well, which then lets nobody break the chain.
    return hashlib.sha256(before.encode() + body).hexdigest()[: 2 * _DIGEST]


class Journal:
    """The file of lines. Only `append` and `mend` write it, and only under the board's lock."""

    def __init__(self, path: Path, disk: Disk, access: int = os.O_RDWR) -> None:
        self.path = path
        self._disk = disk
        self._access = access
        self._descriptor = -1
        self._inode = -1
        # Bytes that are known to be on disk, -1 where that is not known; whoever holds the lock sets it.
        self.synced = -1
        self._is_deferring = False

    def size(self) -> int:
        """Return the length of the file, which is opened again if another one stands in its place."""
        try:
            found = self.path.lstat()
        except FileNotFoundError:
            message = f"{self.path} is missing; put it back: it holds every change of this board"
            raise JournalDamaged(message) from None
        if found.st_ino != self._inode:
            self.close()
            self._descriptor = _open_journal(self.path, self._access)
            self._inode = os.fstat(self._descriptor).st_ino
        return found.st_size

    @contextmanager
    def hold_lock(self) -> Iterator[None]:
        """Hold the file itself as well: removing the lock file must not let two writers in."""
        try:
            self._lock()
            yield
        finally:
            try:
                self._unlock()
            except BaseException:  # a signal handler raised before it was done
                self.close()  # which gives the lock back as well
                raise

    def _lock(self) -> None:
        self.size()
        try:
            self._disk.lock(self._descriptor)
        except OSError as error:
            raise DiskTrouble(f"lock {self.path}", error) from error

    def _unlock(self) -> None:
        if self._descriptor < 0:
            return
        try:
            self._disk.unlock(self._descriptor)
        except OSError:
            self.close()  # which gives the lock back as well

    def holds(self, mark: JournalPosition) -> bool:
        """Return whether the file still has all before *mark*: the last sum stands for every line."""
        if not mark.offset:
            return True
        if self._descriptor < 0:
            self.size()
        return os.pread(self._descriptor, _TAIL, mark.offset - _TAIL) == _line_end(mark.sum)

    @property
    def place(self) -> str:
        return str(self.path)

    def news(self, after: JournalPosition) -> list[JournalLine] | None:
        """Return the lines behind *after*; None where another file stands there, or what it had was cut."""
        size = self.size()
        if not self.holds(after):
            return None
        return list(self.lines(after)) if size > after.offset else []

    def reread(self, after: JournalPosition) -> Iterator[JournalLine]:
        """Yield the lines behind *after* from a descriptor of its own, so that nobody waits meanwhile."""
        # To close what was open for writing would wake everybody who waits.
        journal = Journal(self.path, self._disk, os.O_RDONLY)
        try:
            yield from journal.lines(after)
        finally:
            journal.close()

    def lines(self, after: JournalPosition) -> Iterator[JournalLine]:
        """Yield the lines behind *after*; the last one is passed over while it is not whole."""
        size = self.size()
        mark, rest, offset = after, b"", after.offset
        while offset < size:
            chunk = os.pread(self._descriptor, min(_CHUNK, size - offset), offset)
            if not chunk:
                return
            offset += len(chunk)
            *whole, rest = (rest + chunk).split(b"\n")
            for text in whole:
                line = decode_line(text + b"\n", mark)
                if line is None:
                    self._check_is_torn(text, mark, size)
                    return
                mark = line.mark
                yield line

    def _check_is_torn(self, text: bytes, mark: JournalPosition, size: int) -> None:
        """A power cut breaks lines that were not synced, cuts them or leaves holes; all else is damage."""
        if _is_whole(text) or self._was_synced(mark.offset, mark.offset + len(text) + 1, size):
            message = (
                f"{self.path}: the line at byte {mark.offset} was changed after it was written; "
                "put the file back from a copy: what came before that line can still be seen by `liza log`"
            )
            raise JournalDamaged(message)

    def _was_synced(self, place: int, behind: int, size: int) -> bool:
        """Return whether a line *behind* says that the line at *place* was on disk when it was written."""
        for line in os.pread(self._descriptor, size - behind, behind).split(b"\n")[:-1]:
            if _is_whole(line):
                try:
                    unsynced = json.loads(line).get("unsynced", 0)
                except ValueError:
                    return True  # a changed line, which no power cut leaves
                if behind - unsynced > place:
                    return True
            behind += len(line) + 1
        return False

    def append(self, entry: JournalEntry, after: JournalPosition) -> JournalPosition:
        """Write *entry* behind *after* and return the place behind it, once it is on disk.

        Whoever defers that has to `sync` before anybody is told of the entry.
        """
        if self.synced < 0:
            self.sync(after)
        line, mark = encode_entry(entry, after, after.offset - self.synced)
        try:
            self._disk.append(self._descriptor, line)
        except OSError as error:
            self._cut(after)
            raise DiskTrouble(f"write {self.path}", error) from error
        if not self._is_deferring:
            self.sync(mark)
        return mark

    @contextmanager
    def deferring(self) -> Iterator[None]:
        """Leave it to the caller to sync what is appended meanwhile."""
        self._is_deferring = True
        try:
            yield
        finally:
            self._is_deferring = False

    def sync(self, mark: JournalPosition) -> None:
        """Have all before *mark* on disk; where that fails, all that was not there already is taken back."""
        try:
            self._disk.sync(self._descriptor)
        except OSError as error:
            # Not even a later sync would tell the truth about them: the kernel reports a failure once.
            if self.synced >= 0:
                self._cut(mark._replace(offset=min(mark.offset, self.synced)))
            raise DiskTrouble(f"write {self.path}", error) from error
        self.synced = mark.offset

    def mend(self, mark: JournalPosition) -> None:
        """Cut off what a dying writer left behind *mark*; it was never acknowledged."""
        if os.fstat(self._descriptor).st_size > mark.offset:
            self._cut(mark)

    def _cut(self, mark: JournalPosition) -> None:
        try:
            self._disk.truncate(self._descriptor, mark.offset)
        except OSError as error:
            raise DiskTrouble(f"cut {self.path} at byte {mark.offset}", error) from error

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = self._inode = -1


def _open_journal(path: Path, access: int) -> int:
    flags = os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.open(path, access | flags)
    except OSError as error:
        if error.errno in READ_ONLY and access != os.O_RDONLY:
            return _open_journal(path, os.O_RDONLY)
        raise DiskTrouble(f"open {path}", error) from error
