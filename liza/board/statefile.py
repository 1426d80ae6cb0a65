"""What people read and write of a board in files: `state.yaml`, and a file for each switch.

Two files trade places at every update. The one that is not in use is written over, which is far cheaper
than making a new one, and only when the kernel confirms that nobody has it open. What an exchange brought
out is compared with what Liza had put there: if it differs, somebody saved in between, and it is an edit.
"""

from __future__ import annotations

import os
import re
import stat
from datetime import UTC, datetime
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Final, NamedTuple

from liza.board.journal import (
    FileId,
    file_id_at,
    file_id_of,
    has_no_writer,
    json_names,
    put_fields,
    write_lock_state,
)
from liza.domain.config import SWITCH_FILES
from liza.domain.model import KEYED_SECTIONS, VERSION
from liza.domain.record import Json, Record, field_text, item_text, nested_item_text, section_text
from liza.errors import DiskTrouble, InvalidBoard
from liza.system.files import overwrite, write_new
from liza.system.host import host

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from liza.board.journal import Disk, JsonRecord, LockState
    from liza.board.protocol import JournalEntry
    from liza.domain.config import Switch
    from liza.domain.model import HistoryEntry, State


# The switches of a board in files: each is a file that people and programs make and remove.


class FileSwitches:
    def __init__(self, home: Path) -> None:
        self._home = home

    def thrown(self) -> dict[str, str]:
        """Return the switches that are thrown, each with what its file says."""
        found: dict[str, str] = {}
        for name in SWITCH_FILES:
            try:
                found[name] = (self._home / name).read_text(errors="replace").strip()
            except FileNotFoundError:
                continue
            except OSError:  # a directory, or not for us to read: it is there all the same
                found[name] = ""
        return found

    def throw(self, switch: Switch, said: str) -> bool:
        """Throw *switch* and say in its file why; return False, and leave it, where it is thrown already."""
        path = self._path(switch)
        try:
            return write_new(path, _one_line(said))
        except OSError as error:
            raise DiskTrouble(f"write {path}", error) from error

    def replace(self, switch: Switch, said: str) -> None:
        """Throw *switch* and say in its file why, whatever it said before."""
        path = self._path(switch)
        try:
            overwrite(path, _one_line(said))
        except OSError as error:
            raise DiskTrouble(f"write {path}", error) from error

    def clear(self, switch: Switch) -> None:
        path = self._path(switch)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise DiskTrouble(f"remove {path}", error) from error

    def thrown_at(self, switch: Switch) -> datetime | None:
        """Return the time of the file; None where there is none, or it is being written."""
        path = self._path(switch)
        try:
            if not _is_written(path):
                return None
            return datetime.fromtimestamp(path.stat().st_mtime, UTC)
        except FileNotFoundError:
            return None

    def place_of(self, switch: Switch) -> str:
        return str(self._path(switch))

    def _path(self, switch: Switch) -> Path:
        return self._home / switch.name


def _is_written(path: Path) -> bool:
    """Return whether the file is complete: a shell first makes it, and then writes its words."""
    try:
        return has_no_writer(path)
    except OSError:  # a link, or taken back at this moment
        return True


def _one_line(said: str) -> str:
    line = " ".join(said.split())
    return f"{line}\n" if line else ""


# `state.yaml` as a text: which blocks it has, and which of them an update has to write anew.

HEADER: Final = (
    "# Liza's board. You may edit it here or with `liza edit`; what may be changed is in specs/board.md.\n"
)
# What stands in the file only where there is something to say.
OPTIONAL_SECTIONS: Final = frozenset({"integration", "workflow"})
SECTIONS: Final = (
    "goal",
    "tasks",
    "agents",
    "sprint",
    "human_notes",
    "anomalies",
    "discovered",
    "handoff",
    "circuit_breaker",
    "providers",
    "spend",
    "accounts",
    "integration",
    "workflow",
    "config",
    "archived",
)


# Of a text with so many blocks, groups have room at their ends: what grows in one moves nothing behind it.
LARGE: Final = 1_000
ROOM_HEADER: Final = "# Lines of dashes are room: an update writes what it changed, not the whole file.\n"
GROUP: Final = 32  # blocks that share their room
ROOM: Final = 8192  # bytes of which a group has a multiple
STRETCH: Final = 16  # groups that share room in their turn: what outgrows one seldom moves the whole file
STRETCH_ROOM: Final = 8 * ROOM  # bytes of which a stretch has a multiple
_WIDTH: Final = 80  # of a line of dashes

BlockKey = tuple[str, str]  # section and id; "" is the id of a section that is one record
_HEAD: Final = "\n"  # in place of an id, which is never this: the name of a section that is a list


class TextPatch(NamedTuple):
    """What makes a text of an earlier revision that of the latest."""

    parts: list[tuple[int, bytes]]  # each with its place
    size: int  # of the whole


class StateDocument:
    """The text of one board; the blocks that changed are rendered when the text is needed."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._groups: _Groups | None = None  # None: small, or not laid out since blocks came or went
        self._stale: dict[BlockKey, JsonRecord] = {}  # blocks to be made anew, with the fields that changed
        self._blocks: dict[str, dict[str, bytes]] = {}
        for section in SECTIONS:
            value = getattr(state, section)
            if section in KEYED_SECTIONS:
                self._blocks[section] = {name: _item_bytes(record) for name, record in value.items()}
            else:
                self._blocks[section] = {"": _section_bytes(section, value)}

    def follow(self, state: State, entries: Iterable[JournalEntry]) -> None:
        """Bring the text to *state*, which *entries* made of the one before."""
        self._state = state
        for entry in entries:
            for section, value in entry.put.items():
                if section not in KEYED_SECTIONS:
                    self._stale[section, ""] = {}
                    continue
                for name, fields in value.items():
                    self._put(section, name, fields)
            for section, names in entry.gone.items():
                for name in names:
                    self._remove(section, name)

    def _put(self, section: str, name: str, fields: JsonRecord) -> None:
        if name not in self._blocks[section]:
            self._blocks[section][name] = b""
            self._groups = None
        put_fields(self._stale.setdefault((section, name), {}), fields)

    def _remove(self, section: str, name: str) -> None:
        self._groups = None
        self._blocks[section].pop(name, None)
        self._stale.pop((section, name), None)

    def _freshen(self) -> None:
        """Make the blocks that are asked for: one that changed often since then is made once."""
        # Whatever interrupts this, what is known of their places is right, or is not there.
        groups, self._groups = self._groups, None
        for (section, name), changes in self._stale.items():
            value = getattr(self._state, section)
            before = self._blocks[section][name]
            fresh = _splice(before, value[name], changes) if name else _section_bytes(section, value)
            self._blocks[section][name] = fresh
            if groups:
                groups.follow((section, name), len(fresh) - len(before), self._state.revision)
        self._stale.clear()
        self._groups = groups or self._lay_out()

    def _lay_out(self) -> _Groups | None:
        if sum(map(len, self._blocks.values())) < LARGE:
            return None
        keys = list(self._keys())
        return _Groups(keys, [len(self._block(key)) for key in keys], self._state.revision)

    def _keys(self) -> Iterator[BlockKey]:
        for section, blocks in self._blocks.items():
            if section in KEYED_SECTIONS:
                yield section, _HEAD
            yield from ((section, name) for name in blocks)

    def _block(self, key: BlockKey) -> bytes:
        section, name = key
        if name != _HEAD:
            return self._blocks[section][name]
        return f"{section}:\n".encode() if self._blocks[section] else f"{section}: []\n".encode()

    def _head(self, stamp: str) -> bytes:
        revision = self._state.revision
        says = HEADER + (ROOM_HEADER if self._groups else "")
        return f"{says}# stamp: {revision} {stamp}\nversion: {VERSION}\nrevision: {revision}\n".encode()

    def _group(self, groups: _Groups, number: int) -> bytes:
        return b"".join([*map(self._block, groups.keys(number)), groups.room(number)])

    def bytes(self, stamp: str) -> bytes:
        """Return the file; *stamp* is the journal's sum at this revision."""
        self._freshen()
        head = self._head(stamp)
        if (groups := self._groups) is None:
            return b"".join([head, *map(self._block, self._keys())])
        return b"".join([head, *(self._group(groups, number) for number in range(groups.count))])

    def patch(self, revision: int, stamp: str) -> TextPatch | None:
        """Return what to write over the text of an earlier *revision*; None where that is all of it."""
        self._freshen()
        groups, latest = self._groups, self._state.revision
        # With another digit everything moves.
        if groups is None or len(str(revision)) != len(str(latest)) or not groups.since <= revision <= latest:
            return None
        head = self._head(stamp)
        changed = groups.changed_after(revision)
        parts = [(len(head) + groups.start(one), self._group(groups, one)) for one in changed]
        return TextPatch([(0, head), *parts], len(head) + groups.size)

    def untouched(self, state: State) -> dict[str, Record]:
        """Return the records of *state* by their texts, to find those that an edit left unchanged."""
        self._freshen()
        ends = self._groups.ends() if self._groups else {}
        return {
            (block + ends.get((section, name), b"")).decode(): getattr(state, section)[name]
            for section in KEYED_SECTIONS
            for name, block in self._blocks[section].items()
        }


class _Groups:
    """Where the blocks of a large text stand."""

    def __init__(self, keys: Sequence[BlockKey], lengths: Sequence[int], revision: int) -> None:
        self._keys = [keys[place : place + GROUP] for place in range(0, len(keys), GROUP)]
        self._number = {key: number for number, group in enumerate(self._keys) for key in group}
        self._used = [sum(lengths[place : place + GROUP]) for place in range(0, len(keys), GROUP)]
        self.since = revision  # what was before it is not known
        self._changed = [revision] * len(self._keys)
        self._place()

    def _place(self) -> None:
        self._sizes = [used + len(self._own_room(number)) for number, used in enumerate(self._used)]
        self._gaps = [b""] * self.count  # what stands behind the last group of a stretch in addition
        for begin in range(0, self.count - STRETCH, STRETCH):
            self._gaps[begin + STRETCH - 1] = comments(
                -sum(self._sizes[begin : begin + STRETCH]) % STRETCH_ROOM
            )
        whole = (size + len(gap) for size, gap in zip(self._sizes, self._gaps, strict=True))
        self._ends = list(accumulate(whole))

    @property
    def count(self) -> int:
        return len(self._keys)

    @property
    def size(self) -> int:
        return self._ends[-1]

    def keys(self, number: int) -> Sequence[BlockKey]:
        return self._keys[number]

    def start(self, number: int) -> int:
        return self._ends[number - 1] if number else 0

    def changed_after(self, revision: int) -> list[int]:
        return [number for number, changed in enumerate(self._changed) if changed > revision]

    def room(self, number: int) -> bytes:
        return self._own_room(number) + self._gaps[number]

    def _own_room(self, number: int) -> bytes:
        # Behind the last one nothing moves.
        return b"" if number == self.count - 1 else comments(-self._used[number] % ROOM)

    def ends(self) -> dict[BlockKey, bytes]:
        """Return what stands behind the last block of each group."""
        return {group[-1]: self.room(number) for number, group in enumerate(self._keys)}

    def follow(self, key: BlockKey, grown: int, revision: int) -> None:
        """Take in that a block grew, and changed by *revision* at the latest."""
        number = self._number[key]
        self._changed[number] = revision
        self._used[number] += grown
        if self._used[number] + len(self._own_room(number)) == self._sizes[number]:
            return
        before = self._ends
        self._place()
        for other in range(number + 1, self.count):
            if before[other - 1 : other + 1] != self._ends[other - 1 : other + 1]:
                self._changed[other] = revision  # what moved is written as well


@lru_cache(maxsize=ROOM)
def comments(size: int) -> bytes:
    """Return comments of *size* bytes, or of as many more as a group has at least."""
    if size == 1:  # a blank line, which may be part of the text above it
        size += ROOM
    widths = [_WIDTH] * (size // _WIDTH)
    if rest := size % _WIDTH:
        widths.append(rest)
    if rest == 1:
        widths[-2:] = [_WIDTH - 1, 2]
    return b"".join(b"#%s\n" % (b"-" * (width - 2)) for width in widths)


# Between two fields of a record, and two entries of its history: what is in one of them stands further in.
_FIELDS: Final = "\n  "
_NEXT_FIELD: Final = re.compile(r"\n  (?=[^ -])")
_ENTRIES: Final = "\n  - "


def _splice(block: bytes, record: Record, changes: JsonRecord) -> bytes:
    """Return the text of *record*, made of that before it and of *changes* as the journal has them.

    To do so again, because something interrupted it, comes to the same.
    """
    if not block:
        return _item_bytes(record)
    fields = {field.partition(":")[0]: field for field in _NEXT_FIELD.split(block[2:-1].decode())}
    for key, value in changes.items():
        if value is None:
            fields.pop(key, None)
        elif key != "history":
            fields[key] = field_text(key, value)[2:-1]
    if added := changes.get("history"):
        _splice_history(fields, record.__dict__["history"], record.__dict__["history_earlier"], added)
    shown = [fields[key] for key in json_names(type(record)) if key in fields]
    return f"- {_FIELDS.join(shown)}\n".encode()


def _splice_history(
    fields: dict[str, str], shown: Sequence[HistoryEntry], earlier: int, added: list[JsonRecord]
) -> None:
    """Put what is new of *added* behind the history in *fields*, and drop what is not *shown*."""
    past = fields.get("history", "").split(_ENTRIES)[1:]
    known = int(fields.get("history_earlier", ": 0").partition(": ")[2]) + len(past)
    fresh = min(earlier + len(shown) - known, len(shown))
    past += [nested_item_text(entry)[4:-1] for entry in added[len(added) - fresh :]]
    fields["history"] = _ENTRIES.join(["history:", *past[-len(shown) :]])
    if earlier:
        fields["history_earlier"] = f"history_earlier: {earlier}"


def render_state(state: State, stamp: str) -> bytes:
    """Return the whole text of *state*."""
    return StateDocument(state).bytes(stamp)


def _item_bytes(record: Record) -> bytes:
    return item_text(record.to_json()).encode()


def _section_bytes(section: str, value: Record | Mapping[str, str]) -> bytes:
    # Settings are shown with their defaults, so that people see what there is to change.
    raw: Json = value.model_dump(mode="json", exclude_none=True) if isinstance(value, Record) else dict(value)
    if section in OPTIONAL_SECTIONS and isinstance(value, Record) and value == type(value)():
        return b""
    return section_text(section, raw).encode()


if TYPE_CHECKING:
    # What to write over the text of an earlier revision with that stamp; None where it is not known.
    PatchOf = Callable[[int, str], TextPatch | None]


# `state.yaml` on disk, put there in one step without losing a person's save.

NAME: Final = "state.yaml"
LOCK: Final = f"{NAME}.lock"
SPARE: Final = "state.yaml.spare"
HELD: Final = "state.yaml.held"
NO_FILE: Final = FileId(0, 0, 0)  # the print of no file: whatever is there differs from it
_STAMP: Final = re.compile(rb"^# stamp: ([0-9]+) ([0-9a-f]+)$", re.MULTILINE)
_STAMPED_BYTES: Final = 1024  # bytes, among which is the stamp


class SavedText(NamedTuple):
    """A saved text, and the fingerprint of the file that it was read from."""

    data: bytes
    there: FileId


class StateFile:
    def __init__(self, home: Path, disk: Disk) -> None:
        self.path = home / NAME
        self.spare = home / SPARE
        self._disk = disk

    def is_as_left(self, lock_state: LockState) -> bool:
        """Return whether state.yaml is there as Liza put it."""
        return lock_state.state is not None and file_id_at(self.path) == lock_state.state

    def suspects(self, lock_state: LockState) -> list[Path]:
        """Return the files that are not as Liza left them, oldest first."""
        if not lock_state.pid:
            self._search(lock_state)
        there, spare = file_id_at(self.path), file_id_at(self.spare)
        if there is not None and there == lock_state.spare and spare == lock_state.state:
            # A writer died right after its exchange, before it could leave a lock state.
            lock_state.state, lock_state.spare = lock_state.spare, lock_state.state
        held = (self.path.with_name(name) for name in lock_state.held)
        found = [path for path in held if file_id_at(path) not in {lock_state.held[path.name], None}]
        if lock_state.spare is not None and spare not in {lock_state.spare, None}:
            found.append(self.spare)
        if there not in {lock_state.state, None}:
            found.append(self.path)
        return found

    def _search(self, lock_state: LockState) -> None:
        """Find files beside state.yaml without a lock state: each may hold an edit of a person."""
        lock_state.held = {path.name: NO_FILE for path in sorted(self.path.parent.glob(f"{HELD}-*"))}
        lock_state.spare = NO_FILE

    def is_wreck(self, there: FileId, lock_state: LockState) -> bool:
        """Return whether this is Liza's own file, half written when the machine went down."""
        own = {known.inode for known in (lock_state.state, lock_state.spare) if known}
        return there.inode in own and lock_state.is_from_before_a_crash()

    def note_handled(self, path: Path, there: FileId, lock_state: LockState) -> None:
        """Note that the save *there* at *path* was handled; a later save has another fingerprint."""
        lock_state.whole -= {there.inode}
        if path == self.path:
            lock_state.state, lock_state.sum = there, ""
        elif path == self.spare:
            lock_state.spare = there
        else:
            self._forget(path, lock_state)

    def forget_closed(self, lock_state: LockState) -> None:
        """Forget the files that an editor had open, and closed without writing."""
        for path in [self.path.with_name(name) for name in lock_state.held]:
            there = file_id_at(path)
            if there is None or (has_no_writer(path) and file_id_at(path) == lock_state.held[path.name]):
                self._forget(path, lock_state)

    def _forget(self, path: Path, lock_state: LockState) -> None:
        path.unlink(missing_ok=True)
        lock_state.held.pop(path.name, None)

    def put(self, text: Callable[[], bytes], patch_of: PatchOf, lock_state: LockState) -> None:
        """Make *text* the content of state.yaml and the file before it the spare."""
        descriptor = self._open_spare(lock_state)
        try:
            is_whole = lock_state.spare is not None and lock_state.spare.inode in lock_state.whole
            patch = _find_patch(descriptor, patch_of) if is_whole else None
            lock_state.spare = None  # from here on the spare is half written, and no edit
            write_lock_state(lock_state)
            if patch:
                self._disk.patch(descriptor, patch.parts, patch.size)
            else:
                self._disk.overwrite(descriptor, text())
            fresh = file_id_of(os.fstat(descriptor))
        finally:
            os.close(descriptor)
        lock_state.spare = fresh
        lock_state.whole = frozenset({fresh.inode}) | (
            lock_state.whole & {lock_state.state.inode} if lock_state.state else set()
        )
        write_lock_state(lock_state)
        self._trade()
        came_out = file_id_at(self.spare)
        # What Liza did not put there was saved between its look and the exchange: the next look finds it.
        lock_state.spare = came_out if came_out in {lock_state.state, None} else NO_FILE
        lock_state.state = fresh

    def _trade(self) -> None:
        try:
            self._disk.exchange(self.spare, self.path)
        except FileNotFoundError:  # somebody removed state.yaml
            try:
                self._disk.place(self.spare, self.path)
            except FileExistsError:  # and saved another one since
                self._disk.exchange(self.spare, self.path)

    def _open_spare(self, lock_state: LockState) -> int:
        """Return a descriptor of a file that no other process has open and that holds no edit."""
        try:
            descriptor = os.open(self.spare, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return self._make_spare(lock_state)
        except PermissionError:
            descriptor = -1  # somebody changed its mode while it was state.yaml
        if descriptor >= 0 and self._is_free(descriptor, lock_state):
            return descriptor
        # Half written it is Liza's own, and open still only because an exception kept it from being closed.
        if lock_state.spare is None or (has_no_writer(self.spare) and self._is_known(lock_state)):
            self.spare.unlink()  # somebody still reads it, who must not see it change
        else:
            self._hold(lock_state)
        return self._make_spare(lock_state)

    def _make_spare(self, lock_state: LockState) -> int:
        lock_state.spare = None
        write_lock_state(lock_state)  # before there is a file, or an empty one would be taken for an edit
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        return os.open(self.spare, flags, 0o644)

    def _is_free(self, descriptor: int, lock_state: LockState) -> bool:
        """Return whether the open spare may be written over; it is closed if not."""
        is_free = False
        try:
            # Asked in this order: once nobody else has it open, its print cannot change any more.
            is_free = host().is_opened_by_us_alone(descriptor) and self._is_known(lock_state)
        finally:
            # Also if a signal handler raised: the descriptor may hold a lease that makes others wait.
            if not is_free:
                os.close(descriptor)
        return is_free

    def _is_known(self, lock_state: LockState) -> bool:
        return lock_state.spare is None or file_id_at(self.spare) == lock_state.spare

    def _hold(self, lock_state: LockState) -> None:
        """Keep the spare file under a name of its own: a program writes it, or did since Liza looked."""
        number = 1
        while (held := self.path.with_name(f"{HELD}-{number}")).exists():
            number += 1
        lock_state.held[held.name] = lock_state.spare or NO_FILE
        write_lock_state(
            lock_state
        )  # before the rename, or nobody would look for the file if this process died now
        self.spare.rename(held)


def _find_patch(descriptor: int, patch_of: PatchOf) -> TextPatch | None:
    """Return what is to be written over the text in an open file, which says by its stamp which it is."""
    stamp = _STAMP.search(os.pread(descriptor, _STAMPED_BYTES, 0))
    return patch_of(int(stamp[1]), stamp[2].decode()) if stamp else None


def read_saved(path: Path) -> SavedText | None:
    """Return the content of *path*, or None while it is being written; raise where it is no plain file."""
    try:
        found = path.lstat()
        if not stat.S_ISREG(found.st_mode):
            raise not_a_file_error(path)
        data = path.read_bytes() if has_no_writer(path) else None
    except FileNotFoundError:  # an editor is between two steps of its save
        return None
    except OSError as error:
        raise DiskTrouble(f"read {path}", error) from error
    there = file_id_of(found)
    return SavedText(data, there) if data is not None and file_id_at(path) == there else None


def not_a_file_error(path: Path) -> InvalidBoard:
    kind = f"a link to {path.readlink()}" if path.is_symlink() else "not a plain file"
    return InvalidBoard(f"{path} is {kind}; put the plain file back, or remove it and Liza writes it anew")
