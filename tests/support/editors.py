"""People at work on `state.yaml`: editors of every kind, who know nothing of Liza's lock."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import yaml

from liza.board.file import FileBoard
from tests.support.boards import PATIENCE
from tests.support.child_processes import raised

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection
    from multiprocessing.synchronize import Event
    from pathlib import Path

    Save = Callable[[Path, bytes], None]

LONG_AGO: Final = 1_000_000_000.0  # a time at which no save can still be in progress


def by_rename(path: Path, data: bytes) -> None:
    fresh = path.with_name("state.yaml.tmp")
    fresh.write_bytes(data)
    fresh.replace(path)


def in_place(path: Path, data: bytes) -> None:
    """Empty the file, then write it, as `Path.write_text` and a shell do."""
    path.write_bytes(data)


def in_pieces(path: Path, data: bytes) -> None:
    """Write over the file piece by piece, without emptying it first."""
    with path.open("r+b", buffering=0) as file:
        for start in range(0, len(data), 1000):
            file.write(data[start : start + 1000])
        file.truncate()


def by_backup(path: Path, data: bytes) -> None:
    """Move the old file aside and write a new one in its place, as vim does."""
    backup = path.with_name("state.yaml~")
    path.rename(backup)
    path.write_bytes(data)
    backup.unlink()


SAVES: Final[dict[str, Save]] = {
    "by rename": by_rename,
    "in place": in_place,
    "in pieces": in_pieces,
    "by backup": by_backup,
}


def long_ago(path: Path) -> None:
    """Make the file look as if it had been saved long ago, so that nobody waits for the rest of it."""
    os.utime(path, (LONG_AGO, LONG_AGO))


def with_note(text: str, message: str) -> str:
    """Return the file with one more note, as a person would type it: on top, and without an id."""
    before, _, after = text.partition("\nhuman_notes:")
    return f"{before}\nhuman_notes:\n- message: {message}{after.removeprefix(' []')}"


def dumped_with_note(text: str, message: str) -> str:
    """Return the same by a program that loads and dumps the whole file, which drops all comments."""
    data = yaml.safe_load(text)
    data["human_notes"].append({"message": message})
    return yaml.safe_dump(data)


def add_notes(home: Path, kind: str, count: int) -> None:
    """Save *count* notes, each into a copy that was read some changes ago."""
    board = FileBoard(home)
    path = home / "state.yaml"
    for number in range(count):
        text = path.read_text()
        revision = board.read().revision
        board_moved = board.wait(revision + 3, PATIENCE).revision > revision
        assert board_moved
        edited = (dumped_with_note if number % 5 == 4 else with_note)(text, f"{kind} {number}")
        SAVES[kind](path, edited.encode())
    board.close()


def count_up(home: Path, task: str, stop: Event, pipe: Connection) -> None:
    """Raise the priority of *task* at full speed until *stop*, then say how far it got."""
    board = FileBoard(home)
    done = 0
    while not stop.is_set():
        board.update(raised(task))
        done += 1
    pipe.send(done)
    board.close()


def save_until_told(home: Path, kind: str, stop: Event, pipe: Connection) -> None:
    """Save a note into a stale copy about seven times a second until *stop*, then say how many there were."""
    path, number = home / "state.yaml", 0
    while not stop.wait(0.07):
        text = path.read_text()
        if stop.wait(0.07):
            break
        edited = (dumped_with_note if number % 5 == 4 else with_note)(text, f"{kind} {number}")
        SAVES[kind](path, edited.encode())
        number += 1
    pipe.send(number)
