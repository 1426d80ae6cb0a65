"""Is this board, or this file, valid? Every reason at once, and nothing is changed by asking."""

from __future__ import annotations

from typing import TYPE_CHECKING

from liza.board import edits
from liza.board.file import FileBoard
from liza.board.journal import NAME as JOURNAL
from liza.board.journal import SNAPSHOT
from liza.board.statefile import NAME as STATE
from liza.board.statefile import not_a_file_error
from liza.domain.changes import violations
from liza.domain.problems import line_of
from liza.domain.record import utc_now
from liza.errors import DiskTrouble, InvalidBoard, JournalDamaged, Violation

if TYPE_CHECKING:
    from pathlib import Path

    from liza.domain.model import State


def validate_path(path: Path) -> State:
    """Return the board in *path*, a `.liza` directory or a state.yaml, or raise its problems."""
    home = path if path.is_dir() else path.parent
    if (home / JOURNAL).exists() and (path.is_dir() or path.name == STATE):
        return _validate_board(home)
    return _validate_file(path / STATE if path.is_dir() else path)


def _validate_board(home: Path) -> State:
    board = FileBoard(home)
    try:
        latest = max(entry.revision for entry in board.entries())
        state, _ = board.at(latest)
        if wrong := violations(state):
            raise InvalidBoard("the board is not valid", wrong)
        if state != board.read():
            raise JournalDamaged(f"{home / SNAPSHOT} does not fit the journal; remove it")
        if (file := home / STATE).exists() or file.is_symlink():
            board.judge(_read_bytes(file))
        return state
    finally:
        board.close()


def _validate_file(path: Path) -> State:
    text = edits.normalize_saved(_read_bytes(path)).decode(errors="replace")
    try:
        draft = edits.read_draft(text, {})
        state = edits.parse_state(draft, utc_now())
    except InvalidBoard as error:
        named = [one._replace(path=path.name) if one.path == STATE else one for one in error.violations]
        raise InvalidBoard(f"{path} is not valid", named) from error
    wrong = [_with_line(violation, draft) for violation in violations(state)]
    if wrong:
        raise InvalidBoard(f"{path} is not valid", wrong)
    return state


def _with_line(violation: Violation, draft: edits.Draft) -> Violation:
    return violation._replace(line=line_of(violation.path, draft.lines))


def _read_bytes(path: Path) -> bytes:
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise not_a_file_error(path)
    try:
        return path.read_bytes()
    except OSError as error:
        raise DiskTrouble(f"read {path}", error) from error
