"""The board on a PostgreSQL server beside the one in files: claims, updates, wake-ups, idling, opening."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final, NamedTuple

from liza.board.protocol import Board, create_board_at, open_board
from liza.domain.changes import HUMAN, Change
from liza.domain.events import Amend, Take
from liza.domain.model import Actor, Lease, Role, State, Status
from liza.domain.record import build_validators
from liza.workflow.transition import apply
from scripts.benchmark.boards import board_of
from scripts.benchmark.processes import child
from scripts.benchmark.race import HEAD_START, quantile
from scripts.benchmark.tables import Table
from tests.support.postgres_server import WHAT_IS_MISSING, PostgresServer, find_programs

MS: Final = 1000.0
HOUR: Final = timedelta(hours=1)
GAP: Final = 0.05  # seconds between two changes that wake everybody
LONGEST: Final = 60.0  # seconds that a waiter waits for one
SETTLE: Final = 6.0  # seconds after which those that wait do nothing but that


class HostsPlan(NamedTuple):
    tasks: int
    claimers: tuple[int, ...]
    updates: int
    listeners: tuple[int, ...]
    wakings: int
    idlers: int
    idle: float  # seconds that they are watched
    opened: tuple[int, ...]  # tasks on the boards that are opened


FULL: Final = HostsPlan(1_000, (1, 8, 64), 200, (1, 16, 64), 50, 64, 20.0, (1_000, 10_000))
QUICK: Final = HostsPlan(60, (1, 4), 20, (1, 4), 5, 4, 2.0, (100,))


def tables(plan: HostsPlan, place: Path) -> Iterator[Table]:
    """Yield each table as soon as it is known; none, where there is no server."""
    if find_programs() is None:
        print(f"  {WHAT_IS_MISSING}")
        return
    os.environ["XDG_STATE_HOME"] = str(place / "state")
    with PostgresServer() as server:
        yield claims_table(plan, server)
        yield updates_table(plan, server, place)
        yield wakings_table(plan, server)
        yield idling_table(plan, server)
        yield opening_table(plan, server)


def claims_table(plan: HostsPlan, server: PostgresServer) -> Table:
    table = Table(
        f"   Claims on PostgreSQL, {plan.tasks} tasks that are all claimed",
        ("claimers", "a second", "p50 ms", "p99 ms", "twice", "fewest by one"),
    )
    for claimers in plan.claimers:
        location = f"{server.address}#claims-{claimers}"
        create_board_at(location, board_of(plan.tasks, events=1)).close()
        took, names, seconds = _claims(location, claimers)
        table.add(
            claimers,
            len(names) / seconds,
            quantile(took, 0.5) * MS,
            quantile(took, 0.99) * MS,
            len(names) - len(set(names)),
            _fewest(location, claimers),
        )
    return table


def _claims(location: str, claimers: int) -> tuple[list[float], list[str], float]:
    with ExitStack() as stack:
        lines = [
            stack.enter_context(child(_claim_all, location, f"coder-{number}")) for number in range(claimers)
        ]
        for line in lines:
            line.recv()
        start = time.monotonic() + HEAD_START
        for line in lines:
            line.send(start)
        found = [line.recv() for line in lines]
    took = sorted(one for laps, _ in found for one in laps)
    names = [name for _, claimed in found for name in claimed]
    return took, names, max(sum(laps) for laps, _ in found)


def _fewest(location: str, claimers: int) -> int:
    with closing(open_board(location)) as board:
        holders = [str(task.assigned_to).rpartition("-")[0] for task in board.read().tasks.values()]
    return min(holders.count(f"coder-{number}") for number in range(claimers))


def _claim_all(line: Connection, location: str, name: str) -> None:
    with closing(open_board(location)) as board:
        board.read()
        build_validators()  # as the server has done it from which workers are forked
        line.send("ready")
        time.sleep(max(0.0, line.recv() - time.monotonic()))
        took: list[float] = []
        claimed: list[str] = []
        while True:
            begun = time.monotonic()
            task = _claim(board, name)
            if task is None:
                break
            took.append(time.monotonic() - begun)
            claimed.append(task)
        line.send((took, claimed))


def _claim(board: Board, name: str) -> str | None:
    picked: list[str] = []

    def make(state: State) -> State:
        task = next((task.id for task in state.tasks.values() if task.status is Status.IDLE), None)
        if task is None:
            return state
        picked.append(task)
        now = board.now()
        # A worker has one task at a time, so that each claim is somebody else's.
        by = Actor(role=Role.CODER, id=f"{name}-{state.revision}", token=f"{state.revision}", run=name)
        lease = Lease(holder=by.id, token=str(by.token), expires=now + HOUR)
        return apply(Take(lease=lease, base_commit="0" * 40), to=task, by=by, at=now)(state)

    board.update(Change(name, "claim", make))
    return picked[-1] if picked else None


def updates_table(plan: HostsPlan, server: PostgresServer, place: Path) -> Table:
    table = Table(f"   An update by one, {plan.tasks} tasks", ("engine", "median ms", "p99 ms"))
    for engine, location in (("files", str(place / "files")), ("PostgreSQL", f"{server.address}#updates")):
        with closing(create_board_at(location, board_of(plan.tasks, events=1))) as board:
            took = sorted(_update(board, number) for number in range(plan.updates))
        table.add(engine, quantile(took, 0.5) * MS, quantile(took, 0.99) * MS)
    table.notes.append("on loopback, with fsync as a server has it")
    return table


def _update(board: Board, number: int) -> float:
    begun = time.monotonic()
    event = Amend(fields={"priority": number})
    board.update(apply(event, to=f"goal.{number % 16}", by=HUMAN, at=board.now()))
    return time.monotonic() - begun


def wakings_table(plan: HostsPlan, server: PostgresServer) -> Table:
    table = Table(
        "   From the call of update until wait returns in every other process",
        ("listeners", "p50 ms", "p99 ms"),
    )
    for listeners in plan.listeners:
        location = f"{server.address}#wakings-{listeners}"
        with closing(create_board_at(location, board_of(100, events=1))) as board, ExitStack() as stack:
            lines = [stack.enter_context(child(_wake, location, plan.wakings)) for _ in range(listeners)]
            for line in lines:
                line.recv()
            took: list[float] = []
            for number in range(plan.wakings):
                time.sleep(GAP)
                begun = time.monotonic()
                _update(board, number)
                took += [line.recv() - begun for line in lines]
        took.sort()
        table.add(listeners, quantile(took, 0.5) * MS, quantile(took, 0.99) * MS)
    return table


def _wake(line: Connection, location: str, times: int) -> None:
    with closing(open_board(location)) as board:
        revision = board.wait(0, 0).revision
        line.send("ready")
        for _ in range(times):
            revision = board.wait(revision, LONGEST).revision
            line.send(time.monotonic())


def idling_table(plan: HostsPlan, server: PostgresServer) -> Table:
    location = f"{server.address}#idling"
    create_board_at(location, board_of(100, events=1)).close()
    with ExitStack() as stack:
        lines = [stack.enter_context(child(_idle, location)) for _ in range(plan.idlers)]
        for line in lines:
            line.recv()
        time.sleep(min(SETTLE, plan.idle))
        before = _transactions(server)
        time.sleep(plan.idle)
        asked = _transactions(server) - before
        for line in lines:
            line.send("enough")
    table = Table("   Workers that wait", ("workers", "queries a second"))
    table.add(plan.idlers, asked / plan.idle)
    return table


def _idle(line: Connection, location: str) -> None:
    with closing(open_board(location)) as board:
        revision = board.wait(0, 0).revision
        line.send("ready")
        while not line.poll():
            board.wait(revision, 0.8)  # as a worker does, which then looks at the switches
            board.switches.thrown()


def _transactions(server: PostgresServer) -> int:
    server.sql("SELECT pg_stat_clear_snapshot()")
    return int(server.sql("SELECT xact_commit FROM pg_stat_database WHERE datname = 'postgres'"))


def opening_table(plan: HostsPlan, server: PostgresServer) -> Table:
    table = Table("   A cold read", ("tasks", "ms"))
    for size in plan.opened:
        location = f"{server.address}#opened-{size}"
        create_board_at(location, board_of(size, events=1)).close()
        begun = time.monotonic()
        with closing(open_board(location)) as board:
            board.read()
            table.add(size, (time.monotonic() - begun) * MS)
    return table
