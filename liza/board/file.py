"""The board in files: a journal that is the truth, and `state.yaml` that people read and edit."""

from __future__ import annotations

import errno
import logging
import math
import os
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

from liza.board import journal
from liza.board.alerts import FileAlerts, append_alert
from liza.board.journal import NAME as JOURNAL
from liza.board.journal import QUEUE, BoardLock, Disk, Journal, JournalPosition
from liza.board.location import require_version
from liza.board.presence import FilePresence
from liza.board.protocol import BoardText
from liza.board.statefile import (
    LOCK,
    SPARE,
    FileSwitches,
    StateFile,
    not_a_file_error,
    read_saved,
    render_state,
)
from liza.board.view import JournalView, state_at
from liza.domain.anomalies import Anomaly, RejectedEdit
from liza.domain.changes import Change
from liza.domain.config import Switch
from liza.domain.record import build_validators, next_id, utc_now, with_record
from liza.errors import READ_ONLY, DiskTrouble, EditRejected, InvalidBoard, LizaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime
    from pathlib import Path

    from liza.board.journal import LockState
    from liza.board.protocol import Board, JournalEntry
    from liza.board.statefile import PatchOf, SavedText
    from liza.board.watch import Watch
    from liza.domain.model import State


# The quarantine of refused edits: the text is kept, people are alerted, the agents pause.

NAME: Final = "rejected"


def quarantine_edit(board: Board, data: bytes, error: InvalidBoard, at: datetime) -> tuple[Path, Change]:
    """Keep *data* as a file, pause the agents, and return where it is and what the board should say."""
    home = board.home
    where = board.quarantine(data, at=at)
    board.alerts.append(
        f"an edit of state.yaml was not taken and is kept in {where}: {_one_line(error)}", at=at
    )
    problems = tuple(str(violation) for violation in error.violations) or (_one_line(error),)
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    shown = f"{board.home.name}/{where.relative_to(home)}"
    said = (
        f"an edit of state.yaml was not taken: {' '.join(problems[0].split())}{more}; your text is in {shown}"
    )
    board.switches.throw(Switch.PAUSE, said)

    def make(state: State) -> State:
        anomaly = Anomaly(
            id=next_id(state.anomalies, "anomaly"),
            type="edit_rejected",
            logged_by="liza",
            timestamp=at,
            details=RejectedEdit(file=str(where.relative_to(home)), problems=problems),
        )
        return state.replace(anomalies=with_record(state.anomalies, anomaly))

    return where, Change("liza", "reject an edit", make)


def quarantine_wreck(home: Path, data: bytes, at: datetime) -> None:
    """Set aside a state.yaml that a crash of the machine left half written; it is no person's edit."""
    try:
        where = write_to_quarantine(home, data, at)
        append_alert(
            home, at, f"the machine went down while state.yaml was written; its remains are in {where}"
        )
    except OSError as trouble:
        raise DiskTrouble("keep what was left of state.yaml", trouble) from trouble


def _one_line(error: InvalidBoard) -> str:
    return " | ".join(str(violation) for violation in error.violations) or str(error)


def write_to_quarantine(home: Path, data: bytes, at: datetime) -> Path:
    """Write a refused text to the quarantine and return its path."""
    directory = home / NAME
    directory.mkdir(exist_ok=True)
    # Under its name it is whole: who dies in between leaves nothing that looks like an edit.
    fresh = home / f"{NAME}-{os.getpid()}.new"
    with fresh.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    stem, number = f"state-{at:%Y%m%dT%H%M%SZ}", 1
    while True:
        path = directory / f"{stem}-{number}.yaml"
        try:
            Disk().place(fresh, path)
        except FileExistsError:
            number += 1
            continue
        return path


# `state.yaml` and a board in step: what people saved is taken in, or refused and kept aside.

SETTLE: Final = 0.5  # seconds an unreadable file may be somebody's save in progress

log = logging.getLogger(__name__)


class StateSync:
    """The file in *home*; *take* applies an edit to the board, *reject* gets a refused one."""

    def __init__(
        self,
        home: Path,
        disk: Disk,
        *,
        take: Callable[[bytes], object],
        reject: Callable[[bytes, InvalidBoard], None],
        clock: Callable[[], datetime],
    ) -> None:
        self._home = home
        self._file = StateFile(home, disk)
        self._take = take
        self._reject = reject
        self._clock = clock

    def has_edit(self, lock_state: LockState | None) -> bool:
        """Return, without a lock, whether another program than Liza may have written state.yaml."""
        if (path := self._file.path).is_symlink() or (path.exists() and not path.is_file()):
            raise not_a_file_error(path)
        return lock_state is None or not path.exists() or bool(self._file.suspects(lock_state))

    def publish(
        self,
        lock_state: LockState,
        stamp: str,
        text: Callable[[], bytes],
        patch_of: PatchOf = lambda _revision, _stamp: None,
    ) -> None:
        """Show the state in state.yaml; the journal has it already, so trouble here only delays it."""
        if lock_state.sum == stamp and self._file.is_as_left(lock_state):
            return
        lock_state.sum = ""
        try:
            self._file.put(text, patch_of, lock_state)
            lock_state.sum = stamp
        except OSError as error:
            log.warning("state.yaml is behind the journal: %s", error)

    def absorb(self, lock_state: LockState, *, patient: bool) -> bool:
        """Take in what people saved; return False while a save seems to be in progress."""
        for path in self._file.suspects(lock_state):
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
                if self._file.is_wreck(found.there, lock_state):
                    quarantine_wreck(self._home, found.data, self._clock())
                else:
                    self._reject(found.data, error)
            self._file.note_handled(path, found.there, lock_state)
        self._file.forget_closed(lock_state)
        return True


def _is_recent(text: SavedText) -> bool:
    """Return whether *text* was saved so recently that more may follow; a time to come tells nothing."""
    return 0 <= time.time() - text.there.mtime_ns / 1e9 < SETTLE


POLL: Final = 1.0  # seconds between two looks while a watch is on, in case it missed something
# Seconds in which whoever wrote the journal mostly has it in state.yaml as well: who waits looks only after
# them, or everybody who waits would line up for the lock after every change.
SHOWING: Final = 0.1
POLL_BLIND: Final = 0.05  # seconds between two looks where the kernel grants no watch
IGNORED_FILES: Final = frozenset({LOCK, LOCK + QUEUE, SPARE, journal.SNAPSHOT, journal.SNAPSHOT_DRAFT})


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
        self._lock = BoardLock(home / LOCK, self._disk)
        self._mutex = threading.RLock()
        self._is_updating = False
        self._read_to = (0, JournalPosition())  # how far the entries were read last
        self._view = JournalView(home, self._journal, clock)
        self._sync = StateSync(home, self._disk, take=self._view.take, reject=self._reject, clock=clock)
        self._watch: Watch | None = None
        self._is_blind = False
        self._rejections: list[EditRejected] = []
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
        with board._exclusive(lambda: None) as lock_state:
            if any(True for _ in board._journal.lines(JournalPosition())):
                raise LizaError(f"there is a board in {home} already; `liza status` shows it")
            board._journal.mend(JournalPosition())
            board._view.begin(state.replace(revision=1), by)
            board._close_turn(lock_state)
        for directory in (home, home.parent):
            _sync_directory(directory)
        return board

    def now(self) -> datetime:
        """Return the time of this machine."""
        return self._clock()

    def read(self) -> State:
        """Return the latest state; takes no lock."""
        with self._mutex:
            return self._view.catch_up()

    def update(self, change: Change) -> State:
        """Apply *change* to the state under the lock; it is durable when this returns."""
        with self._hold_settled(patient=True):
            with self._journal.deferring():
                self._view.commit(change)
            state, mark = self._view.state, self._view.mark
        if self._journal.synced < mark.offset or not self._journal.holds(mark):
            self._finish(mark)
        return state

    def _finish(self, mark: JournalPosition) -> None:
        """Sync and show all that was written, unless another process does so while this one waits."""
        with (
            suppress(_DoneByAnother),
            self._hold_settled(patient=True, prepare=lambda: self._leave_if_done(mark)),
        ):
            self._check_is_kept(mark)

    def _leave_if_done(self, mark: JournalPosition) -> None:
        self._check_is_kept(mark)
        # Twice, because its holder may be writing it, and digits of two numbers are a third one.
        looks = self._lock.peek(), self._lock.peek()
        if all(lock_state and lock_state.synced >= mark.offset and lock_state.sum for lock_state in looks):
            raise _DoneByAnother

    def _check_is_kept(self, mark: JournalPosition) -> None:
        """Raise where the lines before *mark* were taken back, because their sync failed."""
        if not self._journal.holds(mark):
            raise DiskTrouble(f"write {self._journal.path}", OSError(errno.EIO, os.strerror(errno.EIO)))

    def absorb(self) -> State:
        """Apply a person's saved edit now; raise EditRejected where it breaks a rule.

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
            with self._hold_settled(patient=time.monotonic() < deadline) as is_settled:
                pass
            if is_settled or time.monotonic() > deadline:
                break
            time.sleep(POLL_BLIND / 5)

    def has_edit(self) -> bool:
        """Return, without a lock, whether another program than Liza may have written state.yaml."""
        return self._sync.has_edit(self._lock.peek())

    def _is_behind(self) -> bool:
        """Return whether state.yaml lacks the latest change, because its writer died or could not write."""
        with self._mutex:
            self._view.catch_up()
            lock_state = self._lock.peek()
            return lock_state is None or lock_state.sum != self._view.mark.sum

    def text(self) -> BoardText:
        """Return the latest text, as state.yaml shows it."""
        with self._mutex:
            self._view.catch_up()
            return self._view.shown()

    def lock_holder(self) -> str:
        """Return who last took the lock, for a message to those who wait for it."""
        lock_state = self._lock.peek()
        return f"process {lock_state.pid}, which holds {self._lock.path}" if lock_state else "nobody"

    def wait(self, since: int, timeout: float) -> State:
        """Return the state once its revision is past *since*, or after *timeout* seconds as it is then.

        Where a switch is thrown or taken back, it returns at once: whoever waits has to obey it.
        """
        deadline = time.monotonic() + timeout
        watch = self._open_watch()
        alarms = watch.alarms if watch else 0
        look_at = math.inf
        while True:
            heard = watch.wakeups if watch else 0
            state = self.read()
            if state.revision <= since and (self.has_edit() or self._is_behind()):
                look_at = min(look_at, time.monotonic() + SHOWING)
                if (left := min(look_at, deadline) - time.monotonic()) > 0:
                    watch.wait(heard, left) if watch else time.sleep(left)
                    continue
                state = self._look()
            look_at = math.inf
            left = deadline - time.monotonic()
            if state.revision > since or left <= 0 or (watch and watch.alarms > alarms):
                return state
            if watch:
                watch.wait(heard, min(left, POLL))
            else:
                time.sleep(min(left, POLL_BLIND))

    def _look(self) -> State:
        """Apply a person's saved edit, where the board can be written; else go on reading."""
        try:
            return self.update(Change("liza", "look", lambda same: same))
        except DiskTrouble as error:
            if error.errno not in READ_ONLY:
                raise
            return self.read()

    def entries(self, after: int = 0) -> Iterator[JournalEntry]:
        """Yield every change past revision *after*, oldest first."""
        revision, mark = self._read_to
        # Lines that were read before their sync may have been taken back since.
        is_there = revision <= after and self._journal.holds(mark)
        for line in self._journal.reread(mark if is_there else JournalPosition()):
            if line.entry.revision > after:
                self._read_to = (line.entry.revision, line.mark)  # whoever follows reads nothing twice
                yield line.entry

    def at(self, moment: int | datetime) -> tuple[State, str]:
        """Return the state as it was at a revision or time, and the stamp of its text."""
        return state_at(self._journal.reread(JournalPosition()), moment)

    def text_at(self, moment: int | datetime) -> bytes:
        """Return state.yaml as it was at a revision or time."""
        return render_state(*self.at(moment))

    def judge(self, data: bytes) -> None:
        """Raise the problems of *data* as an edit of state.yaml; nothing is written."""
        with self._mutex:
            self._view.catch_up()
            self._view.judge(data)

    def take(self, data: bytes) -> State:
        """Apply the edit *data* to the board, or raise its problems with nothing written."""
        with self._hold_settled(patient=True):
            self._view.take(data)
            return self._view.state

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
        self._view.forget()
        self._journal.close()
        self._lock.close()

    @contextmanager
    def _exclusive(self, prepare: Callable[[], object]) -> Iterator[LockState]:
        """Hold the lock of the board, against other processes and other threads of this one."""
        with self._mutex:
            if self._is_updating:
                raise RuntimeError(
                    "a change must not update the board: it is handed the state, and returns it"
                )
            with self._lock.held(prepare) as lock_state, self._journal.hold_lock():
                self._is_updating = True
                try:
                    yield lock_state
                finally:
                    self._is_updating = False

    @contextmanager
    def _hold_settled(self, *, patient: bool, prepare: Callable[[], object] | None = None) -> Iterator[bool]:
        """Hold the lock with people's edits applied, and write state.yaml afterwards.

        What is yielded is False while a save seems to be in progress.
        """
        with self._exclusive(prepare or self._prepare) as lock_state:
            self._view.catch_up()
            self._journal.mend(self._view.mark)
            self._journal.synced = lock_state.synced = min(lock_state.synced, self._view.mark.offset)
            is_settled = self._sync.absorb(lock_state, patient=patient)
            try:
                yield is_settled
            finally:  # also after a refused change: an edit may have been taken in before it
                # Who comes to finish does so for all; before that, it is left to those who wait. After a
                # sync that failed there is nothing to show: the lines that this process knows are gone.
                is_mine = prepare or self._is_on_disk() or not self._lock.has_next()
                if is_mine and self._journal.holds(self._view.mark):
                    self._close_turn(lock_state, is_settled=is_settled)

    def _is_on_disk(self) -> bool:
        return self._journal.synced == self._view.mark.offset

    def _close_turn(self, lock_state: LockState, *, is_settled: bool = True) -> None:
        """Sync the journal, and write state.yaml unless a person is saving it."""
        if not self._is_on_disk():
            self._journal.sync(self._view.mark)
        lock_state.synced = self._journal.synced
        if is_settled:
            self._publish(lock_state)

    def _prepare(self) -> None:
        """Do without the lock what can be done without it: read what others wrote, make the text of it."""
        self._view.catch_up()
        self._view.text()

    def _publish(self, lock_state: LockState) -> None:
        stamp = self._view.mark.sum
        self._sync.publish(lock_state, stamp, self._view.whole, self._view.patch_of)
        self._view.save_snapshot_if_due()

    def _reject(self, data: bytes, error: InvalidBoard) -> None:
        kept, change = quarantine_edit(self, data, error, self._clock())
        log.info("an edit of state.yaml was set aside: %s", kept)
        self._view.commit(change)
        self._rejections.append(EditRejected(kept, error.violations))

    def _open_watch(self) -> Watch | None:
        with self._mutex:
            if self._watch is None and not self._is_blind:
                from liza.board.watch import open_watch  # noqa: PLC0415 - only those who wait pay for its import

                build_validators()  # before the threads of the watch begin
                self._watch = open_watch(self.home, IGNORED_FILES)
                self._is_blind = self._watch is None
            return self._watch


class _DoneByAnother(Exception):
    """Raised while waiting for the lock, where another process has done the work meanwhile."""


_boards: Final[WeakSet[FileBoard]] = WeakSet()


def _forget_parent() -> None:
    for board in _boards:
        board.forget_parent()


os.register_at_fork(after_in_child=_forget_parent)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
