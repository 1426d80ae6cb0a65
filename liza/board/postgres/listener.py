"""A thread that hears of changes: the server tells, and a look now and then finds what it could not tell."""

from __future__ import annotations

import logging
import os
import threading
import time
from typing import TYPE_CHECKING, Final

import psycopg

from liza.board.postgres.server import readable
from liza.board.watch import wait_for
from liza.errors import LizaError

if TYPE_CHECKING:
    from liza.board.postgres.server import Server

POLL: Final = 5.0  # seconds between two looks: a pool in between, or a broken connection, tells nothing
RETRY: Final = 0.5  # seconds between two tries to connect

log = logging.getLogger(__name__)


class Listener:
    """What one connection hears: the latest revision, the switches, and how often a switch was moved."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._heard = threading.Condition()
        self._is_over = False
        self._end, self._told_to_end = os.pipe()
        self.revision = 0
        self.alarms = 0
        self.switches: dict[str, str] | None = None  # None while the connection is broken
        self._thread = threading.Thread(target=self._listen, name="board listener", daemon=True)
        self._thread.start()

    def wait(self, since: int, alarms: int, timeout: float) -> None:
        """Return once there is a later revision than *since* or another alarm, or after *timeout* seconds."""
        wait_for(self._heard, lambda: self.revision > since or self.alarms > alarms or self._is_over, timeout)

    def wait_until_ready(self, timeout: float) -> bool:
        """Return whether it has looked once; from then on it misses nothing."""
        wait_for(self._heard, lambda: self.switches is not None, timeout)
        return self.switches is not None

    def note(self, revision: int) -> None:
        """Take note of a change that this process made or saw itself."""
        with self._heard:
            if revision > self.revision:
                self.revision = revision
                self._heard.notify_all()

    def learn(self, switches: dict[str, str]) -> None:
        """Take note of the switches as this process left them."""
        with self._heard:
            if self.switches is not None:
                self.switches = switches

    def close(self) -> None:
        with self._heard:
            if self._is_over:
                return
            self._is_over = True
            self._heard.notify_all()
        os.close(self._told_to_end)
        self._thread.join()
        os.close(self._end)

    def _listen(self) -> None:
        while not self._is_over:
            try:
                with self._server.connect() as connection:
                    self._follow(connection)
            except (psycopg.Error, LizaError) as error:
                log.debug("not heard from %s: %s", self._server.address, error)
                with self._heard:
                    self.switches = None
                    self._heard.wait_for(lambda: self._is_over, RETRY)

    def _follow(self, connection: psycopg.Connection) -> None:
        connection.execute("LISTEN liza")  # before the first look, so that nothing falls between the two
        while not self._is_over:
            self._look(connection)
            next_look = time.monotonic() + POLL
            while (left := next_look - time.monotonic()) > 0 and not self._is_over:
                if self._hear([told.payload for told in connection.notifies(timeout=0)]):
                    break
                readable([connection.fileno(), self._end], left)

    def _hear(self, payloads: list[str]) -> bool:
        """Take note of what the server told; return whether there is more to know than a revision."""
        said = [what for board, _, what in (one.partition(" ") for one in payloads) if board == self._board]
        revisions = [int(what) for what in said if what.isdecimal()]
        if revisions:
            self.note(max(revisions))  # without a look: all who wait would ask the server at once
        return len(revisions) < len(said)

    @property
    def _board(self) -> str:
        return self._server.address.board

    def _look(self, connection: psycopg.Connection) -> None:
        query = """
            SELECT b.revision, s.name, s.said FROM liza.board b
            LEFT JOIN liza.switch s ON s.board = b.name WHERE b.name = %s"""
        rows = connection.execute(query, (self._server.address.board,)).fetchall()
        switches = {str(name): str(said) for _, name, said in rows if name is not None}
        with self._heard:
            self.alarms += self.switches is not None and self.switches != switches
            self.switches = switches
            self.revision = rows[0][0] if rows else 0
            self._heard.notify_all()
