"""On a large board an update writes of `state.yaml` what it changed, and the file is as if written whole."""

from __future__ import annotations

import os
import signal
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
import yaml

from liza.board.file import FileBoard
from liza.board.journal import Disk
from liza.board.statefile import GROUP, LARGE, LOCK, ROOM, comments, render_state
from liza.domain.changes import Change
from liza.domain.model import Note, Role, WorkerRecord
from liza.domain.record import records_by_id, utc_now, with_records
from liza.system.host import host
from tests.support.boards import PROCESSES, ended, is_whole, messages, noted, was_not_disturbed
from tests.support.editors import SAVES, long_ago
from tests.support.sample_tasks import board as story
from tests.support.sample_tasks import new_task

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from liza.domain.model import State

SAVED = 2
WORDS = "Totals are rounded once,\n\nand not where they are shown.\n"


class Counting(Disk):
    """Counts the bytes that are written to state.yaml."""

    def __init__(self) -> None:
        self.written = 0

    def overwrite(self, descriptor: int, data: bytes) -> None:
        self.written += len(data)
        super().overwrite(descriptor, data)

    def patch(self, descriptor: int, parts: list[tuple[int, bytes]], size: int) -> None:
        self.written += sum(len(data) for _, data in parts)
        super().patch(descriptor, parts, size)


class Deadly(Disk):
    """Ends the process half-way through a patch."""

    def patch(self, descriptor: int, parts: list[tuple[int, bytes]], size: int) -> None:
        super().patch(descriptor, parts[:1], size)
        os.kill(os.getpid(), signal.SIGKILL)


def large_state() -> State:
    notes = (Note(id=f"note-{n}", message=f"{WORDS}{n}", timestamp=utc_now()) for n in range(LARGE))
    return story(new_task("t1")).replace(human_notes=records_by_id(notes))


def reworded(number: int, words: str) -> Change:
    def make(state: State) -> State:
        note = state.human_notes[f"note-{number}"].replace(message=words)
        return state.replace(human_notes=with_records(state.human_notes, {note.id: note}))

    return Change("human", "reword", make)


def with_coders(*names: str) -> Change:
    coders = [WorkerRecord(id=name, role=Role.CODER, since=utc_now()) for name in names]
    return Change("liza", "hire", lambda state: state.replace(agents=records_by_id(coders)))


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    home = tmp_path / ".liza"
    FileBoard.create(home, large_state()).close()
    with closing(FileBoard(home)) as board:  # so that revisions have two digits, and both files are there
        for number in range(12):
            board.update(reworded(number, "begun"))
    yield home
    was_not_disturbed(home)


def test_the_file_is_the_same_as_one_written_whole(home: Path) -> None:
    disk = Counting()
    with closing(FileBoard(home, disk=disk)) as board, closing(FileBoard(home)) as other:
        for number in range(3):
            board.update(reworded(number, "to know the files"))
        disk.written = 0
        for number in range(100, LARGE, 300):
            board.update(reworded(number, "shorter"))
            is_whole(board)
        assert disk.written < (home / "state.yaml").stat().st_size / 2
        board.update(reworded(7, "more than there is room for" * ROOM))
        is_whole(board)
        other.update(reworded(LARGE - 1, f"{WORDS * 50}the last one"))
        board.update(noted("one more"))
        is_whole(board)
        for names in (("coder-1", "coder-2"), ("coder-2",), ("coder-1", "coder-2")):
            other.update(with_coders(*names))
            is_whole(other)
        board.update(reworded(41, "behind those that came and went"))
        other.update(reworded(GROUP, "by another"))
        state = is_whole(board)
    assert yaml.safe_load((home / "state.yaml").read_bytes())["human_notes"] == [
        note.to_json() | {"timestamp": note.timestamp} for note in state.human_notes.values()
    ]


def test_what_outgrows_its_group_seldom_moves_what_is_far_behind(home: Path) -> None:
    disk = Counting()
    with closing(FileBoard(home, disk=disk)) as board:
        for number in (0, 1):  # the first makes room for others, and the second has that in both files
            board.update(reworded(number * GROUP, "x" * ROOM))
        board.update(reworded(1, "short"))
        disk.written = 0
        board.update(reworded(2 * GROUP, "x" * ROOM))
        is_whole(board)
        assert disk.written < (home / "state.yaml").stat().st_size * 3 / 4  # the second stretch stays


@pytest.mark.parametrize("kind", SAVES)
def test_what_a_person_saved_is_taken_and_never_written_over_in_part(home: Path, kind: str) -> None:
    path = home / "state.yaml"
    with closing(FileBoard(home)) as board:
        for number in range(SAVED):
            board.update(reworded(number, "to know the files"))
            # As long as before, with a remark where nothing else changes.
            before, _, after = path.read_text().replace("#--", "#!-", 1).rpartition("rounded once")
            SAVES[kind](path, f"{before}Rounded {number}ce{after}".encode())
            long_ago(path)
            for place in (300, 500, 300):
                board.update(reworded(place, f"after the save {place} {number}"))
                is_whole(board)
        assert sum("Rounded" in message for message in messages(board.read())) == SAVED


def test_a_file_that_was_patched_by_half_is_written_whole(home: Path) -> None:
    process = PROCESSES.Process(target=die_while_writing, args=(home,))
    process.start()
    assert ended(process) == -signal.SIGKILL
    with closing(FileBoard(home)) as board:
        board.absorb()
        assert is_whole(board).human_notes["note-500"].message == "its writer dies"
        for number in (500, 3):
            board.update(reworded(number, "afterwards"))
            is_whole(board)


def die_while_writing(home: Path) -> None:
    with closing(FileBoard(home)) as board:
        for number in range(2):
            board.update(reworded(number, "to know the files"))
    board = FileBoard(home, disk=Deadly())
    board.read()
    board.text()
    for number in range(3):
        board.update(reworded(500, "its writer dies"))
        board.update(reworded(number, "never"))


def test_a_small_board_has_no_room(tmp_path: Path) -> None:
    with closing(FileBoard.create(tmp_path / ".liza", story(new_task("t1")))) as board:
        assert b"#-" not in board.text().data
    assert b"#-" in render_state(large_state(), "0")


def test_room_says_nothing_whatever_stands_before_it() -> None:
    for size in (2, 3, 79, 80, 81, 82, 160, 161, ROOM - 1):
        room = comments(size)
        assert len(room) == size
        for above in ("- a: |+\n    x\n\n", "- a: |\n    x\n", "- a:\n", "- a: [x]\n"):
            assert yaml.safe_load(f"{above}{room.decode()}- b\n") == [*yaml.safe_load(above), "b"]


def test_a_file_from_before_a_crash_of_the_machine_is_written_whole(home: Path) -> None:
    """What was not synced may be half there, under its old time and length."""
    lock = home / LOCK
    with closing(FileBoard(home)) as board:
        lock.write_text(lock.read_text().replace(host().boot_id(), "another-boot"))
        for name in ("state.yaml", "state.yaml.spare"):
            found = (home / name).stat()
            with (home / name).open("r+b", buffering=0) as file:
                file.seek(found.st_size // 2)
                file.write(bytes(100))
            os.utime(home / name, ns=(found.st_atime_ns, found.st_mtime_ns))
        board.text()  # so that this process knows the text that is there
        for number in range(3):
            board.update(reworded(number, "after the crash"))
            is_whole(board)
