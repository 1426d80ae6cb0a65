"""Every change ever, one line of JSON each, chained by a sum; a change is done when its line is on disk.

In this order: the steps on the disk, the lock and what its last holder left in it, the journal itself, how a
state is replayed from its lines, and snapshots that spare most of that.
"""

from __future__ import annotations

import fcntl
import gc
import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from zlib import crc32

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json

from liza.board.location import JOURNAL
from liza.board.protocol import JournalEntry
from liza.domain.model import KEYED_SECTIONS, PLAIN_SECTIONS, SHOWN_EVENTS, HistoryEntry, State, Status, Task
from liza.domain.record import PagedRecords, Record, changed_names, records_by_id, with_records
from liza.domain.version import VERSION
from liza.errors import READ_ONLY, DiskTrouble, InvalidBoard, JournalDamaged, Violation
from liza.system.files import LockFile, link_new
from liza.system.host import host

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from liza.domain.changes import StateDiff


# Every step by which the board touches the disk, so that a test can die at each of them, and its lock.


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
        _write_at(descriptor, data, 0)
        os.ftruncate(descriptor, len(data))

    def patch(self, descriptor: int, parts: list[tuple[int, bytes]], size: int) -> None:
        """Write *parts* to their places in an open file, which is of *size* then."""
        for place, data in parts:
            _write_at(descriptor, data, place)
        os.ftruncate(descriptor, size)

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
        """Rename *new* to *current*; raise FileExistsError where a file of that name exists."""
        if not host().rename_to_free(new, current):
            link_new(new, current)


def _write_at(descriptor: int, data: bytes, place: int) -> None:
    view = memoryview(data)
    while view:
        done = os.pwrite(descriptor, view, place)
        view, place = view[done:], place + done


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
    """Return whether no process is known to have the file open for writing."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except PermissionError:
        return True  # nobody knows
    try:
        return not host().may_have_writer(descriptor)
    finally:
        os.close(descriptor)


# What the last holder of the lock left for the next, in the lock file itself.
#
# It only saves work and detects races: a lost or torn state costs one comparison of texts.

_SIZE: Final = 1024  # bytes, so that the usual lock state covers whatever was there and needs no truncation
_LONGEST: Final = 1 << 16


@dataclass
class LockState:
    descriptor: int  # of the lock file
    pid: int = 0  # 0 where no lock state could be read
    sum: str = ""  # the journal's, at what state.yaml shows; empty where that is not known
    state: FileId | None = None  # state.yaml, as Liza last put it there
    spare: FileId | None = None  # the file that was there before; None while it is being written
    held: dict[str, FileId] = field(default_factory=dict)  # swapped-out files that an editor had open
    boot: str = ""  # of the machine, when it was left
    # Inodes of those files that Liza wrote whole since the machine was started, and nobody else since then.
    whole: frozenset[int] = frozenset()
    synced: int = -1  # bytes of the journal that are known to be on disk; -1 where that is not known

    def is_from_before_a_crash(self) -> bool:
        """Return whether the machine was rebooted since, so that unsynced data may be incomplete."""
        return self.boot not in {"", host().boot_id()}


def read_lock_state(descriptor: int) -> LockState:
    """Return the state in the lock file; an empty one where it cannot be read."""
    line = os.pread(descriptor, _LONGEST, 0).partition(b"\n")[0]
    try:
        pid, since, total, synced, whole, state, spare, *held = line.decode().split()
        is_same_boot = since == host().boot_id()
        names = (name.split("=") for name in held)
        return LockState(
            descriptor,
            int(pid),
            "" if total == "-" else total,
            _parse_optional_id(state),
            _parse_optional_id(spare),
            {name: _parse_file_id(there) for name, there in names},
            since,
            _parse_inodes(whole) if is_same_boot else frozenset(),
            int(synced) if is_same_boot else -1,
        )
    except ValueError:
        return LockState(descriptor)


def write_lock_state(lock_state: LockState) -> None:
    """Write the state to the lock file; not synced, because nothing depends on it."""
    held = "".join(f" {name}={_file_id_text(there)}" for name, there in lock_state.held.items())
    whole = ":".join(map(str, sorted(lock_state.whole))) or "-"
    ids = f"{_file_id_text(lock_state.state)} {_file_id_text(lock_state.spare)}"
    text = (
        f"{lock_state.pid} {host().boot_id()} {lock_state.sum or '-'} {lock_state.synced} {whole} {ids}{held}"
    )
    os.pwrite(lock_state.descriptor, text.encode().ljust(_SIZE - 1) + b"\n", 0)


def _file_id_text(there: FileId | None) -> str:
    return f"{there.inode}:{there.mtime_ns}:{there.size}" if there else "-"


def _parse_inodes(text: str) -> frozenset[int]:
    return frozenset() if text == "-" else frozenset(map(int, text.split(":")))


def _parse_optional_id(text: str) -> FileId | None:
    return None if text == "-" else _parse_file_id(text)


def _parse_file_id(text: str) -> FileId:
    inode, mtime_ns, size = text.split(":")
    return FileId(int(inode), int(mtime_ns), int(size))


# The exclusive lock of the board, released by the kernel when its holder dies.
#
# A queue lock in front of the board lock: only its holder waits for the board lock itself. A lock that
# thirty processes wait for wakes all thirty each time, and its last holder wins again too often. For other
# programs the board lock is a `filelock.FileLock` on its file.


QUEUE: Final = ".next"  # behind the name of the lock file: the lock of whoever is next


class BoardLock:
    """The board's lock file, with the state that each holder leaves for the next."""

    def __init__(self, path: Path, disk: Disk) -> None:
        self.path = path
        self._door = LockFile(path, disk.lock, disk.unlock)
        self._queue = LockFile(path.with_name(path.name + QUEUE), disk.lock, disk.unlock)

    @contextmanager
    def held(self, prepare: Callable[[], object]) -> Iterator[LockState]:
        """Wait for the lock and hold it; the lock state is left whatever happens meanwhile.

        *prepare* is done while this process is next and the holder still at work, to shorten its own turn;
        it may raise, and the lock is not taken.
        """
        # Locking stands inside: a signal handler may raise right after it, and unlocking twice does no harm.
        try:
            try:
                self._queue.lock()
                prepare()
                descriptor = self._door.lock()
            finally:
                try:
                    self._queue.unlock()
                except BaseException:  # a signal handler raised before it was done
                    self._queue.close()  # which gives the lock back as well
                    raise
            lock_state = read_lock_state(descriptor)
            lock_state.pid = os.getpid()
            with suppress(OSError):  # one that cannot be left only costs the next holder a closer look
                write_lock_state(lock_state)
            try:
                yield lock_state
            finally:
                with suppress(OSError):
                    write_lock_state(lock_state)
        finally:
            try:
                self._door.unlock()
            except BaseException:
                self._door.close()
                raise

    def has_next(self) -> bool:
        """Return whether another process is next, as seen by the holder."""
        try:
            return self._queue.is_taken()
        except BaseException:  # a signal handler raised, perhaps while the lock was ours for a moment
            self._queue.close()  # which gives the lock back
            raise

    def peek(self) -> LockState | None:
        """Return the lock state as it is now, without the lock, or None where there is no lock file."""
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise DiskTrouble(f"open {self.path}", error) from error
        try:
            return read_lock_state(descriptor)
        finally:
            os.close(descriptor)

    def close(self) -> None:
        self._door.close()
        self._queue.close()


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
    fields = from_json(body + b"}")
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
        """Yield the lines behind *after* from a descriptor of its own, so that no other reader waits."""
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


# How a state comes from the disk: a snapshot of it, and the changes of the journal done again.

JsonRecord = dict[str, Any]
JsonBySection = dict[
    str, dict[str, JsonRecord]
]  # section: id: the record; "" is the id of a section that is one record
DERIVED: Final = frozenset({"history", "history_earlier"})  # replay counts these by itself


def diff_states(old: State, new: State) -> StateDiff:
    """Return the difference of two states; unchanged records are shared, so they are compared by identity."""
    from liza.domain.changes import StateDiff  # noqa: PLC0415 - who only reads a board makes no step

    put: dict[str, tuple[str, ...]] = {}
    gone: dict[str, tuple[str, ...]] = {}
    moved: dict[str, Any] = {}
    for section in KEYED_SECTIONS:
        before, after = getattr(old, section), getattr(new, section)
        if before is after:
            continue
        ordered, changed = _compare(before, after)
        if ordered is not after:
            moved[section] = ordered
        if changed:
            put[section] = changed
        if len(after) - sum(name not in before for name in changed) < len(before):
            gone[section] = tuple(name for name in before if name not in after)
    for section in PLAIN_SECTIONS:
        if getattr(old, section) is not getattr(new, section):
            put[section] = ()
    return StateDiff(old, new.replace(**moved) if moved else new, put, gone)


def _compare(
    before: Mapping[str, Record], after: Mapping[str, Record]
) -> tuple[Mapping[str, Record], tuple[str, ...]]:
    """Return *after* in the order of a replay (records of *before* first), and the names that changed."""
    if isinstance(after, PagedRecords) and after.has_names_of(before):
        return after, changed_names(before, after)
    names = list(after)
    if names == list(before):  # at the speed of C
        return after, changed_names(before, after)
    ordered = list(dict.fromkeys([*(name for name in before if name in after), *names]))
    changed = tuple(name for name in ordered if before.get(name) is not after[name])
    return (after if names == ordered else MappingProxyType({name: after[name] for name in ordered})), changed


def is_empty_diff(step: StateDiff) -> bool:
    return not step.put and not step.gone


def json_of_changes(step: StateDiff) -> JsonBySection:
    """Return the records that *step* puts as JSON values, without their history.

    Raise unless each can be read back as the same value.
    """
    plains: JsonBySection = {}
    for section, names in step.put.items():
        if section in KEYED_SECTIONS:
            before, after = getattr(step.old, section), getattr(step.new, section)
            plains[section] = {
                name: _changes_read_back(before.get(name), after[name])
                or _round_trip(after[name], f"{section}.{name}", name)
                for name in names
            }
        elif section != "archived":
            plains[section] = {"": _round_trip(getattr(step.new, section), section, None)}
    return plains


def _changes_read_back(old: Record | None, new: Record) -> JsonRecord | None:
    """Return what *new* has otherwise than *old*; None where the whole has to be read back."""
    kind = type(new)
    if old is None or not _is_often_checked(kind):
        return None
    before, after = old.__dict__, new.__dict__
    changed = {name for name in after if before[name] is not after[name]} - DERIVED
    try:
        plain = new.model_dump(mode="json", exclude_defaults=True, include=changed, warnings="error")
    except ValueError:  # what the record holds has no form in JSON
        return None
    keys = {key: plain.get(key) for key, name in json_names(kind).items() if name in changed}
    fresh = _check_fields(kind, old, keys)
    is_same = fresh is not None and "id" not in changed and all(fresh[name] == after[name] for name in fresh)
    return keys if is_same else None


def _round_trip(record: Record, path: str, name: str | None) -> JsonRecord:
    # The history of a task is made of records that were checked when they were made, and there are many.
    bare = record.replace(history=()) if isinstance(record, Task) else record
    try:
        plain = bare.model_dump(mode="json", exclude_defaults=True, warnings="error")
        reborn = type(record).model_validate(plain)
    except ValidationError as error:
        from liza.domain.problems import violations_from  # noqa: PLC0415 - only needed here

        raise InvalidBoard(
            "the change was refused", violations_from(error, type(record), path, {})
        ) from error
    except ValueError as error:  # what the record holds has no form in JSON
        raise _round_trip_error(path) from error
    if reborn != bare or (name is not None and plain["id"] != name):
        raise _round_trip_error(path)
    return plain


def _round_trip_error(path: str) -> InvalidBoard:
    wrong = Violation(path, "it would be read back as another value", "give values of the field's type")
    return InvalidBoard("the change was refused", [wrong])


def journal_fields(step: StateDiff, plains: JsonBySection) -> dict[str, Any]:
    """Return the changed fields by section and id, ready for JSON; None puts a field back to its default."""
    found: dict[str, Any] = {}
    for section, names in step.put.items():
        if section in KEYED_SECTIONS:
            before, after = getattr(step.old, section), getattr(step.new, section)
            found[section] = {
                name: _fields(before.get(name), after[name], plains[section][name]) for name in names
            }
        elif section == "archived":
            old, new = step.old.archived, step.new.archived
            found[section] = {name: status for name, status in new.items() if old.get(name) is not status}
        else:
            found[section] = plains[section][""]
    return found


def _fields(old: Record | None, new: Record, plain: JsonRecord) -> JsonRecord:
    if old is None:
        found = dict(plain)
        known = 0
    else:
        before, after = old.__dict__, new.__dict__
        changed = [name for name in after if before[name] is not after[name]]
        fields = type(new).model_fields
        keys = [fields[name].alias or name for name in changed if name not in DERIVED]
        found = {key: plain.get(key) for key in keys}
        known = len(before.get("history", ()))
    if added := new.__dict__.get("history", ())[known:]:
        found["history"] = [entry.to_json() for entry in added]
    return found


def first_state(entry: JournalEntry) -> State:
    """Return the board that the first entry of a journal makes."""
    return _with_trimmed_tasks(build_state({**entry.put, "revision": entry.revision}))


def build_state(plain: JsonRecord) -> State:
    """Return the board that *plain* is, checked section by section.

    Building what checks a kind of record takes milliseconds, and most boards begin with few kinds. Whatever
    is not plainly right is left to the check of the whole, which says what is wrong.
    """
    kept = {
        section: value for section, value in plain.items() if section in {*KEYED_SECTIONS, *PLAIN_SECTIONS}
    }
    others = plain.keys() - kept.keys()
    archived = kept.pop("archived", {})
    if others != {"revision"} or "goal" not in kept or not {*archived.values()} <= {*Status}:
        return State.model_validate(plain)
    fields: JsonRecord = {
        "archived": MappingProxyType({name: Status(word) for name, word in archived.items()})
    }
    for section, value in kept.items():
        if (kind := KEYED_SECTIONS.get(section)) is None:
            fields[section] = section_type(section).model_validate(value)
            continue
        records = {record["id"]: kind.model_validate(record) for record in value}
        if len(records) < len(value):
            return State.model_validate(plain)
        fields[section] = MappingProxyType(records)
    return State.model_construct(revision=plain["revision"], **fields)


def section_type(section: str) -> type[Record]:
    """Return the kind of record that a plain section is."""
    kind = State.model_fields[section].annotation
    if not isinstance(kind, type) or not issubclass(kind, Record):
        raise TypeError(section)
    return kind


def replay_entries(state: State, entries: Iterable[JournalEntry]) -> State:
    """Return *state* after *entries*; each record is built once, however often it changed."""
    keyed: dict[str, _Section] = {}
    plain: JsonRecord = {"archived": {}}
    revision = state.revision
    for entry in entries:
        revision = entry.revision
        for section, value in entry.put.items():
            if section in KEYED_SECTIONS:
                _section(keyed, state, section).put(value)
            elif section == "archived":
                plain[section] |= value
            else:
                plain[section] = value
        for section, names in entry.gone.items():
            _section(keyed, state, section).remove(names)
    changes: JsonRecord = {section: working.rebuild() for section, working in keyed.items()}
    if added := plain.pop("archived"):
        known = {name: Status(status) for name, status in added.items()}
        changes["archived"] = MappingProxyType({**state.archived, **known})
    for section, value in plain.items():
        changes[section] = type(getattr(state, section)).model_validate(value)
    return state.replace(revision=revision, **changes)


def replay_journal(lines: Sequence[JournalLine]) -> State:
    """Return the board after all lines of a journal, from its first."""
    return replay_entries(first_state(lines[0].entry), (line.entry for line in lines[1:]))


class _Section:
    """A section while entries are replayed on it; what went and came back stands last, as it did then."""

    def __init__(self, kind: type[Record], records: Mapping[str, Record]) -> None:
        self._kind = kind
        self._records = records
        self._changes: dict[str, JsonRecord] = {}  # of each record that is to be rebuilt, by its keys

    def put(self, changed: JsonRecord) -> None:
        for name, fields in changed.items():
            put_fields(self._changes.setdefault(name, {}), fields)

    def remove(self, names: Iterable[str]) -> None:
        gone = {*names}
        kept = {name: record for name, record in self.rebuild().items() if name not in gone}
        self._records, self._changes = MappingProxyType(kept), {}

    def rebuild(self) -> Mapping[str, Record]:
        """Return the section as it is now; what is new stands last, in the order of the journal."""
        known = self._records
        fresh = {
            name: _with_fields(self._kind, known.get(name), changes)
            for name, changes in self._changes.items()
        }
        return with_records(known, fresh) if fresh else known


def put_fields(known: JsonRecord, fields: JsonRecord) -> None:
    """Put later changes of a record over those that are *known*; a history goes on."""
    history = [*known.get("history", ()), *fields.get("history", ())]
    known.update(fields)
    if history:
        known["history"] = history


def _section(keyed: dict[str, _Section], state: State, section: str) -> _Section:
    if section not in keyed:
        keyed[section] = _Section(KEYED_SECTIONS[section], getattr(state, section))
    return keyed[section]


def _with_fields(kind: type[Record], known: Record | None, changes: JsonRecord) -> Record:
    """Return *known* with *changes* of its keys, where None is the default; what did not change is shared."""
    if known is not None and _is_often_checked(kind):
        fresh = _check_fields(kind, known, changes)
        if fresh is not None:
            return known.replace(**fresh)
    kept = known.__dict__ if known else {}
    # Of what is kept only as much is checked again as makes a record: it is most of a large one.
    fields = {key: kept[name] for key, name in _required_names(kind).items() if name in kept}
    for key, value in changes.items():
        if value is None:
            fields.pop(key, None)
        elif key != "history":
            fields[key] = value
    if added := changes.get("history"):
        history = [*kept.get("history", ()), *added]
        spare = max(0, len(history) - SHOWN_EVENTS)
        fields["history"] = history[spare:]
        fields["history_earlier"] = kept.get("history_earlier", 0) + spare
    fresh_record = kind.model_validate(fields)
    if known is None:
        return fresh_record
    keys = json_names(kind)
    touched = {keys[key] for key in changes} | (DERIVED if added else frozenset())
    return known.replace(**{name: fresh_record.__dict__[name] for name in touched})


# Records of a kind that a process changes by checking them whole, before it checks only the fields that
# changed. That takes half as long, once what checks a field is built, for which short commands have no time.
WHOLE_CHECKS: Final = 256

_whole_checks: Counter[type[Record]] = Counter()


def _is_often_checked(kind: type[Record]) -> bool:
    _whole_checks[kind] += 1
    return _whole_checks[kind] > WHOLE_CHECKS and _is_sum_of_fields(kind)


@cache
def _is_sum_of_fields(kind: type[Record]) -> bool:
    """Return whether a record of *kind* is right if each of its fields is."""
    rules = kind.__pydantic_decorators__
    return not (rules.model_validators or rules.field_validators)


class _FieldCheck(NamedTuple):
    """How one field of a record is checked alone; one without a default cannot be put back to it."""

    name: str
    validate: Callable[[Any], Any]
    default: Callable[[], Any] | None


@cache
def _field_check(kind: type[Record], key: str) -> _FieldCheck:
    name = json_names(kind)[key]
    info = kind.model_fields[name]
    default = None if info.is_required() else partial(info.get_default, call_default_factory=True)
    return _FieldCheck(name, TypeAdapter(info.rebuild_annotation()).validator.validate_python, default)


def _check_fields(kind: type[Record], known: Record, changes: JsonRecord) -> JsonRecord | None:
    """Return the new values of what *changes*; None where the check of the whole has to say why not."""
    fresh: JsonRecord = {}
    try:
        for key, value in changes.items():
            check = _field_check(kind, key)
            if value is not None:
                fresh[check.name] = check.validate(value[-SHOWN_EVENTS:] if key == "history" else value)
            elif check.default is None:
                return None
            else:
                fresh[check.name] = check.default()
    except (KeyError, ValueError):
        return None
    if added := changes.get("history"):
        kept = known.__dict__["history"]
        fresh["history"] = (*kept, *fresh["history"])[-SHOWN_EVENTS:]
        spare = max(0, len(kept) + len(added) - SHOWN_EVENTS)
        fresh["history_earlier"] = known.__dict__["history_earlier"] + spare
    return fresh


@cache
def json_names(kind: type[Record]) -> dict[str, str]:
    """Return the names of the fields of *kind* by their keys in JSON."""
    return {field.alias or name: name for name, field in kind.model_fields.items()}


@cache
def _required_names(kind: type[Record]) -> dict[str, str]:
    """Return the names of the fields without which there is no record of *kind*, by their keys in JSON."""
    return {key: name for key, name in json_names(kind).items() if kind.model_fields[name].is_required()}


def _with_trimmed_tasks(state: State) -> State:
    return state.replace(
        tasks=MappingProxyType({name: task.with_recent_history() for name, task in state.tasks.items()})
    )


def with_trimmed_history(step: StateDiff) -> State:
    """Return the new state of *step* with only the latest history of the tasks that changed."""
    tasks = step.new.tasks
    cut = {name: tasks[name].with_recent_history() for name in step.put.get("tasks", ())}
    if all(task is tasks[name] for name, task in cut.items()):
        return step.new
    return step.new.replace(tasks=with_records(tasks, cut))


# A copy of the state at some place in the journal, so that opening a board need not replay all of it.
#
# It is written now and then, never synced and never trusted: a copy that does not fit is passed over. Tasks
# stand in it one by one behind a short index of them, and their histories behind that: who only looks reads
# the index, and of the tasks those that it asks for.

SNAPSHOT: Final = "snapshot.json"
SNAPSHOT_DRAFT: Final = f"{SNAPSHOT}.new"
SNAPSHOT_EVERY: Final = (
    256 * 1024
)  # bytes of journal between two snapshots of a small board: some tens of milliseconds
_LINES: Final = (
    6  # of a snapshot: its sum, its place, all but the tasks, their index, the tasks, their histories
)


class Snapshot(NamedTuple):
    mark: JournalPosition
    at: datetime  # of the last change in it
    state: State


class TaskRow(NamedTuple):
    """A task as the index tells of it, and where the rest of it and its history end."""

    id: str
    status: str
    description: str
    depends_on: list[str]
    is_leased: bool
    end: int
    past_end: int


class SnapshotParts(NamedTuple):
    """A snapshot as it is read, before any task of it is."""

    mark: JournalPosition
    at: datetime
    rest: State  # without its tasks
    rows: list[TaskRow]
    data: bytes  # the whole file, of which nothing is copied that nobody asks for
    tasks_at: int  # where in it a JSON array of the tasks without histories begins
    past_at: int  # and one of their histories

    def tasks(self) -> bytes:
        return self.data[self.tasks_at : self.past_at]

    def past(self) -> bytes:
        return self.data[self.past_at :]


def is_snapshot_due(journal: int, last: int, size: int) -> bool:
    """Return whether the journal grew enough since the *last* snapshot, whose length was *size*."""
    return journal - last > max(SNAPSHOT_EVERY, size // 2)


def save_snapshot(path: Path, snapshot: Snapshot, draft: str = SNAPSHOT_DRAFT) -> int:
    """Write the snapshot, first under the name *draft*, and return its length."""
    tasks = snapshot.state.tasks.values()
    rows = [task.model_dump_json(exclude_defaults=True, exclude={"history"}).encode() for task in tasks]
    past = [_history_json(task) for task in tasks]
    head = json.dumps([*snapshot.mark, snapshot.at.isoformat()]).encode()
    rest = snapshot.state.replace(tasks=MappingProxyType({})).model_dump_json(exclude_defaults=True).encode()
    index = json.dumps(list(_index(tasks, rows, past))).encode()
    lists = [b"[%s]" % b",".join(items) for items in (rows, past)]
    body = b"\n".join([head, rest, index, *lists])
    data = b"\n".join([_digest(body), body])
    fresh = path.with_name(draft)
    fresh.write_bytes(data)
    fresh.replace(path)
    return len(data)


def saved_place(path: Path) -> tuple[int, int] | None:
    """Return the place of the snapshot at *path* in the journal, and its length; None without one."""
    try:
        with path.open("rb") as file:
            file.readline()
            return int(json.loads(file.readline())[0]), os.fstat(file.fileno()).st_size
    except (OSError, ValueError, TypeError, LookupError):
        return None


def snapshot_identity(path: Path) -> tuple[int, int] | None:
    """Return what tells the file at *path* from one that was written later in its place."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def _history_json(task: Task) -> bytes:
    if not task.history:
        return b"[]"
    field = task.model_dump_json(exclude_defaults=True, include={"history"})
    return field.partition(":")[2].removesuffix("}").encode()


def _index(tasks: Iterable[Task], rows: list[bytes], past: list[bytes]) -> Iterator[TaskRow]:
    end = past_end = 0
    for task, row, history in zip(tasks, rows, past, strict=True):
        end, past_end = end + 1 + len(row), past_end + 1 + len(history)  # each behind a bracket or a comma
        known = (task.id, task.status, task.description, list(task.depends_on), task.lease is not None)
        yield TaskRow(*known, end, past_end)


def _digest(data: bytes | memoryview) -> bytes:
    """Return what tells damage from luck; a sum that kept out malice as well would take most of a look."""
    return b"%08x%08x" % (crc32(data), len(data))


def load_snapshot(path: Path) -> Snapshot | None:
    """Return the snapshot, or None where there is none that is whole and of today's shape."""
    parts = load_snapshot_parts(path)
    if parts is None:
        return None
    try:
        with _garbage_kept():
            tasks, histories = (
                _tasks_type().validate_json(parts.tasks()),
                _past_type().validate_json(parts.past()),
            )
            whole = (task.replace(history=past) for task, past in zip(tasks, histories, strict=True))
            return Snapshot(parts.mark, parts.at, parts.rest.replace(tasks=records_by_id(whole)))
    except ValueError:
        return None


def load_snapshot_parts(path: Path) -> SnapshotParts | None:
    """Return the snapshot with its tasks unparsed, for readers that need few of them; None as above."""
    try:
        data = path.read_bytes()
        starts = [0]
        while len(starts) < _LINES:
            starts.append(data.index(b"\n", starts[-1]) + 1)
        digest, head, rest, index = (data[begin : end - 1] for begin, end in pairwise(starts[:-1]))
        if _digest(memoryview(data)[starts[1] :]) != digest:
            return None
        offset, total, at = json.loads(head)
        with _garbage_kept():
            rows = [TaskRow(*row) for row in json.loads(index)]
            state = build_state(json.loads(rest))
        mark = JournalPosition(offset, total)
        return SnapshotParts(mark, datetime.fromisoformat(at), state, rows, data, *starts[-2:])
    except (OSError, ValueError, TypeError):
        return None


@cache
def _tasks_type() -> TypeAdapter[list[Task]]:
    return TypeAdapter(list[Task])


@cache
def _past_type() -> TypeAdapter[list[tuple[HistoryEntry, ...]]]:
    return TypeAdapter(list[tuple[HistoryEntry, ...]])


@contextmanager
def _garbage_kept() -> Iterator[None]:
    """Keep the collector off: it would go through the records again and again while their number grows."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
