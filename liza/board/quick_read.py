"""The board at a glance: read without a lock, for commands that write nothing.

Most of what a board can do, and most of what that takes to load, is for those who change it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from liza.board.journal import NAME as JOURNAL
from liza.board.journal import (
    SNAPSHOT,
    BoardLock,
    Disk,
    Journal,
    JournalPosition,
    load_snapshot_parts,
    replay_entries,
    replay_journal,
)
from liza.board.statefile import LOCK, StateFile
from liza.errors import LizaError

if TYPE_CHECKING:
    from pathlib import Path

    from liza.domain.model import State


def read_quickly(home: Path) -> State | None:
    """Return the board in *home* without locking; None where an edit, a crash or an error needs more.

    Its tasks are for views: of a large board most are read only when somebody asks for more of them than a
    line of `liza status` says.
    """
    disk = Disk()
    journal = Journal(home / JOURNAL, disk, os.O_RDONLY)
    try:
        lock_state = BoardLock(home / LOCK, disk).peek()
        file = StateFile(home, disk)
        if (
            lock_state is None
            or file.path.is_symlink()
            or not file.path.is_file()
            or file.suspects(lock_state)
        ):
            return None
        state, mark = _read(journal, home)
    except LizaError:
        return None  # whoever looks closer says what is wrong
    finally:
        journal.close()
    # What the file does not show yet was written by somebody who died, or is at it.
    return state if lock_state.sum == mark.sum else None


def _read(journal: Journal, home: Path) -> tuple[State | None, JournalPosition]:
    parts = load_snapshot_parts(home / SNAPSHOT)
    if parts is None or not journal.holds(parts.mark):
        lines = list(journal.lines(JournalPosition()))
        return (replay_journal(lines), lines[-1].mark) if lines else (None, JournalPosition())
    from liza.board.glanced import glanced_state, with_whole  # noqa: PLC0415 - small boards have no snapshot

    state, lines = glanced_state(parts), list(journal.lines(parts.mark))
    if not lines:
        return state, parts.mark
    changed = {name for line in lines for name in line.entry.put.get("tasks", ())}
    state = state.replace(tasks=with_whole(state.tasks, changed))
    return replay_entries(state, (line.entry for line in lines)), lines[-1].mark
