"""Editing the board like a password file: in a copy, checked before it counts."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from liza.domain.record import utc_now
from liza.errors import InvalidBoard, LizaError, UsageError

if TYPE_CHECKING:
    from liza.board.protocol import Board
    from liza.domain.model import State


def edit_board(board: Board, editor: list[str]) -> State:
    """Let a person edit a copy until it can be taken or they give up; return the board after that."""
    with tempfile.TemporaryDirectory(prefix="liza-edit-") as directory:
        copy = Path(directory) / "state.yaml"
        copy.write_bytes(board.text().data)
        while True:
            _run_editor(editor, copy)
            data = copy.read_bytes()
            try:
                return board.take(data)
            except InvalidBoard as error:
                if not _ask_again(error):
                    where = board.quarantine(data, at=utc_now())
                    sentence = f"the edit was not taken: it is kept in {where}, and the board is as it was"
                    raise InvalidBoard(sentence, error.violations) from error


def _run_editor(editor: list[str], copy: Path) -> None:
    try:
        done = subprocess.run([*editor, str(copy)], check=False)
    except OSError as error:
        sentence = f"cannot run the editor {editor[0]!r}: {error.strerror}; set VISUAL or EDITOR"
        raise UsageError(sentence) from error
    if done.returncode != 0:
        raise LizaError(f"the editor ended with exit code {done.returncode}; nothing was changed")


def _ask_again(error: InvalidBoard) -> bool:
    if not sys.stdin.isatty():
        return False
    sys.stderr.write(f"liza: {error}\nEdit again? [Y/n] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in {"", "y", "yes"}
