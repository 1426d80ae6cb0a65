"""The transcript of a worker, a task or a run, live."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, ClassVar, Final

from textual.binding import Binding
from textual.screen import Screen
from textual.widgets import Footer, Static

from liza.cli.terminal.line_list import LineList, fit, safe
from liza.cli.terminal.screens import plain
from liza.cli.views.logs import LogReader, LogRequest
from liza.cli.views.transcript import MARKS, LineKind, TranscriptLine
from liza.errors import LizaError

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from liza.board.protocol import Board
    from liza.cli.terminal.line_list import Piece


KEPT_LINES: Final = 5000  # of a transcript on the screen; `liza logs` has all
_STYLES: Final = {
    LineKind.COMMAND: "cyan",
    LineKind.FILE: "green",
    LineKind.TOOL: "blue",
    LineKind.OUTPUT: "dim",
    LineKind.THOUGHT: "dim italic",
    LineKind.ERROR: "red",
    LineKind.NOTE: "bold",
}


def line_pieces(line: TranscriptLine, width: int) -> list[Piece]:
    return [(fit(safe(f"{MARKS[line.kind]}{line.text}"), width), _STYLES.get(line.kind, ""))]


class _Left(Exception):
    """The person has left the screen."""


class LogScreen(Screen[None]):
    """Reads along; the cursor stays at the end until it is moved away from it."""

    BINDINGS: ClassVar = [Binding("escape,q", "dismiss", "back")]
    DEFAULT_CSS = "LogScreen Static { height: auto; background: $panel; }"

    def __init__(self, board: Board, subject: str) -> None:
        super().__init__()
        self._board = board
        self._subject = subject
        self._left = threading.Event()
        self._read: deque[TranscriptLine] = deque(maxlen=KEPT_LINES)
        self._is_new = False

    def compose(self) -> ComposeResult:
        yield Static(plain(f"What {self._subject} says and does", "bold"))
        yield LineList(line_pieces, empty="It has said nothing yet.", id="log")
        yield Footer()

    def on_mount(self) -> None:
        self.list.focus()
        self.set_interval(0.3, self._draw)
        threading.Thread(target=self._follow, name="log", daemon=True).start()

    def on_unmount(self) -> None:
        self._left.set()

    @property
    def list(self) -> LineList[TranscriptLine]:
        return self.query_one("#log", LineList)

    def _follow(self) -> None:
        try:
            for line in LogReader(self._board, LogRequest(self._subject, follow=True), self._wait).lines():
                self._read.append(line.line)
                self._is_new = True
        except _Left:
            return
        except LizaError as error:
            self._read.append(TranscriptLine(LineKind.ERROR, str(error)))
            self._is_new = True

    def _wait(self, seconds: float) -> None:
        if self._left.wait(seconds):
            raise _Left

    def _draw(self) -> None:
        if not self._is_new:
            return
        self._is_new = False
        is_at_end = self.list.cursor >= len(self.list.rows) - 1
        rows = list(self._read)
        self.list.show(rows, cursor=len(rows) - 1 if is_at_end else None)
