"""Files that a supervisor leaves for people: whole or not there, and written again without harm."""

from __future__ import annotations

from typing import TYPE_CHECKING

from liza.errors import DiskTrouble
from liza.system.files import overwrite

if TYPE_CHECKING:
    from pathlib import Path


def write_report(path: Path, text: str) -> None:
    """Write a file that is whole or not there."""
    try:
        path.parent.mkdir(exist_ok=True)
        overwrite(path, text)
    except OSError as error:
        raise DiskTrouble(f"write {path}", error) from error
