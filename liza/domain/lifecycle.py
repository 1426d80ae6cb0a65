"""The life of a task: a table of rows, the function that sets a status, and the label of a position."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from liza.domain import events as e
from liza.domain.model import SUCCEEDED as SUCCEEDED  # noqa: PLC0414 - it belongs to the table, too
from liza.domain.model import HistoryEntry, Role, Status
from liza.domain.position import RELEASE, WORK, End, Stage
from liza.domain.requirements import unmet_requirements
from liza.errors import Forbidden, LeaseLost, Refused

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from liza.domain.model import Actor, Lease, Task
    from liza.domain.position import Position


class Transition(NamedTuple):
    """*who* may let *event* take a task from any of *sources* to *target* (None: it stays)."""

    event: type[e.Event]
    sources: frozenset[Status]
    target: Status | None
    who: frozenset[Role]
    held: bool = False  # a worker has to hold the lease and show its token


S = Status
P, C, R, V, H = Role.PLANNER, Role.CODER, Role.REVIEWER, Role.SUPERVISOR, Role.HUMAN


def _transition(
    event: type[e.Event], sources: Iterable[Status], target: Status | None, *who: Role, held: bool = False
) -> Transition:
    return Transition(event, frozenset(sources), target, frozenset(who), held)


_WAITING: Final = (S.DRAFT, S.IDLE, S.BLOCKED)
_IN_HANDS: Final = (
    S.WORKING,
    S.READY_FOR_REVIEW,
    S.REJECTED,
    S.APPROVED,
    S.AWAITING_APPROVAL,
    S.INTEGRATION_FAILED,
)
_SENT_BACK: Final = (S.REJECTED, S.INTEGRATION_FAILED)
_WITH_REVIEWER: Final = (S.READY_FOR_REVIEW, S.APPROVED)

TRANSITIONS: Final[tuple[Transition, ...]] = (
    _transition(e.Ready, [S.DRAFT], S.IDLE, P, H),
    _transition(e.Claim, [S.IDLE, S.REJECTED, S.INTEGRATION_FAILED], S.WORKING, C),
    _transition(e.WriteCheckpoint, [S.WORKING], None, C, held=True),
    _transition(e.Renew, [S.WORKING], None, C, held=True),
    _transition(e.Renew, _WITH_REVIEWER, None, R, held=True),
    _transition(e.Submit, [S.WORKING], S.READY_FOR_REVIEW, C, held=True),
    _transition(e.Revise, [S.WORKING], S.REJECTED, C, held=True),
    _transition(e.FindNothing, [S.WORKING], S.READY_FOR_REVIEW, C, held=True),
    _transition(e.Release, [S.WORKING], S.IDLE, C, H, held=True),
    _transition(e.Release, _WITH_REVIEWER, None, R, H, held=True),
    _transition(e.Reclaim, [S.WORKING], S.IDLE, V),
    _transition(e.Reclaim, _WITH_REVIEWER, None, V),
    _transition(e.Lose, [*_WITH_REVIEWER, S.INTEGRATION_FAILED], S.IDLE, V),
    _transition(e.Fail, [S.WORKING], S.IDLE, C, V, held=True),
    _transition(e.TakeReview, _WITH_REVIEWER, None, R),
    _transition(e.Approve, [S.READY_FOR_REVIEW], S.APPROVED, R, held=True),
    _transition(e.Approve, [S.AWAITING_APPROVAL], S.APPROVED, H),
    _transition(e.Reject, [S.READY_FOR_REVIEW], S.REJECTED, R, held=True),
    _transition(e.Reject, [S.AWAITING_APPROVAL], S.REJECTED, H),
    _transition(e.Confirm, [S.READY_FOR_REVIEW], S.NOTHING_TO_DO, R, held=True),
    _transition(e.Confirm, [S.AWAITING_APPROVAL], S.NOTHING_TO_DO, H),
    _transition(e.AskHuman, _WITH_REVIEWER, S.AWAITING_APPROVAL, R, V, held=True),
    _transition(e.ForcePass, [S.READY_FOR_REVIEW], S.APPROVED, V),
    _transition(e.AcceptTaint, [S.APPROVED, S.AWAITING_APPROVAL], None, H),
    _transition(e.StartMerge, [S.APPROVED], None, R, V, held=True),
    _transition(e.Merge, [S.APPROVED], S.MERGED, R, V, held=True),
    _transition(e.FailIntegration, [S.APPROVED], S.INTEGRATION_FAILED, R, V, held=True),
    _transition(e.RetryMerge, [S.INTEGRATION_FAILED, S.BLOCKED], S.APPROVED, R, V, H),
    _transition(e.Complete, [S.APPROVED], S.COMPLETE, R, V, held=True),
    _transition(e.Proceed, [S.APPROVED], S.IDLE, R, V, held=True),
    _transition(e.Block, [S.WORKING], S.BLOCKED, C, V, H, held=True),
    _transition(e.Block, _WITH_REVIEWER, S.BLOCKED, R, V, H, held=True),
    _transition(e.Block, [S.DRAFT, S.IDLE, S.REJECTED], S.BLOCKED, P, V, H),
    _transition(e.Block, [S.INTEGRATION_FAILED], S.BLOCKED, P, R, V, H),
    _transition(e.Defer, [S.BLOCKED], None, P),
    _transition(e.Unblock, [S.BLOCKED], S.IDLE, P),
    _transition(e.Retry, [S.BLOCKED, S.REJECTED, S.INTEGRATION_FAILED], S.IDLE, H),
    _transition(e.Supersede, [*_WAITING, S.REJECTED, S.INTEGRATION_FAILED], S.SUPERSEDED, P, H),
    _transition(e.Abandon, _WAITING, S.ABANDONED, P, H),
    _transition(e.Abandon, [one for one in _IN_HANDS if one not in _SENT_BACK], S.ABANDONED, H),
    _transition(e.Abandon, _SENT_BACK, S.ABANDONED, V, H),  # where the workflow gives up what was sent back
    _transition(e.Amend, _WAITING, None, P, H),
    _transition(e.Amend, _IN_HANDS, None, H),
)

EVENTS: Final = tuple(dict.fromkeys(row.event for row in TRANSITIONS))
BY_SOURCE: Final = {(source, row.event): row for row in TRANSITIONS for source in row.sources}

TERMINAL: Final = frozenset(Status) - {source for source, _ in BY_SOURCE}
CLAIMABLE: Final = frozenset(source for source, event in BY_SOURCE if event is e.Claim)
INITIAL_STATUSES: Final = frozenset({S.DRAFT, S.IDLE})  # where a new task may start
ADDED: Final = "added"  # the first entry of every history
LEASED_ROLES: Final = frozenset({Role.CODER, Role.REVIEWER})  # those whom a lease fences

_NAMES: Final[dict[type[e.Event], str]] = {e.WriteCheckpoint: "pre_execution_checkpoint"}


def event_name(event: type[e.Event]) -> str:
    """Return what history and the journal call *event*."""
    words = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in event.__name__)
    return _NAMES.get(event, words.lstrip("_"))


EVENT_BY_NAME: Final = {event_name(event): event for event in EVENTS}


def advance(task: Task, event: e.Event, *, by: Actor, at: datetime) -> Task:
    """Return *task* after *event*, or raise the sentence that says why it may not happen."""
    row = BY_SOURCE.get((task.status, type(event)))
    if row is None or by.role not in row.who:
        raise Forbidden(task.id, by.id, event.verb, task.status)
    if row.held and by.role in LEASED_ROLES:
        _check_lease(task, event, by, at)
    if refusal := event.refusal(task, by, at):
        message = f"{task.id}: {by.id} may not {event.verb} it, because {refusal}"
        raise Refused(message)
    target = row.target or task.status
    moved = task.replace(**event.changes(task, by, at), status=target)
    if not event.silent:
        entry = HistoryEntry(
            # A clock that was set back must not make the board invalid: history never runs backwards.
            at=max([at, *(last.at for last in task.history[-1:])]),
            event=event_name(type(event)),
            by=by.id,
            role=by.role,
            source=task.status,
            target=target,
            facts=event.facts(),
        )
        moved = moved.replace(history=(*task.history, entry))
    for promise in unmet_requirements(moved):
        message = (
            f"{task.id}: {by.id} may not {event.verb} it, because a task that is {target} {promise.says}"
        )
        raise Refused(message)
    return moved


def _check_lease(task: Task, event: e.Event, by: Actor, at: datetime) -> None:
    lease = task.lease
    if lease is None:
        raise LeaseLost(task.id, by.id, event.verb, "nobody holds its lease any more")
    if lease.holder != by.id or by.token is None or lease.token != by.token:
        raise LeaseLost(task.id, by.id, event.verb, f"the lease is {lease.holder}'s by another token")
    if not lease.is_live(at) and not isinstance(event, e.Renew):
        raise LeaseLost(task.id, by.id, event.verb, f"the lease ended at {lease.expires:%Y-%m-%dT%H:%M:%SZ}")


def is_allowed_entry(entry: HistoryEntry) -> bool:
    """Return whether the transition table allows a history entry."""
    if entry.source is None:
        return entry.event == ADDED and entry.target in INITIAL_STATUSES and entry.role not in LEASED_ROLES
    event = EVENT_BY_NAME.get(entry.event)
    row = BY_SOURCE.get((entry.source, event)) if event else None
    return row is not None and entry.role in row.who and entry.target == (row.target or entry.source)


# What a position is called, in every workflow.
ENDED: Final[Mapping[End, Status]] = {
    End.DONE: Status.COMPLETE,  # or MERGED, where the phase that it ended in merges
    End.NOTHING_TO_DO: Status.NOTHING_TO_DO,
    End.STOPPED: Status.ABANDONED,
    End.SUPERSEDED: Status.SUPERSEDED,
    End.BLOCKED: Status.BLOCKED,
    End.PAUSED: Status.BLOCKED,
}
SENT_BACK: Final[Mapping[Stage | None, Status]] = {
    None: Status.IDLE,
    Stage.WORK: Status.REJECTED,
    Stage.JUDGE: Status.REJECTED,
    Stage.EFFECT: Status.INTEGRATION_FAILED,
}


def label_of(position: Position, lease: Lease | None) -> Status:
    """Return what a task at *position* is called while *lease* holds it."""
    if position.end is not None:
        is_merged = position.end is End.DONE and position.stage is Stage.EFFECT
        return Status.MERGED if is_merged else ENDED[position.end]
    if position.waiting is not None:
        return _waiting(position)
    if position.stage is Stage.EFFECT:
        return Status.APPROVED
    if position.stage is Stage.JUDGE or position.worked:
        return Status.READY_FOR_REVIEW
    return Status.WORKING if lease else SENT_BACK[position.back_from]


def _waiting(position: Position) -> Status:
    if position.waiting == RELEASE:
        return Status.DRAFT
    # Somebody who is about to work, or has asked, needs an answer; what was made needs a yes.
    needs_answer = position.waiting == WORK or (position.stage is Stage.WORK and not position.worked)
    return Status.BLOCKED if needs_answer else Status.AWAITING_APPROVAL
