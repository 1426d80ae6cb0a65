"""What people are told, and that the key of an alarm names one occurrence of it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from liza.daemon.alarms import alarms, stale_checkpoint
from liza.domain import events as e
from liza.domain.anomalies import CrashLoop, ExternalBlocker
from liza.domain.changes import HUMAN, with_anomaly
from liza.domain.config import Config, Limits
from liza.domain.model import Metrics, ReviewCounts, Sprint, Status
from liza.domain.rules import resolve_trip, with_due_trips
from tests.support.sample_tasks import (
    ASK_HUMAN,
    FORCE_PASS,
    NOW,
    PLANNER,
    SECOND,
    block,
    board,
    claim,
    new_task,
    reject,
    submit,
    take_review,
    walked,
)

if TYPE_CHECKING:
    from liza.domain.model import State, Task

DEFER = (e.Ask(questions=("Which colour?",)), PLANNER)
ROUND = (claim(), submit(), take_review(), reject())


def keys(state: State) -> set[str]:
    return {alarm.key for alarm in alarms(state, NOW)}


def says(state: State) -> list[str]:
    return [alarm.says for alarm in alarms(state, NOW)]


def rounds(count: int) -> Task:
    task = new_task()
    for number in range(count):
        task = walked(task, *ROUND, at=NOW + number * 60 * SECOND)
    return task


class TestWaiting:
    @pytest.mark.parametrize(
        ("task", "words"),
        [
            (walked(new_task(), block(), DEFER), "t1 is BLOCKED: Which colour?"),
            (walked(new_task(), claim(), submit(), ASK_HUMAN), "t1 awaits approval: Ship it?"),
            (walked(new_task(), claim(), submit(), FORCE_PASS), "t1 passed by force"),
        ],
        ids=["blocked", "approval", "forced"],
    )
    def test_a_task_that_waits_for_a_person_is_told_while_others_go_on(self, task: Task, words: str) -> None:
        (sentence,) = says(board(task, new_task("t2")))
        assert sentence.startswith("a person is needed: ")
        assert words in sentence
        assert says(board(task))[0].startswith("only people can make progress: ")
        assert keys(board(task, new_task("t2"))) == keys(board(task))

    def test_what_the_planner_thinks_about_is_not_told_yet(self) -> None:
        assert says(board(walked(new_task(), block()))) == []

    def test_the_same_question_asked_again_is_another_alarm(self) -> None:
        once = walked(new_task(), block(), DEFER)
        again = walked(once, (e.Answer(guidance="blue"), HUMAN), block(), DEFER, at=NOW + 60 * SECOND)
        assert keys(board(once)).isdisjoint(keys(board(again)))

    def test_an_amended_task_is_the_same_alarm(self) -> None:
        task = walked(new_task(), block(), DEFER)
        for number in range(1, 8):
            amended = walked(task, (e.Amend(fields={"priority": number}), HUMAN), at=NOW + 60 * SECOND)
            assert keys(board(amended.with_recent_history())) == keys(board(task))


class TestLimits:
    @pytest.mark.parametrize(("count", "told"), [(2, []), (3, ["reviews"]), (8, ["rounds"])])
    def test_people_are_warned_at_round_8_and_rejection_3(self, count: int, told: list[str]) -> None:
        state = board(rounds(count), config=Config(limits=Limits(max_rejections=99, max_review_cycles=5)))
        assert [key.split()[0] for key in keys(state) if not key.startswith("waits")] == told

    @pytest.mark.parametrize(
        ("rejections", "cycles", "count", "most"),
        [(5, 9, 3, "3 of 5"), (9, 5, 4, "4 of 5"), (4, 5, 3, "3 of 4"), (5, 5, 5, None), (3, 5, 3, None)],
    )
    def test_rejections_are_counted_against_the_limit_that_blocks(
        self, rejections: int, cycles: int, count: int, most: str | None
    ) -> None:
        """The lower of the two; at the limit itself the task is BLOCKED, which is told as that."""
        limits = Limits(max_rejections=rejections, max_review_cycles=cycles)
        told = [one for one in says(board(rounds(count), config=Config(limits=limits))) if "rejected" in one]
        assert told == ([f"t1: the work of coder-1 was rejected {most} times"] if most else [])

    def test_a_workflow_that_does_not_ask_for_the_warning_gives_none(self) -> None:
        state = board(rounds(8), config=Config(limits=Limits(max_rejections=99, max_review_cycles=5)))
        assert any(alarm.key.startswith("rounds") for alarm in alarms(state, NOW, {"warn_iterations"}))
        assert not any(alarm.key.startswith("rounds") for alarm in alarms(state, NOW, {"no_progress"}))

    def test_the_next_round_is_the_same_alarm(self) -> None:
        assert keys(board(rounds(3))) == keys(board(rounds(4)))


class TestTheRest:
    def trips(self, *details: Any) -> State:  # noqa: ANN401 - details of anomalies
        state = board(new_task())
        for one in details:
            state = with_anomaly(state, one, about="t1", by="coder-1", at=NOW)
        return with_due_trips(state, NOW)

    def test_a_trip_is_told_with_its_report_and_command_and_is_one_alarm(self) -> None:
        state = self.trips(*(ExternalBlocker(service="registry", symptom=x) for x in "ab"))
        (sentence,) = says(state)
        assert "report/breaker-20260101T120000.000000Z-external_service_outage.md" in sentence
        assert "liza breaker resolve trip-1" in sentence
        assert keys(resolve_trip(state, "trip-1", "back", NOW)) == keys(state)

    def test_a_crash_loop_is_told_by_whoever_saw_it(self) -> None:
        assert says(self.trips(CrashLoop(agent="coder-1", crashes=3))) == []

    def test_a_rubber_stamp_is_told_once_a_sprint(self) -> None:
        """Pains A 15."""
        stamp = Metrics(reviews={"reviewer-1": ReviewCounts(approved=12, first_seen=12, first_approved=12)})
        one, two = (board(new_task(), sprint=Sprint(number=number, metrics=stamp)) for number in (1, 2))
        assert says(one)[0].startswith("reviewer-1 approves 100% of what it sees for the first time")
        assert keys(one) != keys(two)

    def test_a_checkpoint_that_nobody_resumes_is_told_once_a_period(self) -> None:
        def after(hours: float) -> str | None:
            found = stale_checkpoint(NOW, NOW + timedelta(hours=hours), 8, "")
            return found.key if found else None

        assert after(7.9) is None
        assert after(8.1) == after(15.9) != after(16.1)

    def test_a_finished_task_alarms_nobody(self) -> None:
        done = rounds(3).replace(status=Status.ABANDONED)
        assert not any(key.startswith("reviews") for key in keys(board(done, new_task("t2"))))
