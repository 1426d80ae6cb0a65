"""The engine that keeps a board in files, as `open_board` knows it; each function loads what it needs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from liza.board.protocol import Glance

if TYPE_CHECKING:
    from liza.board.protocol import Board
    from liza.domain.model import State


def exists(location: str) -> bool:
    from liza.board.journal import NAME  # noqa: PLC0415 - whoever opens a board need not wait for it

    return (_path(location) / NAME).exists()


def open_location(location: str) -> Board:
    from liza.board.file import FileBoard  # noqa: PLC0415 - whoever only looks need not wait for it

    return FileBoard(_path(location))


def create(location: str, state: State, *, by: str) -> Board:
    from liza.board.file import FileBoard  # noqa: PLC0415 - as above

    return FileBoard.create(_path(location), state, by=by)


def glance(location: str) -> Glance | None:
    from liza.board.quick_read import read_quickly  # noqa: PLC0415 - whoever opens a board need not wait for it
    from liza.board.switches import FileSwitches  # noqa: PLC0415 - as above

    home = _path(location)
    state = read_quickly(home)
    return Glance(state, FileSwitches(home).thrown()) if state else None


def validate(location: str) -> State:
    from liza.board.validate import validate_path  # noqa: PLC0415 - as above

    return validate_path(_path(location))


def _path(location: str) -> Path:
    return Path(location.removeprefix("file://"))
