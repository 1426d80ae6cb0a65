"""Many processes, threads and readers at once: no update is lost, no reader sees half of one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

import pytest
import yaml

from liza.board.file import FileBoard
from tests.support.boards import PROCESSES, ended_well, is_whole, new_board, noted
from tests.support.child_processes import (
    count_times,
    fork_and_count,
    make_board,
    raised,
    read_plainly,
    remove_for_ever,
)
from tests.support.sample_tasks import board as story
from tests.support.sample_tasks import new_task

if TYPE_CHECKING:
    from pathlib import Path

WRITERS: Final = 32
TASKS: Final = tuple(f"t{number}" for number in range(8))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / ".liza"
    FileBoard.create(home, story(*(new_task(name) for name in TASKS))).close()
    return home


def counted(home: Path, writers: int, updates: int) -> list[int]:
    """Let *writers* processes make so many *updates* together; return the revisions that they were told."""
    shares = [updates // writers + (number < updates % writers) for number in range(writers)]
    pipes = [PROCESSES.Pipe(duplex=False) for _ in shares]
    processes = [
        PROCESSES.Process(target=count_times, args=(home, TASKS[number % len(TASKS)], share, pipe))
        for number, (share, (_, pipe)) in enumerate(zip(shares, pipes, strict=True))
    ]
    for process in processes:
        process.start()
    revisions = [revision for ours, _ in pipes for revision in ours.recv()]
    ended_well(processes)
    return revisions


@pytest.mark.parametrize("updates", [400, pytest.param(2_000, marks=pytest.mark.torture)])
def test_32_processes_lose_no_update(home: Path, updates: int) -> None:
    """Every revision is made once, every count is whole, and the journal replays to the same bytes."""
    revisions = counted(home, WRITERS, updates)
    assert sorted(revisions) == list(range(2, updates + 2))
    state = is_whole(FileBoard(home))
    assert sum(task.priority for task in state.tasks.values()) == updates
    assert sum(task.event_count for task in state.tasks.values()) == updates + len(TASKS)


def test_removing_the_lock_file_again_and_again_loses_nothing(home: Path) -> None:
    stop = PROCESSES.Event()
    remover = PROCESSES.Process(target=remove_for_ever, args=(home / "state.yaml.lock", stop))
    remover.start()
    revisions = counted(home, 4, 240)
    stop.set()
    ended_well([remover])
    assert sorted(revisions) == list(range(2, 242))
    board = FileBoard(home)
    board.absorb()
    is_whole(board)


def test_threads_share_a_board(home: Path) -> None:
    board = FileBoard(home)
    with ThreadPoolExecutor(8) as pool:
        done = [pool.submit(board.update, raised(TASKS[number % 8])) for number in range(200)]
        seen = [pool.submit(board.read) for _ in range(200)]
    assert sorted(future.result().revision for future in done) == list(range(2, 202))
    assert all(1 <= future.result().revision <= 201 for future in seen)
    is_whole(board)


def test_a_forked_child_may_use_the_board_of_its_parent(home: Path) -> None:
    """It shares no lock, no half-done step and no watch with its parent, whose threads go on meanwhile."""
    process = PROCESSES.Process(target=fork_and_count, args=(home, "t0", 25))
    process.start()
    ended_well([process])
    assert is_whole(FileBoard(home)).task("t0").priority == 6 * 25 + 1


def test_plain_readers_see_whole_files_only(home: Path) -> None:
    """They take no lock and know nothing of Liza; whatever revision they see is that revision to the byte."""
    stop = PROCESSES.Event()
    pipes = [PROCESSES.Pipe(duplex=False) for _ in range(2)]
    readers = [
        PROCESSES.Process(target=read_plainly, args=(home / "state.yaml", stop, pipe)) for _, pipe in pipes
    ]
    for process in readers:
        process.start()
    counted(home, 4, 240)
    stop.set()
    seen = [ours.recv() for ours, _ in pipes]
    ended_well(readers)
    board = FileBoard(home)
    for texts in seen:
        assert len(texts) > 1
        for revision in list(texts)[:: max(1, len(texts) // 25)]:
            assert texts[revision] == {board.text_at(revision)}


def test_a_slow_reader_sees_one_revision(tmp_path: Path) -> None:
    """However many updates come while it reads, piece by piece, from a file that it opened once."""
    board = new_board(tmp_path / ".liza")
    for _ in range(3):
        pieces = []
        with (board.home / "state.yaml").open("rb", buffering=0) as file:
            while piece := file.read(100):
                pieces.append(piece)
                board.update(noted(f"{len(pieces)} " + "x" * 50))
        text = b"".join(pieces)
        assert text == board.text_at(yaml.safe_load(text)["revision"])
    is_whole(board)


def test_only_one_of_many_makes_the_board(tmp_path: Path) -> None:
    home = tmp_path / ".liza"
    pipes = [PROCESSES.Pipe(duplex=False) for _ in range(6)]
    makers = [
        PROCESSES.Process(target=make_board, args=(home, f"{n}", pipe)) for n, (_, pipe) in enumerate(pipes)
    ]
    for process in makers:
        process.start()
    said = [ours.recv() for ours, _ in pipes]
    ended_well(makers)
    made = [word for word in said if "there is a board in" not in word]
    assert made == [is_whole(FileBoard(home)).goal.description]
