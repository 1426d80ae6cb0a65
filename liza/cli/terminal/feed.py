"""Reads the board in a thread of its own, so that no key waits for a disk or for whoever holds the lock."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, NamedTuple

from liza.cli.views.board_view import board_view
from liza.cli.views.gather import Gatherer
from liza.domain.record import utc_now
from liza.errors import LizaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from liza.board.protocol import Board
    from liza.cli.views.board_view import BoardView, KnownRows

MIN_INTERVAL: Final = 0.5  # seconds between two drawings, however often the board changes
MAX_INTERVAL: Final = 1.0  # seconds after which elapsed times are drawn again, though nothing changed


class FeedItem(NamedTuple):
    """The board as it is shown, or why it cannot be read; then what was shown before stays."""

    view: BoardView | None
    trouble: str | None = None


class BoardFeed:
    """Publishes the board whenever it changes, and once a second; `stop` ends it."""

    def __init__(self, board: Board, publish: Callable[[FeedItem], object], *, tail: int) -> None:
        self._board = board
        self._publish = publish
        self._gatherer = Gatherer(board, tail=tail)
        self._rows: KnownRows = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="board feed", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()

    def _run(self) -> None:
        revision = 0
        while not self._stopped.is_set():
            item = self._look()
            if self._stopped.is_set():
                return
            self._publish(item)
            revision = item.view.revision if item.view else revision
            if self._stopped.wait(MIN_INTERVAL):
                return
            self._wait(revision)

    def _look(self) -> FeedItem:
        try:
            view = board_view(self._gatherer.facts(utc_now()), self._rows)
        except LizaError as error:
            return FeedItem(None, str(error))
        return FeedItem(view, view.trouble)

    def _wait(self, revision: int) -> None:
        try:
            self._board.wait(revision, MAX_INTERVAL - MIN_INTERVAL)
        except LizaError:  # told by the next look
            self._stopped.wait(MAX_INTERVAL)
