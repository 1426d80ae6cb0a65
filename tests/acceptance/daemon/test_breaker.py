"""The circuit breaker, sprints and metrics as the people who run Liza meet them."""

from __future__ import annotations

import json
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import pytest

from liza.board.file import FileBoard
from liza.domain.anomalies import ExternalBlocker
from liza.domain.changes import Change, with_anomaly
from liza.domain.model import BreakerStatus, GoalStatus, Status
from liza.domain.record import utc_now
from liza.domain.rules import with_due_trips
from tests.support.liza_process import LizaProcess
from tests.support.scripted_team import PATIENCE, ScriptedTeam
from tests.support.shell import Shell

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from liza.domain.model import State


def blocked_by_registry(name: str) -> dict[str, Any]:
    anomaly = {"type": "external_blocker", "service": "registry", "symptom": f"502 at {name}"}
    answer = {"status": "done", "summary": f"wrote {name}", "anomalies": [anomaly]}
    return {"write": {f"{name}.txt": name}, "commit": name, "answer": answer}


TROUBLE: Final = {f"implement {name}": blocked_by_registry(name) for name in ("t1", "t2")}


@contextmanager
def running(team: ScriptedTeam) -> Iterator[LizaProcess]:
    process = LizaProcess("run", cwd=team.user.directory)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(PATIENCE)


def eventually(is_so: Callable[[], object]) -> None:
    """Wait for another process, which tells nobody when it is so far."""
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_tripped(state: State) -> bool:
    return state.circuit_breaker.status is BreakerStatus.TRIPPED


class TestWholeRun:
    def test_a_trip_halts_the_agents_until_somebody_resolves_it(self, tmp_path: Path) -> None:
        team = ScriptedTeam(tmp_path, TROUBLE)
        for number in (1, 2, 3):
            team.task(f"t{number}", depends_on=(f"t{number - 1}",) if number > 1 else ())
        shell = Shell(team.user.directory)
        with running(team) as run:
            state = team.until(is_tripped)
            (trip,) = state.circuit_breaker.trips
            assert (trip.rule, trip.evidence) == ("external_service_outage", ("anomaly-1", "anomaly-2"))
            eventually((team.home / "CHECKPOINT").exists)
            eventually(lambda: list((team.home / "checkpoints").glob("*.md")))
            assert (team.home / "CHECKPOINT").read_text().startswith("circuit breaker: trip-1: ")
            (report,) = (team.home / "report").glob("breaker-*-external_service_outage.md")
            assert "anomaly-2: external_blocker of t2 by coder-1" in report.read_text()
            refused = shell("resume")
            assert (refused.code, len(refused.err.splitlines())) == (1, 1)
            assert "trip-1 (external_service_outage) is open" in refused.err
            assert (team.home / "CHECKPOINT").exists()
            assert team.board.read().task("t3").status is Status.IDLE
            assert "the breaker is OK and the agents go on" in shell.ok(
                "breaker", "resolve", "trip-1", "--reason", "the registry is back"
            )
            assert run.wait(PATIENCE) == 0
        state = team.state
        assert state.goal.status is GoalStatus.COMPLETE
        assert len(state.circuit_breaker.trips) == 1
        told = (team.home / "alerts.log").read_text()
        assert told.count("trip-1: the rule external_service_outage fired (t1, t2)") == 1
        assert told.count("the goal is COMPLETE: 3 of 3 tasks done") == 1
        assert "MERGED" in shell.ok("metrics")
        assert (team.home / "report" / "sprint-1.md").exists()

    def test_a_sprint_ends_in_a_checkpoint_and_the_next_begins_on_resume(self, tmp_path: Path) -> None:
        team = ScriptedTeam(tmp_path, sprint={"tasks": 1})
        for number in (1, 2):
            team.task(f"t{number}", depends_on=(f"t{number - 1}",) if number > 1 else ())
        shell = Shell(team.user.directory)
        with running(team) as run:
            state = team.until(lambda state: state.sprint.retrospective is not None)
            assert state.sprint.number == 1
            assert (team.home / "CHECKPOINT").read_text().startswith("sprint 1 is over, because 1 tasks")
            assert (
                "It is over because 1 tasks are finished."
                in (team.home / str(state.sprint.retrospective)).read_text()
            )
            assert state.task("t2").status is not Status.MERGED
            shell.ok("resume")
            assert run.wait(PATIENCE) == 0
        state = team.state
        assert (state.sprint.number, state.goal.status) == (2, GoalStatus.COMPLETE)
        assert state.sprint.metrics.outcomes == {"MERGED": 1}
        assert json.loads(shell.ok("metrics", "--json", "--all"))["outcomes"] == {"MERGED": 2}


@pytest.fixture
def open_one(tmp_path: Path) -> Shell:
    """A project whose breaker is open; nobody runs."""
    subprocess.run(["git", "init", "--quiet", "."], cwd=tmp_path, check=True)
    shell = Shell(tmp_path)
    shell.ok("init", "Build a greeter")
    board, now = FileBoard(shell.home), utc_now()

    def make(state: State) -> State:
        for symptom in ("502", "503"):
            details = ExternalBlocker(service="registry", symptom=symptom)
            state = with_anomaly(state, details, about=None, by="coder-1", at=now)
        return with_due_trips(state, now)

    board.update(Change("supervisor", "trip the breaker", make))
    board.close()
    return shell


class TestCommands:
    def test_the_list_says_how_to_resolve(self, open_one: Shell) -> None:
        assert 'open (`liza breaker resolve trip-1 --reason "…"`)' in open_one.ok("breaker")
        found = json.loads(open_one.ok("breaker", "--json"))
        assert found["status"] == "TRIPPED"
        assert found["trips"][0]["evidence"] == ["anomaly-1", "anomaly-2"]
        assert "trip-1: the rule external_service_outage fired" in open_one.ok("status")

    def test_one_trip_is_shown_with_its_evidence_and_advice(self, open_one: Shell) -> None:
        shown = open_one.ok("breaker", "show", "trip-1")
        assert "anomaly-1: external_blocker by coder-1: service registry, symptom 502" in shown
        assert "wait until the service is back" in shown
        assert (
            json.loads(open_one.ok("breaker", "show", "trip-1", "--json"))["rule"]
            == "external_service_outage"
        )

    def test_a_switch_that_a_person_threw_stays_theirs(self, open_one: Shell) -> None:
        open_one.ok("pause", "lunch")
        (open_one.home / "CHECKPOINT").write_text("circuit breaker: trip-1: …\n")
        out = open_one.ok("breaker", "resolve", "trip-1", "--reason", "it is back")
        assert "PAUSE is thrown, and `liza resume` takes it back" in out
        assert not (open_one.home / "CHECKPOINT").exists()
        assert (open_one.home / "PAUSE").exists()
        assert open_one.ok("resume") == "Took back PAUSE.\n"
        assert open_one.board()["circuit_breaker"]["status"] == "OK"
        assert all("processed" in anomaly for anomaly in open_one.board()["anomalies"])

    @pytest.mark.parametrize(
        ("words", "code", "says"),
        [
            (("show", "trip-9"), 1, "there is no trip 'trip-9'; `liza breaker` lists them"),
            (("resolve", "trip-9", "--reason", "x"), 1, "there is no trip 'trip-9'"),
            (("resolve", "trip-1", "--reason", " "), 2, "the reason is empty"),
        ],
    )
    def test_a_mistake_is_one_sentence(
        self, open_one: Shell, words: tuple[str, ...], code: int, says: str
    ) -> None:
        done = open_one("breaker", *words)
        assert (done.code, len(done.err.splitlines())) == (code, 1)
        assert says in done.err

    def test_metrics_of_a_fresh_board_are_a_table(self, open_one: Shell) -> None:
        assert "anomalies               2 external_blocker" in open_one.ok("metrics")
        assert json.loads(open_one.ok("metrics", "--json"))["attempts"] == 0
