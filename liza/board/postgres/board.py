"""The board on a server: the journal is there, and each process follows it."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

from liza.board.file import write_to_quarantine
from liza.board.journal import JournalPosition
from liza.board.postgres.alerts import PostgresAlerts
from liza.board.postgres.journal import PostgresJournal
from liza.board.postgres.listener import Listener
from liza.board.postgres.presence import PostgresPresence
from liza.board.postgres.server import PASSING, Server, SharedConnection
from liza.board.postgres.switches import PostgresSwitches
from liza.board.statefile import render_state
from liza.board.view import JournalView, state_at
from liza.domain.config import Switch
from liza.domain.record import build_validators
from liza.errors import BoardRewound, ConcurrentChange, DiskTrouble, LizaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime
    from pathlib import Path

    from liza.board.postgres.address import Address
    from liza.board.protocol import BoardText, JournalEntry
    from liza.domain.changes import Change
    from liza.domain.model import State

TRIES: Final = 5  # of a change that met another one; nobody else writes while this process has the lock


class PostgresBoard:
    """One process's view of a board at *address*; threads of the process may share it."""

    def __init__(self, address: Address, home: Path) -> None:
        self.home = home
        self._server = Server(address)
        self._shared = SharedConnection(self._server)
        self._journal = PostgresJournal(self._server, home)
        self._view = JournalView(home, self._journal, self._journal.now)
        self._mutex = threading.RLock()
        self._is_updating = False
        self.switches = PostgresSwitches(self._shared)
        self.alerts = PostgresAlerts(self._shared)
        self.presence = PostgresPresence(self._shared, home)
        _boards.add(self)

    def now(self) -> datetime:
        """Return the time by the server's clock."""
        if self._journal.clock:  # without the mutex: who renews a lease need not wait for an update
            return self._journal.clock.now()
        with self._mutex:
            return self._journal.now()

    def read(self) -> State:
        """Return the latest state; takes no lock of the server."""
        with self._mutex:
            return self._retry(self._view.catch_up)

    def update(self, change: Change) -> State:
        """Apply *change* to the state under the lock; it is durable when this returns.

        Where the connection broke before it was written, *change* is called again on what is there then.
        """
        return self._write(lambda: self._view.commit(change))

    def take(self, data: bytes) -> State:
        """Apply the edit *data* to the board, or raise its problems with nothing written."""
        return self._write(lambda: self._view.take(data))

    def _write(self, act: Callable[[], None]) -> State:
        with self._mutex:
            if self._is_updating:
                raise RuntimeError(
                    "a change must not update the board: it is handed the state, and returns it"
                )
            self._is_updating = True
            try:
                state = self._retry(lambda: self._try_write(act))
            finally:
                self._is_updating = False
            with suppress(OSError):  # then no snapshot is written, and that is told
                self.home.mkdir(parents=True, exist_ok=True)  # of who works on a board without a checkout
            self._view.save_snapshot_if_due(f"snapshot-{os.getpid()}.new")
        if self.switches.listener:
            self.switches.listener.note(state.revision)
        return state

    def _try_write(self, act: Callable[[], None]) -> State:
        for left in reversed(range(TRIES)):
            try:
                with self._journal.locked(self._view.catch_up):
                    act()
            except ConcurrentChange:
                if not left:
                    raise
            else:
                break
        return self._view.state

    def _retry(self, work: Callable[[], State]) -> State:
        try:
            return self._server.retry(lambda: self._on_fresh_connection(work))
        except BoardRewound as error:
            self._stop_everybody(str(error))
            raise

    def _on_fresh_connection(self, work: Callable[[], State]) -> State:
        try:
            return work()
        except PASSING:
            self._journal.close()
            raise

    def _stop_everybody(self, sentence: str) -> None:
        """Throw ABORT on what is left of the board: others may not know yet what was lost."""
        with suppress(LizaError):
            if self.switches.throw(Switch.ABORT, sentence):
                self.alerts.append(sentence, at=self._journal.now())

    def absorb(self) -> State:
        """Return the state; what people save is taken in by `liza mirror`, where they do."""
        return self.read()

    def lock_holder(self) -> str:
        """Return who last wrote, or has the lock now, for somebody who waits for it."""
        query = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1 \
            AND (classid::bigint << 32 | objid::bigint) = liza.key(%s, '')"
        rows = self._shared.call(query, (self._shared.board,))
        held = f"server process {rows[0][0]}" if rows else "nobody"
        return f"{held}, on {self._server.address} (this is process {os.getpid()})"

    def wait(self, since: int, timeout: float) -> State:
        """Return the state once its revision is past *since*, or after *timeout* seconds as it is then."""
        deadline = time.monotonic() + timeout
        listener = self._listen()
        alarms = listener.alarms
        state = self._latest(listener)
        while state.revision <= since and listener.alarms == alarms:
            if (left := deadline - time.monotonic()) <= 0:
                break
            listener.wait(since, alarms, left)
            state = self._latest(listener)
        return state

    def _latest(self, listener: Listener) -> State:
        """Return what this process knows, where the listener heard of nothing later."""
        with self._mutex:
            is_known = self._view.mark.offset and listener.switches is not None
            if is_known and listener.revision == self._view.state.revision:
                return self._view.state
        return self.read()

    def _listen(self) -> Listener:
        with self._mutex:
            if self.switches.listener is None:
                self._retry(self._view.catch_up)  # what is wrong with the board is said here, not by a thread
                build_validators()
                self.switches.listener = Listener(self._server)
            listener = self.switches.listener
        listener.wait_until_ready(self._server.patience)
        return listener

    def judge(self, data: bytes) -> None:
        """Raise the problems of *data* as an edit of the board's text; nothing is written."""
        with self._mutex:
            self.read()
            self._view.judge(data)

    def quarantine(self, data: bytes, *, at: datetime) -> Path:
        """Keep a text that was refused on this machine, and return where."""
        try:
            self.home.mkdir(parents=True, exist_ok=True)
            return write_to_quarantine(self.home, data, at)
        except OSError as error:
            raise DiskTrouble("keep an edit of the board that was not taken", error) from error

    def entries(self, after: int = 0) -> Iterator[JournalEntry]:
        """Yield every change past revision *after*, oldest first."""
        with self._mutex:
            start = self._server.retry(lambda: self._journal.position_of(after))
        for line in self._journal.reread(start):
            if line.entry.revision > after:
                yield line.entry

    def at(self, moment: int | datetime) -> tuple[State, str]:
        """Return the state as it was at a revision or time, and the stamp of its text."""
        return state_at(self._journal.reread(JournalPosition()), moment)

    def text_at(self, moment: int | datetime) -> bytes:
        """Return the board's text, as people edit it, at a revision or time."""
        return render_state(*self.at(moment))

    def text(self) -> BoardText:
        """Return the latest text."""
        with self._mutex:
            listener = self.switches.listener
            self._latest(listener) if listener else self.read()
            return self._view.shown()

    def lines(self) -> list[bytes]:
        """Return the journal as a file would hold it."""
        with self._mutex:
            return self._server.retry(self._journal.texts)

    def close(self) -> None:
        """Let go of connections and threads."""
        listener, self.switches.listener = self.switches.listener, None
        if listener:
            listener.close()
        with self._mutex:
            self._journal.close()
        self._shared.close()

    def forget_parent(self) -> None:
        """Share nothing with the process that this one was forked from: its connections are its own."""
        self._mutex, self._is_updating, self.switches.listener = threading.RLock(), False, None
        self._journal.abandon()
        self._shared.abandon()


_boards: Final[WeakSet[PostgresBoard]] = WeakSet()


def _forget_parent() -> None:
    for board in _boards:
        board.forget_parent()


os.register_at_fork(after_in_child=_forget_parent)
