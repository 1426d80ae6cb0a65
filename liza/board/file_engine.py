"""The engine that keeps a board in files, as `open_board` knows it; each function loads what it needs."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from liza.board.protocol import SUPERVISOR_NAME, Glance
from liza.errors import DiskTrouble, LizaError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from liza.board.protocol import Board
    from liza.domain.model import State


def exists(location: str) -> bool:
    from liza.board.journal import NAME  # noqa: PLC0415 - whoever opens a board need not wait for it

    return (_path(location) / NAME).exists()


def open_location(location: str, *, home: Path | None = None) -> Board:  # noqa: ARG001 - it is its own home
    from liza.board.file import FileBoard  # noqa: PLC0415 - whoever only looks need not wait for it

    return FileBoard(_path(location))


def create(location: str, state: State, *, by: str, home: Path | None = None) -> Board:  # noqa: ARG001
    from liza.board.file import FileBoard  # noqa: PLC0415 - as above

    return FileBoard.create(_path(location), state, by=by)


def glance(location: str, *, home: Path | None = None) -> Glance | None:  # noqa: ARG001
    from liza.board.presence import FilePresence  # noqa: PLC0415 - whoever opens a board need not wait for it
    from liza.board.quick_read import read_quickly  # noqa: PLC0415 - as above
    from liza.board.statefile import FileSwitches  # noqa: PLC0415 - as above

    path = _path(location)
    state = read_quickly(path)
    if state is None:
        return None
    return Glance(state, FileSwitches(path).thrown(), FilePresence(path).is_held(SUPERVISOR_NAME))


def validate(location: str, *, home: Path | None = None) -> State:  # noqa: ARG001
    from liza.board.validate import validate_path  # noqa: PLC0415 - as above

    return validate_path(_path(location))


def lines(location: str) -> list[bytes]:
    """Return the whole journal, with what people saved."""
    from liza.board.journal import NAME  # noqa: PLC0415 - as above

    with closing(open_location(location)) as board:
        board.absorb()
        return (_path(location) / NAME).read_bytes().splitlines(keepends=True)


def restore(location: str, journal: Sequence[bytes]) -> None:
    """Make a board at *location* that has *journal*; raise where there is one."""
    from liza.board.journal import NAME  # noqa: PLC0415 - as above
    from liza.system.files import write_new  # noqa: PLC0415 - as above

    path = _path(location)
    try:
        path.mkdir(exist_ok=True, parents=True)
        is_new = write_new(path / NAME, b"".join(journal))
    except OSError as error:
        raise DiskTrouble(f"make {path}", error) from error
    if not is_new:
        raise LizaError(f"there is a board in {path} already; `liza status` shows it")
    with closing(open_location(location)) as board:
        board.absorb()


def grant(location: str, right: str, role: str) -> None:
    raise UsageError(
        f"{role} cannot be a {right} of {location}: files have no roles; give the address of a server"
    )


def _path(location: str) -> Path:
    return Path(location.removeprefix("file://"))
