"""`state.yaml` and a board in step: what people saved is taken in, and what the board became is shown."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

from liza.board.quarantine import quarantine_wreck
from liza.board.statefile import StateFile, not_a_file_error, read_saved
from liza.errors import InvalidBoard

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from pathlib import Path

    from liza.board.disk import Disk
    from liza.board.lock_state import LockState
    from liza.board.statefile import SavedText

SETTLE: Final = 0.5  # seconds an unreadable file may be somebody's save in progress

log = logging.getLogger(__name__)


class StateSync:
    """The file in *home*; *take* does to the board what a text says, *reject* gets what was refused."""

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

    def has_edit(self, baton: LockState | None) -> bool:
        """Tell, without a lock, whether somebody else than Liza may have written state.yaml."""
        if (path := self._file.path).is_symlink() or (path.exists() and not path.is_file()):
            raise not_a_file_error(path)
        return baton is None or not path.exists() or bool(self._file.suspects(baton))

    def publish(self, baton: LockState, stamp: str, text: Callable[[], bytes]) -> None:
        """Show the state in state.yaml; the journal has it already, so trouble here only delays it."""
        if baton.sum == stamp and self._file.is_as_left(baton):
            return
        baton.sum = ""
        try:
            self._file.put(text(), baton)
            baton.sum = stamp
        except OSError as error:
            log.warning("state.yaml is behind the journal: %s", error)

    def absorb(self, baton: LockState, *, patient: bool) -> bool:
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
                    quarantine_wreck(self._home, found.data, self._clock())
                else:
                    self._reject(found.data, error)
            self._file.settled(path, found.there, baton)
        self._file.forget_closed(baton)
        return True


def _is_recent(text: SavedText) -> bool:
    """Return whether *text* was saved so recently that more may follow; a time to come tells nothing."""
    return 0 <= time.time() - text.there.mtime_ns / 1e9 < SETTLE
