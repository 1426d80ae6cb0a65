"""The alerts of a board on a server: one row each, in one order for everybody."""

from __future__ import annotations

from typing import TYPE_CHECKING

from liza.board.alerts import alert_line
from liza.board.protocol import Alert

if TYPE_CHECKING:
    from datetime import datetime

    from liza.board.postgres.server import SharedConnection


class PostgresAlerts:
    def __init__(self, shared: SharedConnection) -> None:
        self._shared = shared

    def append(self, sentence: str, *, at: datetime) -> None:
        values = (self._shared.board, f"{at:%Y-%m-%dT%H:%M:%SZ}", alert_line(sentence))
        self._shared.call("SELECT liza.append_alert(%s, %s, %s)", values)

    def after(self, position: int) -> list[Alert]:
        query = (
            "SELECT position, at, says FROM liza.alert WHERE board = %s AND position > %s ORDER BY position"
        )
        start = 0 if position > self.end() else position
        return [Alert(*row) for row in self._shared.call(query, (self._shared.board, start))]

    def end(self) -> int:
        query = "SELECT coalesce(max(position), 0) FROM liza.alert WHERE board = %s"
        return int(self._shared.call(query, (self._shared.board,))[0][0])

    def sent(self) -> int:
        rows = self._shared.call("SELECT sent FROM liza.board WHERE name = %s", (self._shared.board,))
        return int(rows[0][0]) if rows else 0

    def mark_sent(self, position: int) -> None:
        self._shared.call("SELECT liza.mark_sent(%s, %s)", (self._shared.board, position))
