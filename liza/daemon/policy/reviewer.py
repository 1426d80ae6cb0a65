"""What a reviewer picks, what its verdict means, and when a failed merge needs a person."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from liza.daemon.policy.coder import MOST_FAILED_INTEGRATIONS, GateFindings
from liza.daemon.policy.conditions import FREE, LABELLED, Blocker, Candidate, Condition, all_hold, is_at_work
from liza.domain import events as e
from liza.domain.answers import FeedbackStatus, Ruling
from liza.domain.model import Status
from liza.domain.verdicts import Evidence, Feedback, Outcome, Severity, Verdict

if TYPE_CHECKING:
    from datetime import datetime

    from liza.domain.answers import Review
    from liza.domain.model import Note, State, Task
    from liza.workflow.document import Gate

_SUBMITTED: Final = frozenset({"submit", "find_nothing"})
_APPROVED: Final = frozenset({"approve", "retry_merge"})
_RESOLVED: Final = re.compile(r"\s*conflict resolved for\s+([\w.-]*\w)", re.IGNORECASE)


def pick(state: State, me: str, now: datetime) -> Task | None:
    """Return what *me* takes next: an approved task that is not merged yet, else the oldest submission."""
    return to_merge(state, me, now) or to_review(state, me, now)


def to_review(state: State, me: str, now: datetime) -> Task | None:
    return _oldest(state, me, now, _SUBMITTED, TO_REVIEW)


def to_merge(state: State, me: str, now: datetime) -> Task | None:
    return _oldest(state, me, now, _APPROVED, TO_MERGE)


def _oldest(
    state: State, me: str, now: datetime, events: frozenset[str], conditions: tuple[Condition, ...]
) -> Task | None:
    if is_at_work(state, me):
        return None
    found = [task for task in state.tasks.values() if all_hold(conditions, Candidate(state, task, me, now))]
    return min(found, key=lambda task: _last_event_time(task, events), default=None)


def _status_blocker(look: Candidate) -> Blocker:
    return Blocker(f"{look.task.status} is not for reviewers", "nobody", f"liza task show {look.task.id}")


def _is_held(look: Candidate) -> bool:
    return look.task.lease is not None and look.task.lease.is_live(look.now)


def _lease_blocker(look: Candidate) -> Blocker:
    holder = look.task.lease.holder if look.task.lease else "nobody"
    return Blocker(f"{holder} is at it", holder, f"liza explain {holder}")


def _own_work_blocker(look: Candidate) -> Blocker:
    return Blocker(
        f"{look.me} wrote it, and nobody judges their own work",
        "another reviewer",
        f"liza task show {look.task.id}",
    )


def _taint_blocker(look: Candidate) -> Blocker:
    return Blocker(
        "it passed by force, and merges only once a person accepts that",
        "you",
        f"liza task accept {look.task.id}",
    )


def task_in_merge(state: State, now: datetime) -> Task | None:
    """Return the task that is being merged: its lease is the place at the head of the queue.

    One at a time: of two merges that are tested beside each other, the second to land is tested for nothing.
    """
    tasks = (task for task in state.tasks.values() if task.status is Status.APPROVED)
    return next((task for task in tasks if task.lease and task.lease.is_live(now)), None)


def is_next_to_merge(state: State, task: Task, now: datetime) -> bool:
    """Return whether the approved *task* is first in the queue of merges, and nobody else merges."""
    queue = [one for one in state.tasks.values() if one.status is Status.APPROVED and one.id != task.id]
    is_held = any(one.lease and one.lease.is_live(now) for one in queue)
    waiting = (one for one in queue if not one.is_tainted)  # that waits for a person
    return not is_held and all(approved_at(one) >= approved_at(task) for one in waiting)


def approved_at(task: Task) -> datetime:
    """Return since when *task* waits to be merged."""
    return _last_event_time(task, _APPROVED)


def _is_merge_free(look: Candidate) -> bool:
    other = task_in_merge(look.state, look.now)
    return other is None or other is look.task


def _merge_queue_blocker(look: Candidate) -> Blocker:
    other = task_in_merge(look.state, look.now)
    holder = other.lease.holder if other and other.lease else "nobody"
    name = other.id if other else "another task"
    return Blocker(
        f"{holder} merges {name}, and merges come one after the other", holder, f"liza explain {name}"
    )


_NOT_OWN: Final = Condition(lambda look: look.me not in look.task.authors, _own_work_blocker)
_NOT_HELD: Final = Condition(lambda look: not _is_held(look), _lease_blocker)
TO_REVIEW: Final = (
    Condition(lambda look: look.task.status is Status.READY_FOR_REVIEW, _status_blocker),
    _NOT_HELD,
    _NOT_OWN,
    LABELLED,
    FREE,
)
TO_MERGE: Final = (
    Condition(lambda look: look.task.status is Status.APPROVED, _status_blocker),
    Condition(lambda look: not look.task.is_tainted, _taint_blocker),
    _NOT_HELD,
    Condition(_is_merge_free, _merge_queue_blocker),
    _NOT_OWN,
    LABELLED,
    FREE,
)


def _last_event_time(task: Task, events: frozenset[str]) -> datetime:
    """Return when one of *events* last happened; long ago where history no longer shows it."""
    return next((entry.at for entry in reversed(task.history) if entry.event in events), task.created)


_OUTCOMES: Final = {Ruling.APPROVE: Outcome.PASS, Ruling.REJECT: Outcome.REVISE, Ruling.BLOCK: Outcome.BLOCK}


def verdict_of_review(gate: str, review: Review, *, tree: str, run: str, at: datetime) -> Verdict:
    """Return what the word of a reviewer's agent comes to; an approval with open points is none."""
    outcome, reason, feedback = _OUTCOMES[review.verdict], review.reason, review.feedback
    if outcome is Outcome.PASS and (left := open_points(review)):
        outcome, feedback = Outcome.REVISE, left
        reason = f"approved, although points are open: {left[0].message}"
    seen = Evidence(run=run)
    return Verdict(
        gate=gate,
        outcome=outcome,
        at=at,
        tree=tree,
        reason=reason,
        feedback=feedback,
        label=review.label,
        confidence=review.confidence,
        evidence=seen,
    )


def event_for_verdicts(task: Task, found: GateFindings) -> e.Event:
    """Return what follows from what machines and reviewers said about *task*."""
    new = new_verdicts(task, found.verdicts)
    facts: dict[str, Any] = {"verdicts": new, "known": found.known}
    if found.outcome is Outcome.ASK:  # a gate that asks means a person
        question = f"How should this be settled: {found.reason}"
        return e.Block(reason=found.reason, questions=(question,), only_people=True)
    if found.outcome is not Outcome.PASS:
        asked = tuple(item.message for item in found.feedback if item.message.endswith("?"))[:3]
        said = facts | {
            "reason": found.reason,
            "feedback": _earlier_refusals(task, found) or found.feedback,
            "questions": () if found.outcome is Outcome.REVISE else asked,
        }
        return e.Report(outcome=found.outcome, **said)
    if task.nothing_to_do:
        return e.Report(reason=found.reason, **facts)
    return e.Report(commit=task.review_commit, **facts)


def _earlier_refusals(task: Task, found: GateFindings) -> tuple[Feedback, ...]:
    """Return what machines said against the work when it was handed in, where nobody said anything since."""
    if any(one.outcome is not Outcome.PASS for one in found.verdicts):
        return ()
    return tuple(item for one in task.verdicts if one.outcome is found.outcome for item in one.feedback)


def new_verdicts(task: Task, verdicts: tuple[Verdict, ...]) -> tuple[Verdict, ...]:
    """Return the *verdicts* that were not submitted with the work: each is told, and counted, once."""
    return tuple(verdict for verdict in verdicts if verdict not in task.verdicts)


def open_points(review: Review) -> tuple[Feedback, ...]:
    """Return what the review itself says must still be mended; to approve that is a contradiction."""
    # A remark beside an approval that says nothing of its weight is a remark.
    weighed = (item for item in review.feedback if "severity" in item.model_fields_set)
    blockers = tuple(item for item in weighed if item.severity is Severity.BLOCKER)
    earlier = (prior for prior in review.prior_feedback if prior.status is FeedbackStatus.OPEN)
    return (*blockers, *(Feedback(message=prior.message) for prior in earlier))


def missing_feedback(task: Task, review: Review) -> str | None:
    """Return what an approval should have said about the review before; it is asked for once.

    A rejection is never asked for again: whoever was about to reject might approve the second time.
    """
    if review.verdict is not Ruling.APPROVE or not task.review_cycles_current or not task.rejection_feedback:
        return None
    if len(review.prior_feedback) >= len(task.rejection_feedback):
        return None
    return (
        f"prior_feedback says what became of {len(review.prior_feedback)} of "
        f"{len(task.rejection_feedback)} points of the review before; say it of each"
    )


def event_for_silence(
    why: str, gate: Gate, said: tuple[Verdict, ...], tree: str | None, at: datetime
) -> e.Event:
    """Return what the silence of a reviewer means: as the gate says, and never a pass."""
    reason = f"the review gave no verdict twice: {why}"
    question = "Should it be reviewed again, or is something wrong with the reviewer's agent?"
    silence = Verdict(gate=gate.id, outcome=Outcome.NONE, at=at, tree=tree, reason=reason)
    return e.Report(
        outcome=Outcome.NONE,
        reason=reason,
        questions=(question,),
        only_people=True,
        verdicts=(*said, silence),
    )


def events_for_conflict(task: Task, reason: str, paths: tuple[str, ...]) -> tuple[e.Event, ...]:
    """Return what follows from a conflict that nobody could resolve without thought.

    Its coder gets it back, unless it came to nothing before on the same paths: then people are asked.
    """
    failed = e.Report(outcome=Outcome.REVISE, reason=reason, paths=paths)
    again = set(paths) & set(task.conflicted)
    if not again or task.integration_failures < MOST_FAILED_INTEGRATIONS - 1:
        return (failed,)
    note = f"Conflict resolved for {task.id}"
    question = f"Can you merge task/{task.id} into the integration branch, and note `{note}`?"
    reason = f"it conflicts again in {', '.join(sorted(again))}: {reason}"
    return failed, e.Block(reason=reason, questions=(question,), only_people=True)


class ResolvedConflict(NamedTuple):
    """A person says that a conflict is out of the way."""

    note: Note
    task: Task


def resolved_conflict(state: State) -> ResolvedConflict | None:
    """Return the oldest note that a person resolved the conflict of a task that still waits for it."""
    for note in state.human_notes.values():
        task = state.tasks.get(conflict_task_in(note) or "")
        if note.processed is None and task is not None and is_retriable(task):
            return ResolvedConflict(note, task)
    return None


def conflict_task_in(note: Note) -> str | None:
    """Return the task whose conflict *note* says is resolved."""
    match = _RESOLVED.match(note.message)
    return match[1] if match else None


def is_retriable(task: Task) -> bool:
    waits = task.status in {Status.INTEGRATION_FAILED, Status.BLOCKED}
    return waits and bool(task.approved_by and task.review_commit and task.integration_failure)
