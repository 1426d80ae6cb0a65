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
from liza.domain.lifecycle import Amend, Take
from liza.domain.model import Actor, Lease, Role, State, Status
from liza.domain.record import build_validators
from liza.workflow.transition import apply
from scripts.benchmark.aims import Aim
from scripts.benchmark.bare_server import bare_commits, bare_median, bare_wakings, server_cpu
from scripts.benchmark.boards import board_of
from scripts.benchmark.fleet import Fleet, fleet_table, run_fleet
from scripts.benchmark.processes import child
from scripts.benchmark.race import HEAD_START, quantile
from scripts.benchmark.tables import Cell, Table
from tests.support.postgres_server import WHAT_IS_MISSING, PostgresServer, find_programs

MS: Final = 1000.0
HOUR: Final = timedelta(hours=1)
GAP: Final = 0.05  # seconds between two changes that wake everybody
LONGEST: Final = 60.0  # seconds that a waiter waits for one
SETTLE: Final = 12.0  # seconds until the server has counted how they began: at their second look


class HostsPlan(NamedTuple):
    tasks: int
    claimers: tuple[int, ...]
    updates: int
    listeners: tuple[int, ...]
    wakings: int
    idlers: int
    idle: float  # seconds that they are watched
    opened: tuple[int, ...]  # tasks on the boards that are opened
    fleet: Fleet


# An agent takes minutes. With steps of 16 seconds the ideal is four minutes; with shorter ones the CPU of 200
# tasks on two cores would take longer than the agents.
FULL: Final = HostsPlan(
    1_000, (1, 8, 64), 200, (1, 16, 64), 50, 64, 20.0, (1_000, 10_000), Fleet(4, 8, 4, 200, 16.0)
)
QUICK: Final = HostsPlan(60, (1, 4), 20, (1, 4), 5, 4, 2.0, (100,), Fleet(2, 2, 1, 4, 0.5))


def tables(plan: HostsPlan, place: Path) -> Iterator[Table]:
    """Yield each table as soon as it is known; none, where there is no server."""
    if find_programs() is None:
        print(f"  {WHAT_IS_MISSING}")
        return
    with PostgresServer() as server:
        claims = claims_table(plan, server)
        yield claims
        updates = updates_table(plan, server, place)
        yield updates
        wakings = wakings_table(plan, server)
        yield wakings
        idling = idling_table(plan, server)
        yield idling
        yield opening_table(plan, server)
        fleet = fleet_table(plan.fleet, run_fleet(plan.fleet, server, place / "fleet"))
        yield fleet
        yield aims_table(claims, wakings, idling, fleet)


def claims_table(plan: HostsPlan, server: PostgresServer) -> Table:
    table = Table(
        f"   Claims on PostgreSQL, {plan.tasks} tasks that are all claimed",
        (
            "claimers",
            "a second",
            "p50 ms",
            "p99 ms",
            "twice",
            "fewest by one",
            "CPU ms",
            "bare commits a second",
        ),
    )
    for claimers in plan.claimers:
        location = f"{server.address}#claims-{claimers}"
        create_board_at(location, board_of(plan.tasks, events=1)).close()
        before = server_cpu(server)
        took, names, seconds, cpu = _claims(location, claimers)
        cpu += server_cpu(server) - before
        table.add(
            claimers,
            len(names) / seconds,
            quantile(took, 0.5) * MS,
            quantile(took, 0.99) * MS,
            len(names) - len(set(names)),
            _fewest(location, claimers),
            cpu / len(names) * MS,
            bare_commits(server, claimers, max(1, plan.tasks // claimers)),
        )
    table.notes.append(
        "CPU: of claimer and server, to follow what the others claimed, to judge, and to write; "
        f"the {os.cpu_count()} cores of this machine do no more than that lets them"
    )
    table.notes.append("bare: as many sessions that take turns by a lock and write as long a line, no more")
    return table


def _claims(location: str, claimers: int) -> tuple[list[float], list[str], float, float]:
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
    took = sorted(one for laps, _, _ in found for one in laps)
    names = [name for _, claimed, _ in found for name in claimed]
    return took, names, max(sum(laps) for laps, _, _ in found), sum(cpu for _, _, cpu in found)


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
        cpu = time.process_time()
        while True:
            begun = time.monotonic()
            task = _claim(board, name)
            if task is None:
                break
            took.append(time.monotonic() - begun)
            claimed.append(task)
        line.send((took, claimed, time.process_time() - cpu))


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
    table.add("PostgreSQL, bare", bare_median(server, plan.updates) * MS, None)
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
        ("listeners", "p50 ms", "p99 ms", "bare p50 ms", "bare p99 ms"),
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
        bare = bare_wakings(server, listeners, plan.wakings, GAP)
        table.add(listeners, *(quantile(some, part) * MS for some in (took, bare) for part in (0.5, 0.99)))
    table.notes.append("bare: from a NOTIFY until processes have it that do nothing but listen")
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
    from liza.board.postgres.listener import POLL  # noqa: PLC0415 - it needs psycopg

    title = f"   Workers that wait, and ask by themselves every {POLL:g} s (aim: under 20 in all)"
    table = Table(title, ("workers", "queries a second"))
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


def aims_table(claims: Table, wakings: Table, idling: Table, fleet: Table) -> Table:
    """Judge the last row of each, which has the most of everybody."""
    claimers, rate, _, _, twice, fewest, cpu, bare = claims.rows[-1]
    listeners, _, wake, _, bare_wake = wakings.rows[-1]
    workers, asked = idling.rows[-1]
    tasks, merged, *_, least = fleet.rows[-1]
    by_cpu = (os.cpu_count() or 1) * MS / _number(cpu)
    rows = (
        (Aim(f"{claimers} claimers: 200 a second", _number(rate), least=200), min(by_cpu, _number(bare))),
        (Aim(f"{claimers} claimers: none twice", _number(twice), most=0), None),
        (Aim(f"{claimers} claimers: nobody starved", _number(fewest), least=1), None),
        (Aim(f"{listeners} listeners: p99 under 50 ms", _number(wake), most=50), _number(bare_wake)),
        (Aim(f"{workers} workers that wait: under 20 queries a second", _number(asked), most=20), None),
        (Aim(f"hosts: all {tasks} tasks merged", _number(merged), least=_number(tasks)), None),
        (Aim("hosts: over 70 % of ideal", _number(fleet.rows[-1][4]), least=70), _share(fleet, least)),
    )
    table = Table("   Aims of hosts", ("aim", "measured", "verdict", "limit of this machine"))
    for aim, limit in rows:
        table.add(aim.says, aim.measured, aim.verdict(), limit)
    table.notes.append(
        f"load of the machine: {os.getloadavg()[0]:.1f} (1 minute); others' work lowers all of it"
    )
    return table


def _number(cell: Cell) -> float:
    if not isinstance(cell, int | float):
        raise TypeError(cell)
    return cell


def _share(fleet: Table, least: Cell) -> float:
    """Return the per cent of the ideal at which the cores of this machine would do nothing else."""
    return min(100.0, 100 * _number(fleet.rows[-1][3]) / _number(least))
