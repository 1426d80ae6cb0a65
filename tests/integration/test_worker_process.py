"""Workers as processes of their own: switches, signals, leases, a second one of the same name."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from datetime import timedelta
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from liza.board.alerts import ALERTS
from liza.domain.changes import SUPERVISOR
from liza.domain.events import Reclaim
from liza.domain.model import GoalStatus, Status, WorkerStatus
from liza.domain.record import utc_now
from liza.repo import salvage
from liza.system.proc_table import process_of
from liza.workflow.transition import apply
from tests.office import PATIENCE, ROOT, Office

if TYPE_CHECKING:
    from collections.abc import Callable

DONE: Final = {"status": "done", "summary": "Change it"}


def slow(office: Office, **more: Any) -> None:  # noqa: ANN401 - whatever an act may have
    """Let agents write something, say so, and go on only when they are told."""
    note, go = str(office.yard / "note"), str(office.yard / "go")
    office.script(
        {"implement": {"write": {"t1.txt": "half"}, "note": note, "until": go, "answer": DONE, **more}}
    )


def soon(holds: Callable[[], bool], within: float = PATIENCE) -> float:
    """Wait until something holds and return how long that took."""
    began = time.monotonic()
    while not holds():
        assert time.monotonic() - began < within
        time.sleep(0.01)
    return time.monotonic() - began


def state_of(pid: int) -> str:
    process = process_of(pid)
    return process.state if process else "gone"


def is_gone(pid: int) -> bool:
    return state_of(pid) in {"gone", "Z"}


@pytest.fixture
def office(tmp_path: Path) -> Office:
    office = Office(tmp_path)
    slow(office)
    office.task()
    return office


def agent_of(office: Office) -> int:
    return int(office.noted()[-1].split()[-1])


class TestSwitches:
    def test_pause_freezes_the_agent_and_abort_during_it_ends_all(self, office: Office) -> None:
        """The agent is stopped, goes on, and is ended; its work is saved and its task given back."""
        with office.process("coder-1") as worker:
            pid = agent_of(office)
            (office.home / "PAUSE").touch()
            assert soon(lambda: state_of(pid) == "T") < PATIENCE
            # At a CHECKPOINT whoever works comes to the end of its turn.
            (office.home / "CHECKPOINT").touch()
            (office.home / "PAUSE").unlink()
            soon(lambda: state_of(pid) != "T")
            (office.home / "PAUSE").touch()
            soon(lambda: state_of(pid) == "T")
            (office.home / "ABORT").touch()
            assert worker.wait(PATIENCE) == 0
            assert is_gone(pid)

        task = office.state.task("t1")
        assert (task.status, task.lease, task.failed_by) == (Status.IDLE, None, ())
        saved = salvage.list_salvages(office.user.repository, "t1")
        assert office.user.git("show", f"{saved[0].ref}:t1.txt") == "half"
        assert office.state.agents["coder-1"].status is WorkerStatus.STOPPED

    def test_nothing_starts_during_a_pause(self, office: Office) -> None:
        """A worker that is idle obeys as well, and begins when the file goes."""
        (office.home / "PAUSE").touch()
        (office.yard / "go").touch()
        with office.process("coder-1"):
            office.until(lambda state: "coder-1" in state.agents)
            time.sleep(0.7)
            assert office.status() is Status.IDLE
            (office.home / "PAUSE").unlink()
            office.until(lambda state: state.task("t1").status is Status.READY_FOR_REVIEW)

    def test_a_signal_is_an_abort_for_one_worker(self, office: Office) -> None:
        """Whoever stops a worker loses nothing, and others work on."""
        with office.process("coder-1") as worker:
            pid = agent_of(office)
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(PATIENCE) == 0
            assert is_gone(pid)
        assert office.status() is Status.IDLE
        assert salvage.list_salvages(office.user.repository, "t1")

    def test_a_worker_and_its_agent_die_with_the_supervisor(self, office: Office) -> None:
        """A supervisor that is killed leaves nobody behind, and what was done is saved."""
        code = (
            "import subprocess, sys, time; "
            "w = subprocess.Popen([sys.executable, '-c', sys.argv[1], *sys.argv[2:]]); "
            "print(w.pid, flush=True); time.sleep(600)"
        )
        worker = (
            "import sys; from pathlib import Path; "
            "from liza.domain.model import Role; from liza.daemon.worker import main; "
            "sys.exit(main(Path(sys.argv[1]), Role.CODER, 'coder-1'))"
        )
        parent = subprocess.Popen(
            [sys.executable, "-c", code, worker, str(office.home)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
        )
        assert parent.stdout
        pid = int(parent.stdout.readline())
        agent = agent_of(office)
        parent.kill()
        parent.wait()
        parent.stdout.close()
        soon(lambda: is_gone(pid) and is_gone(agent))
        assert office.status() is Status.IDLE


class TestLeases:
    def test_a_worker_that_lost_its_lease_writes_nothing(self, office: Office) -> None:
        """Its agent is ended, and whatever it would have said comes too late."""
        office.place("coder-1")
        turn = threading.Thread(target=office.turn, args=["coder-1"])
        turn.start()
        pid = agent_of(office)
        office.board.update(apply(Reclaim(reason="it seemed dead"), to="t1", by=SUPERVISOR, at=utc_now()))
        tasks = office.state.tasks
        (office.yard / "go").touch()
        turn.join(PATIENCE)
        assert not turn.is_alive()
        assert is_gone(pid)
        assert office.state.tasks == tasks
        assert office.state.spend.reserved == ()  # what it cost is known all the same

    def test_a_lease_is_renewed_while_the_agent_works(self, tmp_path: Path) -> None:
        """A run may be much longer than a lease."""
        office = Office(tmp_path, limits={"lease_seconds": 1.5})
        slow(office)
        office.task()
        turn = threading.Thread(target=office.turn, args=["coder-1"])
        turn.start()
        agent_of(office)
        lease = office.state.task("t1").lease
        assert lease
        office.until(
            lambda state: bool(
                (now := state.task("t1").lease) and now.expires > lease.expires + timedelta(seconds=1)
            )
        )
        (office.yard / "go").touch()
        turn.join(PATIENCE)
        assert office.status() is Status.READY_FOR_REVIEW

    def test_a_lost_lease_ends_the_agent_at_the_next_renewal(self, tmp_path: Path) -> None:
        """An agent does not go on spending on a task that somebody else has."""
        office = Office(tmp_path, limits={"lease_seconds": 1.0})
        slow(office)
        office.task()
        turn = threading.Thread(target=office.turn, args=["coder-1"])
        turn.start()
        pid = agent_of(office)
        office.board.update(apply(Reclaim(reason="it seemed dead"), to="t1", by=SUPERVISOR, at=utc_now()))
        turn.join(PATIENCE)
        assert is_gone(pid)
        assert office.status() is Status.IDLE

    def test_a_worker_that_comes_back_lets_go_of_what_it_held(self, office: Office) -> None:
        """Nobody waits for a lease of a process that is dead, and the work goes on where it was."""
        with office.process("coder-1") as worker:
            agent_of(office)
            worker.kill()
            worker.wait()
        assert office.status() is Status.WORKING
        (office.yard / "go").touch()
        with office.process("coder-1"):
            office.until(lambda state: state.task("t1").status is Status.READY_FOR_REVIEW)
        task = office.state.task("t1")
        assert (task.iteration, task.attempt) == (1, 2)


class TestTheProcess:
    def test_two_workers_never_share_a_name(self, office: Office) -> None:
        """The second is told who holds the name."""
        with office.process("coder-1"):
            office.until(lambda state: "coder-1" in state.agents)
            with office.process("coder-1") as second:
                assert second.wait(PATIENCE) == 1

    def test_a_worker_ends_when_the_goal_is_reached(self, tmp_path: Path) -> None:
        """Planner, coder and reviewer go home by themselves, with exit code 0."""
        office = Office(tmp_path)
        with (
            office.process("planner-1") as planner,
            office.process("coder-1") as coder,
            office.process("reviewer-1") as reviewer,
        ):
            assert [worker.wait(PATIENCE) for worker in (planner, coder, reviewer)] == [0, 0, 0]
        assert office.state.goal.status is GoalStatus.COMPLETE
        assert office.merged("t1.txt") == "t1"


def test_a_workflow_that_was_broken_in_mid_run_pauses_everybody(tmp_path: Path) -> None:
    """Whoever edits the file is told what is wrong with it, and nobody crashes over it."""
    office = Office(tmp_path, workflow="flow.yaml")
    packaged = files("liza.workflow").joinpath("liza.yaml").read_text()
    flow = office.user.directory / "flow.yaml"
    flow.write_text(packaged.replace("name: liza", "name: flow"))
    office.adopt()
    with office.process("coder-1") as worker:
        flow.write_text(packaged.replace("start: CODE", "start: NOWHERE"))
        office.task()
        soon((office.home / "PAUSE").exists)
        assert "NOWHERE" in (office.home / "PAUSE").read_text()
        soon((office.home / ALERTS).exists)
        told = (office.home / ALERTS).read_text().splitlines()
        assert len(told) == 1
        assert re.search("everybody pauses: .*NOWHERE.*; mend it, then `liza resume`$", told[0])
        assert worker.poll() is None
        assert office.status() is Status.IDLE
        flow.write_text(packaged)
        (office.home / "PAUSE").unlink()
        office.until(lambda state: state.status_of("t1") is Status.READY_FOR_REVIEW)
