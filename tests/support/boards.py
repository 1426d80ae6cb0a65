"""Real boards in real directories, the processes that write them, and what must be true afterwards."""

from __future__ import annotations

import multiprocessing
import time
from typing import TYPE_CHECKING, Final

from liza.board.file import FileBoard
from liza.domain.changes import HUMAN, Change, add_note, violations
from liza.domain.record import utc_now
from tests.support.sample_tasks import board as story
from tests.support.sample_tasks import new_task

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.context import ForkServerProcess
    from pathlib import Path

    from liza.domain.model import State

# Forked from a server that has everything imported: a child costs milliseconds, and no thread of the test
# process is half copied into it.
PROCESSES: Final = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(
    [
        "tests.support.crash_scenes",
        "tests.support.child_processes",
        "tests.support.editors",
        "tests.support.board_engines",
        "tests.support.prebuilt_models",
        "liza.board.watch",
        "tests.support.liza_process",
        "tests.support.supervisor_process",
    ]
)
PATIENCE: Final = 60.0  # seconds any single thing may take on a busy machine


def new_board(home: Path) -> FileBoard:
    """Return a fresh board with three tasks."""
    return FileBoard.create(home, story(new_task("t1"), new_task("t2"), new_task("t3", depends_on=("t1",))))


def noted(message: str) -> Change:
    """Return the change that adds a note, which is how these tests tell one update from another."""
    return add_note(message, about=None, by=HUMAN, at=utc_now())


def messages(state: State) -> list[str]:
    return [note.message for note in state.human_notes.values()]


def ended(process: ForkServerProcess) -> int:
    """Wait for *process* and return how it ended."""
    process.join(PATIENCE)
    if process.exitcode is None:
        process.kill()
        process.join()
        raise TimeoutError(f"{process.name} did not end by itself")
    return process.exitcode


def ended_well(processes: Sequence[ForkServerProcess]) -> None:
    codes = [ended(process) for process in processes]
    assert codes == [0] * len(codes)


def is_whole(board: FileBoard) -> State:
    """Assert that the board is valid and that its file is what its journal replays to; return the state."""
    state = board.read()
    assert violations(state) == []
    assert (board.home / "state.yaml").read_bytes() == board.text_at(state.revision)
    assert [entry.revision for entry in board.entries()] == list(range(1, state.revision + 1))
    assert not board.has_edit()
    return state


def absorbed(board: FileBoard) -> None:
    """Take in what was saved last; an edit may be looked at late."""
    deadline = time.monotonic() + PATIENCE
    board.absorb()
    while board.has_edit():
        board.absorb()
        assert time.monotonic() < deadline


def was_not_disturbed(home: Path) -> None:
    """Assert that nothing of Liza's own was ever taken for somebody's bad edit."""
    assert not (home / "PAUSE").exists()
    assert not (home / "rejected").exists()
