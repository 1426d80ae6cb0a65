"""The facts about refs of a board on a server, for a process that asks once, as the hook of a push.

It goes on from what an earlier one left in a file, and asks the server for all lines since. What is in that
file counts only where the server has the very line it ends at, and nobody else can have written it.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import time
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from liza import __version__
from liza.board.postgres.address import LATEST, own_home, parse_address
from liza.board.postgres.libpq import LibpqSession, NotAnswered
from liza.board.postgres.news import ask_news, ask_news_by_libpq, check_seen, last_seen
from liza.board.ref_facts import FactsFollower
from liza.domain.version import VERSION
from liza.errors import BoardRewound, LizaError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from liza.board.postgres.address import Address
    from liza.board.postgres.news import News
    from liza.domain.shared_refs import RefFacts

KEPT: Final = "refs.json"  # in the machine's own home for the board, never in a checkout, where agents work
KEEP_EVERY: Final = 64  # lines between two such files: to read so many takes as long as to write one
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH


def ask_once(location: str, home: Path | None) -> tuple[RefFacts, datetime] | None:
    """Return the facts of the board at *location*, and its time; None where one has to ask again."""
    address = parse_address(location)
    with suppress(NotAnswered), LibpqSession(address.conninfo) as session:
        if _is_as_expected(session, address, home or own_home(address)):
            return _follow(address, partial(ask_news_by_libpq, session, address.board))
    return None


def _is_as_expected(session: LibpqSession, address: Address, home: Path) -> bool:
    """Return whether there is nothing that a person or another process has to be told of."""
    (found,) = session.rows("SELECT pg_is_in_recovery(), (SELECT max(version) FROM liza.migration)")
    seen = last_seen(address, home)
    query = "SELECT FROM liza.entry WHERE board = $1 AND ends = $2 AND sum = $3"
    is_there = seen is None or session.rows(query, address.board, seen.offset, seen.sum) != []
    return found == ("f", str(LATEST)) and is_there


def read_facts(location: str, home: Path | None) -> tuple[RefFacts, datetime] | None:
    """Return the same by psycopg; None where only an open board can tell."""
    from liza.board.postgres.server import Server  # noqa: PLC0415 - it loads psycopg

    def read() -> tuple[RefFacts, datetime]:
        with closing(server.connect()) as connection:
            check_seen(connection, address, home or own_home(address))
            return _follow(address, partial(ask_news, connection, address.board))

    address = parse_address(location)
    server = Server(address)
    try:
        return server.retry(read)
    except BoardRewound:
        return None  # whoever opens it stops everybody


def _follow(address: Address, ask: Callable[[int], News]) -> tuple[RefFacts, datetime]:
    path = own_home(address) / KEPT
    follower = load_kept(path, address)
    news = ask(follower.offset)
    if follower.offset and (news.head is None or news.head[1] != follower.sum):
        follower = FactsFollower()
        news = ask(0)
    if news.head is None:
        raise LizaError(f"there is no board at {address}; `liza init` makes one")
    if not follower.follow(news.texts):
        raise LizaError(f"{address}: a line of the journal was changed after it was written")
    if not follower.offset:
        raise LizaError(f"{address} holds no board; `liza init` makes one")
    if len(news.texts) >= KEEP_EVERY:
        with suppress(OSError):  # then the next one reads more
            _keep(path, address, follower)
    passed = timedelta(seconds=time.monotonic() - news.asked)
    return follower.facts(), news.head[0].astimezone(UTC) + passed


def load_kept(path: Path, address: Address) -> FactsFollower:
    """Return what was left at *path* of the board at *address*; where it is none of ours, the beginning."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:  # noqa: PTH123 - of a descriptor
            found = os.fstat(descriptor)
            if found.st_uid != os.geteuid() or found.st_mode & _OTHERS_WRITE:
                return FactsFollower()
            digest, _, body = file.read().partition(b"\n")
        if digest != _digest(body):
            return FactsFollower()
        origin, plain = json.loads(body)
        return FactsFollower.from_json(plain) if origin == _origin(address) else FactsFollower()
    except (OSError, ValueError, TypeError):
        return FactsFollower()


def _keep(path: Path, address: Address, follower: FactsFollower) -> None:
    body = json.dumps([_origin(address), follower.to_json()]).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{KEPT}-{os.getpid()}.new")
    draft.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    with open(os.open(draft, flags, 0o600), "wb") as file:  # noqa: PTH123 - leases have tokens, which are secret
        file.write(_digest(body) + b"\n" + body)
    draft.replace(path)


def _origin(address: Address) -> list[object]:
    """Return of which board it is, and who wrote it: another Liza may follow a journal in another way."""
    return [str(address), VERSION, __version__]


def _digest(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest().encode()
