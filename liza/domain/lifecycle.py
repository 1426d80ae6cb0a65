"""The life of a task: a table of rows, the function that sets a status, and the label of a position."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from liza.domain import events as e
from liza.domain.model import SUCCEEDED as SUCCEEDED  # noqa: PLC0414 - it belongs to the table, too
from liza.domain.model import HistoryEntry, Role, Status
from liza.domain.position import RELEASE, WORK, End, Stage
from liza.errors import Forbidden, LeaseLost, Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from datetime import datetime

    from liza.domain.model import Actor, Lease, Task
    from liza.domain.position import Position


class Transition(NamedTuple):
    """*who* may let *event* happen to a task in any of *sources*, after which it is in one of *targets*."""

    event: type[e.Event]
    sources: frozenset[Status]
    targets: frozenset[Status]  # empty: it stays where it is
    who: frozenset[Role]
    held: bool = False  # a worker has to hold the lease and show its token


S = Status
P, C, R, V, H = Role.PLANNER, Role.CODER, Role.REVIEWER, Role.SUPERVISOR, Role.HUMAN


def _transition(
    event: type[e.Event], sources: Iterable[Status], targets: Iterable[Status], *who: Role, held: bool = False
) -> Transition:
    return Transition(event, frozenset(sources), frozenset(targets), frozenset(who), held)


_WAITING: Final = (S.DRAFT, S.IDLE, S.BLOCKED)
_SENT_BACK: Final = (S.REJECTED, S.INTEGRATION_FAILED)
_JUDGED: Final = (S.READY_FOR_REVIEW, S.APPROVED)
_IN_HANDS: Final = (S.WORKING, *_JUDGED, *_SENT_BACK, S.AWAITING_APPROVAL)
_GIVEN_UP: Final = (S.BLOCKED, S.ABANDONED)  # where the workflow may end what it does not let pass


def _reports(source: Status) -> frozenset[Status]:
    return frozenset((*e.REPORT_WORDS[source], *_GIVEN_UP))


# The worker whose job it is takes it and reports: who works on what waits for work, who judges on all else.
# Which of them it is, the document says (`workflow.transition`); that no maker judges, the events themselves.
TRANSITIONS: Final[tuple[Transition, ...]] = (
    _transition(e.Ready, [S.DRAFT], [S.IDLE], P, R, H),
    _transition(e.Take, [S.IDLE, *_SENT_BACK], [S.WORKING], P, C),
    _transition(e.Take, _JUDGED, [], R),
    _transition(e.Write, [S.WORKING], [], P, C, held=True),
    _transition(e.Renew, [S.WORKING], [], P, C, held=True),
    _transition(e.Renew, _JUDGED, [], R, held=True),
    _transition(e.Report, [S.WORKING], _reports(S.WORKING), P, C, held=True),
    _transition(e.Report, [S.READY_FOR_REVIEW], _reports(S.READY_FOR_REVIEW), R, V, held=True),
    _transition(e.Report, [S.APPROVED], _reports(S.APPROVED), R, V, held=True),
    _transition(e.Report, [S.AWAITING_APPROVAL], _reports(S.AWAITING_APPROVAL), H),
    _transition(e.Release, [S.WORKING], [S.IDLE], P, C, V, H, held=True),
    _transition(e.Release, _JUDGED, [], R, H, held=True),
    _transition(e.Reclaim, [S.WORKING, *_JUDGED, S.INTEGRATION_FAILED], [S.IDLE], V),
    _transition(e.Accept, [S.APPROVED, S.AWAITING_APPROVAL], [], H),
    _transition(e.Waive, [*_WAITING, *_IN_HANDS], [], H),
    _transition(e.Intend, [S.APPROVED], [], R, V, held=True),
    _transition(e.Land, [S.APPROVED], [S.MERGED], R, V, held=True),
    _transition(e.Block, [S.WORKING], [S.BLOCKED], P, C, V, H, held=True),
    _transition(e.Block, _JUDGED, [S.BLOCKED], R, V, H, held=True),
    _transition(e.Block, [S.DRAFT, S.IDLE, S.REJECTED], [S.BLOCKED], P, V, H),
    _transition(e.Block, [S.INTEGRATION_FAILED], [S.BLOCKED], P, R, V, H),
    _transition(e.Defer, [S.BLOCKED], [], P),
    _transition(e.Answer, [S.BLOCKED], [S.IDLE, S.APPROVED], P, R, V, H),
    _transition(e.Answer, [S.INTEGRATION_FAILED], [S.IDLE, S.APPROVED], R, V, H),
    _transition(e.Answer, [S.REJECTED], [S.IDLE], H),
    _transition(e.Supersede, [*_WAITING, *_SENT_BACK], [S.SUPERSEDED], P, H),
    _transition(e.Abandon, _WAITING, [S.ABANDONED], P, H),
    _transition(e.Abandon, [S.WORKING, *_JUDGED, S.AWAITING_APPROVAL], [S.ABANDONED], H),
    _transition(e.Abandon, _SENT_BACK, [S.ABANDONED], V, H),
    _transition(e.Amend, _WAITING, [], P, H),
    _transition(e.Amend, _IN_HANDS, [], H),
)

EVENTS: Final = tuple(dict.fromkeys(row.event for row in TRANSITIONS))
BY_SOURCE: Final = {(source, row.event): row for row in TRANSITIONS for source in row.sources}
EVENT_BY_WORD: Final = {word: event for event in EVENTS for word in event.words}

TERMINAL: Final = frozenset(Status) - {source for source, _ in BY_SOURCE}
CLAIMABLE: Final = frozenset({S.IDLE, *_SENT_BACK})
INITIAL_STATUSES: Final = frozenset({S.DRAFT, S.IDLE})  # where a new task may start
ADDED: Final = "added"  # the first entry of every history
ADDING_ROLES: Final = frozenset({P, V, H})
LEASED_ROLES: Final = frozenset({Role.PLANNER, Role.CODER, Role.REVIEWER})  # those whom a lease fences


def event_name(event: type[e.Event]) -> str:
    """Return what the table calls *event*."""
    return event.__name__.lower()


def moves() -> Iterator[tuple[str, Status, Status]]:
    """Yield every move of the table: what history or the table calls it, from where, to where."""
    for row in TRANSITIONS:
        for source in sorted(row.sources):
            for target in sorted(row.targets - {source}):
                if row.event is not e.Report:
                    yield event_name(row.event), source, target
                elif target in e.REPORT_WORDS[source]:
                    yield e.REPORT_WORDS[source][target], source, target


def row_for(task: Task, event: e.Event, *, by: Actor, at: datetime) -> Transition:
    """Return the row by which *event* may happen to *task*, or raise why it may not."""
    row = BY_SOURCE.get((task.status, type(event)))
    if row is None or by.role not in row.who:
        raise Forbidden(task.id, by.id, event.verb_by(by), task.status)
    if row.held and by.role in LEASED_ROLES:
        _check_lease(task, event, by, at)
    if refusal := event.refusal(task, by, at):
        raise Refused(f"{task.id}: {by.id} may not {event.verb_by(by)} it, because {refusal}")
    return row


def with_entry(before: Task, after: Task, event: e.Event, *, by: Actor, at: datetime) -> Task:
    """Return *after* with what history says of *event*; raise where its status requires more than it has."""
    if not event.silent:
        entry = HistoryEntry(
            # A clock that was set back must not make the board invalid: history never runs backwards.
            at=max([at, *(last.at for last in before.history[-1:])]),
            event=event.word(by, before.status, after.status),
            by=by.id,
            role=by.role,
            source=before.status,
            target=after.status,
            facts=event.facts(before.status),
        )
        after = after.replace(history=(*before.history, entry))
    for promise in unmet_requirements(after):
        why = f"a task that is {after.status} {promise.says}"
        raise Refused(f"{before.id}: {by.id} may not {event.verb_by(by)} it, because {why}")
    return after


def _check_lease(task: Task, event: e.Event, by: Actor, at: datetime) -> None:
    lease = task.lease
    if lease is None:
        raise LeaseLost(task.id, by.id, event.verb_by(by), "nobody holds its lease any more")
    if lease.holder != by.id or by.token is None or lease.token != by.token:
        raise LeaseLost(task.id, by.id, event.verb_by(by), f"the lease is {lease.holder}'s by another token")
    if not lease.is_live(at) and not isinstance(event, e.Renew):
        raise LeaseLost(
            task.id, by.id, event.verb_by(by), f"the lease ended at {lease.expires:%Y-%m-%dT%H:%M:%SZ}"
        )


def is_allowed_entry(entry: HistoryEntry) -> bool:
    """Return whether the transition table allows a history entry."""
    if entry.source is None:
        return entry.event == ADDED and entry.target in INITIAL_STATUSES and entry.role in ADDING_ROLES
    event = EVENT_BY_WORD.get(entry.event)
    row = BY_SOURCE.get((entry.source, event)) if event else None
    if row is None or entry.role not in row.who:
        # A report may end a task, as the document says, by whoever makes it.
        row = BY_SOURCE.get((entry.source, e.Report)) if event in {e.Block, e.Abandon} else None
    if row is None or entry.role not in row.who:
        return False
    if event is e.Report and entry.event not in {"find_nothing", "force_pass"}:
        return e.REPORT_WORDS[entry.source].get(entry.target) == entry.event
    return entry.target in row.targets or entry.target is entry.source


class Requirement(NamedTuple):
    says: str  # completes "a task that is WORKING …"
    field: str
    holds: Callable[[Task], bool]


_HELD_BY_ITS_CODER: Final = Requirement(
    "is leased to the coder it is assigned to",
    "lease",
    lambda task: task.lease is not None and task.lease.holder == task.assigned_to,
)
_NOT_HELD: Final = Requirement("is held by nobody", "lease", lambda task: task.lease is None)
_HELD_BY_NO_AUTHOR: Final = Requirement(
    "is held by nobody but a reviewer who did not write it",
    "lease",
    lambda task: task.lease is None or task.lease.holder not in task.authors,
)
_HAS_BASE: Final = Requirement("has a base_commit", "base_commit", lambda task: task.base_commit is not None)
_IS_COUNTED: Final = Requirement(
    "counts its iteration and attempt from 1",
    "iteration",
    lambda task: task.iteration >= 1 and task.attempt >= 1,
)
_HAS_AUTHOR: Final = Requirement("names its author", "authors", lambda task: bool(task.authors))
_HAS_WORK: Final = Requirement(
    "has a review_commit that is not its base, unless there is nothing to do, or words are all of it",
    "review_commit",
    lambda task: (
        (task.review_commit is None and bool(task.artifacts))
        or (
            task.review_commit is not None
            and (task.review_commit == task.base_commit) == (task.nothing_to_do is not None)
        )
    ),
)
_ANY_WORK_IS_MORE: Final = Requirement(
    "has no review_commit that is its base, unless it says there is nothing to do",
    "review_commit",
    lambda task: task.review_commit is None or _HAS_WORK.holds(task),
)
_HAS_APPROVER: Final = Requirement(
    "has an approved_by who is none of its authors",
    "approved_by",
    lambda task: task.approved_by is not None and task.approved_by not in task.authors,
)
_SAYS_WHY_REJECTED: Final = Requirement(
    "has a rejection_reason and rejection_feedback",
    "rejection_reason",
    lambda task: task.rejection_reason is not None and bool(task.rejection_feedback),
)
_MOST_QUESTIONS: Final = 3
_SAYS_WHY_BLOCKED: Final = Requirement(
    "has a blocked_reason and one to three blocked_questions",
    "blocked_reason",
    lambda task: task.blocked_reason is not None and 1 <= len(task.blocked_questions) <= _MOST_QUESTIONS,
)
_SAYS_WHAT_FAILED: Final = Requirement(
    "has an integration_failure with its reason",
    "integration_failure",
    lambda task: task.integration_failure is not None,
)
_IS_MERGED: Final = Requirement(
    "has the merge_commit that was started",
    "merge_commit",
    lambda task: (
        task.merge_commit is not None
        and task.merging is not None
        and task.merging.commit == task.merge_commit
    ),
)
_NOT_MERGED: Final = Requirement(
    "has no merge_commit", "merge_commit", lambda task: task.merge_commit is None
)
_IS_CLEAN: Final = Requirement(
    "has no taint that nobody accepted", "taints", lambda task: not task.is_tainted
)
_NAMES_SUCCESSORS: Final = Requirement(
    "has superseded_by and a rescope_reason",
    "superseded_by",
    lambda task: bool(task.superseded_by) and task.rescope_reason is not None,
)
_SAYS_WHY_CLOSED: Final = Requirement(
    "has a closing_reason", "closing_reason", lambda task: task.closing_reason is not None
)
_ASKS: Final = Requirement(
    "has an approval_question", "approval_question", lambda task: task.approval_question is not None
)
_SAYS_NOTHING_NEEDED: Final = Requirement(
    "says why there is nothing to do", "nothing_to_do", lambda task: task.nothing_to_do is not None
)

_SUBMITTED: Final = (_HAS_AUTHOR, _HAS_BASE, _HAS_WORK, _NOT_MERGED)

REQUIRES: Final[dict[Status, tuple[Requirement, ...]]] = {
    Status.DRAFT: (_NOT_HELD, _NOT_MERGED),
    Status.IDLE: (_NOT_HELD, _NOT_MERGED),
    Status.WORKING: (_HELD_BY_ITS_CODER, _HAS_AUTHOR, _HAS_BASE, _IS_COUNTED, _NOT_MERGED),
    Status.READY_FOR_REVIEW: (*_SUBMITTED, _HELD_BY_NO_AUTHOR),
    Status.REJECTED: (
        _HAS_AUTHOR,
        _HAS_BASE,
        _ANY_WORK_IS_MORE,
        _NOT_MERGED,
        _NOT_HELD,
        _SAYS_WHY_REJECTED,
    ),
    Status.APPROVED: (*_SUBMITTED, _HELD_BY_NO_AUTHOR, _HAS_APPROVER),
    Status.AWAITING_APPROVAL: (*_SUBMITTED, _NOT_HELD, _ASKS),
    Status.BLOCKED: (_NOT_HELD, _SAYS_WHY_BLOCKED, _NOT_MERGED),
    Status.INTEGRATION_FAILED: (*_SUBMITTED, _NOT_HELD, _HAS_APPROVER, _SAYS_WHAT_FAILED),
    Status.MERGED: (_NOT_HELD, _HAS_AUTHOR, _HAS_BASE, _HAS_WORK, _HAS_APPROVER, _IS_CLEAN, _IS_MERGED),
    Status.COMPLETE: (*_SUBMITTED, _NOT_HELD, _HAS_APPROVER, _IS_CLEAN),
    Status.NOTHING_TO_DO: (*_SUBMITTED, _NOT_HELD, _HAS_APPROVER, _IS_CLEAN, _SAYS_NOTHING_NEEDED),
    Status.SUPERSEDED: (_NOT_HELD, _NAMES_SUCCESSORS, _NOT_MERGED),
    Status.ABANDONED: (_NOT_HELD, _SAYS_WHY_CLOSED, _NOT_MERGED),
}


def unmet_requirements(task: Task) -> list[Requirement]:
    """Return the requirements of its status that *task* does not meet."""
    return [promise for promise in REQUIRES[task.status] if not promise.holds(task)]


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
