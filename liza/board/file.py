"""The board in files: a journal that is the truth, and `state.yaml` that people read and edit."""

from __future__ import annotations

import hashlib
import logging
import os
import threading
import time
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple
from weakref import WeakSet

from liza.board import edits, snapshot
from liza.board.alerts import FileAlerts
from liza.board.archive import retire_finished, write_archive
from liza.board.disk import Disk
from liza.board.journal import NAME as JOURNAL
from liza.board.journal import Journal, JournalPosition
from liza.board.location import require_version
from liza.board.lock import QUEUE, BoardLock
from liza.board.presence import FilePresence
from liza.board.protocol import JournalEntry
from liza.board.quarantine import quarantine_edit, quarantine_wreck, write_to_quarantine
from liza.board.render import StateDocument, render_state
from liza.board.replay import (
    diff_states,
    first_state,
    is_empty_diff,
    journal_fields,
    json_of_changes,
    removed_ids,
    replay_entries,
    replay_journal,
    with_trimmed_history,
)
from liza.board.snapshot import Snapshot
from liza.board.statefile import LOCK, SPARE, StateFile, not_a_file_error, read_saved
from liza.board.switches import FileSwitches
from liza.domain.changes import Change
from liza.domain.invariants import StateDiff, diff_violations, violations
from liza.domain.lifecycle import TERMINAL
from liza.domain.problems import line_of
from liza.domain.record import build_validators, utc_now
from liza.errors import (
    READ_ONLY,
    DiskTrouble,
    EditRejected,
    InvalidBoard,
    JournalDamaged,
    LizaError,
    NotThere,
    Violation,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime
    from pathlib import Path

    from liza.board.journal import JournalLine
    from liza.board.lock_state import LockState
    from liza.board.statefile import SavedText
    from liza.board.watch import Watch
    from liza.domain.model import State

SETTLE: Final = 0.5  # seconds an unreadable file may be somebody's save in progress
VIEWS: Final = 64  # boards of the past that a process remembers; they share all that did not change
# Revisions between two of them: so an edit from a copy of minutes ago replays a few lines.
VIEW_SPACING: Final = 8
POLL: Final = 1.0  # seconds between two looks while a watch is on, in case it missed something
POLL_BLIND: Final = 0.05  # seconds between two looks where the kernel grants no watch
IGNORED_FILES: Final = frozenset({LOCK, LOCK + QUEUE, SPARE, snapshot.NAME, f"{snapshot.NAME}.new"})

log = logging.getLogger(__name__)


class EditBase(NamedTuple):
    """The revision that an edit was made from, and the changes since."""

    state: State
    sum: str
    since: frozenset[str] = frozenset()


class FileBoard:
    """One process's view of a board in directory *home*; threads of the process may share it."""

    def __init__(
        self, home: Path, *, disk: Disk | None = None, clock: Callable[[], datetime] = utc_now
    ) -> None:
        require_version(home)
        self.home = home
        self.switches = FileSwitches(home)
        self.alerts = FileAlerts(home)
        self.presence = FilePresence(home)
        self._disk = disk or Disk()
        self._clock = clock
        self._journal = Journal(home / JOURNAL, self._disk)
        self._file = StateFile(home, self._disk)
        self._lock = BoardLock(home / LOCK, self._disk)
        self._mutex = threading.RLock()
        self._is_updating = False
        # One value, set at once: whatever interrupts a step, the state and its place belong together.
        self._view: Snapshot | None = None
        self._document: StateDocument | None = None  # the text of the view; None while the two may differ
        self._snapshot_at = (0, 0)  # place in the journal and length of the last snapshot
        self._watch: Watch | None = None
        self._is_blind = False
        self._rejections: list[EditRejected] = []
        self._latest_origin: tuple[tuple[int, JournalPosition], EditBase] | None = None
        self._views: deque[Snapshot] = deque(maxlen=VIEWS)  # of a while ago, for edits of old copies
        _boards.add(self)

    @classmethod
    def create(
        cls,
        home: Path,
        state: State,
        *,
        by: str = "human",
        disk: Disk | None = None,
        clock: Callable[[], datetime] = utc_now,
    ) -> FileBoard:
        """Make a new board in *home* with *state* as its first revision."""
        board = cls(home, disk=disk, clock=clock)
        try:
            home.mkdir(exist_ok=True)
            (home / JOURNAL).touch()
        except OSError as error:
            raise DiskTrouble(f"make {home}", error) from error
        with board._exclusive(lambda: None) as baton:
            if any(True for _ in board._journal.lines(JournalPosition())):
                raise LizaError(f"there is a board in {home} already; `liza status` shows it")
            board._begin(state.replace(revision=1), by, baton)
        for directory in (home, home.parent):
            _sync_directory(directory)
        return board

    def _begin(self, state: State, by: str, baton: LockState) -> None:
        self._journal.mend(JournalPosition())
        put = {key: value for key, value in state.to_json().items() if key != "revision"}
        entry = JournalEntry(1, self._clock(), by, "init", put, {})
        first = first_state(entry)
        if wrong := violations(first):
            raise InvalidBoard("the board to begin with is not valid", wrong)
        self._view = Snapshot(self._journal.append(entry, JournalPosition()), entry.at, first)
        self._publish(baton)

    def read(self) -> State:
        """Return the latest state; takes no lock."""
        with self._mutex:
            return self._catch_up()

    def update(self, change: Change) -> State:
        """Let *change* happen to the state as it is under the lock; durable when this returns."""
        with self._settled(patient=True):
            self._commit(change)
            return self._known()

    def absorb(self) -> State:
        """Take in what a person saved, now; raise EditRejected if it could not be taken.

        Where nothing can be written, the board is what the journal says, and the edit waits.
        """
        try:
            self._settle()
        except DiskTrouble as error:
            if error.errno not in READ_ONLY:
                raise
            log.warning("state.yaml was edited, or is behind, and that has to wait: %s", error)
        if self._rejections:
            raise self._rejections.pop()
        return self.read()

    def _settle(self) -> None:
        deadline = time.monotonic() + SETTLE
        while self.has_edit() or self._is_behind():
            with self._settled(patient=time.monotonic() < deadline) as is_settled:
                pass
            if is_settled or time.monotonic() > deadline:
                break
            time.sleep(POLL_BLIND / 5)

    def has_edit(self) -> bool:
        """Tell, without a lock, whether somebody else than Liza may have written state.yaml."""
        if (path := self._file.path).is_symlink() or (path.exists() and not path.is_file()):
            raise not_a_file_error(path)
        baton = self._lock.peek()
        return baton is None or not path.exists() or bool(self._file.suspects(baton))

    def _is_behind(self) -> bool:
        """Return whether state.yaml does not show the latest change: whoever made it died, or could not."""
        with self._mutex:
            self._catch_up()
            baton = self._lock.peek()
            return baton is None or baton.sum != self._mark.sum

    def lock_holder(self) -> str:
        """Return who last took the lock, for somebody who waits for it."""
        baton = self._lock.peek()
        return f"process {baton.pid}, which holds {self._lock.path}" if baton else "nobody"

    def wait(self, since: int, timeout: float) -> State:
        """Return the state once its revision is past *since*, or after *timeout* seconds as it is then.

        Where a switch is thrown or taken back, it returns at once: whoever waits has to obey it.
        """
        deadline = time.monotonic() + timeout
        watch = self._open_watch()
        alarms = watch.alarms if watch else 0
        while True:
            heard = watch.wakeups if watch else 0
            state = self.read()
            if state.revision <= since and (self.has_edit() or self._is_behind()):
                state = self._look()
            left = deadline - time.monotonic()
            if state.revision > since or left <= 0 or (watch and watch.alarms > alarms):
                return state
            if watch:
                watch.wait(heard, min(left, POLL))
            else:
                time.sleep(min(left, POLL_BLIND))

    def _look(self) -> State:
        """Take in what a person saved, where that can be written; who only looks on goes on looking."""
        try:
            return self.update(Change("liza", "look", lambda same: same))
        except DiskTrouble as error:
            if error.errno not in READ_ONLY:
                raise
            return self.read()

    def entries(self, after: int = 0) -> Iterator[JournalEntry]:
        """Yield every change past revision *after*, oldest first."""
        for line in self._lines():
            if line.entry.revision > after:
                yield line.entry

    def at(self, moment: int | datetime) -> tuple[State, str]:
        """Return the state as it was at a revision or time, and the stamp of its text."""
        kept: list[JournalLine] = []
        for line in self._lines():
            if (line.entry.revision if isinstance(moment, int) else line.entry.at) > moment:  # type: ignore[operator]
                break
            kept.append(line)
        if not kept or (isinstance(moment, int) and kept[-1].entry.revision != moment):
            raise NotThere("revision", str(moment), "`liza log` lists them")
        return replay_journal(kept), kept[-1].mark.sum

    def text_at(self, moment: int | datetime) -> bytes:
        """Return state.yaml as it was at a revision or time."""
        return render_state(*self.at(moment))

    def judge(self, data: bytes) -> None:
        """Raise what is wrong with *data* as an edit of state.yaml; nothing is written."""
        data = edits.normalize_saved(data)
        with self._mutex:
            old = self._catch_up()
            if not self._is_ours(data):
                step = diff_states(old, self._merge_edit(data))
                if wrong := diff_violations(step):
                    raise _with_lines(data, wrong)

    def take(self, data: bytes) -> State:
        """Do to the board what a person changed in *data*, or raise why not, with nothing written."""
        with self._settled(patient=True):
            self._take(data)
            return self._known()

    def quarantine(self, data: bytes, *, at: datetime) -> Path:
        """Keep a text that was refused, and return where."""
        try:
            return write_to_quarantine(self.home, data, at)
        except OSError as error:
            raise DiskTrouble("keep an edit of state.yaml that was not taken", error) from error

    def close(self) -> None:
        """Let go of descriptors and threads."""
        if self._watch:
            self._watch.close()
        self._watch = None
        self._journal.close()
        self._lock.close()

    def forget_parent(self) -> None:
        """Share nothing with the process that this one was forked from, which may be in the middle of a step.

        The descriptors carry its locks, the mutex may be held by a thread that is not here, and ending the
        watch would end it for both.
        """
        self._mutex, self._is_updating = threading.RLock(), False
        self._watch, self._is_blind = None, False
        self._view, self._document = None, None
        self._views.clear()
        self._journal.close()
        self._lock.close()

    def _lines(self, after: JournalPosition = JournalPosition()) -> Iterator[JournalLine]:  # noqa: B008 - a value that never changes
        """Read the journal behind *after* on a descriptor of its own, so that nobody waits meanwhile."""
        # To close what was open for writing would wake everybody who waits.
        journal = Journal(self._journal.path, self._disk, os.O_RDONLY)
        try:
            yield from journal.lines(after)
        finally:
            journal.close()

    @contextmanager
    def _exclusive(self, prepare: Callable[[], object]) -> Iterator[LockState]:
        """Hold the lock of the board, against other processes and other threads of this one."""
        with self._mutex:
            if self._is_updating:
                raise RuntimeError(
                    "a change must not update the board: it is handed the state, and returns it"
                )
            with self._lock.held(prepare) as baton, self._journal.hold_lock():
                self._is_updating = True
                try:
                    yield baton
                finally:
                    self._is_updating = False

    @contextmanager
    def _settled(self, *, patient: bool) -> Iterator[bool]:
        """Hold the lock on the board as it is, people's edits taken in, and show afterwards what it became.

        What is yielded is False while a save seems to be in progress.
        """
        with self._exclusive(self._prepare) as baton:
            self._catch_up()
            self._journal.mend(self._mark)
            is_settled = self._absorb(baton, patient=patient)
            try:
                yield is_settled
            finally:  # also after a refused change: an edit may have been taken in before it
                if is_settled:
                    self._publish(baton)

    def _prepare(self) -> None:
        """Do without the lock what can be done without it: read what others wrote, make the text of it."""
        self._catch_up()
        self._text()

    @property
    def _mark(self) -> JournalPosition:
        return self._view.mark if self._view else JournalPosition()

    def _known(self) -> State:
        if self._view is None:
            raise JournalDamaged(f"{self._journal.path} holds no board; `liza init` makes one")
        return self._view.state

    def _catch_up(self) -> State:
        """Bring this process's view up to the end of the journal."""
        size = self._journal.size()
        if self._view is None or not self._journal.holds(self._mark):
            return self._reload()
        if size > self._mark.offset:
            try:
                self._follow(list(self._journal.lines(self._mark)))
            except JournalDamaged:
                # A writer took back a line while this process was reading it.
                return self._reload()
        return self._known()

    def _reload(self) -> State:
        self._views.clear()
        self._document, self._view = None, snapshot.load(self.home / snapshot.NAME)
        if self._view is not None and self._journal.holds(self._mark):
            self._snapshot_at = (self._mark.offset, (self.home / snapshot.NAME).stat().st_size)
        else:
            self._view = None
        self._follow(list(self._journal.lines(self._mark)))
        return self._known()

    def _follow(self, lines: list[JournalLine]) -> None:
        if not lines:
            return
        old, entries = self._view, [line.entry for line in lines]
        new = replay_entries(old.state, entries) if old else replay_journal(lines)
        document, self._document = self._document, None
        self._view = Snapshot(lines[-1].mark, entries[-1].at, new)
        self._remember(self._view)
        if old and document:
            document.follow(diff_states(old.state, new)._replace(gone=removed_ids(entries)))
            self._document = document

    def _commit(self, change: Change) -> None:
        old = self._known()
        new = change(old)
        if new is old:
            return
        step = diff_states(old, new.replace(revision=old.revision + 1))
        if is_empty_diff(step):
            return
        if wrong := diff_violations(step):
            raise InvalidBoard(f"{change.told!r} by {change.by} would break the board", wrong)
        shown = step._replace(new=with_trimmed_history(step))
        plains = json_of_changes(shown)
        now = self._clock()
        at = max(now, self._view.at) if self._view else now
        entry = JournalEntry(
            step.new.revision, at, change.by, change.told, journal_fields(step, plains), _as_lists(step)
        )
        mark = self._journal.append(entry, self._mark)
        document, self._document = self._document, None
        self._view = Snapshot(mark, at, shown.new)
        self._remember(self._view)
        if document:
            document.follow(shown, plains)
            self._document = document
        if any(shown.new.tasks[name].status in TERMINAL for name in step.put.get("tasks", ())):
            self._tidy()

    def _tidy(self) -> None:
        """Move finished tasks off the board once there are too many of them."""
        before = self._known()
        after = retire_finished(before)
        if after is not before:
            gone = [task for name, task in before.tasks.items() if name not in after.tasks]
            try:
                self._commit(Change("liza", f"archive {len(gone)} finished tasks", lambda _: after))
            except DiskTrouble as error:  # what led here is on disk: this can wait for the next one
                log.warning("%d finished tasks stay on the board: %s", len(gone), error)
                return
            write_archive(self.home, gone)

    def _text(self) -> StateDocument:
        if self._document is None:
            self._document = StateDocument(self._known())
        return self._document

    def _publish(self, baton: LockState) -> None:
        """Show the latest state in state.yaml; the journal has it already, so trouble here only delays it."""
        if baton.sum == self._mark.sum and self._file.is_as_left(baton):
            return
        baton.sum = ""
        try:
            self._file.put(self._text().bytes(self._mark.sum), baton)
            baton.sum = self._mark.sum
        except OSError as error:
            log.warning("state.yaml is behind the journal: %s", error)
        if self._view and snapshot.is_due(self._mark.offset, *self._snapshot_at):
            self._save_snapshot(self._view)

    def _save_snapshot(self, view: Snapshot) -> None:
        try:
            size = snapshot.save(self.home / snapshot.NAME, view)
        except OSError as error:
            log.warning("no snapshot was written: %s", error)
            size = 0
        self._snapshot_at = (view.mark.offset, size)

    def _absorb(self, baton: LockState, *, patient: bool) -> bool:
        """Take in what people saved; return False while a save seems to be in progress."""
        for path in self._file.suspects(baton):
            found = read_saved(path)
            if found is None:
                if path == self._file.path:
                    return False
                continue
            try:
                self._take(found.data)
            except InvalidBoard as error:
                if patient and path == self._file.path and _is_recent(found):
                    return False
                if self._file.is_wreck(found.there, baton):
                    quarantine_wreck(self.home, found.data, self._clock())
                else:
                    self._reject(found.data, error)
            self._file.settled(path, found.there, baton)
        self._file.forget_closed(baton)
        return True

    def _take(self, data: bytes) -> None:
        """Do to the board what a person changed in *data*."""
        data = edits.normalize_saved(data)
        what = f"edit {hashlib.blake2b(data, digest_size=8).hexdigest()}"
        if self._is_ours(data) or self._was_taken(data, what):
            return
        merged = self._merge_edit(data)
        try:
            self._commit(Change("human", what, lambda _: merged))
        except InvalidBoard as error:
            raise _with_lines(data, error.violations) from error

    def _is_ours(self, data: bytes) -> bool:
        """Return whether *data* is what Liza wrote at the revision it names, untouched."""
        revision = edits.stated_revision(data.decode(errors="replace"))
        if revision is None or not 1 <= revision <= self._known().revision:
            return False
        if revision == self._known().revision:
            return data == self._text().bytes(self._mark.sum)
        origin = self._origin(revision)
        return data == render_state(origin.state, origin.sum)

    def _was_taken(self, data: bytes, what: str) -> bool:
        """Return whether this very text was taken in already, perhaps by a process that died right after."""
        revision = edits.stated_revision(data.decode(errors="replace"))
        if revision is None or not 1 <= revision < self._known().revision:
            return False
        return what in self._origin(revision).since

    def _origin(self, revision: int) -> EditBase:
        """Return the board that an edit was made from; the last is kept, for an edit is looked at often."""
        key = (revision, self._mark)
        if self._latest_origin is None or self._latest_origin[0] != key:
            self._latest_origin = (key, self._replay_to(revision))
        return self._latest_origin[1]

    def _replay_to(self, revision: int) -> EditBase:
        """Replay to *revision* from the nearest board before it that is known: everybody waits meanwhile."""
        base = self._view_before(revision)
        lines = list(self._lines(base.mark if base else JournalPosition()))
        before = [line for line in lines if line.entry.revision <= revision]
        since = frozenset(line.entry.what for line in lines[len(before) :])
        if base is None:
            return EditBase(replay_journal(before), before[-1].mark.sum, since)
        state = replay_entries(base.state, (line.entry for line in before))
        return EditBase(state, before[-1].mark.sum if before else base.mark.sum, since)

    def _view_before(self, revision: int) -> Snapshot | None:
        """Return the latest board up to *revision* that this process remembers, or the last snapshot."""
        for view in reversed(self._views):
            if view.state.revision <= revision and self._journal.holds(view.mark):
                return view
        kept = snapshot.load(self.home / snapshot.NAME)
        fits = kept and kept.state.revision <= revision and self._journal.holds(kept.mark)
        return kept if fits else None

    def _remember(self, view: Snapshot) -> None:
        """Keep *view* for a while, some revisions apart from the one before."""
        if len(self._views) > 1 and view.state.revision - self._views[-2].state.revision < VIEW_SPACING:
            self._views[-1] = view
        else:
            self._views.append(view)

    def _merge_edit(self, data: bytes) -> State:
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            line = data[: error.start].count(b"\n") + 1
            wrong = Violation("state.yaml", "it is not UTF-8 text", "save it as UTF-8", line)
            raise InvalidBoard("state.yaml is not valid", [wrong]) from error
        current, now = self._known(), self._clock()
        draft = edits.read_draft(text, self._text().untouched(current))
        revision = edits.check_revision(draft, text, current.revision)
        edited = edits.parse_state(draft, now)
        origin = self._origin(revision) if revision < current.revision else EditBase(current, self._mark.sum)
        edits.check_stamp(draft, text, revision, origin.sum)
        return edits.merge_edit(draft, edited, origin.state, current, now)

    def _reject(self, data: bytes, error: InvalidBoard) -> None:
        kept, change = quarantine_edit(self.home, data, error, self._clock())
        log.info("an edit of state.yaml was set aside: %s", kept)
        self._commit(change)
        self._rejections.append(EditRejected(kept, error.violations))

    def _open_watch(self) -> Watch | None:
        with self._mutex:
            if self._watch is None and not self._is_blind:
                from liza.board.watch import open_watch  # noqa: PLC0415 - only those who wait pay for its import

                build_validators()  # before the threads of the watch begin
                self._watch = open_watch(self.home, IGNORED_FILES)
                self._is_blind = self._watch is None
            return self._watch


_boards: Final[WeakSet[FileBoard]] = WeakSet()


def _forget_parent() -> None:
    for board in _boards:
        board.forget_parent()


os.register_at_fork(after_in_child=_forget_parent)


def _is_recent(text: SavedText) -> bool:
    """Return whether *text* was saved so recently that more may follow; a time to come tells nothing."""
    return 0 <= time.time() - text.there.mtime_ns / 1e9 < SETTLE


def _with_lines(data: bytes, violations: Sequence[Violation]) -> InvalidBoard:
    """Say where in the edited text each rule was broken."""
    lines = edits.read_draft(data.decode(), {}).lines
    located = [wrong._replace(line=line_of(wrong.path, lines)) for wrong in violations]
    return InvalidBoard("state.yaml is not valid", located)


def _as_lists(step: StateDiff) -> dict[str, list[str]]:
    return {section: list(names) for section, names in step.gone.items()}


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
