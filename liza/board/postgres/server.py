"""Connections to the server, each error as a sentence, and what to do once more where one broke."""

from __future__ import annotations

import logging
import os
import random
import re
import select
import time
from typing import TYPE_CHECKING, Final, TypeVar
from weakref import WeakSet

import psycopg
from psycopg import errors

from liza.board.postgres.schema import require_schema
from liza.errors import BoardUnreachable, LizaError, Refused, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from liza.board.postgres.address import Address

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

# Connections of the process that this one was forked from: ended here, even as garbage, they end for both.
_of_parent: Final[list[psycopg.Connection]] = []
_open: Final[WeakSet[psycopg.Connection]] = WeakSet()

Result = TypeVar("Result")
log = logging.getLogger(__name__)


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
        except psycopg.ProgrammingError as error:
            raise UsageError(f"{self.address} is no address of a server: {_one_line(error)}") from error
        except psycopg.OperationalError as error:
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
        row = connection.execute("SELECT pg_is_in_recovery()").fetchone()
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
