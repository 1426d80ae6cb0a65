"""The way to a server that fails at random: what is said on it is lost, cut short, or late."""

from __future__ import annotations

import random
import socket
import threading
import time
from contextlib import suppress
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

CHUNK: Final = 65536
LONGEST_STALL: Final = 0.02  # seconds: short, since everybody waits for who has the lock
SOCKET: Final = ".s.PGSQL.5432"  # what libpq looks for in a directory


class Moment(NamedTuple):
    says: str
    share: float  # of such requests that meet a fault


# By what a request is known, in the order in which it is looked for; the rest is the beginning of a session.
# A request that begins one meets few: a session that cannot begin does not get to what is tried here.
MOMENTS: Final = {
    b"liza.commit(": Moment("at a commit", 0.4),
    b"'/next-": Moment("at the lock", 0.2),
    b"clock_timestamp()": Moment("while it read", 0.2),
    b"LISTEN": Moment("while it listened", 0.2),
}
BEGINNING: Final = Moment("while it connected", 0.06)
REFUSED: Final = "connection refused"
REFUSED_SHARE: Final = 0.3


class Fault(StrEnum):
    """What becomes of a request."""

    LOST = "connection cut, request lost"
    TORN = "connection cut in the middle of a request"
    SWALLOWED = "reply swallowed, connection cut"
    TORN_REPLY = "connection cut in the middle of a reply"
    STALLED = "connection stalled"


WEIGHTS: Final = {Fault.LOST: 1, Fault.TORN: 1, Fault.SWALLOWED: 2, Fault.TORN_REPLY: 1, Fault.STALLED: 5}


class FaultyLine:
    """Listens in *directory* and passes on to the socket *target*, but for a share of what is asked."""

    def __init__(self, directory: Path, target: Path) -> None:
        self._target = str(target)
        self._chance = random.Random()
        self._counting = threading.Lock()
        self._met: list[str] = []
        self._listening = socket.socket(socket.AF_UNIX)
        path = directory / SOCKET
        path.unlink(missing_ok=True)  # of a process that was killed
        self._listening.bind(str(path))
        self._listening.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def met(self) -> list[str]:
        """Return the faults since this was last asked."""
        with self._counting:
            met, self._met = self._met, []
            return met

    def _count(self, what: str) -> None:
        with self._counting:
            self._met.append(what)

    def _accept(self) -> None:
        while True:
            client, _ = self._listening.accept()
            if self._chance.random() < REFUSED_SHARE:
                self._count(REFUSED)
                client.close()
                continue
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(self._target)
            except OSError:  # the server is down
                client.close()
                continue
            session = _Session(self, client, server)
            for pump in (session.pass_requests, session.pass_replies):
                threading.Thread(target=pump, daemon=True).start()

    def judge(self, request: bytes) -> Fault | None:
        """Return what becomes of *request*, counted; None where it is passed on."""
        moment = next((moment for words, moment in MOMENTS.items() if words in request), BEGINNING)
        if self._chance.random() >= moment.share:
            return None
        (fault,) = self._chance.choices(list(WEIGHTS), list(WEIGHTS.values()))
        self._count(f"{fault}, {moment.says}")
        if fault is Fault.STALLED:
            time.sleep(self._chance.uniform(0, LONGEST_STALL))
        return fault


class _Session:
    def __init__(self, line: FaultyLine, client: socket.socket, server: socket.socket) -> None:
        self._line = line
        self._client = client
        self._server = server
        self._reply: Fault | None = None  # what becomes of the next one

    def pass_requests(self) -> None:
        with suppress(OSError):
            while data := self._client.recv(CHUNK):
                fault = self._line.judge(data)
                if fault is Fault.LOST:
                    break
                if fault is Fault.TORN:
                    self._server.sendall(data[: len(data) // 2])
                    break
                if fault in {Fault.SWALLOWED, Fault.TORN_REPLY}:
                    self._reply = fault
                self._server.sendall(data)
        self._end()

    def pass_replies(self) -> None:
        with suppress(OSError):
            while data := self._server.recv(CHUNK):
                if self._reply is Fault.SWALLOWED:
                    break
                if self._reply is Fault.TORN_REPLY:
                    self._client.sendall(data[: len(data) // 2])
                    break
                self._client.sendall(data)
        self._end()

    def _end(self) -> None:
        for one in (self._client, self._server):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)  # to close it alone does not wake who reads it
            one.close()
