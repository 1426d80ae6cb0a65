"""A board on a server that fails: what was acknowledged is there once, and nobody works on a lost past."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, closing, suppress
from datetime import UTC, datetime, timedelta
from multiprocessing.connection import wait as wait_for_pipes
from typing import TYPE_CHECKING

import psycopg
import pytest

from liza.board.postgres import server as postgres_server
from liza.board.protocol import create_board_at, open_board
from liza.domain import lifecycle as e
from liza.domain.changes import SUPERVISOR
from liza.errors import BoardRewound, BoardUnreachable
from liza.workflow.transition import apply
from tests.support.boards import PATIENCE, PROCESSES, ended, ended_well, messages, noted
from tests.support.postgres_proxy import PostgresProxy
from tests.support.postgres_server import WHAT_IS_MISSING, PostgresServer, find_programs
from tests.support.postgres_writers import each_once, hold_and_fork, note_many, stop_inside
from tests.support.sample_tasks import BASE, board, lease_of, new_task, worker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.hosts


@pytest.fixture
def crashing() -> Iterator[PostgresServer]:
    """A server of this test's own, which syncs as one that people use."""
    if find_programs() is None:
        pytest.skip(WHAT_IS_MISSING)
    with PostgresServer() as server:
        yield server


@pytest.fixture(autouse=True)
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return str(tmp_path / "state")


def test_a_killed_server_loses_and_repeats_nothing(
    crashing: PostgresServer, state_home: str, count: Callable[[str, int], None]
) -> None:
    location = f"{crashing.address}#kills"
    kills, writers, each = 6, 4, 50
    with closing(create_board_at(location, board())) as ours:
        pipes = [PROCESSES.Pipe(duplex=False) for _ in range(writers)]
        processes = [
            PROCESSES.Process(target=note_many, args=(location, state_home, f"w{number}", each, theirs))
            for number, (_, theirs) in enumerate(pipes)
        ]
        for process in processes:
            process.start()
        acknowledged: list[str] = []
        waiting = [pipe for pipe, _ in pipes]
        assert [pipe.recv() for pipe in waiting] == ["ready"] * writers
        killed = 0
        while waiting:
            assert wait_for_pipes(waiting, PATIENCE)
            for pipe in [one for one in waiting if one.poll()]:
                message = pipe.recv()
                if message is None:
                    waiting.remove(pipe)
                    continue
                acknowledged.append(message)
                if killed < kills and len(acknowledged) >= (killed + 1) * writers * each // (kills + 1):
                    crashing.kill()
                    crashing.start()
                    killed += 1
        ended_well(processes)
        assert killed == kills
        there = each_once(ours, acknowledged)
    count("SIGKILL of the server in the middle of commits", kills)
    count("changes acknowledged while it was killed, all there once", len(acknowledged))
    assert len(acknowledged) <= there <= writers * each


def test_a_reply_that_got_lost_is_looked_up(
    crashing: PostgresServer, count: Callable[[str, int], None]
) -> None:
    lost = 40
    with PostgresProxy(crashing.port) as proxy:
        location = crashing.address_of("owner", port=proxy.port)
        with closing(create_board_at(location, board())) as ours:
            for number in range(lost):
                proxy.swallow_next_reply()
                ours.update(noted(f"{number}"))
            assert proxy.swallowed == lost
            assert each_once(ours, [f"{number}" for number in range(lost)]) == lost
    count("replies swallowed, each looked up", lost)


def test_who_stops_with_the_lock_holds_nobody_up_for_long(crashing: PostgresServer, state_home: str) -> None:
    """The server ends its session after seconds, and its change is made again on what is there then."""
    location = crashing.address
    with closing(create_board_at(location, board())) as ours:
        pipe, theirs = PROCESSES.Pipe()
        stopped = PROCESSES.Process(target=stop_inside, args=(location, state_home, theirs))
        stopped.start()
        pid = pipe.recv()
        began = time.monotonic()
        state = ours.update(noted("meanwhile"))
        assert time.monotonic() - began < PATIENCE / 2
        assert messages(state) == ["meanwhile"]
        # However long it waited, it knows what the server's clock says.
        clock = "SELECT to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US+00:00')"
        before, now, after = crashing.sql(clock), ours.now(), crashing.sql(clock)
        assert datetime.fromisoformat(before) <= now <= datetime.fromisoformat(after)
        os.kill(pid, signal.SIGCONT)
        assert pipe.recv() == [1, 2]
        ended_well([stopped])
        assert each_once(ours, ["meanwhile", "from the stopped"]) == 2


def test_a_child_keeps_nothing_of_a_dead_process_alive(crashing: PostgresServer, state_home: str) -> None:
    location = crashing.address
    with closing(create_board_at(location, board())) as ours:
        pipe, theirs = PROCESSES.Pipe()
        holder = PROCESSES.Process(target=hold_and_fork, args=(location, state_home, theirs))
        holder.start()
        child = pipe.recv()
        try:
            assert ours.presence.live_workers() == {"coder-1"}
            holder.kill()
            assert ended(holder) == -signal.SIGKILL
            until(lambda: crashing.sql("SELECT count(*) FROM liza.live_names('liza')") == "0")
            with ours.presence.hold("coder-1", at=ours.now()):
                pass
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_name_is_taken_again_where_the_server_came_back(crashing: PostgresServer) -> None:
    with closing(create_board_at(crashing.address, board())) as ours:
        with ours.presence.hold("coder-1", at=ours.now()):
            crashing.kill()
            crashing.start()
            until(lambda: ours.presence.live_workers() == {"coder-1"})
        assert ours.presence.live_workers() == frozenset()


def test_a_replica_that_missed_commits_stops_everybody(
    crashing: PostgresServer, count: Callable[[str, int], None]
) -> None:
    crashing.settings["wal_level"] = "replica"
    location = crashing.address
    with closing(create_board_at(location, board())) as ours, ExitStack() as stack:
        ours.update(noted("replicated"))
        replica = PostgresServer(data=crashing.directory / "replica")
        stack.callback(replica.remove)
        crashing.run(
            "pg_basebackup",
            *("-h", "127.0.0.1", "-p", str(crashing.port), "-U", "owner", "-D", str(replica.data)),
            *("-R", "--checkpoint=fast", "-X", "stream"),
        )
        replica.password = crashing.password
        replica.start()
        ours.update(noted("streamed"))
        until(lambda: replica.sql("SELECT max(revision) FROM liza.entry") == "3")
        replica.stop()
        ours.update(noted("missed"))
        crashing.kill()
        replica.port = crashing.port
        replica.start()
        replica.sql("SELECT pg_promote()")
        until(lambda: replica.sql("SELECT pg_is_in_recovery()") == "f")
        with pytest.raises(BoardRewound, match=r"went backwards: it had revision 4 and has lost it"):
            ours.update(noted("on a lost past"))
        # Another process of the machine, and somebody who only knows what is there now.
        with closing(open_board(location)) as again, pytest.raises(BoardRewound):
            again.read()
        assert replica.sql("SELECT name FROM liza.switch") == "ABORT"
        assert replica.sql("SELECT max(revision) FROM liza.entry") == "3"
        assert "went backwards" in replica.sql("SELECT says FROM liza.alert")
    count("replica promoted that had missed commits: everybody stopped", 1)


def test_a_full_pool_is_waited_for(crashing: PostgresServer, count: Callable[[str, int], None]) -> None:
    crashing.stop()
    crashing.settings["max_connections"] = "14"
    crashing.start()
    crashing.sql("CREATE ROLE busy LOGIN PASSWORD 'b'; GRANT owner TO busy")
    location = crashing.address_of("busy", "b")
    with closing(create_board_at(location, board())) as ours, ExitStack() as others:
        ours.read()
        crashing.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'busy'")
        with suppress(psycopg.OperationalError):
            for _ in range(14):
                others.enter_context(psycopg.connect(location))
        with closing(open_board(location)) as new, pytest.raises(BoardUnreachable, match="slots"):
            new.read()
        writer = threading.Thread(target=ours.update, args=(noted("patient"),))
        writer.start()
        writer.join(0.5)
        assert writer.is_alive()
        others.close()
        writer.join(PATIENCE)
        assert each_once(ours, ["patient"]) == 1
    count("connection pools that were full", 1)


def test_a_slow_server_is_only_slow(crashing: PostgresServer, state_home: str) -> None:
    with PostgresProxy(crashing.port, delay=0.1) as proxy:
        slow = crashing.address_of("owner", port=proxy.port)
        with closing(create_board_at(crashing.address, board())) as ours:
            pipe, theirs = PROCESSES.Pipe(duplex=False)
            process = PROCESSES.Process(target=note_many, args=(slow, state_home, "slow", 10, theirs))
            process.start()
            said = []
            assert pipe.recv() == "ready"
            for number in range(30):
                ours.update(noted(f"quick {number}"))
                said.append(f"quick {number}")
            while (message := pipe.recv()) is not None:
                said.append(message)
            ended_well([process])
            assert each_once(ours, said) == 40


def test_a_server_that_does_not_come_back_is_one_sentence(
    crashing: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_server, "PATIENCE", 1.0)
    with closing(create_board_at(crashing.address, board())) as ours:
        ours._server.patience = 1.0  # type: ignore[attr-defined]
        crashing.kill()
        with pytest.raises(BoardUnreachable, match="cannot be reached") as said:
            ours.update(noted("lost"))
        assert crashing.password not in str(said.value)


@pytest.mark.skipif(shutil.which("faketime") is None, reason="there is no faketime (apt install faketime)")
@pytest.mark.parametrize("hours", [3, -3])
def test_a_machine_whose_clock_is_wrong_takes_no_lease_and_loses_none(
    hours: int, crashing: PostgresServer, tmp_path: Path, count: Callable[[str, int], None]
) -> None:
    coder = worker("coder-1")
    with closing(create_board_at(crashing.address, board(new_task("t1")))) as ours:
        now = ours.now()
        claim = e.Take(lease=lease_of(coder, at=now), base_commit=BASE)
        ours.update(apply(claim, to="t1", by=coder, at=now))
        program = (
            "import sys; from datetime import datetime, UTC; from liza.board.protocol import open_board\n"
            "from tests.support.boards import noted\n"
            "board = open_board(sys.argv[1]); lease = board.read().task('t1').lease\n"
            "board.update(noted('from another time'))\n"
            "print(datetime.now(UTC).isoformat(), board.now().isoformat(), lease.expires > board.now())\n"
        )
        done = subprocess.run(
            ["faketime", "-f", f"{hours:+d}h", sys.executable, "-c", program, crashing.address],
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, "FAKETIME_DONT_FAKE_MONOTONIC": "1", "XDG_STATE_HOME": str(tmp_path)},
        )
        own, boards, is_live = done.stdout.split()
        assert abs(datetime.fromisoformat(own) - datetime.now(UTC)) > timedelta(hours=2)
        assert abs(datetime.fromisoformat(boards) - datetime.now(UTC)) < timedelta(seconds=PATIENCE)
        assert is_live == "True"
        times = [entry.at for entry in ours.entries()]
        assert times == sorted(times)
        assert times[-1] - now < timedelta(seconds=PATIENCE)
        reclaim = apply(e.Reclaim(reason="over"), to="t1", by=SUPERVISOR, at=ours.now())
        assert ours.update(reclaim).task("t1").lease is None
    count("clocks three hours off", 1)


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)
