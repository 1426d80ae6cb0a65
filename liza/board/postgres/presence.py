"""Who is alive, for a board on a server: a name is a lock of a session there, and a lock file here.

The file is what orphans of a dead worker are found by. The session ends with its process, and the server
then frees the name; where the server itself went down, the process takes its name again.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import threading
import time
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psycopg

from liza.board.postgres.server import process_secret, readable
from liza.board.presence import FilePresence, is_worker_name
from liza.board.protocol import HostSign
from liza.errors import AlreadyRunning, LizaError
from liza.system.files import Holder
from liza.system.host import host

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from liza.board.postgres.server import SharedConnection

RETRY: Final = 0.5  # seconds between two tries to take a name again
PATIENCE: Final = 10.0  # seconds a server gets to notice that a process of this machine is dead

log = logging.getLogger(__name__)


class PostgresPresence:
    def __init__(self, shared: SharedConnection, home: Path) -> None:
        self._shared = shared
        self._home = home
        self._here = FilePresence(home)
        self._locked: set[Path] = set()  # lock files that this process holds

    @contextmanager
    def hold(self, name: str, *, at: datetime, on_lost: Callable[[], None] | None = None) -> Iterator[None]:
        self._home.mkdir(parents=True, exist_ok=True)
        if other := self.holder_of(name):
            raise AlreadyRunning(name, str(other))
        with self._hold_here(name, at):
            keeper = _NameKeeper(self._shared, name, f"{at:%Y-%m-%dT%H:%M:%SZ}", on_lost or _end_process)
            try:
                self._take(keeper, name)
                yield
            finally:
                keeper.close()

    @contextmanager
    def _hold_here(self, name: str, at: datetime) -> Iterator[None]:
        """Hold the lock file of *name*, which a host that leads has already by its own name."""
        path = self._here.path_of(name)
        with nullcontext() if path in self._locked else self._here.hold(name, at=at):
            is_first = path not in self._locked
            self._locked.add(path)
            try:
                yield
            finally:
                if is_first:
                    self._locked.discard(path)

    def _take(self, keeper: _NameKeeper, name: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not self._shared.server.retry(keeper.take):
            other = self.holder_of(name)
            if other or time.monotonic() > deadline:
                raise AlreadyRunning(name, str(other or "another process"))
            time.sleep(RETRY / 10)
        keeper.start()

    def holder_of(self, name: str) -> Holder | None:
        return self._live().get(name)

    def is_held(self, name: str) -> bool:
        return name in self._live()

    def live_workers(self) -> frozenset[str]:
        return frozenset(filter(is_worker_name, self._live()))

    def remove_stale(self) -> None:
        self._here.remove_stale()
        self._shared.call("SELECT liza.remove_stale(%s)", (self._shared.board,))

    def advertise(self, host: str, facts: dict[str, Any]) -> None:
        values = (self._shared.board, host, json.dumps(facts), process_secret())
        self._shared.call("SELECT liza.note_host(%s, %s, %s, %s)", values)

    def depose(self, silence: float) -> None:
        self._shared.call("SELECT liza.depose(%s, %s)", (self._shared.board, silence))

    def share_secret(self, secret: str) -> str:
        rows = self._shared.call("SELECT liza.share_secret(%s, %s)", (self._shared.board, secret))
        return str(rows[0][0])

    def hosts(self) -> tuple[HostSign, ...]:
        query = "SELECT name, facts, silent, is_live FROM liza.known_hosts(%s)"
        signs = (HostSign(*row) for row in self._shared.call(query, (self._shared.board,)))
        return tuple(sign for sign in signs if sign.is_live or not sign.facts.get("left"))

    def _live(self) -> dict[str, Holder]:
        query = "SELECT name, pid, host, boot, since FROM liza.live_names(%s)"
        rows = self._shared.call(query, (self._shared.board,))
        # The server hears of a death a moment later than this machine knows it.
        return {
            name: Holder(pid, where, since)
            for name, pid, where, boot, since in rows
            if (where, boot) != _machine() or _is_alive(pid)
        }


class _NameKeeper:
    """One name on one session, with a thread that takes it again where the session broke."""

    def __init__(self, shared: SharedConnection, name: str, since: str, on_lost: Callable[[], None]) -> None:
        where, boot = _machine()
        holder = {"pid": os.getpid(), "host": where, "boot": boot, "since": since}
        self._values = (shared.board, name, json.dumps(holder), process_secret())
        self._server = shared.server
        self._name = name
        self._on_lost = on_lost
        self._connection: psycopg.Connection | None = None
        self._end, self._told_to_end = os.pipe()
        self._thread: threading.Thread | None = None

    def take(self) -> bool | None:
        """Return whether the name is ours now; None where an earlier session of ours is not over yet."""
        self._drop()
        self._connection = self._server.connect()
        row = self._connection.execute("SELECT liza.hold_name(%s, %s, %s, %s)", self._values).fetchone()
        return row[0] if row else None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._keep, name=f"name {self._name}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        os.close(self._told_to_end)
        if self._thread:
            self._thread.join()
        os.close(self._end)
        self._drop()

    def _drop(self) -> None:
        if self._connection is not None:
            with suppress(psycopg.Error):
                # The server ends a session a moment after it was left.
                self._connection.execute("SELECT pg_advisory_unlock_all()")
            self._connection.close()
        self._connection = None

    def _keep(self) -> None:
        # Nothing is asked on this session, so what can be read from it is its end.
        while not self._wait(None if self._connection else RETRY):
            try:
                is_ours = self.take()
            except (psycopg.Error, LizaError) as error:
                log.debug("%s is not held on the server: %s", self._name, error)
                self._drop()
                continue
            if is_ours is None:
                self._drop()
            elif not is_ours:
                log.error("%s was taken over while the server was away", self._name)
                self._on_lost()
                return

    def _wait(self, seconds: float | None) -> bool:
        """Return whether this is to end, once it is, the session breaks, or *seconds* are over."""
        watched = [self._end] if self._connection is None else [self._end, self._connection.fileno()]
        return self._end in readable(watched, seconds)


def _end_process() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def _machine() -> tuple[str, str]:
    """Return by what a process number is the same process: the host, its start, and its process space."""
    try:
        space = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        space = ""
    return socket.gethostname(), f"{host().boot_id()} {space}".strip()


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
