"""Files that a supervisor leaves for people: whole or not there, and written again without harm."""

from __future__ import annotations

from typing import TYPE_CHECKING

from liza.board.disk import Disk
from liza.errors import DiskTrouble

if TYPE_CHECKING:
    from pathlib import Path

    from liza.switches import Switch


def write(path: Path, text: str) -> None:
    """Write a file that is whole or not there."""
    draft = path.with_suffix(".draft")
    try:
        path.parent.mkdir(exist_ok=True)
        draft.write_text(text)
        draft.replace(path)
    except OSError as error:
        raise DiskTrouble(f"write {path}", error) from error


def throw(home: Path, switch: Switch, said: str) -> bool:
    """Throw *switch* and say in its file why; one that is there already stays. Tell whether it was ours."""
    path, draft = home / switch.name, home / f"{switch.name}.draft"
    try:
        draft.write_text(f"{' '.join(said.split())}\n")
        # Under its name it is whole: an empty one would seem to be somebody else's.
        Disk().place(draft, path)
    except FileExistsError:
        draft.unlink(missing_ok=True)
        return False
    except OSError as error:
        raise DiskTrouble(f"write {path}", error) from error
    return True


def take_back(home: Path, switch: Switch) -> None:
    try:
        (home / switch.name).unlink(missing_ok=True)
    except OSError as error:
        raise DiskTrouble(f"remove {home / switch.name}", error) from error
