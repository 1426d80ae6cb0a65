"""A session with a server by libpq alone, for a process that asks a question or two and ends.

To import psycopg takes ten times as long as the question. Whatever goes wrong here is `NotAnswered`: the
caller asks again by psycopg, which waits for a server that may come back, and says what is wrong.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char_p, c_int, c_void_p
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

# Short, since whoever gets no answer here asks again.
OPTIONS: Final = {
    "client_encoding": "UTF8",
    "connect_timeout": "5",
    "application_name": "liza",
    "options": "-c TimeZone=UTC -c statement_timeout=60s",
    "tcp_user_timeout": "10000",
}
_IS_CONNECTED: Final = 0  # CONNECTION_OK
_HAS_ROWS: Final = 2  # PGRES_TUPLES_OK
# What each function of libpq that is called here takes and returns.
_FUNCTIONS: Final[dict[str, tuple[object, tuple[object, ...]]]] = {
    "PQconnectdbParams": (c_void_p, (POINTER(c_char_p), POINTER(c_char_p), c_int)),
    "PQstatus": (c_int, (c_void_p,)),
    "PQfinish": (None, (c_void_p,)),
    "PQexecParams": (
        c_void_p,
        (c_void_p, c_char_p, c_int, c_void_p, POINTER(c_char_p), c_void_p, c_void_p, c_int),
    ),
    "PQresultStatus": (c_int, (c_void_p,)),
    "PQntuples": (c_int, (c_void_p,)),
    "PQnfields": (c_int, (c_void_p,)),
    "PQgetisnull": (c_int, (c_void_p, c_int, c_int)),
    "PQgetvalue": (c_char_p, (c_void_p, c_int, c_int)),
    "PQclear": (None, (c_void_p,)),
}


class NotAnswered(Exception):
    """There is no libpq, no such server or no answer: psycopg tells which."""


class LibpqSession:
    """One connection, on which each question is a transaction of its own."""

    def __init__(self, conninfo: str, options: Mapping[str, str] = OPTIONS) -> None:
        self._library = _load()
        words = {"dbname": conninfo, **options}  # an address may stand where a database is named
        self._connection = self._library.PQconnectdbParams(_texts(words), _texts(words.values()), 1)
        if self._library.PQstatus(self._connection) != _IS_CONNECTED:
            self.close()
            raise NotAnswered

    def rows(self, query: str, *values: object) -> list[tuple[str | None, ...]]:
        """Return the rows of *query*, in which $1 is the first of *values*, as texts."""
        found = self._library.PQexecParams(
            self._connection, query.encode(), len(values), None, _texts(map(str, values)), None, None, 0
        )
        try:
            if self._library.PQresultStatus(found) != _HAS_ROWS:
                raise NotAnswered
            fields = range(self._library.PQnfields(found))
            return [
                tuple(self._text(found, row, field) for field in fields)
                for row in range(self._library.PQntuples(found))
            ]
        finally:
            self._library.PQclear(found)

    def _text(self, found: int, row: int, field: int) -> str | None:
        if self._library.PQgetisnull(found, row, field):
            return None
        text: bytes = self._library.PQgetvalue(found, row, field)
        return text.decode()

    def close(self) -> None:
        self._library.PQfinish(self._connection)
        self._connection = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _texts(words: Iterable[str]) -> ctypes.Array[c_char_p]:
    encoded = [word.encode() for word in words]
    return (c_char_p * (len(encoded) + 1))(*encoded, None)


@cache
def _load() -> ctypes.CDLL:
    """Return the libpq that psycopg brings, or else the system's; raise where there is none."""
    try:
        library = ctypes.CDLL(str(next(_brought(), "libpq.so.5")))
        for name, (returned, taken) in _FUNCTIONS.items():
            function = getattr(library, name)
            function.restype, function.argtypes = returned, taken
    except (OSError, AttributeError) as error:
        raise NotAnswered from error
    return library


def _brought() -> Iterator[Path]:
    spec = find_spec("psycopg_binary")
    if spec and spec.origin:
        yield from Path(spec.origin).parent.with_name("psycopg_binary.libs").glob("libpq-*.so*")
