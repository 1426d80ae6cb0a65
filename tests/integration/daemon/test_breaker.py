"""A supervisor with a breaker: what it throws, writes and tells, also where it died in the middle."""

from __future__ import annotations

import io
import os
import signal
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import pytest

from liza.cli.views.screen import LineView
from liza.daemon.recover import Recovery
from liza.daemon.supervisor import Supervisor, Until
from liza.daemon.worker_processes import WorkerProcesses
from liza.domain.anomalies import CheckoutDrift, ExternalBlocker
from liza.domain.changes import HUMAN, Change, with_anomaly
from liza.domain.config import Notify, SprintLength
from liza.domain.lifecycle import Block, Defer
from liza.domain.model import Actor, BreakerStatus, Role, Sprint, WorkerRecord
from liza.domain.record import utc_now, with_record
from liza.domain.rules import resolve_trip, with_due_trips
from liza.repo.repository import Repository
from liza.system.run_control import Wakeup
from liza.workflow.transition import apply
from tests.support.supervisor_process import SupervisorProcess, supervised_project

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from liza.domain.anomalies import Details
    from liza.domain.model import State

OUTAGE: Final = [ExternalBlocker(service="registry", symptom=symptom) for symptom in ("502", "503")]


@pytest.fixture
def here(tmp_path: Path) -> Iterator[SupervisorProcess]:
    with supervised_project(tmp_path) as found:
        yield found


def log(here: SupervisorProcess, *details: Details) -> None:
    def make(state: State) -> State:
        for one in details:
            state = with_anomaly(state, one, about="t1", by="coder-1", at=utc_now())
        return state

    here.board.update(Change("coder-1", "log", make))


def alerts(here: SupervisorProcess) -> str:
    path = here.home / "alerts.log"
    return path.read_text() if path.exists() else ""


def reports(here: SupervisorProcess) -> list[str]:
    return sorted(path.name for path in (here.home / "report").glob("*.md"))


class TestSwitch:
    def test_it_is_thrown_by_a_trip_kept_while_it_is_open_and_gone_with_it(
        self, here: SupervisorProcess
    ) -> None:
        here.start()
        log(here, *OUTAGE)
        path = here.home / "CHECKPOINT"
        here.eventually(path.exists)
        path.unlink()
        here.eventually(path.exists)
        here.board.update(Change("human", "resolve", lambda s: resolve_trip(s, "trip-1", "back", utc_now())))
        here.eventually(lambda: not path.exists())
        assert alerts(here).count("trip-1: the rule external_service_outage fired") == 1

    def test_a_drift_pauses_and_a_crash_loop_stops_nobody(self, here: SupervisorProcess) -> None:
        """Pains A 12: drift trips the breaker."""
        here.start()
        late = WorkerRecord(id="coder-9", role=Role.CODER, since=utc_now(), crashes=(utc_now(),) * 3)
        crash = Change("supervisor", "crash", lambda s: s.replace(agents=with_record(s.agents, late)))
        here.board.update(crash)
        here.eventually(lambda: len(reports(here)) == 1)
        assert here.board.read().circuit_breaker.status is BreakerStatus.OK
        assert not (here.home / "PAUSE").exists()
        log(here, CheckoutDrift(moved=("HEAD",)))
        here.eventually((here.home / "PAUSE").exists)
        assert "circuit breaker: trip-2: the rule checkout_drift" in (here.home / "PAUSE").read_text()

    def test_a_switch_that_a_person_threw_is_not_touched(self, here: SupervisorProcess) -> None:
        (here.home / "CHECKPOINT").write_text("mine\n")
        log(here, *OUTAGE)
        here.start()
        here.until(lambda state: bool(state.circuit_breaker.trips))
        here.eventually(lambda: reports(here))
        here.board.update(Change("human", "resolve", lambda s: resolve_trip(s, "trip-1", "back", utc_now())))
        here.eventually(lambda: "CHECKPOINT is thrown: mine" in here.told())
        assert (here.home / "CHECKPOINT").read_text() == "mine\n"

    def test_until_idle_ends_with_3_and_names_the_command(self, here: SupervisorProcess) -> None:
        log(here, *OUTAGE)
        assert here.ended(here.start(until_idle=True)) == 3
        assert 'liza breaker resolve trip-1 --reason "…"' in here.told()


class TestDying:
    def test_what_a_dead_supervisor_only_recorded_is_written_by_the_next(
        self, here: SupervisorProcess
    ) -> None:
        log(here, *OUTAGE)
        here.board.update(Change("supervisor", "trip the breaker", lambda s: with_due_trips(s, utc_now())))
        here.start()
        here.eventually((here.home / "CHECKPOINT").exists)
        here.eventually(lambda: reports(here))
        assert len(here.board.read().circuit_breaker.trips) == 1

    def test_a_trip_and_a_question_are_told_once_over_two_runs(self, here: SupervisorProcess) -> None:
        """Pains A 16: on the edge, deduplicated; and whoever starts a run sees what still waits."""
        planner = Actor(role=Role.PLANNER, id="planner-1")
        block = Block(reason="unclear", questions=("Which colour?",))
        here.board.update(apply(block, to="t1", by=HUMAN, at=utc_now()))
        here.board.update(apply(Defer(questions=("Which colour?",)), to="t1", by=planner, at=utc_now()))
        for number in (1, 2):
            run = here.start()
            here.eventually(lambda: here.told().count("t1 is BLOCKED: Which colour?") == number)  # noqa: B023
            os.kill(int(run.pid or 0), signal.SIGKILL)
            here.ended(run)
        assert alerts(here).count("t1 is BLOCKED: Which colour?") == 1

    def test_a_sprint_that_only_ended_on_the_board_gets_its_files(self, here: SupervisorProcess) -> None:
        old = utc_now() - timedelta(hours=3)

        def late(state: State) -> State:
            config = state.config.replace(sprint=SprintLength(hours=1))
            return state.replace(sprint=Sprint(started=old, ended=old + timedelta(hours=1)), config=config)

        here.board.update(Change("supervisor", "end the sprint", late))
        here.start()
        state = here.until(lambda state: state.sprint.retrospective is not None)
        assert state.sprint.retrospective == "report/sprint-1.md"
        assert "has passed" in (here.home / "report" / "sprint-1.md").read_text()
        assert (here.home / "CHECKPOINT").read_text().startswith("sprint 1 is over, because its deadline")
        (here.home / "CHECKPOINT").unlink()
        state = here.until(lambda state: state.sprint.number == 2)
        assert state.sprint.tasks == ("t1",)
        here.eventually(lambda: "sprint 1 is over" in alerts(here))

    def test_until_idle_ends_with_3_at_the_end_of_a_sprint(self, here: SupervisorProcess) -> None:
        old = utc_now() - timedelta(hours=3)

        def short(state: State) -> State:
            return state.replace(sprint=Sprint(started=old, deadline=old + timedelta(hours=1)))

        here.board.update(Change("human", "hurry", short))
        assert here.ended(here.start(until_idle=True)) == 3
        assert list((here.home / "checkpoints").glob("*.md"))
        assert "sprint 1 is over; see report/sprint-1.md" in alerts(here)


class TestTelling:
    def test_a_lost_integration_branch_is_told_once_until_it_is_back(self, here: SupervisorProcess) -> None:
        repository = Repository.around(here.home.parent)
        begin = repository.ensure_branch("liza/integration")
        supervisor = Supervisor(
            Recovery(here.board, repository),
            WorkerProcesses(here.home, ["true"], here.home),
            LineView(io.StringIO()),
            Wakeup(),
            until=Until.COMPLETE,
            grace=0.0,
        )
        commit = str(repository.commit_at(begin))
        for _ in range(2):
            repository.delete(begin, expected=commit)
            for _ in range(3):
                supervisor._check_integration_branch("liza/integration")
            repository.move_ref(begin, to=commit, expected=None, why="put back")
            supervisor._check_integration_branch("liza/integration")
        assert alerts(here).count("the integration branch liza/integration is gone") == 2

    def test_a_full_report_folder_does_not_keep_the_switch_from_working(
        self, here: SupervisorProcess
    ) -> None:
        (here.home / "report").write_text("in the way")
        here.start()
        log(here, *OUTAGE)
        here.eventually((here.home / "CHECKPOINT").exists)
        here.eventually(lambda: "trouble, tried again until it is over: cannot write" in alerts(here))
        (here.home / "report").unlink()
        here.eventually(lambda: reports(here))

    def test_a_checkpoint_of_nine_hours_is_told_once_over_two_runs(self, here: SupervisorProcess) -> None:
        path = here.home / "CHECKPOINT"
        path.write_text("look\n")
        long_ago = (utc_now() - timedelta(hours=9)).timestamp()
        os.utime(path, (long_ago, long_ago))
        for _ in range(2):
            run = here.start()
            here.eventually(lambda: "CHECKPOINT waits for somebody since" in alerts(here))
            run.terminate()
            here.ended(run)
        assert alerts(here).count("CHECKPOINT waits for somebody since") == 1

    def test_the_supervisor_sends_on_what_others_wrote_to_the_log(self, here: SupervisorProcess) -> None:
        notify = Notify(command=("sh", "-c", 'printf "%s\\n" "$1" >> sent', "sh"))
        here.board.update(Change("human", "set", lambda s: s.replace(config=s.config.replace(notify=notify))))
        run = here.start()
        with (here.home / "alerts.log").open("a") as file:
            file.write("2026-01-01T12:00:00Z coder-1 waits until 13:00:00Z: quota\n")
        sent = here.home.parent / "sent"
        here.eventually(lambda: sent.exists() and "coder-1 waits until" in sent.read_text())
        run.terminate()
        here.ended(run)
        assert sent.read_text().count("coder-1 waits until") == 1
