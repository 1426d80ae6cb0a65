"""One connection for small questions, shared by the threads of a process and made anew where it broke."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, LiteralString

import psycopg

from liza.board.postgres.server import PASSING, Server

if TYPE_CHECKING:
    from collections.abc import Sequence


class SharedConnection:
    def __init__(self, server: Server) -> None:
        self.server = server
        self.board = server.address.board
        self._mutex = threading.Lock()
        self._connection: psycopg.Connection | None = None

    def call(self, query: LiteralString, values: Sequence[object]) -> list[tuple[Any, ...]]:
        """Return the rows of *query*, which may be asked twice where the connection broke."""
        with self._mutex:
            return self.server.retry(lambda: self._call(query, values))

    def _call(self, query: LiteralString, values: Sequence[object]) -> list[tuple[Any, ...]]:
        if self._connection is None or self._connection.closed or self._connection.broken:
            self._connection = self.server.connect()
        try:
            return self._connection.execute(query, values).fetchall()
        except PASSING:
            self._close()
            raise

    def close(self) -> None:
        with self._mutex:
            self._close()

    def __del__(self) -> None:
        self._close()  # a board need not be closed by whoever only looked

    def _close(self) -> None:
        if self._connection is not None:
            with suppress(psycopg.Error):
                self._connection.close()
        self._connection = None

    def abandon(self) -> None:
        """Forget the connection without ending it: it is the one of the process that this was forked from."""
        self._mutex, self._connection = threading.Lock(), None
