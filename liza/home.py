"""Where a board lives, and which switches are thrown there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from liza.errors import InvalidBoard, UsageError
from liza.switches import FILES

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


def switches_of(home: Path) -> dict[str, str]:
    """Return the switches that are thrown, each with what its file says."""
    found: dict[str, str] = {}
    for name in FILES:
        try:
            found[name] = (home / name).read_text(errors="replace").strip()
        except FileNotFoundError:
            continue
        except OSError:  # a directory, or not for us to read: it is there all the same
            found[name] = ""
    return found
