"""Who may push what to the remote that hosts share."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

import pytest

from liza.board.ref_facts import facts_of
from liza.domain.lifecycle import TERMINAL
from liza.domain.model import Lease, MergeIntent, Status
from liza.domain.shared_refs import (
    ENDED,
    MERGEABLE,
    RefUpdate,
    task_folder,
    token_digest,
    why_refused,
)
from tests.support.sample_tasks import NOW, board, new_task

if TYPE_CHECKING:
    from liza.domain.model import State

A, B, C, ZERO = ("a" * 40, "b" * 40, "c" * 40, "0" * 40)
INTEGRATION: Final = "refs/heads/liza/integration"
MINE: Final = token_digest("token")


def state(*, status: Status = Status.WORKING, left: float = 60, merging: bool = False) -> State:
    lease = Lease(holder="coder-1", token="token", expires=NOW + timedelta(seconds=left))  # noqa: S106
    task = new_task("t1").model_copy(update={"status": status, "lease": lease})
    if merging:
        task = task.model_copy(update={"merging": MergeIntent(onto=A, commit=B)})
    begun = board(new_task("t2"))
    return begun.model_copy(update={"tasks": {**begun.tasks, "t1": task}})


ROWS: Final[dict[str, tuple[State, RefUpdate, str | None]]] = {
    "the holder hands in": (state(), RefUpdate(ZERO, A, f"refs/heads/liza/t1/{MINE}"), None),
    "the holder hands in again": (state(), RefUpdate(A, B, f"refs/heads/liza/t1/{MINE}"), None),
    "an old token": (
        state(),
        RefUpdate(ZERO, A, f"refs/heads/liza/t1/{token_digest('old')}"),
        "t1: coder-1 holds it now, so that the push comes too late",
    ),
    "a lease that is over": (
        state(left=-1),
        RefUpdate(ZERO, A, f"refs/heads/liza/t1/{MINE}"),
        "t1: its lease ran out, so that the push comes too late",
    ),
    "nobody's task": (
        state(),
        RefUpdate(ZERO, A, f"refs/heads/liza/t2/{MINE}"),
        "t2: nobody holds it now, so that the push comes too late",
    ),
    "no task": (state(), RefUpdate(ZERO, A, "refs/heads/liza/t9/x"), "t9 is no task of the board"),
    "work that is needed": (
        state(),
        RefUpdate(A, ZERO, f"refs/heads/liza/t1/{MINE}"),
        "t1 is WORKING, and its work is needed",
    ),
    "work that is merged": (
        state(status=Status.MERGED),
        RefUpdate(A, ZERO, f"refs/heads/liza/t1/{MINE}"),
        None,
    ),
    "the merge that was announced": (
        state(status=Status.APPROVED, merging=True),
        RefUpdate(A, B, INTEGRATION),
        None,
    ),
    "another merge": (
        state(status=Status.APPROVED, merging=True),
        RefUpdate(A, C, INTEGRATION),
        "no task of the board is being merged as cccccccccccc, and liza/integration moves by merges alone",
    ),
    "the branch moved": (
        state(status=Status.APPROVED, merging=True),
        RefUpdate(C, B, INTEGRATION),
        "t1 was tested on aaaaaaaaaaaa, and liza/integration is at cccccccccccc",
    ),
    "a merge that comes too late": (
        state(status=Status.APPROVED, merging=True, left=-1),
        RefUpdate(A, B, INTEGRATION),
        "t1: whoever merges it let its lease run out; the push comes too late",
    ),
    "the beginning": (state(), RefUpdate(ZERO, A, INTEGRATION), None),
    "the end": (
        state(),
        RefUpdate(A, ZERO, INTEGRATION),
        "liza/integration has what was merged and is not deleted",
    ),
    "something is saved": (state(), RefUpdate(ZERO, A, f"refs/liza/salvage/t1/{A}"), None),
    "what was saved is changed": (
        state(),
        RefUpdate(A, B, f"refs/liza/salvage/t1/{A}"),
        "what was saved is neither changed nor deleted",
    ),
    "a person's branch": (state(), RefUpdate(A, B, "refs/heads/main"), None),
}


@pytest.mark.parametrize(("known", "update", "why"), ROWS.values(), ids=ROWS.keys())
def test_the_board_says_who_may_push(known: State, update: RefUpdate, why: str | None) -> None:
    assert why_refused(facts_of(known), update, NOW) == why


def test_words_of_the_lifecycle_are_those_of_its_table() -> None:
    assert MERGEABLE == Status.APPROVED
    assert ENDED == TERMINAL


def test_a_task_is_not_in_the_way_of_the_branch() -> None:
    assert task_folder("integration", "liza/integration") == "refs/heads/liza/integration.task/"
    assert task_folder("t1", "liza/integration") == "refs/heads/liza/t1/"
