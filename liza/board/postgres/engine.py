"""The engine of boards on a PostgreSQL server, as `open_board` knows it."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import psycopg

from liza.board.journal import JournalPosition, encode_entry, first_state
from liza.board.postgres.address import Address, own_home, parse_address
from liza.board.postgres.board import PostgresBoard
from liza.board.postgres.server import Server, make_schema, version_of
from liza.board.postgres.server import grant as grant_right
from liza.board.protocol import SUPERVISOR_NAME, Glance, JournalEntry
from liza.domain.changes import violations
from liza.errors import InvalidBoard, LizaError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from liza.board.protocol import Board
    from liza.domain.model import State


def exists(location: str) -> bool:
    address = parse_address(location)
    server = Server(address)
    with closing(server.retry(server.connect)) as connection:
        if not version_of(connection):
            return False
        query = "SELECT FROM liza.board WHERE name = %s AND revision > 0"
        return connection.execute(query, (address.board,)).fetchone() is not None


def open_location(location: str, *, home: Path | None = None) -> Board:
    return _open(location, home)


def create(location: str, state: State, *, by: str, home: Path | None = None) -> Board:
    board = _open(location, home)
    put = {key: value for key, value in state.to_json().items() if key != "revision"}
    entry = JournalEntry(1, _server_time(parse_address(location)), by, "init", put, {})
    if wrong := violations(first_state(entry)):
        raise InvalidBoard("the board to begin with is not valid", wrong)
    restore(location, [encode_entry(entry, JournalPosition())[0]])
    board.home.mkdir(parents=True, exist_ok=True)
    return board


def glance(location: str, *, home: Path | None = None) -> Glance | None:
    if not exists(location):
        return None
    with closing(_open(location, home)) as board:
        there = board.presence
        return Glance(board.read(), board.switches.thrown(), there.is_held(SUPERVISOR_NAME), there.hosts())


def validate(location: str, *, home: Path | None = None) -> State:
    with closing(_open(location, home)) as board:
        state = board.read()
        replayed, _ = board.at(state.revision)
        if wrong := violations(replayed):
            raise InvalidBoard("the board is not valid", wrong)
        if state != replayed:
            raise InvalidBoard(f"what this machine knows of {location} does not fit its journal")
        return replayed


def lines(location: str) -> list[bytes]:
    """Return the whole journal, as a file would hold it."""
    with closing(_open(location, None)) as board:
        return board.lines()


def restore(location: str, journal: Sequence[bytes]) -> None:
    """Make a board at *location* that has *journal*; raise where there is one."""
    address = parse_address(location)
    server = Server(address)
    texts = [line.decode().rstrip("\n") for line in journal]
    with closing(server.retry(server.connect)) as connection:
        try:
            make_schema(connection, server.address)
            connection.execute("SELECT liza.restore(%s, %s)", (address.board, texts))
        except psycopg.Error as error:
            if error.sqlstate == "LZ008":
                raise LizaError(f"there is a board in {address} already; `liza status` shows it") from error
            raise server.as_mistake(error) or error from error


def grant(location: str, right: str, role: str) -> None:
    """Give *role* of the database the rights of a worker or a reader on the boards there."""
    server = Server(parse_address(location))
    with closing(server.retry(server.connect)) as connection:
        try:
            make_schema(connection, server.address)
            grant_right(connection, right, role)
        except psycopg.Error as error:
            raise server.as_mistake(error) or error from error


def _open(location: str, home: Path | None) -> PostgresBoard:
    address = parse_address(location)
    return PostgresBoard(address, home or own_home(address))


def _server_time(address: Address) -> datetime:
    server = Server(address)
    with closing(server.retry(server.connect)) as connection:
        now: datetime = connection.execute("SELECT clock_timestamp()").fetchall()[0][0]
        return now.astimezone(UTC)
