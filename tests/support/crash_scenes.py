"""The scenes that `test_crash` kills at every step: what was there before, and what the process does."""

from __future__ import annotations

import os
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from liza.board.file import FileBoard
from liza.board.view import SLACK
from liza.domain import lifecycle as e
from liza.domain.changes import HUMAN
from liza.domain.config import Config, Limits
from liza.domain.model import State, Status
from liza.errors import EditRejected, JournalDamaged, Refused
from liza.workflow.transition import apply
from tests.support.boards import is_whole, messages, new_board, noted, was_not_disturbed
from tests.support.dying_disk import Calls, Death, Mortal
from tests.support.sample_tasks import NOW, new_task, task_in
from tests.support.sample_tasks import board as story

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from multiprocessing.connection import Connection
    from pathlib import Path

    from liza.board.journal import Disk

    Say = Callable[[str], None]

BY_HAND: Final = "human_notes:\n- message: by hand\n"
LONG_AGO: Final = 1_000_000_000.0  # a time at which no save can still be in progress


class Scene(NamedTuple):
    """*prepare* makes the board and holds it as it is while *act* runs in a process that is to die."""

    prepare: Callable[[Path], AbstractContextManager[None]]
    act: Callable[[Path, Disk, Say], None]
    notes: tuple[str, ...] = ("one", "two", "three")  # what *act* writes, in order
    by_hand: int = 0  # how many notes a person wrote meanwhile, each kept exactly once
    rejections: int = 0  # how many bad edits there were, each kept at least once


def edit(home: Path, before: str, after: str) -> None:
    """Save state.yaml as a person would, with *before* replaced."""
    path = home / "state.yaml"
    text = path.read_text()
    assert text.count(before) == 1
    fresh = home / "state.yaml~"
    fresh.write_text(text.replace(before, after))
    fresh.replace(path)


@contextmanager
def _nothing(home: Path) -> Iterator[None]:
    assert not home.exists()
    yield


@contextmanager
def _quiet(home: Path) -> Iterator[None]:
    new_board(home).close()
    yield


@contextmanager
def _edited(home: Path) -> Iterator[None]:
    new_board(home).close()
    edit(home, "human_notes: []\n", BY_HAND)
    yield


@contextmanager
def _edited_badly(home: Path) -> Iterator[None]:
    new_board(home).close()
    edit(home, "  status: IDLE\n  depends_on", "  status: NOT_A_STATUS\n  depends_on")
    os.utime(home / "state.yaml", (LONG_AGO, LONG_AGO))
    yield


@contextmanager
def _torn(home: Path) -> Iterator[None]:
    new_board(home).close()
    with (home / "journal.jsonl").open("ab") as journal:
        journal.write(b'{"revision":2,"at":"2026-01-01T12:')
    yield


@contextmanager
def _removed(home: Path) -> Iterator[None]:
    new_board(home).close()
    (home / "state.yaml").unlink()
    yield


@contextmanager
def _nearly_full_of_finished_ones(home: Path) -> Iterator[None]:
    gone = [task_in(Status.ABANDONED, name=f"gone-{number}") for number in range(SLACK)]
    config = Config(limits=Limits(finished_on_board=0))
    FileBoard.create(home, story(new_task("t1"), *gone, config=config)).close()
    yield


@contextmanager
def _open_in_a_pager(home: Path) -> Iterator[None]:
    """Somebody reads the file, and must not see it change."""
    new_board(home).close()
    with (home / "state.yaml").open() as file:
        before = file.read()
        yield
        file.seek(0)
        assert file.read() == before


@contextmanager
def _open_in_an_editor(home: Path) -> Iterator[None]:
    """An editor has the file open, and saves into it what it had read long ago."""
    new_board(home).close()
    with (home / "state.yaml").open("r+") as file:
        text = file.read().replace("human_notes: []\n", BY_HAND)
        yield
        file.seek(0)
        file.write(text)


def _write_notes(home: Path, disk: Disk, say: Say) -> None:
    with closing(FileBoard(home, disk=disk)) as board:
        for message in ("one", "two", "three"):
            board.update(noted(message))
            say(message)


def _be_refused_and_write(home: Path, disk: Disk, say: Say) -> None:
    with closing(FileBoard(home, disk=disk)) as board:
        with suppress(Refused):
            board.update(apply(e.Ready(), to="t1", by=HUMAN, at=NOW))
        board.update(noted("one"))
        say("one")


def _create(home: Path, disk: Disk, say: Say) -> None:
    with closing(FileBoard.create(home, first(), disk=disk)) as board:
        say("")
        board.update(noted("one"))
        say("one")


def first() -> State:
    return story(new_task("t1"))


def _finish_one(home: Path, disk: Disk, say: Say) -> None:
    with closing(FileBoard(home, disk=disk)) as board:
        board.update(apply(e.Abandon(reason="enough"), to="t1", by=HUMAN, at=NOW))
        say("")
        board.update(noted("one"))
        say("one")


SCENES: Final[dict[str, Scene]] = {
    "an update": Scene(_quiet, _write_notes),
    "an update that takes in an edit": Scene(_edited, _write_notes, by_hand=1),
    "a refused update that takes in an edit": Scene(_edited, _be_refused_and_write, ("one",), by_hand=1),
    "an update that sets a bad edit aside": Scene(_edited_badly, _write_notes, rejections=1),
    "an update behind a dead writer": Scene(_torn, _write_notes),
    "an update where state.yaml was removed": Scene(_removed, _write_notes),
    "an update that fills the archive": Scene(_nearly_full_of_finished_ones, _finish_one, ("one",)),
    "updates under an open pager": Scene(_open_in_a_pager, _write_notes),
    "updates under an open editor": Scene(_open_in_an_editor, _write_notes, by_hand=1),
    "the making of a board": Scene(_nothing, _create, ("one",)),
}


def play(scene: str, home: Path, death: Death | None, pipe: Connection) -> None:
    """Act *scene* in this process, and at the end say how many steps and how many calls that took."""
    disk, calls = Mortal(death), Calls(death)
    SCENES[scene].act(home, disk, pipe.send)
    pipe.send((len(disk.steps), calls.number))


def opened_after(home: Path) -> FileBoard:
    """Return the board that a dead process left; one whose making died before it was done is made again."""
    board = FileBoard(home)
    try:
        board.read()
    except JournalDamaged:
        return FileBoard.create(home, first())
    return board


def has_kept_everything(home: Path, scene: Scene, said: list[str], *, unheard: int = 1) -> None:
    """Assert that all that was *said* is there, at most so many *unheard* of, and every edit once."""
    board = opened_after(home)
    with suppress(EditRejected):
        board.absorb()
    found = messages(board.read())
    by_machine = [message for message in found if message != "by hand"]
    done = [message for message in said if message]
    assert by_machine in (done, list(scene.notes[: len(done) + unheard]))
    assert found.count("by hand") == scene.by_hand
    board.update(noted("afterwards"))
    assert messages(is_whole(board))[-1] == "afterwards"
    if not scene.rejections:
        was_not_disturbed(home)
    else:
        kept = {path.read_text() for path in (home / "rejected").iterdir()}
        assert len(kept) == scene.rejections
    assert list(home.glob("state.yaml.held*")) == []
    board.close()
