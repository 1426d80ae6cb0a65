"""Where a board on a server is, and which schema it is to have there; this needs no driver of a database."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import Final, NamedTuple

from liza.board.location import without_password
from liza.errors import UsageError

# Each brings a database from the version before to its own. One that was ever released is never changed.
MIGRATIONS: Final = ("schema_1.sql", "schema_2.sql")
LATEST: Final = len(MIGRATIONS)

# The address of a board on a server: `postgresql://user@host:port/database?options#board`.

DEFAULT_BOARD: Final = "liza"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")


class Address(NamedTuple):
    conninfo: str  # as libpq takes it
    board: str

    def __str__(self) -> str:
        return f"{without_password(self.conninfo)}#{self.board}"


def parse_address(location: str) -> Address:
    """Return what *location* names; raise where its board has no name that can be one."""
    conninfo, _, board = location.partition("#")
    board = board or DEFAULT_BOARD
    if not _NAME.fullmatch(board):
        raise UsageError(
            f"{board!r} in {without_password(location)} is no name of a board; "
            "give letters, digits, '-', '_' and '.' after the '#'"
        )
    return Address(conninfo, board)


def own_home(address: Address) -> Path:
    """Return the directory of this machine for a board that belongs to no checkout."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    name = hashlib.sha256(str(address).encode()).hexdigest()[:16]
    return Path(state) / "liza" / f"{address.board}-{name}"
