"""The switches of a board on a server: each is a row, and everybody is told of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

    from liza.board.postgres.listener import Listener
    from liza.board.postgres.server import SharedConnection
    from liza.domain.config import Switch


class PostgresSwitches:
    def __init__(self, shared: SharedConnection) -> None:
        self._shared = shared
        self.listener: Listener | None = None  # who hears of them all the time, once somebody waited

    def thrown(self) -> dict[str, str]:
        heard = self.listener.switches if self.listener else None
        return self._read() if heard is None else dict(heard)

    def throw(self, switch: Switch, said: str) -> bool:
        values = (self._shared.board, switch.name, _one_line(said))
        is_new = bool(self._shared.call("SELECT liza.throw_switch(%s, %s, %s)", values)[0][0])
        self._read()
        return is_new

    def replace(self, switch: Switch, said: str) -> None:
        values = (self._shared.board, switch.name, _one_line(said))
        self._shared.call("SELECT liza.replace_switch(%s, %s, %s)", values)
        self._read()

    def clear(self, switch: Switch) -> None:
        self._shared.call("SELECT liza.clear_switch(%s, %s)", (self._shared.board, switch.name))
        self._read()

    def thrown_at(self, switch: Switch) -> datetime | None:
        query = "SELECT at FROM liza.switch WHERE board = %s AND name = %s"
        rows = self._shared.call(query, (self._shared.board, switch.name))
        return rows[0][0] if rows else None

    def place_of(self, switch: Switch) -> str:
        return f"{switch.name} on {self._shared.server.address}"

    def _read(self) -> dict[str, str]:
        query = "SELECT name, said FROM liza.switch WHERE board = %s"
        rows = self._shared.call(query, (self._shared.board,))
        found = {str(name): str(said) for name, said in rows}
        if self.listener:
            self.listener.learn(found)
        return found


def _one_line(said: str) -> str:
    return " ".join(said.replace("\0", " ").split())
