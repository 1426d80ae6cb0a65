"""The journal of a board on a server: read from where one left off, written by one call of the server."""

from __future__ import annotations

import json
import os
import random
import time
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, LiteralString, NamedTuple
from uuid import uuid4

import psycopg
from psycopg import ClientCursor

from liza.board.journal import JournalPosition, decode_line, encode_entry
from liza.board.postgres.news import NEWS, SEEN, News, ask_news, check_seen, fetch_tables, read_news
from liza.board.postgres.server import PASSING
from liza.errors import BoardRewound, ConcurrentChange, LeaseLost, LizaError, Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from liza.board.journal import JournalLine
    from liza.board.postgres.server import Server
    from liza.board.protocol import JournalEntry

NOWHERE: Final = 2**63 - 1  # a place behind every line
SEEN_SIZE: Final = 512  # bytes, so that what was there is covered

# Of those who wait for the lock, so many read meanwhile what the others wrote. With one, everybody would wait
# for it wherever that takes longer than a turn; each more has another's change to read under the lock.
QUEUES: Final = 2
# Each of these is one message: every way to the server and back counts while everybody waits. Where nobody
# has the lock, the first brings it at once, and the news as they are under it.
_QUEUE: Final = (
    "BEGIN; SELECT pg_advisory_lock(liza.key(%(board)s, %(queue)s)); "
    "SELECT locked, CASE WHEN locked THEN pg_advisory_unlock(liza.key(%(board)s, %(queue)s)) END "
    "FROM (SELECT pg_try_advisory_xact_lock(liza.key(%(board)s, '')) AS locked OFFSET 0) AS tried;" + NEWS
)
_LOCK: Final = (
    "SELECT liza.lock_board(%(board)s); SELECT pg_advisory_unlock(liza.key(%(board)s, %(queue)s));" + NEWS
)
_LOCK_AT_ONCE: Final = "BEGIN; SELECT liza.lock_board(%s)"
# What proves who writes is a setting of the session, for others of the same role can read this text.
_COMMIT: Final = "SELECT liza.commit(%s, %s, %s, %s, current_setting('liza.secret', true)); COMMIT"


class ServerTime(NamedTuple):
    """What the server's clock said, and what this process's steady one did then."""

    at: datetime
    steady: float

    def now(self) -> datetime:
        return self.at_steady(time.monotonic())

    def at_steady(self, steady: float) -> datetime:
        return self.at + timedelta(seconds=steady - self.steady)


class PostgresJournal:
    """The lines on the server. One thread at a time uses it, except for `reread`."""

    def __init__(self, server: Server, home: Path) -> None:
        self.server = server
        self._home = home
        self._connection: psycopg.Connection | None = None
        self._is_locked = False
        self._seen = -1  # descriptor of what was seen
        self.clock: ServerTime | None = None
        self._revision = 0  # the latest that was seen, to say which one was lost
        self._mark = JournalPosition()  # the end of what was seen
        self._brought: News | None = None  # what came along with the lock, until it is taken

    @property
    def place(self) -> str:
        return str(self.server.address)

    def connection(self) -> psycopg.Connection:
        """Return the session, a new one where there is none or it broke."""
        if self._connection is None or self._connection.closed or self._connection.broken:
            self.close()
            self._connection = self.server.connect()
            check_seen(self._connection, self.server.address, self._home)
        return self._connection

    def close(self) -> None:
        if self._connection is not None:
            with suppress(psycopg.Error):
                self._connection.close()
        self._connection, self._is_locked, self._brought = None, False, None

    def __del__(self) -> None:
        self.close()  # a board need not be closed by whoever only looked
        if self._seen >= 0:
            os.close(self._seen)

    def abandon(self) -> None:
        """Forget the session without ending it: it is the one of the process that this was forked from."""
        self._connection, self._is_locked, self._brought = None, False, None

    def now(self) -> datetime:
        """Return the time by the server's clock, whatever this machine's says."""
        if self.clock is None:
            self.server.retry(self._ask_time)
        return self.clock.now() if self.clock else datetime.now(UTC)

    def _ask_time(self) -> None:
        before = time.monotonic()
        row = self.connection().execute("SELECT clock_timestamp()").fetchone()
        if row:
            self.clock = ServerTime(row[0].astimezone(UTC), before)

    @contextmanager
    def locked(self, catch_up: Callable[[], object]) -> Iterator[None]:
        """Hold the lock of the board on the server, all news known, until a line is written or this ends.

        Only the first of each queue waits for the lock itself, and catches up while its holder still works:
        so the news that many made are read by each of them outside of its own turn.
        """
        connection, queue = self.connection(), f"/next-{random.randrange(QUEUES)}"  # noqa: S311 - to spread them
        try:
            with ClientCursor(connection) as cursor:
                is_locked = self._bring_news(cursor, _QUEUE, queue)
                catch_up()
                if not is_locked:
                    self._bring_news(cursor, _LOCK, queue)
                    catch_up()
        except BaseException:
            self.close()  # the place in the queue is the session's, and goes with it alone
            raise
        self._is_locked = True
        try:
            yield
        finally:
            if self._is_locked:
                self._is_locked = False
                # Where the session is gone the lock is, too.
                with suppress(psycopg.Error):
                    connection.execute("ROLLBACK")

    def _bring_news(self, cursor: ClientCursor[tuple[Any, ...]], query: LiteralString, queue: str) -> bool:
        """Ask *query*, keep the news that it ends with, and return whether the lock came at once."""
        # Who knows nothing yet reads a snapshot first, and asks then.
        after = self._mark.offset or NOWHERE
        asked = time.monotonic()
        cursor.execute(query, {"board": self.server.address.board, "after": after, "queue": queue})
        tables = fetch_tables(cursor)
        self._brought = read_news(tables, after, asked)
        return tables[-3][0][0] is True

    def holds(self, mark: JournalPosition) -> bool:
        if not mark.offset:
            return True
        values = (self.server.address.board, mark.offset, mark.sum)
        query = "SELECT FROM liza.entry WHERE board = %s AND ends = %s AND sum = %s"
        return self.connection().execute(query, values).fetchone() is not None

    def news(self, after: JournalPosition) -> list[JournalLine]:
        """Return the lines behind *after*; raise BoardRewound where the server does not know that place."""
        brought, self._brought = self._brought, None
        found = brought if brought and brought.after == after.offset else self._ask_news(after.offset)
        if found.head is None:
            raise LizaError(f"there is no board at {self.place}; `liza init` makes one")
        at, total = found.head
        self._learn_time(at, found)
        if after.offset and total != after.sum:
            raise BoardRewound(self.place, self._revision, self._home / SEEN)
        return self._decode(found.texts, after)

    def _ask_news(self, after: int) -> News:
        return ask_news(self.connection(), self.server.address.board, after)

    def _learn_time(self, at: datetime, news: News) -> None:
        """Mend the clock where it cannot be right: the server said *at* while *news* were waited for."""
        earliest, latest = at, at + timedelta(seconds=news.answered - news.asked)
        known = self.clock.at_steady(news.answered) if self.clock else latest
        self.clock = ServerTime(min(max(known, earliest), latest).astimezone(UTC), news.answered)

    def _decode(self, texts: list[str], after: JournalPosition) -> list[JournalLine]:
        lines: list[JournalLine] = []
        for text in texts:
            line = decode_line(text.encode() + b"\n", after)
            if line is None:
                raise LizaError(f"{self.place}: a line of the journal was changed after it was written")
            after = line.mark
            lines.append(line)
        if lines:
            self._revision = lines[-1].entry.revision
        self._mark = after
        return lines

    def reread(self, after: JournalPosition) -> Iterator[JournalLine]:
        """Yield the lines behind *after* from a session of its own."""
        other = PostgresJournal(self.server, self._home)
        try:
            yield from self.server.retry(lambda: other.news(after))
        finally:
            other.close()

    def position_of(self, revision: int) -> JournalPosition:
        """Return the place behind *revision*; the beginning, where there is none of that number."""
        query = "SELECT ends, sum FROM liza.entry WHERE board = %s AND revision = %s"
        row = self.connection().execute(query, (self.server.address.board, revision)).fetchone()
        return JournalPosition(*row) if row else JournalPosition()

    def texts(self) -> list[bytes]:
        """Return the lines as a file would hold them."""
        query = "SELECT line FROM liza.entry WHERE board = %s ORDER BY revision"
        rows = self.connection().execute(query, (self.server.address.board,)).fetchall()
        return [text.encode() + b"\n" for (text,) in rows]

    def append(self, entry: JournalEntry, after: JournalPosition) -> JournalPosition:
        """Commit *entry* in one call; where the reply is lost, look whether it was done."""
        line, mark = encode_entry(entry, after)
        operation = uuid4()
        board = self.server.address.board
        call: LiteralString = _COMMIT
        values = [board, operation, after.sum, line.decode()[:-1]]
        if not self._is_locked:
            call, values = f"{_LOCK_AT_ONCE}; {_COMMIT}", [board, *values]
        connection, self._is_locked = self.connection(), False
        try:
            with ClientCursor(connection) as cursor:
                cursor.execute(call, values)
        except PASSING:
            self.close()
            if not self.server.retry(lambda: self._was_done(str(operation))):
                raise
        except psycopg.Error as error:
            with suppress(psycopg.Error):
                connection.execute("ROLLBACK")
            raise _refusal(error, entry) from error
        self._revision, self._mark = entry.revision, mark
        self._note_seen(mark, entry.revision)
        return mark

    def _was_done(self, operation: str) -> bool:
        """Return whether a commit landed whose reply was lost; it waits until a late one has ended."""
        connection, board = self.connection(), self.server.address.board
        with connection.transaction():
            connection.execute("SELECT liza.lock_board(%s)", (board,))
            query = "SELECT FROM liza.entry WHERE board = %s AND operation = %s"
            return connection.execute(query, (board, operation)).fetchone() is not None

    def _note_seen(self, mark: JournalPosition, revision: int) -> None:
        text = json.dumps([self.place, *mark, revision])
        with suppress(OSError):  # without it the next process of this machine only knows less
            if self._seen < 0:
                self._seen = os.open(self._home / SEEN, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            # In place, which is a hundred times cheaper than a new file; a torn one is passed over.
            os.pwrite(self._seen, f"{text}\n".ljust(SEEN_SIZE).encode(), 0)


def _refusal(error: psycopg.Error, entry: JournalEntry) -> Exception:
    """Return what the server's function meant; the error itself where it means nothing of ours."""
    said = error.diag.message_primary or str(error)
    match error.sqlstate:
        case "LZ001" | "LZ002":
            return ConcurrentChange(f"{entry.what!r} by {entry.by} came too late: {said}")
        case "LZ003":
            return Refused(f"{entry.by} may not {entry.what}: {said}; connect as the owner")
        case "LZ004":
            task, _, why = said.partition(": ")
            return LeaseLost(task, entry.by, entry.what, why)
        case _:
            return error
