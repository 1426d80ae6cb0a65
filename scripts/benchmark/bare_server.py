"""What a PostgreSQL server and this machine can do at best: commits and notes without a board."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

import psycopg

from scripts.benchmark.processes import child
from scripts.benchmark.race import HEAD_START, quantile
from tests.support.postgres_server import PostgresServer

LINE: Final = 700  # bytes: as long as the line of a claim
LOCK: Final = 4711
CLOCK_TICKS: Final = 100  # a second, of the kernel's account of CPU
_COMMIT: Final = (
    b"BEGIN; SELECT pg_advisory_xact_lock(%d); INSERT INTO bare (line) VALUES (repeat('x', %d)); COMMIT"
    % (LOCK, LINE)
)


def bare_commits(server: PostgresServer, sessions: int, each: int) -> float:
    """Return the commits a second of *sessions* that take turns by one lock, and neither read nor judge."""
    server.sql("CREATE TABLE IF NOT EXISTS bare (id bigserial PRIMARY KEY, line text)")
    with ExitStack() as stack:
        lines = [stack.enter_context(child(_commit, server.address, each)) for _ in range(sessions)]
        start = _start_at_once(lines)
        ends: list[float] = [line.recv() for line in lines]
    return sessions * each / (max(ends) - start)


def _start_at_once(lines: Iterable[Connection]) -> float:
    for line in lines:
        line.recv()
    start = time.monotonic() + HEAD_START
    for line in lines:
        line.send(start)
    return start


def _commit(line: Connection, address: str, times: int) -> None:
    with psycopg.connect(address, autocommit=True) as connection:
        line.send("ready")
        time.sleep(max(0.0, line.recv() - time.monotonic()))
        for _ in range(times):
            connection.execute(_COMMIT)
        line.send(time.monotonic())


def bare_wakings(server: PostgresServer, listeners: int, times: int, gap: float) -> list[float]:
    """Return how long after a commit with a note each of *listeners* had it, sorted."""
    took: list[float] = []
    with psycopg.connect(server.address, autocommit=True) as connection, ExitStack() as stack:
        lines = [stack.enter_context(child(_hear, server.address, times)) for _ in range(listeners)]
        for line in lines:
            line.recv()
        for _ in range(times):
            time.sleep(gap)
            begun = time.monotonic()
            connection.execute("NOTIFY bare")
            took += [line.recv() - begun for line in lines]
    return sorted(took)


def _hear(line: Connection, address: str, times: int) -> None:
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("LISTEN bare")
        line.send("ready")
        for _ in range(times):
            for _ in connection.notifies(stop_after=1):
                line.send(time.monotonic())


def bare_median(server: PostgresServer, times: int) -> float:
    """Return the median of the seconds that one commit of one session takes."""
    took = []
    with psycopg.connect(server.address, autocommit=True) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS bare (id bigserial PRIMARY KEY, line text)")
        for _ in range(times):
            begun = time.monotonic()
            connection.execute(_COMMIT)
            took.append(time.monotonic() - begun)
    return quantile(sorted(took), 0.5)


def server_cpu(server: PostgresServer) -> float:
    """Return the CPU seconds of the server and of its sessions that have ended."""
    if server.process is None:
        raise RuntimeError("the server was not started")
    fields = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / CLOCK_TICKS
