"""Lines of a journal done again: the same record comes of them however often its kind was replayed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

import pytest
from pydantic import ValidationError

from liza.board.journal import WHOLE_CHECKS, replay_entries
from liza.board.protocol import JournalEntry
from liza.domain.anomalies import Anomaly, RetryLoop
from liza.domain.model import SHOWN_EVENTS, State, Status, Task
from liza.domain.record import records_by_id
from tests.support.sample_tasks import NOW, board, new_task

AT: Final = "2026-01-01T12:00:00Z"
PAST: Final = {"at": AT, "event": "amend", "by": "human", "role": "human", "from": "IDLE", "to": "IDLE"}


def line(section: str, changes: dict[str, Any], name: str = "t1") -> JournalEntry:
    return JournalEntry(2, NOW, "human", "amend", {section: {name: changes}}, {})


def replayed_often(state: State) -> State:
    """Return *state* after so many lines that only the fields of a task which change are checked."""
    for number in range(WHOLE_CHECKS + 1):
        state = replay_entries(state, [line("tasks", {"priority": number})])
    return state


def moments_of(task: Task) -> list[datetime]:
    leased = [task.lease.expires] if task.lease else []
    return [task.created, *leased, *(entry.at for entry in task.history)]


def checked_whole(task: Task, changes: dict[str, Any]) -> Task:
    """Return *task* with *changes*, every field of it checked again."""
    known = task.to_json()
    past = [*known["history"], *changes["history"]] if changes.get("history") else []
    fields = {**known, **changes, **({"history": past} if past else {})}
    present = {key: value for key, value in fields.items() if value is not None}
    return Task.model_validate(present).with_recent_history()


RIGHT: Final[dict[str, dict[str, Any]]] = {
    "a word": {"status": "WORKING"},
    "a part": {"lease": {"holder": "coder-1", "token": "x", "expires": AT}},
    "a time of another zone": {
        "lease": {"holder": "coder-1", "token": "x", "expires": "2026-01-01T14:00:00+02:00"}
    },
    "a default": {"priority": None, "artifacts": None, "scope": None, "lease": None},
    "a key that is no name": {"scope": {"in": ["src"]}},
    "one event": {"history": [PAST]},
    "more events than are shown": {
        "history": [{**PAST, "event": f"e{number}"} for number in range(SHOWN_EVENTS + 2)]
    },
    "no event": {"history": []},
}


@pytest.mark.parametrize("changes", RIGHT.values(), ids=RIGHT.keys())
def test_a_field_by_itself_is_what_it_is_in_the_whole(changes: dict[str, Any]) -> None:
    """Checking only what changed is a matter of time, never of the outcome."""
    state = replayed_often(board(new_task("t1")))

    found = replay_entries(state, [line("tasks", changes)]).task("t1")

    assert found == checked_whole(state.task("t1"), changes)
    assert all(type(moment) is datetime and moment.tzinfo is UTC for moment in moments_of(found))


WRONG: Final[dict[str, dict[str, Any]]] = {
    "a key that nobody knows": {"colour": "red"},
    "a word that nobody knows": {"status": "ASLEEP"},
    "a number for a time": {"created": 2026},
    "a time without a zone": {"created": "2026-01-01T12:00:00"},
    "a day that is not there": {"created": "2026-02-30T12:00:00Z"},
    "a time with more behind it": {"created": "2026-01-01T12:00:00Z."},
    "a point without a fraction": {"created": "2026-01-01T12:00:00.Z"},
    "a week": {"created": "2026-W01-1T12:00:00Z"},
    "no value for what has to be there": {"created": None},
    "a part with a strange key": {"lease": {"holder": "coder-1", "token": "x", "expires": AT, "more": 1}},
    "a part that lacks a key": {"lease": {"holder": "coder-1"}},
    "an id that is a path": {"assigned_to": "../x"},
    "no commit": {"base_commit": "main"},
    "a negative count": {"attempt": -1},
    "an event of nobody": {"history": [{**PAST, "role": "nobody"}]},
    "an event that is no record": {"history": ["amend"]},
}


@pytest.mark.parametrize("changes", WRONG.values(), ids=WRONG.keys())
def test_what_is_wrong_is_refused_in_the_same_words(changes: dict[str, Any]) -> None:
    """A forged line gets in neither into a process that just began nor into one that follows for hours."""
    state = replayed_often(board(new_task("t1")))

    with pytest.raises(ValidationError) as expected:
        checked_whole(state.task("t1"), changes)
    with pytest.raises(ValidationError) as refused:
        replay_entries(state, [line("tasks", changes)])

    assert said_by(refused.value) == said_by(expected.value)


def said_by(error: ValidationError) -> list[tuple[Any, ...]]:
    return [(wrong["loc"], wrong["type"], wrong["msg"]) for wrong in error.errors()]


def test_a_rule_about_a_whole_record_is_never_passed_over() -> None:
    """An anomaly says its type twice, and both have to agree."""
    anomaly = Anomaly(
        id="anomaly-1",
        type="retry_loop",
        logged_by="coder-1",
        timestamp=NOW,
        details=RetryLoop(error_pattern="x", count=3),
    )
    state = board(new_task("t1")).replace(anomalies=records_by_id([anomaly]))
    for _ in range(WHOLE_CHECKS + 1):
        state = replay_entries(state, [line("anomalies", {"processed": AT}, "anomaly-1")])

    with pytest.raises(ValidationError):
        replay_entries(state, [line("anomalies", {"type": "trade_off"}, "anomaly-1")])


def test_statuses_are_members() -> None:
    """What replays compares statuses by identity."""
    state = replayed_often(board(new_task("t1")))
    assert replay_entries(state, [line("tasks", {"status": "BLOCKED"})]).task("t1").status is Status.BLOCKED
