"""The log of a board, and what comes after it, for as long as somebody looks."""

from __future__ import annotations

import json
from collections import deque
from typing import TYPE_CHECKING, Final

from liza.cli.views.status import log_json, log_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from liza.board.protocol import Board, JournalEntry

FOLLOW_TIMEOUT: Final = 60.0  # seconds of waiting before the follower looks again by itself


def log_lines(
    board: Board, *, last: int | None, task: str | None, follow: bool, as_json: bool
) -> Iterator[str]:
    """Yield a line a change: those that there are, then, with *follow*, those that come."""
    seen = 0
    wanted: deque[JournalEntry] = deque(maxlen=last)
    for entry in board.entries():
        seen = entry.revision
        if _touches(entry, task):
            wanted.append(entry)
    yield from (_line(entry, as_json=as_json) for entry in wanted)
    while follow:
        board.wait(seen, FOLLOW_TIMEOUT)
        for entry in board.entries(seen):
            seen = entry.revision
            if _touches(entry, task):
                yield _line(entry, as_json=as_json)


def _line(entry: JournalEntry, *, as_json: bool) -> str:
    return json.dumps(log_json(entry)) if as_json else log_line(entry)


def _touches(entry: JournalEntry, task: str | None) -> bool:
    return task is None or task in entry.put.get("tasks", {}) or task in entry.gone.get("tasks", ())
