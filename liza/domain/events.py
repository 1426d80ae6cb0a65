"""What can happen to a task: events that carry the facts their transition needs.

An event says three things about itself: why it may not happen to this task (`refusal`), which fields it
sets (`changes`), and what history keeps of it (`facts`). Which statuses and roles it belongs to is said in
the table of `lifecycle`, and nowhere else.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final

from pydantic import Field, TypeAdapter, field_validator

from liza.domain.model import Checkpoint, IntegrationFailure, Lease, MergeIntent, Taint, Task
from liza.domain.record import Commit, Id, NonEmptyStr, Record, Time
from liza.domain.similarity import normalized_digest
from liza.domain.verdicts import Decision, Evidence, Feedback, Outcome, Verdict

if TYPE_CHECKING:
    from datetime import datetime

    from liza.domain.model import Actor

Questions = Annotated[tuple[NonEmptyStr, ...], Field(min_length=1, max_length=3)]
FieldChanges = dict[str, Any]

NO_REVIEW: Final[FieldChanges] = {
    "review_commit": None,
    "submitted_run": None,
    "nothing_to_do": None,
    "approved_by": None,
    "merging": None,
    "integration_failure": None,
}
NO_BLOCK: Final[FieldChanges] = {
    "blocked_reason": None,
    "blocked_questions": (),
    "blocked_rule": None,
    "planner_questions": (),
    "asked": None,
}
# Another chance is a real one: whoever failed may try again, and old conflicts do not count.
NO_FAILURES: Final[FieldChanges] = {"failed_by": (), "integration_failures": 0, "conflicted": ()}
LONGEST_REASON: Final = 300  # characters of a decision's reason: enough to tell whether it is the same one
NO_HOLDER: Final[FieldChanges] = {"lease": None, "assigned_to": None}
FRESH_ROUNDS: Final[FieldChanges] = {
    "iteration": 0,
    "attempt": 0,
    "review_cycles_current": 0,
    "decisions": (),
    "signals": (),
}
MAX_FRESH_STARTS: Final = 1  # that a planner gives after a limit: the next limit is for people
MAX_UNBLOCKS: Final = 3  # that a planner gives between two words of people, whoever codes


class Event(Record):
    verb: ClassVar[str]  # completes "coder-1 may not … a task that is MERGED"
    silent: ClassVar[bool] = False  # True where history would only grow noise; the journal has it anyway

    def refusal(self, task: Task, by: Actor, at: datetime) -> str | None:  # noqa: ARG002
        """Return why this may not happen to *task* although the table has a row, or None."""
        return None

    def changes(self, task: Task, by: Actor, at: datetime) -> FieldChanges:  # noqa: ARG002
        """Return the fields of *task* that this sets, apart from its status."""
        return {}

    def facts(self) -> dict[str, Any]:
        """Return what history keeps."""
        return self.to_json()


class Report(Event):
    """Tell the workflow what came of a job; where that leads, its engine says."""

    verdicts: tuple[Verdict, ...] = ()  # in the order of the gates
    known: tuple[
        NonEmptyStr, ...
    ] = ()  # predicates that hold for this work, which conditions of gates ask for
    tree: Commit | None = None  # that was made, or that the verdicts are about

    def facts(self) -> dict[str, Any]:
        told = {key: value for key, value in self.to_json().items() if key not in Report.model_fields}
        return told | _gate_outcomes(self.verdicts)


class Ready(Event):
    verb = "release to coders"


class Claim(Event):
    """A coder takes the task; another coder than before starts its counters anew."""

    verb = "claim"
    lease: Lease
    base_commit: Commit

    def refusal(self, task: Task, by: Actor, at: datetime) -> str | None:  # noqa: ARG002
        return _lease_refusal(self.lease, by, at)

    def changes(self, task: Task, by: Actor, at: datetime) -> FieldChanges:  # noqa: ARG002
        again = bool(task.authors) and task.authors[-1] == by.id
        return {
            **NO_REVIEW,
            "assigned_to": by.id,
            "lease": self.lease,
            "base_commit": self.base_commit,
            "checkpoint": None,
            "authors": (*(author for author in task.authors if author != by.id), by.id),
            # An attempt that ended without an outcome (released, reclaimed) repeats its round.
            "iteration": task.iteration + (task.attempt == 0) if again else 1,
            "attempt": task.attempt + 1 if again else 1,
            "review_cycles_current": task.review_cycles_current if again else 0,
            "verdicts": (),
            "decisions": task.decisions if again else (),
            "signals": task.signals if again else (),
        }

    def facts(self) -> dict[str, Any]:
        return {"base_commit": self.base_commit}


class WriteCheckpoint(Event):
    verb = "write the checkpoint of"
    checkpoint: Checkpoint

    def refusal(self, task: Task, by: Actor, at: datetime) -> str | None:  # noqa: ARG002
        return "its checkpoint is written already" if task.checkpoint else None

    def changes(self, task: Task, by: Actor, at: datetime) -> FieldChanges:  # noqa: ARG002
        return {"checkpoint": self.checkpoint}

    def facts(self) -> dict[str, Any]:
        return self.checkpoint.to_json()


class Submit(Report):
    """Hand in what every gate of the coder's side has passed."""

    verb = "submit"
    commit: Commit
    phase: NonEmptyStr | None = None  # the phase that this decides, where the workflow counts it
    squashed: Commit | None = None  # the agent's own commit, where Liza made one commit of all that led to it
    squashed_for: NonEmptyStr | None = None  # which gate wanted it, and why

    def refusal(self, task: Task, by: Actor, at: datetime) -> str | None:  # noqa: ARG002
        return "the commit is its base, so nothing was done" if self.commit == task.base_commit else None

    def changes(self, task: Task, by: Actor, at: datetime) -> FieldChanges:
        return {
            "review_commit": self.commit,
            "submitted_run": by.run,
            "lease": None,
            "guidance": None,
            "verdicts": self.verdicts,
            "decisions": _with_decision(task, self.phase, Outcome.PASS, None, at),
        }

    def facts(self) -> dict[str, Any]:
        squashed = {"squashed": self.squashed, "squashed_for": self.squashed_for} if self.squashed else {}
        return {"commit": self.commit, **squashed, **_gate_outcomes(self.verdicts)}


class Revise(Report):
    """A gate of the coder's side sends the work back before anybody reviews it."""

    verb = "send back"
    reason: NonEmptyStr
    feedback: Annotated[tuple[Feedback, ...], Field(min_length=1)]
    phase: NonEmptyStr | None = None

    def changes(self, task: Task, by: Actor, at: datetime) -> FieldChanges:  # noqa: ARG002
        return {
            "rejection_reason": self.reason,
            "rejection_feedback": self.feedback,
            "rejection_output": _rejecting_evidence(self.verdicts),
            "verdicts": self.verdicts,
            "decisions": _with_decision(
                task, self.phase, Outcome.REVISE, self.reason, at, output=_output_digest(self.verdicts)
            ),
            "lease": None,
            "attempt": 0,
        }

    def facts(self) -> dict[str, Any]:
        return {"reason": self.reason, **_gate_outcomes(self.verdicts)}


class FindNothing(Report):
    """The coder says that nothing needs doing; a reviewer has to confirm it."""

    verb = "find nothing to do in"
    summary: NonEmptyStr

    def changes(self, task: Task, by: Actor, at: datetime) -> FieldChanges:  # noqa: ARG002
        return {
            "nothing_to_do": self.summary,
            "review_commit": task.base_commit,
            "submitted_run": by.run,
            "lease": None,
        }

    def facts(self) -> dict[str, Any]:
        return {"summary": self.summary}


class Renew(Event):
    """Prolong the lease. A lease past its time that nobody took over yet may still be renewed."""

    verb = "renew the lease of"
    silent = True
    expires: Time

    def refusal(self, task: Task, by: Actor, at: datetime) -> str | None:  # noqa: ARG002
        return None if self.expires > at else "the new end of the lease is in the past"

    def changes(self, task: Task, by: Actor, at: datetime) -> FieldChanges:  # noqa: ARG002
        return {"lease": task.lease and task.lease.replace(expires=self.expires)}


class Release(Event):
    """Give the task back, without blame: the attempt counts only where a run was used up for nothing."""

    verb = "release"
    reason: NonEmptyStr
    killed: bool = False  # by whom nobody knows, so that nothing follows from it for the task
    used_up: bool = False  # the agent worked until it could not go on, as with a full context

    def refusal(self, task: Task, by: Actor, at: datetime) -> str | None:  # noqa: ARG002
        return None if task.lease else "nobody holds it"

    def changes(self, task: Task, by: Actor, at: datetime) -> FieldChanges:  # noqa: ARG002
        # Not down to 0, which would make the next attempt a new round.
        uncounted = {"attempt": max(1, task.attempt - 1)} if task.attempt and not self.counts() else {}
        return {**_release_changes(task), **uncounted}

    def counts(self) -> bool:
        """Return whether the attempt that ends so is one of those without progress."""
        return self.used_up


class Reclaim(Release):
    """Take the task from a holder that died or fell silent."""

    verb = "reclaim"

    def counts(self) -> bool:
        return not self.killed


class Lose(Event):
    """The machine went down before what was submitted was on disk: it is done again."""

    verb = "give up the lost work of"
    reason: NonEmptyStr

    def changes(self, task: Task, by: Actor, at: datetime) -> FieldChanges:  # noqa: ARG002
        return {**NO_HOLDER, **NO_REVIEW, "verdicts": (), "guidance": self.reason}


class Fail(Event):
    """A coder gives up; another one takes over."""

    verb = "fail"
    reason: NonEmptyStr

    def changes(self, task: Task, by: Actor, at: datetime) -> FieldChanges:  # noqa: ARG002
        failed = tuple(dict.fromkeys((*task.failed_by, *task.authors[-1:])))
        return {**NO_HOLDER, "failed_by": failed, "attempt": 0}


class TakeReview(Event):
    verb = "take for review"
    lease: Lease

    def refusal(self, task: Task, by: Actor, at: datetime) -> str | None:
        if task.lease and task.lease.is_live(at):
            return f"{task.lease.holder} holds it until {task.lease.expires:%H:%M:%SZ}"
        return _lease_refusal(self.lease, by, at) or _own_work_refusal(task, by)

    def changes(self, task: Task, by: Actor, at: datetime) -> FieldChanges:  # noqa: ARG002
        return {"lease": self.lease}

    def facts(self) -> dict[str, Any]:
        return {}


class Approve(Report):
    verb = "approve"
    commit: Commit
    phase: NonEmptyStr | None = None
    taints: tuple[NonEmptyStr, ...] = ()  # what the pass is marked with, until a person accepts it

    def refusal(self, task: Task, by: Actor, at: datetime) -> str | None:  # noqa: ARG002
        if self.commit != task.review_commit:
            return f"the verdict is on {self.commit[:12]}, but {str(task.review_commit)[:12]} was submitted"
        return _no_change_refusal(task) or _own_work_refusal(task, by)

    def changes(self, task: Task, by: Actor, at: datetime) -> FieldChanges:
        return {
            "approved_by": by.id,
            "approval_question": None,
            "verdicts": _merge_verdicts(task, self.verdicts),
            "decisions": _with_decision(task, self.phase, Outcome.PASS, None, at),
            "taints": _with_taints(task, self.taints, at),
        }

    def facts(self) -> dict[str, Any]:
        marks = {"taints": list(self.taints)} if self.taints else {}
        return {"commit": self.commit, **_gate_outcomes(self.verdicts), **marks}


class Reject(Report):
    verb = "reject"
    reason: NonEmptyStr
    feedback: Annotated[tuple[Feedback, ...], Field(min_length=1)]
    phase: NonEmptyStr | None = None

    def refusal(self, task: Task, by: Actor, at: datetime) -> str | None:  # noqa: ARG002
        return _own_work_refusal(task, by)

    def changes(self, task: Task, by: Actor, at: datetime) -> FieldChanges:  # noqa: ARG002
        return {
            "rejection_reason": self.reason,
            "rejection_feedback": self.feedback,
            "rejection_output": _rejecting_evidence(self.verdicts),
            "approval_question": None,
            "lease": None,
            "attempt": 0,
            "review_cycles_current": task.review_cycles_current + 1,
            "review_cycles_total": task.review_cycles_total + 1,
            "verdicts": _merge_verdicts(task, self.verdicts),
            "decisions": _with_decision(task, self.phase, Outcome.REVISE, self.reason, at),
        }

    def facts(self) -> dict[str, Any]:
        points = [item.to_json() for item in self.feedback]
        return {"reason": self.reason, "feedback": points, **_gate_outcomes(self.verdicts)}


class Confirm(Report):
    """The reviewer agrees that nothing needs doing."""

    verb = "confirm nothing to do in"
    reason: NonEmptyStr

    def refusal(self, task: Task, by: Actor, at: datetime) -> str | None:  # noqa: ARG002
        return _own_work_refusal(task, by) if task.nothing_to_do else "it carries a change to be judged"

    def changes(self, task: Task, by: Actor, at: datetime) -> FieldChanges:  # noqa: ARG002
        return {**NO_HOLDER, "approved_by": by.id}


class AskHuman(Report):
    """Let a person decide, who is shown what the reviewers' side said so far."""

    verb = "ask a person about"
    question: NonEmptyStr
    taints: tuple[NonEmptyStr, ...] = ()

    def refusal(self, task: Task, by: Actor, at: datetime) -> str | None:  # noqa: ARG002
        return _merging_refusal(task)

    def changes(self, task: Task, by: Actor, at: datetime) -> FieldChanges:  # noqa: ARG002
        return {
            "approval_question": self.question,
            "lease": None,
            "verdicts": _merge_verdicts(task, self.verdicts),
            "taints": _with_taints(task, self.taints, at),
        }

    def facts(self) -> dict[str, Any]:
        return {"question": self.question, **_gate_outcomes(self.verdicts)}


class ForcePass(Event):
    """A rule lets the task through without a verdict; the taint stays until a person accepts it."""

    verb = "force through"
    mark: NonEmptyStr

    def refusal(self, task: Task, by: Actor, at: datetime) -> str | None:  # noqa: ARG002
        return _no_change_refusal(task)

    def changes(self, task: Task, by: Actor, at: datetime) -> FieldChanges:
        return {"approved_by": by.id, "lease": None, "taints": (*task.taints, Taint(mark=self.mark, at=at))}


class AcceptTaint(Event):
    verb = "accept the taint of"
    reason: NonEmptyStr

    def refusal(self, task: Task, by: Actor, at: datetime) -> str | None:  # noqa: ARG002
        return None if task.is_tainted else "it has no taint to accept"

    def changes(self, task: Task, by: Actor, at: datetime) -> FieldChanges:
        return {
            "taints": tuple(
                taint if taint.accepted_by else taint.replace(accepted_by=by.id, accepted_at=at)
                for taint in task.taints
            )
        }


class StartMerge(Report):
    """Record which merge is about to happen, so that a crash after the ref moved can be told."""

    verb = "start merging"
    onto: Commit
    commit: Commit

    def refusal(self, task: Task, by: Actor, at: datetime) -> str | None:  # noqa: ARG002
        return "a pass was forced and nobody accepted it" if task.is_tainted else None

    def changes(self, task: Task, by: Actor, at: datetime) -> FieldChanges:  # noqa: ARG002
        return {"merging": MergeIntent(onto=self.onto, commit=self.commit)}


class Merge(Report):
    verb = "merge"
    commit: Commit

    def refusal(self, task: Task, by: Actor, at: datetime) -> str | None:  # noqa: ARG002
        if task.is_tainted:
            return "a pass was forced and nobody accepted it"
        if task.merging is None or task.merging.commit != self.commit:
            return f"no merge as {self.commit[:12]} was started"
        return None

    def changes(self, task: Task, by: Actor, at: datetime) -> FieldChanges:  # noqa: ARG002
        return {**NO_HOLDER, "merge_commit": self.commit}


class FailIntegration(Report):
    verb = "fail the integration of"
    failure: IntegrationFailure
    phase: NonEmptyStr | None = None

    def changes(self, task: Task, by: Actor, at: datetime) -> FieldChanges:  # noqa: ARG002
        return {
            "integration_failure": self.failure,
            "integration_failures": task.integration_failures + 1,
            "conflicted": self.failure.paths,
            "lease": None,
            "merging": None,
            "attempt": 0,
            "verdicts": _merge_verdicts(task, self.verdicts),
            "decisions": _with_decision(
                task, self.phase, Outcome.REVISE, self.failure.reason, at, is_merge=True
            ),
        }

    def facts(self) -> dict[str, Any]:
        return self.failure.to_json() | _gate_outcomes(self.verdicts)


class RetryMerge(Event):
    verb = "retry the merge of"
    reason: NonEmptyStr

    def refusal(self, task: Task, by: Actor, at: datetime) -> str | None:  # noqa: ARG002
        if task.integration_failure and task.approved_by and task.review_commit:
            return None
        return "it was not an approved task that failed to merge"

    def changes(self, task: Task, by: Actor, at: datetime) -> FieldChanges:  # noqa: ARG002
        return {**NO_BLOCK, **NO_FAILURES, "integration_failure": None}


class Complete(Report):
    verb = "complete"
    summary: NonEmptyStr

    def refusal(self, task: Task, by: Actor, at: datetime) -> str | None:  # noqa: ARG002
        return "a pass was forced and nobody accepted it" if task.is_tainted else None

    def changes(self, task: Task, by: Actor, at: datetime) -> FieldChanges:  # noqa: ARG002
        return NO_HOLDER


class Proceed(Event):
    """Move on to the next phase of the workflow, with counters of its own."""

    verb = "move on"
    phase: NonEmptyStr

    def changes(self, task: Task, by: Actor, at: datetime) -> FieldChanges:  # noqa: ARG002
        return {
            **NO_HOLDER,
            **NO_REVIEW,
            **FRESH_ROUNDS,
            "phase": self.phase,
            "checkpoint": None,
            "rejection_reason": None,
            "rejection_feedback": (),
            "rejection_output": None,
        }


class Block(Event):
    verb = "block"
    reason: NonEmptyStr
    questions: Questions
    rule: NonEmptyStr | None = None  # the limit that was reached, where one was
    only_people: bool = False  # no planner can help: a conflict, money, the repository, a program

    def refusal(self, task: Task, by: Actor, at: datetime) -> str | None:  # noqa: ARG002
        return _merging_refusal(task)

    def changes(self, task: Task, by: Actor, at: datetime) -> FieldChanges:  # noqa: ARG002
        spent = self.rule is not None and task.fresh_starts >= MAX_FRESH_STARTS
        is_for_people = self.only_people or spent or task.unblocks >= MAX_UNBLOCKS
        return {
            **NO_HOLDER,
            **NO_BLOCK,
            "blocked_reason": self.reason,
            "blocked_questions": self.questions,
            "blocked_rule": self.rule,
            "asked": at if is_for_people else None,
            "attempt": 0,
        }

    def facts(self) -> dict[str, Any]:
        return {key: value for key, value in self.to_json().items() if key != "only_people"}


class Defer(Event):
    """The planner has no answer either; from now on the task waits for a person."""

    verb = "ask people about"
    questions: Questions

    def changes(self, task: Task, by: Actor, at: datetime) -> FieldChanges:  # noqa: ARG002
        return {"planner_questions": self.questions, "asked": at}


class Unblock(Event):
    """The planner knows the answer; counters go on, and start anew where a limit had blocked the task."""

    verb = "unblock"
    guidance: NonEmptyStr

    def changes(self, task: Task, by: Actor, at: datetime) -> FieldChanges:  # noqa: ARG002
        is_limit = task.blocked_rule is not None
        return {
            **NO_BLOCK,
            **NO_REVIEW,
            **NO_FAILURES,
            **(FRESH_ROUNDS if is_limit else {}),
            "guidance": self.guidance,
            "unblocks": task.unblocks + 1,
            "fresh_starts": task.fresh_starts + is_limit,
        }


class Retry(Event):
    """A person gives the task another chance, with fresh counters; totals stay."""

    verb = "retry"
    guidance: NonEmptyStr | None = None

    def changes(self, task: Task, by: Actor, at: datetime) -> FieldChanges:  # noqa: ARG002
        return {
            **NO_BLOCK,
            **NO_REVIEW,
            **NO_FAILURES,
            **FRESH_ROUNDS,
            "assigned_to": None,
            "guidance": self.guidance,
            "unblocks": 0,
            "fresh_starts": 0,
        }


class Supersede(Event):
    verb = "supersede"
    superseded_by: Annotated[tuple[Id, ...], Field(min_length=1)] = Field(alias="by")
    rescope_reason: NonEmptyStr

    def refusal(self, task: Task, by: Actor, at: datetime) -> str | None:  # noqa: ARG002
        return "it cannot replace itself" if task.id in self.superseded_by else None

    def changes(self, task: Task, by: Actor, at: datetime) -> FieldChanges:  # noqa: ARG002
        return {**NO_HOLDER, "superseded_by": self.superseded_by, "rescope_reason": self.rescope_reason}


class Abandon(Event):
    verb = "abandon"
    reason: NonEmptyStr

    def refusal(self, task: Task, by: Actor, at: datetime) -> str | None:  # noqa: ARG002
        return _merging_refusal(task)

    def changes(self, task: Task, by: Actor, at: datetime) -> FieldChanges:  # noqa: ARG002
        return {**NO_HOLDER, "closing_reason": self.reason}


class Amend(Event):
    """Change what is asked for, not where the task is."""

    verb = "amend"
    fields: dict[str, Any]

    @field_validator("fields")
    @classmethod
    def _as_a_task_has_them(cls, fields: FieldChanges) -> FieldChanges:
        known = {name: _adapter(name).validate_python(fields[name]) for name in fields.keys() & AMENDABLE}
        return fields | known

    def refusal(self, task: Task, by: Actor, at: datetime) -> str | None:  # noqa: ARG002
        wrong = sorted(self.fields.keys() - AMENDABLE)
        return f"{', '.join(wrong)} cannot be amended" if wrong else None

    def changes(self, task: Task, by: Actor, at: datetime) -> FieldChanges:  # noqa: ARG002
        return dict(self.fields)

    def facts(self) -> dict[str, Any]:
        return {"fields": sorted(self.fields)}


AMENDABLE: Final = frozenset(
    {
        "description",
        "kind",
        "priority",
        "done_when",
        "scope",
        "spec_ref",
        "depends_on",
        "validation",
        "guidance",
    }
)


@cache
def _adapter(name: str) -> TypeAdapter[Any]:
    field = Task.model_fields[name]
    form: Any = Annotated[field.annotation, field]
    return TypeAdapter(form)


def _with_decision(
    task: Task,
    phase: str | None,
    outcome: Outcome,
    reason: str | None,
    at: datetime,
    **more: Any,  # noqa: ANN401
) -> tuple[Decision, ...]:
    if phase is None:
        return task.decisions
    said = reason[:LONGEST_REASON].rstrip() if reason else None
    return (*task.decisions, Decision(phase=phase, outcome=outcome, at=at, reason=said, **more))


def _with_taints(task: Task, marks: tuple[str, ...], at: datetime) -> tuple[Taint, ...]:
    known = {taint.mark for taint in task.taints}
    return (*task.taints, *(Taint(mark=mark, at=at) for mark in marks if mark not in known))


def _output_digest(verdicts: tuple[Verdict, ...]) -> str | None:
    """Return a digest of the output of the gate that rejected; one command can fail for many reasons."""
    against = next((one for one in reversed(verdicts) if one.outcome is not Outcome.PASS), None)
    shown = against.evidence.tail if against and against.evidence else ""
    return normalized_digest(shown) if shown else None


def _merge_verdicts(task: Task, verdicts: tuple[Verdict, ...]) -> tuple[Verdict, ...]:
    """Return the task's verdicts, with newer verdicts of the same gates in place of older ones."""
    newer = {verdict.gate for verdict in verdicts}
    return (*(verdict for verdict in task.verdicts if verdict.gate not in newer), *verdicts)


def _gate_outcomes(verdicts: tuple[Verdict, ...]) -> dict[str, Any]:
    """Return the outcome of each gate, for the history."""
    return {"gates": {one.gate: str(one.outcome) for one in verdicts}} if verdicts else {}


def _rejecting_evidence(verdicts: tuple[Verdict, ...]) -> Evidence | None:
    """Return the evidence of the last gate that did not pass."""
    against = (one.evidence for one in reversed(verdicts) if one.outcome is not Outcome.PASS)
    return next(against, None)


def _release_changes(task: Task) -> FieldChanges:
    """Return the changes of a release; a reviewer's release keeps `assigned_to`, which names the coder."""
    holder_is_coder = task.lease is not None and task.lease.holder == task.assigned_to
    return NO_HOLDER if holder_is_coder else {"lease": None}


def _lease_refusal(lease: Lease, by: Actor, at: datetime) -> str | None:
    if lease.holder != by.id:
        return f"the lease is made out to {lease.holder}"
    return None if lease.is_live(at) else "the lease is over already"


def _no_change_refusal(task: Task) -> str | None:
    if task.nothing_to_do:
        return "it carries no change: confirm that there is nothing to do, or reject it"
    return None


def _merging_refusal(task: Task) -> str | None:
    """Return a refusal while a merge has started: the branch may already hold the commit."""
    return "its merge has begun" if task.merging else None


def _own_work_refusal(task: Task, by: Actor) -> str | None:
    if by.id in task.authors:
        return "nobody judges their own work"
    if by.run is not None and by.run == task.submitted_run:
        return "the run that produced the work cannot judge it"
    return None
