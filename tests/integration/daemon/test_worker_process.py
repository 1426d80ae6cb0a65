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
from liza.domain.lifecycle import Reclaim
from liza.domain.model import GoalStatus, Status, WorkerStatus
from liza.domain.record import utc_now
from liza.repo import salvage
from liza.system.process import process_of
from liza.workflow.transition import apply
from tests.support.scripted_team import PATIENCE, ROOT, ScriptedTeam

if TYPE_CHECKING:
    from collections.abc import Callable

DONE: Final = {"status": "done", "summary": "Change it"}


def slow(team: ScriptedTeam, **more: Any) -> None:  # noqa: ANN401 - whatever an act may have
    """Let agents write something, say so, and go on only when they are told."""
    note, go = str(team.outside / "note"), str(team.outside / "go")
    team.script(
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
def team(tmp_path: Path) -> ScriptedTeam:
    team = ScriptedTeam(tmp_path)
    slow(team)
    team.task()
    return team


def agent_of(team: ScriptedTeam) -> int:
    return int(team.noted()[-1].split()[-1])


class TestSwitches:
    def test_pause_freezes_the_agent_and_abort_during_it_ends_all(self, team: ScriptedTeam) -> None:
        """The agent is stopped, goes on, and is ended; its work is saved and its task given back."""
        with team.process("coder-1") as worker:
            pid = agent_of(team)
            (team.home / "PAUSE").touch()
            assert soon(lambda: state_of(pid) == "T") < PATIENCE
            # At a CHECKPOINT whoever works comes to the end of its turn.
            (team.home / "CHECKPOINT").touch()
            (team.home / "PAUSE").unlink()
            soon(lambda: state_of(pid) != "T")
            (team.home / "PAUSE").touch()
            soon(lambda: state_of(pid) == "T")
            (team.home / "ABORT").touch()
            assert worker.wait(PATIENCE) == 0
            assert is_gone(pid)

        task = team.state.task("t1")
        assert (task.status, task.lease, task.failed_by) == (Status.IDLE, None, ())
        saved = salvage.list_salvages(team.user.repository, "t1")
        assert team.user.git("show", f"{saved[0].ref}:t1.txt") == "half"
        assert team.state.agents["coder-1"].status is WorkerStatus.STOPPED

    def test_nothing_starts_during_a_pause(self, team: ScriptedTeam) -> None:
        """A worker that is idle obeys as well, and begins when the file goes."""
        (team.home / "PAUSE").touch()
        (team.outside / "go").touch()
        with team.process("coder-1"):
            team.until(lambda state: "coder-1" in state.agents)
            time.sleep(0.7)
            assert team.status() is Status.IDLE
            (team.home / "PAUSE").unlink()
            team.until(lambda state: state.task("t1").status is Status.READY_FOR_REVIEW)

    def test_a_signal_is_an_abort_for_one_worker(self, team: ScriptedTeam) -> None:
        """Whoever stops a worker loses nothing, and others work on."""
        with team.process("coder-1") as worker:
            pid = agent_of(team)
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(PATIENCE) == 0
            assert is_gone(pid)
        assert team.status() is Status.IDLE
        assert salvage.list_salvages(team.user.repository, "t1")

    def test_a_worker_and_its_agent_die_with_the_supervisor(self, team: ScriptedTeam) -> None:
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
            [sys.executable, "-c", code, worker, str(team.home)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
        )
        assert parent.stdout
        pid = int(parent.stdout.readline())
        agent = agent_of(team)
        parent.kill()
        parent.wait()
        parent.stdout.close()
        soon(lambda: is_gone(pid) and is_gone(agent))
        assert team.status() is Status.IDLE


class TestLeases:
    def test_a_worker_that_lost_its_lease_writes_nothing(self, team: ScriptedTeam) -> None:
        """Its agent is ended, and whatever it would have said comes too late."""
        team.worker("coder-1")
        turn = threading.Thread(target=team.turn, args=["coder-1"])
        turn.start()
        pid = agent_of(team)
        team.board.update(apply(Reclaim(reason="it seemed dead"), to="t1", by=SUPERVISOR, at=utc_now()))
        tasks = team.state.tasks
        (team.outside / "go").touch()
        turn.join(PATIENCE)
        assert not turn.is_alive()
        assert is_gone(pid)
        assert team.state.tasks == tasks
        assert team.state.spend.reserved == ()  # what it cost is known all the same

    def test_a_lease_is_renewed_while_the_agent_works(self, tmp_path: Path) -> None:
        """A run may be much longer than a lease."""
        team = ScriptedTeam(tmp_path, limits={"lease_seconds": 1.5})
        slow(team)
        team.task()
        turn = threading.Thread(target=team.turn, args=["coder-1"])
        turn.start()
        agent_of(team)
        lease = team.state.task("t1").lease
        assert lease
        team.until(
            lambda state: bool(
                (now := state.task("t1").lease) and now.expires > lease.expires + timedelta(seconds=1)
            )
        )
        (team.outside / "go").touch()
        turn.join(PATIENCE)
        assert team.status() is Status.READY_FOR_REVIEW

    def test_a_lost_lease_ends_the_agent_at_the_next_renewal(self, tmp_path: Path) -> None:
        """An agent does not go on spending on a task that somebody else has."""
        team = ScriptedTeam(tmp_path, limits={"lease_seconds": 1.0})
        slow(team)
        team.task()
        turn = threading.Thread(target=team.turn, args=["coder-1"])
        turn.start()
        pid = agent_of(team)
        team.board.update(apply(Reclaim(reason="it seemed dead"), to="t1", by=SUPERVISOR, at=utc_now()))
        turn.join(PATIENCE)
        assert is_gone(pid)
        assert team.status() is Status.IDLE

    def test_a_worker_that_comes_back_lets_go_of_what_it_held(self, team: ScriptedTeam) -> None:
        """Nobody waits for a lease of a process that is dead, and the work goes on where it was."""
        with team.process("coder-1") as worker:
            agent_of(team)
            worker.kill()
            worker.wait()
        assert team.status() is Status.WORKING
        (team.outside / "go").touch()
        with team.process("coder-1"):
            team.until(lambda state: state.task("t1").status is Status.READY_FOR_REVIEW)
        task = team.state.task("t1")
        assert (task.iteration, task.attempt) == (1, 2)


class TestTheProcess:
    def test_two_workers_never_share_a_name(self, team: ScriptedTeam) -> None:
        """The second is told who holds the name."""
        with team.process("coder-1"):
            team.until(lambda state: "coder-1" in state.agents)
            with team.process("coder-1") as second:
                assert second.wait(PATIENCE) == 1

    def test_a_worker_ends_when_the_goal_is_reached(self, tmp_path: Path) -> None:
        """Planner, coder and reviewer go home by themselves, with exit code 0."""
        team = ScriptedTeam(tmp_path)
        with (
            team.process("planner-1") as planner,
            team.process("coder-1") as coder,
            team.process("reviewer-1") as reviewer,
        ):
            assert [worker.wait(PATIENCE) for worker in (planner, coder, reviewer)] == [0, 0, 0]
        assert team.state.goal.status is GoalStatus.COMPLETE
        assert team.merged("t1.txt") == "t1"


def test_a_workflow_that_was_broken_in_mid_run_pauses_everybody(tmp_path: Path) -> None:
    """Whoever edits the file is told what is wrong with it, and nobody crashes over it."""
    team = ScriptedTeam(tmp_path, workflow="flow.yaml")
    packaged = files("liza.workflow").joinpath("liza.yaml").read_text()
    flow = team.user.directory / "flow.yaml"
    flow.write_text(packaged.replace("name: liza", "name: flow"))
    team.adopt()
    with team.process("coder-1") as worker:
        flow.write_text(packaged.replace("start: CODE", "start: NOWHERE"))
        team.task()
        soon((team.home / "PAUSE").exists)
        assert "NOWHERE" in (team.home / "PAUSE").read_text()
        soon((team.home / ALERTS).exists)
        told = (team.home / ALERTS).read_text().splitlines()
        assert len(told) == 1
        assert re.search("everybody pauses: .*NOWHERE.*; mend it, then `liza resume`$", told[0])
        assert worker.poll() is None
        assert team.status() is Status.IDLE
        flow.write_text(packaged)
        (team.home / "PAUSE").unlink()
        team.until(lambda state: state.status_of("t1") is Status.READY_FOR_REVIEW)
