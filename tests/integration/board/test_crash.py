"""A process that dies at any step leaves a board that has all that it acknowledged, and nothing by halves."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from liza.board.file import FileBoard
from liza.board.journal import Disk
from tests.support.boards import PROCESSES, ended, ended_well, is_whole, new_board, noted, was_not_disturbed
from tests.support.child_processes import count_interrupted
from tests.support.crash_scenes import SCENES, has_kept_everything, play
from tests.support.dying_disk import BETWEEN, MOMENTS, Death

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Ending(NamedTuple):
    code: int
    said: list[str]  # what the process acknowledged
    steps: int  # how many steps and calls it took, if it came to its end
    calls: int


def lived(name: str, home: Path, death: Death | None) -> Ending:
    """Let a process act a scene until it dies, or to the end."""
    ours, theirs = PROCESSES.Pipe(duplex=False)
    process = PROCESSES.Process(target=play, args=(name, home, death, theirs))
    process.start()
    theirs.close()
    said: list[str] = []
    steps = calls = 0
    with contextlib.suppress(EOFError), ours:
        while True:
            match ours.recv():
                case str(message):
                    said.append(message)
                case (steps, calls):
                    pass
    return Ending(ended(process), said, steps, calls)


# Half of the steps are the last of some writer, at one of their moments, and every sixth call is; torture
# tries all.
STRIDES: Final = (2 * len(MOMENTS), pytest.param(1, marks=pytest.mark.torture))


@pytest.mark.parametrize("stride", STRIDES)
@pytest.mark.parametrize("moment", [*MOMENTS, BETWEEN])
@pytest.mark.parametrize("name", SCENES)
def test_nothing_is_lost_whichever_step_is_the_last(
    name: str, moment: str, stride: int, tmp_path: Path, count: Callable[[str, int], None]
) -> None:
    """A writer may die at each step by which it touches the disk, and before each call of the system."""
    scene = SCENES[name]
    with scene.prepare(tmp_path / "whole"):
        whole = lived(name, tmp_path / "whole", None)
    assert (whole.code, tuple(filter(None, whole.said))) == (0, scene.notes)
    has_kept_everything(tmp_path / "whole", scene, whole.said)
    start = (*MOMENTS, BETWEEN).index(moment) % stride
    points = range(start, whole.calls if moment == BETWEEN else whole.steps, stride)
    for number in points:
        home = tmp_path / f"{number}"
        with scene.prepare(home):
            ending = lived(name, home, Death(number, moment))
        assert ending.code == -signal.SIGKILL
        has_kept_everything(home, scene, ending.said)
    if stride == 1:
        count("points of the crash sweep", len(points))


def test_an_exception_at_any_instruction_leaves_a_board_that_can_be_used_on(tmp_path: Path) -> None:
    """A signal handler may raise in the middle of an update, and the process go on with the same board."""
    home = tmp_path / ".liza"
    new_board(home).close()
    ours, theirs = PROCESSES.Pipe(duplex=False)
    process = PROCESSES.Process(target=count_interrupted, args=(home, "t2", 800, theirs))
    process.start()
    ended_well([process])
    done, broken = ours.recv()
    board = FileBoard(home)
    board.update(noted("afterwards"))
    state = is_whole(board)
    assert broken > 50
    assert done <= state.task("t2").priority <= done + broken
    assert state.task("t2").event_count == state.task("t2").priority + 1
    was_not_disturbed(home)


class Forgetful(Disk):
    """A disk on which one write is cut short by an exception, and its descriptor stays open."""

    def __init__(self) -> None:
        self.kept: int | None = None

    def overwrite(self, descriptor: int, data: bytes) -> None:
        if self.kept is not None:
            super().overwrite(descriptor, data)
            return
        super().overwrite(descriptor, data[: len(data) // 2])
        self.kept = os.dup(descriptor)
        raise InterruptedError


def test_a_half_written_file_that_stayed_open_is_nobodys_edit(tmp_path: Path) -> None:
    home = tmp_path / ".liza"
    new_board(home).close()
    disk = Forgetful()
    board = FileBoard(home, disk=disk)
    for word in ("cut short", "and on"):
        board.update(noted(word))
    assert disk.kept is not None
    os.close(disk.kept)
    board.close()
    other = FileBoard(home)
    other.update(noted("afterwards"))
    is_whole(other)
    was_not_disturbed(home)
