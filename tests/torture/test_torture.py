"""Eight writers, one of them killed every few tens of milliseconds, and an editor who saves meanwhile."""

from __future__ import annotations

import random
import time
from collections import Counter
from typing import TYPE_CHECKING, Final

import pytest

from liza.board.file import FileBoard
from tests.support.boards import PROCESSES, absorbed, ended, ended_well, is_whole, messages, was_not_disturbed
from tests.support.child_processes import count_and_tell
from tests.support.editors import SAVES, save_until_told
from tests.support.sample_tasks import board as story
from tests.support.sample_tasks import new_task

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection
    from multiprocessing.context import ForkServerProcess
    from pathlib import Path

pytestmark = [pytest.mark.torture, pytest.mark.timeout(300)]

SECONDS: Final = 20.0  # how long it goes on
PAUSE: Final = 0.035  # seconds between two kills
TASKS: Final = tuple(f"t{number}" for number in range(8))


class Writer:
    """A process that counts a task up, and all that it was told is done."""

    def __init__(self, home: Path, task: str) -> None:
        self._home = home
        self._task = task
        self.told: list[int] = []  # the counts that were acknowledged
        self._pipe: Connection
        self._process: ForkServerProcess
        self.start()

    def start(self) -> None:
        self._pipe, theirs = PROCESSES.Pipe(duplex=False)
        self._process = PROCESSES.Process(target=count_and_tell, args=(self._home, self._task, theirs))
        self._process.start()
        theirs.close()

    def kill(self) -> None:
        self._process.kill()
        ended(self._process)
        self.listen()
        self._pipe.close()

    def listen(self) -> None:
        """Hear what was acknowledged; a word cut short by death was not said."""
        try:
            while self._pipe.poll():
                self.told.append(int.from_bytes(self._pipe.recv_bytes(), "big"))
        except EOFError:
            pass


@pytest.mark.parametrize("editor", [None, *SAVES])
def test_nothing_acknowledged_is_ever_lost(
    editor: str | None, tmp_path: Path, count: Callable[[str, int], None]
) -> None:
    home = tmp_path / ".liza"
    FileBoard.create(home, story(*(new_task(name) for name in TASKS))).close()
    stop = PROCESSES.Event()
    ours, theirs = PROCESSES.Pipe(duplex=False)
    saving = PROCESSES.Process(target=save_until_told, args=(home, editor or "by rename", stop, theirs))
    if editor:
        saving.start()
    writers = [Writer(home, name) for name in TASKS]
    kills = killed_at_random(writers)
    stop.set()
    saved = ours.recv() if editor else 0
    if editor:
        ended_well([saving])
    for writer in writers:
        writer.kill()
    board = FileBoard(home)
    absorbed(board)
    state = is_whole(board)
    was_not_disturbed(home)
    lost = sum(
        len(set(writer.told) - done_in(board, name)) for name, writer in zip(TASKS, writers, strict=True)
    )
    acknowledged = sum(len(writer.told) for writer in writers)
    counted = sum(state.task(name).priority for name in TASKS)
    count("kills of a writer of the board", kills)
    count("updates that were acknowledged while writers were killed", acknowledged)
    count("acknowledged updates that were lost", lost)
    count("saves by an editor meanwhile", saved)
    assert acknowledged > kills
    assert lost == 0
    assert 0 <= counted - acknowledged <= kills + len(writers)
    assert Counter(messages(state)) == Counter(f"{editor} {number}" for number in range(saved))
    assert list(home.glob("state.yaml.held*")) == []


def killed_at_random(writers: list[Writer]) -> int:
    """Kill and replace a writer every now and then, for a while; return how many died."""
    kills, end = 0, time.monotonic() + SECONDS
    while time.monotonic() < end:
        time.sleep(random.uniform(0, 2 * PAUSE))
        for writer in writers:
            writer.listen()
        victim = random.choice(writers)
        victim.kill()
        victim.start()
        kills += 1
    return kills


def done_in(board: FileBoard, task: str) -> set[int]:
    """Return every count of *task* that the journal has."""
    puts = (entry.put.get("tasks", {}).get(task, {}) for entry in board.entries(after=1))
    return {put["priority"] for put in puts if "priority" in put}
