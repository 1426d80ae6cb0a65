"""People save `state.yaml` whenever they like, from old copies, without a lock: nothing of theirs is lost."""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from liza.board.file import FileBoard
from liza.board.journal import Disk
from liza.domain.changes import Change
from liza.errors import InvalidBoard
from tests.support.boards import (
    PROCESSES,
    absorbed,
    ended_well,
    is_whole,
    messages,
    new_board,
    noted,
    was_not_disturbed,
)
from tests.support.child_processes import (
    NOBODY,
    ask_for_writers,
    open_for_ever,
    read_as_nobody,
    update_as_nobody,
)
from tests.support.editors import SAVES, add_notes, by_rename, count_up, with_note
from tests.support.sample_tasks import board as story
from tests.support.sample_tasks import new_task

if TYPE_CHECKING:
    from collections.abc import Iterator

    from liza.domain.model import State

WORKERS: Final = 4
EDITS: Final = 30


@pytest.fixture
def board(tmp_path: Path) -> FileBoard:
    return new_board(tmp_path / ".liza")


@pytest.mark.parametrize("kind", SAVES)
def test_stale_saves_and_updates_are_both_kept(kind: str, tmp_path: Path) -> None:
    """Each note is there once, and each worker's count is what it was told."""
    home = tmp_path / ".liza"
    tasks = [f"t{number}" for number in range(WORKERS)]
    FileBoard.create(home, story(*(new_task(name) for name in tasks))).close()
    stop = PROCESSES.Event()
    pipes = {name: PROCESSES.Pipe(duplex=False) for name in tasks}
    workers = [PROCESSES.Process(target=count_up, args=(home, name, stop, pipes[name][1])) for name in tasks]
    editor = PROCESSES.Process(target=add_notes, args=(home, kind, EDITS))
    for process in (*workers, editor):
        process.start()
    ended_well([editor])
    stop.set()
    counts = {name: pipes[name][0].recv() for name in tasks}
    ended_well(workers)
    board = FileBoard(home)
    absorbed(board)
    state = is_whole(board)
    assert sorted(messages(state)) == sorted(f"{kind} {number}" for number in range(EDITS))
    assert {name: state.task(name).priority for name in tasks} == counts
    was_not_disturbed(home)


@pytest.mark.linux("the kernel knows who else has a file open")
class TestOpenFiles:
    def test_an_editor_that_keeps_the_file_open_saves_into_an_old_one(self, board: FileBoard) -> None:
        """Its text is taken in once it is done, however many updates came between."""
        with (board.home / "state.yaml").open("r+") as file:
            text = with_note(file.read(), "by hand")
            for number in range(5):
                board.update(noted(f"{number}"))
            file.seek(0)
            file.write(text[:100])
            file.flush()
            board.update(noted("while it writes"))
            file.write(text[100:])
        board.update(noted("after it"))
        assert messages(is_whole(board)) == [*"01234", "while it writes", "by hand", "after it"]
        was_not_disturbed(board.home)
        assert list(board.home.glob("*held*")) == []

    def test_an_editor_that_closes_without_writing_leaves_nothing_behind(self, board: FileBoard) -> None:
        with (board.home / "state.yaml").open("r+"):
            for number in range(5):
                board.update(noted(f"{number}"))
            assert len(list(board.home.glob("*held*"))) == 1
        board.update(noted("after it"))
        is_whole(board)
        assert list(board.home.glob("*held*")) == []

    def test_many_editors_may_have_many_versions_open(self, board: FileBoard) -> None:
        """More than a usual lock state has room for."""
        with ExitStack() as stack:
            files = []
            for number in range(30):
                file = stack.enter_context((board.home / "state.yaml").open("r+"))
                files.append((file, with_note(file.read(), f"by hand {number}")))
                board.update(noted(f"{number}"))
            for file, text in files:
                file.seek(0)
                file.write(text)
        board.absorb()
        expected = [*(f"{number}" for number in range(30)), *(f"by hand {number}" for number in range(30))]
        assert sorted(messages(is_whole(board))) == sorted(expected)
        was_not_disturbed(board.home)

    def test_a_save_that_ends_during_an_update_is_not_written_over(self, board: FileBoard) -> None:
        """The file that is not in use may still be somebody's, until the moment it is reused."""
        with (board.home / "state.yaml").open("r+") as file:
            text = with_note(file.read(), "by hand")
            board.update(noted("it is the spare now"))

            def make(state: State) -> State:
                file.seek(0)
                file.write(text)
                file.close()
                return noted("at the same time")(state)

            board.update(Change("human", "note", make))
        board.absorb()
        assert sorted(messages(is_whole(board))) == ["at the same time", "by hand", "it is the spare now"]
        was_not_disturbed(board.home)

    def test_a_second_save_while_the_first_is_taken_in_is_not_lost(self, tmp_path: Path) -> None:
        """What was read is settled, not what stands there by then."""

        class Meanwhile(Disk):
            def sync(self, descriptor: int) -> None:
                super().sync(descriptor)
                if saves:
                    by_rename(home / "state.yaml", saves.pop())

        home = tmp_path / ".liza"
        new_board(home).close()
        text = (home / "state.yaml").read_text()
        by_rename(home / "state.yaml", with_note(text, "first").encode())
        saves = [with_note(text, "second").encode()]
        board = FileBoard(home, disk=Meanwhile())
        board.absorb()
        board.absorb()
        assert messages(is_whole(board)) == ["first", "second"]
        was_not_disturbed(home)

    def test_opening_the_file_kills_nobody(self, board: FileBoard) -> None:
        """The kernel tells who asks about open files by a signal that by default ends the process."""
        path = board.home / "state.yaml"
        ours, theirs = PROCESSES.Pipe()
        opener = PROCESSES.Process(target=open_for_ever, args=(path, theirs))
        asker = PROCESSES.Process(target=ask_for_writers, args=(path, 20_000))
        opener.start()
        ours.recv()
        asker.start()
        ended_well([asker])
        ours.send("stop")
        ended_well([opener])


@pytest.mark.linux("whether a save is over is known at once")
def test_files_that_cannot_trade_places_are_replaced(
    board: FileBoard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not every file system can exchange two names in one step; what was there is kept all the same."""
    monkeypatch.setattr("liza.system.linux._renameat2", lambda: None)
    path = board.home / "state.yaml"
    for number in range(3):
        board.update(noted(f"{number}"))
        is_whole(board)
    by_rename(path, with_note(path.read_text(), "by hand").encode())
    board.update(noted("3"))
    with path.open("r+") as file:
        text = with_note(file.read(), "by an open editor")
        board.update(noted("4"))
        file.seek(0)
        file.write(text)
    path.unlink()
    board.update(noted("5"))
    board.absorb()
    expected = ["0", "1", "2", "by hand", "3", "4", "by an open editor", "5"]
    assert messages(is_whole(board)) == expected
    was_not_disturbed(board.home)


class TestNoPlainFile:
    def test_a_link_is_refused_and_what_it_points_to_stays(self, board: FileBoard) -> None:
        path, elsewhere = board.home / "state.yaml", board.home.parent / "elsewhere"
        path.rename(elsewhere)
        path.symlink_to(elsewhere)
        before = elsewhere.read_bytes()
        for attempt in (board.absorb, lambda: board.update(noted("x")), lambda: board.wait(99, 0)):
            with pytest.raises(
                InvalidBoard, match=r"is a link to .*elsewhere; put the plain file back"
            ) as caught:
                attempt()
            assert caught.value.exit_code == 5
        assert elsewhere.read_bytes() == before
        assert messages(FileBoard(board.home).read()) == []
        path.unlink()
        board.update(noted("x"))
        is_whole(board)
        was_not_disturbed(board.home)

    def test_a_directory_is_refused(self, board: FileBoard) -> None:
        path = board.home / "state.yaml"
        path.unlink()
        path.mkdir()
        with pytest.raises(InvalidBoard, match=r"state.yaml is not a plain file") as caught:
            board.update(noted("x"))
        assert caught.value.exit_code == 5
        path.rmdir()
        board.update(noted("x"))
        is_whole(board)

    def test_one_that_was_deleted_is_written_anew(self, board: FileBoard) -> None:
        (board.home / "state.yaml").unlink()
        board.absorb()
        is_whole(board)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become nobody")
class TestRights:
    @pytest.fixture
    def home(self) -> Iterator[Path]:
        """Return a board that belongs to nobody, in a place where nobody may go."""
        with tempfile.TemporaryDirectory() as directory:
            home = Path(directory) / ".liza"
            new_board(home).close()
            for path in (Path(directory), home, *home.iterdir()):
                os.chown(path, NOBODY, NOBODY)
            yield home

    def as_nobody(self, home: Path, message: str) -> str:
        ours, theirs = PROCESSES.Pipe(duplex=False)
        process = PROCESSES.Process(target=update_as_nobody, args=(home, message, theirs))
        process.start()
        ended_well([process])
        said: str = ours.recv()
        return said

    def test_a_file_whose_mode_was_taken_away_is_written_anew(self, home: Path) -> None:
        for number in range(4):
            (home / "state.yaml").chmod(0)
            assert self.as_nobody(home, f"{number}") == f"{number + 2}"
            assert (home / "state.yaml").stat().st_mode & 0o400
            is_whole(FileBoard(home))

    @pytest.mark.linux("names are exchanged without a link, which the system may refuse to others")
    def test_an_edit_that_may_not_be_read_is_said_and_waited_for(self, home: Path) -> None:
        by_rename(home / "state.yaml", with_note((home / "state.yaml").read_text(), "by hand").encode())
        (home / "state.yaml").chmod(0)
        said = self.as_nobody(home, "x")
        assert said == f"exit 1: cannot read {home / 'state.yaml'}: Permission denied; nothing was changed"
        (home / "state.yaml").chmod(0o644)
        assert self.as_nobody(home, "x") == "3"
        assert messages(is_whole(FileBoard(home))) == ["by hand", "x"]

    def test_a_directory_that_may_not_be_written_delays_only_the_file(self, home: Path) -> None:
        home.chmod(0o555)
        assert self.as_nobody(home, "x") == "2"
        home.chmod(0o755)
        assert self.as_nobody(home, "y") == "3"
        assert messages(is_whole(FileBoard(home))) == ["x", "y"]

    def test_a_board_of_somebody_else_is_said(self, home: Path) -> None:
        for path in home.iterdir():
            os.chown(path, 0, 0)
        said = self.as_nobody(home, "x")
        assert (
            said
            == f"exit 1: cannot open {home / 'state.yaml.lock.next'}: Permission denied; nothing was changed"
        )
        assert messages(is_whole(FileBoard(home))) == []

    def test_a_board_of_somebody_else_can_be_read(self, home: Path) -> None:
        for path in home.iterdir():
            os.chown(path, 0, 0)
        ours, theirs = PROCESSES.Pipe(duplex=False)
        process = PROCESSES.Process(target=read_as_nobody, args=(home, theirs))
        process.start()
        ended_well([process])
        assert ours.recv() == (1, 1, 1)
