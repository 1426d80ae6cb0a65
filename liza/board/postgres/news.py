"""What a server says to those who follow a board: the lines behind a place, and the time."""

from __future__ import annotations

import json
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from liza.errors import BoardRewound

if TYPE_CHECKING:
    from pathlib import Path

    import psycopg
    from psycopg import ClientCursor

    from liza.board.postgres.address import Address
    from liza.board.postgres.libpq import LibpqSession

SEEN: Final = "seen.json"  # in the home: the last change that this machine knows to be on the server

# Two tables: once the time, and the sum at the place, which says whether it is the one that was seen; then
# the lines, with nothing beside them, since each is read by everybody.
NEWS: Final = """
SELECT clock_timestamp(), (SELECT sum FROM liza.entry WHERE board = b.name AND ends = %(after)s)
FROM liza.board b WHERE name = %(board)s;
SELECT line FROM liza.entry WHERE board = %(board)s AND ends > %(after)s ORDER BY ends"""


class News(NamedTuple):
    """What the server said to `NEWS`, and when it was asked and answered by this process's steady clock."""

    after: int
    head: tuple[datetime, str | None] | None  # None where there is no board
    texts: list[str]
    asked: float
    answered: float


def read_news(tables: list[list[tuple[Any, ...]]], after: int, asked: float) -> News:
    """Return what the last two of *tables* say."""
    head, lines = tables[-2:]
    return News(after, head[0] if head else None, [line for (line,) in lines], asked, time.monotonic())


def fetch_tables(cursor: ClientCursor[tuple[Any, ...]]) -> list[list[tuple[Any, ...]]]:
    """Return the rows of each statement that was executed."""
    tables = [cursor.fetchall() if cursor.description else []]
    while cursor.nextset():
        tables.append(cursor.fetchall())
    return tables


def ask_news(connection: psycopg.Connection, board: str, after: int) -> News:
    """Return the news of *board* behind the place *after*."""
    from psycopg import ClientCursor  # noqa: PLC0415 - who asks by libpq alone does not load it

    asked = time.monotonic()
    with ClientCursor(connection) as cursor:
        cursor.execute(NEWS, {"board": board, "after": after})
        return read_news(fetch_tables(cursor), after, asked)


def ask_news_by_libpq(session: LibpqSession, board: str, after: int) -> News:
    """Return the same, asked without psycopg."""
    asked = time.monotonic()
    head = session.rows(
        "SELECT clock_timestamp(), (SELECT sum FROM liza.entry WHERE board = b.name AND ends = $2) "
        "FROM liza.board b WHERE name = $1",
        board,
        after,
    )
    texts = session.rows(
        "SELECT line FROM liza.entry WHERE board = $1 AND ends > $2 ORDER BY ends", board, after
    )
    known = (datetime.fromisoformat(str(head[0][0])), head[0][1]) if head else None
    return News(after, known, [str(line) for (line,) in texts], asked, time.monotonic())


class Seen(NamedTuple):
    """The last change of a board that this machine knows to have been on the server."""

    offset: int
    sum: str
    revision: int


def last_seen(address: Address, home: Path) -> Seen | None:
    """Return what was noted in *home*; None where nothing was, or it is of another board."""
    try:
        first = (home / SEEN).read_text().partition("\n")[0]
        place, offset, total, revision = json.loads(first)
    except (OSError, ValueError):
        return None
    return Seen(offset, total, revision) if place == str(address) else None


def check_seen(connection: psycopg.Connection, address: Address, home: Path) -> None:
    """Raise where this machine saw a change of the board that the server does not have any more."""
    seen = last_seen(address, home)
    query = "SELECT FROM liza.entry WHERE board = %s AND ends = %s AND sum = %s"
    if seen and connection.execute(query, (address.board, seen.offset, seen.sum)).fetchone() is None:
        raise BoardRewound(str(address), seen.revision, home / SEEN)
