"""The switches of a board in files: each is a file in its directory, which anybody can make and remove."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from liza.board.disk import has_no_writer
from liza.domain.switches import SWITCH_FILES
from liza.errors import DiskTrouble
from liza.system.files import overwrite, write_new

if TYPE_CHECKING:
    from pathlib import Path

    from liza.domain.switches import Switch


class FileSwitches:
    def __init__(self, home: Path) -> None:
        self._home = home

    def thrown(self) -> dict[str, str]:
        """Return the switches that are thrown, each with what its file says."""
        found: dict[str, str] = {}
        for name in SWITCH_FILES:
            try:
                found[name] = (self._home / name).read_text(errors="replace").strip()
            except FileNotFoundError:
                continue
            except OSError:  # a directory, or not for us to read: it is there all the same
                found[name] = ""
        return found

    def throw(self, switch: Switch, said: str) -> bool:
        """Throw *switch* and say in its file why; return False, and leave it, where it is thrown already."""
        path = self._path(switch)
        try:
            return write_new(path, _one_line(said))
        except OSError as error:
            raise DiskTrouble(f"write {path}", error) from error

    def replace(self, switch: Switch, said: str) -> None:
        """Throw *switch* and say in its file why, whatever it said before."""
        path = self._path(switch)
        try:
            overwrite(path, _one_line(said))
        except OSError as error:
            raise DiskTrouble(f"write {path}", error) from error

    def clear(self, switch: Switch) -> None:
        path = self._path(switch)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise DiskTrouble(f"remove {path}", error) from error

    def thrown_at(self, switch: Switch) -> datetime | None:
        """Return the time of the file; None where there is none, or somebody is just writing it."""
        path = self._path(switch)
        try:
            if not _is_written(path):
                return None
            return datetime.fromtimestamp(path.stat().st_mtime, UTC)
        except FileNotFoundError:
            return None

    def place_of(self, switch: Switch) -> str:
        return str(self._path(switch))

    def _path(self, switch: Switch) -> Path:
        return self._home / switch.name


def _is_written(path: Path) -> bool:
    """Return whether nobody is just writing the file: a shell makes it first, and then writes its words."""
    try:
        return has_no_writer(path)
    except OSError:  # a link, or taken back at this moment
        return True


def _one_line(said: str) -> str:
    line = " ".join(said.split())
    return f"{line}\n" if line else ""
