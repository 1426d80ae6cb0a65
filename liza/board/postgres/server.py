"""A server's address and schema, and connections to it: each error is a sentence, a break is mended."""

from __future__ import annotations

import logging
import os
import random
import re
import secrets
import select
import threading
import time
from contextlib import suppress
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, LiteralString, TypeVar
from weakref import WeakSet

import psycopg
from psycopg import errors, sql

from liza.board.postgres.address import LATEST, MIGRATIONS, Address
from liza.errors import BoardUnreachable, LizaError, Refused, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


# The schema of the database, by version: made by its owner, known by everybody else.


_MIGRATING: Final = 7612310  # the advisory lock of whoever migrates

_TABLES: Final = ("board", "entry", "task", "switch", "alert", "migration")
_READS: Final = (
    "live_names(text)",
    "known_hosts(text)",
    "waiting_tasks(text)",
    "key(text,text)",
    "is_owner()",
)
_WRITES: Final = (
    "lock_board(text)",
    "commit(text,uuid,text,text,text)",
    "throw_switch(text,text,text)",
    "append_alert(text,text,text)",
    "hold_name(text,text,json,text)",
    "remove_stale(text)",
    "note_host(text,text,json,text)",
    "share_secret(text,text)",
    # What only its owner may do says so itself, in a sentence.
    "restore(text,text[])",
    "replace_switch(text,text,text)",
    "clear_switch(text,text)",
    "mark_sent(text,bigint)",
)
RIGHTS: Final[dict[str, tuple[str, ...]]] = {"reader": _READS, "worker": (*_READS, *_WRITES)}


def _statement(text: str, role: sql.Identifier) -> sql.Composed:
    return sql.SQL(text).format(role)  # of the tables above alone


def version_of(connection: psycopg.Connection) -> int:
    """Return the version of the schema; 0 where there is none."""
    found = connection.execute("SELECT to_regclass('liza.migration') IS NOT NULL").fetchone()
    if not found or not found[0]:
        return 0
    row = connection.execute("SELECT max(version) FROM liza.migration").fetchone()
    return int(row[0] or 0) if row else 0


def require_schema(connection: psycopg.Connection, address: Address) -> None:
    """Raise where a newer Liza made the schema; bring an older one up where its owner asks."""
    version = version_of(connection)
    if version > LATEST:
        raise LizaError(
            f"the database of {address} is of version {version}, and this Liza knows {LATEST}; "
            "upgrade Liza on this machine"
        )
    if 0 < version < LATEST:
        try:
            migrate(connection)
        except errors.InsufficientPrivilege as error:
            raise LizaError(
                f"the database of {address} is of version {version}, and this Liza needs {LATEST}; "
                "let the owner of the board run `liza status` with this Liza, which brings it up"
            ) from error


def make_schema(connection: psycopg.Connection, address: Address) -> None:
    """Bring the schema to the latest version, where there is none as well."""
    try:
        migrate(connection)
    except errors.InsufficientPrivilege as error:
        if version_of(connection):
            raise
        database, user = connection.info.dbname, connection.info.user
        raise LizaError(
            f"{address}: {user} may not make a board in this database; let its owner run "
            f"`GRANT CREATE ON DATABASE {database} TO {user}`"
        ) from error


def migrate(connection: psycopg.Connection) -> None:
    """Bring the schema to the latest version, in one transaction that only one process makes."""
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_MIGRATING,))
        for number in range(version_of(connection), LATEST):
            text = files("liza.board.postgres").joinpath(MIGRATIONS[number]).read_text()
            connection.execute(text.encode())
            connection.execute("INSERT INTO liza.migration (version) VALUES (%s)", (number + 1,))


def grant(connection: psycopg.Connection, right: str, role: str) -> None:
    """Give *role* of the database exactly what a worker, or a reader, needs."""
    if right not in RIGHTS:
        raise UsageError(f"{right!r} is no right on a board; there are {' and '.join(sorted(RIGHTS))}")
    name = sql.Identifier(role)
    with connection.transaction():
        found = connection.execute("SELECT FROM pg_roles WHERE rolname = %s", (role,)).fetchone()
        if found is None:
            raise UsageError(f"the server has no role {role!r}; make it first (`createuser {role}`)")
        for text in (
            "REVOKE ALL ON ALL TABLES IN SCHEMA liza FROM {}",
            "REVOKE ALL ON ALL FUNCTIONS IN SCHEMA liza FROM {}",
            "GRANT USAGE ON SCHEMA liza TO {}",
        ):
            connection.execute(_statement(text, name))
        for table in _TABLES:
            connection.execute(
                sql.SQL("GRANT SELECT ON {} TO {}").format(sql.Identifier("liza", table), name)
            )
        for function in RIGHTS[right]:
            text = f"GRANT EXECUTE ON FUNCTION liza.{function} TO {{}}"
            connection.execute(_statement(text, name))


OLDEST_SERVER: Final = 130000  # PostgreSQL 13: gen_random_uuid
CONNECT_TIMEOUT: Final = 10  # seconds for one try; a busy server takes some
PATIENCE: Final = 30.0  # seconds in which a server may come back; a restart takes two, a failover more
LONGEST_PAUSE: Final = 1.0  # seconds between two tries
# What bounds the harm of a peer that is stopped or cut off, and what a commit must be whatever the default.
SETTINGS: Final = {
    "synchronous_commit": "on",
    "TimeZone": "UTC",
    "default_transaction_isolation": "read\\ committed",
    "idle_in_transaction_session_timeout": "5s",
    "lock_timeout": "20s",
    "statement_timeout": "60s",
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "10000",
}
# What a server says that will be there again, or has no place for another one yet.
PASSING: Final = (
    errors.OperationalError,
    errors.InterfaceError,
    errors.IdleInTransactionSessionTimeout,
    errors.LockNotAvailable,
    errors.QueryCanceled,
    errors.AdminShutdown,
    errors.CrashShutdown,
    errors.CannotConnectNow,
    errors.ReadOnlySqlTransaction,
)
# Of these, what says that there is a server, though nobody has been there yet.
BUSY: Final = (errors.ConnectionTimeout, errors.CannotConnectNow)
# Each is a mistake that time does not mend: what it means, and what to do.
MISTAKES: Final[dict[str, str]] = {
    "28P01": "the password is wrong or missing; put it into ~/.pgpass, PGPASSWORD or LIZA_BOARD",
    "28000": "the server lets nobody in as that user from here; ask its owner for an entry in pg_hba.conf",
    "3D000": "there is no such database; make it (`createdb`), or mend the address",
    "42501": "that user lacks a right; let the owner of the board run `liza board grant`",
}

OWNER_ONLY: Final = "LZ003"  # by this code a function of the server says that only the owner may call it
NO_BOARD: Final = frozenset({"42P01", "3F000", "42883", "LZ007"})  # no table, schema, function or row of ours

_secret: list[str] = []  # of this process; by it the server knows who holds a name

# Connections of the process that this one was forked from: ended here, even as garbage, they end for both.
_of_parent: Final[list[psycopg.Connection]] = []
_open: Final[WeakSet[psycopg.Connection]] = WeakSet()

Result = TypeVar("Result")
log = logging.getLogger(__name__)


def process_secret() -> str:
    """Return what proves to the server that a change comes from the process that holds a name."""
    if not _secret:
        _secret.append(secrets.token_hex(16))
    return _secret[0]


os.register_at_fork(after_in_child=_secret.clear)


class Server:
    """The way to one board on one server; the first try has to succeed, later ones are repeated."""

    def __init__(self, address: Address, *, patience: float = PATIENCE) -> None:
        self.address = address
        self.patience = patience
        self._was_there = False

    def connect(self) -> psycopg.Connection:
        """Return a new session in which each statement is a transaction; raise LizaError for a mistake."""
        options = " ".join(f"-c {name}={value}" for name, value in SETTINGS.items())
        try:
            connection = psycopg.connect(
                self.address.conninfo,
                autocommit=True,
                connect_timeout=CONNECT_TIMEOUT,
                application_name="liza",
                options=options,
                keepalives_idle=5,
                keepalives_interval=2,
                keepalives_count=3,
                tcp_user_timeout=10000,
                # A server behind a pool or a proxy may be another one for each statement.
                prepare_threshold=None,
            )
        except psycopg.Error as error:
            if isinstance(error, psycopg.ProgrammingError) or _MALFORMED.search(str(error)):
                said = f"{self.address} is no address of a server: {_one_line(error)}"
                raise UsageError(said) from error
            raise self.as_mistake(error) or error from error
        try:
            self._check(connection)
        except BaseException:
            connection.close()
            raise
        self._was_there = True
        _open.add(connection)
        return connection

    def _check(self, connection: psycopg.Connection) -> None:
        if connection.info.server_version < OLDEST_SERVER:
            raise LizaError(
                f"{self.address} runs PostgreSQL {connection.info.server_version // 10000}, "
                f"and Liza needs {OLDEST_SERVER // 10000} or newer; upgrade the server"
            )
        encoding = connection.info.parameter_status("server_encoding")
        if encoding != "UTF8":
            raise LizaError(f"the database of {self.address} is in {encoding}; make one with ENCODING 'UTF8'")
        # The secret is a setting of the session: whoever has the same role can read the text of its queries.
        query = "SELECT pg_is_in_recovery(), set_config('liza.secret', %s, false)"
        row = connection.execute(query, (process_secret(),)).fetchone()
        if row and row[0]:
            raise errors.ReadOnlySqlTransaction(f"{self.address} is a replica; name the primary")
        require_schema(connection, self.address)

    def retry(self, work: Callable[[], Result]) -> Result:
        """Return what *work* does, once more where the connection broke and the server may come back."""
        deadline, pause = time.monotonic() + self.patience, 0.05
        while True:
            try:
                return work()
            except PASSING as error:
                if mistake := self.as_mistake(error):
                    raise mistake from error
                if time.monotonic() > deadline or not (self._was_there or isinstance(error, BUSY)):
                    raise self.unreachable(error) from error
                log.debug("%s: %s; once more", self.address, error)
            except psycopg.Error as error:
                raise self.as_mistake(error) or error from error
            time.sleep(pause * random.uniform(0.5, 1))  # noqa: S311 - so that not all come back at once
            pause = min(2 * pause, LONGEST_PAUSE)

    def unreachable(self, error: Exception) -> BoardUnreachable:
        return BoardUnreachable(str(self.address), _one_line(error))

    def as_mistake(self, error: psycopg.Error) -> LizaError | None:
        """Return the sentence for what only a person can mend; None for what may pass."""
        # While a connection is made, libpq gives the words of the server and not its code.
        code = error.sqlstate or _code_in(str(error))
        if code == OWNER_ONLY:
            return Refused(f"{error.diag.message_primary}; connect to {self.address} as the owner")
        if code in NO_BOARD:
            return LizaError(f"there is no board at {self.address}; `liza init` makes one")
        if code not in MISTAKES:
            return None
        return LizaError(f"{self.address}: {MISTAKES[code]} ({_one_line(error)})")


# What libpq says of an option before it asks anybody.
_MALFORMED: Final = re.compile(r"^connection is bad: invalid ")
_CODES: Final = {
    re.compile(r"password authentication failed|no password supplied|fe_sendauth"): "28P01",
    re.compile(r"no pg_hba.conf entry|role .* does not exist|authentication failed"): "28000",
    re.compile(r"database .* does not exist"): "3D000",
    re.compile(r"permission denied"): "42501",
}


def _code_in(said: str) -> str | None:
    return next((code for pattern, code in _CODES.items() if pattern.search(said)), None)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def readable(descriptors: Iterable[int], seconds: float | None) -> set[int]:
    """Return which of *descriptors* can be read, after at most *seconds*."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return {found for found, _ in poll.poll(None if seconds is None else 1000 * seconds)}


def _leave_to_parent() -> None:
    """Let go of what the process has open that this one was forked from, without a word to the server.

    A copy of its socket would keep its session, and with it its names and locks, alive after its death.
    """
    for connection in [one for one in _open if not one.closed]:
        nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        os.dup2(nothing, connection.fileno(), inheritable=False)
        os.close(nothing)
        _of_parent.append(connection)
    _open.clear()


os.register_at_fork(after_in_child=_leave_to_parent)


# One connection for small questions, shared by the threads of a process and made anew where it broke.


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
