"""A board on a server as files of this machine: its text to read and edit, its switches, its alerts."""

from __future__ import annotations

import logging
from contextlib import closing
from typing import TYPE_CHECKING, Final

from liza.board.alerts import ALERTS
from liza.board.file import StateSync, quarantine_edit
from liza.board.journal import BoardLock, Disk
from liza.board.location import address_in, without_password
from liza.board.protocol import open_board
from liza.board.statefile import LOCK, FileSwitches
from liza.domain.config import SWITCH_FILES, Switch
from liza.errors import BoardUnreachable, DiskTrouble, Refused, UsageError
from liza.system.files import append_line, hold_for_life

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from liza.board.protocol import Board
    from liza.errors import InvalidBoard

LOCK_FILE: Final = "mirror.lock"  # held by the one mirror of a home
INTERVAL: Final = 0.2  # seconds between two looks at the files; a switch is to be seen within one


log = logging.getLogger(__name__)


class Mirror:
    """The files of a board's home and the board, which each step brings to the same."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._home = board.home
        self._lock = BoardLock(board.home / LOCK, Disk())
        self._files = FileSwitches(board.home)
        self._sync = StateSync(board.home, Disk(), take=board.take, reject=self._reject, clock=board.now)
        self._known: frozenset[str] = frozenset()  # the switches that were thrown here and there
        self._alerts = board.alerts.end()

    def step(self) -> None:
        """Take in what people did to the files, and show in them what others did to the board."""
        self._sync_switches()
        text = self._board.text()
        lock_state = self._lock.peek()
        if self._sync.has_edit(lock_state) or lock_state is None or lock_state.sum != text.stamp:
            with self._lock.held(lambda: None) as held:
                if self._sync.absorb(held, patient=True):
                    text = self._board.text()
                    self._sync.publish(held, text.stamp, lambda: text.data)
        self._append_alerts()

    def run(self, is_over: Callable[[], bool]) -> None:
        """Go on until *is_over*."""
        while not is_over():
            try:
                self.step()
                self._board.wait(self._board.text().revision, INTERVAL)
            except BoardUnreachable as error:  # it looked for long; the files stay, and so do edits of them
                log.warning("%s", error)

    def close(self) -> None:
        self._lock.close()

    def _sync_switches(self) -> None:
        here, there = self._files.thrown(), self._board.switches.thrown()
        for name in SWITCH_FILES:
            switch = Switch[name]
            if (name in here) == (name in there):
                continue
            if name in self._known and name in there:
                self._take_back(switch, there[name])
            elif name in self._known:
                self._files.clear(switch)
            elif name in there:
                self._files.throw(switch, there[name])
            elif self._files.thrown_at(switch):  # not where somebody is just writing it
                self._board.switches.throw(switch, here[name])
        self._known = frozenset(self._files.thrown().keys() & self._board.switches.thrown().keys())

    def _take_back(self, switch: Switch, said: str) -> None:
        """Take *switch* back on the board, as somebody did here; put the file back where that may not be."""
        try:
            self._board.switches.clear(switch)
        except Refused as error:
            log.warning("%s stays: %s", switch.name, error)
            self._files.throw(switch, said)

    def _append_alerts(self) -> None:
        if self._board.alerts.end() == self._alerts:
            return
        for alert in self._board.alerts.after(self._alerts):
            try:
                append_line(self._home / ALERTS, f"{alert.at} {alert.says}")
            except OSError as error:
                raise DiskTrouble(f"write {self._home / ALERTS}", error) from error
            self._alerts = alert.position

    def _reject(self, data: bytes, error: InvalidBoard) -> None:
        kept, change = quarantine_edit(self._board, data, error, self._board.now())
        log.warning("an edit of state.yaml was set aside: %s", kept)
        self._board.update(change)


def mirror_home(home: Path, is_over: Callable[[], bool], ready: Callable[[str], None]) -> None:
    """Keep the files of *home* and its board on a server in step until *is_over*; call *ready* first.

    Raise where another process does, and where the files are the board.
    """
    address = address_in(home)
    if address is None:
        raise UsageError(f"the board is in {home} already; a mirror is for one on a server (`board:`)")
    with closing(open_board(home)) as board, hold_for_life(home / LOCK_FILE, at=board.now()):
        ready(without_password(address))
        with closing(Mirror(board)) as mirror:
            mirror.run(is_over)
