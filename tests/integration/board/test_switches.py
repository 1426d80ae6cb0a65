"""Switches and alerts, written by many processes at once: they appear whole, and nobody's is replaced."""

from __future__ import annotations

import errno
import os
import re
from typing import TYPE_CHECKING, Final

import pytest

from liza.board.alerts import ALERTS, append_alert
from liza.board.protocol import open_board
from liza.board.statefile import FileSwitches
from liza.daemon.turn import StopRequests
from liza.domain.config import Switch
from liza.domain.record import utc_now
from liza.errors import DiskTrouble
from liza.system import files
from tests.support.boards import PROCESSES, ended_well
from tests.support.child_processes import LONGEST, throw_and_tell

if TYPE_CHECKING:
    from pathlib import Path

ROUNDS: Final = 40
NAMES: Final = ("a", "b", "c")


def test_whoever_reads_meanwhile_sees_whole_files_and_one_thrower_wins(tmp_path: Path) -> None:
    start = PROCESSES.Barrier(len(NAMES) + 1)
    pipes = [PROCESSES.Pipe(duplex=False) for _ in NAMES]
    throwers = [
        PROCESSES.Process(target=throw_and_tell, args=(tmp_path, name, ROUNDS, start, theirs))
        for name, (_, theirs) in zip(NAMES, pipes, strict=True)
    ]
    for thrower in throwers:
        thrower.start()
    for number in range(ROUNDS):
        start.wait(LONGEST)
        while not (seen := FileSwitches(tmp_path).thrown()):
            pass
        assert re.fullmatch(rf"[abc] wants it, {number}", seen["PAUSE"])
        while not (tmp_path / ALERTS).exists():
            pass
        text = (tmp_path / ALERTS).read_text()
        text = text[: text.rfind("\n") + 1]  # a long line grows page by page: who follows waits for its end
        assert text
        assert all(re.fullmatch(r"\S+ [abc] \d+ x{9000}", line) for line in text.splitlines())
        start.wait(LONGEST)
        FileSwitches(tmp_path).clear(Switch.PAUSE)
    won = [ours.recv() for ours, _ in pipes]
    ended_well(throwers)
    assert sum(won) == ROUNDS
    assert len((tmp_path / ALERTS).read_text().splitlines()) == ROUNDS * len(NAMES)
    assert [path.name for path in tmp_path.iterdir()] == [ALERTS]


def test_what_a_worker_throws_is_an_alert_once_and_leaves_a_persons_pause(tmp_path: Path) -> None:
    FileSwitches(tmp_path).throw(Switch.PAUSE, "lunch")
    StopRequests(open_board(tmp_path)).pause("the tests cannot run")
    assert FileSwitches(tmp_path).thrown() == {"PAUSE": "lunch"}
    assert not (tmp_path / ALERTS).exists()

    FileSwitches(tmp_path).clear(Switch.PAUSE)
    for _ in range(2):
        StopRequests(open_board(tmp_path)).pause("the tests\ncannot run")
    assert FileSwitches(tmp_path).thrown() == {"PAUSE": "by Liza: the tests cannot run"}
    assert [line.partition(" ")[2] for line in (tmp_path / ALERTS).read_text().splitlines()] == [
        "everybody pauses: the tests cannot run"
    ]


def test_a_line_that_a_full_disk_cut_short_does_not_swallow_the_next(tmp_path: Path) -> None:
    (tmp_path / ALERTS).write_text("2026-01-01T12:00:00Z the di")
    append_alert(tmp_path, utc_now(), "there is room again")
    first, second = (tmp_path / ALERTS).read_text().splitlines()
    assert (first, second.partition(" ")[2]) == ("2026-01-01T12:00:00Z the di", "there is room again")


def test_where_there_are_no_links_nobodys_file_is_replaced_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(*_: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", unknown)
    assert files.write_new(tmp_path / "PAUSE", "lunch\n")
    assert not files.write_new(tmp_path / "PAUSE", "mine\n")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("PAUSE", "lunch\n")]


def test_what_cannot_be_thrown_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "PAUSE").mkdir()
    assert not FileSwitches(tmp_path).throw(Switch.PAUSE, "lunch")
    with pytest.raises(DiskTrouble, match="PAUSE"):
        FileSwitches(tmp_path).replace(Switch.PAUSE, "lunch")
    assert FileSwitches(tmp_path).thrown() == {"PAUSE": ""}
