"""Ten thousand random faults between workers and a board on a server, and nothing lost, repeated or torn."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack, closing, suppress
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psycopg
import pytest

from liza.board.postgres import engine
from liza.board.protocol import create_board_at
from liza.domain import lifecycle as e
from liza.domain.changes import SUPERVISOR, Change, violations
from liza.workflow.transition import apply
from tests.support.boards import PROCESSES, ended
from tests.support.host_storm import LATE_WRITE, Held, Post, Told, work_in_storm
from tests.support.postgres_server import WHAT_IS_MISSING, PostgresServer, find_programs
from tests.support.sample_tasks import board as story
from tests.support.sample_tasks import new_task

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.connection import Connection
    from multiprocessing.context import ForkServerProcess

    from liza.board.protocol import Board, JournalEntry
    from liza.domain.model import State, Task

pytestmark = [pytest.mark.torture, pytest.mark.timeout(1800)]

FAULTS: Final = int(os.environ.get("LIZA_HOST_FAULTS") or 10_000)
WORKERS: Final = 16
TASKS: Final = tuple(f"t{number}" for number in range(2 * WORKERS))
# Faults of the processes themselves, which are dear: one of each kind in so many of the others.
ONE_IN: Final = {"process killed": 100, "process stopped for longer than its session lasts": 1_000,
                 "every connection of the server taken": 400, "server killed": 1_000}  # fmt: skip
STOPPED: Final = 6.0  # seconds; the server ends a session that idles with the lock after five
POOL: Final = "120"  # connections, of which the workers use half
FULL_FOR: Final = 0.3  # seconds


class Worker:
    """A process in the storm, replaced when it is killed, and all that it said."""

    def __init__(self, number: int, server: PostgresServer, directory: Path) -> None:
        directory.mkdir()
        socket = server.directory / f".s.PGSQL.{server.port}"
        self._post = Post(f"coder-{number}", str(directory), str(socket))
        self._life = 0
        self._pipe: Connection
        self.process: ForkServerProcess
        self.stopped_until: float | None = None
        self.told: list[Told] = []
        self.faults: Counter[str] = Counter()
        self.start()

    def start(self) -> None:
        self._life += 1
        self._pipe, theirs = PROCESSES.Pipe(duplex=False)
        self.process = PROCESSES.Process(target=work_in_storm, args=(self._post, self._life, theirs))
        self.process.start()
        theirs.close()

    def listen(self) -> None:
        """Hear what it said; a word cut short by death was not said."""
        with suppress(EOFError):
            while self._pipe.poll():
                told: Told = self._pipe.recv()
                self.told.append(told)
                self.faults.update(told.faults)

    def kill(self) -> None:
        self.process.kill()
        ended(self.process)
        self.listen()
        self._pipe.close()
        self.stopped_until = None

    def stop(self) -> None:
        os.kill(self.process.pid or 0, signal.SIGSTOP)
        self.stopped_until = time.monotonic() + STOPPED

    def go_on(self) -> None:
        if self.stopped_until and time.monotonic() > self.stopped_until:
            os.kill(self.process.pid or 0, signal.SIGCONT)
            self.stopped_until = None


class Storm:
    """The board, its server and its workers, and the faults that they met."""

    def __init__(self, server: PostgresServer, board: Board, directory: Path) -> None:
        self._server = server
        self._board = board
        self.workers = [Worker(number, server, directory / f"w{number}") for number in range(WORKERS)]
        self._own: Counter[str] = Counter()
        self._strike = {
            "process killed": self._kill,
            "process stopped for longer than its session lasts": lambda: self._victim().stop(),
            "every connection of the server taken": self._fill,
            "server killed": self._kill_server,
        }

    def faults(self) -> Counter[str]:
        return sum((worker.faults for worker in self.workers), self._own)

    def rage(self) -> None:
        """Let it go on until there were as many faults as there have to be."""
        while (total := self.faults().total()) < FAULTS:
            for worker in self.workers:
                worker.listen()
                worker.go_on()
                assert worker.stopped_until or worker.process.is_alive(), worker.process.exitcode
            self._take_back()
            for what, act in self._strike.items():
                if self._own[what] < total // ONE_IN[what]:
                    self._own[what] += 1
                    act()

    def end(self) -> None:
        for worker in self.workers:
            worker.kill()

    def _victim(self) -> Worker:
        return random.choice([worker for worker in self.workers if not worker.stopped_until])

    def _kill(self) -> None:
        victim = self._victim()
        victim.kill()
        victim.start()

    def _kill_server(self) -> None:
        self._server.kill()
        self._server.start()

    def _fill(self) -> None:
        """Leave no connection to anybody, for a while."""
        socket = f"host={self._server.directory} port={self._server.port} dbname=postgres user=worker"
        with ExitStack() as others, suppress(psycopg.OperationalError):
            try:
                while True:
                    others.enter_context(psycopg.connect(socket))
            finally:
                time.sleep(FULL_FOR)

    def _take_back(self) -> None:
        """Take from their holders the tasks whose lease is over, as a supervisor does."""
        state = self._board.wait(self._board.read().revision, 0.05)
        if self._are_over(state):
            self._board.update(Change(SUPERVISOR.id, "reclaim", self._without_dead))

    def _are_over(self, state: State) -> list[Task]:
        now = self._board.now()
        return [task for task in state.tasks.values() if task.lease and task.lease.expires <= now]

    def _without_dead(self, state: State) -> State:
        for task in self._are_over(state):
            state = apply(e.Reclaim(reason="over"), to=task.id, by=SUPERVISOR, at=self._board.now())(state)
        return state


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    if find_programs() is None:
        pytest.skip(WHAT_IS_MISSING)
    with PostgresServer(max_connections=POOL) as server:
        yield server


@pytest.fixture
def directory() -> Iterator[Path]:
    """A directory with a short name, for a socket's path has at most 107 bytes."""
    path = Path(tempfile.mkdtemp(prefix="lzst", dir="/tmp"))
    yield path
    shutil.rmtree(path)


def test_ten_thousand_faults_lose_and_repeat_nothing(
    server: PostgresServer,
    directory: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    count: Callable[[str, int], None],
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    server.sql("CREATE ROLE worker LOGIN")
    began = time.monotonic()
    with closing(create_board_at(f"{server.address}#storm", story(*map(new_task, TASKS)))) as board:
        engine.grant(server.address, "worker", "worker")
        storm = Storm(server, board, directory)
        try:
            storm.rage()
        finally:
            storm.end()
        told = [told for worker in storm.workers for told in worker.told]
        claims, releases = judge(board, told)
    faults = storm.faults()
    with capsys.disabled():
        sys.stdout.write(f"\n{faults.total():,} faults in {time.monotonic() - began:.0f} seconds\n")
        sys.stdout.writelines(f"{number:>9,}  {what}\n" for what, number in sorted(faults.items()))
    for what, number in faults.items():
        count(f"over hosts: {what.partition(',')[0]}", number)
    count("claims over hosts that were acknowledged, all there once, none of a task that was held", claims)
    count("releases over hosts that were acknowledged, all there once", releases)
    assert faults.total() >= FAULTS
    assert faults[LATE_WRITE]
    assert claims > FAULTS // 10


def judge(board: Board, told: list[Told]) -> tuple[int, int]:
    """Assert that all that was acknowledged happened once; return how many claims and releases that was."""
    state = board.read()
    # The server may still be at the last words of somebody who was killed.
    entries = [entry for entry in board.entries(after=1) if entry.revision <= state.revision]
    assert [entry.revision for entry in entries] == list(range(2, state.revision + 1))
    assert violations(state) == []
    assert board.at(state.revision)[0] == state
    taken, ended_by = histories(entries)
    claimed = [one.claimed for one in told if one.claimed]
    released = [one.released for one in told if one.released]
    assert {token: taken[token] for token in claimed} == dict.fromkeys(claimed, 1)
    assert {token: ended_by[token] for token in released} == dict.fromkeys(released, 1)
    assert max(taken.values()) == max(ended_by.values()) == 1
    assert [one.taken_late for one in told if one.taken_late] == []
    nobody_shared([one.held for one in told if one.held])
    return len(claimed), len(released)


def histories(entries: list[JournalEntry]) -> tuple[Counter[str], Counter[str]]:
    """Return how often each token took a task, and gave it back; assert that nobody took what was held."""
    taken, released, holder = Counter[str](), Counter[str](), dict[str, dict[str, Any]]()
    for entry in entries:
        for task, put in entry.put.get("tasks", {}).items():
            lease = put.get("lease")
            if lease:
                assert task not in holder, (entry, holder[task])
                taken[lease["token"]] += 1
                holder[task] = lease
                continue
            before = holder.pop(task)
            if entry.by == SUPERVISOR.id:
                assert entry.at.isoformat() >= before["expires"].replace("Z", "+00:00"), (entry, before)
            else:
                assert entry.by == before["holder"], (entry, before)
                released[before["token"]] += 1
    return taken, released


def nobody_shared(held: list[Held]) -> None:
    """Assert that no two had one task at the same time, by what they were told themselves."""
    for task in TASKS:
        turns = sorted((one for one in held if one.task == task), key=lambda one: one.since)
        for one, other in pairwise(turns):
            assert one.until <= other.since, (one, other)
