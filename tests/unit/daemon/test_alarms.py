"""What people are told, and that the key of an alarm names one occurrence of it."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from liza.daemon.notify import alarms
from liza.domain import lifecycle as e
from liza.domain.anomalies import ExternalBlocker, HypothesisExhaustion, RejectedEdit
from liza.domain.changes import HUMAN, with_anomaly
from liza.domain.model import Adopted, Position
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
    submit,
    walked,
)

if TYPE_CHECKING:
    from liza.domain.model import State, Task

REVIEWED = """\
name: ours
says: a person decides
start: CODE
phases:
  CODE: {worker: coder, next: APPROVE}
  APPROVE: {gates: [GATE], edges: {revise: CODE}, next: INTEGRATE}
  INTEGRATE: {gates: [{id: merge, kind: effect, effect: merge}], next: DONE}
"""
DEFER = (e.Defer(questions=("Which colour?",)), PLANNER)


def keys(state: State) -> set[str]:
    return {alarm.key for alarm in alarms(state, NOW)}


def says(state: State) -> list[str]:
    return [alarm.says for alarm in alarms(state, NOW)]


class TestReminders:
    """A person who is waited for is told again after each interval that the gate names, and once in it."""

    TASK = walked(new_task(), claim(), submit(), ASK_HUMAN)

    def reminders(self, minutes: float, **options: object) -> list[str]:
        gate = {"id": "approval", "kind": "human", **options}
        flow = REVIEWED.replace("GATE", json.dumps(gate))
        position = (self.TASK.position or Position(phase="APPROVE")).replace(
            phase="APPROVE", waiting="approval"
        )
        state = board(self.TASK.replace(position=position))
        state = state.replace(workflow=Adopted(name="ours.yaml", text=flow))
        at = max(one.at for one in self.TASK.history) + timedelta(minutes=minutes)
        return [one.key for one in alarms(state, at) if "reminder" in one.key]

    @pytest.mark.parametrize(
        ("options", "minutes", "number"),
        [
            ({"remind_minutes": 30}, 29, None),
            ({"remind_minutes": 30}, 31, 1),
            ({"remind_minutes": 30}, 95, 3),
            ({"on_timeout": "remind"}, 60, None),
            ({"on_timeout": "remind"}, 25 * 60, 1),
            ({}, 10_000, None),
        ],
    )
    def test_it_is_told_once_an_interval(
        self, options: dict[str, object], minutes: float, number: int | None
    ) -> None:
        found = self.reminders(minutes, **options)

        assert [one.rpartition(" ")[2] for one in found] == ([] if number is None else [str(number)])


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

    def test_what_only_tells_says_what_it_saw_last(self) -> None:
        (sentence,) = says(self.trips(HypothesisExhaustion(tried=("caching",))))
        assert (
            "(anomaly-1: hypothesis_exhaustion of t1 by coder-1: tried ['caching']); see report/" in sentence
        )

    def test_a_rejected_edit_is_told_by_whoever_saw_it(self) -> None:
        assert says(self.trips(RejectedEdit(file="x.yaml", problems=("line 3",)))) == []
