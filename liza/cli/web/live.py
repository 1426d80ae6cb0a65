"""What changed, told to every open page: one thread waits for the board, however many look on."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Final

from liza.board.protocol import SUPERVISOR_NAME
from liza.errors import LizaError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from liza.board.protocol import Board

POLL_INTERVAL: Final = 0.5  # seconds until a switch or a death is seen that wakes nobody
PAUSE: Final = 0.6  # seconds between two tellings: ten changes a second do not cost ten drawings
KEEP_ALIVE: Final = 15.0  # seconds after which something is sent, so that a browser that left is noticed


class LiveFeed:
    """Tells each listener the latest stamp of what is shown; who is slow gets only the last."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._ended = threading.Event()
        self._listeners: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._watch, name="web-feed", daemon=True)
        self.stamp = ""

    def start(self) -> None:
        self.stamp = self._look(self._board.read().revision)
        self._thread.start()

    def end(self) -> None:
        """Let every listener go."""
        self._ended.set()
        self._wake()

    def stop(self) -> None:
        self.end()
        self._thread.join()

    async def stamps(self) -> AsyncIterator[str]:
        """Yield the stamp whenever it changed, and an empty string when nothing did for long."""
        loop, changed = asyncio.get_running_loop(), asyncio.Event()
        with self._lock:
            self._listeners.add((loop, changed))
        try:
            yield self.stamp
            while not self._ended.is_set():
                try:
                    await asyncio.wait_for(changed.wait(), KEEP_ALIVE)
                except TimeoutError:
                    yield ""
                    continue
                changed.clear()
                yield self.stamp
                await asyncio.sleep(PAUSE)
        finally:
            with self._lock:
                self._listeners.discard((loop, changed))

    def _watch(self) -> None:
        revision = self._board.read().revision
        while not self._ended.is_set():
            try:
                revision = self._board.wait(revision, POLL_INTERVAL).revision
                stamp = self._look(revision)
            except LizaError as error:  # a board that became invalid is told by the page itself
                stamp = f"error {error}"
                time.sleep(POLL_INTERVAL)
            if stamp != self.stamp:
                self.stamp = stamp
                self._wake()

    def _look(self, revision: int) -> str:
        thrown = " ".join(
            f"{name} {len(said)}" for name, said in sorted(self._board.switches.thrown().items())
        )
        return f"{revision} {int(self._board.presence.is_held(SUPERVISOR_NAME))} {thrown}".strip()

    def _wake(self) -> None:
        with self._lock:
            for loop, changed in self._listeners:
                if not loop.is_closed():
                    loop.call_soon_threadsafe(changed.set)
