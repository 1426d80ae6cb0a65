"""Waiting wakes within milliseconds, costs nothing while nothing happens, and needs no help of the kernel."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

import pytest

from liza.board.file import FileBoard
from liza.domain.config import SWITCH_FILES
from tests.support.board_engines import Store, note_when_told
from tests.support.boards import PATIENCE, PROCESSES, ended_well, messages, new_board, noted
from tests.support.child_processes import wait_blindly, wait_idly
from tests.support.editors import SAVES, by_rename, with_note

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROUNDS: Final = 15
IDLE: Final = 2.0  # seconds
BUSY: Final = 0.3  # seconds of processor that a waiting process must stay below in that time


@pytest.fixture
def board(tmp_path: Path) -> Iterator[FileBoard]:
    board = new_board(tmp_path / ".liza")
    yield board
    board.close()


@pytest.fixture
def no_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody look again by themselves while a test lasts, so that only an event wakes."""
    monkeypatch.setattr("liza.board.file.POLL", 2 * PATIENCE)


@pytest.mark.usefixtures("no_look")
def test_it_wakes_by_the_event_and_not_by_the_next_look(board: FileBoard) -> None:
    """However busy the machine is."""
    ours, theirs = PROCESSES.Pipe()
    store = Store("file", board.home.parent)
    writer = PROCESSES.Process(target=note_when_told, args=(store, theirs))
    writer.start()
    assert ours.recv() == "ready"
    revision = board.wait(0, PATIENCE).revision
    for number in range(ROUNDS):
        start = time.monotonic()
        ours.send(f"{number}")
        revision = board.wait(revision, PATIENCE).revision
        assert time.monotonic() - start < PATIENCE
    ours.send(None)
    ended_well([writer])


def listen(board: FileBoard, since: int, woken: list[int]) -> None:
    board.wait(since, PATIENCE)
    woken.append(since)


@pytest.mark.usefixtures("no_look")
def test_every_thread_that_waits_is_woken(board: FileBoard) -> None:
    """One must not take away the bell from the others."""
    writer = FileBoard(board.home)
    for number in range(ROUNDS):
        revision = board.read().revision
        woken: list[int] = []
        threads = [threading.Thread(target=listen, args=(board, revision, woken)) for _ in range(8)]
        for thread in threads:
            thread.start()
        writer.update(noted(f"{number}"))
        for thread in threads:
            thread.join(PATIENCE / 2)  # they give up after all of it
        assert len(woken) == len(threads)
    writer.close()


@pytest.mark.parametrize("kind", SAVES)
def test_it_wakes_on_a_save_of_a_person(kind: str, board: FileBoard) -> None:
    revision = board.wait(0, PATIENCE).revision
    board.wait(revision, 0.01)
    text = with_note((board.home / "state.yaml").read_text(), "by hand")
    saver = threading.Thread(target=SAVES[kind], args=(board.home / "state.yaml", text.encode()))
    saver.start()
    state = board.wait(revision, PATIENCE)
    saver.join()
    assert messages(state) == ["by hand"]


def test_it_wakes_on_a_bad_save_too(board: FileBoard) -> None:
    """Which becomes an anomaly, once it is clear that nothing more follows."""
    revision = board.wait(0, PATIENCE).revision
    by_rename(board.home / "state.yaml", b"hello\n")
    assert board.wait(revision, PATIENCE).anomalies
    assert (board.home / "PAUSE").exists()


@pytest.mark.parametrize("name", SWITCH_FILES)
def test_a_switch_wakes_whoever_waits_though_nothing_changed(name: str, board: FileBoard) -> None:
    """Thrown or taken back: an idle worker need not be asleep when everybody is to end."""
    revision = board.wait(0, PATIENCE).revision
    board.wait(revision, 0.01)
    for move in ((board.home / name).touch, (board.home / name).unlink):
        start = time.monotonic()
        mover = threading.Timer(0.05, move)
        mover.start()
        assert board.wait(revision, PATIENCE).revision == revision
        assert time.monotonic() - start < PATIENCE / 2
        mover.join()


def idle_cost(home: Path) -> float:
    ours, theirs = PROCESSES.Pipe(duplex=False)
    process = PROCESSES.Process(target=wait_idly, args=(home, IDLE, theirs))
    process.start()
    ended_well([process])
    cost: float = ours.recv()
    return cost


class TestIdle:
    def test_waiting_costs_nothing(self, board: FileBoard) -> None:
        assert idle_cost(board.home) < BUSY

    def test_nor_while_somebody_is_in_the_middle_of_a_save(self, board: FileBoard) -> None:
        with (board.home / "state.yaml").open("r+") as file:
            file.write("half")
            file.flush()
            assert idle_cost(board.home) < BUSY

    def test_nor_while_somebody_has_an_old_file_open(self, board: FileBoard) -> None:
        """One that Liza has set aside, and that may become an edit yet."""
        with (board.home / "state.yaml").open("r+") as file:
            board.update(noted("one"))
            board.update(noted("two"))
            assert idle_cost(board.home) < BUSY
            file.write("half")
            file.flush()
            assert idle_cost(board.home) < BUSY

    def test_nor_where_state_yaml_cannot_be_written(self, board: FileBoard) -> None:
        """A name that is in the way keeps the file behind the journal; it is not tried all the time."""
        (board.home / "state.yaml").unlink()
        (board.home / "state.yaml.spare").unlink(missing_ok=True)
        (board.home / "state.yaml.spare").mkdir()
        assert idle_cost(board.home) < BUSY


def test_reading_wakes_nobody(board: FileBoard) -> None:
    """Neither Liza's reading nor that of others: the bell rings for the one file made at the end."""
    watch = board._open_watch()
    assert watch is not None
    other = FileBoard(board.home)
    for _ in range(50):
        other.read()
        list(other.entries())
        (board.home / "state.yaml").read_bytes()
        assert not other.has_edit()
    heard = watch.wakeups
    (board.home / "mark").write_text("")
    watch.wait(heard, PATIENCE)
    assert watch.wakeups < 10
    other.close()


def test_it_works_where_the_kernel_grants_no_watch(board: FileBoard) -> None:
    ours, theirs = PROCESSES.Pipe()
    process = PROCESSES.Process(target=wait_blindly, args=(board.home, theirs))
    process.start()
    assert ours.recv() == "blind"
    ours.send(1)
    board.update(noted("one"))
    assert ours.recv() == ["one"]
    ours.send(2)
    by_rename(board.home / "state.yaml", with_note((board.home / "state.yaml").read_text(), "two").encode())
    assert ours.recv() == ["one", "two"]
    ours.send(None)
    ended_well([process])
