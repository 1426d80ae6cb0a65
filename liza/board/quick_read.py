"""The board at a glance: read as it is, by whoever writes nothing and waits for nobody.

Most of what a board can do, and most of what that takes to load, is for those who change it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from liza.board import snapshot
from liza.board.disk import Disk
from liza.board.journal import NAME as JOURNAL
from liza.board.journal import Journal, JournalPosition
from liza.board.lock import BoardLock
from liza.board.replay import replay_entries, replay_journal
from liza.board.statefile import LOCK, StateFile
from liza.errors import LizaError

if TYPE_CHECKING:
    from pathlib import Path

    from liza.domain.model import State


def read_quickly(home: Path) -> State | None:
    """Return the board in *home* without locking; None where an edit, a crash or an error needs more."""
    disk = Disk()
    journal = Journal(home / JOURNAL, disk, os.O_RDONLY)
    try:
        baton = BoardLock(home / LOCK, disk).peek()
        file = StateFile(home, disk)
        if baton is None or file.path.is_symlink() or not file.path.is_file() or file.suspects(baton):
            return None
        state, mark = _read(journal, home)
    except LizaError:
        return None  # whoever looks closer says what is wrong
    finally:
        journal.close()
    # What the file does not show yet was written by somebody who died, or is at it.
    return state if baton.sum == mark.sum else None


def _read(journal: Journal, home: Path) -> tuple[State | None, JournalPosition]:
    kept = snapshot.load(home / snapshot.NAME)
    if kept is not None and not journal.holds(kept.mark):
        kept = None
    lines = list(journal.lines(kept.mark if kept else JournalPosition()))
    if not lines:
        return (kept.state, kept.mark) if kept else (None, JournalPosition())
    state = replay_entries(kept.state, (line.entry for line in lines)) if kept else replay_journal(lines)
    return state, lines[-1].mark
