"""Where the board of a project is found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from liza.errors import InvalidBoard, UsageError

if TYPE_CHECKING:
    from pathlib import Path

HOME: Final = ".liza"


def home_from(start: Path) -> Path:
    """Return the `.liza` directory of the project that *start* is in."""
    for directory in (start, *start.parents):
        home = directory / HOME
        if home.is_symlink():
            raise InvalidBoard(f"{home} is a link to {home.readlink()}; put the directory itself there")
        if home.is_dir():
            return home
    raise UsageError(f'there is no board in {start} or above it; `liza init "what to build"` makes one')
