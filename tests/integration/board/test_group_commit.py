"""Writers that wait for each other are synced and shown together, and each is told only after that."""

from __future__ import annotations

import errno
import json
import os
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import TYPE_CHECKING, Final

import pytest

from liza.board.file import FileBoard
from liza.board.journal import Disk
from liza.errors import DiskTrouble, JournalDamaged
from tests.support.boards import is_whole, messages, new_board, noted, was_not_disturbed
from tests.support.crash_scenes import BY_HAND, edit

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future
    from pathlib import Path

    from liza.domain.model import State

PATIENCE: Final = 60.0  # seconds that a writer may take on a busy machine


class Syncs:
    """What became of the syncs of a group; the first *failures* of them fail."""

    def __init__(self, failures: int = 0) -> None:
        self.count = 0
        self._failures = failures

    def add(self) -> None:
        self.count += 1
        if self.count <= self._failures:
            raise OSError(errno.EIO, os.strerror(errno.EIO))


class FirstDisk(Disk):
    """Lets the second writer come while the first one holds the lock."""

    def __init__(self, syncs: Syncs, invite: Callable[[], None]) -> None:
        self._syncs = syncs
        self._invite = invite

    def append(self, descriptor: int, data: bytes) -> None:
        super().append(descriptor, data)
        self._invite()

    def sync(self, descriptor: int) -> None:
        self._syncs.add()
        super().sync(descriptor)


class SecondDisk(Disk):
    """Tells when it is the next in the queue."""

    def __init__(self, syncs: Syncs) -> None:
        self._syncs = syncs
        self.is_next = Event()

    def lock(self, descriptor: int) -> None:
        super().lock(descriptor)
        self.is_next.set()

    def sync(self, descriptor: int) -> None:
        self._syncs.add()
        super().sync(descriptor)


def write_together(
    home: Path, syncs: Syncs, meanwhile: Callable[[], None] = lambda: None
) -> list[BaseException | None]:
    """Let two writers write a note each, the second one waiting while the first one writes its line."""
    second_disk = SecondDisk(syncs)
    second = FileBoard(home, disk=second_disk)
    with ThreadPoolExecutor(1) as pool:
        futures: list[Future[State]] = []

        def invite() -> None:
            if futures:
                return
            futures.append(pool.submit(second.update, noted("two")))
            assert second_disk.is_next.wait(PATIENCE)
            meanwhile()

        first = FileBoard(home, disk=FirstDisk(syncs, invite))
        try:
            first.update(noted("one"))
            raised: BaseException | None = None
        except DiskTrouble as error:
            raised = error
        return [raised, futures[0].exception(PATIENCE)]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / ".liza"
    new_board(home).close()
    return home


def test_one_sync_serves_two_who_waited_for_each_other(home: Path) -> None:
    syncs = Syncs()
    assert write_together(home, syncs) == [None, None]
    assert syncs.count == 1
    assert messages(is_whole(FileBoard(home))) == ["one", "two"]
    was_not_disturbed(home)


def test_a_sync_that_fails_takes_back_the_lines_of_all_and_tells_each(home: Path) -> None:
    """Of what was not on disk before, nobody knows any more whether it is."""
    raised = write_together(home, Syncs(failures=1))
    assert all(isinstance(error, DiskTrouble) for error in raised)
    board = FileBoard(home)
    assert messages(board.absorb()) == []
    board.update(noted("afterwards"))
    assert messages(is_whole(board)) == ["afterwards"]
    was_not_disturbed(home)


def test_a_save_is_not_lost_when_its_sync_fails_with_that_of_a_group(home: Path) -> None:
    def save() -> None:
        edit(home, "human_notes: []\n", BY_HAND)

    raised = write_together(home, Syncs(failures=1), save)
    assert all(isinstance(error, DiskTrouble) for error in raised)
    assert "message: one" not in (home / "state.yaml").read_text()
    board = FileBoard(home)
    assert messages(board.absorb()) == ["by hand"]
    is_whole(board)
    was_not_disturbed(home)


class TestPowerCut:
    """What a group left in the journal of a machine that went down before its sync."""

    @pytest.fixture
    def lines(self, home: Path) -> list[bytes]:
        write_together(home, Syncs())
        for name in ("state.yaml", "state.yaml.spare", "state.yaml.lock", "snapshot.json"):
            (home / name).unlink(missing_ok=True)
        return (home / "journal.jsonl").read_bytes().splitlines(keepends=True)

    def test_a_line_says_what_was_not_on_disk_before_it(self, lines: list[bytes]) -> None:
        begin, one, two = lines
        assert [json.loads(line).get("unsynced", 0) for line in lines] == [0, 0, len(one)]
        assert json.loads(two)["revision"] == json.loads(begin)["revision"] + 2

    @pytest.mark.parametrize("kept", [0, 20])
    def test_a_hole_in_the_group_ends_the_journal_before_it(
        self, kept: int, lines: list[bytes], home: Path
    ) -> None:
        begin, one, two = lines
        hole = one[:kept] + bytes(len(one) - kept - 1) + b"\n"
        (home / "journal.jsonl").write_bytes(begin + hole + two)
        board = FileBoard(home)
        assert messages(board.absorb()) == []
        board.update(noted("afterwards"))
        assert messages(is_whole(board)) == ["afterwards"]

    def test_a_hole_before_what_was_synced_is_damage(self, lines: list[bytes], home: Path) -> None:
        (home / "journal.jsonl").write_bytes(b"".join(lines))
        FileBoard(home).update(noted("three"))
        begin, one, two = lines
        three = (home / "journal.jsonl").read_bytes().splitlines(keepends=True)[3]
        (home / "journal.jsonl").write_bytes(begin + bytes(len(one) - 1) + b"\n" + two + three)
        with pytest.raises(JournalDamaged, match="was changed after it was written"):
            FileBoard(home).read()


def test_who_read_lines_that_were_taken_back_goes_on_with_what_is_there(home: Path) -> None:
    """Whoever reads along may see a line before its sync; where that fails, the line is gone."""
    board = FileBoard(home)
    state = board.update(noted("one"))
    kept = (home / "journal.jsonl").stat().st_size
    state = board.update(noted("two"))
    assert [entry.revision for entry in board.entries(state.revision - 1)] == [state.revision]
    os.truncate(home / "journal.jsonl", kept)
    other = FileBoard(home)
    other.update(noted("three"))
    other.update(noted("four"))

    assert [entry.revision for entry in board.entries(state.revision)] == [state.revision + 1]
