"""Where the board of a project is found."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from liza.domain.version import VERSION
from liza.errors import InvalidBoard, UsageError

if TYPE_CHECKING:
    from pathlib import Path

HOME: Final = ".liza"
JOURNAL: Final = "journal.jsonl"
LONGEST_HEAD: Final = 64  # bytes of the journal that say which version it is of
_VERSION: Final = re.compile(rb'\{"revision":1,(?:"version":(\d+),)?"at":')


def home_from(start: Path) -> Path:
    """Return the `.liza` directory of the project that *start* is in."""
    for directory in (start, *start.parents):
        home = directory / HOME
        if home.is_symlink():
            raise InvalidBoard(f"{home} is a link to {home.readlink()}; put the directory itself there")
        if home.is_dir():
            require_version(home)
            return home
    raise UsageError(f'there is no board in {start} or above it; `liza init "what to build"` makes one')


def require_version(home: Path) -> None:
    """Raise where another Liza wrote the board in *home*: what it says would be misread, or spoilt."""
    try:
        with (home / JOURNAL).open("rb") as file:
            first = file.read(LONGEST_HEAD)
    except OSError:
        return  # whoever reads the board says what is wrong with it
    found = _VERSION.match(first)
    if found is None:
        return
    version = int(found[1] or 1)  # the first said nothing of it
    if version != VERSION:
        raise InvalidBoard(
            f"the board in {home} is of version {version}, and this Liza reads version {VERSION}; finish it "
            'with the Liza that wrote it, or move it away and begin anew (`liza init "what to build"`)'
        )
