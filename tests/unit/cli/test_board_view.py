"""The one model of all views: a function of values, whole, and the same wherever it is drawn."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Final

import pytest

from liza.board.protocol import Alert
from liza.cli.terminal.drawing import task_pieces
from liza.cli.views.board_view import BoardFacts, KnownRows, LiveRun, board_view, view_json
from liza.cli.views.headline import RunStanding, headline_of
from liza.cli.views.progress import forecast_of, forecast_text
from liza.cli.views.questions import ACTIONS, QuestionKind, open_questions
from liza.cli.views.runs import RunRecord
from liza.cli.web.parts import card
from liza.domain import lifecycle as e
from liza.domain.anomalies import Anomaly, CrashLoop
from liza.domain.changes import HUMAN, add_note, with_metrics
from liza.domain.config import Budget, Config
from liza.domain.lifecycle import SUCCEEDED, TERMINAL
from liza.domain.model import (
    BreakerStatus,
    CircuitBreaker,
    CostTotals,
    Goal,
    GoalStatus,
    Metrics,
    Provider,
    ProviderState,
    Role,
    Spend,
    Sprint,
    State,
    Status,
    TaskAccount,
    Trip,
    WorkerRecord,
    WorkerStatus,
)
from liza.domain.record import records_by_id
from liza.domain.report_words import GIVEN_UP
from liza.domain.waits import human_waits
from liza.system.process import ResourceUse
from tests.support.sample_tasks import (
    HOUR,
    NOW,
    SECOND,
    board,
    new_task,
    task_in,
)

LATER: Final = NOW + 75 * SECOND
RUN: Final = RunRecord(
    "coder-1.20260101T120030.1-abc.implement", "coder-1", "coder", "implement", "t1", NOW + 30 * SECOND
)
TRIP: Final = Trip(id="trip-1", rule="crash_loop", severity="high", at=NOW, says=("coder-2 crashed",))


def every_question() -> State:
    """A board on which everything that can ask asks."""
    stopped = WorkerRecord(
        id="coder-2", role=Role.CODER, status=WorkerStatus.STOPPED, since=NOW, stopped_reason="3 crashes"
    )
    refusing = Provider(id="acme", state=ProviderState.REFUSED, since=NOW, why="the key is old")
    return board(
        task_in(Status.BLOCKED, name="b1"),
        task_in(Status.AWAITING_APPROVAL, name="a1"),
        task_in(Status.AWAITING_APPROVAL, name="c1").replace(awaits_words=True),
        task_in(Status.APPROVED, ready_for=e.Accept, name="f1"),
        task_in(Status.DRAFT, name="d1").replace(created_by="human"),
        task_in(Status.DRAFT, name="p1"),
        agents=records_by_id([stopped]),
        providers=records_by_id([refusing]),
        goal=Goal(description="say hello", created=NOW, questions=("Which language?",)),
        circuit_breaker=CircuitBreaker(status=BreakerStatus.TRIPPED, trips=(TRIP,)),
        spend=Spend(total=CostTotals(runs=3, reported=9.5), asked=10),
        config=Config(budget=Budget(run_usd=10)),
    )


class TestQuestions:
    def test_there_is_one_of_each_kind(self) -> None:
        found = open_questions(every_question())

        assert [one.kind for one in found] == list(QuestionKind)
        assert all(one.asks and all(one.asks) for one in found)

    def test_all_that_waits_for_people_is_a_question(self) -> None:
        """The daemon tells people of the same things, with the same commands."""
        state = every_question()

        assert sorted(one.command for one in open_questions(state)) == sorted(
            wait.then for wait in human_waits(state)
        )

    def test_every_kind_can_be_acted_on(self) -> None:
        assert ACTIONS.keys() == set(QuestionKind)
        assert all(ACTIONS.values())

    def test_what_the_planner_looks_at_first_is_not_yours_yet(self) -> None:
        (found,) = open_questions(board(task_in(Status.BLOCKED)))

        assert (found.who, found.asks, found.because) == (
            "the planner",
            ("Which colour?",),
            "the goal is not clear",
        )


class TestHeadline:
    def test_a_run_that_goes_on_says_who_works(self) -> None:
        state = board(task_in(Status.WORKING), new_task("t2"))

        assert str(headline_of(state, {}, is_running=True)) == (
            "It goes on: 0 of 2 tasks done, coder-1 on t1."
        )

    def test_nobody_works_without_a_supervisor(self) -> None:
        found = headline_of(board(new_task()), {}, is_running=False)

        assert (found.standing, found.command) == (RunStanding.STOPPED, "liza run")

    def test_a_switch_comes_before_all_that_it_stops(self) -> None:
        found = headline_of(board(new_task()), {"PAUSE": "lunch"}, is_running=True)

        assert str(found) == (
            "Nothing new starts: PAUSE is thrown (lunch); 0 of 1 tasks done. Next: `liza resume`."
        )

    def test_where_only_people_can_go_on_it_names_the_command(self) -> None:
        state = board(goal=Goal(description="x", created=NOW, questions=("Which?",)))
        found = headline_of(state, {}, is_running=False, only=human_waits(state))

        assert found.standing is RunStanding.WAITING
        assert found.command == 'liza answer plan "…"; liza run'

    def test_given_up_is_what_is_over_and_did_not_succeed(self) -> None:
        assert GIVEN_UP == TERMINAL - SUCCEEDED

    def test_a_goal_that_is_over_says_how_to_take_the_work(self) -> None:
        goal = Goal(description="x", created=NOW, status=GoalStatus.COMPLETE, completed=NOW)
        found = headline_of(board(task_in(Status.MERGED), goal=goal), {}, is_running=False)

        assert (found.standing, found.command) == (RunStanding.OVER, "git merge liza/integration")


class TestBoardView:
    def test_it_has_each_task_with_what_it_waits_for(self) -> None:
        state = board(
            task_in(Status.REJECTED), new_task("t2", depends_on=("t1",)), task_in(Status.BLOCKED, name="t3")
        )
        shown = {task.id: task for task in board_view(BoardFacts(state, LATER)).tasks}

        assert (shown["t1"].why, shown["t1"].rejections) == ("no test", 1)
        assert (shown["t2"].why, shown["t2"].waits_for) == ("waits for t1", ("t1",))
        assert (shown["t3"].why, shown["t3"].needs_person) == ("the goal is not clear", True)
        assert (shown["t1"].phase, shown["t1"].iteration, shown["t1"].max_iterations) == ("CODE", 1, 10)

    def test_work_of_one_phase_has_its_round_also_while_it_is_reviewed(self) -> None:
        """The phase says nothing new there: the status does."""
        limits = Config.model_validate({"limits": {"max_coder_iterations": 7}})
        state = board(task_in(Status.READY_FOR_REVIEW), config=limits)
        (shown,) = board_view(BoardFacts(state, LATER)).tasks

        assert (shown.phase, shown.place, shown.iteration, shown.max_iterations) == ("REVIEW", "", 1, 7)
        assert "round 1 of 7" in str(card(shown, LATER))
        assert "1/7" in "".join(text for text, _ in task_pieces(shown, 80))

    def test_a_worker_has_its_agent_its_step_and_its_last_lines(self) -> None:
        state = board(
            task_in(Status.WORKING),
            agents=records_by_id(
                [WorkerRecord(id="coder-1", role=Role.CODER, status=WorkerStatus.RUNNING, since=NOW)]
            ),
            config=Config.model_validate({"agents": {"default": {"backend": "claude", "model": "opus"}}}),
        )
        use = ResourceUse(3, 1.5, 7 << 20)
        live = {"coder-1": LiveRun(RUN, ("$ make test",), use)}
        workers = board_view(BoardFacts(state, LATER, live_workers=frozenset({"coder-1"}), runs=live)).workers
        shown = {worker.id: worker for worker in workers}

        mine = shown["coder-1"]
        assert (mine.status, mine.agent, mine.step, mine.seconds) == (
            "at work",
            "claude opus",
            "implement",
            45.0,
        )
        assert (mine.lines, mine.use, mine.is_alive, mine.task) == (("$ make test",), use, True, "t1")
        assert (shown["reviewer-1"].status, shown["reviewer-1"].is_alive) == ("not started", False)

    def test_money_is_what_the_board_says(self) -> None:
        account = TaskAccount(id="t1", spent=CostTotals(runs=2, reported=3))
        state = board(
            new_task(),
            spend=Spend(total=CostTotals(runs=3, reported=3, priced=1, unreported=1)),
            accounts=records_by_id([account]),
        )
        money = board_view(BoardFacts(state, LATER)).money

        assert (money.usd, money.runs, money.unreported) == (4, 3, 1)
        assert [(one.task, one.usd) for one in money.tasks] == [("t1", 3)]
        assert board_view(BoardFacts(state, LATER)).tasks[0].usd == 3

    def test_it_carries_alerts_anomalies_trips_and_notes(self) -> None:
        crash = Anomaly(
            id="a-1", type="crash_loop", logged_by="supervisor", timestamp=NOW,
            details=CrashLoop(agent="coder-2", crashes=3),
        )  # fmt: skip
        state = board(anomalies=records_by_id([crash]), circuit_breaker=CircuitBreaker(trips=(TRIP,)))
        state = add_note("use tabs", about=None, by=HUMAN, at=NOW)(state)
        told = (Alert(9, "2026-01-01T12:00:00Z", "coder-2 crashed"),)
        shown = board_view(BoardFacts(state, LATER, alerts=told))

        assert shown.alerts == told
        assert [(one.type, one.is_open) for one in shown.anomalies] == [("crash_loop", True)]
        assert [(one.id, one.resolved_at) for one in shown.trips] == [("trip-1", None)]
        assert [(one.message, one.is_read) for one in shown.notes] == [("use tabs", False)]

    def test_a_past_board_pretends_to_know_nothing_of_who_lived(self) -> None:
        shown = board_view(BoardFacts(board(task_in(Status.WORKING)), LATER, is_past=True))

        assert str(shown.headline) == "It stood so: 0 of 1 tasks done, coder-1 on t1."
        assert [worker.is_alive for worker in shown.workers] == [None]

    def test_it_is_json_through_and_through(self) -> None:
        shown = board_view(BoardFacts(every_question(), LATER, {"PAUSE": ""}, runs={"coder-1": LiveRun(RUN)}))
        found = json.loads(json.dumps(shown.to_json()))

        assert found["at"] == "2026-01-01T12:01:15Z"
        assert found["headline"]["sentence"] == str(shown.headline)
        assert found["questions"][0]["actions"] == ["resolve"]
        assert [task["status"] for task in found["tasks"]] == [
            "BLOCKED",
            "AWAITING_APPROVAL",
            "AWAITING_APPROVAL",
            "APPROVED",
            "DRAFT",
            "DRAFT",
        ]
        assert found.keys() == {*shown._fields}

    def test_a_row_is_made_again_only_where_something_of_it_changed(self) -> None:
        """A board of a thousand tasks is looked at ten times a second."""
        before = board(new_task("t1"), new_task("t2", depends_on=("t1",)), new_task("t3"))
        after = before.with_task(task_in(Status.MERGED))
        known: KnownRows = {}
        old = board_view(BoardFacts(before, LATER), known).tasks
        new = board_view(BoardFacts(after, LATER), known).tasks

        assert new == board_view(BoardFacts(after, LATER)).tasks
        assert [one is other for one, other in zip(old, new, strict=True)] == [False, False, True]
        assert board_view(BoardFacts(board(new_task("t3")), LATER), known).tasks[0].id == "t3"
        assert known.keys() == {"t3"}

    def test_values_with_names_become_objects(self) -> None:
        assert view_json((RUN._replace(began=NOW),))[0]["began"] == "2026-01-01T12:00:00Z"
        assert view_json({Status.IDLE: (1, None)}) == {"IDLE": [1, None]}


class TestForecast:
    def test_without_a_finished_task_nobody_knows(self) -> None:
        found = forecast_of(board(new_task(), task_in(Status.BLOCKED, name="t2")), LATER)

        assert (found.seconds, found.remaining, found.for_people) == (None, 1, 1)
        assert found.done_at(LATER) is None
        assert forecast_text(found, LATER, is_going=True) == ""

    @pytest.mark.parametrize(("coders", "seconds"), [(1, 3000.0), (2, 1500.0), (8, 500.0)])
    def test_it_is_measured_from_what_finished(self, coders: int, seconds: float) -> None:
        """Two finished tasks were in work for a thousand seconds: six more take five hundred each."""
        worked = Metrics(
            outcomes={"MERGED": 2}, seconds={"WORKING": 700, "CODE.READY_FOR_REVIEW": 300, "IDLE": 9000}
        )
        state = board(
            *(new_task(f"t{number}") for number in range(6)),
            sprint=Sprint(metrics=worked),
            config=Config.model_validate({"workers": {"coder": coders}}),
        )
        found = forecast_of(state, LATER)

        assert (found.seconds, found.seconds_per_task, found.finished) == (seconds, 500.0, 2)
        assert found.done_at(LATER) == LATER + timedelta(seconds=seconds)
        assert forecast_text(found, LATER, is_going=True).endswith("(from 2 finished tasks)")

    def test_coders_of_many_hosts_share_it(self) -> None:
        worked = Metrics(outcomes={"MERGED": 1}, seconds={"WORKING": 500})
        coders = [
            WorkerRecord(id=f"coder-{host}-1", role=Role.CODER, status=WorkerStatus.RUNNING, since=NOW)
            for host in ("a", "b", "c")
        ]
        state = board(
            *(new_task(f"t{number}") for number in range(6)),
            sprint=Sprint(metrics=worked),
            agents=records_by_id(coders),
        )
        assert forecast_of(state, LATER).seconds == 1000.0

    def test_what_is_in_work_is_partly_done(self) -> None:
        worked = Metrics(outcomes={"MERGED": 1}, seconds={"WORKING": 1000})
        state = board(task_in(Status.WORKING), sprint=Sprint(metrics=worked))

        assert forecast_of(state, NOW + 401 * SECOND).seconds == 600.0
        assert forecast_of(state, NOW + 5 * HOUR).seconds == 100.0

    def test_real_moves_are_what_it_counts(self) -> None:
        """The counters that it reads are those that every change carries on."""
        begun, done = board(new_task()), board(task_in(Status.MERGED), new_task("t2"))
        found = forecast_of(with_metrics(begun, done), LATER)

        assert (found.finished, found.remaining) == (1, 1)
        assert found.seconds is not None
        assert found.seconds > 0


def test_a_forced_pass_says_so() -> None:
    state = board(task_in(Status.APPROVED, ready_for=e.Accept))
    (task,) = board_view(BoardFacts(state, LATER)).tasks

    assert task.is_tainted
    assert task.why == "it passed by force; a person has to accept that"


@pytest.mark.parametrize("status", Status)
def test_every_status_has_a_row(status: Status) -> None:
    """Whatever a task came to, a view can say why it is there."""
    tasks = (task_in(status), new_task("t2")) if status is Status.SUPERSEDED else (task_in(status),)
    shown = board_view(BoardFacts(board(*tasks), LATER)).tasks[0]

    assert shown.status is status
    assert shown.why
