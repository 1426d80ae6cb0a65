"""Editing the board like a password file: in a copy, checked before it counts."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from liza.domain.record import utc_now
from liza.errors import InvalidBoard, LizaError, NotThere, UsageError
from liza.repo.pool import Worktrees
from liza.repo.repository import Repository

if TYPE_CHECKING:
    from collections.abc import Callable

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


def editor_words() -> list[str]:
    """Return the command that starts the person's editor."""
    words = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "")
    if not words:
        raise UsageError("no editor is set; put one into VISUAL or EDITOR, or edit .liza/state.yaml itself")
    return words


def shell_words() -> list[str]:
    """Return the command that starts the person's shell."""
    return [os.environ.get("SHELL") or "/bin/sh"]


def open_worktree(board: Board, task: str, words: list[str], say: Callable[[str], None]) -> int:
    """Let a person work in the worktree of *task* by the program *words*; return how that ended."""
    state = board.absorb()
    if state.status_of(task) is None:
        raise NotThere("task", task, "`liza status` lists the tasks")
    found = Worktrees(Repository.around(board.home.parent)).of(task)
    if found is None:
        why = f"nobody works on it now; `liza diff {task}` shows what was committed for it"
        raise NotThere("worktree of", task, why)
    lease = state.tasks[task].lease if task in state.tasks else None
    if lease is not None:
        say(f"{lease.holder} works there now: look, and leave its files alone (`liza pause` stops it).")
    back = " Ctrl-D or `exit` comes back." if words == shell_words() else ""
    say(f"{found.path}; what you commit there on its branch is the task's.{back}")
    try:
        return subprocess.run(words, cwd=found.path, check=False).returncode
    except OSError as error:
        sentence = f"cannot run {words[0]!r}: {error.strerror}; set SHELL, or VISUAL and EDITOR"
        raise UsageError(sentence) from error


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
