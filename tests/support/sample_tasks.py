"""Tasks and boards as they come to be: each is the end of a walk of real events, none is put together."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from liza.domain import lifecycle as e
from liza.domain.changes import HUMAN, SUPERVISOR
from liza.domain.model import (
    Actor,
    Adopted,
    Checkpoint,
    Feedback,
    Goal,
    Lease,
    Outcome,
    Role,
    State,
    Status,
    Task,
)
from liza.domain.record import records_by_id
from liza.workflow import transition
from liza.workflow.document import parse_workflow
from liza.workflow.transition import new_task_at_start

if TYPE_CHECKING:
    from collections.abc import Callable

# A coder works, a reviewer judges, it is merged: the shape of every workflow here, and nothing more of it.
DOCUMENT: Final = """
name: plain
says: a coder works, a reviewer decides, it is merged
start: CODE
phases:
  CODE: {worker: coder, max_iterations: max_coder_iterations, next: REVIEW}
  REVIEW: {gates: [{id: review, kind: agent, role: reviewer}], edges: {revise: CODE}, next: INTEGRATE}
  INTEGRATE: {gates: [{id: merge, kind: effect, effect: merge}], edges: {revise: CODE}, next: DONE}
"""
PLAIN: Final = parse_workflow(DOCUMENT, "plain.yaml")
UNMERGED: Final = parse_workflow(
    """
name: unmerged
says: a coder works, a reviewer decides
start: CODE
phases:
  CODE: {worker: coder, next: REVIEW}
  REVIEW: {gates: [{id: review, kind: agent, role: reviewer}], edges: {revise: CODE}, next: DONE}
""",
    "unmerged.yaml",
)

NOW: Final = datetime(2026, 1, 1, 12, tzinfo=UTC)
SECOND: Final = timedelta(seconds=1)
HOUR: Final = timedelta(hours=1)  # how long the leases of these stories last


def commit(number: int) -> str:
    return f"{number:08x}" * 5


BASE: Final = commit(0xBA5E)
WORK: Final = commit(0xC0DE)
MERGE: Final = commit(0x3E46E)


def worker(name: str, *, token: str | None = None, run: str | None = None) -> Actor:
    """Return the worker *name*, such as coder-2, with a token and a run of its own."""
    role = Role(name.partition("-")[0])
    return Actor(role=role, id=name, token=token or f"token of {name}", run=run or f"run of {name}")


PLANNER: Final = Actor(role=Role.PLANNER, id="planner-1")
CODER: Final = worker("coder-1")
OTHER_CODER: Final = worker("coder-2")
REVIEWER: Final = worker("reviewer-1")
OTHER_REVIEWER: Final = worker("reviewer-2")

ACTORS: Final[dict[Role, Actor]] = {
    Role.PLANNER: PLANNER,
    Role.CODER: CODER,
    Role.REVIEWER: REVIEWER,
    Role.SUPERVISOR: SUPERVISOR,
    Role.HUMAN: HUMAN,
}


def lease_of(actor: Actor, *, at: datetime = NOW) -> Lease:
    return Lease(holder=actor.id, token=actor.token or "a token", expires=at + HOUR)


Deed = tuple[e.Event, Actor]


def claim(by: Actor = CODER, *, at: datetime = NOW) -> Deed:
    return e.Take(lease=lease_of(by, at=at), base_commit=BASE), by


def take_review(by: Actor = REVIEWER, *, at: datetime = NOW) -> Deed:
    return e.Take(lease=lease_of(by, at=at)), by


def submit(by: Actor = CODER) -> Deed:
    return e.Report(commit=WORK), by


def approve(by: Actor = REVIEWER) -> Deed:
    return e.Report(commit=WORK), by


def reject(by: Actor = REVIEWER, reason: str = "no test") -> Deed:
    return e.Report(outcome=Outcome.REVISE, reason=reason, feedback=(Feedback(message="add a test"),)), by


def block(by: Actor = SUPERVISOR) -> Deed:
    return e.Block(reason="the goal is not clear", questions=("Which colour?",)), by


def start_merge(by: Actor = REVIEWER) -> Deed:
    return e.Intend(onto=BASE, commit=MERGE), by


def new_task(name: str = "t1", **fields: Any) -> Task:  # noqa: ANN401 - whatever a task may be told
    """Return a task right after a planner added it, IDLE unless said otherwise."""
    task = Task.model_validate(
        {
            "id": name,
            "description": f"do {name}",
            "status": Status.IDLE,
            "created": NOW,
            "created_by": "planner-1",
            **fields,
        }
    )
    return new_task_at_start(PLAIN, task, by=PLANNER, at=NOW)


def advance(task: Task, event: e.Event, *, by: Actor, at: datetime) -> Task:
    """Return *task* after *event*, in the plain workflow."""
    return transition.advance(PLAIN, task, event, by=by, at=at)


def walked(task: Task, *deeds: Deed, at: datetime = NOW) -> Task:
    """Return *task* after *deeds*, each a second after the one before."""
    for number, (event, actor) in enumerate(deeds, start=1):
        task = advance(task, event, by=actor, at=at + number * SECOND)
    return task


FAIL_INTEGRATION: Final[Deed] = (
    e.Report(outcome=Outcome.REVISE, reason="conflict", paths=("a.py",)),
    REVIEWER,
)
FIND_NOTHING: Final[Deed] = (e.Report(nothing_to_do="it is there already"), CODER)
FORCE_PASS: Final[Deed] = (e.Report(mark="iterations exhausted"), SUPERVISOR)
ASK_HUMAN: Final[Deed] = (e.Report(outcome=Outcome.ASK, reason="Ship it?"), SUPERVISOR)
ACCEPT_TAINT: Final[Deed] = (e.Accept(reason="I looked at it"), HUMAN)
CONFIRM: Final[Deed] = (e.Report(reason="so it is"), REVIEWER)
MERGED: Final[Deed] = (e.Land(commit=MERGE), REVIEWER)

_SUBMITTED: Final = (claim(), submit())
_IN_REVIEW: Final = (*_SUBMITTED, take_review())
_APPROVED: Final = (*_IN_REVIEW, approve())

WAYS: Final[dict[Status, tuple[Deed, ...]]] = {
    Status.IDLE: (),
    Status.WORKING: (claim(),),
    Status.READY_FOR_REVIEW: _IN_REVIEW,
    Status.REJECTED: (*_IN_REVIEW, reject()),
    Status.APPROVED: _APPROVED,
    Status.AWAITING_APPROVAL: (*_SUBMITTED, ASK_HUMAN),
    Status.BLOCKED: (block(),),
    Status.INTEGRATION_FAILED: (*_APPROVED, FAIL_INTEGRATION),
    Status.MERGED: (*_APPROVED, start_merge(), MERGED),
    Status.NOTHING_TO_DO: (claim(), FIND_NOTHING, take_review(), CONFIRM),
    Status.SUPERSEDED: ((e.Supersede(superseded_by=("t2",), rescope_reason="too big"), PLANNER),),
    Status.ABANDONED: ((e.Abandon(reason="no longer wanted"), PLANNER),),
}

# Some events ask more of a task than its status.
WAYS_FOR_EVENT: Final[dict[tuple[Status, type[e.Event]], tuple[Deed, ...]]] = {
    (Status.READY_FOR_REVIEW, e.Take): _SUBMITTED,
    (Status.APPROVED, e.Take): (*_SUBMITTED, ASK_HUMAN, approve(HUMAN)),
    (Status.APPROVED, e.Accept): (*_SUBMITTED, FORCE_PASS),
    (Status.AWAITING_APPROVAL, e.Accept): (*_SUBMITTED, FORCE_PASS, ASK_HUMAN),
    (Status.APPROVED, e.Land): (*_APPROVED, start_merge()),
    (Status.BLOCKED, e.Answer): (*_APPROVED, FAIL_INTEGRATION, block()),
}


def task_in(status: Status, *, ready_for: type[e.Event] | None = None, name: str = "t1") -> Task:
    """Return a task that has come to be in *status*, such that the event *ready_for* can happen to it."""
    if status is Status.DRAFT:
        return new_task(name, status=status)
    if status is Status.COMPLETE:
        return _completed(name)
    way = WAYS_FOR_EVENT.get((status, ready_for)) if ready_for else None
    return walked(new_task(name), *(WAYS[status] if way is None else way))


def _completed(name: str) -> Task:
    """Return a task that ended where nothing is merged."""
    task = new_task_at_start(UNMERGED, new_task(name).replace(history=()), by=PLANNER, at=NOW)
    for number, (event, actor) in enumerate(_APPROVED, start=1):
        task = transition.advance(UNMERGED, task, event, by=actor, at=NOW + number * SECOND)
    return task


def example_of(event: type[e.Event], by: Actor, status: Status) -> e.Event:
    """Return an example of *event* that fits a task in *status*."""
    if event is e.Reclaim and status is Status.INTEGRATION_FAILED:
        return e.Reclaim(reason="its commit is gone", lost=True)
    return EXAMPLES[event](by)


def _take(by: Actor) -> e.Event:
    is_work = by.role in {Role.CODER, Role.PLANNER}
    return e.Take(lease=lease_of(by), base_commit=BASE if is_work else None)


EXAMPLES: Final[dict[type[e.Event], Callable[[Actor], e.Event]]] = {
    e.Ready: lambda _: e.Ready(),
    e.Take: _take,
    e.Write: lambda _: e.Write(checkpoint=Checkpoint(intent="add a greeting")),
    e.Renew: lambda _: e.Renew(expires=NOW + 2 * HOUR),
    e.Report: lambda _: reject()[0],
    e.Release: lambda _: e.Release(reason="out of context"),
    e.Reclaim: lambda _: e.Reclaim(reason="coder-1 died"),
    e.Accept: lambda _: ACCEPT_TAINT[0],
    e.Waive: lambda _: e.Waive(limit="scope_limit", reason="one move"),
    e.Intend: lambda _: start_merge()[0],
    e.Land: lambda _: MERGED[0],
    e.Block: lambda _: block()[0],
    e.Defer: lambda _: e.Defer(questions=("Which blue?",)),
    e.Answer: lambda by: e.Answer(guidance="blue", merge=by.role in {Role.REVIEWER, Role.SUPERVISOR}),
    e.Supersede: lambda _: e.Supersede(superseded_by=("t2",), rescope_reason="too big"),
    e.Abandon: lambda _: e.Abandon(reason="no longer wanted"),
    e.Amend: lambda _: e.Amend(fields={"priority": 3}),
}


def board(*tasks: Task, **sections: Any) -> State:  # noqa: ANN401 - whatever a board may hold
    """Return a board with *tasks* and *sections*."""
    goal = Goal(description="say hello", created=NOW)
    plain = Adopted(name="plain.yaml", text=DOCUMENT)
    return State(revision=1, goal=goal, tasks=records_by_id(tasks), workflow=plain).replace(**sections)
