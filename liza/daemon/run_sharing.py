"""Copies runs that ended to a directory that other machines reach, where the settings name one."""

from __future__ import annotations

import os
import shutil
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from liza.agents.protocol import REPLY, latest_runs
from liza.board.protocol import open_board
from liza.daemon.recover import RUNS
from liza.errors import LizaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from liza.board.protocol import Board

INTERVAL: Final = 5.0  # seconds between two looks for what has ended
DRAIN: Final = 3.0  # seconds that the end of a run waits for what is not copied yet


@contextmanager
def share_runs(home: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Copy runs as they end, in a thread, so that a directory that hangs holds up no work."""
    board, closing = open_board(home), threading.Event()
    sharer = RunSharer(board, say)

    def work() -> None:
        while not closing.wait(INTERVAL):
            sharer.share()
        sharer.share(is_over=True)

    thread = threading.Thread(target=work, name="runs", daemon=True)
    thread.start()
    try:
        yield
    finally:
        closing.set()
        thread.join(DRAIN)
        board.close()


class RunSharer:
    """Remembers which runs were copied."""

    def __init__(self, board: Board, say: Callable[[str], None]) -> None:
        self._board = board
        self._say = say
        self._runs = board.home / RUNS
        self._done: set[str] = set()
        self._trouble = ""

    def share(self, *, is_over: bool = False) -> None:
        """Copy every run that ended; with *is_over* no worker runs, so that all have ended."""
        try:
            named = self._board.read().config.transcripts
        except LizaError:  # the board is away, which the run itself says
            return
        if named is None or not self._runs.is_dir():
            return
        try:
            self._share(self._board.home.parent / named, is_over=is_over)
            self._trouble = ""
        except OSError as error:  # as that of copying is
            why = error.strerror or str(error)
            if why != self._trouble:
                self._say(f"runs cannot be copied to {named}: {why}; tried again until they are")
            self._trouble = why

    def _share(self, target: Path, *, is_over: bool) -> None:
        target.mkdir(parents=True, exist_ok=True)
        for name in self._runs_to_share(is_over=is_over):
            _copy(self._runs / name, target)
            self._done.add(name)

    def _runs_to_share(self, *, is_over: bool) -> list[str]:
        """Return the runs that ended; a gate's has no reply, and is over when its worker began another."""
        names = [entry.name for entry in os.scandir(self._runs) if entry.is_dir(follow_symlinks=False)]
        latest = frozenset() if is_over else latest_runs(names)
        new = (name for name in names if name not in self._done)
        return sorted(name for name in new if name not in latest or (self._runs / name / REPLY).exists())


def _copy(folder: Path, target: Path) -> None:
    """Copy *folder* into *target*, whole or not at all, unless it is there."""
    if (target / folder.name).exists():
        return
    draft = target / f".{folder.name}.{os.getpid()}"
    shutil.rmtree(draft, ignore_errors=True)
    shutil.copytree(folder, draft, symlinks=True)
    draft.rename(target / folder.name)
