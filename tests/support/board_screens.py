"""The screen of `liza watch` without a terminal: textual's own pilot presses keys and reads what is drawn."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from liza.cli.terminal.app import BoardApp

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from textual.pilot import Pilot

    from liza.board.protocol import Board

PATIENCE: Final = 60.0  # seconds that anything may take on a busy machine
LOOK: Final = 0.1  # seconds between two looks at the screen
SMALL: Final = (80, 24)
LARGE: Final = (200, 60)


class Viewer:
    """Somebody before the screen."""

    def __init__(self, app: BoardApp, pilot: Pilot[None]) -> None:
        self.app = app
        self._pilot = pilot

    @property
    def text(self) -> str:
        """What is on the screen now."""
        strips = self.app.screen._compositor.render_strips()
        return "\n".join(strip.text.rstrip() for strip in strips)

    async def press(self, *keys: str) -> None:
        await self._pilot.press(*keys)

    async def write(self, text: str) -> None:
        """Type *text* and send it."""
        await self._pilot.press(*("space" if sign == " " else sign for sign in text), "enter")

    async def resize(self, width: int, height: int) -> None:
        await self._pilot.resize_terminal(width, height)

    async def sees(self, *words: str) -> str:
        """Wait until all *words* are on the screen, and return it."""
        await self.until(lambda: all(word in self.text for word in words), lambda: f"{words} in\n{self.text}")
        return self.text

    async def until(self, holds: Callable[[], bool], what: Callable[[], str] = lambda: "") -> None:
        deadline = time.monotonic() + PATIENCE
        while not holds():
            assert time.monotonic() < deadline, what()
            await self._pilot.pause(LOOK)


def look_at(
    board: Board, story: Callable[[Viewer], Coroutine[None, None, None]], size: tuple[int, int] = SMALL
) -> None:
    """Let *story* happen before a screen of *size* that shows *board*."""

    async def run() -> None:
        app = BoardApp(board)
        async with app.run_test(size=size, notifications=True) as pilot:
            await story(Viewer(app, pilot))

    asyncio.run(run())
