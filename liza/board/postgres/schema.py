"""The schema of the database, by version: made by its owner, known by everybody else."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, Final

from psycopg import sql

from liza.errors import LizaError, UsageError

if TYPE_CHECKING:
    import psycopg

    from liza.board.postgres.address import Address

# Each brings a database from the version before to its own. One that was ever released is never changed.
MIGRATIONS: Final = ("schema_1.sql", "schema_2.sql", "schema_3.sql")
LATEST: Final = len(MIGRATIONS)
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
        migrate(connection)


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
