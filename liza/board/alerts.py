"""The alerts of a board in files: one line each in alerts.log, which people and their tools follow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from liza.board.protocol import Alert
from liza.domain.printed_text import escape_unsafe
from liza.errors import DiskTrouble
from liza.system.files import append_line, environment_mask, overwrite

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

ALERTS: Final = "alerts.log"
FOLDER: Final = "told"  # what was sent, and up to where


class FileAlerts:
    def __init__(self, home: Path) -> None:
        self._path = home / ALERTS
        self._mark = home / FOLDER / "sent"

    def append(self, sentence: str, *, at: datetime) -> None:
        """Append one line."""
        try:
            append_alert(self._path.parent, at, sentence)
        except OSError as error:
            raise DiskTrouble(f"write {self._path}", error) from error

    def after(self, position: int) -> list[Alert]:
        """Return the whole lines behind the offset *position*; a line that is being written has to wait."""
        if position > self.end():  # somebody emptied the log
            position = 0
        try:
            with self._path.open("rb") as log:
                log.seek(position)
                data = log.read()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise DiskTrouble(f"read {self._path}", error) from error
        found: list[Alert] = []
        for line in data[: data.rfind(b"\n") + 1].splitlines(keepends=True):
            position += len(line)
            at, _, says = line.decode(errors="replace").strip().partition(" ")
            found.append(Alert(position, at, says))
        return found

    def end(self) -> int:
        return self._path.stat().st_size if self._path.exists() else 0

    def sent(self) -> int:
        try:
            return int(self._mark.read_text())
        except (OSError, ValueError):
            return 0

    def mark_sent(self, position: int) -> None:
        try:
            self._mark.parent.mkdir(exist_ok=True)
            overwrite(self._mark, str(position))
        except OSError as error:
            raise DiskTrouble(f"write {self._mark}", error) from error


def append_alert(home: Path, at: datetime, sentence: str) -> None:
    """Append one line to the file that people and their tools follow."""
    append_line(home / ALERTS, f"{at:%Y-%m-%dT%H:%M:%SZ} {alert_line(sentence)}")


def alert_line(sentence: str) -> str:
    """Return *sentence* on one line that a terminal shows as it is, secrets masked."""
    # A name in the sentence may hold a line break.
    return escape_unsafe(environment_mask().text(" ".join(sentence.splitlines())))
