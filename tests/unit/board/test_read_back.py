"""A change is read back before it is written: the whole record at first, later only what changed of it."""

from __future__ import annotations

from typing import Any

import pytest

from liza.board.journal import WHOLE_CHECKS, JsonRecord, diff_states, json_of_changes
from liza.domain.model import State
from liza.errors import InvalidBoard
from tests.support.sample_tasks import board, new_task


def read_back(state: State, changes: dict[str, Any]) -> JsonRecord:
    """Return what is read back where the task changes so."""
    changed = state.with_task(state.tasks["t1"].replace(**changes))
    return json_of_changes(diff_states(state, changed))["tasks"]["t1"]


@pytest.fixture(params=[0, WHOLE_CHECKS + 1], ids=["at first", "later"])
def state(request: pytest.FixtureRequest) -> State:
    state = board(new_task("t1", priority=1, done_when=("it works",)))
    for number in range(request.param):
        read_back(state, {"priority": number + 2})
    return state


@pytest.mark.parametrize(
    "changes",
    [
        {"priority": "high"},
        {"priority": 2, "description": ""},
        {"description": "a lone surrogate \ud800"},
        {"done_when": (1, 2)},
        {"done_when": ("  spaces that nobody would read back  ",)},
        {"status": "NOWHERE"},
    ],
    ids=str,
)
def test_what_would_be_another_value_is_refused(state: State, changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidBoard):
        read_back(state, changes)


def test_an_id_cannot_be_another_than_the_name(state: State) -> None:
    task = state.tasks["t1"].replace(id="t2")
    moved = state.replace(tasks={"t1": task})

    with pytest.raises(InvalidBoard):
        json_of_changes(diff_states(state, moved))


def test_what_changed_is_read_back_as_it_is(state: State) -> None:
    found = read_back(state, {"priority": 7, "done_when": ()})

    assert found["priority"] == 7
    assert not found.get("done_when")
