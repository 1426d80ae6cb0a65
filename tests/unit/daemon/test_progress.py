"""Who can make progress: a table of boards."""

from __future__ import annotations

from typing import Any, Final

import pytest

from liza.daemon.policy.planner import is_complete
from liza.daemon.policy.progress import only_people, with_goal_reopened
from liza.domain import lifecycle as e
from liza.domain.changes import HUMAN
from liza.domain.model import (
    BreakerStatus,
    CircuitBreaker,
    Discovery,
    Goal,
    GoalStatus,
    Note,
    Role,
    State,
    Status,
    Task,
    Trip,
    Urgency,
    WorkerRecord,
    WorkerStatus,
)
from liza.domain.record import records_by_id
from liza.domain.waits import human_waits
from tests.support.sample_tasks import (
    FORCE_PASS,
    NOW,
    PLANNER,
    SECOND,
    board,
    claim,
    new_task,
    submit,
    take_review,
    task_in,
    walked,
)

ASKED: Final = walked(task_in(Status.BLOCKED), (e.Defer(questions=("Which colour?",)), PLANNER))
NOTE: Final = Note(id="note-1", timestamp=NOW + 60 * SECOND, message="blue")
FORCED: Final = walked(new_task(), claim(), submit(), FORCE_PASS)
RELEASED: Final = walked(FORCED, (e.Accept(reason="fine"), HUMAN))


def notes(*found: Note) -> dict[str, Any]:
    return {"human_notes": records_by_id(found)}


def stopped(*names: str) -> dict[str, Any]:
    agents = [
        WorkerRecord(
            id=name,
            role=Role(name.partition("-")[0]),  # type: ignore[arg-type]
            status=WorkerStatus.STOPPED,
            since=NOW,
            crashes=(NOW, NOW, NOW),
            stopped_reason="it crashes",
        )
        for name in names
    ]
    return {"agents": records_by_id(agents)}


def tripped() -> dict[str, Any]:
    trip = Trip(id="trip-1", rule="retry_cluster", severity="high", at=NOW)
    return {"circuit_breaker": CircuitBreaker(status=BreakerStatus.TRIPPED, trips=(trip,))}


def asking_goal() -> dict[str, Any]:
    return {"goal": Goal(description="say hello", created=NOW, questions=("In which language?",))}


def found() -> dict[str, Any]:
    item = Discovery(
        id="d1", description="x", discovered_by="coder-1", timestamp=NOW, urgency=Urgency.IMMEDIATE
    )
    return {"discovered": records_by_id([item])}


BOTH_CODERS: Final = ("coder-1", "coder-2")

WORKERS_CAN: Final[dict[str, State]] = {
    "no plan yet": board(),
    "questions about the goal, and a note": board(**asking_goal(), **notes(NOTE)),
    "idle": board(task_in(Status.IDLE)),
    "one that waits for what was given up": board(
        task_in(Status.ABANDONED), new_task("t2", depends_on=("t1",))
    ),
    "idle behind idle": board(new_task("t1"), new_task("t2", depends_on=("t1",))),
    "working": board(task_in(Status.WORKING)),
    "submitted": board(walked(new_task(), claim(), submit())),
    "in review": board(task_in(Status.READY_FOR_REVIEW)),
    "rejected": board(task_in(Status.REJECTED)),
    "approved": board(task_in(Status.APPROVED)),
    "approved by force and accepted": board(RELEASED),
    "does not merge": board(task_in(Status.INTEGRATION_FAILED)),
    "blocked, and the planner has not looked": board(task_in(Status.BLOCKED)),
    "blocked, and a person answered": board(ASKED, **notes(NOTE)),
    "blocked, but another is idle": board(ASKED, new_task("t2")),
    "blocked, and urgent work was found": board(ASKED, **found()),
    "one coder is stopped": board(task_in(Status.IDLE), **stopped("coder-1")),
    "all coders are stopped, but one holds": board(task_in(Status.WORKING), **stopped(*BOTH_CODERS)),
    "all coders are stopped, and something is to review": board(
        walked(new_task(), claim(), submit(), take_review()), **stopped(*BOTH_CODERS)
    ),
    "all is done": board(task_in(Status.MERGED)),
}

ONLY_PEOPLE_CAN: Final[dict[str, tuple[State, str]]] = {
    "questions about the goal": (board(**asking_goal()), "In which language?"),
    "blocked": (board(ASKED), "Which colour?"),
    "idle behind blocked": (board(ASKED, new_task("t2", depends_on=("t1",))), "Which colour?"),
    "awaiting approval": (board(task_in(Status.AWAITING_APPROVAL)), "Ship it?"),
    "approved by force": (board(FORCED), "passed by force"),
    "a draft": (board(task_in(Status.DRAFT).replace(created_by="human")), "DRAFT"),
    "a plan": (board(task_in(Status.DRAFT)), "may the plan be worked on: 1 task (t1)?"),
    "a tripped breaker": (board(task_in(Status.IDLE), **tripped()), "retry_cluster"),
    "all coders are stopped": (board(task_in(Status.IDLE), **stopped(*BOTH_CODERS)), "coder-2 was stopped"),
    "the reviewer is stopped": (
        board(walked(new_task(), claim(), submit()), **stopped("reviewer-1")),
        "reviewer-1 was stopped",
    ),
    "the planner is stopped": (board(**stopped("planner-1")), "planner-1 was stopped"),
    "nothing asks and nothing goes on": (board(task_in(Status.ABANDONED)), "no task can go on"),
}


class TestOnlyPeople:
    @pytest.mark.parametrize("state", WORKERS_CAN.values(), ids=WORKERS_CAN)
    def test_nobody_is_bothered_while_a_worker_can_go_on(self, state: State) -> None:
        assert only_people(state, NOW) == ()

    @pytest.mark.parametrize(("state", "word"), ONLY_PEOPLE_CAN.values(), ids=ONLY_PEOPLE_CAN)
    def test_else_it_says_what_waits_and_what_to_do(self, state: State, word: str) -> None:
        waits = only_people(state, NOW)
        assert any(word in wait.what for wait in waits)
        assert all("liza " in wait.then for wait in waits)

    @pytest.mark.parametrize("status", Status)
    def test_every_status_is_somebodys(self, status: Status) -> None:
        """With all workers stopped, whatever is not finished waits for people."""
        gone = stopped("planner-1", *BOTH_CODERS, "reviewer-1")
        free: Task = task_in(status).replace(lease=None)
        state = board(free, **gone)
        assert bool(only_people(state, NOW)) is not is_complete(state)

    def test_what_is_asked_is_known_while_others_work(self) -> None:
        assert [wait.what for wait in human_waits(board(ASKED, new_task("t2")))] == [
            "t1 is BLOCKED: Which colour?"
        ]


class TestReopening:
    COMPLETE: Final = {"goal": Goal(description="x", created=NOW, status=GoalStatus.COMPLETE, completed=NOW)}

    def test_a_complete_goal_stays_complete(self) -> None:
        state = board(task_in(Status.MERGED), **self.COMPLETE)
        assert with_goal_reopened(state) is state

    def test_a_note_after_the_end_opens_it_again(self) -> None:
        state = board(task_in(Status.MERGED), **self.COMPLETE, **notes(NOTE))
        assert with_goal_reopened(state).goal.status is GoalStatus.IN_PROGRESS

    def test_an_open_goal_stays_open(self) -> None:
        state = board(task_in(Status.WORKING))
        assert with_goal_reopened(state) is state
